//! What is finished stays: a run that was stopped goes on where it was.
//!
//! `out/tunnel-jobs.jsonl` holds one line that says what it is a run of, then one for each finished
//! job. Another commit or other seeds begin anew, and so does a source tree that was changed: only
//! a commit says what was measured.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use farhaul_lab::measurement::Row;

/// Rows of finished jobs, by name.
pub struct Kept {
    path: PathBuf,
    rows: Mutex<HashMap<String, Vec<Row>>>,
    file: Mutex<File>,
}

impl Kept {
    /// Takes up the run in `folder` if it is one of this commit and these seeds.
    pub fn open(folder: &Path, commit: Option<&str>, seeds: &[u64]) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("tunnel-jobs.jsonl");
        let title = serde_json::json!({ "commit": commit, "seeds": seeds }).to_string();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let is_told_apart = commit.is_some_and(|commit| !commit.ends_with("-dirty"));
        let rows = match text.lines().next() {
            Some(first) if first == title && is_told_apart => finished(&text),
            _ => HashMap::new(),
        };
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(&path)?;
        // Written anew: the last line of a stopped run may be half a line.
        writeln!(file, "{title}")?;
        for (name, rows) in &rows {
            writeln!(file, "{}", line(name, rows))?;
        }
        Ok(Self {
            path,
            rows: Mutex::new(rows),
            file: Mutex::new(file),
        })
    }

    /// Rows of a job that is finished.
    pub fn of(&self, name: &str) -> Option<Vec<Row>> {
        self.rows.lock().unwrap().get(name).cloned()
    }

    /// A job is finished.
    pub fn add(&self, name: String, rows: Vec<Row>) {
        let written = writeln!(self.file.lock().unwrap(), "{}", line(&name, &rows));
        if let Err(error) = written {
            eprintln!("{}: {error}", self.path.display());
        }
        self.rows.lock().unwrap().insert(name, rows);
    }

    /// All jobs are finished and stand in the document.
    pub fn remove(self) {
        // Of no use to anybody; the next run would find nothing to do.
        let _ = std::fs::remove_file(self.path);
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
