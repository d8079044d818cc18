//! What a client does, and how it behaves.

use farhaul_optimise::smb::smb2::header::Command;

use super::cifs;

/// What it does next, when everything before is done.
#[derive(Debug, Clone)]
pub enum Step {
    Open {
        name: String,
        share: u32,
        oplock: u8,
    },
    /// From the first byte to the end, which the server tells.
    ReadAll {
        block: u32,
        outstanding: usize,
    },
    /// Ranges, so many at the same time.
    Read {
        ranges: Vec<(u64, u32)>,
        outstanding: usize,
    },
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// From an offset on, in blocks, so many at the same time.
    WriteAll {
        offset: u64,
        bytes: Vec<u8>,
        block: u32,
        outstanding: usize,
    },
    /// Gives the file another length; in one packet `behind` a FLUSH or QUERY_INFO of it, related to that, and closes it there.
    SetEnd {
        bytes: u64,
        behind: Option<Command>,
    },
    /// Opens a file or a folder and closes it in the same packet.
    Glance {
        name: String,
    },
    /// Of SMB1: locks some bytes behind every file's end, and writes back all files.
    Lock,
    FlushAll,
    /// Of SMB1: a write that is cut short, which nobody answers.
    Stutter,
    /// Leaves the share.
    Leave,
    /// Of SMB1: closes the file, and opens another before that is answered.
    Turn {
        name: String,
    },
    /// Ends the session, whatever is open, and sets up another.
    LogOff,
    /// Opens a file only to see how it is.
    Peek {
        name: String,
    },
    /// Opens a folder and lists it twice as long as one answer may be, in the same packet.
    Browse {
        name: String,
    },
    /// All names of the open folder.
    List,
    /// What the server says of the open file.
    Ask,
    Close,
    /// Of SMB1: asks for all of this, and closes the file before that is answered.
    Desert {
        ranges: Vec<(u64, u32)>,
    },
    Pause {
        ns: u64,
    },
}

/// What has been agreed with whom.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    pub has_large_requests: bool,
    /// Credits asked for with each request.
    pub asks: u16,
    /// SecurityMode of NEGOTIATE.
    pub security_mode: u16,
    /// Signs TREE_CONNECT, as 3.1.1 does.
    pub signs_tree: bool,
    /// Says that it is nobody.
    pub is_anonymous: bool,
    /// Flags of its writes.
    pub write_flags: u32,
    /// DesiredAccess, and CreateOptions.
    pub access: u32,
    pub options: u32,
    /// Wants to take up its files again after a lost connection.
    pub is_durable: bool,
    /// Says names of DFS.
    pub is_dfs: bool,
    /// Begins in SMB1, and stays with it if the server does.
    pub begins_in_cifs: bool,
    /// What it can do in SMB1, and what it calls itself there.
    pub capabilities: u32,
    pub name: &'static [u8],
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            has_large_requests: true,
            asks: 1,
            security_mode: 1,
            signs_tree: false,
            is_anonymous: false,
            write_flags: 0,
            access: 0x12_019f,
            options: 0,
            is_durable: false,
            is_dfs: false,
            begins_in_cifs: false,
            capabilities: cifs::CAPABILITIES,
            name: b"Windows 2002 5.1",
        }
    }
}
