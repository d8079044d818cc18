//! What a run of a cell's client is worth: its value, whether it has to be done again, and what is wrong with it.

use crate::capture::{AtServer, Crossed, Shown, Span};
use crate::plan::{Cell, Work};

/// More foreign traffic than this share makes a run doubtful.
const FOREIGN_SHARE_MAX: f64 = 0.01;
/// So little is what hosts say of themselves, such as ARP; of a listing it is more than that share.
const FOREIGN_BYTES_MIN: u64 = 2_000;
/// A link whose departures were later is no link.
const LATENESS_MS_MAX: f64 = 2.0;
/// Whoever sets the clock by more than this during a copy makes it longer or shorter.
const CLOCK_SET_MS_MAX: f64 = 2.0;
/// What gateways may say to each other before the first request, beyond what the client was given or has sent by then. It was .2 kB
/// without delay and 4 to 8 kB over 500 ms, most of it full datagrams to find the largest; each may be lost and sent again.
const EARLY_BYTES_MAX: u64 = 20_000;
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
    /// As the server saw its beginning.
    pub(super) at_server: AtServer,
    /// Frames that the captures missed.
    pub(super) missed: u64,
    /// Of the link's latest departure.
    pub(super) lateness_ms: f64,
    /// Frames that the link lost though nobody had asked for that.
    pub(super) lost_frames: u64,
    /// By how much the wall clock was set meanwhile: all times are by it.
    pub(super) clock_set_ms: f64,
    /// What arrived is what was sent, as far as it arrived.
    pub(super) is_equal: bool,
    /// Files that are all there.
    pub(super) files_done: u32,
    /// Of a write that is not whole, what had reached the server.
    pub(super) reached: Option<Reached>,
}

/// Bytes in the file at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    /// When it was looked at, since 1970.
    pub(super) at_ns: u64,
    pub(super) bytes: u64,
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
    /// What crossed the link before the first request, beyond what the client was given or has sent.
    pub(super) early_bytes: u64,
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
    let seen_bytes = span.map_or(0, |span| span.bytes);
    let has_gaps = cell.work.is_throughput()
        && run.ended == Ended::Whole
        && span.is_some_and(|span| span.bytes < cell.moved_bytes());
    let (value, limit) = match span {
        // All of it was copied, but nobody saw when the last byte came.
        Some(_) if has_gaps => (None, None),
        Some(span) => measured(cell, run, span),
        None => (None, None),
    };
    if span.is_none() && faults.is_empty() {
        faults.push(match run.shown.transfer.unread_messages {
            0 => "the capture shows no copy".to_owned(),
            _ => "the capture cannot be read: the session is encrypted".to_owned(),
        });
    }
    if value.is_none() && !has_gaps && faults.is_empty() {
        faults.push("its time was up before anything was done".to_owned());
    }
    if let (Some(value), Some(limit)) = (value, limit)
        && is_impossible(cell, value, limit)
    {
        faults.push(format!(
            "{value:.1} is beyond the limit of {limit:.1}: nothing can be"
        ));
    }
    let mut doubts = doubts(run);
    let early = span.map(|span| early(cell, run, span.start_ns));
    let early = early.unwrap_or_default();
    faults.extend(early.faults);
    doubts.extend(early.doubt);
    if has_gaps {
        let all_bytes = cell.moved_bytes();
        doubts.push(format!(
            "the capture shows {seen_bytes} of {all_bytes} bytes"
        ));
    }
    Verdict {
        value,
        limit,
        bytes: seen_bytes,
        early_bytes: early.bytes,
        doubts,
        faults,
    }
}

fn span(cell: &Cell, run: &Run) -> Option<Span> {
    let transfer = &run.shown.transfer;
    let span = match cell.work {
        Work::Read | Work::Random => transfer.read.filter(|span| span.bytes > 0),
        Work::Write => {
            let written = transfer.written.filter(|span| span.bytes > 0);
            written.map(|span| safe(span, run.reached))
        }
        Work::Folder | Work::Document => transfer.session.map(|span| Span {
            bytes: cell.size_bytes * u64::from(run.files_done) / u64::from(cell.files),
            ..span
        }),
        // Nothing of the files themselves.
        Work::Browse => transfer.session.map(|span| Span { bytes: 0, ..span }),
    };
    span.filter(|span| span.end_ns > span.start_ns)
}

/// A write may be answered before it has crossed the link: only what is at the server is safe, and it took until then.
fn safe(written: Span, reached: Option<Reached>) -> Span {
    match reached {
        Some(reached) if reached.bytes < written.bytes => Span {
            end_ns: written.end_ns.max(reached.at_ns),
            bytes: reached.bytes,
            ..written
        },
        _ => written,
    }
}

fn measured(cell: &Cell, run: &Run, span: Span) -> (Option<f64>, Option<f64>) {
    let seconds = span.seconds();
    if cell.work.is_throughput() {
        if span.bytes == 0 {
            return (None, None);
        }
        return (
            Some(span.bytes as f64 / seconds / 1024.0),
            Some(cell.circuit.limit_byte_per_s(span.bytes) / 1024.0),
        );
    }
    // Of what is not whole, the time that all of it takes at the pace so far.
    let value = match (&run.ended, run.files_done) {
        (Ended::Whole, _) => Some(seconds),
        (_, 0) => None,
        (_, done) => Some(seconds * f64::from(cell.files) / f64::from(done)),
    };
    (value, Some(cell.least_s()))
}

fn is_impossible(cell: &Cell, value: f64, limit: f64) -> bool {
    match cell.work.is_throughput() {
        true => value > limit * LIMIT_SHARE_MAX,
        false => value * LIMIT_SHARE_MAX < limit,
    }
}

/// What passed before the first request.
#[derive(Debug, Default)]
struct Early {
    bytes: u64,
    faults: Vec<String>,
    doubt: Option<String>,
}

fn early(cell: &Cell, run: &Run, start_ns: u64) -> Early {
    let mut early = Early {
        bytes: early_bytes(cell, run, start_ns),
        ..Early::default()
    };
    if early.bytes > EARLY_BYTES_MAX {
        early.faults.push(format!(
            "{} bytes crossed the link before the first request",
            early.bytes
        ));
    }
    match too_soon_ms(cell, run, start_ns) {
        Some(ms) if ms > 0.0 => early.faults.push(format!(
            "the file's first byte passed at the server {ms} ms before the first request"
        )),
        Some(_) => {}
        None => {
            early.doubt =
                Some("what passed at the server before the first request is not known".to_owned());
        }
    }
    early
}

/// How long before the first request the first byte of a file passed at the server's side; 0 where it did not. No byte can have
/// crossed the link sooner: gateways have forgotten everything, and files are new. `None` where that is not known.
fn too_soon_ms(cell: &Cell, run: &Run, start_ns: u64) -> Option<f64> {
    let first_ns = match cell.work {
        Work::Write => run.at_server.first_write_ns,
        Work::Read | Work::Random | Work::Folder | Work::Browse | Work::Document => {
            run.at_server.first_read_ns
        }
    };
    let soon_ns = start_ns.saturating_sub(first_ns.unwrap_or(u64::MAX));
    let is_known = first_ns.is_some() || run.at_server.seen_until_ns >= start_ns;
    is_known.then_some(soon_ns as f64 / 1e6)
}

/// What crossed before the first request without having reached the client, or come from it: what gateways say to each other.
fn early_bytes(cell: &Cell, run: &Run, start_ns: u64) -> u64 {
    let (crossed, shown) = (&run.crossed, &run.shown);
    let (came, given) = match cell.work {
        Work::Write => (
            crossed.towards_server_before(start_ns),
            shown.to_server_before(start_ns),
        ),
        Work::Read | Work::Random | Work::Folder | Work::Browse | Work::Document => (
            crossed.towards_client_before(start_ns),
            shown.to_client_before(start_ns),
        ),
    };
    came.saturating_sub(given)
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
        if share > FOREIGN_SHARE_MAX && foreign > FOREIGN_BYTES_MIN {
            doubts.push(format!("{:.1} % foreign traffic on {wire}", share * 100.0));
        }
    }
    if run.lateness_ms > LATENESS_MS_MAX {
        doubts.push(format!("the link was up to {:.1} ms late", run.lateness_ms));
    }
    if run.lost_frames > 0 {
        doubts.push(format!(
            "the link lost {} frames because the machine was too slow",
            run.lost_frames
        ));
    }
    if run.clock_set_ms.abs() > CLOCK_SET_MS_MAX {
        doubts.push(format!("the clock was set by {:.1} ms", run.clock_set_ms));
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
             work = ['{work}']\nconfig = ['A']\nsize = '10 MiB'\nfiles = 10\n"
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
            written: Some(span),
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
                to_server: vec![(4_000_000_000, 9_000)],
                first_read_ns: Some(5_100_000_000),
                first_write_ns: Some(5_000_000_000),
            },
            at_server: AtServer {
                first_read_ns: Some(5_050_000_000),
                first_write_ns: Some(5_050_000_000),
                seen_until_ns: u64::MAX,
            },
            crossed: Crossed::of(
                &[(4_000_000_000, 21_000), (6_000_000_000, 11_000_000)],
                &[(4_000_000_000, 10_000)],
            ),
            missed: 0,
            lateness_ms: 0.3,
            lost_frames: 0,
            clock_set_ms: 0.001,
            is_equal: true,
            files_done: 10,
            reached: None,
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
        let mut other = run(2.0);
        other.is_equal = false;
        assert_eq!(judge(&cell("read"), &other).faults.len(), 1);
        let mut none = run(2.0);
        none.shown.transfer = Transfer::default();
        let verdict = judge(&cell("read"), &none);
        assert_eq!((verdict.value, verdict.faults.len()), (None, 1));
    }

    #[test]
    fn nothing_crosses_before_it_was_asked_for_or_sent() {
        let frames = [(4_000_000_000, 120_000)];
        let (from_server, from_client) = (Crossed::of(&frames, &[]), Crossed::of(&[], &frames));
        for (work, wrong, right, early_bytes) in [
            ("read", &from_server, &from_client, 100_000),
            ("folder", &from_server, &from_client, 100_000),
            ("browse", &from_server, &from_client, 100_000),
            ("document", &from_server, &from_client, 100_000),
            ("write", &from_client, &from_server, 111_000),
        ] {
            let mut early = run(2.0);
            early.crossed = wrong.clone();
            let told = format!("{early_bytes} bytes crossed the link before the first request");
            assert_eq!(judge(&cell(work), &early).faults, [told], "{work}");
            early.crossed = right.clone();
            assert!(judge(&cell(work), &early).faults.is_empty(), "{work}");
        }
    }

    /// Not a single byte of a file may pass before it was asked for, however little else there is.
    #[test]
    fn no_byte_of_a_file_passes_at_the_server_before_the_first_request() {
        let start_ns = 5_000_000_000;
        for (work, is_write) in [
            ("read", false),
            ("folder", false),
            ("browse", false),
            ("document", false),
            ("write", true),
        ] {
            let judged = |at_ns: Option<u64>, seen_until_ns| {
                let mut run = run(2.0);
                run.at_server.seen_until_ns = seen_until_ns;
                match is_write {
                    true => run.at_server.first_write_ns = at_ns,
                    false => run.at_server.first_read_ns = at_ns,
                }
                let verdict = judge(&cell(work), &run);
                (verdict.faults, verdict.doubts)
            };
            let nothing = (Vec::new(), Vec::new());
            assert_eq!(judged(Some(start_ns), u64::MAX), nothing, "{work}");
            assert_eq!(judged(Some(start_ns + 1), start_ns + 1), nothing, "{work}");
            let told =
                "the file's first byte passed at the server 0.001 ms before the first request";
            let (faults, doubts) = judged(Some(start_ns - 1_000), u64::MAX);
            assert_eq!((faults, doubts.len()), (vec![told.to_owned()], 0), "{work}");
            // None was seen: until when is what counts.
            assert_eq!(judged(None, start_ns), nothing, "{work}");
            let (faults, doubts) = judged(None, start_ns - 1);
            assert_eq!((faults.len(), doubts.len()), (0, 1), "{work}");
        }
    }

    #[test]
    fn a_few_frames_of_others_do_not_disturb_a_short_listing() {
        let mut short = run(2.0);
        short.shown.own_bytes = 20_000;
        short.shown.foreign_bytes = 600;
        assert!(judge(&cell("browse"), &short).doubts.is_empty());
        short.shown.foreign_bytes = 6_000;
        assert_eq!(judge(&cell("browse"), &short).doubts.len(), 1);
    }

    #[test]
    fn a_capture_with_gaps_gives_no_value_of_a_whole_file() {
        let mut gaps = run(2.0);
        gaps.missed = 689;
        gaps.shown.transfer.read.as_mut().unwrap().bytes = 614_400;
        let verdict = judge(&cell("read"), &gaps);
        assert_eq!((verdict.value, verdict.bytes), (None, 614_400));
        assert_eq!(verdict.faults.len(), 0, "it may be seen next time");
        let told = "the capture shows 614400 of 10485760 bytes";
        assert!(
            verdict.doubts.iter().any(|doubt| doubt == told),
            "{verdict:?}"
        );
        gaps.ended = Ended::Flat;
        assert!(judge(&cell("read"), &gaps).value.is_some());
    }

    #[test]
    fn of_a_folder_whose_time_was_up_the_files_that_are_there_count() {
        let mut late = run(600.0);
        late.ended = Ended::Late;
        late.files_done = 4;
        let verdict = judge(&cell("folder"), &late);
        assert_eq!(verdict.value, Some(1500.0), "as long for each of ten");
        assert_eq!((verdict.bytes, verdict.faults.len()), (4 << 20, 0));
        let whole = judge(&cell("folder"), &run(2.0));
        assert_eq!(whole.limit, verdict.limit, "of all of them");
        late.files_done = 0;
        for work in ["folder", "browse", "document"] {
            let verdict = judge(&cell(work), &late);
            assert_eq!((verdict.value, verdict.faults.len()), (None, 1), "{work}");
        }
    }

    /// All of it was answered within 2 s; after 8 a tenth was there.
    #[test]
    fn of_a_write_whose_time_was_up_only_what_is_at_the_server_counts() {
        let judged = |work: &str, bytes: Option<u64>| {
            let mut late = run(2.0);
            late.ended = Ended::Late;
            late.reached = bytes.map(|bytes| Reached {
                at_ns: 13_000_000_000,
                bytes,
            });
            let verdict = judge(&cell(work), &late);
            (verdict.value, verdict.bytes, verdict.faults)
        };
        let nothing = Vec::new();
        let answered = (Some(5120.0), 10 << 20, nothing.clone());
        assert_eq!(
            judged("write", Some(1 << 20)),
            (Some(128.0), 1 << 20, nothing)
        );
        assert_eq!(judged("write", Some(11 << 20)), answered, "it was ahead");
        assert_eq!(judged("write", None), answered, "it was whole");
        assert_eq!(judged("read", Some(1 << 20)), answered);
        let (value, bytes, faults) = judged("write", Some(0));
        assert_eq!((value, bytes), (None, 0));
        assert_eq!(faults, ["its time was up before anything was done"]);
    }

    #[test]
    fn a_limit_is_below_whatever_a_work_can_take() {
        let limit = |work: &str| judge(&cell(work), &run(2.0)).limit.unwrap();
        assert!((limit("browse") - 0.06).abs() < 1e-9);
        assert!((limit("document") - limit("folder") - 0.06).abs() < 1e-9);
    }

    #[test]
    fn a_clock_that_was_set_either_way_is_a_doubt() {
        for (set_ms, told) in [
            (1.9, None),
            (-1.9, None),
            (2.1, Some("the clock was set by 2.1 ms")),
            (-3_600_000.0, Some("the clock was set by -3600000.0 ms")),
        ] {
            let mut run = run(2.0);
            run.clock_set_ms = set_ms;
            let verdict = judge(&cell("read"), &run);
            let doubts = verdict.doubts.iter().map(String::as_str);
            assert_eq!(doubts.collect::<Vec<_>>(), Vec::from_iter(told));
            assert_eq!(verdict.faults.len(), 0, "{set_ms}");
        }
    }

    #[test]
    fn what_may_be_better_next_time_is_a_doubt() {
        let mut doubtful = run(2.0);
        doubtful.lateness_ms = 2.1;
        doubtful.missed = 3;
        doubtful.lost_frames = 1;
        doubtful.shown.foreign_bytes = 200_000;
        let verdict = judge(&cell("read"), &doubtful);
        assert_eq!(
            (verdict.doubts.len(), verdict.faults.len()),
            (4, 0),
            "{verdict:?}"
        );
        assert_eq!(verdict.value, Some(5120.0));
    }
}
