//! What is finished stays: a run that was stopped goes on where it was.
//!
//! `out/tunnel-jobs.jsonl` holds one line that says what it is a run of, then one for each finished
//! job. Another commit or other seeds begin anew, and so does a source tree that was changed: only
//! a commit says what was measured. A run of a part leaves the file of another run as it is, and one
//! beside another keeps nothing.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use farhaul_lab::measurement::Row;
use rustix::fs::{FlockOperation, flock};

/// Rows of finished jobs, by name.
pub struct Kept {
    path: PathBuf,
    rows: Mutex<HashMap<String, Vec<Row>>>,
    /// None for a run that keeps nothing.
    file: Option<Mutex<File>>,
}

impl Kept {
    /// Takes up the run in `folder` if it is one of this commit and these seeds.
    pub fn open(
        folder: &Path,
        commit: Option<&str>,
        seeds: &[u64],
        is_whole: bool,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("tunnel-jobs.jsonl");
        let title = serde_json::json!({ "commit": commit, "seeds": seeds }).to_string();
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)?;
        let is_alone = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let text = io::read_to_string(&file)?;
        let is_told_apart = commit.is_some_and(|commit| !commit.ends_with("-dirty"));
        let is_same = text.lines().next() == Some(&title) && is_told_apart;
        let rows = if is_same {
            finished(&text)
        } else {
            HashMap::new()
        };
        if !is_alone {
            eprintln!(
                "{}: another run writes it; nothing is kept of this one",
                path.display()
            );
        }
        let is_ours = is_alone && (is_whole || is_same || text.is_empty());
        if is_ours {
            // Written anew: the last line of a stopped run may be half a line.
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{title}")?;
            for (name, rows) in &rows {
                writeln!(file, "{}", line(name, rows))?;
            }
        }
        Ok(Self {
            path,
            rows: Mutex::new(rows),
            file: is_ours.then_some(Mutex::new(file)),
        })
    }

    /// Rows of a job that is finished.
    pub fn of(&self, name: &str) -> Option<Vec<Row>> {
        self.rows.lock().unwrap().get(name).cloned()
    }

    /// A job is finished.
    pub fn add(&self, name: String, rows: Vec<Row>) {
        if let Some(file) = &self.file
            && let Err(error) = writeln!(file.lock().unwrap(), "{}", line(&name, &rows))
        {
            eprintln!("{}: {error}", self.path.display());
        }
        self.rows.lock().unwrap().insert(name, rows);
    }

    /// All jobs are finished and stand in the document.
    pub fn remove(self) {
        // Of no use to anybody; the next run would find nothing to do.
        if self.file.is_some() {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

fn line(name: &str, rows: &[Row]) -> String {
    serde_json::json!([name, rows]).to_string()
}

fn finished(text: &str) -> HashMap<String, Vec<Row>> {
    let lines = text.lines().skip(1);
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
