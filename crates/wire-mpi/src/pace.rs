//! How a thread waits that has to look again and again: at once where something moves, and later and later where nothing does, so
//! that it takes no core from whoever computes meanwhile.
//!
//! It sleeps and never yields: a thread that yields is put behind all others, and comes back when they have had their time. With
//! four processes on two busy cores and MPICH, a sum of 25 million numbers took 1.3 s with yields and 0.7 s with sleeps.

use std::time::{Duration, Instant};

/// Nobody else gets the core. What is on its way already comes within this time.
const SPIN: Duration = Duration::from_micros(20);

/// How long it sleeps shortly: the messages of a transfer follow each other.
const EAGER: Duration = Duration::from_millis(1);

const SHORTEST_SLEEP: Duration = Duration::from_micros(5);
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
        } else {
            std::thread::sleep(self.sleep);
            if idle >= EAGER {
                self.sleep = (self.sleep * 2).min(LONGEST_SLEEP);
            }
        }
    }
}

/// A process that looks at nothing for longer than this was stopped.
const NAP: Duration = Duration::from_millis(500);

/// How long this process has waited: time in which it was stopped is none.
pub(crate) struct Awake {
    last: Instant,
    waited: Duration,
}

impl Awake {
    pub fn new() -> Awake {
        Awake { last: Instant::now(), waited: Duration::ZERO }
    }

    /// Up to now. It has to be asked again and again.
    pub fn time(&mut self) -> Duration {
        let now = Instant::now();
        self.waited += (now - std::mem::replace(&mut self.last, now)).min(NAP);
        self.waited
    }
}

/// Has the sleeps of this thread end when they should: a system may make each 50 µs longer, to wake for several at once. Without
/// it they are longer, and nothing else.
pub(crate) fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}
