//! Where events go: one handle that every part of the gateway holds.
//!
//! [`Events::emit`] counts the event, remembers it for `farhaul status`,
//! writes its log line and tells subscribers. It never waits and never fails.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem::{Discriminant, discriminant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::broadcast;

use crate::admin::status::Happened;
use crate::config::meaning::{Level, Log};
use crate::event::Event;
use crate::lock::lock;
use crate::log::{Writer, level_name, rfc3339};
use crate::metrics::Metrics;

/// Events remembered of each sort.
const REMEMBERED_MAX: usize = 200;
/// Events a slow subscriber may be behind before it loses some.
const SUBSCRIBER_BACKLOG_MAX: usize = 4096;
/// Log lines per second of one kind at `info` and above; strangers can cause
/// some of these and must not be able to fill a disk or push out the rest.
const LINES_PER_KIND_MAX: u32 = 20;

/// Handle to the one place where events go; clones share it.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

struct Shared {
    metrics: Arc<Metrics>,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    log: Mutex<Log>,
    writer: Option<Writer>,
    dropped: AtomicU64,
    remembered: Mutex<Remembered>,
    subscribers: broadcast::Sender<Event>,
}

#[derive(Default)]
struct Remembered {
    recent: VecDeque<(SystemTime, Event)>,
    direct: VecDeque<(SystemTime, Event)>,
    rates: Vec<(Discriminant<Event>, Instant, u32)>,
    told_losses: Option<Instant>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Log lines go to standard error. Fails if no thread can be started.
    pub fn to_stderr(log: Log, metrics: Arc<Metrics>) -> io::Result<Events> {
        Events::to_sink(
            log,
            metrics,
            Box::new(io::stderr()),
            Box::new(SystemTime::now),
        )
    }

    /// Log lines go to `sink`, stamped by `clock`.
    pub fn to_sink(
        log: Log,
        metrics: Arc<Metrics>,
        sink: Box<dyn Write + Send>,
        clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    ) -> io::Result<Events> {
        Ok(Events::build(
            log,
            metrics,
            Some(Writer::start(sink)?),
            clock,
        ))
    }

    /// No log lines; for tests and for programs that only subscribe.
    pub fn unlogged(metrics: Arc<Metrics>) -> Events {
        let log = Log {
            json: false,
            level: Level::Error,
        };
        Events::build(log, metrics, None, Box::new(SystemTime::now))
    }

    fn build(
        log: Log,
        metrics: Arc<Metrics>,
        writer: Option<Writer>,
        clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    ) -> Events {
        let (subscribers, _) = broadcast::channel(SUBSCRIBER_BACKLOG_MAX);
        Events {
            shared: Arc::new(Shared {
                metrics,
                clock,
                log: Mutex::new(log),
                writer,
                dropped: AtomicU64::new(0),
                remembered: Mutex::default(),
                subscribers,
            }),
        }
    }

    /// Something happened.
    pub fn emit(&self, event: Event) {
        self.tell_due_losses();
        self.deliver(event);
    }

    /// Something happened that is counted and told to subscribers; what the log and `farhaul status` say of it, if
    /// anything, is for the caller to choose.
    pub(crate) fn emit_as(&self, event: Event, said: Option<&Event>) {
        self.shared.metrics.count(&event);
        if let Some(said) = said {
            self.say(said);
        }
        let _ = self.shared.subscribers.send(event);
    }

    /// What was emitted before comes into the log and into `farhaul status` now.
    pub(crate) fn say(&self, event: &Event) {
        self.tell_due_losses();
        self.put_down(event);
    }

    fn tell_due_losses(&self) {
        if self.shared.dropped.load(Ordering::Relaxed) > 0
            && lock(&self.shared.remembered).may_tell_losses()
        {
            self.tell_losses();
        }
    }

    fn tell_losses(&self) {
        let lines = self.shared.dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            self.deliver(Event::LogDropped { lines });
        }
    }

    fn deliver(&self, event: Event) {
        self.shared.metrics.count(&event);
        self.put_down(&event);
        // Nobody listening is not an error.
        let _ = self.shared.subscribers.send(event);
    }

    fn put_down(&self, event: &Event) {
        let shared = &self.shared;
        let time = (shared.clock)();
        let log = *lock(&shared.log);
        let wanted = event.level() >= log.level && shared.writer.is_some();
        if self.remember(time, event) {
            if wanted && !self.write(time, event, log.json) {
                self.count_lost(event);
            }
        } else if wanted {
            self.count_lost(event);
        }
    }

    fn write(&self, time: SystemTime, event: &Event, json: bool) -> bool {
        self.shared
            .writer
            .as_ref()
            .is_none_or(|writer| writer.line(time, event.clone(), json))
    }

    /// The loss of a line about losses is not counted again.
    fn count_lost(&self, event: &Event) {
        if !matches!(event, Event::LogDropped { .. }) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps the event for the status screen; `false` if its kind comes too often.
    fn remember(&self, time: SystemTime, event: &Event) -> bool {
        let mut remembered = lock(&self.shared.remembered);
        if event.is_per_connection() {
            if matches!(event, Event::WentDirect { .. } | Event::OpenFailed { .. }) {
                push_bounded(&mut remembered.direct, (time, event.clone()));
            }
            return true;
        }
        if !remembered.admit(discriminant(event)) {
            return false;
        }
        push_bounded(&mut remembered.recent, (time, event.clone()));
        true
    }

    /// Receives every event from now on; for tests and `farhaul top`.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.shared.subscribers.subscribe()
    }

    /// What happened lately, oldest first, without per-connection events.
    pub fn recent(&self) -> Vec<Happened> {
        lock(&self.shared.remembered)
            .recent
            .iter()
            .map(happened)
            .collect()
    }

    /// Connections that lately went direct or could not be opened, oldest first.
    pub fn recent_direct(&self) -> Vec<Happened> {
        lock(&self.shared.remembered)
            .direct
            .iter()
            .map(happened)
            .collect()
    }

    /// The counters behind `/metrics`.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// Changes format and level, after a reload.
    pub fn set_log(&self, log: Log) {
        *lock(&self.shared.log) = log;
    }

    /// Waits until the log lines so far are written, at most `patience`.
    /// Blocks; for the end of the process.
    pub fn flush(&self, patience: Duration) -> bool {
        self.tell_losses();
        self.shared
            .writer
            .as_ref()
            .is_none_or(|writer| writer.flush(patience))
    }
}

impl Remembered {
    /// Losses are told at once, then at most every second.
    fn may_tell_losses(&mut self) -> bool {
        let now = Instant::now();
        let due = self
            .told_losses
            .is_none_or(|at| now.duration_since(at) >= Duration::from_secs(1));
        if due {
            self.told_losses = Some(now);
        }
        due
    }

    /// At most [`LINES_PER_KIND_MAX`] of a kind in any second that begins
    /// with one of them. There are as many entries as kinds of events.
    fn admit(&mut self, kind: Discriminant<Event>) -> bool {
        let now = Instant::now();
        let Some((_, since, count)) = self.rates.iter_mut().find(|(known, ..)| *known == kind)
        else {
            self.rates.push((kind, now, 1));
            return true;
        };
        if now.duration_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= LINES_PER_KIND_MAX
    }
}

fn push_bounded(ring: &mut VecDeque<(SystemTime, Event)>, entry: (SystemTime, Event)) {
    if ring.len() >= REMEMBERED_MAX {
        ring.pop_front();
    }
    ring.push_back(entry);
}

fn happened((time, event): &(SystemTime, Event)) -> Happened {
    Happened {
        time: rfc3339(*time),
        level: level_name(event.level()).to_owned(),
        text: event.to_string(),
        // Plain strings and numbers always serialise.
        event: serde_json::to_value(event).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Reason;
    use std::time::UNIX_EPOCH;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);
    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn on_paper(level: Level) -> (Events, Paper) {
        let paper = Paper::default();
        let events = Events::to_sink(
            Log { json: false, level },
            Arc::new(Metrics::new()),
            Box::new(paper.clone()),
            Box::new(|| UNIX_EPOCH),
        )
        .unwrap();
        (events, paper)
    }

    fn lines(events: &Events, paper: &Paper) -> Vec<String> {
        assert!(events.flush(Duration::from_secs(5)));
        let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn direct(port: u16) -> Event {
        Event::WentDirect {
            client: ([10, 0, 0, 1], port).into(),
            destination: "10.2.0.1:80".into(),
            reason: Reason::PeerDown,
        }
    }

    #[test]
    fn the_level_filters_lines_and_nothing_else() {
        let (events, paper) = on_paper(Level::Info);
        let mut seen = events.subscribe();
        events.emit(direct(1));
        events.emit(Event::Reloaded);
        assert_eq!(
            lines(&events, &paper),
            ["1970-01-01T00:00:00.000Z info  configuration reloaded"]
        );
        assert_eq!(seen.try_recv().unwrap(), direct(1));
        assert_eq!(seen.try_recv().unwrap(), Event::Reloaded);
        assert_eq!(events.recent_direct().len(), 1);
        assert_eq!(events.recent()[0].event["event"], "reloaded");

        events.set_log(Log {
            json: true,
            level: Level::Debug,
        });
        events.emit(direct(2));
        assert!(lines(&events, &paper)[1].contains(r#""reason":"peer-down""#));
    }

    #[test]
    fn what_is_not_said_is_counted_and_told_to_subscribers_all_the_same() {
        let (events, paper) = on_paper(Level::Info);
        let mut seen = events.subscribe();
        let down = |why: &str| Event::PeerDown {
            peer: "hq".into(),
            why: why.into(),
        };
        events.emit_as(down("one"), None);
        events.emit_as(down("two"), Some(&down("two of them")));
        assert_eq!(seen.try_recv().unwrap(), down("one"));
        assert_eq!(seen.try_recv().unwrap(), down("two"));
        assert_eq!(events.recent().len(), 1);
        events.say(&down("three"));
        assert!(seen.try_recv().is_err());
        assert_eq!(
            lines(&events, &paper),
            [
                "1970-01-01T00:00:00.000Z warn  peer hq is down: two of them",
                "1970-01-01T00:00:00.000Z warn  peer hq is down: three"
            ]
        );
    }

    #[test]
    fn direct_connections_do_not_push_out_what_matters() {
        let (events, _) = on_paper(Level::Error);
        events.emit(Event::BypassSet { on: true });
        (0..1000).for_each(|port| events.emit(direct(port)));
        assert_eq!(events.recent().len(), 1);
        let direct = events.recent_direct();
        assert_eq!(direct.len(), REMEMBERED_MAX);
        assert_eq!(direct[REMEMBERED_MAX - 1].event["client"], "10.0.0.1:999");
    }

    #[test]
    fn a_flood_of_one_kind_is_cut_and_the_cut_is_counted() {
        let (events, paper) = on_paper(Level::Info);
        for port in 1..=500 {
            events.emit(Event::PeerRejected {
                address: ([192, 0, 2, 1], port).into(),
                why: "unknown key".into(),
            });
        }
        events.emit(Event::Reloaded);
        let lines = lines(&events, &paper);
        // On a busy machine the flood may last more than a second.
        assert!(lines.len() < 150, "{} lines", lines.len());
        assert!(
            lines
                .iter()
                .any(|line| line.ends_with("configuration reloaded"))
        );
        assert!(
            lines.last().unwrap().ends_with("log lines were dropped"),
            "{lines:?}"
        );
        let text = events.metrics().render(&Default::default());
        assert!(
            text.contains("\nfarhaul_peers_rejected_total 500\n"),
            "{text}"
        );
        let dropped = text
            .lines()
            .find_map(|line| line.strip_prefix("farhaul_log_lines_dropped_total "))
            .unwrap();
        assert!(dropped.parse::<u64>().unwrap() > 350, "{dropped}");
    }
}
