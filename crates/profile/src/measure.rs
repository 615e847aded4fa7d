//! What ran, beside what was planned: the times of every kernel over all recorded steps, and one step in full.

use memfit_exec::recorder::{KernelClock, KernelEvent, Recording};
use memfit_plan::Plan;

use crate::model::{Clock, KernelTimes, Measured, Profile, Slice, StepSample};
use crate::peak;

/// What is known of a recorded step besides what the executor says.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepFacts {
    /// Its loss.
    pub loss: f32,
    /// The wait for its batch before.
    pub waited_ms: f64,
    /// Of the whole process, after it.
    pub process_resident_bytes: Option<u64>,
    /// In the pool of the data pipeline, after it.
    pub pipeline_bytes: Option<u64>,
}

/// Adds what was recorded while the plan of this profile ran. `facts` are of the recorded steps, in their order.
pub fn add_measured(profile: &mut Profile, plan: &Plan, recording: &Recording, facts: &[StepFacts]) {
    let measured = Measured {
        steps: steps(recording, facts),
        kernels: kernels(plan, recording),
        slices: median_step(recording).map_or(Vec::new(), |step| slices(recording, step)),
        threads: threads(recording, &profile.run.device),
        dropped: recording.dropped,
        clock: clock(recording.clock),
    };
    let seconds = |program: usize, launch: usize| match measured.kernels[program][launch] {
        KernelTimes { count: 0, .. } => plan.programs[program].launches[launch].seconds,
        times => times.median_us * 1e-6,
    };
    profile.peak = peak::at_peak(plan, profile, &seconds);
    profile.measured = Some(measured);
}

fn steps(recording: &Recording, facts: &[StepFacts]) -> Vec<StepSample> {
    let sample = |(event, facts): (&memfit_exec::recorder::StepEvent, &StepFacts)| StepSample {
        step: event.step,
        ms: (event.end - event.begin) as f64 * 1e-6,
        waited_ms: facts.waited_ms,
        loss: facts.loss,
        arena_resident_bytes: event.resident_bytes,
        process_resident_bytes: facts.process_resident_bytes,
        pipeline_bytes: facts.pipeline_bytes,
    };
    recording.steps.iter().zip(facts).map(sample).collect()
}

/// For each program, for each launch. A kernel takes as long as on the thread that launched it, which waits for the others.
fn kernels(plan: &Plan, recording: &Recording) -> Vec<Vec<KernelTimes>> {
    let mut times: Vec<Vec<Vec<f64>>> = plan.programs.iter().map(|p| vec![Vec::new(); p.launches.len()]).collect();
    for event in recording.kernels.iter().filter(|e| e.thread == 0) {
        let launch = times.get_mut(event.id.program as usize).and_then(|p| p.get_mut(event.id.launch as usize));
        let Some(times) = launch else { continue };
        times.push(event.end.saturating_sub(event.begin) as f64 * 1e-3);
    }
    times.into_iter().map(|program| program.into_iter().map(kernel_times).collect()).collect()
}

fn kernel_times(mut us: Vec<f64>) -> KernelTimes {
    us.sort_by(f64::total_cmp);
    let (Some(&min_us), Some(&max_us)) = (us.first(), us.last()) else { return KernelTimes::default() };
    let mean_us = us.iter().sum::<f64>() / us.len() as f64;
    KernelTimes { count: us.len() as u64, mean_us, median_us: us[us.len() / 2], min_us, max_us }
}

/// The step whose time is in the middle of those of which nothing was dropped; the first, where something was of each.
fn median_step(recording: &Recording) -> Option<usize> {
    let Recording { steps, kernels, dropped, .. } = recording;
    // A step after which there was still room has all of its kernels.
    let has_room_after = |i: usize| steps.get(i + 1).is_some_and(|next| next.first_kernel < kernels.len());
    let mut by_time: Vec<usize> = (0..steps.len()).filter(|&i| *dropped == 0 || has_room_after(i)).collect();
    by_time.sort_by_key(|&i| steps[i].end - steps[i].begin);
    by_time.get(by_time.len() / 2).copied().or(if steps.is_empty() { None } else { Some(0) })
}

fn slices(recording: &Recording, step: usize) -> Vec<Slice> {
    let start = recording.steps[step].begin;
    let us = |time: u64| time.saturating_sub(start) as f64 * 1e-3;
    let slice = |e: &KernelEvent| Slice {
        program: e.id.program.into(),
        launch: e.id.launch as usize,
        micro_batch: e.id.micro_batch as usize,
        thread: e.thread.into(),
        begin_us: us(e.begin),
        end_us: us(e.end),
    };
    let mut slices: Vec<Slice> = recording.kernels_of(step).iter().map(slice).collect();
    slices.sort_by(|a, b| a.begin_us.total_cmp(&b.begin_us).then(a.thread.cmp(&b.thread)));
    slices
}

fn clock(clock: KernelClock) -> Clock {
    match clock {
        KernelClock::Threads => Clock::Threads,
        KernelClock::Device => Clock::Device,
        KernelClock::Waiting => Clock::Waiting,
    }
}

fn threads(recording: &Recording, device: &str) -> Vec<String> {
    let last = recording.kernels.iter().map(|e| e.thread).max().unwrap_or(0);
    let first = match recording.clock {
        KernelClock::Threads => "step".to_string(),
        KernelClock::Device | KernelClock::Waiting => format!("queue of {device}"),
    };
    let name = |i| if i == 0 { first.clone() } else { format!("worker {i}") };
    (0..=last).map(name).collect()
}

#[cfg(test)]
mod tests {
    use memfit_exec::recorder::StepEvent;

    use super::*;

    /// Steps of so many nanoseconds, with a kernel each.
    fn recording(times: &[u64], dropped: u64, room: usize) -> Recording {
        let step = |(i, &time): (usize, &u64)| StepEvent {
            step: i as u32,
            end: time,
            first_kernel: i.min(room),
            ..StepEvent::default()
        };
        let kernels = vec![KernelEvent::default(); times.len().min(room)];
        Recording { kernels, steps: times.iter().enumerate().map(step).collect(), dropped, ..Recording::default() }
    }

    #[test]
    fn the_step_in_the_middle_is_one_of_which_nothing_was_dropped() {
        assert_eq!(median_step(&recording(&[5, 1, 9, 7, 3], 0, 5)), Some(0));
        // The first three have their kernels, and of the third nobody knows whether these are all.
        assert_eq!(median_step(&recording(&[5, 1, 9, 7, 3], 2, 3)), Some(0));
        assert_eq!(median_step(&recording(&[1, 5, 9, 7, 3], 1, 4)), Some(1));
        assert_eq!(median_step(&recording(&[5, 1], 3, 0)), Some(0));
        assert_eq!(median_step(&recording(&[], 3, 0)), None);
    }

    #[test]
    fn one_disturbed_run_of_a_kernel_does_not_change_its_median() {
        let times = kernel_times(vec![3.0, 2.0, 1000.0]);
        assert_eq!((times.count, times.median_us, times.mean_us), (3, 3.0, 335.0));
        assert_eq!((times.min_us, times.max_us), (2.0, 1000.0));
        assert_eq!(kernel_times(Vec::new()), KernelTimes::default());
    }
}
