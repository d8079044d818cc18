//! Packets seen on the WAN, by a raw socket in its namespace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::world::World;

/// ETH_P_ALL in network byte order, as packet(7) wants it.
const ALL_PROTOCOLS: i32 = 0x0003_u16.to_be() as i32;
const IPV4: u16 = 0x0800;
/// IP protocol numbers.
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// An IPv4 packet as it crossed the WAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub protocol: u8,
    /// Six bits (RFC 2474).
    pub dscp: u8,
    /// Length of the whole packet.
    pub len: u16,
    /// More fragments follow, or it is not the first.
    pub is_fragment: bool,
    /// Of TCP and UDP.
    pub ports: (u16, u16),
}

/// Packets from its start to its end.
pub struct Capture {
    seen: Arc<Mutex<Vec<Packet>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Watches the WAN of a world.
    pub fn start(world: &World) -> Self {
        let wan = world.lab.namespace("wan").unwrap();
        let socket = wan.within(|| {
            let kind = Some(Protocol::from(ALL_PROTOCOLS));
            Socket::new(Domain::PACKET, Type::RAW, kind).unwrap()
        });
        let socket = socket.unwrap();
        let _ = socket.set_recv_buffer_size(4 << 20);
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let (seen, stop) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let (into, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || watch(socket, &into, &stopped));
        Self {
            seen,
            stop,
            thread: Some(thread),
        }
    }

    /// Packets so far, each as often as interfaces of the WAN saw it.
    pub fn packets(&self) -> Vec<Packet> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(mut socket: Socket, into: &Mutex<Vec<Packet>>, stop: &AtomicBool) {
    let mut frame = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(len) = std::io::Read::read(&mut socket, &mut frame)
            && let Some(packet) = parse(&frame[..len])
        {
            into.lock().unwrap().push(packet);
        }
    }
}

fn parse(frame: &[u8]) -> Option<Packet> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let address = |at: usize| frame.get(at..at + 4)?.try_into().ok();
    if word(12)? != IPV4 {
        return None;
    }
    let header = usize::from(*frame.get(14)? & 0xf) * 4;
    let fragment = word(20)?;
    let payload = 14 + header;
    Some(Packet {
        dscp: *frame.get(15)? >> 2,
        len: word(16)?,
        is_fragment: fragment & 0x3fff != 0,
        protocol: *frame.get(23)?,
        source: address(26)?,
        destination: address(30)?,
        ports: (
            word(payload).unwrap_or_default(),
            word(payload + 2).unwrap_or_default(),
        ),
    })
}
