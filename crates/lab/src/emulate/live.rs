//! A live link: two interfaces, two directions, their threads.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farhaul_link::{DirectionProfile, Emulator, LinkProfile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::claim::{Claim, restore};
use super::clock::Clock;
use super::commands::{CommandSender, commands};
use super::direction::{Command, Direction, Next, Parts};
use super::error::{Doing, EmulateError};
use super::ethtool::Device;
use super::events::{Event, EventSender, Events, Wake};
use super::packet_socket::{Receiver, Sender};
use super::pcap::{Capture, Tap};
use super::realtime;
use super::stats::{DirectionStats, LinkStats};
use crate::awake::Awake;

/// How long a packet thread may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Added to the seed for the second direction, so that both do not lose the
/// same packets.
const BACKWARD_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a link is to be.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// First interface: `forward` goes from here.
    pub a: String,
    /// Second interface.
    pub b: String,
    /// Settings of both directions.
    pub profile: LinkProfile,
    /// Every random decision follows from it.
    pub seed: u64,
    /// Capture file of what passes at the first interface, both ways.
    pub pcap_a: Option<PathBuf>,
    /// Capture file of what passes at the second interface, both ways.
    pub pcap_b: Option<PathBuf>,
    /// Folder for the files that remember offloads to be put back.
    pub state_folder: PathBuf,
    /// A thread for each direction instead of one for both.
    pub two_threads: bool,
    /// Processors do not sleep meanwhile: departures are more punctual.
    pub is_awake: bool,
}

impl LinkOptions {
    /// A link with nothing but interfaces and settings chosen.
    pub fn new(a: &str, b: &str, profile: LinkProfile) -> Self {
        Self {
            a: a.to_owned(),
            b: b.to_owned(),
            profile,
            seed: 1,
            pcap_a: None,
            pcap_b: None,
            state_folder: PathBuf::from(super::STATE_FOLDER),
            two_threads: false,
            is_awake: false,
        }
    }
}

/// A direction as its owner sees it.
struct Handle {
    commands: CommandSender<Command>,
}

/// A link that forwards frames between two interfaces until it is stopped or
/// dropped; either way the interfaces are as before afterwards.
pub struct LiveLink {
    options: LinkOptions,
    profile: LinkProfile,
    forward: Handle,
    backward: Handle,
    threads: Vec<JoinHandle<()>>,
    events: Events,
    captures: Vec<Capture>,
    pcap_drops: Arc<AtomicU64>,
    pcap_drops_base: u64,
    claims: Vec<Claim>,
    real_time: bool,
    _awake: Option<Awake>,
    start_ns: u64,
}

impl LiveLink {
    /// Takes the interfaces of the calling thread's network namespace and
    /// starts forwarding.
    pub fn start(options: LinkOptions) -> Result<Self, EmulateError> {
        check_direction(&options.profile)?;
        let first = Device::named(&options.a).map(|device| device.index);
        let second = Device::named(&options.b).map(|device| device.index);
        if options.a == options.b || matches!((first, second), (Ok(a), Ok(b)) if a == b) {
            return Err(EmulateError::SameInterface { name: options.b });
        }
        let claim_a = Claim::take(&options.a, &options.state_folder)?;
        let claim_b = Claim::take(&options.b, &options.state_folder)?;
        let (sender, events) = Events::new()?;
        put_others_back(&options.state_folder, &sender);
        let pcap_drops = Arc::new(AtomicU64::new(0));
        let mut captures = Vec::new();
        let tap_a = open_tap(options.pcap_a.as_deref(), &pcap_drops, &mut captures)?;
        let tap_b = open_tap(options.pcap_b.as_deref(), &pcap_drops, &mut captures)?;
        let ends = [(&options.a, &claim_a, tap_a), (&options.b, &claim_b, tap_b)];
        let [end_a, end_b] = ends.map(|(name, claim, tap)| End {
            name: name.clone(),
            index: claim.index(),
            tap,
        });
        let (forward, forward_handle) = build(
            &end_a,
            &end_b,
            Emulator::new(options.profile.forward.clone(), options.seed),
            &sender,
        )?;
        let (backward, backward_handle) = build(
            &end_b,
            &end_a,
            Emulator::new(
                options.profile.backward.clone(),
                options.seed.wrapping_add(BACKWARD_SEED),
            ),
            &sender,
        )?;
        if let Err(error) = realtime::lock_memory() {
            sender.notice(format!(
                "memory cannot be locked ({error}): departures may be late under memory pressure; CAP_IPC_LOCK allows it"
            ));
        }
        let workers = if options.two_threads {
            vec![vec![forward], vec![backward]]
        } else {
            vec![vec![forward, backward]]
        };
        let awake = options.is_awake.then(Awake::keep).and_then(|kept| {
            let say =
                |error| sender.notice(format!("processors may sleep between packets: {error}"));
            kept.map_err(say).ok()
        });
        let (threads, real_time) = start_threads(workers, &sender)?;
        Ok(Self {
            profile: options.profile.clone(),
            options,
            forward: forward_handle,
            backward: backward_handle,
            threads,
            events,
            captures,
            pcap_drops,
            pcap_drops_base: 0,
            claims: vec![claim_a, claim_b],
            real_time,
            _awake: awake,
            start_ns: Clock.monotonic_ns(),
        })
    }

    /// The settings in force.
    pub fn profile(&self) -> &LinkProfile {
        &self.profile
    }

    /// Puts other settings in force at once; nothing in flight is lost.
    pub fn set(&mut self, profile: LinkProfile) -> Result<(), EmulateError> {
        check_direction(&profile)?;
        for (handle, direction) in [
            (&self.forward, &profile.forward),
            (&self.backward, &profile.backward),
        ] {
            let settings = Box::new(direction.clone());
            handle.ask(|answer| Command::Set(settings, answer))?;
        }
        self.profile = profile;
        Ok(())
    }

    /// Counters since the start or the last reset; `reset` starts them anew.
    pub fn stats(&mut self, reset: bool) -> Result<LinkStats, EmulateError> {
        let ask = |handle: &Handle| -> Result<DirectionStats, EmulateError> {
            handle.ask(|answer| Command::Stats(reset, answer))
        };
        let now_ns = Clock.monotonic_ns();
        let pcap_drops = self.pcap_drops.load(Ordering::Relaxed);
        let stats = LinkStats {
            a: self.options.a.clone(),
            b: self.options.b.clone(),
            profile: self.profile.to_string(),
            seed: self.options.seed,
            elapsed_ns: now_ns.saturating_sub(self.start_ns),
            real_time: self.real_time,
            pcap_drops: pcap_drops - self.pcap_drops_base,
            forward: ask(&self.forward)?,
            backward: ask(&self.backward)?,
        };
        if reset {
            self.start_ns = now_ns;
            self.pcap_drops_base = pcap_drops;
        }
        Ok(stats)
    }

    /// Something worth knowing that has happened; `None` where there is
    /// nothing. After [`Event::Ended`] the link forwards no more.
    pub fn next_event(&self) -> Option<Event> {
        self.events.next()
    }

    /// Readable when [`LiveLink::next_event`] may have something.
    pub fn events_readable(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Stops forwarding and puts the interfaces back. Reports the first thing
    /// that went wrong, after doing everything.
    pub fn stop(mut self) -> Result<(), EmulateError> {
        self.stop_threads();
        let mut outcome = Ok(());
        for capture in self.captures.drain(..) {
            outcome = outcome.and(capture.finish());
        }
        for claim in self.claims.drain(..) {
            outcome = outcome.and(claim.release());
        }
        outcome
    }

    fn stop_threads(&mut self) {
        for handle in [&self.forward, &self.backward] {
            // A direction that ended by itself has no ears any more.
            let _ = handle.commands.send(Command::Stop);
        }
        for thread in self.threads.drain(..) {
            // A panic was reported as an event when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for LiveLink {
    fn drop(&mut self) {
        // Before the claims are dropped, which puts the interfaces back.
        self.stop_threads();
    }
}

impl Handle {
    fn ask<T>(
        &self,
        command: impl FnOnce(std::sync::mpsc::SyncSender<T>) -> Command,
    ) -> Result<T, EmulateError> {
        let broken = || EmulateError::Broken("a packet thread does not answer".to_owned());
        let (sender, answer) = sync_channel(1);
        self.commands.send(command(sender)).map_err(|_| broken())?;
        answer.recv_timeout(ANSWER_TIMEOUT).map_err(|_| broken())
    }
}

/// Offloads that a killed link left switched off on other interfaces come back. What cannot be put
/// back stays on record.
fn put_others_back(state_folder: &Path, events: &EventSender) {
    match restore(state_folder, &[]) {
        Ok(restored) => {
            for other in restored {
                let interface = other.interface;
                events.notice(format!(
                    "offloads of `{interface}` were left off by a link that was killed; they are on again"
                ));
            }
        }
        Err(error) => events.notice(format!("what a killed link left is not put back: {error}")),
    }
}

fn check_direction(profile: &LinkProfile) -> Result<(), EmulateError> {
    let check = |name: &str, direction: &DirectionProfile| {
        direction
            .validate()
            .map_err(|error| EmulateError::Refused(format!("{name}: {error}")))
    };
    check("forward", &profile.forward)?;
    check("backward", &profile.backward)
}

fn open_tap(
    path: Option<&Path>,
    drops: &Arc<AtomicU64>,
    captures: &mut Vec<Capture>,
) -> Result<Option<Tap>, EmulateError> {
    let Some(path) = path else { return Ok(None) };
    let (capture, tap) = Capture::create(path, drops.clone())?;
    captures.push(capture);
    Ok(Some(tap))
}

/// One end of the link.
struct End {
    name: String,
    index: u32,
    tap: Option<Tap>,
}

/// A direction with what its thread sleeps on.
struct Sleeper {
    direction: Direction,
    /// Whether it wants to be woken by frames.
    fetch: bool,
    wake: Wake,
}

fn build(
    from: &End,
    to: &End,
    emulator: Emulator<Vec<u8>>,
    events: &EventSender,
) -> Result<(Sleeper, Handle), EmulateError> {
    let opening = |name: &str| format!("opening a packet socket on `{name}`");
    let (commands, incoming, wake) = commands()?;
    let direction = Direction::new(Parts {
        from: from.name.clone(),
        to: to.name.clone(),
        device: Device::named(&from.name).doing(|| opening(&from.name))?,
        receiver: Receiver::open(from.index).doing(|| opening(&from.name))?,
        sender: Sender::open(to.index).doing(|| opening(&to.name))?,
        emulator,
        commands: incoming,
        events: events.clone(),
        tap_in: from.tap.clone(),
        tap_out: to.tap.clone(),
    });
    let handle = Handle { commands };
    let sleeper = Sleeper {
        direction,
        fetch: true,
        wake,
    };
    Ok((sleeper, handle))
}

/// Starts the threads and says whether they got real-time priority.
fn start_threads(
    workers: Vec<Vec<Sleeper>>,
    events: &EventSender,
) -> Result<(Vec<JoinHandle<()>>, bool), EmulateError> {
    let mut threads = Vec::new();
    let mut refused = None;
    for sleepers in workers {
        let (started, priority) = sync_channel(1);
        let events = events.clone();
        let thread = thread::Builder::new()
            .name("link-packets".to_owned())
            .spawn(move || {
                // The starter waits for this.
                let _ = started.send(realtime::schedule_thread());
                let mut report = Report {
                    events,
                    outcome: None,
                };
                report.outcome = Some(run(sleepers));
            })
            .doing(|| "starting a thread".to_owned())?;
        threads.push(thread);
        if let Ok(Err(error)) = priority.recv() {
            refused = Some(error);
        }
    }
    if let Some(error) = &refused {
        events.notice(format!(
            "no real-time priority ({error}): departures may be late on a busy machine; CAP_SYS_NICE allows it"
        ));
    }
    Ok((threads, refused.is_none()))
}

/// Says how a packet thread ended, also where it panicked.
struct Report {
    events: EventSender,
    outcome: Option<Result<(), EmulateError>>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let panicked = || Err(EmulateError::Broken("a packet thread panicked".to_owned()));
        let outcome = self.outcome.take().unwrap_or_else(panicked);
        self.events.send(Event::Ended(outcome));
    }
}

/// A packet thread's life.
fn run(mut sleepers: Vec<Sleeper>) -> Result<(), EmulateError> {
    let clock = Clock;
    loop {
        let mut wake_ns = Some(u64::MAX);
        for sleeper in &mut sleepers {
            match sleeper.direction.step(&clock)? {
                Next::GoOn => wake_ns = None,
                Next::Sleep { wake_ns: at, fetch } => {
                    wake_ns = wake_ns.map(|other| other.min(at));
                    sleeper.fetch = fetch;
                }
                Next::Stop => return Ok(()),
            }
        }
        if let Some(wake_ns) = wake_ns {
            sleep_until(wake_ns, &sleepers, &clock)?;
        }
    }
}

/// A sleep this long or longer ends early and spins for the rest: a processor
/// that slept takes tens of microseconds to wake up, which would be most of
/// the error of a lone packet. At most 2,000 such sleeps fit a second: the
/// spinning takes 12 % of a processor at worst, and nothing from a busy link.
const SPARSE_NS: u64 = 500_000;
/// How early.
const EARLY_NS: u64 = 60_000;

/// Sleeps until `wake_ns` (`u64::MAX`: for ever), a command or, where that is
/// to be noticed, a frame.
fn sleep_until(wake_ns: u64, sleepers: &[Sleeper], clock: &Clock) -> Result<(), EmulateError> {
    let left_ns = wake_ns.saturating_sub(clock.monotonic_ns());
    if left_ns == 0 {
        return Ok(());
    }
    let is_sparse = left_ns >= SPARSE_NS && wake_ns != u64::MAX;
    let left_ns = left_ns - if is_sparse { EARLY_NS } else { 0 };
    let timeout = (wake_ns != u64::MAX).then_some(Timespec {
        tv_sec: (left_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (left_ns % 1_000_000_000).cast_signed(),
    });
    let mut waiting: Vec<PollFd<'_>> = sleepers
        .iter()
        .flat_map(|sleeper| {
            let notice = if sleeper.fetch {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            [
                PollFd::from_borrowed_fd(sleeper.direction.readable(), notice),
                PollFd::from_borrowed_fd(sleeper.wake.as_fd(), PollFlags::IN),
            ]
        })
        .collect();
    match poll(&mut waiting, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error).doing(|| "waiting for frames".to_owned()),
    }
    let is_idle = waiting.iter().all(|polled| polled.revents().is_empty());
    if is_sparse && is_idle {
        spin_until(wake_ns, clock);
    }
    for (sleeper, polled) in sleepers.iter().zip(waiting.chunks(2)) {
        if polled.last().is_some_and(|wake| !wake.revents().is_empty()) {
            sleeper.wake.lower();
        }
    }
    Ok(())
}

/// Spins until `wake_ns`. Where more than the planned time is left, because a
/// signal ended the sleep, it returns at once.
fn spin_until(wake_ns: u64, clock: &Clock) {
    while (1..=EARLY_NS).contains(&wake_ns.saturating_sub(clock.monotonic_ns())) {
        std::hint::spin_loop();
    }
}
