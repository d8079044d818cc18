//! `farhaul lab calibrate`: measures how true the link emulator is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use farhaul_lab::calibrate::{self, CalibrateOptions, Part};
use farhaul_lab::measurement::Row;
use farhaul_lab::require_root;
use farhaul_lab::table::Screen;

use crate::failure::Failure;
use crate::print;

/// `farhaul lab calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateCommand {
    /// Only one part.
    #[arg(long, value_name = "PART")]
    only: Option<PartName>,
    /// A few seconds per row: shows that everything works, too short to prove it.
    #[arg(long)]
    quick: bool,
    /// Seed of the emulator's random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for calibrate.json.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// Name of the lab it makes for itself.
    #[arg(long, default_value = "calibrate")]
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PartName {
    Rate,
    Delay,
    Loss,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Rate => Self::Rate,
            PartName::Delay => Self::Delay,
            PartName::Loss => Self::Loss,
        }
    }
}

impl CalibrateCommand {
    /// Runs it with this `farhaul` program as emulator.
    /// `stop` is set when the operator asks to stop.
    pub(crate) fn run(self, program: PathBuf, stop: Arc<AtomicBool>) -> Result<(), Failure> {
        require_root("`farhaul lab calibrate`")?;
        let options = CalibrateOptions {
            only: self.only.map(Part::from),
            is_quick: self.quick,
            seed: self.seed,
            lab: self.name,
            program,
            stop,
        };
        let document = calibrate::run(&options)?;
        let path = document.write(&self.out)?;
        let screen = Screen::stdout();
        for (title, table) in calibrate::tables(&document) {
            print::out(&format!("\n{title}\n\n{}", table.render(screen)))?;
        }
        print::out(&format!("\n{}\n", path.display()))?;
        let count = |is_counted: fn(&Row) -> bool| {
            let rows = document.rows.iter();
            rows.filter(|row| is_counted(row)).count()
        };
        let unmeasured = count(|row| row.value.is_none());
        let failed = count(|row| row.ok == Some(false));
        match (unmeasured, failed) {
            (0, 0) => Ok(()),
            (0, _) if self.quick => {
                print::out("Some rows fail; a quick run is too short to judge.\n")
            }
            (0, failed) => Err(Failure::failed(format!(
                "{failed} of {} rows do not hold; see the tables above",
                document.rows.len()
            ))),
            (unmeasured, _) => Err(Failure::failed(format!(
                "{unmeasured} rows could not be measured; see the tables above"
            ))),
        }
    }
}
