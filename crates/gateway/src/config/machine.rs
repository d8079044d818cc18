//! What only the gateway's own machine can say of a file: whether it has these interfaces, and so much memory.

use std::fs;

use super::diagnose::Problems;
use super::units::write_size;
use super::written::Written;

/// For so many bytes of disk one byte of memory (`docs/design/disk-lookup.md`).
const DISK_PER_MEMORY: u64 = 800;

/// The machine that a file is for, as far as it is to be looked at.
pub(super) struct Machine<K> {
    /// Whether there is such an interface.
    pub(super) interface_known: K,
    /// Its memory, where that is known.
    pub(super) memory_bytes: Option<u64>,
}

impl Machine<fn(&str) -> bool> {
    /// The one this runs on.
    pub(super) fn this() -> Self {
        let facts = fs::read_to_string("/proc/meminfo");
        Self {
            interface_known: |name| nix::net::if_::if_nametoindex(name).is_ok(),
            memory_bytes: facts.ok().and_then(|facts| total_bytes(&facts)),
        }
    }

    /// Another one, of which nothing is known.
    pub(super) fn elsewhere() -> Self {
        Self {
            interface_known: |_| true,
            memory_bytes: None,
        }
    }
}

impl<K: Fn(&str) -> bool> Machine<K> {
    /// Reports what the file wants and the machine does not have.
    pub(super) fn lacks(&self, written: &Written, problems: &mut Problems) {
        self.interfaces(written, problems);
        self.memory(written, problems);
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
        let disk_bytes = disk.map(|disk| disk.value / DISK_PER_MEMORY);
        // Of any other it is not worth a word.
        let disk_bytes = disk_bytes.filter(|bytes| *bytes > there_bytes / 20);
        let all_bytes = wanted.value.saturating_add(disk_bytes.unwrap_or(0));
        let (mut size, there) = (write_size(wanted.value), gib(there_bytes));
        if let Some(disk_bytes) = disk_bytes {
            size += &format!(" and {} to find what is on disk", gib(disk_bytes));
        }
        let problem = if all_bytes > there_bytes {
            let message = format!("store.memory: {size} is more than this machine has ({there})");
            problems.error(wanted.span.clone(), message)
        } else if all_bytes > there_bytes / 4 * 3 {
            let message =
                format!("store.memory: {size} leaves little of this machine's memory ({there})");
            problems.warning(wanted.span.clone(), message)
        } else {
            return;
        };
        problem.help(format!(
            "at most {} here; 512 MiB is a good beginning",
            gib(there_bytes / 4 * 3)
        ));
        problem.help("for another machine's file: `farhaul check-config --without-key`");
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
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
    use std::path::Path;

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
