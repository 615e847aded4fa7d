//! What elements were seen to need, by which new work is let in; and how many elements are made ahead.

use crate::dataset::Prefetch;

/// The most bytes that were seen.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// The batches of an element.
    pub batches: u64,
    /// Making one sample, the sample included.
    pub sample: Option<u64>,
    /// Making what is not a sample of a batch.
    pub rest: u64,
    /// What a recipe holds.
    pub recipe: u64,
    /// Whether any element was finished, so that these numbers are whole.
    pub complete: bool,
}

impl Needs {
    /// An element from beginning to end.
    pub(super) fn element(&self) -> u64 {
        let work = self.rest.max(self.sample.unwrap_or(0));
        self.batches.saturating_add(work).saturating_add(self.recipe)
    }
}

/// How many finished elements may wait.
#[derive(Debug)]
pub(super) struct PrefetchDepth {
    auto: bool,
    pub now: usize,
    /// Calls since the depth was looked at last, and the fewest that were ready in one.
    calls: usize,
    fewest: usize,
}

/// More than that were never seen to help, and each holds memory.
const MAX_DEPTH: usize = 64;
/// Calls after which it is known that one was never needed.
const WINDOW: usize = 32;

impl PrefetchDepth {
    pub(super) fn new(prefetch: Prefetch) -> PrefetchDepth {
        let (auto, now) = match prefetch {
            Prefetch::Auto => (true, 1),
            Prefetch::Depth(depth) => (false, depth),
        };
        PrefetchDepth { auto, now, calls: 0, fewest: usize::MAX }
    }

    /// The consumer asked when so many were ready; `room` says whether the pool has room for one more.
    pub(super) fn on_request(&mut self, ready: usize, room: bool) {
        if !self.auto {
            return;
        }
        (self.calls, self.fewest) = (self.calls + 1, self.fewest.min(ready));
        if ready == 0 && room && self.now < MAX_DEPTH {
            self.now += 1;
            (self.calls, self.fewest) = (0, usize::MAX);
        } else if self.calls == WINDOW {
            // One of them is taken by this very call; a second one stood there for nothing.
            if self.fewest >= 2 {
                self.now -= 1;
            }
            (self.calls, self.fewest) = (0, usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_follows_what_the_consumer_finds() {
        let mut depth = PrefetchDepth::new(Prefetch::Auto);
        depth.on_request(0, true);
        depth.on_request(0, true);
        assert_eq!(depth.now, 3);
        depth.on_request(0, false);
        assert_eq!(depth.now, 3, "the pool has no room");
        for _ in 0..WINDOW * 4 {
            depth.on_request(depth.now, true);
        }
        assert_eq!(depth.now, 1, "it never falls below one");
        for _ in 0..WINDOW * 4 {
            depth.on_request(1, true);
        }
        assert_eq!(depth.now, 1);
        for _ in 0..1000 {
            depth.on_request(0, true);
        }
        assert_eq!(depth.now, MAX_DEPTH);
        let mut fixed = PrefetchDepth::new(Prefetch::Depth(0));
        fixed.on_request(0, true);
        assert_eq!(fixed.now, 0);
    }
}
