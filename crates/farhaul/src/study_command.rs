//! `farhaul lab run` and `farhaul lab report`: a plan's cells measured, and what came of them as a page.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use farhaul_lab::measurement::Measurement;
use farhaul_lab::plan::Plan;
use farhaul_lab::require_root;
use farhaul_lab::study::{self, StudyOptions};

use crate::failure::Failure;
use crate::print;

/// `farhaul lab run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A plan, such as plans/wx2006-cifs.toml.
    plan: PathBuf,
    /// Only cells whose name contains this, such as "51.84M/250ms", "smbget" or "read A"; the document's others stay as they are.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Keep the cells that the document has already; run what is missing, failed or faulty.
    #[arg(long)]
    resume: bool,
    /// So many labs at a time. Beside any of them, those of links of at most 10 Mbit/s; two of faster ones would disturb each other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
    /// Say what would be run, and about how long it takes one after the other.
    #[arg(long)]
    list: bool,
    /// Folder of the document, PLAN.json.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// Name of the labs it makes for itself.
    #[arg(long, default_value = "study")]
    name: String,
}

/// `farhaul lab report`.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Documents, such as out/wx2006-cifs.json.
    #[arg(required = true)]
    documents: Vec<PathBuf>,
    /// The page to write.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

impl Run {
    /// Runs it with this `farhaul` program as emulator and gateways.
    pub(crate) fn run(self, program: PathBuf, stop: Arc<AtomicBool>) -> Result<(), Failure> {
        let plan = Plan::load(&self.plan).map_err(Failure::usage)?;
        if self.list {
            return self.show(&plan);
        }
        require_root("`farhaul lab run`")?;
        let document = study::run(
            &plan,
            &StudyOptions {
                name: self.name,
                program,
                only: self.only,
                resume: self.resume,
                jobs: self.jobs.into(),
                out: self.out.clone(),
                stop,
            },
        )?;
        let file = self.out.join(format!("{}.json", plan.name));
        print::measurement(&document, &file)
    }

    fn show(&self, plan: &Plan) -> Result<(), Failure> {
        let only = self.only.as_deref().unwrap_or_default();
        let cells = plan.cells.iter().filter(|cell| cell.name().contains(only));
        let mut text = format!("{}: {}\n", plan.name, plan.about);
        let mut all_s = 0.0;
        for cell in cells {
            let seconds = study::expected_s(plan, cell);
            all_s += seconds;
            text += &format!("  {:<60} about {seconds:.0} s\n", cell.name());
        }
        text += &format!("about {:.0} minutes\n", all_s / 60.0);
        print::out(&text)
    }
}

impl Report {
    /// Writes the page.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let documents = self
            .documents
            .iter()
            .map(read)
            .collect::<Result<Vec<_>, _>>()?;
        let page = farhaul_lab::report::page(&documents);
        let file = self.output.display();
        std::fs::write(&self.output, page)
            .map_err(|error| Failure::failed(format!("{file}: {error}")))?;
        print::line(&format!("written: {file}"))
    }
}

fn read(path: &PathBuf) -> Result<Measurement, Failure> {
    let wrong = |why: String| Failure::failed(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text)
        .map_err(|error| wrong(format!("it is no document of a measurement: {error}")))
}
