//! What a client hears, and whether a server could have said so.

use farhaul_optimise::smb::smb2::breaks::{Break, LeaseAcknowledgment};
use farhaul_optimise::smb::smb2::header::{Command, Header, MESSAGE_ID_NONE, Scope};
use farhaul_optimise::smb::smb2::open::{
    CreateResponse, FileId, LEASE_READ, Lease, OPLOCK_II, OPLOCK_LEASE, OPLOCK_NONE,
};
use farhaul_optimise::smb::smb2::query::STATUS_NO_MORE_FILES;
use farhaul_optimise::smb::smb2::transfer::{
    ErrorResponse, ReadResponse, STATUS_END_OF_FILE, STATUS_OK, STATUS_PENDING,
};

use super::super::server::{STATUS_FILE_LOCK_CONFLICT, TREE};
use super::asking::LEASE_KEY;
use super::{Client, Sent, Server};

impl Client {
    pub(super) fn answer(&mut self, now_ns: u64, message: &[u8], server: &Server) {
        let header = Header::parse(message).unwrap();
        if header.message_id == MESSAGE_ID_NONE {
            return self.broken(&Break::parse(message).unwrap(), server);
        }
        if header.status == STATUS_PENDING {
            self.credits += i64::from(header.credits);
            return assert!(self.sent.contains_key(&header.message_id));
        }
        let sent = self.sent.remove(&header.message_id);
        let sent = sent.unwrap_or_else(|| panic!("nobody asked {}", header.message_id));
        assert_eq!(sent.command, header.command);
        self.credits += i64::from(header.credits);
        assert!(
            self.credits > 0 || !self.sent.is_empty(),
            "stuck without credit"
        );
        match header.command {
            Command::Create => {
                assert_eq!(header.status, STATUS_OK);
                let opened = CreateResponse::parse(message).unwrap();
                self.opened(opened.file, held(&opened), server);
            }
            Command::Read => {
                let data = match header.status {
                    STATUS_FILE_LOCK_CONFLICT => {
                        return self.errors.push((Command::Read, header.status));
                    }
                    STATUS_OK => ReadResponse::parse(message).unwrap().data,
                    STATUS_END_OF_FILE => &[],
                    other => panic!("status {other:#x}"),
                };
                self.check(now_ns, data, &sent, server);
            }
            Command::TreeConnect => {
                assert!(matches!(header.scope, Scope::Sync { tree: TREE, .. }));
            }
            Command::QueryDirectory if header.status == STATUS_OK => self.listed(message),
            Command::QueryDirectory => assert_eq!(header.status, STATUS_NO_MORE_FILES),
            Command::QueryInfo => self.told(message, &sent, server),
            command => {
                if header.status != STATUS_OK {
                    ErrorResponse::parse(message).expect("a whole error");
                }
                self.done(now_ns, command, header.status, sent, server);
            }
        }
    }

    pub(super) fn opened(&mut self, file: FileId, oplock: u8, server: &Server) {
        self.file = Some(file);
        assert!(
            self.asked != OPLOCK_NONE || oplock == OPLOCK_NONE,
            "never asked for"
        );
        self.oplock = oplock;
        self.floor = self.floor.max(self.seen_floor(server));
    }

    /// A write, or anything without bytes.
    pub(super) fn done(
        &mut self,
        now_ns: u64,
        command: Command,
        status: u32,
        sent: Sent,
        server: &Server,
    ) {
        if status != STATUS_OK {
            self.errors.push((command, status));
        }
        if command == Command::Logoff {
            self.logged_off();
        }
        let Some((offset, bytes)) = sent.write else {
            self.closed_ns = now_ns;
            return;
        };
        self.writes += 1;
        self.floor = server.version(&self.name);
        if status == STATUS_OK {
            self.written.push((now_ns, offset, bytes));
        }
    }

    pub(super) fn seen_floor(&self, server: &Server) -> usize {
        let seen = server
            .broken_versions
            .get(..self.breaks_seen)
            .unwrap_or_default();
        seen.iter().copied().max().unwrap_or(0)
    }

    pub(super) fn broken(&mut self, told: &Break, server: &Server) {
        let (is_its, is_nothing) = match told {
            Break::Oplock(told) => (Some(told.file) == self.file, told.oplock == OPLOCK_NONE),
            Break::Lease(told) => {
                assert_eq!(told.key, LEASE_KEY);
                (self.asked == OPLOCK_LEASE, told.state & LEASE_READ == 0)
            }
            Break::LeaseAcknowledgment(_) => panic!("that is the client's to say"),
        };
        assert!(!is_its || self.asked != OPLOCK_NONE, "never asked for");
        self.breaks_seen += usize::from(is_nothing);
        match told {
            // Closed meanwhile.
            Break::Oplock(_) if !is_its => return,
            Break::Oplock(told) if !is_nothing => {
                self.oplock = OPLOCK_II;
                self.owed.push_back(Break::Oplock(*told));
            }
            Break::Lease(told) if told.flags & 1 != 0 => {
                let (key, state) = (told.key, told.state);
                let left = LeaseAcknowledgment { key, state };
                self.owed.push_back(Break::LeaseAcknowledgment(left));
            }
            _ => (),
        }
        if is_its && is_nothing {
            self.oplock = OPLOCK_NONE;
            self.floor = self.floor.max(self.seen_floor(server));
        }
    }

    /// Whole, and as one of the versions that a direct client could have been shown.
    pub(super) fn check(&mut self, now_ns: u64, data: &[u8], sent: &Sent, server: &Server) {
        let (offset, length) = sent.read.unwrap();
        let part = |content: &Vec<u8>| {
            let from = (offset as usize).min(content.len());
            let to = (from + length as usize).min(content.len());
            content[from..to].to_vec()
        };
        if let Some((_, first, end)) = server.terms.locked
            && sent.has_seen_breaks
        {
            let to = offset as usize + data.len();
            assert!(
                to <= first || end <= offset as usize,
                "bytes that are locked"
            );
        }
        let versions = &server.files[&self.name];
        // What it wrote before is done.
        let own = server.own_versions.iter().take(sent.writes);
        let own = own.skip(self.writes_before);
        let own = own.map(|version| version.expect("read before it was written"));
        let floor = own.max().unwrap_or(0).max(sent.floor);
        let is_full = data.len() == server.terms.read_bytes_max;
        let is_true = versions.iter().skip(floor).any(|content| {
            let part = part(content);
            part == data || (is_full && part.starts_with(data))
        });
        assert!(
            is_true,
            "{} bytes at {offset} are of no version from {} of {}",
            data.len(),
            sent.floor,
            versions.len()
        );
        self.last_read_ns = now_ns;
        self.read_bytes += data.len() as u64;
        if data.len() < length as usize {
            self.reading = None;
        }
    }
}

/// The oplock, or that there is a lease under which what was read may be kept.
fn held(opened: &CreateResponse) -> u8 {
    let lease = Lease::among(&opened.contexts);
    let keeps = lease.is_some_and(|lease| lease.state & LEASE_READ != 0);
    match opened.oplock {
        OPLOCK_LEASE if !keeps => OPLOCK_NONE,
        oplock => oplock,
    }
}
