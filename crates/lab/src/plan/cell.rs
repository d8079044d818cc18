//! One cell of a plan: a link, a client, what it does, and what stands between.

use super::circuit::Circuit;
use crate::lockstep::{BLOCK_BYTES, RECORD_BYTES, records};

/// What stands between client and server. The letters are the study's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Config {
    /// Nothing.
    B,
    /// The tunnel with compression and redundancy elimination, without error correction; the protocol as it is.
    T,
    /// As T, and the protocol accelerated.
    A,
    /// The tunnel with error correction for everything; no reduction, the protocol as it is.
    F,
    /// As A, with error correction for everything.
    AF,
}

impl Config {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::B, Self::T, Self::A, Self::F, Self::AF];

    /// Its name in plans and results.
    pub fn word(self) -> &'static str {
        match self {
            Self::B => "B",
            Self::T => "T",
            Self::A => "A",
            Self::F => "F",
            Self::AF => "AF",
        }
    }

    /// Whether gateways run.
    pub fn has_gateways(self) -> bool {
        self != Self::B
    }

    /// Whether the protocol is accelerated.
    pub fn is_accelerated(self) -> bool {
        matches!(self, Self::A | Self::AF)
    }

    /// What the gateways' configuration says besides the lab's own.
    pub fn gateway_text(self) -> &'static str {
        match self {
            Self::B => "",
            // Error correction is what F and AF are for.
            Self::T => {
                "[store]\nmemory = '256 MiB'\n\
                 [[rule]]\nmatch = { port = [139, 445] }\noptimise = 'opaque'\nfec = 'off'\n"
            }
            Self::A => {
                "[store]\nmemory = '256 MiB'\n\
                 [[rule]]\nmatch = { port = [139, 445] }\nfec = 'off'\n"
            }
            Self::F => {
                "[[rule]]\nmatch = { port = [139, 445] }\noptimise = 'opaque'\n\
                 reduction = 'off'\ncompression = 'off'\nfec = 'on'\n"
            }
            Self::AF => {
                "[store]\nmemory = '256 MiB'\n\
                 [[rule]]\nmatch = { port = [139, 445] }\nfec = 'on'\n"
            }
        }
    }
}

/// The program that reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// Ours, one request of 61,440 bytes under way, NT LM 0.12: as Windows XP did it.
    LockstepSmb1,
    /// Ours, the same over SMB 2.1.
    LockstepSmb2,
    /// Samba's smbget: one request under way, the newest dialect.
    Smbget,
    /// Samba's smbclient: large requests, many under way.
    Smbclient,
    /// The same, held to NT LM 0.12.
    SmbclientSmb1,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::LockstepSmb1,
        Self::LockstepSmb2,
        Self::Smbget,
        Self::Smbclient,
        Self::SmbclientSmb1,
    ];

    /// Its name in plans and results.
    pub fn word(self) -> &'static str {
        match self {
            Self::LockstepSmb1 => "lockstep-smb1",
            Self::LockstepSmb2 => "lockstep-smb2",
            Self::Smbget => "smbget",
            Self::Smbclient => "smbclient",
            Self::SmbclientSmb1 => "smbclient-smb1",
        }
    }

    /// Whether it waits for every block, so that its throughput is flat soon.
    pub fn is_lockstep(self) -> bool {
        !matches!(self, Self::Smbclient | Self::SmbclientSmb1)
    }

    /// Whether it can do that.
    pub fn can(self, work: Work) -> bool {
        match self {
            Self::LockstepSmb1 | Self::LockstepSmb2 => {
                matches!(work, Work::Read | Work::Write | Work::Random)
            }
            Self::Smbget => work == Work::Read,
            Self::Smbclient => work != Work::Random,
            // What the old dialect lists needs no open file, and a capture shows no beginning and no end of it.
            Self::SmbclientSmb1 => !matches!(work, Work::Browse | Work::Random),
        }
    }
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Copies a file from the server.
    Read,
    /// Copies a file to the server.
    Write,
    /// Reads records of a large file here and there.
    Random,
    /// Copies a folder of small files from the server.
    Folder,
    /// Lists such a folder, and whatever is in it.
    Browse,
    /// Reads a document, writes it under another name, removes it and renames the new one.
    Document,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::Random,
        Self::Folder,
        Self::Browse,
        Self::Document,
    ];

    /// Its name in plans and results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Random => "random",
            Self::Folder => "folder",
            Self::Browse => "browse",
            Self::Document => "document",
        }
    }

    /// Whether throughput is what counts; otherwise it is time.
    pub fn is_throughput(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Random)
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The link.
    pub circuit: Circuit,
    /// Who.
    pub client: Client,
    /// Does what.
    pub work: Work,
    /// With what between.
    pub config: Config,
    /// The client's receive buffer; `None` is the kernel's own, which grows.
    pub receive_buffer_bytes: Option<u32>,
    /// All that is copied.
    pub size_bytes: u64,
    /// In so many files.
    pub files: u32,
    /// Size and number of files for its name, as far as other cells differ from it in nothing else.
    pub(super) apart: String,
    /// Samples of it.
    pub repeat: u32,
    /// How long its client may take, in seconds.
    pub most_s: u64,
    /// An accelerated cell must reach this share of the limit.
    pub least_of_limit: Option<f64>,
    /// And this multiple of the same cell without gateways.
    pub least_of_direct: Option<f64>,
    /// Of a client that jumps about, the server may be asked for so many reads more than the client makes, as a share of these.
    pub most_extra_reads: Option<f64>,
}

impl Cell {
    /// Everything but what stands between: cells of one scenario are held against each other.
    pub fn scenario(&self) -> String {
        let mut name = format!(
            "{} {} {}",
            self.circuit.name(),
            self.client.word(),
            self.work.word()
        );
        if let Some(bytes) = self.receive_buffer_bytes {
            name += &format!(" rcvbuf {bytes}");
        }
        name + &self.apart
    }

    /// Its name.
    pub fn name(&self) -> String {
        format!("{} {}", self.scenario(), self.config.word())
    }

    /// Bytes of files that its client moves.
    pub fn moved_bytes(&self) -> u64 {
        match self.work {
            Work::Random => records(self.size_bytes) * RECORD_BYTES,
            _ => self.size_bytes,
        }
    }

    /// Whether its copy goes on as it does after a while: its client waits for every block, and nothing is done about that.
    pub fn is_steady(&self) -> bool {
        // Here and there is nowhere the same, and what is lost is lost by chance.
        let is_even = self.work != Work::Random && self.circuit.loss == 0.0;
        self.client.is_lockstep() && !self.config.is_accelerated() && is_even
    }

    /// The least time that its work can take, whatever is done about it.
    pub fn least_s(&self) -> f64 {
        match self.work {
            // Names can be compressed to next to nothing, but not before they were asked for.
            Work::Browse => self.circuit.rtt_s(),
            // What is saved is what was opened and may be known on both sides by then: it crosses once. But two things are asked of
            // the server one after the other.
            Work::Document => self.circuit.least_s(self.size_bytes) + self.circuit.rtt_s(),
            Work::Read | Work::Write | Work::Random | Work::Folder => {
                self.circuit.least_s(self.moved_bytes())
            }
        }
    }

    /// About how long its client takes, for who waits.
    pub fn expected_s(&self) -> f64 {
        /// Round trips for a block and a window that is smaller than it.
        const TRIPS: f64 = 2.0;
        let least_s = match (self.work, self.config) {
            // Nothing knows that what is saved is what was opened.
            (Work::Document, Config::B | Config::F) => self.circuit.least_s(2 * self.size_bytes),
            _ => self.least_s(),
        };
        let waits = match self.work {
            Work::Browse | Work::Document => 20.0,
            // Nobody knows where it goes next.
            Work::Random => records(self.size_bytes) as f64,
            _ if self.config.is_accelerated() => 0.0,
            Work::Folder => 4.0 * f64::from(self.files),
            _ if self.client.is_lockstep() => TRIPS * self.size_bytes as f64 / BLOCK_BYTES as f64,
            _ => 0.0,
        };
        least_s + waits * self.circuit.rtt_s()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_on_as_it_does_may_be_cut_short() {
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['30ms']\nloss = ['0%', '1%']\n\
                    client = ['lockstep-smb1']\nwork = ['read', 'random']\nconfig = ['B', 'A', 'F']\nsize = '32 MiB'\n";
        let plan = crate::plan::Plan::parse("p", text).unwrap();
        let steady = plan.cells.iter().filter(|cell| cell.is_steady());
        let names: Vec<_> = steady.map(Cell::name).collect();
        let expected = ["B", "F"].map(|config| format!("1M/30ms lockstep-smb1 read {config}"));
        assert_eq!(names, expected);
    }

    #[test]
    fn words_are_different_and_no_config_but_b_is_without_gateways() {
        let words: std::collections::BTreeSet<_> = Config::ALL
            .map(Config::word)
            .into_iter()
            .chain(Client::ALL.map(Client::word))
            .chain(Work::ALL.map(Work::word))
            .collect();
        assert_eq!(words.len(), 16);
        for config in Config::ALL {
            assert_eq!(config.has_gateways(), config != Config::B);
            let text: toml::Table = config.gateway_text().parse().unwrap();
            let fec = text.get("rule").map(|rules| rules[0]["fec"].as_str());
            let expected = match config {
                Config::B => None,
                Config::T | Config::A => Some(Some("off")),
                Config::F | Config::AF => Some(Some("on")),
            };
            assert_eq!(fec, expected, "{config:?}");
        }
    }
}
