//! Large pages for the index of a log. What is looked up lies anywhere in it: with small pages every first touch is a fault, and most
//! others wait for the table of pages as well. A log is written in order, where small pages are as good.
//!
//! A large page is cleared when it is touched first. Of a large index that takes long (in a virtual machine two seconds for 700 MB, for
//! the host has to find the memory as well), and whoever sends first would wait for it. So a thread fetches the pages before.
#![allow(unsafe_code)] // advice about memory that changes nothing in it

use std::ptr::with_exposed_provenance_mut;
use std::thread;

use farhaul_reduce::Memory;
use rustix::mm::{Advice, madvise};

const PAGE_BYTES: usize = 2 << 20;

/// Asks for large pages inside of an index, and has them fetched. Where there are none everything works, slower.
pub(super) fn ask_for_large(what: Memory, start: *const u8, bytes: usize) {
    let skip = start.align_offset(PAGE_BYTES);
    let whole = bytes.saturating_sub(skip) / PAGE_BYTES * PAGE_BYTES;
    if what == Memory::Index && whole > 0 {
        let start = start.wrapping_add(skip).cast_mut();
        // SAFETY: whole pages inside of memory that the caller owns; what is in them stays.
        let _ = unsafe { madvise(start.cast(), whole, Advice::LinuxHugepage) };
        let address = start.expose_provenance();
        // Without the thread they come one by one.
        let _ = thread::Builder::new()
            .name("index pages".to_owned())
            .spawn(move || fetch(address, whole));
    }
}

/// Touches every page, one after the other. Kernels before Linux 5.14 refuse, later ones where memory is short.
fn fetch(address: usize, bytes: usize) {
    for page in (address..address + bytes).step_by(PAGE_BYTES) {
        let start = with_exposed_provenance_mut(page);
        // SAFETY: nothing in memory changes, whoever has it by now.
        let fetched = unsafe { madvise(start, PAGE_BYTES, Advice::LinuxPopulateWrite) };
        if fetched.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_memory_stays() {
        for bytes in [0, 100, PAGE_BYTES - 1, 3 * PAGE_BYTES + 17] {
            let memory = vec![7u8; bytes];
            ask_for_large(Memory::Index, memory.as_ptr(), memory.len());
            assert!(memory.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn what_is_fetched_stays() {
        let memory = vec![7u8; 4 * PAGE_BYTES];
        let start = memory
            .as_ptr()
            .wrapping_add(memory.as_ptr().align_offset(PAGE_BYTES));
        fetch(start.expose_provenance(), 2 * PAGE_BYTES);
        assert!(memory.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_is_not_there_is_left_alone() {
        fetch(PAGE_BYTES, usize::MAX >> 2);
    }
}
