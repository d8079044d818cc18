//! What only the gateway's own machine can say of a file: whether it has these interfaces, and so much memory.

use std::fs;
use std::path::{Path, PathBuf};

use super::defaults::DISK_PER_MEMORY;
use super::diagnose::Problems;
use super::meaning::Config;
use super::units::{rounded_size, show_size};
use super::written::Written;

/// The machine that a file is for, as far as it is to be looked at.
pub(super) struct Machine<K> {
    /// Whether there is such an interface.
    pub(super) interface_known: K,
    /// Its memory, where that is known.
    pub(super) memory_bytes: Option<u64>,
    /// What there is in the place of a folder, if anything.
    pub(super) in_the_way: fn(&Path) -> Option<PathBuf>,
}

impl Machine<fn(&str) -> bool> {
    /// The one this runs on.
    pub(super) fn this() -> Self {
        let facts = fs::read_to_string("/proc/meminfo");
        Self {
            interface_known: |name| nix::net::if_::if_nametoindex(name).is_ok(),
            memory_bytes: facts.ok().and_then(|facts| total_bytes(&facts)),
            in_the_way,
        }
    }

    /// Another one, of which nothing is known.
    pub(super) fn elsewhere() -> Self {
        Self {
            interface_known: |_| true,
            memory_bytes: None,
            in_the_way: |_| None,
        }
    }
}

impl<K: Fn(&str) -> bool> Machine<K> {
    /// Reports what the file wants and the machine does not have.
    pub(super) fn lacks(
        &self,
        written: &Written,
        config: Option<&Config>,
        problems: &mut Problems,
    ) {
        self.interfaces(written, problems);
        self.memory(written, problems);
        if let Some(config) = config {
            self.memory_by_disk(config, written, problems);
            self.disk(config, written, problems);
        }
    }

    /// Only a warning: an interface may come up after the file is checked.
    fn interfaces(&self, written: &Written, problems: &mut Problems) {
        let named = written.intercept.interfaces.iter();
        for interface in named.flat_map(|list| &list.value) {
            if !(self.interface_known)(&interface.value) {
                let name = &interface.value;
                let message =
                    format!("intercept.interfaces: this machine has no `{name}` at the moment");
                let problem = problems.warning(interface.span.clone(), message);
                problem.help("`ip -brief link` lists what there is");
            }
        }
    }

    /// An error: the gateway would end when the first peer is up, and the machine will not grow before.
    fn memory(&self, written: &Written, problems: &mut Problems) {
        let wanted = written
            .store
            .memory
            .as_ref()
            .filter(|wanted| wanted.value > 0);
        let Some((wanted, there_bytes)) = wanted.zip(self.memory_bytes) else {
            return;
        };
        let disk = written.store.size.as_ref();
        let disk = disk.map(|disk| (disk, disk.value / DISK_PER_MEMORY));
        // Of any other it is not worth a word.
        let disk = disk.filter(|(_, bytes)| *bytes > there_bytes / 20);
        let disk_bytes = disk.map_or(0, |(_, bytes)| bytes);
        let all_bytes = wanted.value.saturating_add(disk_bytes);
        let good_bytes = there_bytes / 4 * 3;
        if all_bytes <= good_bytes {
            return;
        }
        let (memory, there) = (show_size(wanted.value), rounded_size(there_bytes));
        // What takes more is what is too large.
        let larger = disk.filter(|(_, bytes)| *bytes > wanted.value);
        let (span, what) = match (larger, disk) {
            (Some((disk, bytes)), _) => {
                let (disk_size, bytes) = (show_size(disk.value), rounded_size(bytes));
                let what = format!(
                    "store.disk.size: {bytes} to find what is on a disk of {disk_size}, and {memory} of store.memory,"
                );
                (&disk.span, what)
            }
            (None, Some((_, bytes))) => {
                let bytes = rounded_size(bytes);
                (
                    &wanted.span,
                    format!("store.memory: {memory} and {bytes} to find what is on disk"),
                )
            }
            (None, None) => (&wanted.span, format!("store.memory: {memory}")),
        };
        let problem = match all_bytes > there_bytes {
            true => problems.error(
                span.clone(),
                format!("{what} is more than this machine has ({there})"),
            ),
            false => problems.warning(
                span.clone(),
                format!("{what} leaves little of this machine's memory ({there})"),
            ),
        };
        problem.help(match larger {
            Some(_) => {
                let disk_bytes = good_bytes
                    .saturating_sub(wanted.value)
                    .saturating_mul(DISK_PER_MEMORY);
                format!(
                    "at most {} of disk here with that memory",
                    rounded_size(disk_bytes)
                )
            }
            None => format!(
                "at most {} here; 512 MiB is a good beginning",
                rounded_size(good_bytes)
            ),
        });
        problem.help("for another machine's file: `farhaul check-config --without-key`");
    }

    /// The same where the memory is as much as the disk needs.
    fn memory_by_disk(&self, config: &Config, written: &Written, problems: &mut Problems) {
        let store = &config.store;
        let disk = written.store.size.as_ref();
        let disk = disk.filter(|_| store.is_memory_by_disk);
        let Some((disk, there_bytes)) = disk.zip(self.memory_bytes) else {
            return;
        };
        let finding_bytes = disk.value / DISK_PER_MEMORY;
        let all_bytes = store.memory_bytes.saturating_add(finding_bytes);
        if all_bytes <= there_bytes / 4 * 3 {
            return;
        }
        let (disk_size, all) = (show_size(disk.value), rounded_size(all_bytes));
        let there = rounded_size(there_bytes);
        let what = format!("store.disk.size: {all} of memory for a disk of {disk_size}");
        let problem = match all_bytes > there_bytes {
            true => problems.error(
                disk.span.clone(),
                format!("{what} is more than this machine has ({there})"),
            ),
            false => problems.warning(
                disk.span.clone(),
                format!("{what} leaves little of this machine's memory ({there})"),
            ),
        };
        problem
            .help("a smaller disk, or less `store.memory`: it is half of that where none is given");
        problem.help("for another machine's file: `farhaul check-config --without-key`");
    }

    /// Only a warning: without a disk the gateway still does the rest.
    fn disk(&self, config: &Config, written: &Written, problems: &mut Problems) {
        let disk = config
            .store
            .disk
            .as_ref()
            .filter(|disk| disk.misplaced().is_none());
        let found = disk.and_then(|disk| (self.in_the_way)(&disk.path));
        if let Some((found, path)) = found.zip(written.store.path.as_ref()) {
            let found = found.display();
            let message =
                format!("store.disk.path: {found} is no folder, so nothing is kept on disk");
            let problem = problems.warning(path.span.clone(), message);
            problem.help("name a folder of its own, such as \"/var/lib/farhaul\"");
        }
    }
}

/// What is no folder of a path that should be one, or may become one.
fn in_the_way(path: &Path) -> Option<PathBuf> {
    let known = path
        .ancestors()
        .find_map(|path| Some((path, fs::metadata(path).ok()?)));
    let (path, facts) = known?;
    (!facts.is_dir()).then(|| path.to_owned())
}

/// All memory, of what proc(5) says of it.
fn total_bytes(facts: &str) -> Option<u64> {
    let line = facts
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::check_on;
    use crate::config::{LoadError, Loaded};

    fn checked(memory: &str, machine: &Machine<fn(&str) -> bool>) -> Result<Loaded, LoadError> {
        let text = include_str!("../../tests/config/good/everything.toml");
        let text = text.replace("\"1.5 GiB\"", memory);
        check_on(machine, &text, Path::new("/etc/farhaul/a.toml"), |_| None)
    }

    #[test]
    fn an_interface_that_is_not_there_is_pointed_at() {
        let machine = Machine::<fn(&str) -> bool> {
            interface_known: |name| name == "lan0",
            memory_bytes: None,
            in_the_way: |_| None,
        };
        let shown = checked("\"1 GiB\"", &machine).unwrap().warnings.to_string();
        let absent = "this machine has no `lan0.12` at the moment";
        assert!(shown.contains(absent), "{shown}");
        assert!(!shown.contains("has no `lan0` "), "{shown}");
    }

    #[test]
    fn memory_that_the_machine_does_not_have_is_refused() {
        let machine = Machine {
            memory_bytes: Some(8 << 30),
            ..Machine::elsewhere()
        };
        let refused = |memory: &str| checked(memory, &machine).unwrap_err().to_string();
        let shown = refused("\"9 GiB\"");
        assert!(
            shown.contains("error: store.memory: 9 GiB is more than this machine has (8.0 GiB)"),
            "{shown}"
        );
        assert!(shown.contains("at most 6.0 GiB here"), "{shown}");
        let warned = |memory: &str| checked(memory, &machine).unwrap().warnings.to_string();
        let shown = warned("\"7 GiB\"");
        assert!(
            shown.contains("warning: store.memory: 7 GiB leaves"),
            "{shown}"
        );
        assert!(!warned("\"6 GiB\"").contains("store.memory"));
        let elsewhere = checked("\"9 GiB\"", &Machine::elsewhere()).unwrap();
        assert!(!elsewhere.warnings.to_string().contains("store.memory"));
    }

    #[test]
    fn memory_for_what_is_on_disk_counts() {
        let machine = Machine {
            memory_bytes: Some(8 << 30),
            ..Machine::elsewhere()
        };
        let warned = |memory: &str, disk: &str| {
            let text = include_str!("../../tests/config/good/everything.toml");
            assert!(text.contains("\"200 GB\""));
            let text = text
                .replace("\"1.5 GiB\"", memory)
                .replace("\"200 GB\"", disk);
            let path = Path::new("/etc/farhaul/a.toml");
            let checked = check_on(&machine, &text, path, |_| None);
            checked.unwrap().warnings.to_string()
        };
        assert!(!warned("\"5 GiB\"", "\"200 GB\"").contains("store.memory"));
        let shown = warned("\"5 GiB\"", "\"2 TiB\"");
        let expected = "store.memory: 5 GiB and 2.6 GiB to find what is on disk leaves little";
        assert!(shown.contains(expected), "{shown}");
        let shown = warned("\"20 MB\"", "\"6 TB\"");
        let expected = "store.disk.size: 7.0 GiB to find what is on a disk of 5.5 TiB, and 19.1 MiB of store.memory, leaves little";
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.contains("at most 4.7 TiB of disk here"), "{shown}");
    }

    #[test]
    fn a_disk_alone_has_the_memory_that_it_needs() {
        let machine = Machine {
            memory_bytes: Some(8 << 30),
            ..Machine::elsewhere()
        };
        let with = |memory: &str, disk: &str| {
            let text = include_str!("../../tests/config/good/everything.toml");
            let given = text.lines().find(|line| line.starts_with("memory ="));
            let text = text.replace(given.unwrap(), memory).replace("200 GB", disk);
            check_on(&machine, &text, Path::new("/etc/farhaul/a.toml"), |_| None)
        };
        for (disk, memory_bytes) in [
            ("1 TB", 1_250_000_000),
            ("1 GB", 2 * (256 << 20)),
            ("300 MB", 300_000_000),
        ] {
            let loaded = with("", disk).unwrap();
            let store = &loaded.config.store;
            assert_eq!(loaded.config.peers.len(), 2);
            assert_eq!(
                (store.memory_bytes, store.is_memory_by_disk),
                (memory_bytes, true)
            );
            let shown = loaded.warnings.to_string();
            assert!(!shown.contains("store"), "{shown}");
            let printed = crate::config::print::full(&loaded.config);
            assert!(printed.contains("# by the size of the disk\n"), "{printed}");
        }
        let shown = with("", "3 TB").unwrap().warnings.to_string();
        let expected =
            "warning: store.disk.size: 7.0 GiB of memory for a disk of 2.7 TiB leaves little";
        assert!(shown.contains(expected), "{shown}");
        let shown = with("", "4 TB").unwrap_err().to_string();
        assert!(
            shown.contains("error: store.disk.size: 9.3 GiB of memory"),
            "{shown}"
        );
        let loaded = with("memory = \"0 B\"", "200 GB").unwrap();
        assert_eq!(loaded.config.store.memory_bytes, 0);
        let shown = loaded.warnings.to_string();
        assert!(
            shown.contains("a disk without memory has no effect"),
            "{shown}"
        );
    }

    #[test]
    fn a_disk_that_is_too_large_is_pointed_at_in_sizes_that_people_read() {
        let machine = Machine {
            memory_bytes: Some(8 << 30),
            ..Machine::elsewhere()
        };
        let text = include_str!("../../tests/config/good/everything.toml");
        let text = text.replace("\"200 GB\"", "\"10000 TB\"");
        let path = Path::new("/etc/farhaul/a.toml");
        let shown = check_on(&machine, &text, path, |_| None).unwrap_err();
        let shown = shown.to_string();
        let expected = "error: store.disk.size: 11.4 TiB to find what is on a disk of 9094.9 TiB, and 1536 MiB of store.memory, \
                        is more than this machine has (8.0 GiB)";
        assert!(shown.contains(expected), "{shown}");
        let shown = checked("\"100 TB\"", &machine).unwrap_err().to_string();
        let expected = "error: store.memory: 90.9 TiB is more than this machine has";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn what_is_no_folder_in_the_disks_place_is_told() {
        let file = std::env::temp_dir().join(format!("farhaul-no-folder-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        let machine = Machine {
            in_the_way,
            ..Machine::elsewhere()
        };
        let warned = |path: &Path| {
            let text = include_str!("../../tests/config/good/everything.toml");
            assert!(text.contains("\"segments\""));
            let text = text.replace("\"segments\"", &format!("\"{}\"", path.display()));
            let checked = check_on(&machine, &text, Path::new("/etc/a.toml"), |_| None);
            checked.unwrap().warnings.to_string()
        };
        let told = format!("warning: store.disk.path: {} is no folder", file.display());
        for path in [file.clone(), file.join("store")] {
            let shown = warned(&path);
            assert!(shown.contains(&told), "{shown}");
        }
        fs::remove_file(&file).unwrap();
        let shown = warned(&file.join("made/later"));
        assert!(!shown.contains("store.disk.path"), "{shown}");
    }

    #[test]
    fn a_disk_that_is_the_kernels_or_everybodys_is_told_on_any_machine() {
        let warned = |path: &str| {
            let text = include_str!("../../tests/config/good/everything.toml");
            let text = text.replace("\"segments\"", &format!("\"{path}\""));
            let checked = check_on(
                &Machine::elsewhere(),
                &text,
                Path::new("/etc/a.toml"),
                |_| None,
            );
            checked.unwrap().warnings.to_string()
        };
        for path in ["/dev/null", "/proc/foo", "/sys", "/etc/../proc/foo"] {
            let shown = warned(path);
            let expected = format!("store.disk.path: {path} belongs to the kernel");
            assert!(shown.contains(&expected), "{shown}");
        }
        assert!(warned("/").contains("store.disk.path: / is the root of all folders"));
        for path in ["/dev/shm/farhaul", "/process"] {
            assert!(!warned(path).contains("store.disk.path"), "{path}");
        }
    }

    #[test]
    fn what_no_machine_has_is_refused_everywhere() {
        for memory in ["\"8000000 TiB\"", "\"18446744073709551615 B\""] {
            let shown = checked(memory, &Machine::elsewhere())
                .unwrap_err()
                .to_string();
            assert!(
                shown.contains("more memory than a process can have"),
                "{shown}"
            );
        }
    }

    #[test]
    fn the_kernel_says_how_much_memory_there_is() {
        let facts = "MemTotal:       24684092 kB\nMemFree:        16339800 kB\n";
        assert_eq!(total_bytes(facts), Some(24_684_092 << 10));
        assert_eq!(total_bytes("MemTotal: many kB"), None);
        assert!(Machine::this().memory_bytes.unwrap() > 64 << 20);
    }
}
