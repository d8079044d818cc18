//! Holding an interface: nobody else emulates on it, its offloads are off, and
//! they come back whatever happens.
//!
//! What was switched off is written to a file before it is switched, and the
//! file is locked while the interface is held. The kernel drops the lock when
//! the process dies, so an unlocked file tells the next run (or `farhaul link
//! restore`) what a killed one left behind.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::error::{Doing, EmulateError};
use super::ethtool::Device;

const ARPHRD_ETHER: u16 = 1;
/// Largest state file that is read: feature names fit many times over.
const STATE_BYTES_MAX: u64 = 64 * 1024;

/// What is to be put back on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Number and address: an interface made anew under the same name is
    /// another one, with nothing to put back.
    index: u32,
    address: [u8; 6],
    /// Features that were wanted and are switched off meanwhile.
    switched_off: Vec<String>,
}

/// An interface that is held. Dropping it puts everything back; use
/// [`Claim::release`] to learn whether that worked.
pub(super) struct Claim {
    name: String,
    device: Device,
    state: State,
    file: StateFile,
    released: bool,
}

impl Claim {
    /// Takes the interface; state files lie in `folder`.
    pub(super) fn take(name: &str, folder: &Path) -> Result<Self, EmulateError> {
        let device = find(name)?;
        check_usable(name, &device)?;
        let mut file = StateFile::lock(folder, name)?.ok_or_else(|| held(name))?;
        forget_dead_namespaces(folder);
        if let Some(left_behind) = file.read()? {
            put_back(name, &device, &left_behind)?;
        }
        let state = State {
            index: device.index,
            address: device.hardware().doing(|| asking(name))?.1,
            switched_off: disturbing_features(&device).doing(|| asking(name))?,
        };
        file.write(&state)?;
        let mut claim = Self {
            name: name.to_owned(),
            device,
            state,
            file,
            released: false,
        };
        let switched = claim.device.want(&claim.state.switched_off, false);
        if let Err(error) = switched {
            // Refused means that nothing changed: nothing to remember.
            claim.released = true;
            claim.file.remove();
            return Err(error).doing(|| format!("switching offloads of `{name}` off"));
        }
        Ok(claim)
    }

    /// The interface's number.
    pub(super) fn index(&self) -> u32 {
        self.device.index
    }

    /// Puts everything back.
    pub(super) fn release(mut self) -> Result<(), EmulateError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), EmulateError> {
        if self.released {
            return Ok(());
        }
        self.released = true;
        if self.device.exists() {
            put_back(&self.name, &self.device, &self.state)?;
        }
        self.file.remove();
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The file stays where this fails, so `farhaul link restore` can try.
        let _ = self.put_back();
    }
}

/// What [`restore`] did with one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Interface.
    pub interface: String,
    /// Features that were switched on again.
    pub features: Vec<String>,
}

/// Puts back what killed emulators left switched off, on the interfaces of the
/// current network namespace. `only` limits it to those named, which must
/// exist and not be held.
pub fn restore(folder: &Path, only: &[String]) -> Result<Vec<Restored>, EmulateError> {
    let names = if only.is_empty() {
        left_behind(folder)?
    } else {
        only.to_vec()
    };
    forget_dead_namespaces(folder);
    let mut restored = Vec::new();
    for name in names {
        let device = match find(&name) {
            Ok(device) => Some(device),
            Err(error) if !only.is_empty() => return Err(error),
            Err(_) => None,
        };
        let mut file = match StateFile::lock(folder, &name)? {
            Some(file) => file,
            None if only.is_empty() => continue,
            None => return Err(held(&name)),
        };
        let state = file.read()?;
        if let (Some(device), Some(state)) = (device, state)
            && put_back(&name, &device, &state)?
        {
            restored.push(Restored {
                interface: name,
                features: state.switched_off,
            });
        }
        file.remove();
    }
    Ok(restored)
}

/// Interfaces of this namespace that have a state file.
fn left_behind(folder: &Path) -> Result<Vec<String>, EmulateError> {
    let prefix = format!("{}-", namespace()?);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing(|| format!("reading {}", folder.display()))?,
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_prefix(&prefix)?.to_owned())
        })
        .collect();
    names.sort();
    Ok(names)
}

/// Removes the files of namespaces that are gone with their interfaces: a link
/// that was killed together with its namespace leaves them. One that only an
/// open file or a mount elsewhere keeps alive counts as gone.
fn forget_dead_namespaces(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let alive = live_namespaces();
    for path in entries.flatten().map(|entry| entry.path()) {
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.split_once('-')?.0.parse().ok());
        let is_dead = number.is_some_and(|number: u64| !alive.contains(&number));
        let is_held = || {
            File::open(&path)
                .map(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
                .unwrap_or(true)
        };
        if is_dead && !is_held() {
            // One that stays does no harm.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Numbers of the network namespaces that have a process or a name.
fn live_namespaces() -> HashSet<u64> {
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let processes = entries("/proc").map(|entry| entry.path().join("ns/net"));
    let named = entries("/run/netns").map(|entry| entry.path());
    processes
        .chain(named)
        .filter_map(|path| Some(fs::metadata(path).ok()?.ino()))
        .collect()
}

fn find(name: &str) -> Result<Device, EmulateError> {
    Device::named(name).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => EmulateError::NoSuchInterface {
            name: name.to_owned(),
        },
        _ => EmulateError::Io {
            what: asking(name),
            source: error,
        },
    })
}

fn check_usable(name: &str, device: &Device) -> Result<(), EmulateError> {
    let name = name.to_owned();
    let (hardware, _) = device.hardware().doing(|| asking(&name))?;
    if hardware != ARPHRD_ETHER {
        return Err(EmulateError::NotEthernet { name, hardware });
    }
    if let Some(controller) = controller(&name, device) {
        return Err(EmulateError::HasController { name, controller });
    }
    if !device.is_up().doing(|| asking(&name))? {
        return Err(EmulateError::InterfaceDown { name });
    }
    Ok(())
}

/// The bridge or bond the interface belongs to, as far as `/sys` is that of
/// our network namespace.
fn controller(name: &str, device: &Device) -> Option<String> {
    let folder = Path::new("/sys/class/net").join(name);
    let index = fs::read_to_string(folder.join("ifindex")).ok()?;
    if index.trim() != device.index.to_string() {
        return None;
    }
    let target = fs::read_link(folder.join("master")).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Features that make frames differ from what is on a wire.
fn disturbing_features(device: &Device) -> io::Result<Vec<String>> {
    let features = match device.features() {
        // The driver has nothing to switch.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
        other => other?,
    };
    let disturbing = |name: &str| {
        name.ends_with("-segmentation")
            || name.starts_with("tx-checksum")
            || name.starts_with("tx-gso")
            || name.starts_with("rx-gro")
            || (name.contains("vlan") && (name.ends_with("-insert") || name.ends_with("-parse")))
            || ["rx-checksum", "rx-lro", "rx-udp-gro-forwarding"].contains(&name)
    };
    Ok(features
        .into_iter()
        .filter(|feature| feature.changeable && feature.wanted && disturbing(&feature.name))
        .map(|feature| feature.name)
        .collect())
}

/// Whether there was something to put back: not where the interface was made
/// anew under the same name.
fn put_back(name: &str, device: &Device, state: &State) -> Result<bool, EmulateError> {
    let (_, address) = device.hardware().doing(|| asking(name))?;
    if (device.index, address) != (state.index, state.address) {
        return Ok(false);
    }
    device
        .want(&state.switched_off, true)
        .doing(|| format!("switching offloads of `{name}` on again"))?;
    Ok(!state.switched_off.is_empty())
}

fn asking(name: &str) -> String {
    format!("asking about interface `{name}`")
}

fn held(name: &str) -> EmulateError {
    EmulateError::InterfaceHeld {
        name: name.to_owned(),
    }
}

/// Number of the calling thread's network namespace: the same interface name
/// may exist in many.
fn namespace() -> Result<u64, EmulateError> {
    let path = "/proc/thread-self/ns/net";
    Ok(fs::metadata(path)
        .doing(|| format!("looking at {path}"))?
        .ino())
}

/// The locked file that says what is to be put back.
struct StateFile {
    file: File,
    path: PathBuf,
}

impl StateFile {
    /// `None` where another process holds it.
    fn lock(folder: &Path, interface: &str) -> Result<Option<Self>, EmulateError> {
        fs::create_dir_all(folder).doing(|| format!("making {}", folder.display()))?;
        let path = folder.join(format!("{}-{interface}", namespace()?));
        let opening = || format!("opening {}", path.display());
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .doing(opening)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error).doing(opening),
            }
            // The holder may have removed it between our opening and locking.
            let locked = file.metadata().doing(opening)?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == locked) {
                return Ok(Some(Self { file, path }));
            }
        }
    }

    /// What a killed process left; `None` for a new file, and for one that it
    /// had not finished writing: then nothing was switched yet.
    fn read(&mut self) -> Result<Option<State>, EmulateError> {
        let mut text = String::new();
        let mut file = &self.file;
        file.rewind()
            .and_then(|()| file.take(STATE_BYTES_MAX).read_to_string(&mut text))
            .doing(|| format!("reading {}", self.path.display()))?;
        Ok(serde_json::from_str(&text).ok())
    }

    fn write(&mut self, state: &State) -> Result<(), EmulateError> {
        let writing = || format!("writing {}", self.path.display());
        let text = serde_json::to_string(state)
            .map_err(io::Error::other)
            .doing(writing)?;
        let mut file = &self.file;
        file.rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(text.as_bytes()))
            .doing(writing)
    }

    /// Removes it while it is still locked, so nobody can lock it in between.
    fn remove(&mut self) {
        // Left in place it only says once more what is already put back.
        let _ = fs::remove_file(&self.path);
    }
}
