//! What a run of a cell's client is worth: its value, whether it has to be done again, and what is wrong with it.

use crate::capture::{Crossed, Shown, Span};
use crate::plan::Cell;

/// More foreign traffic than this share makes a run doubtful.
const FOREIGN_SHARE_MAX: f64 = 0.01;
/// A link whose departures were later is no link.
const LATENESS_MS_MAX: f64 = 2.0;
/// What may come towards the client before it asks for the first byte, beyond what it was given: half a block.
const EARLY_BYTES_MAX: u64 = 30_720;
/// Rounding of times.
const LIMIT_SHARE_MAX: f64 = 1.0005;

/// How a client ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// Everything was copied.
    Whole,
    /// Its throughput was flat.
    Flat,
    /// Its time was up.
    Late,
    /// It failed; why.
    Failed(String),
}

/// A run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) ended: Ended,
    /// As seen at the client's side.
    pub(super) shown: Shown,
    /// As seen on the WAN.
    pub(super) crossed: Crossed,
    /// Frames that the captures missed.
    pub(super) missed: u64,
    /// Of the link's latest departure.
    pub(super) lateness_ms: f64,
    /// What arrived is what was sent, as far as it arrived.
    pub(super) is_equal: bool,
}

/// What it is worth.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    /// KiB/s, or seconds where time is what counts.
    pub(super) value: Option<f64>,
    /// What that is held against.
    pub(super) limit: Option<f64>,
    /// Of the file, moved in the time.
    pub(super) bytes: u64,
    /// Reasons to do it again.
    pub(super) doubts: Vec<String>,
    /// What is wrong and would be again.
    pub(super) faults: Vec<String>,
}

/// Judges a run.
pub(super) fn judge(cell: &Cell, run: &Run) -> Verdict {
    let mut faults = Vec::new();
    if let Ended::Failed(why) = &run.ended {
        faults.push(why.clone());
    }
    if !run.is_equal {
        faults.push("what arrived is not what was sent".to_owned());
    }
    let span = span(cell, run);
    let (value, limit) = match span {
        Some(span) => measured(cell, span),
        None => (None, None),
    };
    if span.is_none() && faults.is_empty() {
        faults.push(match run.shown.transfer.unread_messages {
            0 => "the capture shows no copy".to_owned(),
            _ => "the capture cannot be read: the session is encrypted".to_owned(),
        });
    }
    if let (Some(value), Some(limit)) = (value, limit)
        && is_impossible(cell, value, limit)
    {
        faults.push(format!(
            "{value:.1} is beyond the limit of {limit:.1}: nothing can be"
        ));
    }
    if cell.work.is_throughput()
        && let Some(span) = span
    {
        faults.extend(early(run, span));
    }
    Verdict {
        value,
        limit,
        bytes: span.map_or(0, |span| span.bytes),
        doubts: doubts(run),
        faults,
    }
}

fn span(cell: &Cell, run: &Run) -> Option<Span> {
    use crate::plan::Work;
    let transfer = &run.shown.transfer;
    let span = match cell.work {
        Work::Read => transfer.read,
        Work::Write => transfer.written,
        Work::Folder | Work::Document => transfer.session.map(|span| Span {
            bytes: cell.size_bytes,
            ..span
        }),
    };
    span.filter(|span| span.bytes > 0 && span.end_ns > span.start_ns)
}

fn measured(cell: &Cell, span: Span) -> (Option<f64>, Option<f64>) {
    let seconds = span.seconds();
    match cell.work.is_throughput() {
        true => (
            Some(span.bytes as f64 / seconds / 1024.0),
            Some(cell.circuit.limit_byte_per_s(span.bytes) / 1024.0),
        ),
        false => (Some(seconds), Some(cell.circuit.least_s(span.bytes))),
    }
}

fn is_impossible(cell: &Cell, value: f64, limit: f64) -> bool {
    match cell.work.is_throughput() {
        true => value > limit * LIMIT_SHARE_MAX,
        false => value * LIMIT_SHARE_MAX < limit,
    }
}

/// Bytes of the file that crossed before anybody had asked for them.
fn early(run: &Run, span: Span) -> Option<String> {
    let came = run.crossed.towards_client_before(span.start_ns);
    let given = run.shown.to_client_before(span.start_ns);
    let early = came.saturating_sub(given);
    let told = format!("{early} bytes crossed the link before the first request");
    (early > EARLY_BYTES_MAX).then_some(told)
}

fn doubts(run: &Run) -> Vec<String> {
    let mut doubts = Vec::new();
    let wires = [
        (
            "the client's network",
            run.shown.own_bytes,
            run.shown.foreign_bytes,
        ),
        ("the link", run.crossed.own_bytes, run.crossed.foreign_bytes),
    ];
    for (wire, own, foreign) in wires {
        let share = foreign as f64 / (own + foreign).max(1) as f64;
        if share > FOREIGN_SHARE_MAX {
            doubts.push(format!("{:.1} % foreign traffic on {wire}", share * 100.0));
        }
    }
    if run.lateness_ms > LATENESS_MS_MAX {
        doubts.push(format!("the link was up to {:.1} ms late", run.lateness_ms));
    }
    if run.missed > 0 {
        doubts.push(format!("the captures missed {} frames", run.missed));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Transfer;
    use crate::plan::Plan;

    fn cell(work: &str) -> Cell {
        let text = format!(
            "name = 'x'\n[[cells]]\nrate = ['51.84mbit']\ndelay = ['30ms']\nclient = ['smbclient']\n\
             work = ['{work}']\nconfig = ['A']\nsize = '10 MiB'\n"
        );
        Plan::parse("p", &text).unwrap().cells.remove(0)
    }

    fn run(seconds: f64) -> Run {
        let span = Span {
            start_ns: 5_000_000_000,
            end_ns: 5_000_000_000 + (seconds * 1e9) as u64,
            bytes: 10 << 20,
        };
        let transfer = Transfer {
            read: Some(span),
            session: Some(Span { bytes: 0, ..span }),
            ..Transfer::default()
        };
        Run {
            ended: Ended::Whole,
            shown: Shown {
                transfer,
                own_bytes: 11_000_000,
                foreign_bytes: 0,
                to_client: vec![(4_000_000_000, 20_000)],
            },
            crossed: Crossed::of(&[(4_000_000_000, 21_000), (6_000_000_000, 11_000_000)]),
            missed: 0,
            lateness_ms: 0.3,
            is_equal: true,
        }
    }

    #[test]
    fn a_good_run_has_its_value_beside_the_limit() {
        let verdict = judge(&cell("read"), &run(2.0));
        assert_eq!(
            (verdict.doubts.len(), verdict.faults.len()),
            (0, 0),
            "{verdict:?}"
        );
        assert_eq!(verdict.value, Some(5120.0));
        assert!((verdict.limit.unwrap() - 5845.0).abs() < 2.0, "{verdict:?}");
        let verdict = judge(&cell("folder"), &run(2.0));
        assert_eq!(verdict.value, Some(2.0));
        assert!(
            (verdict.limit.unwrap() - 1.752).abs() < 0.001,
            "{verdict:?}"
        );
    }

    #[test]
    fn what_cannot_be_is_a_fault() {
        for work in ["read", "folder"] {
            let verdict = judge(&cell(work), &run(1.7));
            assert!(
                verdict.faults.iter().any(|fault| fault.contains("limit")),
                "{verdict:?}"
            );
        }
        let mut early = run(2.0);
        early.crossed = Crossed::of(&[(4_000_000_000, 120_000)]);
        let verdict = judge(&cell("read"), &early);
        assert_eq!(
            verdict.faults,
            ["100000 bytes crossed the link before the first request"]
        );
        let mut other = run(2.0);
        other.is_equal = false;
        assert_eq!(judge(&cell("read"), &other).faults.len(), 1);
        let mut none = run(2.0);
        none.shown.transfer = Transfer::default();
        let verdict = judge(&cell("read"), &none);
        assert_eq!((verdict.value, verdict.faults.len()), (None, 1));
    }

    #[test]
    fn what_may_be_better_next_time_is_a_doubt() {
        let mut doubtful = run(2.0);
        doubtful.lateness_ms = 2.1;
        doubtful.missed = 3;
        doubtful.shown.foreign_bytes = 200_000;
        let verdict = judge(&cell("read"), &doubtful);
        assert_eq!(
            (verdict.doubts.len(), verdict.faults.len()),
            (3, 0),
            "{verdict:?}"
        );
        assert_eq!(verdict.value, Some(5120.0));
    }
}
