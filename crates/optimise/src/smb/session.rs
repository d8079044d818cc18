//! The half that faces the server, in the dialect that client and server agree on. A client that begins in SMB1 may go on
//! in SMB2 (MS-SMB2 3.3.5.3.1); the server's first answer tells.

use bytes::Bytes;

use super::cifs::FarCifs;
use super::cifs::agreed::Agreed;
use super::far::FarSmb;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::settings::Settings;
use crate::stats::Stats;

/// See the module.
#[derive(Debug)]
pub struct Far {
    settings: Settings,
    session: Session,
}

#[derive(Debug)]
enum Session {
    /// SMB2 and SMB3, and what is not agreed yet.
    Modern(Box<FarSmb>),
    Cifs(Box<FarCifs>),
}

impl Far {
    /// For a connection of which nothing has passed, and a near half that knows so much (`KNOWS_*`).
    #[must_use]
    pub fn new(settings: Settings, knows: u8) -> Self {
        let session = Session::Modern(Box::new(FarSmb::new(settings, knows)));
        Self { settings, session }
    }

    /// The time that holds until it is told again.
    pub(crate) fn handle_time(&mut self, now_ns: u64) {
        match &mut self.session {
            Session::Modern(far) => far.handle_time(now_ns),
            Session::Cifs(far) => far.handle_time(now_ns),
        }
    }

    /// The link turned out to be another.
    pub(crate) fn handle_link(&mut self, settings: &Settings, out: &mut Outbox, stats: &mut Stats) {
        self.settings = *settings;
        match &mut self.session {
            Session::Modern(far) => far.handle_link(settings, out, stats),
            Session::Cifs(far) => far.handle_link(settings, out, stats),
        }
    }

    /// When the near half should have answered, or something has been kept for too long.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        match &self.session {
            Session::Modern(far) => far.due_ns(),
            Session::Cifs(far) => far.due_ns(),
        }
    }

    /// That time has come.
    pub(crate) fn handle_due(&mut self, out: &mut Outbox, stats: &mut Stats) -> Result<(), Reason> {
        match &mut self.session {
            Session::Modern(far) => far.handle_due(out, stats),
            Session::Cifs(far) => return far.handle_due(out, stats),
        }
        Ok(())
    }

    /// Whether the near half has been silent for so long that it trusts nothing it was told before.
    pub(crate) fn handle_hearing(&mut self, is_lost: bool, now_ns: u64) {
        let lent = match &mut self.session {
            Session::Modern(far) => &mut far.lent,
            Session::Cifs(far) => &mut far.lent,
        };
        lent.handle_hearing(is_lost, now_ns);
    }

    /// Whether the server may want back an oplock or a lease that is held in the client's place, or under which the near half may
    /// hold something.
    pub(crate) fn may_be_recalled(&self) -> bool {
        let (lent, files) = match &self.session {
            Session::Modern(far) => (&far.lent, &far.reading.files),
            Session::Cifs(far) => (&far.lent, &far.reading.files),
        };
        !lent.is_empty() || files.may_be_recalled()
    }

    /// What the client asked and waits for the server.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.session {
            Session::Modern(far) => far.held_bytes(),
            Session::Cifs(far) => far.held_bytes(),
        }
    }

    pub(crate) fn handle_client(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        match &mut self.session {
            Session::Modern(far) => far.handle_client(bytes, out, stats),
            Session::Cifs(far) => far.handle_client(bytes, out, stats),
        }
    }

    pub(crate) fn handle_server(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let far = match &mut self.session {
            Session::Modern(far) => far,
            Session::Cifs(far) => return far.handle_server(bytes, out, stats),
        };
        let result = far.handle_server(bytes, out, stats);
        let Some(agreement) = far.take_cifs() else {
            return result;
        };
        let (client, server) = (agreement.client, agreement.server);
        match Agreed::of(&agreement.asked, &agreement.answered) {
            Ok(agreed) => {
                let mut cifs = FarCifs::new(&self.settings, agreed, client, server);
                let result = cifs.hear(out, stats);
                let result = result.and_then(|()| cifs.go_on(out, stats));
                self.session = Session::Cifs(Box::new(cifs));
                result
            }
            Err(reason) => {
                far.put_back(client, server);
                Err(reason)
            }
        }
    }

    pub(crate) fn handle_client_end(
        &mut self,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        match &mut self.session {
            Session::Modern(far) => far.handle_client_end(out, stats),
            Session::Cifs(far) => far.handle_client_end(out, stats),
        }
    }

    pub(crate) fn handle_server_end(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        match &mut self.session {
            Session::Modern(far) => far.handle_server_end(out),
            Session::Cifs(far) => far.handle_server_end(out),
        }
    }

    pub(crate) fn handle_message(
        &mut self,
        payload: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        match &mut self.session {
            Session::Modern(far) => far.handle_message(payload, out, stats),
            Session::Cifs(far) => far.handle_message(payload, out, stats),
        }
    }

    pub(crate) fn give_up(&mut self, reason: Reason, out: &mut Outbox) -> Result<(), Reason> {
        match &mut self.session {
            Session::Modern(far) => far.give_up(reason, out),
            Session::Cifs(far) => far.stop(reason, out, &mut Stats::default()),
        }
    }

    /// Hands over what is held, if messages could pass as they are.
    pub(crate) fn surrender(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        match &mut self.session {
            Session::Modern(far) => far.surrender(out),
            Session::Cifs(far) => far.surrender(out),
        }
    }
}
