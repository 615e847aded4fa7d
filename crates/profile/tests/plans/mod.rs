//! Profiles of plans to be exported.

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::plan::MicroBatch;
use memfit::{CpuExecutor, Request, Training, ZooModel, survey_model};
use memfit_profile::{Labels, Measured, Profile, Slice, from_plan};

/// Plans that differ in all that an export has to get right: at once and in micro-batches, with and without recompute.
pub fn profiles() -> Vec<Profile> {
    let models = [
        ("digits", MicroBatch::Auto),
        ("digits", MicroBatch::Exactly(4)),
        ("resnet18", MicroBatch::Auto),
        ("unet", MicroBatch::Auto),
        ("gpt", MicroBatch::Auto),
        ("mlp", MicroBatch::Exactly(2)),
    ];
    let profiles: Vec<Profile> = models.into_iter().flat_map(|(name, micro_batch)| plans(name, micro_batch)).collect();
    assert!(profiles.iter().any(|p| p.run.accumulate > 1), "one has micro-batches");
    assert!(profiles.iter().any(|p| p.memory.recomputed_ops > 0), "one recomputes");
    profiles
}

/// A small one.
pub fn digits() -> Profile {
    let [fastest, _] = plans("digits", MicroBatch::Auto);
    fastest
}

/// The fastest and the smallest.
fn plans(name: &str, micro_batch: MicroBatch) -> [Profile; 2] {
    let cpu = CpuExecutor::new(2).unwrap();
    let (model, training) = (ZooModel::from_name(name).unwrap(), Training::new(Optimizer::adam().update));
    let request = Request { micro_batch, ..Request::new(8) };
    let survey = survey_model(&model, &training, cpu.target(), &request).unwrap();
    let smallest = survey.frontier().last().unwrap().arena_bytes;
    let labels = Labels { model: name.into(), ..Labels::default() };
    [None, Some(smallest)].map(|budget| from_plan(&survey.plan(budget).unwrap(), &labels))
}

/// As if every kernel had run on two threads, of which the second began a little later.
pub fn on_two_threads(mut profile: Profile) -> Profile {
    let mut slices = Vec::new();
    let mut now_us = 1.0;
    for (program, micro_batch) in profile.step_runs() {
        for launch in 0..profile.programs[program].launches.len() {
            let end_us = now_us + 1.0 + (launch % 7) as f64 * 1.234_5;
            for (thread, begin_us) in [now_us, now_us + 0.123].into_iter().enumerate() {
                slices.push(Slice { program, launch, micro_batch, thread, begin_us, end_us });
            }
            now_us = end_us;
        }
    }
    let kernels = profile.programs.iter().map(|p| vec![Default::default(); p.launches.len()]).collect();
    let threads = vec!["first \"thread\"".into(), "second".into()];
    profile.measured = Some(Measured { slices, kernels, threads, ..Measured::default() });
    profile
}

/// The most that is live at once in a training step.
pub fn peak_of_step(profile: &Profile) -> u64 {
    let trained = profile.programs.iter().filter(|p| p.repeats > 0);
    let peak = profile.memory.state_bytes + trained.flat_map(|p| &p.launches).map(|l| l.live_bytes).max().unwrap();
    if profile.programs[profile.peak.program].repeats > 0 {
        assert_eq!(peak, profile.memory.peak_bytes);
    }
    peak
}
