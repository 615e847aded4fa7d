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
    /// Kernels and steps for which there was no room.
    pub dropped: u64,
}

impl Recording {
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
        let recording =
            Recording { kernels: Vec::with_capacity(kernels), steps: Vec::with_capacity(steps), dropped: 0 };
        Recorder { state: Mutex::new(recording) }
    }

    /// Tells of a kernel on all its threads.
    pub fn kernel(&self, id: LaunchId, threads: impl IntoIterator<Item = (u16, u64, u64)>) {
        let mut state = self.state();
        for (thread, begin, end) in threads {
            if state.kernels.len() < state.kernels.capacity() {
                state.kernels.push(KernelEvent { id, thread, begin, end });
            } else {
                state.dropped += 1;
            }
        }
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
        let Recording { kernels, steps, .. } = &*state;
        let room = Recording {
            kernels: Vec::with_capacity(kernels.capacity()),
            steps: Vec::with_capacity(steps.capacity()),
            dropped: 0,
        };
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
}
