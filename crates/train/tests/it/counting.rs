//! An allocator that counts what each thread does, for the whole binary that has this module.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed, the most there ever were, and how often it allocated.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size() as i64);
        PEAK.set(PEAK.get().max(LIVE.get()));
        CALLS.set(CALLS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The most bytes that a call holds at once.
pub fn peak_of(call: impl FnOnce()) -> i64 {
    let before = LIVE.get();
    PEAK.set(before);
    call();
    PEAK.get() - before
}

/// How often a call allocates.
pub fn allocations_of(call: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    call();
    CALLS.get() - before
}
