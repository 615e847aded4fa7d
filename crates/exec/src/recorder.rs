//! What ran when, as it ran: one sink for all executors. Its room is taken before the first step, so that recording allocates
//! nothing; what has no room any more is counted and left out. Nothing waits for a kernel to be recorded.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Nanoseconds since some instant that is the same for all threads of the process.
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Which kernel of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LaunchId {
    /// Of the plan's programs.
    pub program: u16,
    /// Which repetition of the program in the step, from 0.
    pub micro_batch: u32,
    /// Of the program's launches.
    pub launch: u32,
}

/// A kernel that ran on a thread, or in a queue of a device. Times are those of [`now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KernelEvent {
    pub id: LaunchId,
    /// 0 is the thread that launched it.
    pub thread: u16,
    pub begin: u64,
    pub end: u64,
}

/// How the times of kernels are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KernelClock {
    /// By the threads that run them.
    #[default]
    Threads,
    /// By the device, which stamps the begin and the end of each while it works.
    Device,
    /// By the host, which waits for each kernel before it starts the next, because the device has no clock to read.
    Waiting,
}

/// A kernel with the stamps of its device, whose clock begins anywhere and ticks at a rate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    pub id: LaunchId,
    /// When the host had not handed it to the device yet, by [`now`].
    pub before: u64,
    /// Ticks of the device.
    pub begin: u64,
    pub end: u64,
}

/// A step that ran. Times are those of [`now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StepEvent {
    /// Its number.
    pub step: u32,
    pub begin: u64,
    pub end: u64,
    /// Of [`Recording::kernels`], the first that is a part of it; the next step's ends it.
    pub first_kernel: usize,
    /// Bytes of both segments in pages that the system holds, after it; none where the device does not say.
    pub resident_bytes: Option<u64>,
}

/// All that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// In the order in which they ended; of a kernel, thread after thread.
    pub kernels: Vec<KernelEvent>,
    pub steps: Vec<StepEvent>,
    /// Kernels and steps for which there was no room, and kernels whose stamps make no sense.
    pub dropped: u64,
    /// How the times of the kernels were taken.
    pub clock: KernelClock,
}

impl Recording {
    fn with_room(kernels: usize, steps: usize) -> Recording {
        let (kernels, steps) = (Vec::with_capacity(kernels), Vec::with_capacity(steps));
        Recording { kernels, steps, ..Recording::default() }
    }

    fn push(&mut self, event: KernelEvent) {
        if self.kernels.len() < self.kernels.capacity() {
            self.kernels.push(event);
        } else {
            self.dropped += 1;
        }
    }

    /// The kernels of a step, which is counted as it lies in [`Recording::steps`].
    pub fn kernels_of(&self, step: usize) -> &[KernelEvent] {
        let first = self.steps[step].first_kernel;
        let end = self.steps.get(step + 1).map_or(self.kernels.len(), |next| next.first_kernel);
        &self.kernels[first..end]
    }
}

/// Where executors tell what ran. Clone an `Arc` of it.
#[derive(Debug)]
pub struct Recorder {
    state: Mutex<Recording>,
}

impl Recorder {
    /// With room for so many kernels, each thread's part counted by itself, and steps.
    pub fn new(kernels: usize, steps: usize) -> Recorder {
        Recorder { state: Mutex::new(Recording::with_room(kernels, steps)) }
    }

    /// Tells of a kernel on all its threads.
    pub fn kernel(&self, id: LaunchId, threads: impl IntoIterator<Item = (u16, u64, u64)>) {
        let mut state = self.state();
        for (thread, begin, end) in threads {
            state.push(KernelEvent { id, thread, begin, end });
        }
    }

    /// Tells of kernels that ran one after the other in a queue whose clock ticks every `period` nanoseconds. On the clock of
    /// [`now`] they stand as early as they can: none begins before the host handed it over, so that they lie within the time in
    /// which the host waited for them. A clock that ran backwards says nothing, and its kernels count as dropped.
    pub fn stamped(&self, kernels: &[Stamped], period: f64) {
        let Some(first) = kernels.first().map(|k| k.begin) else { return };
        let mut state = self.state();
        if !kernels.iter().flat_map(|k| [k.begin, k.end]).is_sorted() {
            state.dropped += kernels.len() as u64;
            return;
        }
        let since_first = |tick: u64| ((tick - first) as f64 * period) as u64;
        let start = kernels.iter().map(|k| k.before.saturating_sub(since_first(k.begin))).max().unwrap_or(0);
        for k in kernels {
            let [begin, end] = [k.begin, k.end].map(|tick| start + since_first(tick));
            state.push(KernelEvent { id: k.id, thread: 0, begin, end });
        }
    }

    /// Says how the times of kernels are taken from now on.
    pub(crate) fn set_clock(&self, clock: KernelClock) {
        self.state().clock = clock;
    }

    /// How many kernels there are so far: see [`StepEvent::first_kernel`].
    pub(crate) fn kernel_count(&self) -> usize {
        self.state().kernels.len()
    }

    /// Tells of a step.
    pub(crate) fn step(&self, event: StepEvent) {
        let mut state = self.state();
        if state.steps.len() < state.steps.capacity() {
            state.steps.push(event);
        } else {
            state.dropped += 1;
        }
    }

    /// What there is, and ends: it has no room any more.
    pub fn finish(&self) -> Recording {
        std::mem::take(&mut *self.state())
    }

    /// What there is, and begins anew with as much room, which is taken now.
    pub fn take(&self) -> Recording {
        let mut state = self.state();
        let room = Recording::with_room(state.kernels.capacity(), state.steps.capacity());
        let room = Recording { clock: state.clock, ..room };
        std::mem::replace(&mut *state, room)
    }

    fn state(&self) -> MutexGuard<'_, Recording> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted_and_left_out() {
        let recorder = Recorder::new(3, 1);
        recorder.kernel(LaunchId { launch: 7, ..LaunchId::default() }, [(0, 1, 5), (1, 2, 4)]);
        recorder.kernel(LaunchId::default(), [(0, 6, 8), (1, 6, 9)]);
        (0..2).for_each(|step| recorder.step(StepEvent { step, ..StepEvent::default() }));
        let recording = recorder.take();
        assert_eq!((recording.kernels.len(), recording.steps.len(), recording.dropped), (3, 1, 2));
        assert_eq!((recording.kernels[1].id.launch, recording.kernels[1].thread), (7, 1));
        assert_eq!(recording.kernels_of(0).len(), 3);
        assert_eq!(recorder.take(), Recording::default());
    }

    #[test]
    fn a_recorder_that_is_finished_records_nothing_more() {
        let recorder = Recorder::new(3, 1);
        recorder.kernel(LaunchId::default(), [(0, 1, 5)]);
        assert_eq!(recorder.finish().kernels.len(), 1);
        recorder.kernel(LaunchId::default(), [(0, 6, 8)]);
        assert_eq!(recorder.finish(), Recording { dropped: 1, ..Recording::default() });
    }

    fn stamped(launch: u32, before: u64, begin: u64, end: u64) -> Stamped {
        Stamped { id: LaunchId { launch, ..LaunchId::default() }, before, begin, end }
    }

    #[test]
    fn stamps_of_a_device_stand_on_the_clock_of_the_host() {
        let recorder = Recorder::new(8, 1);
        // The device's clock is at 1000 when the host's is at 70, and ticks every two nanoseconds. The second kernel was
        // handed over before the first had ended, the third to a device that had nothing to do.
        recorder.stamped(&[stamped(0, 70, 1010, 1030), stamped(1, 80, 1030, 1040), stamped(2, 200, 1066, 1070)], 2.0);
        let times: Vec<_> = recorder.take().kernels.iter().map(|k| (k.id.launch, k.begin, k.end)).collect();
        assert_eq!(times, [(0, 88, 128), (1, 128, 148), (2, 200, 208)]);
    }

    #[test]
    fn a_clock_that_ran_backwards_says_nothing() {
        let recorder = Recorder::new(8, 1);
        recorder.stamped(&[stamped(0, 0, 5, 9), stamped(1, 2, 10, 3)], 1.0);
        recorder.stamped(&[stamped(0, 0, 5, 9), stamped(1, 2, 0, 0)], 1.0);
        recorder.stamped(&[], 1.0);
        assert_eq!(recorder.take(), Recording { dropped: 4, ..Recording::default() });
    }
}
