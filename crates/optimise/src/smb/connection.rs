//! What client and server agreed: dialect, signing, sessions, shares. It says whether reading ahead is possible at all.

use std::collections::BTreeSet;

use super::smb2::connect::{
    CAPABILITY_LARGE_MTU, DIALECT_202, DIALECT_300, DIALECT_WILDCARD, NegotiateRequest,
    NegotiateResponse, SESSION_ENCRYPTED, SESSION_GUEST, SESSION_NULL, SHARE_DISK, SHARE_ENCRYPTED,
    SIGNING_REQUIRED, SessionSetupRequest, SessionSetupResponse, TreeConnectResponse,
};
use crate::reason::Reason;

/// Sessions and shares of one connection.
const ENTRIES_MAX: usize = 1024;
/// SMB2_COMPRESSION_CAPABILITIES (MS-SMB2 2.2.3.1.3): messages may come compressed.
const CONTEXT_COMPRESSION: u16 = 3;

/// See the module.
#[derive(Debug, Default)]
pub struct Connection {
    dialect: Option<u16>,
    is_signing_required: bool,
    has_large_requests: bool,
    read_bytes_max: u32,
    sessions: BTreeSet<u64>,
    disks: BTreeSet<(u64, u32)>,
}

impl Connection {
    /// The client offers dialects.
    pub fn handle_negotiate(&mut self, request: &NegotiateRequest) {
        self.is_signing_required |= request.security_mode & SIGNING_REQUIRED != 0;
    }

    /// The server chose one.
    ///
    /// # Errors
    /// When it is one whose messages cannot be read.
    pub fn handle_negotiated(&mut self, response: &NegotiateResponse) -> Result<(), Reason> {
        if response.dialect == DIALECT_WILDCARD {
            return Ok(());
        }
        let contexts = &mut response.contexts.iter();
        if response.dialect < DIALECT_202
            || contexts.any(|context| context.kind == CONTEXT_COMPRESSION)
        {
            return Err(Reason::SmbDialect);
        }
        self.dialect = Some(response.dialect);
        self.is_signing_required |= response.security_mode & SIGNING_REQUIRED != 0;
        self.has_large_requests =
            response.dialect > DIALECT_202 && response.capabilities & CAPABILITY_LARGE_MTU != 0;
        self.read_bytes_max = response.read_bytes_max;
        Ok(())
    }

    /// A session stands. Guests and nobody have no key, so they neither sign nor encrypt. Others
    /// of 3.x sign what they must, whatever was agreed (MS-SMB2 3.2.4.1.1, 3.2.5.5).
    ///
    /// # Errors
    /// When its messages must not be altered.
    pub fn handle_session(
        &mut self,
        session: u64,
        request: &SessionSetupRequest,
        response: &SessionSetupResponse,
    ) -> Result<(), Reason> {
        if response.flags & SESSION_ENCRYPTED != 0 {
            return Err(Reason::SmbEncrypted);
        }
        // Samba does not mark nobody's session.
        let is_keyless =
            response.flags & (SESSION_GUEST | SESSION_NULL) != 0 || request.is_anonymous();
        let is_required =
            self.is_signing_required || u16::from(request.security_mode) & SIGNING_REQUIRED != 0;
        let is_modern = self.dialect.is_none_or(|dialect| dialect >= DIALECT_300);
        if !is_keyless && (is_required || is_modern) {
            return Err(Reason::SmbSigned);
        }
        if self.sessions.len() >= ENTRIES_MAX {
            return Err(Reason::SmbFull);
        }
        self.sessions.insert(session);
        Ok(())
    }

    /// A share was connected.
    ///
    /// # Errors
    /// When its messages are encrypted.
    pub fn handle_tree(
        &mut self,
        session: u64,
        tree: u32,
        response: &TreeConnectResponse,
    ) -> Result<(), Reason> {
        if response.flags & SHARE_ENCRYPTED != 0 {
            return Err(Reason::SmbEncrypted);
        }
        if response.share == SHARE_DISK && self.disks.len() < ENTRIES_MAX {
            self.disks.insert((session, tree));
        }
        Ok(())
    }

    /// A share was left.
    pub fn handle_tree_end(&mut self, session: u64, tree: u32) {
        self.disks.remove(&(session, tree));
    }

    /// A session ended, and with it its shares.
    pub fn handle_session_end(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.disks.retain(|(of, _)| *of != session);
    }

    /// Whether requests of this session may be altered.
    #[must_use]
    pub fn may_alter(&self, session: u64) -> bool {
        self.sessions.contains(&session)
    }

    /// Whether files of this share may be read ahead.
    #[must_use]
    pub fn is_disk(&self, session: u64, tree: u32) -> bool {
        self.may_alter(session) && self.disks.contains(&(session, tree))
    }

    /// What to write as the charge of a request of up to 64 KiB (MS-SMB2 3.2.4.1.5).
    #[must_use]
    pub fn charge(&self) -> u16 {
        u16::from(self.has_large_requests)
    }

    /// The longest read that the server allows.
    #[must_use]
    pub fn read_bytes_max(&self) -> u32 {
        self.read_bytes_max
    }
}
