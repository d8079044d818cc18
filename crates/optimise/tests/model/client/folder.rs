//! Folders, and what is asked of open files.

use farhaul_optimise::smb::smb2::header::Command;
use farhaul_optimise::smb::smb2::open::{
    CloseRequest, CreateRequest, DISPOSITION_OPEN, FileId, OPLOCK_NONE,
};
use farhaul_optimise::smb::smb2::query::{
    CLASS_ID_BOTH, INFO_FILE, QueryDirectoryRequest, QueryInfoRequest, QueryResponse, entries,
};

use super::{Client, Sent, Server};

/// FileAllInformation.
const CLASS_ALL: u8 = 18;

impl Client {
    pub(super) fn list(&mut self) {
        self.list_of(self.file.unwrap());
    }

    fn list_of(&mut self, file: FileId) {
        let asked = QueryDirectoryRequest {
            class: CLASS_ID_BOTH,
            flags: 0,
            file,
            pattern: vec![b'*', 0],
            output_bytes_max: 65_536,
        };
        self.send(Command::QueryDirectory, None, |message| asked.emit(message));
    }

    /// As Explorer does.
    pub(super) fn browse(&mut self, name: String) {
        let create = self.opening(name);
        self.compound(|client| {
            client.send(Command::Create, None, |message| create.emit(0, message));
            client.list_of(FileId::RELATED);
            client.list_of(FileId::RELATED);
        });
    }

    /// What a server listed. Who has asked once more already does not do so again.
    pub(super) fn listed(&mut self, message: &[u8]) {
        let listed = QueryResponse::parse(message).unwrap();
        self.names += entries(CLASS_ID_BOTH, listed.data).len();
        if self.sent.is_empty() {
            self.list();
        }
    }

    /// As who wants to know whether it is there.
    pub(super) fn glance(&mut self, name: String) {
        let create = self.opening(name);
        let close = CloseRequest {
            flags: 0,
            file: FileId::RELATED,
        };
        self.compound(|client| {
            client.send(Command::Create, None, |message| create.emit(0, message));
            client.send(Command::Close, None, |message| close.emit(message));
        });
    }

    fn opening(&mut self, name: String) -> CreateRequest {
        self.asked = OPLOCK_NONE;
        CreateRequest {
            oplock: OPLOCK_NONE,
            impersonation: 2,
            access: self.manners.access,
            attributes: 0,
            share: 7,
            disposition: DISPOSITION_OPEN,
            options: self.manners.options,
            name: name.into_bytes(),
            contexts: Vec::new(),
        }
    }

    pub(super) fn ask(&mut self, server: &Server) {
        let asked = ask_all(self.file.unwrap());
        let floor = self.floor(server);
        let id = self.next_id;
        self.send(Command::QueryInfo, None, |message| asked.emit(message));
        self.sent.get_mut(&id).unwrap().floor = floor;
    }

    /// It is what a server could have said since.
    pub(super) fn told(&mut self, message: &[u8], sent: &Sent, server: &Server) {
        let told = QueryResponse::parse(message).unwrap();
        let mut versions = sent.floor..=server.version(&self.name);
        let is_true = versions.any(|version| server.info(&self.name, version) == told.data);
        assert!(is_true, "{:?}", String::from_utf8_lossy(told.data));
        self.infos += 1;
    }
}

pub(super) fn ask_all(file: FileId) -> QueryInfoRequest {
    QueryInfoRequest {
        kind: INFO_FILE,
        class: CLASS_ALL,
        output_bytes_max: 65_535,
        input_bytes: 0,
        file,
    }
}
