//! A campaign's file: a line for each start and each run. It grows by one
//! bounded line a run, and nothing in it is ever written again.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use super::places::check_regular;
use super::{Line, RUNS_MAX, Run, SCHEMA, Start};
use crate::probe::error::{ProbeError, While, harmless};

/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The file of the campaign that runs, locked against others.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    path: PathBuf,
}

impl Record {
    /// Opens or makes it. What is there already goes to `each`; it must be of
    /// the same subject. What a crash left of a last line is cut off.
    pub(super) fn open(
        path: &Path,
        start: &Start,
        each: &mut dyn FnMut(&Line),
    ) -> Result<Self, ProbeError> {
        let named = || format!("opening {}", path.display());
        let usage = |why: &str| ProbeError::Usage(format!("{} {why}", path.display()));
        check_regular(path)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .append(true)
            .open(path)
            .locally(&named())?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(usage("is in use by another campaign"));
        }
        let mut is_same = true;
        let whole_bytes = read_lines(&file, path, &mut |line| {
            if let Line::Start(earlier) = line {
                is_same &= earlier.subject == start.subject;
            }
            each(line);
        })?;
        if !is_same {
            return Err(usage(
                "is of a campaign to another server or with other settings: name another file with --file, or remove it",
            ));
        }
        file.set_len(whole_bytes).locally(&named())?;
        let path = path.to_owned();
        Ok(Self { file, path })
    }

    pub(super) fn append(&mut self, line: &Line) -> Result<(), ProbeError> {
        let mut text = serde_json::to_vec(line).locally("writing a line")?;
        text.push(b'\n');
        self.file
            .write_all(&text)
            .locally(&format!("writing {}", self.path.display()))
    }
}

/// Reads a campaign's file, also one that is being written. What is behind the
/// last line end is ignored.
pub fn read(path: &Path, each: &mut dyn FnMut(&Line)) -> Result<(), ProbeError> {
    check_regular(path)?;
    let file = File::open(path).locally(&format!("opening {}", path.display()))?;
    match read_lines(&file, path, each)? {
        0 => Err(ProbeError::Usage(format!(
            "{} is empty: no campaign has begun in it",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns the length of the whole lines.
fn read_lines(
    mut file: &File,
    path: &Path,
    each: &mut dyn FnMut(&Line),
) -> Result<u64, ProbeError> {
    let reading = format!("reading {}", path.display());
    file.seek(SeekFrom::Start(0)).locally(&reading)?;
    let mut reader = BufReader::new(file);
    let (mut bytes, mut order) = (0, Order::default());
    let mut text = Vec::new();
    for number in 1_u64.. {
        text.clear();
        let got = (&mut reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut text)
            .locally(&reading)?;
        let is_whole = text.ends_with(b"\n");
        if got == 0 || (!is_whole && bytes > 0 && (got as u64) < LINE_BYTES_MAX) {
            break;
        }
        let line = parsed(&text);
        let checked = line.and_then(|line| order.check(&line).map(|()| line));
        match checked {
            Ok(line) if is_whole => each(&line),
            other => {
                let why = other.err().unwrap_or_else(|| "it has no end".to_owned());
                return Err(ProbeError::Usage(format!(
                    "{} is no campaign's file: line {number}: {why}",
                    path.display()
                )));
            }
        }
        bytes += got as u64;
    }
    Ok(bytes)
}

/// A line of another format is called that, not wrong in one of its fields.
fn parsed(text: &[u8]) -> Result<Line, String> {
    #[derive(Deserialize)]
    struct Named {
        schema: String,
    }
    serde_json::from_slice(text).map_err(|error| match serde_json::from_slice(text) {
        Ok(Named { schema }) if schema != SCHEMA => foreign(&schema),
        _ => error.to_string(),
    })
}

fn foreign(schema: &str) -> String {
    format!("it is of format {}, not {SCHEMA}", harmless(schema))
}

/// A start comes first, runs follow each other.
#[derive(Debug, Default)]
struct Order {
    has_start: bool,
    runs: u32,
}

impl Order {
    fn check(&mut self, line: &Line) -> Result<(), String> {
        match line {
            Line::Start(Start { schema, .. }) if schema != SCHEMA => Err(foreign(schema)),
            Line::Start(start) => {
                self.has_start = true;
                start.subject.check()
            }
            Line::Run(_) if !self.has_start => Err("a run before any start".to_owned()),
            Line::Run(Run { run, .. }) if *run != self.runs + 1 || *run > RUNS_MAX => {
                Err(format!("run {run} follows run {}", self.runs))
            }
            Line::Run(_) => {
                self.runs += 1;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{good, start};
    use super::*;

    fn file(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("farhaul-campaign-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    fn lines(path: &Path) -> Vec<Line> {
        let mut found = Vec::new();
        read(path, &mut |line| found.push(line.clone())).unwrap();
        found
    }

    #[test]
    fn what_a_crash_left_is_cut_off_and_the_rest_kept() {
        let path = file("crash");
        let start = start(&[None], 3);
        let mut record = Record::open(&path, &start, &mut |_| panic!("empty")).unwrap();
        let first = Line::Run(good(1, &start.subject, 5_000_000));
        record.append(&Line::Start(start.clone())).unwrap();
        record.append(&first).unwrap();
        let busy = Record::open(&path, &start, &mut |_| {}).unwrap_err();
        assert!(busy.to_string().contains("in use"), "{busy}");
        drop(record);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"{\"line\":\"run\",\"ru"].concat()).unwrap();
        assert_eq!(lines(&path).len(), 2);
        let mut seen = Vec::new();
        let mut record = Record::open(&path, &start, &mut |line| seen.push(line.clone())).unwrap();
        assert_eq!(seen[1], first);
        record
            .append(&Line::Run(good(2, &start.subject, 6_000_000)))
            .unwrap();
        assert_eq!(lines(&path).len(), 3);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn another_campaigns_file_and_any_other_are_left_alone() {
        let path = file("other");
        let wanted = start(&[None], 3);
        let other = start(&[Some(8192)], 3);
        let mut record = Record::open(&path, &other, &mut |_| {}).unwrap();
        record.append(&Line::Start(other)).unwrap();
        drop(record);
        let refused = Record::open(&path, &wanted, &mut |_| {}).unwrap_err();
        assert!(refused.to_string().contains("other settings"), "{refused}");
        let start_line = fs::read_to_string(&path).unwrap();
        let run = |number| {
            let run = Line::Run(good(number, &wanted.subject, 1));
            serde_json::to_string(&run).unwrap() + "\n"
        };
        let long = format!("{start_line}{}", "x".repeat(100_000));
        for bad in [
            "a letter to my aunt",
            "a letter\n",
            "{}\n",
            &run(1),
            &format!("{start_line}{}", run(2)),
            &start_line.replace("campaign/2", "campaign/9"),
            &start_line.replace("8192", "1"),
            &format!("{start_line}\u{0}\n"),
            &long,
        ] {
            fs::write(&path, bad).unwrap();
            let error = Record::open(&path, &wanted, &mut |_| {}).unwrap_err();
            assert_eq!(error.code(), "usage", "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
        // As it was when there was TCP only.
        let older = start_line
            .replace("campaign/2", "campaign/1")
            .replace("\"tcp\":", "\"x\":");
        fs::write(&path, older).unwrap();
        let error = Record::open(&path, &wanted, &mut |_| {}).unwrap_err();
        let why = "of format farhaul-campaign/1, not farhaul-campaign/2";
        assert!(error.to_string().contains(why), "{error}");
        fs::remove_file(&path).unwrap();
        let folder = Record::open(&std::env::temp_dir(), &wanted, &mut |_| {}).unwrap_err();
        assert!(folder.to_string().contains("no regular file"), "{folder}");
    }

    #[test]
    fn a_line_is_short() {
        let start = start(&[None], 3);
        let mut run = good(u32::MAX, &start.subject, u64::MAX);
        run.down = run.up;
        let line = serde_json::to_string(&Line::Run(run)).unwrap();
        assert!(line.len() < 700, "{} bytes", line.len());
    }
}
