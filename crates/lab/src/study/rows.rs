//! From a cell's samples to its row.

use serde_json::Value;

use super::derived::is_derived;
use super::judge::{Ended, Run, Verdict};
use super::sockets::Sockets;
use crate::capture::Crossed;
use crate::measurement::{Measurement, Op, Row};
use crate::plan::{Cell, Plan, Work};

/// Commit of the sources that a row was made from: a document may have rows of several.
pub(crate) const COMMIT: &str = "commit";
/// How much is wrong with a row and would be again.
const FAULTS: &str = "faults";
/// What client and server agreed to speak.
pub(crate) const DIALECT: &str = "smb_dialect";
/// `net.ipv4.tcp_rmem` of the client and of the server.
pub(crate) const BUFFERS: &str = "tcp_rmem";
pub(crate) const SERVER_BUFFERS: &str = "tcp_rmem_server";

/// One sample of a cell.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) verdict: Verdict,
    pub(super) run: Run,
    /// How its ends send.
    pub(super) sockets: Sockets,
    /// What each attempt before it came to. Whatever disturbed them may not be all that was wrong.
    pub(super) discarded: Vec<Option<f64>>,
    /// Of what was copied.
    pub(super) sha256: String,
    /// What the gateway says.
    pub(super) said: Value,
}

impl Sample {
    /// Times it was run until it was clean.
    fn attempts(&self) -> usize {
        self.discarded.len() + 1
    }
}

/// What is measured of a cell, in which unit.
pub(super) fn metric(cell: &Cell) -> (&'static str, &'static str) {
    match cell.work.is_throughput() {
        true => ("throughput", "KiB/s"),
        false => ("time", "s"),
    }
}

/// The row of a cell, and of what went wrong in samples that there are not.
pub(super) fn row(
    cell: &Cell,
    commit: Option<&str>,
    samples: &[Sample],
    failures: &[String],
) -> Row {
    let (metric, unit) = metric(cell);
    let (scenario, config) = (cell.scenario(), cell.config.word());
    let values: Vec<f64> = samples
        .iter()
        .filter_map(|sample| sample.verdict.value)
        .collect();
    let row = Row::of_samples(&scenario, config, metric, unit, &values);
    let mut row = limited(row, cell, samples);
    let faults = samples.iter().flat_map(|sample| &sample.verdict.faults);
    let faults: Vec<_> = failures.iter().chain(faults).collect();
    let doubts: Vec<_> = samples
        .iter()
        .flat_map(|sample| &sample.verdict.doubts)
        .collect();
    if !faults.is_empty() {
        row.ok = Some(false);
    }
    // Of those that nobody saw end nothing is known; a run that goes on does the cell again.
    let is_unknown =
        |sample: &&Sample| sample.verdict.value.is_none() && sample.verdict.faults.is_empty();
    let fault_count = faults.len() + samples.iter().filter(is_unknown).count();
    let troubles: Vec<_> = faults.into_iter().chain(doubts).cloned().collect();
    if !troubles.is_empty() {
        row.error = Some(troubles.join("; "));
    }
    let row = described(row, cell, commit).detail(FAULTS, fault_count);
    // Every row has them, also where nothing was seen.
    let unknown = [DIALECT, BUFFERS, SERVER_BUFFERS].into_iter();
    let row = unknown.fold(row, |row, key| row.detail(key, Value::Null));
    let doubtful = |sample: &&Sample| !sample.verdict.doubts.is_empty();
    let row = row
        .detail(
            "attempts",
            samples.iter().map(Sample::attempts).sum::<usize>(),
        )
        .detail("doubtful", samples.iter().filter(doubtful).count())
        .detail("discarded", discarded(samples));
    match middle(samples, row.value) {
        Some(sample) => {
            let row = seen(row, cell, sample);
            let cut_short = samples
                .iter()
                .find(|other| other.run.ended != Ended::Whole)
                .unwrap_or(sample);
            row.detail("ended", ended_word(&cut_short.run.ended))
                .detail("ended_bytes", cut_short.verdict.bytes)
                .detail("ended_files", cut_short.run.files_done)
        }
        None => row,
    }
}

/// What all attempts came to that were not kept.
fn discarded(samples: &[Sample]) -> Vec<f64> {
    let values = samples.iter().flat_map(|sample| &sample.discarded);
    values.copied().flatten().collect()
}

/// What nothing can be above, of the least that was moved, and what share of it is asked for.
fn limited(row: Row, cell: &Cell, samples: &[Sample]) -> Row {
    let least = |limits: f64, sample: &Sample| {
        sample
            .verdict
            .limit
            .map_or(limits, |limit| limit.min(limits))
    };
    let limit = samples.iter().fold(f64::INFINITY, least);
    let row = row.limit(limit);
    let share = cell.least_of_limit.filter(|_| limit.is_finite());
    match share.filter(|_| cell.config.is_accelerated()) {
        None => row,
        Some(share) => {
            let share = share * (1.0 - cell.circuit.loss);
            match cell.work.is_throughput() {
                true => row.target(Op::AtLeast, share * limit),
                false => row.target(Op::AtMost, limit / share),
            }
        }
    }
}

/// The sample whose value is the row's, or next to it.
fn middle(samples: &[Sample], value: Option<f64>) -> Option<&Sample> {
    let distance = |sample: &&Sample| match (sample.verdict.value, value) {
        (Some(one), Some(other)) => (one - other).abs(),
        _ => f64::INFINITY,
    };
    samples
        .iter()
        .min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

fn ended_word(ended: &Ended) -> &'static str {
    match ended {
        Ended::Whole => "whole",
        Ended::Flat => "flat",
        Ended::Late => "late",
        Ended::Failed(_) => "failed",
    }
}

/// What a report groups by.
fn described(row: Row, cell: &Cell, commit: Option<&str>) -> Row {
    row.detail(COMMIT, commit.map_or(Value::Null, Value::from))
        .detail("link", cell.circuit.words.clone())
        .detail("rate_mbit", cell.circuit.rate_mbit())
        .detail("delay_ms", cell.circuit.delay_ms)
        .detail("jitter_ms", cell.circuit.jitter_ms)
        .detail("loss", cell.circuit.loss)
        .detail("queue", cell.circuit.queue.clone())
        .detail("client", cell.client.word())
        .detail("work", cell.work.word())
        .detail("receive_buffer_bytes", cell.receive_buffer_bytes)
        .detail("size_bytes", cell.size_bytes)
        .detail("files", cell.files)
}

/// What was seen of a sample.
fn seen(row: Row, cell: &Cell, sample: &Sample) -> Row {
    let Sample {
        verdict,
        run,
        sockets,
        ..
    } = sample;
    let transfer = &run.shown.transfer;
    let mut row = row
        .detail("congestion_control", sockets.server.clone())
        .detail("congestion_control_client", sockets.client.clone())
        .detail(DIALECT, transfer.dialect)
        .detail(BUFFERS, buffers(sockets.client_buffers))
        .detail(SERVER_BUFFERS, buffers(sockets.server_buffers))
        .detail("early_bytes", verdict.early_bytes)
        .detail("bytes", verdict.bytes)
        .detail("files_done", run.files_done)
        .detail("lateness_ms", run.lateness_ms)
        .detail("lost_frames", run.lost_frames)
        .detail("clock_set_ms", run.clock_set_ms)
        .detail(
            "foreign_bytes",
            run.shown.foreign_bytes + run.crossed.foreign_bytes,
        )
        .detail("wan_bytes", wan_bytes(cell.work, &run.crossed))
        .detail("repeated_bytes", transfer.repeated_bytes)
        .detail("requests", transfer.requests)
        .detail("read_requests", transfer.read_requests)
        .detail("window_bytes_max", transfer.window_bytes_max)
        .detail("sha256", sample.sha256.clone())
        .detail("equal", run.is_equal);
    if cell.files > 1 {
        // Of those that were copied; one more was begun where its time was up.
        let files = match run.ended {
            Ended::Whole => cell.files,
            _ => run.files_done.max(1),
        };
        let each = transfer.requests as f64 / f64::from(files);
        row = row.detail("requests_per_file", each);
    }
    match &sample.said {
        Value::Null => row,
        said => row.detail("gateway", said.clone()),
    }
}

fn buffers(bytes: Option<[u64; 3]>) -> Value {
    bytes.map_or(Value::Null, |three| three.to_vec().into())
}

/// Bytes that crossed the link on the way of the files.
fn wan_bytes(work: Work, crossed: &Crossed) -> u64 {
    match work {
        Work::Write => crossed.towards_server(),
        Work::Document => crossed.towards_client() + crossed.towards_server(),
        Work::Read | Work::Random | Work::Folder | Work::Browse => crossed.towards_client(),
    }
}

/// Whether a document has this cell already, with a value that nothing is wrong with but that it may miss its target.
pub(super) fn is_done(document: &Measurement, cell: &Cell) -> bool {
    let (scenario, config) = (cell.scenario(), cell.config.word());
    let is_it = |row: &Row| row.scenario == scenario && row.config == config && !is_derived(row);
    let is_sound = |row: &Row| {
        let faults = row.detail.get(FAULTS).and_then(Value::as_u64);
        row.value.is_some() && faults == Some(0)
    };
    let mut rows = document.rows.iter();
    rows.any(|row| is_it(row) && is_sound(row))
}

/// Takes a cell's older row away and puts the new one in.
pub(super) fn put(document: &mut Measurement, row: Row) {
    let is_same = |old: &Row| {
        (&old.scenario, &old.config, &old.metric) == (&row.scenario, &row.config, &row.metric)
    };
    document.rows.retain(|old| !is_same(old));
    document.rows.push(row);
}

/// Rows in the order of the plan's cells, whatever was run when; those of no cell come last.
pub(super) fn sort(document: &mut Measurement, plan: &Plan) {
    let names: Vec<String> = plan.cells.iter().map(Cell::name).collect();
    let place = |row: &Row| {
        let name = format!("{} {}", row.scenario, row.config);
        let at = names.iter().position(|other| *other == name);
        (is_derived(row), at.unwrap_or(usize::MAX))
    };
    document.rows.sort_by_key(place);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::capture::{AtServer, Shown, Transfer};
    use serde_json::json;

    /// One that took 7 of 9.
    pub(crate) fn sample(faults: &[&str], doubts: &[&str]) -> Sample {
        let words = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Sample {
            verdict: Verdict {
                value: Some(7.0),
                limit: Some(9.0),
                bytes: 1 << 20,
                early_bytes: 0,
                doubts: words(doubts),
                faults: words(faults),
            },
            run: Run {
                ended: Ended::Whole,
                shown: Shown {
                    transfer: Transfer::default(),
                    own_bytes: 0,
                    foreign_bytes: 0,
                    to_client: Vec::new(),
                    to_server: Vec::new(),
                    first_read_ns: None,
                    first_write_ns: None,
                },
                crossed: Crossed::default(),
                at_server: AtServer {
                    first_read_ns: None,
                    first_write_ns: None,
                    seen_until_ns: u64::MAX,
                },
                missed: 0,
                lateness_ms: 0.0,
                lost_frames: 0,
                clock_set_ms: 0.0,
                is_equal: true,
                files_done: 1,
                reached: None,
            },
            sockets: Sockets::default(),
            discarded: Vec::new(),
            sha256: String::new(),
            said: Value::Null,
        }
    }

    pub(crate) fn plan() -> Plan {
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['0ms', '30ms']\n\
                    client = ['smbclient']\nwork = ['read', 'folder']\nconfig = ['B', 'A']\nsize = '1 MiB'\n\
                    least_of_direct = 0.98\n\
                    [[expect]]\ncell = '1M/0ms smbclient read B'\nvalue = 80.0\nwithin = 0.15\n";
        Plan::parse("p", text).unwrap()
    }

    pub(crate) fn measured(cell: &Cell, value: f64) -> Row {
        let (metric, unit) = metric(cell);
        Row::of(&cell.scenario(), cell.config.word(), metric, unit, value).detail(FAULTS, 0)
    }

    #[test]
    fn what_crossed_is_counted_on_the_way_of_the_files() {
        let crossed = Crossed::of(&[(1, 700)], &[(2, 20), (3, 4)]);
        let counted = |work| wan_bytes(work, &crossed);
        assert_eq!(
            [Work::Read, Work::Write, Work::Document].map(counted),
            [700, 24, 724]
        );
    }

    #[test]
    fn a_cell_with_a_fault_is_run_again_and_one_that_was_disturbed_is_not() {
        let plan = plan();
        let cell = &plan.cells[1];
        for (faults, doubts, is_kept) in [
            (&["it differs"][..], &[][..], false),
            (&[][..], &["late"][..], true),
            (&[][..], &[][..], true),
        ] {
            let mut document = Measurement::new("x", "", 1);
            let row = row(cell, Some("abc"), &[sample(faults, doubts)], &[]);
            assert_eq!(row.value, Some(7.0));
            assert_eq!(row.detail[COMMIT], "abc");
            put(&mut document, row);
            assert_eq!(is_done(&document, cell), is_kept, "{faults:?} {doubts:?}");
        }
    }

    #[test]
    fn every_row_says_what_was_spoken_and_which_buffers_there_were() {
        let plan = plan();
        let mut sample = sample(&[], &[]);
        sample.run.shown.transfer.dialect = Some("2.1");
        sample.sockets.client_buffers = Some([4096, 17_520, 17_520]);
        sample.sockets.server_buffers = Some([4096, 131_072, 6_291_456]);
        let failures = ["it broke".to_owned()];
        let whole = row(&plan.cells[1], None, &[sample], &[]);
        let failed = row(&plan.cells[1], None, &[], &failures);
        let said =
            |row: &Row| [DIALECT, BUFFERS, SERVER_BUFFERS].map(|key| row.detail[key].clone());
        let expected = [
            json!("2.1"),
            json!([4096, 17_520, 17_520]),
            json!([4096, 131_072, 6_291_456]),
        ];
        assert_eq!(said(&whole), expected);
        assert_eq!(said(&failed), [Value::Null, Value::Null, Value::Null]);
    }

    #[test]
    fn a_row_says_which_queue_was_asked_for() {
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['0ms']\nqueue = ['auto', '50ms']\n\
                    client = ['smbclient']\nconfig = ['B']\nsize = '1 MiB'\n";
        let plan = Plan::parse("p", text).unwrap();
        let said = plan.cells.iter().map(|cell| {
            let row = row(cell, None, &[], &[]);
            (row.scenario, row.detail["queue"].clone())
        });
        let expected = [
            ("1M/0ms smbclient read", Value::Null),
            ("1M/0ms queue 50ms smbclient read", json!("50ms")),
        ];
        let expected = expected.map(|(name, queue)| (name.to_owned(), queue));
        assert_eq!(said.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_sample_that_failed_takes_nothing_from_the_others() {
        let plan = plan();
        let cell = &plan.cells[1];
        let samples = [5.0, 9.0, 6.0].map(|value| {
            let mut one = sample(&[], &[]);
            one.verdict.value = Some(value);
            one
        });
        let row = row(cell, None, &samples, &["no gateway".to_owned()]);
        assert_eq!((row.value, row.n), (Some(6.0), Some(3)));
        assert_eq!(row.error.as_deref(), Some("no gateway"));
        let mut document = Measurement::new("x", "", 1);
        put(&mut document, row);
        assert!(!is_done(&document, cell), "it is missing one");
    }

    /// Its last one is not the one that the value is of.
    #[test]
    fn a_row_tells_of_the_copy_in_the_middle_and_of_all_attempts() {
        let plan = plan();
        let cell = &plan.cells[1];
        let samples = [
            (5.0, Ended::Late, 2),
            (9.0, Ended::Whole, 1),
            (6.0, Ended::Whole, 3),
        ];
        let mut samples = samples.map(|(value, ended, attempts)| {
            let mut one = sample(&[], &[]);
            one.verdict.value = Some(value);
            one.sha256 = value.to_string();
            one.verdict.bytes = value as u64;
            (one.run.ended, one.discarded) = (ended, vec![None; attempts - 1]);
            one
        });
        samples[2].verdict.doubts.push("late".to_owned());
        let row = row(cell, None, &samples, &[]);
        let said = |keys: [&str; 3]| keys.map(|key| row.detail[key].clone());
        assert_eq!(
            said(["sha256", "bytes", "attempts"]),
            [json!("6"), json!(6), json!(6)]
        );
        // What is said of one that was cut short is of that one.
        assert_eq!(
            said(["ended", "ended_bytes", "doubtful"]),
            [json!("late"), json!(5), json!(1)]
        );
    }

    #[test]
    fn requests_are_of_the_files_that_were_copied() {
        let plan = plan();
        let mut cell = plan
            .cells
            .iter()
            .find(|cell| cell.work == Work::Folder)
            .unwrap()
            .clone();
        cell.files = 1_000;
        let each = |ended, files_done| {
            let mut one = sample(&[], &[]);
            (one.run.ended, one.run.files_done) = (ended, files_done);
            one.run.shown.transfer.requests = 1_200;
            row(&cell, None, &[one], &[]).detail["requests_per_file"].clone()
        };
        let found = [(Ended::Whole, 1_000), (Ended::Late, 300), (Ended::Late, 0)];
        let found = found.map(|(ended, files_done)| each(ended, files_done));
        assert_eq!(found, [json!(1.2), json!(4.0), json!(1_200.0)]);
    }

    /// Nobody saw its last byte come: there is one sample less than was asked for.
    #[test]
    fn a_copy_without_a_value_is_run_again() {
        let plan = plan();
        let cell = &plan.cells[1];
        let mut unseen = sample(&[], &["the captures missed 4 frames"]);
        unseen.verdict.value = None;
        let row = row(cell, None, &[sample(&[], &[]), unseen], &[]);
        assert_eq!((row.value, row.n, row.ok), (Some(7.0), Some(1), None));
        let mut document = Measurement::new("x", "", 1);
        put(&mut document, row);
        assert!(!is_done(&document, cell));
    }

    #[test]
    fn a_cell_is_done_when_it_has_a_value() {
        let plan = plan();
        let mut document = Measurement::new("x", "", 1);
        let cell = &plan.cells[1];
        put(
            &mut document,
            row(cell, None, &[], &["it broke".to_owned()]),
        );
        assert!(!is_done(&document, cell));
        let failed = document.rows.first().unwrap();
        assert_eq!((failed.value, failed.ok), (None, Some(false)));
        assert_eq!(failed.error.as_deref(), Some("it broke"));
        put(&mut document, measured(cell, 7.0));
        assert!(is_done(&document, cell) && !is_done(&document, &plan.cells[0]));
        assert_eq!(document.rows.len(), 1, "the failed row is gone");
        put(&mut document, measured(&plan.cells[0], 9.0));
        sort(&mut document, &plan);
        assert_eq!(document.rows[0].config, "B");
    }
}
