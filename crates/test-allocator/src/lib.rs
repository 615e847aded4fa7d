//! An allocator that counts, for tests: what the process holds, and what each thread does. A test binary has it by
//! `#[global_allocator] static ALLOCATOR: Counting = Counting;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The system's allocator, and a count of what it is asked for.
pub struct Counting;

/// Whose allocations are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All threads: for a test that is alone in its binary.
    Process,
    /// The one that asks, so that tests beside each other do not count together.
    Thread,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The most bytes that it held at once, ...
    pub peak: i64,
    /// ... those that it left behind, ...
    pub kept: i64,
    /// ... and how often it allocated.
    pub calls: u64,
}

static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Bytes that are allocated and not freed, which is less than nothing where another thread allocated them; the most there
    /// ever were; and calls.
    static MINE: Cell<(i64, i64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// What a call does, and its result.
pub fn count<T>(who: Who, call: impl FnOnce() -> T) -> (T, Counts) {
    let (before, calls) = start(who);
    let result = call();
    let (live, peak, made) = now(who);
    (result, Counts { peak: peak - before, kept: live - before, calls: made - calls })
}

/// Has the peak begin anew.
fn start(who: Who) -> (i64, u64) {
    let (live, _, calls) = now(who);
    match who {
        Who::Process => PEAK.store(live, Ordering::SeqCst),
        Who::Thread => MINE.set((live, live, calls)),
    }
    (live, calls)
}

fn now(who: Who) -> (i64, i64, u64) {
    match who {
        Who::Process => (LIVE.load(Ordering::SeqCst), PEAK.load(Ordering::SeqCst), CALLS.load(Ordering::SeqCst)),
        Who::Thread => MINE.get(),
    }
}

fn add(bytes: usize, calls: u64) {
    let bytes = bytes as i64;
    let live = LIVE.fetch_add(bytes, Ordering::SeqCst) + bytes;
    PEAK.fetch_max(live, Ordering::SeqCst);
    CALLS.fetch_add(calls, Ordering::SeqCst);
    // A thread that ends has no counters any more.
    let _ = MINE.try_with(|mine| {
        let (live, peak, made) = mine.get();
        mine.set((live + bytes, peak.max(live + bytes), made + calls));
    });
}

fn remove(bytes: usize) {
    LIVE.fetch_sub(bytes as i64, Ordering::SeqCst);
    let _ = MINE.try_with(|mine| {
        let (live, peak, made) = mine.get();
        mine.set((live - bytes as i64, peak, made));
    });
}

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory but its counters.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there for a moment.
        add(size, 1);
        remove(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn what_a_call_holds_leaves_and_asks_for_is_counted() {
        let (kept, counts) = count(Who::Thread, || {
            drop(black_box(vec![0u8; 5000]));
            black_box(vec![1u8; 300])
        });
        assert_eq!((counts.peak, counts.kept, counts.calls), (5000, kept.len() as i64, 2));
        let (_, freed) = count(Who::Thread, || drop(kept));
        assert_eq!((freed.peak, freed.kept, freed.calls), (0, -300, 0));
        // What other threads do is the process's.
        let other = || std::thread::spawn(|| drop(black_box(vec![0u8; 1 << 20]))).join();
        let (done, counts) = count(Who::Process, other);
        assert!(done.is_ok() && counts.peak >= 1 << 20 && counts.calls > 0, "{counts:?}");
        let (_, counts) = count(Who::Thread, other);
        assert!(counts.peak < 1 << 20, "{counts:?}");
    }
}
