//! A named set of namespaces and processes that goes away as a whole: when its
//! owner drops it, when the operator says so, or, after a crash, when the next
//! one is made.
//!
//! Everything made is written to a state file *before* it is made, and what is
//! removed is checked against it (kernel identity of namespaces, start time of
//! processes): nothing of anyone else is ever touched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::error::{During, LabError, require_root};
use crate::netns::Namespace;
use crate::process::{ProcessId, end_all};

/// Folder of all state.
pub const FOLDER: &str = "/run/farhaul/lab";
/// How long a process may take to end by itself when all is torn down.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a sandbox consists of, as kept in `state.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The process that ends it; none where it was left up on purpose.
    pub owner: Option<ProcessId>,
    /// Namespaces, in the order they were made.
    pub namespaces: Vec<NamespaceRecord>,
    /// Processes, in the order they were started.
    pub processes: Vec<ProcessRecord>,
    /// Whatever the maker wants to find again (link words, seed).
    #[serde(default)]
    pub notes: serde_json::Map<String, serde_json::Value>,
}

/// A namespace of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRecord {
    /// What it is for: `client`, `wan`, ...
    pub role: String,
    /// Its name for `ip netns`.
    pub name: String,
    /// Device and inode once it exists.
    pub identity: Option<(u64, u64)>,
}

/// A process of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// What it is for: `link`, `gateway-a`, ...
    pub role: String,
    /// Which one.
    pub process: ProcessId,
}

/// A set of namespaces and processes. Torn down when dropped, unless it was
/// [kept](Sandbox::keep) or only [opened](Sandbox::open).
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    state: State,
    /// Our own children, to be reaped when they end.
    children: Vec<(ProcessId, Child)>,
    is_owner: bool,
}

impl Sandbox {
    /// A new, empty one. Remains of crashed owners, of any name, are removed
    /// first.
    pub fn create(name: &str) -> Result<Self, LabError> {
        require_root("a lab")?;
        check_name(name)?;
        let _lock = lock()?;
        sweep_locked()?;
        let folder = folder(name);
        if folder.exists() {
            let owner = load(name).ok().and_then(|state| state.owner);
            let by = owner.map(|owner| format!(" (process {})", owner.pid));
            return Err(LabError::AlreadyUp {
                name: name.to_owned(),
                by: by.unwrap_or_default(),
            });
        }
        fs::create_dir(&folder).during(|| format!("making {}", folder.display()))?;
        let sandbox = Self {
            name: name.to_owned(),
            state: State {
                owner: Some(ProcessId::own()?),
                ..State::default()
            },
            children: Vec::new(),
            is_owner: true,
        };
        sandbox.save()?;
        Ok(sandbox)
    }

    /// One that is up already. Dropping the handle leaves it up.
    pub fn open(name: &str) -> Result<Self, LabError> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            state: load(name)?,
            children: Vec::new(),
            is_owner: false,
        })
    }

    /// Leaves it up when this handle is dropped, for [`Sandbox::open`] to find.
    pub fn keep(mut self) -> Result<(), LabError> {
        self.state.owner = None;
        self.save()?;
        self.is_owner = false;
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it consists of.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its folder: state, logs, sockets.
    pub fn folder(&self) -> PathBuf {
        folder(&self.name)
    }

    /// Keeps `value` in the state file.
    pub fn note(&mut self, key: &str, value: serde_json::Value) -> Result<(), LabError> {
        self.state.notes.insert(key.to_owned(), value);
        self.save()
    }

    /// Makes a namespace, called `fh-SANDBOX-ROLE`.
    pub fn add_namespace(&mut self, role: &str) -> Result<Namespace, LabError> {
        let namespace = Namespace::named(format!("fh-{}-{role}", self.name));
        if namespace.exists() {
            return Err(LabError::ForeignNamespace {
                name: namespace.name().to_owned(),
            });
        }
        let at = self.state.namespaces.len();
        self.state.namespaces.push(NamespaceRecord {
            role: role.to_owned(),
            name: namespace.name().to_owned(),
            identity: None,
        });
        self.save()?;
        namespace.create()?;
        let identity = namespace.identity()?;
        if let Some(record) = self.state.namespaces.get_mut(at) {
            record.identity = Some(identity);
        }
        self.save()?;
        Ok(namespace)
    }

    /// The namespace of a role.
    pub fn namespace(&self, role: &str) -> Result<Namespace, LabError> {
        let records = &self.state.namespaces;
        let found = records.iter().find(|record| record.role == role);
        let record = found.ok_or_else(|| LabError::NoSuchRole {
            lab: self.name.clone(),
            role: role.to_owned(),
            known: records
                .iter()
                .map(|r| r.role.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        Ok(Namespace::named(&record.name))
    }

    /// Starts a long-lived program in a namespace, in a session of its own, so
    /// that it survives this process; output goes to `ROLE.log`.
    pub fn start(
        &mut self,
        role: &str,
        namespace: &Namespace,
        words: &[&str],
    ) -> Result<ProcessId, LabError> {
        let log = self.log_path(role);
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .during(|| format!("opening {}", log.display()))?;
        let errors = output
            .try_clone()
            .during(|| format!("opening {}", log.display()))?;
        // setsid(1) and ip(8) replace themselves: the number stays the same.
        let mut command = std::process::Command::new("setsid");
        command
            .args(["ip", "netns", "exec", namespace.name()])
            .args(words)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .current_dir(self.folder());
        let child = command
            .spawn()
            .during(|| format!("starting {role} (`{}`)", words.join(" ")))?;
        let process =
            ProcessId::of(child.id().cast_signed()).ok_or_else(|| LabError::NotReady {
                what: role.to_owned(),
                why: "it ended at once".to_owned(),
                log_tail: self.log_tail(role),
            })?;
        self.state.processes.push(ProcessRecord {
            role: role.to_owned(),
            process,
        });
        self.children.push((process, child));
        self.save()?;
        Ok(process)
    }

    /// The latest process of a role, running or not.
    pub fn process(&self, role: &str) -> Option<ProcessId> {
        let mut latest_first = self.state.processes.iter().rev();
        latest_first
            .find(|record| record.role == role)
            .map(|record| record.process)
    }

    /// Ends all processes of a role: SIGTERM, SIGKILL after `patience`.
    pub fn stop(&mut self, role: &str, patience: Duration) -> Result<(), LabError> {
        let (ended, kept): (Vec<_>, Vec<_>) = self
            .state
            .processes
            .drain(..)
            .partition(|record| record.role == role);
        self.state.processes = kept;
        let ended: Vec<_> = ended.iter().map(|record| record.process).collect();
        end_all(&ended, patience)?;
        self.reap();
        self.save()
    }

    /// Collects the status of children that have ended, so that none stays a zombie.
    pub fn reap(&mut self) {
        self.children
            .retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    }

    /// Log file of a role.
    pub fn log_path(&self, role: &str) -> PathBuf {
        self.folder().join(format!("{role}.log"))
    }

    /// Last lines of a role's log.
    pub fn log_tail(&self, role: &str) -> String {
        const LINES: usize = 15;
        let path = self.log_path(role);
        let text = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(LINES)..)
            .unwrap_or_default();
        format!("--- end of {} ---\n{}", path.display(), tail.join("\n"))
    }

    /// Removes everything: processes, namespaces (with every process inside),
    /// folder.
    pub fn tear_down(mut self) -> Result<(), LabError> {
        self.is_owner = false;
        self.remove_all()
    }

    fn remove_all(&mut self) -> Result<(), LabError> {
        let processes: Vec<_> = self
            .state
            .processes
            .iter()
            .map(|record| record.process)
            .collect();
        end_all(&processes, PATIENCE)?;
        self.reap();
        for record in self.state.namespaces.iter().rev() {
            remove_namespace(record)?;
        }
        self.reap();
        remove_folder(&self.folder())
    }

    fn save(&self) -> Result<(), LabError> {
        let path = self.folder().join("state.json");
        let text = serde_json::to_vec_pretty(&self.state).map_err(|error| LabError::BadState {
            path: path.clone(),
            why: error.to_string(),
        })?;
        write_whole(&path, &text)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.is_owner
            && let Err(error) = self.remove_all()
        {
            eprintln!("lab {}: cleaning up failed: {error}", self.name);
        }
    }
}

/// Names of all sandboxes that are up.
pub fn list() -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).during(|| format!("reading {FOLDER}")),
    };
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| check_name(name).is_ok())
        .collect();
    names.sort();
    Ok(names)
}

/// Removes what crashed owners left behind; returns the names of what was removed.
pub fn sweep() -> Result<Vec<String>, LabError> {
    require_root("removing a lab")?;
    let _lock = lock()?;
    sweep_locked()
}

fn sweep_locked() -> Result<Vec<String>, LabError> {
    let mut removed = Vec::new();
    for name in list()? {
        let is_left_over = match load(&name) {
            Ok(state) => state.owner.is_some_and(|owner| !owner.is_alive()),
            // Its maker ended between making the folder and the first state:
            // nothing else exists. (We hold the lock, so it is not being made.)
            Err(LabError::NoSuchLab { .. }) => {
                remove_folder(&folder(&name))?;
                false
            }
            Err(error) => {
                eprintln!("{error}");
                false
            }
        };
        if is_left_over {
            Sandbox::open(&name)?.tear_down()?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Removes a sandbox's folder. Its owner and who sweeps may both be at it: an owner that tears
/// down holds no lock.
fn remove_folder(folder: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.during(|| format!("removing {}", folder.display())),
    }
}

/// Ends what is in a namespace and removes it, if it is the recorded one.
fn remove_namespace(record: &NamespaceRecord) -> Result<(), LabError> {
    let namespace = Namespace::named(&record.name);
    if !namespace.exists() {
        return Ok(());
    }
    let identity = namespace.identity()?;
    if record.identity.is_some_and(|recorded| recorded != identity) {
        return Ok(());
    }
    end_all(&namespace.processes()?, PATIENCE)?;
    namespace.delete()
}

fn folder(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn load(name: &str) -> Result<State, LabError> {
    let path = folder(name).join("state.json");
    let mut text = String::new();
    match File::open(&path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(LabError::NoSuchLab {
                name: name.to_owned(),
            });
        }
        Err(error) => return Err(error).during(|| format!("reading {}", path.display())),
    }
    serde_json::from_str(&text).map_err(|error| LabError::BadState {
        path,
        why: error.to_string(),
    })
}

/// One maker or sweeper at a time on this machine.
fn lock() -> Result<File, LabError> {
    fs::create_dir_all(FOLDER).during(|| format!("making {FOLDER}"))?;
    let path = Path::new(FOLDER).join(".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .during(|| format!("opening {}", path.display()))?;
    flock(file.as_fd(), FlockOperation::LockExclusive)
        .during(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// Writes a file that is seen complete or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), LabError> {
    write_whole_for(None, path, content)
}

/// The same; the file is the caller's.
pub(crate) fn write_whole_for(
    caller: Option<Caller>,
    path: &Path,
    content: &[u8],
) -> Result<(), LabError> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut file = new_file(&draft)?;
        if let Some(caller) = caller {
            caller.give(&file);
        }
        file.write_all(content)?;
        fs::rename(&draft, path)
    };
    write().during(|| format!("writing {}", path.display()))
}

/// A new file, not what is there of that name, nor what a link of that name leads to.
fn new_file(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        // Left by a process of this number that was killed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            File::create_new(path)
        }
        created => created,
    }
}

fn check_name(name: &str) -> Result<(), LabError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=32).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('-') {
        return Ok(());
    }
    Err(LabError::BadName {
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_where_the_draft_goes_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("farhaul-draft-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (path, other) = (folder.join("x.json"), folder.join("other"));
        fs::write(&other, "theirs").unwrap();
        symlink(&other, folder.join(format!("x.{}.new", std::process::id()))).unwrap();
        write_whole(&path, b"ours").unwrap();
        let found = [&path, &other].map(|path| fs::read_to_string(path).unwrap());
        let is_link = fs::symlink_metadata(&path).unwrap().is_symlink();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, ["ours", "theirs"]);
        assert_eq!((is_link, left), (false, 2));
    }
}
