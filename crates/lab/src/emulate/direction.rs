//! One direction of a live link: a receiver, the model, a sender.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::SyncSender;

use farhaul_link::{DirectionProfile, Emulator, Output, Packet, Stats};

use super::clock::Clock;
use super::commands::Commands;
use super::error::{Doing, EmulateError};
use super::ethtool::Device;
use super::events::EventSender;
use super::frame::finish;
use super::lateness::Lateness;
use super::packet_socket::{BATCH_FRAMES, Receiver, Sender};
use super::pcap::Tap;
use super::rate_meter::RateMeter;
use super::stats::{DirectionStats, DropCounts, LATENESS_LIMIT_NS};

/// Between two notices about the same trouble.
const NOTICE_INTERVAL_NS: u64 = 10_000_000_000;

/// While frames keep arriving, they are fetched this often at most...
const FETCH_INTERVAL_NS: u64 = 250_000;
/// ...where the link delays them by at least this, so that none can be due
/// before it is fetched.
const FETCH_LATER_DELAY_NS: u64 = 1_000_000;
/// Departures are at least this far apart: frames due in between leave
/// together. Only rates above 100 Mbit/s have frames that close, and there a
/// wake-up for each would take a whole processor.
const DEPARTURE_INTERVAL_NS: u64 = 100_000;

/// What the owner of a link asks of a direction.
pub(super) enum Command {
    /// New settings; answers when they are in force.
    Set(Box<DirectionProfile>, SyncSender<()>),
    /// The counters; and whether to start them anew afterwards.
    Stats(bool, SyncSender<DirectionStats>),
    /// Stop. What is in flight is lost.
    Stop,
}

/// What a direction does next.
pub(super) enum Next {
    /// More is waiting already.
    GoOn,
    /// Nothing before `wake_ns` (`u64::MAX`: for ever), unless a command
    /// arrives, or a frame, where `fetch` says that this is to be noticed.
    Sleep { wake_ns: u64, fetch: bool },
    /// It was told to stop.
    Stop,
}

/// What a direction is made of.
pub(super) struct Parts {
    pub(super) from: String,
    pub(super) to: String,
    /// Asked whether the interface frames come from still exists.
    pub(super) device: Device,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) emulator: Emulator<Vec<u8>>,
    pub(super) commands: Commands<Command>,
    pub(super) events: EventSender,
    /// Copies of what arrives.
    pub(super) tap_in: Option<Tap>,
    /// Copies of what leaves.
    pub(super) tap_out: Option<Tap>,
}

/// One direction at work.
pub(super) struct Direction {
    parts: Parts,
    /// Frames that are due, with the time they were due.
    due: Vec<Vec<u8>>,
    due_ns: Vec<u64>,
    lateness: Lateness,
    meter: RateMeter,
    /// Drops that the model does not know of.
    kernel_drops: u64,
    send_drops: u64,
    offload_drops: u64,
    sent_packets: u64,
    sent_bytes: u64,
    queue_bytes_max: u64,
    queue_ns_max: u64,
    /// The model's counters at the last reset.
    base: Stats,
    /// No frame is fetched before this time.
    fetch_after_ns: u64,
    /// When frames left last.
    departed_ns: u64,
    last_late_notice_ns: Option<u64>,
    last_send_notice_ns: Option<u64>,
}

impl Direction {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            due: Vec::with_capacity(BATCH_FRAMES),
            due_ns: Vec::with_capacity(BATCH_FRAMES),
            lateness: Lateness::default(),
            meter: RateMeter::default(),
            kernel_drops: 0,
            send_drops: 0,
            offload_drops: 0,
            sent_packets: 0,
            sent_bytes: 0,
            queue_bytes_max: 0,
            queue_ns_max: 0,
            base: Stats::default(),
            fetch_after_ns: 0,
            departed_ns: 0,
            last_late_notice_ns: None,
            last_send_notice_ns: None,
        }
    }

    /// Readable when a frame waits.
    pub(super) fn readable(&self) -> BorrowedFd<'_> {
        self.parts.receiver.as_fd()
    }

    /// Takes what has arrived, sends what is due, does what is asked.
    pub(super) fn step(&mut self, clock: &Clock) -> Result<Next, EmulateError> {
        let more = self.take_arrivals(clock)?;
        let due_ns = self.send_due(clock);
        match self.parts.commands.take() {
            Some(Command::Stop) => return Ok(Next::Stop),
            Some(command) => {
                self.obey(command, clock)?;
                return Ok(Next::GoOn);
            }
            None => {}
        }
        if more {
            return Ok(Next::GoOn);
        }
        let due_ns = due_ns.max(self.departed_ns.saturating_add(DEPARTURE_INTERVAL_NS));
        let fetch = clock.monotonic_ns() >= self.fetch_after_ns;
        let wake_ns = if fetch {
            due_ns
        } else {
            due_ns.min(self.fetch_after_ns)
        };
        Ok(Next::Sleep { wake_ns, fetch })
    }

    /// Hands what has arrived to the model, each frame with the time at which
    /// the kernel received it: how long this thread took to wake up then
    /// makes no difference as long as the frame is not due yet. Whether more
    /// may be waiting.
    fn take_arrivals(&mut self, clock: &Clock) -> Result<bool, EmulateError> {
        let count = match self.parts.receiver.receive() {
            Ok(count) => count,
            Err(error) => return self.receive_failed(error).map(|()| true),
        };
        let now = clock.read();
        let delay_ns = self.parts.emulator.profile().delay_min_ns();
        if count > 0 && delay_ns >= FETCH_LATER_DELAY_NS {
            self.fetch_after_ns = now.monotonic_ns + FETCH_INTERVAL_NS;
        }
        for index in 0..count {
            let parts = &mut self.parts;
            let Some(received) = parts.receiver.frame(index) else {
                self.offload_drops += 1;
                continue;
            };
            if received.truncated {
                self.offload_drops += 1;
                continue;
            }
            let arrival_ns = now.monotonic_of(received.arrival_real_ns);
            let arrival_real_ns = received.arrival_real_ns.unwrap_or(now.real_ns);
            let (emulator, tap) = (&mut parts.emulator, &parts.tap_in);
            collect(emulator, arrival_ns, &mut self.due, &mut self.due_ns);
            let finished = finish(received.data, received.offload, received.vlan, |frame| {
                if let Some(tap) = tap {
                    tap.copy(arrival_real_ns, &frame);
                }
                emulator.handle_packet(arrival_ns, frame);
            });
            if finished.is_err() {
                self.offload_drops += 1;
            }
            let stats = self.parts.emulator.stats();
            self.queue_bytes_max = self.queue_bytes_max.max(stats.queue_bytes);
            self.queue_ns_max = self.queue_ns_max.max(stats.queue_ns);
        }
        Ok(count == BATCH_FRAMES)
    }

    fn receive_failed(&mut self, error: io::Error) -> Result<(), EmulateError> {
        let from = &self.parts.from;
        match error.raw_os_error() {
            // A large packet that the virtio-net header cannot describe.
            Some(libc::EINVAL) => {
                self.offload_drops += 1;
                Ok(())
            }
            Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) if self.parts.device.exists() => {
                self.parts.events.notice(format!(
                    "interface `{from}` went down: nothing arrives from it until it is up again"
                ));
                Ok(())
            }
            Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => {
                Err(EmulateError::InterfaceGone { name: from.clone() })
            }
            _ => Err(error).doing(|| format!("receiving from `{from}`")),
        }
    }

    /// Sends everything that is due; returns when there is something to send
    /// next (`u64::MAX`: not before something arrives).
    fn send_due(&mut self, clock: &Clock) -> u64 {
        loop {
            let emulator = &mut self.parts.emulator;
            let now_ns = clock.monotonic_ns();
            let next_ns = collect(emulator, now_ns, &mut self.due, &mut self.due_ns);
            if self.due.is_empty() {
                return next_ns;
            }
            self.flush(clock);
            self.departed_ns = clock.monotonic_ns();
        }
    }

    /// Sends what was collected. A frame that the interface refuses is dropped and
    /// counted; the others follow.
    fn flush(&mut self, clock: &Clock) {
        let mut start = 0;
        while let Some(rest) = self.due.get(start..)
            && !rest.is_empty()
        {
            match self.parts.sender.send(rest) {
                Ok(count) => {
                    let end = (start + count.max(1)).min(self.due.len());
                    self.count_sent(start..end, clock);
                    start = end;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.send_drops += 1;
                    self.notice_refused(&error, clock);
                    start += 1;
                }
            }
        }
        self.due.clear();
        self.due_ns.clear();
        self.notice_lateness(clock);
    }

    /// Lateness is taken when the system call that sent the batch is over:
    /// never too small, up to the length of that call too large.
    fn count_sent(&mut self, sent: std::ops::Range<usize>, clock: &Clock) {
        let now = clock.read();
        let framing = self.parts.emulator.profile().framing;
        let frames = self.due.get(sent.clone()).unwrap_or_default();
        let due_ns = self.due_ns.get(sent).unwrap_or_default();
        for (frame, due_ns) in frames.iter().zip(due_ns) {
            self.lateness
                .record(now.monotonic_ns.saturating_sub(*due_ns));
            let wire_bytes = framing.wire_bytes(frame.frame_bytes(), frame.header_bytes());
            self.meter.record(now.monotonic_ns, wire_bytes);
            self.sent_packets += 1;
            self.sent_bytes += frame.len() as u64;
            if let Some(tap) = &self.parts.tap_out {
                tap.copy(now.real_ns, frame);
            }
        }
    }

    fn notice_refused(&mut self, error: &io::Error, clock: &Clock) {
        if is_due(&mut self.last_send_notice_ns, clock.monotonic_ns()) {
            self.parts.events.notice(format!(
                "interface `{}` refused a frame ({error}): counted under drops as `send`",
                self.parts.to
            ));
        }
    }

    fn notice_lateness(&mut self, clock: &Clock) {
        let late_ns = self.lateness.max_ns();
        if late_ns > LATENESS_LIMIT_NS
            && is_due(&mut self.last_late_notice_ns, clock.monotonic_ns())
        {
            self.parts.events.notice(format!(
                "departures to `{}` were up to {:.1} ms late: measurements of this run are doubtful; is the machine busy?",
                self.parts.to,
                late_ns as f64 / 1e6
            ));
        }
    }

    fn obey(&mut self, command: Command, clock: &Clock) -> Result<(), EmulateError> {
        match command {
            Command::Set(profile, done) => {
                self.parts
                    .emulator
                    .handle_profile(clock.monotonic_ns(), *profile);
                // The asker may have given up; the settings are in force.
                let _ = done.try_send(());
            }
            Command::Stats(reset, answer) => {
                let stats = self.stats(clock.monotonic_ns())?;
                if reset {
                    self.reset();
                }
                // The asker may have given up.
                let _ = answer.try_send(stats);
            }
            Command::Stop => {}
        }
        Ok(())
    }

    fn stats(&mut self, now_ns: u64) -> Result<DirectionStats, EmulateError> {
        let from = &self.parts.from;
        self.kernel_drops += self
            .parts
            .receiver
            .take_kernel_drops()
            .doing(|| format!("asking for drops on `{from}`"))?;
        let model = self.parts.emulator.stats();
        let base = &self.base;
        Ok(DirectionStats {
            packets_in: model.packets_in - base.packets_in,
            bytes_in: model.bytes_in - base.bytes_in,
            packets_out: self.sent_packets,
            bytes_out: self.sent_bytes,
            drops: DropCounts {
                mtu: model.drops.mtu - base.drops.mtu,
                policer: model.drops.policer - base.drops.policer,
                queue: model.drops.queue - base.drops.queue,
                loss: model.drops.loss - base.drops.loss,
                line: model.drops.line - base.drops.line,
                kernel: self.kernel_drops,
                send: self.send_drops,
                offload: self.offload_drops,
            },
            duplicated: model.duplicated - base.duplicated,
            corrupted: model.corrupted - base.corrupted,
            reordered: model.reordered - base.reordered,
            queue_packets: model.queue_packets,
            queue_bytes: model.queue_bytes,
            queue_bytes_max: self.queue_bytes_max,
            queue_ns: model.queue_ns,
            queue_ns_max: self.queue_ns_max,
            line_packets: model.line_packets,
            requested_bit_per_s: self
                .parts
                .emulator
                .profile()
                .rate
                .map(|rate| rate.bit_per_s()),
            achieved_bit_per_s: self.meter.last_bit_per_s(now_ns),
            achieved_bit_per_s_max: self.meter.busiest_bit_per_s(now_ns),
            lateness_p50_ns: self.lateness.quantile_ns(0.5),
            lateness_p99_ns: self.lateness.quantile_ns(0.99),
            lateness_max_ns: self.lateness.max_ns(),
            late: self.lateness.max_ns() > LATENESS_LIMIT_NS,
        })
    }

    fn reset(&mut self) {
        self.base = *self.parts.emulator.stats();
        self.lateness.clear();
        self.meter = RateMeter::default();
        self.kernel_drops = 0;
        self.send_drops = 0;
        self.offload_drops = 0;
        self.sent_packets = 0;
        self.sent_bytes = 0;
        self.queue_bytes_max = self.base.queue_bytes;
        self.queue_ns_max = self.base.queue_ns;
        self.last_late_notice_ns = None;
        self.last_send_notice_ns = None;
    }
}

/// Moves the model to `until_ns` and takes out what is due by then; returns the
/// time of its next event (`u64::MAX`: none).
///
/// Goes from event to event: moved in one leap after a late wake-up, the model
/// would hold everything at once that passed meanwhile, which is more than fits
/// on the line.
fn collect(
    emulator: &mut Emulator<Vec<u8>>,
    until_ns: u64,
    due: &mut Vec<Vec<u8>>,
    due_ns: &mut Vec<u64>,
) -> u64 {
    // Time 0 is in the past: it asks without moving.
    let mut at_ns = 0;
    loop {
        match emulator.poll_output(at_ns) {
            Output::Deliver {
                packet,
                due_ns: packet_due_ns,
            } => {
                due.push(packet);
                due_ns.push(packet_due_ns);
            }
            Output::Timeout(next_ns) if next_ns <= until_ns => at_ns = next_ns,
            Output::Timeout(next_ns) => return next_ns,
            Output::Idle => return u64::MAX,
        }
    }
}

/// Whether it is time for another notice, and if so, that it was given.
fn is_due(last_ns: &mut Option<u64>, now_ns: u64) -> bool {
    let due = last_ns.is_none_or(|last| now_ns.saturating_sub(last) >= NOTICE_INTERVAL_NS);
    if due {
        *last_ns = Some(now_ns);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul_link::LinkProfile;

    #[test]
    fn a_late_wake_up_loses_nothing() {
        // 100 ms of a queue pass while the thread sleeps: ten times what the
        // line holds.
        let profile = LinkProfile::parse("rate 51.84mbit delay 5ms queue 10000p").unwrap();
        let mut emulator = Emulator::new(profile.forward, 1);
        for _ in 0..400 {
            emulator.handle_packet(1_000, vec![0; 1514]);
        }
        let (mut due, mut due_ns) = (Vec::new(), Vec::new());
        let next_ns = collect(&mut emulator, 200_000_000, &mut due, &mut due_ns);
        assert_eq!((due.len(), next_ns), (400, u64::MAX));
        assert_eq!(emulator.stats().drops.total(), 0);
        // Each at its own time.
        let apart_ns: Vec<u64> = due_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let exact_ns = 1514 * 8 * 1_000_000_000 / 51_840_000;
        assert!(apart_ns.iter().all(|apart| apart.abs_diff(exact_ns) <= 1));
        assert_eq!(due_ns[0], 1_000 + exact_ns + 5_000_000);
    }
}
