//! Plans of a study: what is run, as a TOML file that a report repeats, and every cell of it.
//!
//! ```toml
//! name = "quick"                        # names out/quick.json
//! repeat = 1                            # of every cell; more give medians; also of a block
//! cell_s = 600                          # then the throughput so far counts, marked; also of a block
//! flat_after_s = 60                     # B and T of clients that wait for every block may end when flat, marked
//!
//! [[cells]]                             # every combination is a cell
//! rate = ["1.544mbit"]                  # as `farhaul link` takes it, and so
//! delay = ["0ms", "30ms"]               # one way; also jitter, loss, queue
//! client = ["lockstep-smb1", "smbget"]
//! work = ["read"]                       # read, write, random, folder and browse (files = N), document
//! config = ["B", "T", "A"]
//! receive_buffer = ["17520 B", "auto"]  # of the client
//! size = "10 MiB"
//! least_of_limit = 0.97                 # what A must reach
//! least_of_direct = 0.98
//! most_extra_reads = 0.1                # of random: what the server is asked beyond what the client asks
//!
//! [[expect]]                            # what somebody else found
//! cell = "1.544M/0ms smbget read B"
//! value = 170.0
//! within = 0.15
//! ```

mod apart;
mod cell;
mod circuit;
mod error;
mod read;
#[cfg(test)]
mod tests;
mod written;

use std::path::Path;

pub(crate) use apart::size_words;
pub use cell::{Cell, Client, Config, Work};
pub use circuit::Circuit;
pub(crate) use circuit::percent;
pub use error::PlanError;

/// A plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Its name, and that of its document.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// Seed of the links' random numbers.
    pub seed: u64,
    /// From when on B and T of clients that wait for every block may end, once their throughput is flat.
    pub flat_after_s: Option<u64>,
    /// TCP congestion control of the hosts.
    pub congestion_control: String,
    /// In the order in which they are run.
    pub cells: Vec<Cell>,
    /// What is known of some of them.
    pub expected: Vec<Expected>,
    /// As it was written.
    pub text: String,
}

/// What somebody else found in a cell: a baseline that is not near it is another baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// The cell's name.
    pub cell: String,
    /// In the unit of its row.
    pub value: f64,
    /// The cell may be off by this share of it.
    pub within: f64,
}

impl Plan {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, PlanError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| PlanError::Unread {
            file: file.clone(),
            why: error.to_string(),
        })?;
        Self::parse(&file, &text)
    }

    /// Reads the text of a file of that name.
    pub fn parse(file: &str, text: &str) -> Result<Self, PlanError> {
        read::read(file, text)
    }
}
