//! Folders, and what is asked of open files.

use farhaul_optimise::smb::smb2::open::{
    ATTRIBUTE_DIRECTORY, CreateRequest, CreateResponse, FileFacts, OPLOCK_BATCH,
};
use farhaul_optimise::smb::smb2::query::{
    Entry, QueryDirectoryRequest, QueryInfoRequest, QueryResponse, STATUS_NO_MORE_FILES, listing,
};
use farhaul_optimise::smb::smb2::transfer::{ErrorResponse, STATUS_OK};

use super::{OPLOCK_NONE, Open, Server, file_id};

/// As a server is told of it, in what the model holds names in.
pub fn wide(name: &str) -> String {
    name.chars().flat_map(|letter| [letter, '\0']).collect()
}

impl Server {
    /// Puts a file into a folder.
    pub fn put(&mut self, folder: &str, leaf: &str, content: Vec<u8>) {
        let names = self.folders.entry(wide(folder)).or_default();
        names.push(wide(leaf));
        let name = wide(&format!("{folder}\\{leaf}"));
        self.files.insert(name, vec![content]);
    }

    pub fn open_files(&self) -> usize {
        self.opens.len()
    }

    /// Whether a file is somebody else's.
    pub(super) fn refuses(&mut self, create: &CreateRequest) -> bool {
        let is_batch = create.oplock == OPLOCK_BATCH;
        self.batches += u64::from(is_batch);
        let every = self.terms.refuses_batch;
        is_batch && every > 0 && self.batches.is_multiple_of(every)
    }

    pub(super) fn open_folder(&mut self, name: &str) -> CreateResponse {
        let id = self.next_open;
        self.next_open += 1;
        let open = Open {
            name: name.to_owned(),
            oplock: OPLOCK_NONE,
            denies_writers: false,
            break_due: None,
            lease: None,
        };
        self.opens.insert(id, open);
        CreateResponse {
            oplock: OPLOCK_NONE,
            flags: 0,
            action: 1,
            facts: FileFacts {
                attributes: ATTRIBUTE_DIRECTORY,
                ..FileFacts::default()
            },
            file: file_id(id),
            contexts: Vec::new(),
        }
    }

    pub(super) fn list(&mut self, asked: &QueryDirectoryRequest, body: &mut Vec<u8>) -> u32 {
        let id = self.related(asked.file);
        let folder = self.opens[&id].name.clone();
        let from = self.listed.get(&id).copied().unwrap_or(0);
        let names = self.folders[&folder]
            .iter()
            .skip(from)
            .take(self.terms.names_max);
        let entries: Vec<Entry> = names
            .map(|leaf| Entry {
                name: leaf.clone().into_bytes(),
                size_bytes: self.files[&format!("{folder}\\\0{leaf}")]
                    .last()
                    .unwrap()
                    .len() as u64,
                attributes: 0x20,
            })
            .collect();
        if entries.is_empty() {
            ErrorResponse::default().emit(body);
            return STATUS_NO_MORE_FILES;
        }
        self.listed.insert(id, from + entries.len());
        let data = &listing(&entries);
        QueryResponse { data }.emit(body);
        STATUS_OK
    }

    /// Tells which version of which file it is.
    pub(super) fn tell_info(&mut self, asked: &QueryInfoRequest, body: &mut Vec<u8>) -> u32 {
        self.infos += 1;
        let open = self.related(asked.file);
        let name = &self.opens[&open].name;
        let data = &self.info(name, self.version(name));
        QueryResponse { data }.emit(body);
        STATUS_OK
    }

    pub fn info(&self, name: &str, version: usize) -> Vec<u8> {
        format!("{name} {version} {}", self.files[name][version].len()).into_bytes()
    }
}
