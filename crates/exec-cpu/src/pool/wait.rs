//! How threads of the pool wait: they spin while that is shorter than a sleep, and then sleep, so that no core is burnt that
//! somebody else may need. Nothing here knows what is run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cores::{self, Share};

/// How long a thread spins before it sleeps: longer than most kernels that one thread runs alone, and four times what it
/// takes to wake a sleeper.
const SPIN: Duration = Duration::from_micros(100);
/// How long the forking thread spins where every worker has a core: what they have begun is soon done, and parts are not all
/// of the same length.
const LONG_SPIN: Duration = Duration::from_millis(2);
/// A spinning thread to which so much is lost between two looks at the clock was without its core.
const GAP: Duration = Duration::from_micros(200);
/// Spins between two looks at the clock, which take as long as one or two spins.
const SPINS: usize = 32;
/// Waits between two looks at how much of its core a worker gets.
const LOOK_EVERY: u32 = 16;
/// A worker that loses more than this share of its core lets the other threads do its parts for a while.
const MOST_LOST: f64 = 0.25;
/// One that loses more than this is not soon done.
const SOME_LOST: f64 = 0.1;
/// For how long, at first, and after many times in a row.
const SHORTEST_REST: Duration = Duration::from_millis(5);
const LONGEST_REST: Duration = Duration::from_millis(160);

const NO_CORE: usize = usize::MAX;

/// What workers wait for.
pub(super) struct Forks {
    count: AtomicUsize,
    stop: AtomicBool,
    /// Workers that sleep until there is a fork.
    sleepers: AtomicUsize,
    /// Workers that others take cores from.
    crowded: AtomicUsize,
    /// On which core the last fork was made that found sleepers, or `NO_CORE`.
    core: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
    /// Wakes those that rest, whom no fork wakes.
    end: Condvar,
}

impl Forks {
    pub(super) fn new() -> Forks {
        Forks {
            count: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            crowded: AtomicUsize::new(0),
            core: AtomicUsize::new(NO_CORE),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            end: Condvar::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of a new fork, of which workers know when this returns.
    pub(super) fn fork(&self) -> usize {
        let fork = self.count.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.core.store(cores::current().unwrap_or(NO_CORE), Ordering::Relaxed);
            // Who is about to sleep has the lock until it does.
            drop(self.locked());
            self.wake.notify_all();
        }
        fork
    }

    /// Ends the waiting of all workers.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(self.locked());
        self.wake.notify_all();
        self.end.notify_all();
    }

    /// Whether others take cores from some worker.
    pub(super) fn are_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed) > 0
    }

    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// One worker's waiting for forks.
pub(super) struct Waiter {
    seen: usize,
    waits: u32,
    share: Share,
    is_crowded: bool,
    rest: Duration,
}

impl Waiter {
    pub(super) fn new() -> Waiter {
        Waiter { seen: 0, waits: 0, share: Share::new(), is_crowded: false, rest: SHORTEST_REST }
    }

    /// The number of the next fork; none when there will be no more.
    pub(super) fn next(&mut self, forks: &Forks) -> Option<usize> {
        self.waits = self.waits.wrapping_add(1);
        if self.waits.is_multiple_of(LOOK_EVERY)
            && let Some(lost) = self.share.lost()
        {
            self.heed(forks, lost);
        }
        let seen = self.seen;
        let is_over = || forks.count.load(Ordering::SeqCst) != seen;
        // On the forking thread's core it would only be in the way of what it waits for.
        let pays = || cores::current() != Some(forks.core.load(Ordering::Relaxed));
        if !spin(SPIN, is_over, pays) {
            self.share.pause();
            let mut guard = forks.locked();
            forks.sleepers.fetch_add(1, Ordering::SeqCst);
            while !is_over() {
                guard = forks.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            forks.sleepers.fetch_sub(1, Ordering::SeqCst);
            drop(guard);
            self.share.resume();
        }
        self.seen = forks.count.load(Ordering::SeqCst);
        (!forks.has_stopped()).then_some(self.seen)
    }

    /// Does what is best after a share of its core was lost.
    fn heed(&mut self, forks: &Forks, lost: f64) {
        let is_crowded = lost > SOME_LOST;
        match (self.is_crowded, is_crowded) {
            (false, true) => _ = forks.crowded.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = forks.crowded.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        self.is_crowded = is_crowded;
        if lost > MOST_LOST {
            self.rest(forks);
        } else {
            self.rest = SHORTEST_REST;
        }
    }

    /// Sleeps through some forks. The longer the others have needed the core, the longer.
    fn rest(&mut self, forks: &Forks) {
        let (start, rest) = (Instant::now(), self.rest);
        let mut guard = forks.locked();
        while let Some(left) = rest.checked_sub(start.elapsed()).filter(|_| !forks.has_stopped()) {
            guard = forks.end.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(guard);
        self.rest = (2 * rest).min(LONGEST_REST);
        self.share = Share::new();
    }
}

/// What the forking thread waits for.
pub(super) struct Join {
    /// Parts that are not done.
    pending: AtomicUsize,
    is_asleep: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Join {
    pub(super) fn new() -> Join {
        Join {
            pending: AtomicUsize::new(0),
            is_asleep: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Before a fork into so many parts.
    pub(super) fn expect(&self, parts: usize) {
        self.pending.store(parts, Ordering::Relaxed);
    }

    /// A part is done.
    pub(super) fn done(&self) {
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_asleep.load(Ordering::SeqCst) {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_one();
        }
    }

    /// Whether every part is done.
    pub(super) fn is_over(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    /// Returns when every part is done.
    pub(super) fn wait(&self, are_crowded: bool) {
        let most = if are_crowded { SPIN } else { LONG_SPIN };
        if spin(most, || self.is_over(), || true) {
            return;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_asleep.store(true, Ordering::SeqCst);
        while !self.is_over() {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}

/// Whether what is waited for comes before a sleep would be better.
fn spin(most: Duration, is_over: impl Fn() -> bool, pays: impl Fn() -> bool) -> bool {
    // When it began, and when the clock was last looked at.
    let mut times: Option<(Instant, Instant)> = None;
    loop {
        for _ in 0..SPINS {
            if is_over() {
                return true;
            }
            std::hint::spin_loop();
        }
        let now = Instant::now();
        let (start, last) = times.unwrap_or((now, now));
        if now - start > most || now - last > GAP || !pays() {
            return is_over();
        }
        times = Some((start, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn spinning_ends_with_what_is_waited_for_or_when_it_does_not_pay() {
        let looks = AtomicU32::new(0);
        let after = |n: u32| looks.fetch_add(1, Ordering::Relaxed) >= n;
        assert!(spin(Duration::MAX, || after(3), || true));
        assert!(!spin(Duration::MAX, || false, || false));
        assert!(!spin(Duration::ZERO, || false, || true));
    }

    #[test]
    fn a_worker_that_loses_its_core_rests_longer_and_longer_and_says_so() {
        let (forks, mut waiter) = (Forks::new(), Waiter::new());
        // Nobody sleeps in this test.
        forks.stop();
        let mut check = |lost: f64, rest: Duration, are_crowded: bool| {
            waiter.heed(&forks, lost);
            assert_eq!((waiter.rest, forks.are_crowded()), (rest, are_crowded), "{lost}");
        };
        check(0.02, SHORTEST_REST, false);
        check(0.2, SHORTEST_REST, true);
        check(0.5, 2 * SHORTEST_REST, true);
        check(0.5, 4 * SHORTEST_REST, true);
        [8, 16, 32, 32, 32].iter().for_each(|&n| check(0.5, n * SHORTEST_REST, true));
        check(0.02, SHORTEST_REST, false);
    }

    #[test]
    fn a_join_wakes_who_sleeps() {
        let join = Join::new();
        join.expect(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| join.wait(true));
            std::thread::sleep(5 * SPIN);
            assert!(!join.is_over());
            join.done();
            waiting.join().unwrap();
        });
        assert!(join.is_over());
    }

    #[test]
    fn a_fork_and_the_end_wake_who_sleeps() {
        let forks = Forks::new();
        let (found, finds) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut waiter = Waiter::new();
                while let Some(fork) = waiter.next(&forks) {
                    found.send(fork).unwrap();
                }
            });
            std::thread::sleep(5 * SPIN);
            let fork = forks.fork();
            assert_eq!(finds.recv(), Ok(fork));
            std::thread::sleep(5 * SPIN);
            forks.stop();
            worker.join().unwrap();
        });
        assert!(finds.try_recv().is_err());
    }
}
