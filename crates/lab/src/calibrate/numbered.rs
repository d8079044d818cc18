//! Numbered packets: the sender gives each a number, the receiver says which
//! arrived. UDP, because nothing else should come between.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::{Hosts, right_address};
use crate::error::{During, LabError};
use crate::netns::Namespace;
use crate::overflows::receiver_overflows;

const PORT: u16 = 5301;
/// Small, so that many fit the time there is; 60 bytes of Ethernet frame.
const PAYLOAD_BYTES: usize = 18;
/// Packets per millisecond: a fifth of what the emulator can carry.
const PER_MS: u64 = 40;
/// Room for half a second of packets.
const BUFFER_BYTES: usize = 16 << 20;
/// How long after the last packet the receiver goes on.
const PATIENCE: Duration = Duration::from_millis(1000);
/// The sender does not catch up on more than this, which would be a burst.
const BEHIND_MAX: Duration = Duration::from_millis(10);

/// The receiving thread: what entering the namespace and counting came to.
type Receiver = JoinHandle<Result<Result<Count, LabError>, LabError>>;

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) duplicates: u64,
    pub(super) out_of_order: u64,
}

impl Count {
    pub(super) fn lost(self) -> u64 {
        self.sent - self.received
    }
}

/// Sends `packets` from left to right.
pub(super) fn send(hosts: &Hosts, packets: u64) -> Result<Count, LabError> {
    let overflows = receiver_overflows(&hosts.right)?;
    let is_sent = Arc::new(AtomicBool::new(false));
    let receiver = start_receiver(&hosts.right, packets, Arc::clone(&is_sent))?;
    let sent = hosts.left.within(|| send_paced(hosts, packets));
    is_sent.store(true, Ordering::Release);
    let count = receiver.join().map_err(|_| LabError::Invalid {
        what: "the receiver of numbered packets".to_owned(),
        why: "it panicked".to_owned(),
    })??;
    sent??;
    let overflows = receiver_overflows(&hosts.right)? - overflows;
    if overflows > 0 {
        return Err(LabError::Invalid {
            what: "the receiver of numbered packets".to_owned(),
            why: format!("its own buffer overflowed {overflows} times"),
        });
    }
    count
}

fn send_paced(hosts: &Hosts, packets: u64) -> Result<(), LabError> {
    let socket = bind("0.0.0.0:0")?;
    let to = format!("{}:{PORT}", right_address());
    socket
        .connect(&to)
        .during(|| format!("connecting to {to}"))?;
    let mut payload = [0u8; PAYLOAD_BYTES];
    let mut due = Instant::now();
    for number in 0..packets {
        if number % PER_MS == 0 {
            hosts.check_stop()?;
            due += Duration::from_millis(1);
            let now = Instant::now();
            sleep(due.saturating_duration_since(now));
            due = due.max(now.checked_sub(BEHIND_MAX).unwrap_or(now));
        }
        payload[..8].copy_from_slice(&number.to_be_bytes());
        while let Err(error) = socket.send(&payload) {
            // Only a full transmit queue passes by waiting.
            if error.raw_os_error() != Some(rustix::io::Errno::NOBUFS.raw_os_error()) {
                return Err(error).during(|| format!("sending to {to}"));
            }
            sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn start_receiver(
    namespace: &Namespace,
    packets: u64,
    is_sent: Arc<AtomicBool>,
) -> Result<Receiver, LabError> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let receiver = namespace.spawn_within(move || {
        let socket = bind(&format!("{}:{PORT}", right_address()))?;
        set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)
            .during(|| "growing the receiver's buffer".to_owned())?;
        socket
            .set_read_timeout(Some(PATIENCE))
            .during(|| "setting the receiver's patience".to_owned())?;
        // The other end is gone only where sending was given up.
        let _ = ready.send(());
        receive(&socket, packets, &is_sent)
    });
    // Not ready means that it has failed, which its result tells.
    let _ = is_ready.recv();
    Ok(receiver)
}

fn receive(socket: &UdpSocket, packets: u64, is_sent: &AtomicBool) -> Result<Count, LabError> {
    let mut seen = Seen::new(packets);
    let mut buffer = [0u8; PAYLOAD_BYTES + 1];
    loop {
        match socket.recv(&mut buffer) {
            Ok(PAYLOAD_BYTES) => {
                let number = buffer.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                number.into_iter().for_each(|number| seen.insert(number));
            }
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                if is_sent.load(Ordering::Acquire) {
                    return Ok(seen.count);
                }
            }
            Err(error) => return Err(error).during(|| "receiving numbered packets".to_owned()),
        }
    }
}

fn bind(address: &str) -> Result<UdpSocket, LabError> {
    UdpSocket::bind(address).during(|| format!("binding {address}"))
}

/// Which numbers were seen, a bit for each.
struct Seen {
    bits: Vec<u64>,
    next: u64,
    count: Count,
}

impl Seen {
    fn new(packets: u64) -> Self {
        Self {
            bits: vec![0; packets.div_ceil(64) as usize],
            next: 0,
            count: Count {
                sent: packets,
                received: 0,
                duplicates: 0,
                out_of_order: 0,
            },
        }
    }

    fn insert(&mut self, number: u64) {
        let bit = 1u64 << (number % 64);
        // A number that was never sent is not one of our packets.
        if number >= self.count.sent {
            return;
        }
        let Some(word) = self.bits.get_mut((number / 64) as usize) else {
            return;
        };
        if *word & bit != 0 {
            self.count.duplicates += 1;
            return;
        }
        *word |= bit;
        self.count.received += 1;
        if number < self.next {
            self.count.out_of_order += 1;
        }
        self.next = self.next.max(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_copied_and_swapped_packets_are_told_apart() {
        let mut seen = Seen::new(70);
        for number in (0..70).filter(|number| *number != 5 && *number != 64) {
            seen.insert(number);
        }
        seen.insert(10);
        seen.insert(1_000_000);
        assert_eq!(
            seen.count,
            Count {
                sent: 70,
                received: 68,
                duplicates: 1,
                out_of_order: 0
            }
        );
        seen.insert(64);
        assert_eq!((seen.count.lost(), seen.count.out_of_order), (1, 1));
    }
}
