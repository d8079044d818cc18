//! Large pages for the index of a log. What is looked up lies anywhere in it: with small pages every first touch is a fault, and most
//! others wait for the table of pages as well. A log is written in order, where small pages are as good.
#![allow(unsafe_code)] // advice about memory that changes nothing in it

use farhaul_reduce::Memory;
use rustix::mm::{Advice, madvise};

const PAGE_BYTES: usize = 2 << 20;

/// Asks for large pages inside of an index. Where there are none everything works, slower.
pub(super) fn ask_for_large(what: Memory, start: *const u8, bytes: usize) {
    let skip = start.align_offset(PAGE_BYTES);
    let whole = bytes.saturating_sub(skip) / PAGE_BYTES * PAGE_BYTES;
    if what == Memory::Index && whole > 0 {
        let start = start.wrapping_add(skip).cast_mut();
        // SAFETY: whole pages inside of memory that the caller owns; what is in them stays.
        let _ = unsafe { madvise(start.cast(), whole, Advice::LinuxHugepage) };
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
}
