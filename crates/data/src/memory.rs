//! Host memory by the byte: one [`BytePool`] for a pipeline, from which everything it holds is drawn and to which it
//! returns by drop. A pool never gives more than it has: whoever finds it empty gets [`NoRoom`], lets go of what it
//! has, and is run again later. That is possible because every element can be made again from its recipe.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The pool has not so many bytes left at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for {wanted} bytes beside the {used} that are in use")]
pub struct NoRoom {
    /// The bytes that were asked for.
    pub wanted: u64,
    /// The bytes that were in use.
    pub used: u64,
    /// The bytes of those that whoever asked holds himself, where that is measured.
    pub own: u64,
}

/// A budget of host memory in bytes, shared by all clones of the pool.
///
/// Everything that a pipeline holds is drawn from a pool and goes back by drop. A pool is a ledger: it counts bytes and
/// allocates nothing by itself, but for [`buffer`](BytePool::buffer) and [`copy`](BytePool::copy). It never gives more
/// than its limit, and never blocks: whoever finds no room gets [`NoRoom`], which a map function or a source passes on
/// with `?` and is run again later.
///
/// ```
/// use memfit_data::BytePool;
///
/// let pool = BytePool::new(100);
/// let lease = pool.reserve(60)?;
/// assert!(pool.reserve(60).is_err());
/// drop(lease);
/// assert_eq!((pool.used(), pool.free(), pool.high_water()), (0, 100, 60));
/// # Ok::<(), memfit_data::NoRoom>(())
/// ```
#[derive(Clone, Debug)]
pub struct BytePool {
    shared: Arc<Shared>,
    meter: Option<Arc<Meter>>,
}

#[derive(Debug)]
struct Shared {
    limit: AtomicU64,
    used: AtomicU64,
    /// The most that was ever used at once.
    high_water: AtomicU64,
    /// Counts returns and notifications, so that a waiter misses none.
    events: AtomicU64,
    /// Those who wait for anything, and those among them who wait for bytes: nobody is woken for nothing.
    waiting: AtomicUsize,
    waiting_for_bytes: AtomicUsize,
    sleepers: Mutex<()>,
    changed: Condvar,
    evictables: Mutex<Vec<Weak<dyn Evictable>>>,
}

/// Who holds bytes of a pool only as long as nobody needs them for work: the caches of a pipeline.
pub(crate) trait Evictable: Send + Sync {
    /// Returns so many bytes, if it has them.
    fn evict(&self, bytes: u64);

    /// Returns all it has, and takes no more.
    fn evict_all(&self);
}

impl BytePool {
    /// A pool of `limit` bytes.
    pub fn new(limit: u64) -> BytePool {
        let shared = Shared {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            high_water: AtomicU64::new(0),
            events: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiting_for_bytes: AtomicUsize::new(0),
            sleepers: Mutex::new(()),
            changed: Condvar::new(),
            evictables: Mutex::new(Vec::new()),
        };
        BytePool { shared: Arc::new(shared), meter: None }
    }

    /// The most bytes that may be in use.
    pub fn limit(&self) -> u64 {
        self.shared.limit.load(Ordering::SeqCst)
    }

    /// Has no more than so many bytes from now on, if no more are in use; says whether that is so.
    pub fn shrink(&self, limit: u64) -> bool {
        let before = self.shared.limit.fetch_min(limit, Ordering::SeqCst);
        let fits = self.used() <= limit;
        if !fits {
            self.shared.limit.store(before, Ordering::SeqCst);
        }
        fits
    }

    /// The bytes that are in use.
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::SeqCst)
    }

    /// The bytes that are left.
    pub fn free(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// The most bytes that were ever in use at once.
    pub fn high_water(&self) -> u64 {
        self.shared.high_water.load(Ordering::Relaxed)
    }

    /// Reserves bytes for as long as the lease lives. What they are for is allocated by the caller.
    ///
    /// # Errors
    /// [`NoRoom`] where fewer are left.
    pub fn reserve(&self, bytes: u64) -> Result<Lease, NoRoom> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit());
        let before = self
            .shared
            .used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .map_err(|used| self.record_miss(NoRoom { wanted: bytes, used, own: self.own() }))?;
        if before + bytes > self.high_water() {
            self.shared.high_water.fetch_max(before + bytes, Ordering::Relaxed);
        }
        if let Some(meter) = &self.meter {
            meter.add(bytes);
        }
        Ok(Lease { pool: self.clone(), bytes })
    }

    /// That there is no room for so many bytes, whoever says so.
    pub(crate) fn no_room(&self, wanted: u64) -> NoRoom {
        NoRoom { wanted, used: self.used(), own: self.own() }
    }

    /// What was drawn through this handle, where that is measured.
    pub(crate) fn own(&self) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.held_bytes())
    }

    fn record_miss(&self, no_room: NoRoom) -> NoRoom {
        if let Some(meter) = &self.meter {
            meter.peak.fetch_max(meter.held_bytes().saturating_add(no_room.wanted), Ordering::Relaxed);
        }
        no_room
    }

    /// A buffer of so many bytes, all zero. It takes whole words of 8 bytes from the pool.
    ///
    /// # Errors
    /// [`NoRoom`] where fewer are left.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer, NoRoom> {
        let words = bytes.div_ceil(WORD);
        let lease = self.reserve(rounded(bytes))?;
        Ok(Buffer { words: vec![0; words], bytes, _lease: lease })
    }

    /// A buffer with a copy of these bytes.
    ///
    /// # Errors
    /// [`NoRoom`] where fewer are left.
    pub fn copy(&self, bytes: &[u8]) -> Result<Buffer, NoRoom> {
        let lease = self.reserve(rounded(bytes.len()))?;
        let (whole, rest) = bytes.as_chunks::<WORD>();
        let mut words = Vec::with_capacity(bytes.len().div_ceil(WORD));
        words.extend(whole.iter().map(|word| u64::from_ne_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            words.push(u64::from_ne_bytes(last));
        }
        Ok(Buffer { words, bytes: bytes.len(), _lease: lease })
    }

    /// Another handle of the same pool, which measures what is drawn through it.
    pub(crate) fn metered(&self) -> (BytePool, Arc<Meter>) {
        let meter = Arc::new(Meter::default());
        (BytePool { shared: self.shared.clone(), meter: Some(meter.clone()) }, meter)
    }

    /// How often bytes came back or [`BytePool::notify`] was called so far; for [`BytePool::wait`].
    pub(crate) fn events(&self) -> u64 {
        self.shared.events.load(Ordering::SeqCst)
    }

    /// Waits until it is notified, or with `wants_bytes` until bytes come back, after `seen` was read. May return early:
    /// the caller looks again.
    pub(crate) fn wait(&self, seen: u64, wants_bytes: bool) {
        self.wait_with(seen, wants_bytes, |sleepers| {
            drop(self.shared.changed.wait(sleepers));
        });
    }

    /// The same, but for so long at most; whether it was so long.
    pub(crate) fn wait_at_most(&self, seen: u64, longest: Duration) -> bool {
        let mut is_late = false;
        self.wait_with(seen, false, |sleepers| {
            let waited = self.shared.changed.wait_timeout(sleepers, longest);
            is_late = waited.is_ok_and(|(_, timeout)| timeout.timed_out());
        });
        is_late
    }

    fn wait_with<'a>(&'a self, seen: u64, wants_bytes: bool, sleep: impl FnOnce(MutexGuard<'a, ()>)) {
        let shared = &*self.shared;
        let sleepers = self.sleepers();
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        shared.waiting_for_bytes.fetch_add(wants_bytes as usize, Ordering::SeqCst);
        // Who returns bytes first counts and then looks for sleepers; who sleeps does it the other way round. So one of
        // the two sees the other.
        if shared.events.load(Ordering::SeqCst) == seen {
            sleep(sleepers);
        }
        shared.waiting_for_bytes.fetch_sub(wants_bytes as usize, Ordering::SeqCst);
        shared.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes all who wait.
    pub(crate) fn notify(&self) {
        self.shared.events.fetch_add(1, Ordering::SeqCst);
        if self.shared.waiting.load(Ordering::SeqCst) > 0 {
            let _sleepers = self.sleepers();
            self.shared.changed.notify_all();
        }
    }

    /// Others who draw from this pool may ask it for bytes, as long as it lives.
    pub(crate) fn add_evictable(&self, evictable: Weak<dyn Evictable>) {
        let mut evictables = self.lock_evictables();
        evictables.retain(|evictable| evictable.strong_count() > 0);
        evictables.push(evictable);
    }

    pub(crate) fn evictables(&self) -> Vec<Arc<dyn Evictable>> {
        self.lock_evictables().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock_evictables(&self) -> MutexGuard<'_, Vec<Weak<dyn Evictable>>> {
        // A list is sound after each of its operations.
        self.shared.evictables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleepers(&self) -> MutexGuard<'_, ()> {
        // It guards nothing but the moment of falling asleep.
        self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was drawn through one handle of a pool.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    held: AtomicU64,
    peak: AtomicU64,
}

impl Meter {
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The most that was held at once, or would have been if there had been room.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(held, Ordering::Relaxed);
    }
}

/// The right to hold a number of bytes of a [`BytePool`]. Dropping it gives them back.
#[derive(Debug)]
pub struct Lease {
    pool: BytePool,
    bytes: u64,
}

impl Lease {
    /// How many bytes it is for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves `by` bytes more on the same lease.
    ///
    /// # Errors
    /// [`NoRoom`] where fewer are left; the lease stays as it was.
    pub fn grow(&mut self, by: u64) -> Result<(), NoRoom> {
        let mut more = self.pool.reserve(by)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let shared = &*self.pool.shared;
        if let Some(meter) = &self.pool.meter {
            meter.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        shared.used.fetch_sub(self.bytes, Ordering::SeqCst);
        shared.events.fetch_add(1, Ordering::SeqCst);
        if shared.waiting_for_bytes.load(Ordering::SeqCst) > 0 {
            let _sleepers = self.pool.sleepers();
            shared.changed.notify_all();
        }
    }
}

const WORD: usize = 8;

/// What a buffer of this many bytes takes from its pool.
pub(crate) fn rounded(bytes: usize) -> u64 {
    (bytes as u64).saturating_add(WORD as u64 - 1) & !(WORD as u64 - 1)
}

/// Memory drawn from a [`BytePool`], aligned for every number type. Dropping it gives its bytes back.
#[derive(Debug)]
pub struct Buffer {
    words: Vec<u64>,
    bytes: usize,
    _lease: Lease,
}

impl Buffer {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// Forgets what lies behind the first `bytes`. The memory is still held, and so is the lease.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_what_it_has_and_no_more() {
        let pool = BytePool::new(100);
        let mut a = pool.reserve(60).expect("there is room");
        assert_eq!(pool.reserve(41).err(), Some(NoRoom { wanted: 41, used: 60, own: 0 }));
        a.grow(40).expect("there is room");
        assert_eq!((a.bytes(), pool.used(), pool.free(), a.grow(1).is_err()), (100, 100, 0, true));
        drop(a);
        assert_eq!((pool.used(), pool.high_water(), pool.events()), (0, 100, 1));
        assert!(pool.reserve(u64::MAX).is_err());
    }

    #[test]
    fn a_pool_shrinks_to_what_is_in_use_and_no_further() {
        let pool = BytePool::new(100);
        let held = pool.reserve(60).expect("there is room");
        assert!(!pool.shrink(59) && pool.shrink(60) && pool.shrink(200));
        assert_eq!((pool.limit(), pool.free()), (60, 0));
        drop(held);
        assert!(pool.reserve(61).is_err() && pool.reserve(60).is_ok());
    }

    #[test]
    fn a_buffer_is_zero_aligned_and_counted_in_whole_words() {
        let pool = BytePool::new(16);
        let mut buffer = pool.buffer(12).expect("there is room");
        assert_eq!((buffer.bytes(), pool.used()), (&[0u8; 12][..], 16));
        bytemuck::cast_slice_mut::<u8, f32>(buffer.bytes_mut())[2] = 1.0;
        assert_eq!(buffer.bytes()[8..], 1f32.to_le_bytes());
        assert!(pool.buffer(1).is_err());
        drop(buffer);
        for len in 0..=16 {
            let bytes: Vec<u8> = (1..=len).collect();
            assert_eq!(pool.copy(&bytes).expect("there is room").bytes(), bytes);
        }
    }

    #[test]
    fn a_meter_counts_what_goes_through_its_handle() {
        let pool = BytePool::new(100);
        let _other = pool.reserve(10).expect("there is room");
        let (metered, meter) = pool.metered();
        let mut a = metered.reserve(20).expect("there is room");
        a.grow(5).expect("there is room");
        drop(metered.reserve(30).expect("there is room"));
        assert_eq!((meter.held_bytes(), meter.peak(), pool.used()), (25, 55, 35));
        assert_eq!(metered.reserve(70).err(), Some(NoRoom { wanted: 70, used: 35, own: 25 }));
        assert_eq!(meter.peak(), 95, "what was missed counts");
        drop(a);
        assert_eq!((meter.held_bytes(), pool.used()), (0, 10));
    }

    #[test]
    fn who_waits_for_bytes_is_woken_by_their_return() {
        let pool = BytePool::new(8);
        let lease = pool.reserve(8).expect("there is room");
        let waiter = std::thread::spawn({
            let pool = pool.clone();
            move || loop {
                let seen = pool.events();
                if let Ok(lease) = pool.reserve(8) {
                    return lease.bytes();
                }
                pool.wait(seen, true);
            }
        });
        drop(lease);
        assert_eq!(waiter.join().expect("it ends"), 8);
    }
}
