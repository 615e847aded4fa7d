//! What a recording must say, whatever recorded it: every kernel of every micro-batch, one after the other, within its step.

use memfit_exec::recorder::{KernelEvent, LaunchId, Recording, StepEvent};
use memfit_plan::{Phase, Plan};

/// Holds a recording of whole steps against the plan that ran; says what is wrong with it.
pub fn check_recording(plan: &Plan, recording: &Recording) -> Result<(), String> {
    if recording.steps.is_empty() || recording.dropped > 0 {
        return Err(format!("{} steps, and {} events were dropped", recording.steps.len(), recording.dropped));
    }
    let expected = launches(plan);
    for (i, step) in recording.steps.iter().enumerate() {
        check_step(step, recording.kernels_of(i), &expected).map_err(|e| format!("step {}: {e}", step.step))?;
    }
    Ok(())
}

/// The launches of a step, in order.
fn launches(plan: &Plan) -> Vec<LaunchId> {
    let mut all = Vec::new();
    let mut run = |phase: Phase, micro_batch: usize| {
        let Some(program) = plan.programs.iter().position(|p| p.phase == phase) else { return };
        let id = |launch| LaunchId { program: program as u16, micro_batch: micro_batch as u32, launch };
        all.extend((0..plan.programs[program].launches.len() as u32).map(id));
    };
    run(Phase::Step, 0);
    for (lane, folds) in plan.replica.schedule().into_iter().enumerate() {
        (lane * plan.leaves()..(lane + 1) * plan.leaves()).for_each(|leaf| run(Phase::Accumulate, leaf));
        folds.into_iter().for_each(|fold| run(Phase::Fold(fold), 0));
    }
    run(Phase::Apply, 0);
    all
}

fn check_step(step: &StepEvent, kernels: &[KernelEvent], expected: &[LaunchId]) -> Result<(), String> {
    let inside = |k: &KernelEvent| step.begin <= k.begin && k.begin <= k.end && k.end <= step.end;
    if let Some(k) = kernels.iter().find(|k| !inside(k)) {
        return Err(format!("{k:?} does not lie in {step:?}"));
    }
    let launched: Vec<&KernelEvent> = kernels.iter().filter(|k| k.thread == 0).collect();
    let ids: Vec<LaunchId> = launched.iter().map(|k| k.id).collect();
    if ids != expected {
        return Err(format!("{} kernels ran, but {} are planned, or others: {ids:?}", ids.len(), expected.len()));
    }
    match launched.windows(2).find(|pair| pair[1].begin < pair[0].end) {
        Some(pair) => Err(format!("one began before the other had ended: {pair:?}")),
        None => Ok(()),
    }
}
