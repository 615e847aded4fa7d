//! The executor's thread pool: fork, static partition, join. It never allocates after it is made, and never decides how
//! a sum is split: a kernel's parts write disjoint outputs, so the number of threads changes no bit.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::subnormal::FlushSubnormals;

/// Spins before a waiting worker goes to sleep: about 100 µs, longer than most kernels that one thread runs alone. A fork that
/// meets a sleeper takes 25 µs more.
const SPINS: usize = 20_000;

type Job = *const (dyn Fn(usize) + Sync);

/// Threads that run a kernel together.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One fork at a time.
    turn: Mutex<()>,
}

struct Shared {
    /// Counts the forks; a worker that sees a new number runs the job.
    epoch: AtomicUsize,
    /// Workers that still run the current job.
    pending: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    stop: AtomicBool,
    failed: AtomicBool,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written only by the forking thread while no worker runs (pending is 0), and read by workers only
// after the release store of `epoch` that follows the write.
unsafe impl Sync for Shared {}
// SAFETY: the job pointer refers to a `Sync` closure and is only used between a fork and its join.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool that runs kernels on `threads` threads, the caller's included.
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut pool = Pool { shared: shared.clone(), workers: Vec::new(), turn: Mutex::new(()) };
        for index in 1..threads.max(1) {
            let shared = shared.clone();
            let name = format!("memfit-cpu-{index}");
            pool.workers.push(std::thread::Builder::new().name(name).spawn(move || work(&shared, index))?);
        }
        Ok(pool)
    }

    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// How often it has shared out work.
    pub(crate) fn forks(&self) -> usize {
        self.shared.epoch.load(Ordering::Relaxed)
    }

    /// Runs `body(0)`, …, `body(threads − 1)` at once and returns when all are done.
    pub(crate) fn run(&self, body: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return body(0);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased. The join below returns after every worker has finished with the pointer,
        // also when body(0) panics.
        let job: Job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(body) };
        // SAFETY: no worker reads the job while pending is 0.
        unsafe { *shared.job.get() = Some(job) };
        shared.pending.store(self.workers.len(), Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
            shared.wake.notify_all();
        }
        let mine = catch_unwind(AssertUnwindSafe(|| body(0)));
        let mut spins = 0;
        while shared.pending.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let failed = shared.failed.swap(false, Ordering::Relaxed);
        if let Err(panic) = mine {
            std::panic::resume_unwind(panic);
        }
        assert!(!failed, "a kernel panicked on another thread");
    }

    /// Splits `0..n` into one contiguous part a thread, each a multiple of `grain` but for the last, and runs them at once.
    pub(crate) fn split(&self, n: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
        let threads = self.threads();
        if threads == 1 || n <= grain {
            if n > 0 {
                body(0..n);
            }
            return;
        }
        self.run(&|t| {
            let range = part(n, grain, threads, t);
            if !range.is_empty() {
                body(range);
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        {
            let _guard = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.wake.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker catches its panics, so that joining cannot fail.
            let _ = worker.join();
        }
    }
}

/// Part `t` of `0..n` cut into `parts` contiguous pieces at multiples of `grain`.
pub(crate) fn part(n: usize, grain: usize, parts: usize, t: usize) -> Range<usize> {
    let grain = grain.max(1);
    let grains = n.div_ceil(grain);
    let cut = |i: usize| (grains * i / parts * grain).min(n);
    cut(t)..cut(t + 1)
}

fn work(shared: &Shared, index: usize) {
    let _flushed = FlushSubnormals::new();
    let mut seen = 0;
    loop {
        seen = wait_for_fork(shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: written before the epoch that was just seen, and not changed before `pending` falls to 0.
        if let Some(job) = unsafe { *shared.job.get() } {
            // SAFETY: the forking thread keeps the closure alive until `pending` is 0.
            let body = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(|| body(index))).is_err() {
                shared.failed.store(true, Ordering::Relaxed);
            }
        }
        shared.pending.fetch_sub(1, Ordering::Release);
    }
}

fn wait_for_fork(shared: &Shared, seen: usize) -> usize {
    for _ in 0..SPINS {
        let epoch = shared.epoch.load(Ordering::SeqCst);
        if epoch != seen {
            return epoch;
        }
        std::hint::spin_loop();
    }
    let mut guard = shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    loop {
        let epoch = shared.epoch.load(Ordering::SeqCst);
        if epoch != seen {
            shared.sleepers.fetch_sub(1, Ordering::SeqCst);
            return epoch;
        }
        guard = shared.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A slice that several threads write in disjoint parts.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `range`, whose caller promises that parts are disjoint.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
// SAFETY: it stands for a `&mut [T]`, which is `Send` where T is.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Parts { start: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// The same of memory that threads name each for itself.
    ///
    /// # Safety
    /// There are `len` elements for as long as the parts live, and nobody has them but through [`Parts::range`].
    pub(crate) unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        Parts { start, len, life: PhantomData }
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// No two parts that live at once overlap.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part outside of its slice");
        // SAFETY: inside the slice by the assertion, disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        for (n, grain, parts) in [(0, 4, 3), (1, 4, 3), (17, 4, 2), (100, 1, 7), (5, 8, 3)] {
            let mut next = 0;
            for t in 0..parts {
                let r = part(n, grain, parts, t);
                assert_eq!(r.start, next);
                assert!(r.end == n || r.end.is_multiple_of(grain));
                next = r.end;
            }
            assert_eq!(next, n);
        }
    }

    #[test]
    fn many_forks_on_several_threads() {
        let pool = Pool::new(3).unwrap();
        let mut v = vec![0u32; 1000];
        for _ in 0..2000 {
            let parts = Parts::new(&mut v);
            // SAFETY: split gives disjoint ranges.
            pool.split(1000, 1, |r| unsafe { parts.range(r) }.iter_mut().for_each(|x| *x += 1));
        }
        assert!(v.iter().all(|&x| x == 2000));
    }

    #[test]
    fn a_pool_counts_its_forks() {
        let pool = Pool::new(2).unwrap();
        (0..5).for_each(|_| pool.run(&|_| {}));
        assert_eq!(pool.forks(), 5);
    }

    #[test]
    fn a_panic_on_a_worker_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(2).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| pool.run(&|t| assert!(t == 0, "worker"))));
        assert!(result.is_err());
        pool.run(&|_| {});
    }
}
