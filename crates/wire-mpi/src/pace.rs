//! How a thread waits that has to look again and again: at once where something moves, and later and later where nothing does, so
//! that it takes no core from whoever computes meanwhile.

use std::time::{Duration, Instant};

/// Nobody else gets the core.
const SPIN: Duration = Duration::from_micros(50);
/// Whoever needs the core gets it.
const YIELD: Duration = Duration::from_millis(1);
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// A look that lasts longer than this has moved bytes: MPI does all its work while it is looked at.
const WORK: Duration = Duration::from_micros(5);

pub(crate) struct Pace {
    eager_since: Instant,
    sleep: Duration,
}

impl Pace {
    pub fn new() -> Pace {
        Pace { eager_since: Instant::now(), sleep: SHORTEST_SLEEP }
    }

    /// Until the next look, where the last one lasted so long.
    pub fn pause(&mut self, looked: Duration) {
        if looked > WORK {
            *self = Pace::new();
        }
        let idle = self.eager_since.elapsed();
        if idle < SPIN {
            std::hint::spin_loop();
        } else if idle < YIELD {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.sleep);
            self.sleep = (self.sleep * 2).min(LONGEST_SLEEP);
        }
    }
}
