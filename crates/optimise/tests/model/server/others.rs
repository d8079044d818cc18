//! Somebody else: writes, and whoever keeps the file is told.

use farhaul_optimise::smb::netbios::packet;
use farhaul_optimise::smb::smb2::breaks::{Break, LeaseAcknowledgment, LeaseBreak, OplockBreak};
use farhaul_optimise::smb::smb2::header::{Command, FLAG_RESPONSE, Header, MESSAGE_ID_NONE};
use farhaul_optimise::smb::smb2::open::{
    LEASE_READ, LEASE_WRITE, Lease, OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_II, OPLOCK_NONE,
};

use super::{Open, OtherWrite, Server, file_id};

impl Server {
    /// Somebody else wants to write: whoever may keep the file is told first.
    pub fn write(&mut self, write: &OtherWrite) {
        let mut others = self.opens.values().filter(|open| open.name == write.name);
        if others.any(|open| open.denies_writers) {
            return;
        }
        let mut broken = None;
        for (id, open) in self
            .opens
            .iter_mut()
            .filter(|(_, open)| open.name == write.name)
        {
            if let Some(due) = &mut open.break_due {
                due.push(write.clone());
                return;
            }
            let writes_late = open
                .lease
                .is_some_and(|lease| lease.state & LEASE_WRITE != 0);
            if writes_late || [OPLOCK_BATCH, OPLOCK_EXCLUSIVE].contains(&open.oplock) {
                open.break_due = Some(vec![write.clone()]);
                broken = Some((*id, open.lease));
                break;
            }
        }
        match broken {
            Some((_, Some(lease))) => self.break_lease(lease, LEASE_READ),
            Some((id, None)) => {
                self.opens.get_mut(&id).unwrap().oplock = OPLOCK_II;
                self.tell(id, OPLOCK_II);
            }
            None => self.apply(write, None),
        }
    }

    /// All opens of a lease lose it but for what is left.
    fn break_lease(&mut self, lease: Lease, left: u32) {
        let its = |open: &&mut Open| open.lease.is_some_and(|other| other.key == lease.key);
        for open in self.opens.values_mut().filter(its) {
            open.lease = Some(Lease {
                state: lease.state & left,
                ..lease
            });
        }
        let told = LeaseBreak {
            epoch: 0,
            // An acknowledgment is due where something was kept that has to be let go.
            flags: u32::from(left != 0),
            key: lease.key,
            state_before: lease.state,
            state: lease.state & left,
        };
        self.tell_of(&Break::Lease(told));
    }

    pub(super) fn break_shared(&mut self) {
        let version = self.version("f");
        let shared = self
            .opens
            .iter_mut()
            .filter(|(_, open)| open.oplock == OPLOCK_II);
        let told: Vec<u64> = shared
            .map(|(id, open)| {
                open.oplock = OPLOCK_NONE;
                *id
            })
            .collect();
        for id in told {
            self.broken_versions.push(version);
            self.tell(id, OPLOCK_NONE);
        }
    }

    pub(super) fn apply(&mut self, write: &OtherWrite, by: Option<u64>) {
        let versions = self.files.get_mut(&write.name).unwrap();
        let mut content = versions.last().unwrap().clone();
        let end = write.offset + write.bytes.len();
        content.resize(content.len().max(end), 0);
        content[write.offset..end].copy_from_slice(&write.bytes);
        versions.push(content);
        let version = versions.len() - 1;
        let own_key = by
            .and_then(|id| self.opens.get(&id)?.lease)
            .map(|lease| lease.key);
        let mut told = Vec::new();
        let mut leases: Vec<Lease> = Vec::new();
        let others = self
            .opens
            .iter_mut()
            .filter(|(_, open)| open.name == write.name);
        for (id, open) in others {
            if open.oplock == OPLOCK_II && Some(*id) != by {
                open.oplock = OPLOCK_NONE;
                told.push(*id);
            }
            let lease = open.lease.filter(|lease| lease.state & LEASE_READ != 0);
            let lease = lease.filter(|lease| Some(lease.key) != own_key);
            let is_new = |lease: &Lease| leases.iter().all(|other| other.key != lease.key);
            leases.extend(lease.filter(is_new));
        }
        for id in told {
            self.broken_versions.push(version);
            self.tell(id, OPLOCK_NONE);
        }
        for lease in leases {
            self.broken_versions.push(version);
            self.break_lease(lease, 0);
        }
    }

    fn tell(&mut self, id: u64, oplock: u8) {
        if self.terms.is_cifs {
            return self.cifs_tell(id, oplock);
        }
        let file = file_id(id);
        self.tell_of(&Break::Oplock(OplockBreak { oplock, file }));
    }

    fn tell_of(&mut self, told: &Break) {
        let mut message = Vec::new();
        Header {
            flags: FLAG_RESPONSE,
            ..Header::request(Command::OplockBreak, MESSAGE_ID_NONE, 0, 0)
        }
        .emit(&mut message);
        told.emit(&mut message);
        self.output.extend_from_slice(&packet(&message));
    }

    pub(super) fn acknowledged(&mut self, acknowledged: &Break) -> Break {
        let id = match acknowledged {
            Break::Oplock(left) => Some(left.file.volatile),
            Break::LeaseAcknowledgment(left) => self.leased(left),
            Break::Lease(_) => panic!("no client tells of a break"),
        };
        if let Some(open) = id.and_then(|id| self.opens.get(&id)) {
            let content = self.files[&open.name].last().unwrap().clone();
            self.let_go.push((self.now_ns, content));
        }
        let open = id.and_then(|id| self.opens.get_mut(&id));
        let due = open.and_then(|open| {
            match acknowledged {
                Break::Oplock(left) => open.oplock = open.oplock.min(left.oplock),
                _ => assert!(
                    open.lease
                        .is_some_and(|lease| lease.state & LEASE_WRITE == 0)
                ),
            }
            open.break_due.take()
        });
        due.into_iter()
            .flatten()
            .for_each(|write| self.write(&write));
        *acknowledged
    }

    /// The open file for whose lease somebody waits.
    fn leased(&self, left: &LeaseAcknowledgment) -> Option<u64> {
        let is_it = |open: &Open| {
            open.break_due.is_some() && open.lease.is_some_and(|lease| lease.key == left.key)
        };
        let mut opens = self.opens.iter();
        opens.find(|(_, open)| is_it(open)).map(|(id, _)| *id)
    }
}
