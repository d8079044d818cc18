//! A new configuration file with its key: both are there afterwards, or nothing has changed.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use farhaul_gateway::config::load;
use farhaul_gateway::config::starter::{self, NewPeer, Starter};
use farhaul_gateway::keys::{KeyError, PrivateKey};
use farhaul_gateway::pairing::Offer;

use super::{Mode, SiteFlags, now_s};
use crate::failure::Failure;

/// What was written.
pub(super) struct Made {
    pub(super) key: PrivateKey,
    config: PathBuf,
    key_path: PathBuf,
    /// Whether the key was made for this file, and not found.
    pub(super) key_is_new: bool,
}

impl Made {
    /// Takes everything back. A key that was there before stays.
    pub(super) fn undo(&self) {
        let _ = fs::remove_file(&self.config);
        self.undo_key();
    }

    fn undo_key(&self) {
        if self.key_is_new {
            let _ = fs::remove_file(&self.key_path);
        }
    }
}

/// A site's name as part of a file name.
pub(super) fn file_stem(site: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => c.to_ascii_lowercase(),
        _ => '-',
    };
    site.chars().map(plain).collect()
}

/// The key in that file, or a new one where there is none; and whether it is new.
fn key_at(path: &Path) -> Result<(PrivateKey, bool), KeyError> {
    match PrivateKey::load(path) {
        Err(KeyError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let key = PrivateKey::generate()?;
            key.create(path)?;
            Ok((key, true))
        }
        other => other.map(|key| (key, false)),
    }
}

/// The folder a file is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses a path at which no new file can be made, before anything is written.
pub(super) fn place_for_a_file(path: &Path) -> Result<(), Failure> {
    let shown = path.display().to_string();
    if shown.ends_with('/') || path.is_dir() {
        let file = path.join("farhaul.toml");
        return Err(Failure::usage(format!(
            "--config {shown}: that is a folder; name the file, as in --config {}",
            file.display()
        )));
    }
    match fs::read_link(path) {
        Ok(target) if !path.exists() => Err(Failure::failed(format!(
            "{shown} is a symbolic link to {}, which is not there; remove the link, or name the file itself with --config",
            target.display()
        ))),
        _ => Ok(()),
    }
}

/// A file beside this one that names the same key file: two gateways with one
/// key end each other's tunnels.
fn other_user_of(key: &Path, config: &Path) -> Option<PathBuf> {
    let whole = |path: &Path| {
        let folder = fs::canonicalize(folder_of(path)).ok()?;
        fs::canonicalize(path)
            .ok()
            .or(Some(folder.join(path.file_name()?)))
    };
    let ours = whole(key)?;
    let usual = Some(OsStr::new("toml"));
    let entries = fs::read_dir(folder_of(config)).ok()?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(folder_of(config).join(entry.ok()?.file_name())))
        .filter(|path| [config.extension(), usual].contains(&path.extension()))
        .filter(|path| path.file_name() != config.file_name())
        .collect();
    files.sort();
    files.into_iter().find(|path| {
        let named = load::key_named_in(path);
        named.and_then(|key| whole(&key)).as_ref() == Some(&ours)
    })
}

fn refuse_shared_key(key: &Path, config: &Path) -> Result<(), Failure> {
    match other_user_of(key, config) {
        None => Ok(()),
        Some(other) => {
            let path = config.display();
            let other = other.strip_prefix(".").unwrap_or(&other).display();
            Err(Failure::failed(format!(
                "{other} uses the key {}, which {path} would use, too, and every gateway has a key of its own; nothing is \
                 written. For one more peer of that gateway: farhaul init --another, or farhaul join TOKEN, with \
                 --config {other}. For one more gateway: name it otherwise with --site, or keep it in a folder of its own. If {other} is not used any \
                 more, move it away: mv {other} {other}.old",
                key.display()
            )))
        }
    }
}

/// A token that waits is replaced by this gateway's next one, and by nobody else's.
pub(super) fn may_replace(pending: &Path, key: &PrivateKey) -> Result<(), Failure> {
    let path = pending.display();
    if pending.is_dir() {
        return Err(Failure::failed(format!(
            "{path} is a folder, and the token that waits for its answer is kept under that name: move it away"
        )));
    }
    match Offer::pending(pending) {
        Ok(offer) if offer.key != key.public() && offer.check_time(now_s()).is_ok() => {
            Err(Failure::failed(format!(
                "{path} holds a token of another gateway, {} ({}), that waits for its answer: accept that one first \
                 (farhaul init --accept ANSWER, with its own --config), or drop it: rm {path}",
                offer.site, offer.key
            )))
        }
        _ => Ok(()),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::AlreadyExists => "; it is not overwritten: move it away or choose another name",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; run as a user that may write there, or choose another folder"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room there and run this again",
        _ => "",
    };
    Failure::failed(format!(
        "{} cannot be written: {error}{remedy}",
        path.display()
    ))
}

impl SiteFlags {
    /// Refuses what the mode would pass over.
    pub(super) fn fit_mode(&self, mode: Mode) -> Result<(), Failure> {
        let (flag, why) = match mode {
            Mode::Explicit => {
                let named = self.interface.as_ref();
                let elsewhere = self.elsewhere.then(|| "--elsewhere".to_owned());
                let flag = named
                    .map(|name| format!("--interface {name}"))
                    .or(elsewhere);
                let why = "explicit mode takes no connections from a LAN interface; leave it out, or choose --mode transparent";
                (flag, why)
            }
            Mode::Transparent => {
                let flag = self.socks.map(|address| format!("--socks {address}"));
                (
                    flag,
                    "transparent mode has no proxy; leave it out, or choose --mode explicit",
                )
            }
        };
        match flag {
            Some(flag) => Err(Failure::usage(format!("{flag}: {why}"))),
            None => Ok(()),
        }
    }

    /// Writes key and configuration; the file is new, or nothing happens. With
    /// a key that `fits` refuses there is no file either.
    pub(super) fn write(
        &self,
        start: &Starter,
        peer: Option<&NewPeer>,
        fits: impl FnOnce(&PrivateKey) -> Result<(), Failure>,
    ) -> Result<Made, Failure> {
        let key_path = self.config.with_file_name(&start.key);
        let mut text = starter::starter(start);
        if let Some(peer) = peer {
            text = starter::with_peer(&text, &self.config, peer).map_err(Failure::failed)?;
        } else {
            load::check(&text, &self.config, |_| None).map_err(Failure::failed)?;
        }
        let (key, key_is_new) = key_at(&key_path).map_err(Failure::failed)?;
        let made = Made {
            key,
            config: self.config.clone(),
            key_path,
            key_is_new,
        };
        let written = fits(&made.key)
            .and_then(|()| refuse_shared_key(&made.key_path, &self.config))
            .and_then(|()| {
                starter::create_file(&self.config, &text)
                    .map_err(|error| unwritable(&self.config, &error))
            });
        match written {
            Ok(()) => Ok(made),
            Err(error) => {
                made.undo_key();
                Err(error)
            }
        }
    }
}
