//! `farhaul sim merge`: one result file of several shards.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use farhaul_sim::results::{self, Completeness, Merged};

use crate::failure::Failure;
use crate::print;

#[derive(Debug, Args)]
#[command(after_help = "example: farhaul sim merge out/sim-waikato-*-of-16.jsonl")]
pub(crate) struct Merge {
    /// The shards' files, all of them.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where the whole goes.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Reads and merges result files.
pub(crate) fn merge(paths: &[PathBuf], completeness: Completeness) -> Result<Merged, Failure> {
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Ok((name, text)),
            Err(error) => Err(Failure::failed(format!("{name}: {error}"))),
        }
    };
    let files = paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    results::merge(&files, completeness).map_err(Failure::failed)
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let draft = path.with_extension("draft");
    fs::write(&draft, text).map_err(failed)?;
    fs::rename(&draft, path).map_err(failed)
}

impl Merge {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let merged = merge(&self.files, Completeness::Whole)?;
        let path = self.to.unwrap_or_else(|| {
            let folder = self.files.first().and_then(|file| file.parent());
            let name = format!("sim-{}.jsonl", merged.header.plan);
            folder.unwrap_or(Path::new("")).join(name)
        });
        write_whole(&path, &merged.to_text())?;
        let (files, points) = (self.files.len(), merged.results.len());
        print::out(&format!(
            "{points} points of {files} files -> {}\n",
            path.display()
        ))
    }
}
