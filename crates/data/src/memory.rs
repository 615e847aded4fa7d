//! Host memory by the byte: one [`BytePool`] for a pipeline, from which everything it holds is drawn and to which it
//! returns by drop. A pool never gives more than it has: whoever finds it empty gets [`NoRoom`], lets go of what it has,
//! and is run again later. That is possible because every element can be made again from its recipe.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The pool has not so many bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for {wanted} bytes")]
pub struct NoRoom {
    pub wanted: u64,
}

/// A number of bytes that is shared by all who hold the pool.
#[derive(Clone, Debug)]
pub struct BytePool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
    /// The most that was ever used at once.
    high_water: AtomicU64,
    /// Counts returns, so that a waiter misses none.
    returns: Mutex<u64>,
    changed: Condvar,
}

impl BytePool {
    pub fn new(limit: u64) -> BytePool {
        let (used, high_water) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Shared { limit, used, high_water, returns: Mutex::new(0), changed: Condvar::new() };
        BytePool { shared: Arc::new(shared) }
    }

    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// The most that was ever used at once.
    pub fn high_water(&self) -> u64 {
        self.shared.high_water.load(Ordering::Relaxed)
    }

    pub fn take(&self, bytes: u64) -> Result<Lease, NoRoom> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.shared.limit);
        match self.shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(before) => {
                self.shared.high_water.fetch_max(before + bytes, Ordering::Relaxed);
                Ok(Lease { pool: self.clone(), bytes })
            }
            Err(_) => Err(NoRoom { wanted: bytes }),
        }
    }

    /// Zeroes of this many bytes.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer, NoRoom> {
        let words = bytes.div_ceil(WORD);
        let lease = self.take((words * WORD) as u64)?;
        Ok(Buffer { words: vec![0; words], bytes, _lease: lease })
    }

    /// How often bytes came back so far; for [`BytePool::wait`].
    pub fn returns(&self) -> u64 {
        *self.locked()
    }

    /// Waits until bytes have come back more often than `seen`, or the time is over.
    pub fn wait(&self, seen: u64, at_most: Duration) {
        let returns = self.locked();
        // Whether it is over or not, the caller looks again.
        drop(self.shared.changed.wait_timeout_while(returns, at_most, |n| *n == seen));
    }

    fn locked(&self) -> MutexGuard<'_, u64> {
        // A count is sound whatever its holder was doing when it failed.
        self.shared.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to hold a number of bytes, until it is dropped.
#[derive(Debug)]
pub struct Lease {
    pool: BytePool,
    bytes: u64,
}

impl Lease {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more on the same lease.
    pub fn grow(&mut self, by: u64) -> Result<(), NoRoom> {
        let mut more = self.pool.take(by)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
            *self.pool.locked() += 1;
            self.pool.shared.changed.notify_all();
        }
    }
}

const WORD: usize = 8;

/// Bytes of a pool, aligned for every number type.
#[derive(Debug)]
pub struct Buffer {
    words: Vec<u64>,
    bytes: usize,
    _lease: Lease,
}

impl Buffer {
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_what_it_has_and_no_more() {
        let pool = BytePool::new(100);
        let mut a = pool.take(60).expect("there is room");
        assert_eq!(pool.take(41).err(), Some(NoRoom { wanted: 41 }));
        a.grow(40).expect("there is room");
        assert_eq!((a.bytes(), pool.used(), a.grow(1).is_err()), (100, 100, true));
        drop(a);
        assert_eq!((pool.used(), pool.high_water(), pool.returns()), (0, 100, 1));
        assert!(pool.take(u64::MAX).is_err());
    }

    #[test]
    fn a_buffer_is_zero_aligned_and_counted_in_whole_words() {
        let pool = BytePool::new(16);
        let mut buffer = pool.buffer(12).expect("there is room");
        assert_eq!((buffer.bytes(), pool.used()), (&[0u8; 12][..], 16));
        bytemuck::cast_slice_mut::<u8, f32>(buffer.bytes_mut())[2] = 1.0;
        assert_eq!(buffer.bytes()[8..], 1f32.to_le_bytes());
        assert!(pool.buffer(1).is_err());
    }
}
