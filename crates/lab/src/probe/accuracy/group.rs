//! A control group for some of a run's processes: to take processor time away
//! from them, and to know for how long they had to wait for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where hierarchies of version 2 are, alone and beside version 1.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// A group; removed when dropped, its processes go on one level higher.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
}

impl Group {
    pub(super) fn make(root: &Path, name: &str) -> io::Result<Self> {
        let path = root.join(format!("farhaul-{name}"));
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    pub(super) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.path.join(file), text)
    }

    /// Takes a process in, with all its threads.
    pub(super) fn add(&self, process: i32) -> io::Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group can go only when its processes have: they move up.
        let parent = self.path.parent().map(|parent| parent.join("cgroup.procs"));
        let inside = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for process in inside.lines() {
            let _ = parent.as_ref().map(|parent| fs::write(parent, process));
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// Pressure stall information of some processes (Linux,
/// `Documentation/accounting/psi.rst`).
#[derive(Debug)]
pub(super) struct Pressure(Group);

impl Pressure {
    /// `None` where the kernel does not count it.
    pub(super) fn of(name: &str) -> Option<Self> {
        let groups = UNIFIED.iter().filter_map(|root| {
            let is_there = Path::new(root).join("cgroup.procs").exists();
            let group = is_there.then(|| Group::make(Path::new(root), name).ok())?;
            group.map(Self)
        });
        groups.into_iter().find(|one| one.waited_s().is_some())
    }

    pub(super) fn add(&self, process: i32) -> io::Result<()> {
        self.0.add(process)
    }

    /// For how long at least one of them wanted a processor and had none.
    pub(super) fn waited_s(&self) -> Option<f64> {
        total_s(&fs::read_to_string(self.0.path.join("cpu.pressure")).ok()?)
    }
}

fn total_s(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some.split(' ').find_map(|word| word.strip_prefix("total="));
    Some(total?.parse::<f64>().ok()? / 1e6)
}

/// Processor time that the host of a virtual machine kept for others, in
/// seconds of one processor.
pub(super) fn stolen_s() -> Option<f64> {
    stolen_ticks(&fs::read_to_string("/proc/stat").ok()?).map(|ticks| ticks / TICKS_PER_SECOND)
}

/// What the kernel tells user space, whatever its own clock (`man 5 proc`).
const TICKS_PER_SECOND: f64 = 100.0;

fn stolen_ticks(stat: &str) -> Option<f64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    all.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let pressure = "some avg10=1.50 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total_s(pressure), Some(2.5));
        assert_eq!(total_s("nothing"), None);
        let stat = "cpu  82513 121922 11731 165611 562 0 460 77 0 0\ncpu0 1 2 3\n";
        assert_eq!(stolen_ticks(stat), Some(77.0));
        assert_eq!(stolen_ticks("cpu  1 2"), None);
    }
}
