//! Which processors a study's own work is done on: not on the links'.
//!
//! A kernel that does not preempt itself stays on a processor for as long as it clears memory, and a link whose turn it is there is
//! late by that, whatever its priority. On a virtual machine that is given its memory page by page 32 MiB of one capture took 130 ms,
//! and 2 MiB of a file that a client writes 5 ms. So links have the last processor, gateways run wherever they like, for they take
//! their memory in small pages, and whoever writes or captures files is on the other processors.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::deployment::{LINK, Lab};
use crate::gateways::gateway_process;
use crate::process::ProcessId;
use crate::topology::Side;

/// Those of this thread, where there are two at least.
#[derive(Debug)]
pub(super) struct Processors {
    all: CpuSet,
    links: CpuSet,
    others: CpuSet,
}

impl Processors {
    /// None: there is nothing to choose from.
    pub(super) fn of_thread() -> Option<Self> {
        Self::of(sched_getaffinity(None).ok()?)
    }

    fn of(all: CpuSet) -> Option<Self> {
        let last = (0..CpuSet::MAX_CPU)
            .rev()
            .find(|number| all.is_set(*number))?;
        let (mut links, mut others) = (CpuSet::new(), all);
        links.set(last);
        others.unset(last);
        (others.count() > 0).then_some(Self { all, links, others })
    }

    /// Gives the lab's link the last processor, and its gateways all. Its servers stay where they were started.
    pub(super) fn share_out(&self, lab: &Lab) {
        let gateways = Side::BOTH.map(gateway_process);
        for record in &lab.sandbox().state().processes {
            if record.role == LINK {
                give(record.process, &self.links);
            } else if gateways.contains(&record.role.as_str()) {
                give(record.process, &self.all);
            }
        }
    }
}

/// Does work that takes memory, and starts programs that do, where no link is.
pub(super) fn apart<T>(processors: Option<&Processors>, work: impl FnOnce() -> T) -> T {
    let Some(processors) = processors else {
        return work();
    };
    // Where that fails it is done anywhere: a late link is seen.
    let _ = sched_setaffinity(None, &processors.others);
    let done = work();
    let _ = sched_setaffinity(None, &processors.all);
    done
}

/// To all threads of a process. One that has just ended needs nothing.
fn give(process: ProcessId, processors: &CpuSet) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid));
    let names = tasks.into_iter().flatten().flatten();
    let numbers = names.filter_map(|task| task.file_name().to_str()?.parse().ok());
    for thread in numbers.filter_map(Pid::from_raw) {
        let _ = sched_setaffinity(Some(thread), processors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for number in numbers {
            set.set(*number);
        }
        set
    }

    #[test]
    fn links_have_the_last_processor_of_two_at_least() {
        assert!(Processors::of(set(&[])).is_none());
        assert!(Processors::of(set(&[3])).is_none());
        let processors = Processors::of(set(&[1, 4, 6])).unwrap();
        assert_eq!(processors.links, set(&[6]));
        assert_eq!(processors.others, set(&[1, 4]));
    }

    #[test]
    fn work_apart_leaves_the_thread_as_it_was() {
        let before = sched_getaffinity(None).unwrap();
        let processors = Processors::of_thread();
        let during = apart(processors.as_ref(), || sched_getaffinity(None).unwrap());
        let expected = processors.map_or(before, |processors| processors.others);
        assert_eq!(during, expected);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
