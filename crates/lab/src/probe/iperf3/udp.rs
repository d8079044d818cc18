//! Moves the datagrams of one iperf3 stream, and counts what iperf3 counts.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::StreamCount;
use super::stream::{Course, Ended, Pace, wait_until};
use crate::probe::clock::{now_ns, precise};
use crate::probe::message::{SLICE, is_slice_over};
use crate::probe::socket_state::set_receive_buffer;
use crate::probe::tcp_test::noise;

/// What a client says to open a stream, and what a server answers; both in the
/// byte order of the host.
pub(crate) const CONNECT: u32 = 0x3637_3839;
pub(crate) const ANSWER: u32 = 0x3938_3736;

/// What older versions say in place of it.
const CONNECT_BEFORE: u32 = 123_456_789;

/// Whether a client opens a stream with it; its host may have the other byte
/// order.
pub(crate) fn opens_stream(datagram: &[u8]) -> bool {
    let Ok(bytes) = <[u8; 4]>::try_from(datagram) else {
        return false;
    };
    let said = u32::from_ne_bytes(bytes);
    [CONNECT, CONNECT_BEFORE]
        .into_iter()
        .any(|word| said == word || said == word.swap_bytes())
}

/// Room for a burst that arrives while the reader does not run.
const RECEIVE_BUFFER_BYTES: u32 = 8 << 20;

/// Second, microsecond and number, which takes four or eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    sent_us: u64,
    number: u64,
}

impl Header {
    fn write(self, is_wide: bool, datagram: &mut [u8]) {
        let (seconds, us) = (self.sent_us / 1_000_000, self.sent_us % 1_000_000);
        let time = [(seconds as u32).to_be_bytes(), (us as u32).to_be_bytes()].concat();
        let number = match is_wide {
            true => self.number.to_be_bytes().to_vec(),
            false => (self.number as u32).to_be_bytes().to_vec(),
        };
        for (at, byte) in datagram.iter_mut().zip([time, number].concat()) {
            *at = byte;
        }
    }

    fn read(datagram: &[u8], is_wide: bool) -> Option<Self> {
        let (seconds, rest) = datagram.split_first_chunk::<4>()?;
        let (us, rest) = rest.split_first_chunk::<4>()?;
        let [seconds, us] = [seconds, us].map(|bytes| u64::from(u32::from_be_bytes(*bytes)));
        let number = match is_wide {
            true => u64::from_be_bytes(*rest.first_chunk()?),
            false => u32::from_be_bytes(*rest.first_chunk()?).into(),
        };
        let sent_us = seconds * 1_000_000 + us;
        Some(Self { sent_us, number })
    }
}

/// What has come of a stream.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes: u64,
    pub(crate) highest: u64,
    pub(crate) missing: i64,
    /// Came after one with a higher number.
    pub(crate) late: u64,
    pub(crate) jitter_us: f64,
    last_transit_us: Option<i64>,
}

impl Tally {
    pub(crate) fn take(&mut self, number: u64, sent_us: u64, at_us: u64, bytes: usize) {
        self.bytes += bytes as u64;
        if number > self.highest {
            let skipped = number - self.highest - 1;
            self.missing = self
                .missing
                .saturating_add(i64::try_from(skipped).unwrap_or(i64::MAX));
            self.highest = number;
        } else if self.missing > 0 {
            // It had been taken for lost, and is only late.
            self.missing -= 1;
            self.late += 1;
        }
        // RFC 1889 A.8; the clocks differ, their difference does not change.
        let transit_us = at_us.wrapping_sub(sent_us).cast_signed();
        if let Some(last) = self.last_transit_us.replace(transit_us) {
            let change = transit_us.abs_diff(last) as f64;
            self.jitter_us += (change - self.jitter_us) / 16.0;
        }
    }
}

fn now_us() -> u64 {
    now_ns() / 1000
}

/// Sends until the test is over.
pub(crate) fn send(
    socket: &UdpSocket,
    id: i64,
    block_bytes: usize,
    bit_per_s: u64,
    is_wide: bool,
    course: &Course,
) -> io::Result<()> {
    precise();
    socket.set_write_timeout(Some(SLICE))?;
    let mut datagram = noise(block_bytes);
    let mut pace = Pace::new(bit_per_s);
    let (mut number, mut omitted, mut bytes) = (0, 0, 0);
    while !course.is_over() {
        if let Some(pause) = pace.as_ref().and_then(|pace| pace.pause(now_ns())) {
            std::thread::sleep(pause);
            continue;
        }
        let header = Header {
            sent_us: now_us(),
            number: number + 1,
        };
        header.write(is_wide, &mut datagram);
        match socket.send(&datagram) {
            Ok(sent) => {
                number += 1;
                pace.iter_mut().for_each(|pace| pace.sent(sent));
                // Not whether it is over by now: it has left.
                match course.is_omitted() {
                    true => omitted = number,
                    false => bytes += sent as u64,
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let count = StreamCount {
        bytes,
        packets: number - omitted,
        ..course.count(id)
    };
    course.tell(Ended { count, state: None });
    // A closed socket would refuse what is still on its way.
    wait_until(|| course.is_stopped());
    Ok(())
}

/// Receives until nobody waits for the stream any more.
pub(crate) fn receive(
    socket: &UdpSocket,
    id: i64,
    is_wide: bool,
    course: &Course,
) -> io::Result<()> {
    socket.set_read_timeout(Some(SLICE))?;
    let mut buffer = vec![0; 65_535];
    let mut tally = Tally::default();
    let mut omitted = (0, 0);
    while !course.is_over() {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if is_passing(&error) => continue,
            Err(error) => return Err(error),
        };
        let datagram = buffer.get(..length).unwrap_or_default();
        let Some(header) = Header::read(datagram, is_wide).filter(|_| !course.is_over()) else {
            continue;
        };
        let is_omitted = course.is_omitted();
        let bytes = if is_omitted { 0 } else { length };
        tally.take(header.number, header.sent_us, now_us(), bytes);
        if is_omitted {
            omitted = (tally.highest, tally.missing);
        }
    }
    let count = StreamCount {
        bytes: tally.bytes,
        packets: tally.highest.saturating_sub(omitted.0),
        errors: tally.missing - omitted.1,
        jitter: tally.jitter_us / 1e6,
        ..course.count(id)
    };
    course.tell(Ended { count, state: None });
    // A closed socket would refuse what is still on its way.
    wait_until(|| course.is_stopped());
    Ok(())
}

/// Makes room for bursts.
pub(crate) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    set_receive_buffer(socket.as_raw_fd(), RECEIVE_BUFFER_BYTES)
}

/// Full buffers and ICMP errors are part of the test.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    is_slice_over(error)
        || matches!(
            error.raw_os_error(),
            Some(libc::ENOBUFS | libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_narrow_and_wide() {
        let header = Header {
            sent_us: 1_700_000_000_123_456,
            number: 7,
        };
        for (is_wide, bytes) in [(false, 12), (true, 16)] {
            let mut datagram = [0; 16];
            header.write(is_wide, &mut datagram);
            let head = &datagram[..bytes];
            assert_eq!(Header::read(head, is_wide), Some(header));
            assert_eq!(Header::read(&head[..bytes - 1], is_wide), None);
        }
        let mut datagram = [0; 12];
        header.write(false, &mut datagram);
        assert_eq!(datagram[8..], [0, 0, 0, 7]);
    }

    #[test]
    fn only_iperf3s_words_open_a_stream() {
        for word in [CONNECT, CONNECT_BEFORE] {
            assert!(opens_stream(&word.to_be_bytes()) && opens_stream(&word.to_le_bytes()));
        }
        for other in [&b""[..], b"987", b"0000", b"67890", b"6789 and more"] {
            assert!(!opens_stream(other), "{other:?}");
        }
    }

    #[test]
    fn what_comes_late_is_not_lost() {
        let mut tally = Tally::default();
        for number in [1, 2, 5, 4, 8] {
            let sent_us = number * 1000;
            tally.take(number, sent_us, sent_us + 500, 100);
        }
        // 3, 6 and 7 are missing.
        assert_eq!((tally.missing, tally.highest, tally.bytes), (3, 8, 500));
        assert_eq!(tally.late, 1);
        assert_eq!(tally.jitter_us, 0.0);
        // Nonsense of the other end changes figures, and nothing else.
        for number in [u64::MAX, 0, 1] {
            tally.take(number, number, 0, 1);
        }
        assert!(tally.missing > 0 && tally.jitter_us.is_finite());
    }

    #[test]
    fn a_test_that_ends_while_a_datagram_leaves_counts_all_of_them() {
        for _ in 0..20 {
            let far = UdpSocket::bind("127.0.0.1:0").unwrap();
            let near = UdpSocket::bind("127.0.0.1:0").unwrap();
            near.connect(far.local_addr().unwrap()).unwrap();
            far.connect(near.local_addr().unwrap()).unwrap();
            prepare(&far).unwrap();
            let course = Course::begin(0);
            let counts = std::thread::scope(|scope| {
                scope.spawn(|| send(&near, 1, 100, 0, false, &course).unwrap());
                scope.spawn(|| receive(&far, 3, false, &course).unwrap());
                far.peek(&mut [0; 1]).unwrap();
                let counts = course.counts_of(2);
                course.stop();
                counts
            });
            let [sent, received] = [0, 1].map(|nth| counts[nth].count);
            assert!(sent.packets > 0, "{sent:?}");
            assert_eq!(sent.bytes, sent.packets * 100);
            let came = i64::try_from(received.packets).unwrap() - received.errors;
            assert_eq!(received.bytes, u64::try_from(came).unwrap() * 100);
        }
    }
}
