//! The executor's thread pool: fork, static partition, join. It never allocates after it is made, and never decides how
//! a sum is split: a kernel's parts write disjoint outputs, so neither the number of threads nor who runs which part
//! changes a bit.
//!
//! Each part has a thread whose caches know it, but whoever is done takes over a part that nobody has begun: where cores
//! are shared with others, a thread that has none would hold up all the others for a time slice. How threads wait stands
//! in `wait.rs`, and in `cores.rs` how they find out that there are more of them than cores.

mod cores;
mod wait;

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use memfit_exec::recorder::now;

use crate::subnormal::FlushSubnormals;
use wait::{Forks, Join, Waiter};

type Job = *const (dyn Fn(usize) + Sync);

/// Threads that run a kernel together.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One fork at a time.
    turn: Mutex<()>,
}

struct Shared {
    forks: Forks,
    join: Join,
    /// For each part, the last fork in which somebody began it.
    begun: Box<[AtomicUsize]>,
    job: UnsafeCell<Option<Job>>,
    failed: AtomicBool,
    /// Whether somebody wants to know when threads are at work.
    is_timed: AtomicBool,
    /// For each thread, since timing began.
    times: Box<[WorkTime]>,
}

/// When a thread began its first part and ended its last, by [`now`]; it did none where both are 0.
#[derive(Default)]
#[repr(align(64))]
struct WorkTime {
    begin: AtomicU64,
    end: AtomicU64,
}

// SAFETY: `job` is written only by the forking thread while every part of the last fork is done, and read only by who has
// begun a part: after the fork that follows the write, and before that part is done.
unsafe impl Sync for Shared {}
// SAFETY: the job pointer refers to a `Sync` closure and is only used between a fork and its join.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool that runs kernels on `threads` threads, the caller's included.
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared::new(threads));
        let mut pool = Pool { shared: shared.clone(), workers: Vec::new(), turn: Mutex::new(()) };
        shared.join.expect(threads - 1);
        for index in 1..threads {
            let shared = shared.clone();
            let name = format!("memfit-cpu-{index}");
            pool.workers.push(std::thread::Builder::new().name(name).spawn(move || work(&shared, index))?);
        }
        // A thread allocates as it starts, and no fork would wait for one that comes late.
        pool.shared.join.wait(true);
        Ok(pool)
    }

    pub(crate) fn threads(&self) -> usize {
        self.shared.begun.len()
    }

    /// How often it has shared out work.
    pub(crate) fn forks(&self) -> usize {
        self.shared.forks.count()
    }

    /// Runs `body(0)`, …, `body(threads − 1)`, at once where there are cores for it, and returns when all are done.
    pub(crate) fn run(&self, body: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return body(0);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        // SAFETY: only the lifetime is erased. The join below returns after every part is done, also when one panics.
        let job: Job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(body) };
        // SAFETY: every part of the last fork is done, and those of the next cannot be begun yet.
        unsafe { *shared.job.get() = Some(job) };
        shared.join.expect(self.workers.len());
        let fork = shared.forks.fork();
        let mut panic = catch_unwind(AssertUnwindSafe(|| body(0))).err();
        if !shared.join.is_over() {
            panic = shared.run_parts(fork, 1, 0).or(panic);
            shared.join.wait(shared.forks.are_crowded());
        }
        let failed = shared.failed.swap(false, Ordering::Relaxed);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
        assert!(!failed, "a kernel panicked on another thread");
    }

    /// Runs something, and gives when each thread but the caller's was at work on it: its number, begin and end. Threads that had
    /// nothing to do are left out.
    pub(crate) fn timed<T>(&self, run: impl FnOnce() -> T) -> (T, impl Iterator<Item = (u16, u64, u64)>) {
        let shared = &*self.shared;
        shared.times.iter().for_each(|t| t.begin.store(0, Ordering::Relaxed));
        // The fork that follows makes both visible to its threads.
        shared.is_timed.store(true, Ordering::Relaxed);
        let done = run();
        shared.is_timed.store(false, Ordering::Relaxed);
        let times = shared.times.iter().enumerate().skip(1);
        let times = times.map(|(i, t)| (i as u16, t.begin.load(Ordering::Relaxed), t.end.load(Ordering::Relaxed)));
        (done, times.filter(|(_, begin, _)| *begin > 0))
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
        self.shared.forks.stop();
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
    let mut waiter = Waiter::new();
    shared.join.done();
    while let Some(fork) = waiter.next(&shared.forks) {
        drop(shared.run_parts(fork, index, index));
    }
}

impl Shared {
    fn new(parts: usize) -> Shared {
        Shared {
            forks: Forks::new(),
            join: Join::new(),
            begun: (0..parts).map(|_| AtomicUsize::new(0)).collect(),
            job: UnsafeCell::new(None),
            failed: AtomicBool::new(false),
            is_timed: AtomicBool::new(false),
            times: (0..parts).map(|_| WorkTime::default()).collect(),
        }
    }

    /// Runs a part of a fork and those after it, as far as nobody has begun them; the first part is the forking thread's. Gives
    /// the panic of one of them, if any did. `thread` is who runs them.
    fn run_parts(&self, fork: usize, first: usize, thread: usize) -> Option<Box<dyn std::any::Any + Send>> {
        let mut panic = None;
        for part in (first..self.begun.len()).chain(1..first) {
            if !self.begin(fork, part) {
                continue;
            }
            // SAFETY: this part of the fork is not done, so that the job is this fork's, and its closure is kept alive by the
            // forking thread.
            let body = unsafe { (*self.job.get()).map(|job| &*job) };
            let begin = self.is_timed.load(Ordering::Relaxed).then(now);
            if let Some(body) = body {
                panic = catch_unwind(AssertUnwindSafe(|| body(part))).err().or(panic);
            }
            if panic.is_some() {
                // Before the part is done: when all are, the forking thread looks.
                self.failed.store(true, Ordering::Relaxed);
            }
            if let Some(begin) = begin {
                self.times[thread].record(begin);
            }
            self.join.done();
        }
        panic
    }

    /// Whether a part is this thread's to run. Nobody is told so twice, and in no fork but the last: in each, every part goes
    /// from the number of the fork before to its own.
    fn begin(&self, fork: usize, part: usize) -> bool {
        let (begun, before) = (&self.begun[part], fork.wrapping_sub(1));
        begun.load(Ordering::Relaxed) == before
            && begun.compare_exchange(before, fork, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl WorkTime {
    /// A part that began then ends now. Only its own thread records, and others look when it is done.
    fn record(&self, begin: u64) {
        if self.begin.load(Ordering::Relaxed) == 0 {
            self.begin.store(begin.max(1), Ordering::Relaxed);
        }
        self.end.store(now(), Ordering::Relaxed);
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

    /// Each part counts once in each fork, whoever runs it.
    fn check_parts_run_once(pool: &Pool, forks: usize) {
        let counts: Vec<AtomicUsize> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
        for fork in 1..=forks {
            pool.run(&|t| _ = counts[t].fetch_add(1, Ordering::Relaxed));
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == fork), "{counts:?} in fork {fork}");
        }
    }

    #[test]
    fn every_part_is_run_once_with_many_more_threads_than_cores() {
        let pools: Vec<Pool> = (0..4).map(|_| Pool::new(16).unwrap()).collect();
        std::thread::scope(|scope| {
            for pool in &pools {
                scope.spawn(move || check_parts_run_once(pool, 300));
            }
        });
    }

    #[test]
    fn the_forking_thread_runs_every_part_where_no_worker_comes() {
        let parts = 5;
        let shared = Shared::new(parts);
        let order = Mutex::new(Vec::new());
        let body: &(dyn Fn(usize) + Sync) = &|t| order.lock().unwrap().push(t);
        // SAFETY: only the lifetime is erased, and nobody uses it after `body` is gone.
        unsafe { *shared.job.get() = Some(std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(body)) };
        shared.join.expect(parts - 1);
        let fork = shared.forks.fork();
        assert!(shared.run_parts(fork, 1, 0).is_none());
        assert!(shared.join.is_over());
        // Who comes too late finds nothing, in this fork or one before it.
        assert!(shared.run_parts(fork, 3, 3).is_none() && shared.run_parts(fork - 1, 2, 2).is_none());
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn threads_that_were_at_work_say_when() {
        let pool = Pool::new(3).unwrap();
        let before = now();
        let barrier = std::sync::Barrier::new(3);
        // Nobody can run the part of another.
        let ((), times) = pool.timed(|| (0..2).for_each(|_| pool.run(&|_| _ = barrier.wait())));
        let times: Vec<_> = times.collect();
        assert_eq!(times.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 2]);
        assert!(times.iter().all(|&(_, begin, end)| before <= begin && begin <= end && end <= now()), "{times:?}");
        let ((), nobody) = pool.timed(|| ());
        assert_eq!(nobody.count(), 0);
    }

    #[test]
    fn workers_that_slept_come_back() {
        let pool = Pool::new(4).unwrap();
        for pause in [0, 1, 5] {
            std::thread::sleep(std::time::Duration::from_millis(pause));
            check_parts_run_once(&pool, 20);
        }
    }

    #[test]
    fn a_panic_on_a_worker_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(2).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| pool.run(&|t| assert!(t == 0, "worker"))));
        assert!(result.is_err());
        pool.run(&|_| {});
    }
}
