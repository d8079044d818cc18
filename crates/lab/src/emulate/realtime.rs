//! Being on time: scheduling class, timer slack, locked memory.

// The scheduler and mlockall have no safe wrapper in the libraries used here.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;

/// Any real-time priority comes before everything that is not real-time; a
/// low one leaves room for what must come before us.
const PRIORITY: libc::c_int = 10;
/// Effective capability to lock memory, CAP_IPC_LOCK: capability.h.
const CAPABILITY_IPC_LOCK: u64 = 1 << 14;

/// Asks for the calling thread to run as soon as it is woken (SCHED_FIFO), and
/// to be woken without the default 50 us of timer slack.
pub(super) fn schedule_thread() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number. A refusal only costs accuracy.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    // SAFETY: zero is a valid value of this plain C structure.
    let mut parameter: libc::sched_param = unsafe { zeroed() };
    parameter.sched_priority = PRIORITY;
    // SAFETY: 0 is the calling thread; the pointer is to a live structure.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Keeps all memory of the process, present and future, from being paged out.
///
/// Only with CAP_IPC_LOCK: under a limit on locked memory a later allocation
/// would fail.
pub(super) fn lock_memory() -> io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let may = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .is_some_and(|effective| effective & CAPABILITY_IPC_LOCK != 0);
    if !may {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    // SAFETY: no pointers.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
