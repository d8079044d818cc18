//! From what was written to what it means: defaults, paths, and everything
//! that can only be judged by looking at several values together.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use super::diagnose::Problems;
use super::machine::Machine;
use super::meaning::{
    Accept, Admin, ClientAddress, Compression, Config, Dial, Disk, Intercept, InterceptMode, Level,
    Listen, Log, Match, Optimise, Peer, Reduction, Rule, Site, Store, Switch, Tunnel,
};
use super::reader::At;
use super::written::{self, Maybe, MaybeList, Written};
use super::{conflicts, defaults};
use crate::keys::{KeyError, PrivateKey, PublicKey};
use crate::regular;

/// A configuration is text a person wrote; whatever is larger is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A usable configuration.
#[derive(Debug)]
pub struct Loaded {
    /// What it means.
    pub config: Config,
    /// What looks unintended in it; may be empty.
    pub warnings: Problems,
}

/// Why a file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("configuration {path}: {source}{}", remedy(.source))]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not usable; all problems with their places.
    #[error("{0}")]
    Invalid(Problems),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; `farhaul init` writes a new one",
        ErrorKind::PermissionDenied => "; run as a user that may read it",
        _ => "",
    }
}

/// Reads and checks a configuration file and the private key it names.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let text = read_file(path)?;
    let own = |key: &Path| Some(PrivateKey::load(key));
    check_on(&Machine::this(), &text, path, own)
}

/// As [`load`], on another machine than the gateway's: without the private key,
/// and without a look at interfaces and memory.
pub fn load_without_key(path: &Path) -> Result<Loaded, LoadError> {
    let text = read_file(path)?;
    check(&text, path, |_| None)
}

/// As [`load`], of a file that may be for another machine: without a look at
/// interfaces and memory.
pub fn load_for_any_machine(path: &Path) -> Result<Loaded, LoadError> {
    let text = read_file(path)?;
    check(&text, path, |key| Some(PrivateKey::load(key)))
}

/// The key file that a configuration names, as far as it can be read; also of
/// a file that is wrong otherwise.
pub fn key_named_in(path: &Path) -> Option<PathBuf> {
    let text = read_file(path).ok()?;
    let written = written::read(&text, &mut Problems::new("", text.as_str()));
    let folder = path.parent().unwrap_or(Path::new(""));
    Some(folder.join(&written.site.key?.value))
}

/// A configuration file's text.
pub fn read_file(path: &Path) -> Result<String, LoadError> {
    let unreadable = |source| LoadError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = regular::open(path, OpenOptions::new().read(true)).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let too_large = "larger than 1 MiB, which no configuration is";
        return Err(unreadable(io::Error::other(too_large)));
    }
    String::from_utf8(bytes).map_err(|error| unreadable(not_text(&error)))
}

fn not_text(error: &FromUtf8Error) -> io::Error {
    let good = error.utf8_error().valid_up_to();
    let before = error.as_bytes().iter().take(good);
    let line = 1 + before.filter(|byte| **byte == b'\n').count();
    io::Error::other(format!("not UTF-8 at line {line}"))
}

/// Checks a configuration's text as if it stood in the file `path`. `key_at`
/// loads the private key, or says `None` to leave it out of the checks. The
/// machine itself is not looked at.
pub fn check(
    text: &str,
    path: &Path,
    key_at: impl Fn(&Path) -> Option<Result<PrivateKey, KeyError>>,
) -> Result<Loaded, LoadError> {
    check_on(&Machine::elsewhere(), text, path, key_at)
}

/// As [`check`], for this machine.
pub(super) fn check_on(
    machine: &Machine<impl Fn(&str) -> bool>,
    text: &str,
    path: &Path,
    key_at: impl Fn(&Path) -> Option<Result<PrivateKey, KeyError>>,
) -> Result<Loaded, LoadError> {
    let mut problems = Problems::new(path.display().to_string(), text);
    let written = written::read(text, &mut problems);
    // Absolute, so that the paths still hold when the process changes its folder.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().unwrap_or(Path::new(""));
    let own = own_key(&written, folder, key_at, &mut problems);
    let config = meaning(&written, folder);
    conflicts::find(&written, config.as_ref(), own, &mut problems);
    machine.lacks(&written, config.as_ref(), &mut problems);
    match config {
        Some(config) if !problems.has_errors() => Ok(Loaded {
            config,
            warnings: problems,
        }),
        _ => Err(LoadError::Invalid(problems)),
    }
}

fn own_key(
    written: &Written,
    folder: &Path,
    key_at: impl Fn(&Path) -> Option<Result<PrivateKey, KeyError>>,
    problems: &mut Problems,
) -> Option<PublicKey> {
    let key = written.site.key.as_ref()?;
    match key_at(&folder.join(&key.value))? {
        Ok(private) => Some(private.public()),
        Err(error) => {
            problems.error(key.span.clone(), format!("site.key: {error}"));
            None
        }
    }
}

fn or<T: Clone>(written: &Maybe<T>, default: T) -> T {
    written
        .as_ref()
        .map_or(default, |found| found.value.clone())
}

fn list<T: Clone>(written: &MaybeList<T>) -> Vec<T> {
    let values = |list: &At<Vec<At<T>>>| list.value.iter().map(|item| item.value.clone()).collect();
    written.as_ref().map(values).unwrap_or_default()
}

/// Fills in the defaults. `None` where something required is missing, which
/// has been reported by then.
fn meaning(written: &Written, folder: &Path) -> Option<Config> {
    let peers: Option<Vec<Peer>> = written.peers.iter().map(peer).collect();
    let listens: Option<Vec<Listen>> = written.listens.iter().map(listen).collect();
    let own_rules = written.rules.iter().enumerate();
    let mut rules: Vec<Rule> = own_rules.map(|(at, own)| rule(at, own)).collect();
    rules.extend(defaults::rules());
    Some(Config {
        site: Site {
            name: written.site.name.as_ref()?.value.clone(),
            key: folder.join(&written.site.key.as_ref()?.value),
        },
        tunnel: tunnel(written),
        peers: peers?,
        intercept: intercept(&written.intercept)?,
        listens: listens?,
        rules,
        accept: Accept {
            destinations: list(&written.destinations),
        },
        store: store(written, folder)?,
        admin: Admin {
            socket: folder.join(or(&written.socket, defaults::admin_socket().to_owned())),
            metrics: written.metrics.as_ref().map(|metrics| metrics.value),
        },
        log: Log {
            json: or(&written.json, false),
            level: or(&written.level, Level::Info),
        },
    })
}

/// What is on disk is used from memory: where the file gives a disk alone, there is as much memory as that needs.
fn store(written: &Written, folder: &Path) -> Option<Store> {
    let found = &written.store;
    let disk = match found.disk {
        false => None,
        true => Some(Disk {
            path: folder.join(&found.path.as_ref()?.value),
            size_bytes: found.size.as_ref()?.value,
        }),
    };
    let by_disk = disk.as_ref().map_or(defaults::STORE_MEMORY_BYTES, |disk| {
        defaults::store_memory_bytes(disk.size_bytes, written.peers.len())
    });
    Some(Store {
        memory_bytes: or(&found.memory, by_disk),
        is_memory_by_disk: found.memory.is_none() && disk.is_some(),
        disk,
    })
}

/// Who dials when the file does not say: whoever was given an address.
pub(super) fn dial(peer: &written::Peer) -> Dial {
    let by_address = match peer.address {
        Some(_) => Dial::Us,
        None => Dial::Peer,
    };
    or(&peer.dial, by_address)
}

fn peer(written: &written::Peer) -> Option<Peer> {
    Some(Peer {
        name: written.name.as_ref()?.value.clone(),
        address: written.address.as_ref().map(|found| found.value.clone()),
        key: written.key.as_ref()?.value,
        networks: list(&written.networks),
        dial: dial(written),
        link: written.link.as_ref().map(|found| found.value.clone()),
        owned: or(&written.owned, false),
    })
}

fn tunnel(written: &Written) -> Tunnel {
    let awaited = written.peers.iter().any(|peer| dial(peer) != Dial::Us);
    let port = if awaited { defaults::TUNNEL_PORT } else { 0 };
    let tunnel = &written.tunnel;
    let flows_max = tunnel.flows_max.as_ref();
    Tunnel {
        listen: or(
            &tunnel.listen,
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        ),
        resume_max: or(&tunnel.resume_max, defaults::RESUME_MAX),
        keep_alive: or(&tunnel.keep_alive, defaults::KEEP_ALIVE),
        dead_after: or(&tunnel.dead_after, defaults::DEAD_AFTER),
        open_timeout: or(&tunnel.open_timeout, defaults::OPEN_TIMEOUT),
        drain: or(&tunnel.drain, defaults::DRAIN),
        flows_max: flows_max
            .and_then(|found| usize::try_from(found.value).ok())
            .unwrap_or(defaults::FLOWS_MAX),
    }
}

/// Interception is on when the file names interfaces, unless it says otherwise.
pub(super) fn mode(written: &written::Intercept) -> InterceptMode {
    let named = written.interfaces.as_ref();
    let by_interfaces = match named.is_some_and(|list| !list.value.is_empty()) {
        true => InterceptMode::Transparent,
        false => InterceptMode::Explicit,
    };
    or(&written.mode, by_interfaces)
}

fn intercept(written: &written::Intercept) -> Option<Intercept> {
    Some(Intercept {
        mode: mode(written),
        interfaces: list(&written.interfaces),
        client_address: or(&written.client_address, ClientAddress::Keep),
        mark: u32::try_from(or(&written.mark, defaults::MARK.into())).ok()?,
        table: u32::try_from(or(&written.table, defaults::TABLE.into())).ok()?,
        queue: u16::try_from(or(&written.queue, defaults::QUEUE.into())).ok()?,
    })
}

fn listen(written: &written::Listen) -> Option<Listen> {
    match (&written.socks, &written.connect, &written.forward) {
        (Some(address), None, None) => Some(Listen::Socks(address.value)),
        (None, Some(address), None) => Some(Listen::Connect(address.value)),
        (None, None, Some(address)) => Some(Listen::Forward {
            listen: address.value,
            target: written.target.as_ref()?.value.clone(),
        }),
        _ => None,
    }
}

/// The name of the operator's rule number `at`, counted from 0.
pub(super) fn rule_name(at: usize, written: &written::Rule) -> String {
    or(&written.name, format!("rule {}", at + 1))
}

/// The operator's rule number `at`, counted from 0.
pub(super) fn rule(at: usize, written: &written::Rule) -> Rule {
    Rule {
        name: rule_name(at, written),
        matching: Match {
            source: list(&written.source),
            destination: list(&written.destination),
            host: list(&written.host),
            port: list(&written.port),
        },
        class: or(&written.class, farhaul_tunnel::Class::Auto),
        optimise: or(&written.optimise, Optimise::Auto),
        transport: or(&written.transport, Switch::Auto),
        reduction: or(&written.reduction, Reduction::Auto),
        compression: or(&written.compression, Compression::Auto),
        fec: or(&written.fec, Switch::Auto),
        write_behind: or(&written.write_behind, Switch::Auto),
        client_address: written.client_address.as_ref().map(|found| found.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_text_is_told_apart_from_one_that_is_not_there() {
        let folder = std::env::temp_dir().join(format!("farhaul-text-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.toml");
        let refused = |why: &str| {
            let error = read_file(&file).unwrap_err().to_string();
            assert!(error.ends_with(why), "{error}");
        };
        refused("; `farhaul init` writes a new one");
        let latin_1 = b"[site]\nname = \"h\xc3\xa4fen\"\nkey = \"h\xe4fen.key\"\n";
        std::fs::write(&file, latin_1).unwrap();
        refused("a.toml: not UTF-8 at line 3");
        std::fs::write(&file, vec![b'#'; 1 << 20]).unwrap();
        assert_eq!(read_file(&file).unwrap().len(), 1 << 20);
        std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
        refused("larger than 1 MiB, which no configuration is");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let folder = std::env::temp_dir().join(format!("farhaul-load-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a pipe, no regular file"),
            (folder.as_path(), "a folder, no regular file"),
            (Path::new("/dev/zero"), "a device, no regular file"),
        ] {
            let error = read_file(path).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
