//! The allocator of this binary, which counts what each thread does.

use memfit_test_allocator::{Counting, Who, count};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that a call holds at once.
pub fn peak_of(call: impl FnOnce()) -> i64 {
    count(Who::Thread, call).1.peak
}

/// How often a call allocates.
pub fn allocations_of(call: impl FnOnce()) -> u64 {
    count(Who::Thread, call).1.calls
}
