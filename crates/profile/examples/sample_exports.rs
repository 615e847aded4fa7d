//! Writes every export of a few plans into a folder, with what a reader has to find in them (`expected.json`): for checks by the
//! programs that the exports are for. Nothing is run: what is measured elsewhere is made of predictions here, on two threads.

use std::error::Error;
use std::fs;
use std::path::Path;

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::plan::MicroBatch;
use memfit::{CpuExecutor, Request, Training, ZooModel, survey_model};
use memfit_profile::export::tensorboard::{At, EventFile};
use memfit_profile::export::trace::trace_json;
use memfit_profile::export::xplane::create_xplane;
use memfit_profile::{Class, Labels, Measured, Profile, Slice, from_plan};
use serde_json::json;

/// Where the time of the samples begins.
const START: f64 = 1_700_000_000.0;
/// Where the run was resumed from.
const RESUMED: u64 = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("the folder to write to is missing")?;
    for (model, micro_batch) in [("digits", Some(8)), ("resnet18", None), ("unet", None)] {
        for is_measured in [true, false] {
            let mut profile = smallest_plan(model, micro_batch)?;
            profile.measured = is_measured.then(|| on_two_threads(&profile));
            let name = format!("{model}-{}", if is_measured { "measured" } else { "predicted" });
            write_all(&Path::new(&folder).join(name), &profile)?;
        }
    }
    Ok(())
}

/// The one that recomputes most.
fn smallest_plan(model: &str, micro_batch: Option<usize>) -> Result<Profile, Box<dyn Error>> {
    let cpu = CpuExecutor::new(2)?;
    let model_of_zoo = ZooModel::from_name(model)?;
    let training = Training::new(Optimizer::adam().update);
    let micro_batch = micro_batch.map_or(MicroBatch::default(), MicroBatch::Exactly);
    let request = Request { micro_batch, ..Request::new(32) };
    let survey = survey_model(&model_of_zoo, &training, cpu.target(), &request)?;
    let smallest = survey.frontier().last().ok_or("no plan")?.arena_bytes;
    let labels = Labels { model: model.into(), budget: Some(smallest), ..Labels::default() };
    Ok(from_plan(&survey.plan(Some(smallest))?, &labels))
}

/// Every kernel on both threads, of which the second is a little later.
fn on_two_threads(profile: &Profile) -> Measured {
    let mut slices = Vec::new();
    let mut now_us = 12.345_678;
    for (program, micro_batch) in profile.step_runs() {
        for (launch, kernel) in profile.programs[program].launches.iter().enumerate() {
            let end_us = now_us + kernel.predicted_us / 1.9 + 0.7;
            for (thread, late_us) in [0.0, 0.321].into_iter().enumerate() {
                slices.push(Slice { program, launch, micro_batch, thread, begin_us: now_us + late_us, end_us });
            }
            now_us = end_us;
        }
    }
    let kernels = profile.programs.iter().map(|p| vec![Default::default(); p.launches.len()]).collect();
    Measured { slices, kernels, threads: vec!["main".into(), "worker 1".into()], ..Measured::default() }
}

fn write_all(folder: &Path, profile: &Profile) -> Result<(), Box<dyn Error>> {
    let logs = folder.join("logs");
    fs::create_dir_all(&logs)?;
    fs::write(folder.join("trace.json"), trace_json(profile))?;
    let xplane = create_xplane(&logs, "step", profile)?;
    let scalars = write_events(&logs, profile)?;
    let values = scalars.iter().map(|(at, value)| json!([at.step, at.wall_seconds, value]));
    let classes = at_peak_of_step(profile).ok_or("a step without launches")?;
    let expected = json!({
        "peak_bytes": classes.iter().sum::<u64>(),
        "arena_bytes": profile.memory.arena_bytes,
        "state_bytes": profile.memory.state_bytes,
        "peak_by_class": Class::ALL.iter().map(|c| c.name()).zip(classes).collect::<Vec<_>>(),
        "launches": profile.memory.kernels,
        "slices": profile.measured.as_ref().map_or(profile.memory.kernels, |m| m.slices.len()),
        "threads": profile.measured.as_ref().map_or(vec!["predicted".into()], |m| m.threads.clone()),
        "xplane": xplane.strip_prefix(folder)?,
        "loss": values.collect::<Vec<_>>(),
        "plan": plan_text(profile),
    });
    fs::write(folder.join("expected.json"), serde_json::to_string_pretty(&expected)?)?;
    Ok(())
}

/// What is live by class where a training step has most. It is the peak of the plan, unless that is in another program.
fn at_peak_of_step(profile: &Profile) -> Option<[u64; Class::ALL.len()]> {
    let trained = profile.programs.iter().enumerate().filter(|(_, p)| p.repeats > 0);
    let live = trained.flat_map(|(p, program)| (0..program.launches.len()).map(move |n| profile.live_by_class(p, n)));
    live.max_by_key(|by_class| by_class.iter().sum::<u64>())
}

/// A run that was killed after some steps and resumed from an earlier one; what is left to be seen of its loss.
fn write_events(logs: &Path, profile: &Profile) -> Result<Vec<(At, f32)>, Box<dyn Error>> {
    let at = |step: u64, delay: f64| At { step, wall_seconds: START + delay + step as f64 / 8.0 };
    let loss = |step: u64| (-0.01 * step as f32).exp() + 0.1 * (step as f32).sin();
    let mut first = EventFile::create(logs, at(0, 0.0))?;
    first.text("plan", at(0, 0.0), &plan_text(profile))?;
    (0..100).try_for_each(|step| first.scalar("loss", at(step, 0.0), -loss(step)))?;
    drop(first);
    let mut resumed = EventFile::create(logs, at(RESUMED, 100.0))?;
    for step in RESUMED..200 {
        resumed.scalar("loss", at(step, 100.0), loss(step))?;
    }
    let values: Vec<f32> = (0..1000).map(loss).collect();
    resumed.histogram("losses", at(199, 100.0), &values)?;
    resumed.flush()?;
    let before = (0..RESUMED).map(|step| (at(step, 0.0), -loss(step)));
    Ok(before.chain((RESUMED..200).map(|step| (at(step, 100.0), loss(step)))).collect())
}

fn plan_text(profile: &Profile) -> String {
    format!("**{}**: {} bytes", profile.run.model, profile.memory.peak_bytes)
}
