//! What the system tells of cores: which one a thread is on, and how much it had of one while it wanted one. Less than all of it
//! means that there are more threads that want to run than cores, of whatever process, or that a limit of processor time
//! holds this one's. Decides nothing.

use std::time::{Duration, Instant};

/// So much is looked at before anything is said: a few time slices.
const WINDOW: Duration = Duration::from_millis(30);

/// Counts for the thread that made it, which wants a core at all times but for pauses.
pub(super) struct Share {
    wanted: Duration,
    had: Duration,
    /// When it was last counted, and what the thread had had by then.
    since: Instant,
    had_since: Duration,
}

impl Share {
    pub(super) fn new() -> Share {
        Share { wanted: Duration::ZERO, had: Duration::ZERO, since: Instant::now(), had_since: processor_time() }
    }

    /// The share of its core that the thread went without; none if it has not been long since that was last said.
    pub(super) fn lost(&mut self) -> Option<f64> {
        if self.wanted + self.since.elapsed() < WINDOW {
            return None;
        }
        self.pause();
        // The two clocks do not tick alike.
        let lost = (1.0 - self.had.as_secs_f64() / self.wanted.as_secs_f64()).max(0.0);
        (self.wanted, self.had) = (Duration::ZERO, Duration::ZERO);
        Some(lost)
    }

    /// From now on it does not want one.
    pub(super) fn pause(&mut self) {
        let (now, had) = (Instant::now(), processor_time());
        self.wanted += now - self.since;
        self.had += had.saturating_sub(self.had_since);
        (self.since, self.had_since) = (now, had);
    }

    /// Now it does again.
    pub(super) fn resume(&mut self) {
        (self.since, self.had_since) = (Instant::now(), processor_time());
    }
}

/// The core that the calling thread is on; none where that is not known.
pub(super) fn current() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(rustix::thread::sched_getcpu());
    #[cfg(not(target_os = "linux"))]
    None
}

/// What the calling thread has had of all cores.
#[cfg(unix)]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Not known: as if it had all of one.
#[cfg(not(unix))]
fn processor_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_slept_outside_of_pauses_is_lost() {
        let lost = |sleep: &dyn Fn(&mut Share)| {
            let mut share = Share::new();
            sleep(&mut share);
            // Not more than the rest of the window.
            while share.since.elapsed() + share.wanted < WINDOW {
                std::hint::spin_loop();
            }
            share.lost().expect("the window is over")
        };
        let slept = lost(&|_| std::thread::sleep(WINDOW));
        let paused = lost(&|share| {
            share.pause();
            std::thread::sleep(WINDOW);
            share.resume();
        });
        // How much of the rest it has depends on what else runs.
        assert!((0.0..=1.0).contains(&paused), "{paused}");
        assert!(!cfg!(unix) || slept > 0.9, "{slept}");
    }
}
