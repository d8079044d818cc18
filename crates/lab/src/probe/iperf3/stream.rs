//! Moves the data of one TCP stream, and counts what iperf3 counts.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::SockRef;

use super::StreamCount;
use crate::probe::clock::now_ns;
use crate::probe::message::{SLICE, is_slice_over};
use crate::probe::socket_state::{TcpState, clamp_window};
use crate::probe::tcp_test::noise;

/// Time of a test, for all its streams.
#[derive(Debug)]
pub(crate) struct Course {
    /// From here on things count.
    from_ns: u64,
    /// From here on nothing counts any more; zero while the test runs.
    until_ns: AtomicU64,
    /// Nobody waits for the streams any more.
    stop: AtomicBool,
    /// What streams counted, each when the test was over.
    ended: Mutex<Vec<Ended>>,
}

impl Course {
    /// Begins now; what is moved in the first seconds is not counted.
    pub(crate) fn begin(omit_s: u64) -> Self {
        Self {
            from_ns: now_ns() + omit_s * 1_000_000_000,
            until_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            ended: Mutex::default(),
        }
    }

    /// A stream's last word on its count.
    pub(super) fn tell(&self, ended: Ended) {
        self.told().push(ended);
    }

    fn told(&self) -> MutexGuard<'_, Vec<Ended>> {
        // A stream that died in between has left the list whole.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the test; the counts of so many streams in order, less those of
    /// streams that have failed.
    pub(crate) fn counts_of(&self, streams: usize) -> Vec<Ended> {
        const PATIENCE_NS: u64 = 2_000_000_000;
        self.end();
        let end_ns = now_ns() + PATIENCE_NS;
        while self.told().len() < streams && now_ns() < end_ns {
            std::thread::sleep(SLICE / 10);
        }
        let mut ended = self.told().clone();
        ended.sort_by_key(|ended| ended.count.id);
        ended
    }

    /// The test is over; receivers go on reading, so that no sender is stuck.
    pub(crate) fn end(&self) {
        let _ = self
            .until_ns
            .compare_exchange(0, now_ns(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The streams end.
    pub(crate) fn stop(&self) {
        self.end();
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.until_ns.load(Ordering::Relaxed) != 0
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The first seconds, which are left out.
    pub(super) fn is_omitted(&self) -> bool {
        now_ns() < self.from_ns
    }

    pub(super) fn counts(&self) -> bool {
        !self.is_over() && !self.is_omitted()
    }

    fn seconds(&self) -> f64 {
        let until_ns = match self.until_ns.load(Ordering::Relaxed) {
            0 => now_ns(),
            until_ns => until_ns,
        };
        until_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }

    /// A count of this test's whole time.
    pub(super) fn count(&self, id: i64) -> StreamCount {
        StreamCount {
            id,
            retransmits: -1,
            end_time: self.seconds(),
            ..StreamCount::default()
        }
    }
}

/// What is left of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) count: StreamCount,
    /// Our end as the kernel had it last; TCP only.
    pub(crate) state: Option<TcpState>,
}

/// Keeps a sender to a rate.
#[derive(Debug)]
pub(crate) struct Pace {
    bit_per_s: f64,
    start_ns: u64,
    sent_bytes: f64,
}

impl Pace {
    /// Longest pause before the end of the test is looked for again.
    const PAUSE_NS_MAX: u64 = 20_000_000;

    /// Zero is as fast as possible.
    pub(crate) fn new(bit_per_s: u64) -> Option<Self> {
        (bit_per_s > 0).then(|| Self {
            bit_per_s: bit_per_s as f64,
            start_ns: now_ns(),
            sent_bytes: 0.0,
        })
    }

    /// When the next block may leave; `None` for now.
    pub(crate) fn pause(&self, now_ns: u64) -> Option<Duration> {
        let due_ns = self.start_ns + (self.sent_bytes * 8e9 / self.bit_per_s) as u64;
        let pause_ns = due_ns.checked_sub(now_ns).filter(|ns| *ns > 0)?;
        Some(Duration::from_nanos(pause_ns.min(Self::PAUSE_NS_MAX)))
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as f64;
    }
}

/// Most that is written at once, of blocks that may be asked for at any length:
/// TCP shows no reader where one ends, and memory is for many streams.
const BLOCK_BYTES_MAX: usize = 128 << 10;

/// Sends until the test is over.
pub(crate) fn send(
    mut stream: TcpStream,
    id: i64,
    block_bytes: usize,
    bit_per_s: u64,
    course: &Course,
) -> io::Result<()> {
    stream.set_write_timeout(Some(SLICE))?;
    let block = noise(block_bytes.min(BLOCK_BYTES_MAX));
    let mut pace = Pace::new(bit_per_s);
    let mut bytes = 0;
    while !course.is_over() {
        if let Some(pause) = pace.as_ref().and_then(|pace| pace.pause(now_ns())) {
            std::thread::sleep(pause);
            continue;
        }
        match stream.write(&block) {
            Ok(sent) => {
                pace.iter_mut().for_each(|pace| pace.sent(sent));
                bytes += if course.counts() { sent as u64 } else { 0 };
            }
            Err(error) if is_slice_over(&error) => {}
            // The receiver may leave before it says so.
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    wait_until(|| course.is_over());
    let state = TcpState::of(&stream).ok();
    let retransmits = state.map_or(-1, |state| state.retransmitted_segments.into());
    let count = StreamCount {
        bytes,
        retransmits,
        ..course.count(id)
    };
    course.tell(Ended { count, state });
    // As iperf3 does: a reader that waits for a whole block must hear that none comes.
    let _ = stream.shutdown(Shutdown::Write);
    // A reset would be taken for trouble by the other end.
    wait_until(|| course.is_stopped());
    // What is still on its way is not waited for.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    Ok(())
}

/// Receives until nobody waits for the stream any more, and advertises no more
/// than `window_bytes`.
pub(crate) fn receive(
    mut stream: TcpStream,
    id: i64,
    window_bytes: Option<u32>,
    course: &Course,
) -> io::Result<()> {
    const PIECE_BYTES: usize = 128 << 10;
    stream.set_read_timeout(Some(SLICE))?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    while !course.is_over() {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                bytes += if course.counts() { read as u64 } else { 0 };
                if let Some(window_bytes) = window_bytes {
                    clamp_window(stream.as_raw_fd(), window_bytes)?;
                }
            }
            Err(error) if is_slice_over(&error) => {}
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    wait_until(|| course.is_over());
    let state = TcpState::of(&stream).ok();
    let count = StreamCount {
        bytes,
        ..course.count(id)
    };
    course.tell(Ended { count, state });
    // A sender whose data nobody takes hears nothing else.
    while !course.is_stopped() {
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => {}
            Err(error) if is_slice_over(&error) => {}
            _ => break,
        }
    }
    wait_until(|| course.is_stopped());
    Ok(())
}

pub(super) fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(SLICE / 10);
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_stream_counts_until_the_end_and_drains_until_it_is_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let seen = near.try_clone().unwrap();
        let begin = std::time::Instant::now();
        let course = Course::begin(0);
        let counts = std::thread::scope(|scope| {
            scope.spawn(|| send(near, 1, 1000, 8_000_000, &course).unwrap());
            scope.spawn(|| receive(far, 3, None, &course).unwrap());
            std::thread::sleep(Duration::from_millis(300));
            // A sender may wait for a processor for longer than that.
            while TcpState::of(&seen).unwrap().acked_bytes < 10_000 {
                std::thread::sleep(SLICE / 10);
            }
            let counts = course.counts_of(2);
            course.stop();
            counts
        });
        let [sent, received] = counts[..] else {
            panic!("{counts:?}");
        };
        // The end may fall between a block's way out and the look at the clock: each end decides for itself whether it counts.
        assert!(sent.count.bytes >= 1000, "{sent:?}");
        assert!(
            received.count.bytes <= sent.count.bytes + 1000,
            "{sent:?} {received:?}"
        );
        // A pause is never made up for beyond the rate.
        let bytes_max = begin.elapsed().as_secs_f64() * 1e6 + 1000.0;
        assert!(sent.count.bytes as f64 <= bytes_max, "{sent:?}");
        assert!(sent.count.end_time >= 0.3 && sent.count.retransmits >= 0);
    }

    #[test]
    fn what_is_before_the_omitted_time_does_not_count() {
        let course = Course::begin(60);
        assert!(course.is_omitted() && !course.counts() && !course.is_over());
        course.end();
        assert_eq!(course.count(1).end_time, 0.0);
        assert!(course.is_over() && !course.is_stopped());
    }
}
