//! What single runs showed, on disk: one line each, and the report it rests on.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::Run;
use crate::caller::make_folder;
use crate::error::{During, LabError};
use crate::probe::report::Report;

/// The lines of all runs so far, and a folder of reports beside them.
#[derive(Debug)]
pub(super) struct Record {
    file: PathBuf,
    pub(super) runs: Vec<Run>,
}

impl Record {
    /// Reads what earlier invocations of the same program left: what another one
    /// found is no result of this one. A line that a crash cut short is no run,
    /// and must not swallow the next one.
    pub(super) fn open(file: &Path, made_by: &str) -> Result<Self, LabError> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).during(|| format!("reading {}", file.display())),
        };
        let record = Self {
            file: file.to_owned(),
            runs: text
                .lines()
                .flat_map(serde_json::from_str)
                .filter(|run: &Run| run.made_by == made_by)
                .collect(),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            record.write("\n")?;
        }
        Ok(record)
    }

    /// Whether a run need not be done again: it has a verdict, or the examination
    /// failed at one, on a circuit that was emulated in time, on a machine that
    /// held nothing up.
    pub(super) fn has(&self, plant: super::Plant, seed: u64) -> bool {
        let is_it = |run: &&Run| run.plant == plant && run.seed == seed;
        self.runs.iter().filter(is_it).any(Run::counts)
    }

    pub(super) fn append(&mut self, run: Run) -> Result<(), LabError> {
        let line = serde_json::to_string(&run).unwrap_or_default();
        self.write(&(line + "\n"))?;
        self.runs.push(run);
        Ok(())
    }

    fn write(&self, text: &str) -> Result<(), LabError> {
        make_folder_of(&self.file)?;
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .during(|| format!("writing {}", self.file.display()))
    }

    /// Keeps the report without the courses of its streams, which no verdict
    /// looks at: some 20 KB.
    pub(super) fn keep(&self, name: &str, mut report: Report) -> Result<(), LabError> {
        let seen = &mut report.observations;
        for loaded in [&mut seen.tcp_up, &mut seen.tcp_down].into_iter().flatten() {
            let test = &mut loaded.test;
            let ways = [&mut test.up, &mut test.down].into_iter().flatten();
            for stream in ways.flat_map(|way| &mut way.streams) {
                stream.sender.samples.clear();
                stream.receiver.samples.clear();
            }
        }
        let path = self.file.with_extension("reports").join(name);
        make_folder_of(&path)?;
        let text = serde_json::to_string(&report).unwrap_or_default();
        fs::write(&path, text).during(|| format!("writing {}", path.display()))
    }
}

fn make_folder_of(path: &Path) -> Result<(), LabError> {
    match path.parent() {
        Some(folder) => make_folder(folder),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lost, run};
    use super::*;
    use crate::probe::accuracy::plant::Plant;

    #[test]
    fn a_stopped_series_goes_on_with_what_is_missing() {
        let folder = std::env::temp_dir().join(format!("farhaul-record-{}", std::process::id()));
        let file = folder.join("runs.jsonl");
        let mut record = Record::open(&file, "me").unwrap();
        record.append(run(Plant::Clean, 1, 0.1, None)).unwrap();
        record
            .append(run(Plant::Clean, 2, 0.1, Some("the server is gone")))
            .unwrap();
        record.append(run(Plant::Clean, 3, 19.0, None)).unwrap();
        record
            .append(lost(run(Plant::Loss1, 1, 0.1, None)))
            .unwrap();
        // A crash in the middle of a line.
        record.write("{\"plant\":\"clean\",\"seed\":4,").unwrap();
        let mut again = Record::open(&file, "me").unwrap();
        let has = |record: &Record| [1, 2, 3, 4].map(|seed| record.has(Plant::Clean, seed));
        assert_eq!(has(&again), [true, false, false, false]);
        assert!(again.has(Plant::Loss1, 1));
        again.append(run(Plant::Clean, 4, 0.1, None)).unwrap();
        again.append(run(Plant::Clean, 2, 0.1, None)).unwrap();
        let last = Record::open(&file, "me").unwrap();
        assert_eq!(has(&last), [true, true, false, true]);
        assert_eq!(last.runs.len(), 6);
        let changed = Record::open(&file, "me, changed").unwrap();
        assert_eq!((has(&changed), changed.runs.len()), ([false; 4], 0));
        fs::remove_dir_all(folder).unwrap();
    }
}
