//! Log lines: text for people, JSON for machines, written without ever
//! making the gateway wait.
//!
//! A line is formatted and written by a thread of its own behind a bounded
//! queue. When standard error does not take lines in time they are dropped
//! and counted; traffic goes on.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::config::meaning::Level;
use crate::event::Event;

/// Most lines waiting to be written.
const QUEUE_LINES_MAX: usize = 4096;

/// Time in UTC as RFC 3339 with milliseconds. Times before 1970 are shown as 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second_of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days:
    // years begin in March, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60,
        since.subsec_millis()
    )
}

/// The level's name in lines and in the configuration.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    }
}

/// One line of text, without the newline. Control characters become escapes:
/// names come from outside and must not forge lines or drive a terminal.
pub fn text_line(time: SystemTime, event: &Event) -> String {
    let mut line = format!("{} {:<5} ", rfc3339(time), level_name(event.level()));
    push_escaped(&mut line, &event.to_string());
    line
}

/// Appends `text` with its control characters escaped.
pub fn push_escaped(line: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(line, "{}", c.escape_default());
        } else {
            line.push(c);
        }
    }
}

/// One JSON object, without the newline: `time`, `level`, `event`, then the
/// event's own fields.
pub fn json_line(time: SystemTime, event: &Event) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        time: String,
        level: &'static str,
        #[serde(flatten)]
        event: &'a Event,
    }
    let line = Line {
        time: rfc3339(time),
        level: level_name(event.level()),
        event,
    };
    // Plain strings and numbers always serialise.
    serde_json::to_string(&line).unwrap_or_default()
}

enum Message {
    Line {
        time: SystemTime,
        event: Event,
        json: bool,
    },
    Flush(Sender<()>),
}

/// The queue to the writing thread, which ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: SyncSender<Message>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl Writer {
    /// Starts the thread that writes to `sink`.
    pub fn start(sink: Box<dyn Write + Send>) -> io::Result<Writer> {
        let (queue, lines) = sync_channel(QUEUE_LINES_MAX);
        std::thread::Builder::new()
            .name("farhaul-log".to_owned())
            .spawn(move || write_lines(&lines, sink))?;
        Ok(Writer { queue })
    }

    /// Queues a line; `false` if it was dropped because the queue is full.
    pub fn line(&self, time: SystemTime, event: Event, json: bool) -> bool {
        self.queue
            .try_send(Message::Line { time, event, json })
            .is_ok()
    }

    /// Waits until everything queued so far is written, at most `patience`.
    /// Blocks; for the end of the process. Says whether it succeeded.
    pub fn flush(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let (done, finished) = channel();
        let mut message = Message::Flush(done);
        loop {
            match self.queue.try_send(message) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < deadline => {
                    message = back;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(_) => return false,
            }
        }
        finished
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .is_ok()
    }
}

fn write_lines(lines: &Receiver<Message>, mut sink: Box<dyn Write + Send>) {
    while let Ok(message) = lines.recv() {
        match message {
            Message::Line { time, event, json } => {
                let mut line = if json {
                    json_line(time, &event)
                } else {
                    text_line(time, &event)
                };
                line.push('\n');
                // A closed standard error must not end the gateway.
                let _ = sink.write_all(line.as_bytes());
            }
            Message::Flush(done) => {
                let _ = sink.flush();
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FlowEnd, Reason};

    fn at(seconds: u64, ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(ms)
    }

    /// Reference values from `date -u -d @N`.
    #[test]
    fn rfc3339_knows_leap_years_and_centuries() {
        assert_eq!(rfc3339(at(0, 0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(at(951_782_400, 7)), "2000-02-29T00:00:00.007Z");
        assert_eq!(rfc3339(at(1_709_251_199, 999)), "2024-02-29T23:59:59.999Z");
        assert_eq!(rfc3339(at(1_735_689_599, 0)), "2024-12-31T23:59:59.000Z");
        assert_eq!(rfc3339(at(4_107_542_400, 0)), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn lines_are_golden() {
        let time = at(1_790_000_000, 123);
        let up = Event::PeerUp {
            peer: "hq".into(),
            address: "192.0.2.2:4433".parse().unwrap(),
        };
        assert_eq!(
            text_line(time, &up),
            "2026-09-21T14:13:20.123Z info  peer hq is up at 192.0.2.2:4433"
        );
        assert_eq!(
            json_line(time, &up),
            r#"{"time":"2026-09-21T14:13:20.123Z","level":"info","event":"peer_up","peer":"hq","address":"192.0.2.2:4433"}"#
        );
        let ended = Event::FlowEnded {
            flow: 7,
            peer: "hq".into(),
            end: FlowEnd::ResetByServer,
            sent_bytes: 10,
            received_bytes: 20,
        };
        assert_eq!(
            json_line(time, &ended),
            r#"{"time":"2026-09-21T14:13:20.123Z","level":"debug","event":"flow_ended","flow":7,"peer":"hq","end":"reset-by-server","sent_bytes":10,"received_bytes":20}"#
        );
        assert_eq!(
            json_line(time, &Event::Stopped),
            r#"{"time":"2026-09-21T14:13:20.123Z","level":"info","event":"stopped"}"#
        );
    }

    #[test]
    fn names_from_outside_cannot_forge_a_line() {
        let event = Event::WentDirect {
            client: "[::1]:5".parse().unwrap(),
            destination: "evil\n2026 error \u{1b}[31m:80".into(),
            reason: Reason::PeerDown,
        };
        let line = text_line(UNIX_EPOCH, &event);
        assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{line:?}");
        assert!(line.contains("evil\\n2026 error \\u{1b}[31m:80"), "{line}");
        assert!(!json_line(UNIX_EPOCH, &event).contains('\n'));
    }

    /// A sink that never takes a byte: the caller must not notice.
    struct Stuck;
    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            loop {
                std::thread::park();
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_standard_error_costs_lines_and_not_time() {
        let writer = Writer::start(Box::new(Stuck)).unwrap();
        let taken = (0..QUEUE_LINES_MAX + 100)
            .filter(|_| writer.line(UNIX_EPOCH, Event::Reloaded, true))
            .count();
        assert!(
            (QUEUE_LINES_MAX..=QUEUE_LINES_MAX + 1).contains(&taken),
            "{taken}"
        );
        assert!(!writer.flush(Duration::from_millis(20)));
    }
}
