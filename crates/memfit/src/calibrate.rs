//! Measures a device for a cost model: small programs and whole training steps, planned and run as any other. The programs say
//! about how fast products and memory are, and the constants are those near them that predict the steps best: these have the
//! kernels that matter, in the proportions in which they do.

use std::time::{Duration, Instant};

use memfit_exec::{Clock, Engine, ExecError, Executor, Options};
use memfit_ir::op::Init;
use memfit_ir::{Builder, Graph, Result as GraphResult};
use memfit_nn::ZooModel;
use memfit_nn::optim::Optimizer;
use memfit_plan::{CostModel, MicroBatch, Phase, Plan, PlanError, Request, Target, plan};
use memfit_transform::{Grouping, Training};

use crate::synthetic::SyntheticBatch;
use crate::{SourceError, plan_model};

/// Why a device could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// It does not run.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A program cannot be planned for it.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A program cannot be built.
    #[error(transparent)]
    Graph(#[from] memfit_ir::Error),
    /// A model cannot be built.
    #[error(transparent)]
    Model(#[from] memfit_nn::Error),
}

impl CalibrateError {
    /// Whether a model is too large for a device, or has what it cannot run: then it is not measured there.
    fn is_for_another_device(&self) -> bool {
        match self {
            CalibrateError::Plan(e) => matches!(
                e,
                PlanError::Refused(_)
                    | PlanError::Unsupported { .. }
                    | PlanError::Binding { .. }
                    | PlanError::Segment { .. }
            ),
            CalibrateError::Exec(e) => matches!(e, ExecError::OutOfMemory { .. } | ExecError::DeviceFull(_)),
            CalibrateError::Graph(_) | CalibrateError::Model(_) => false,
        }
    }
}

/// Sides of the square matrices whose products are measured.
const SIDES: [usize; 3] = [384, 768, 1152];
/// Elements of the sum whose memory traffic is measured: 192 MiB in three tensors, more than caches hold.
const STREAM: usize = 16 << 20;
/// Kernels of a program whose work is next to nothing, and the numbers that each works on: enough to wake every thread.
const LAUNCHES: usize = 256;
const HANDFUL: usize = 8192;
/// Models and batches whose steps are measured: memory counts most in the first, products in the last, and both in those
/// between; the last number is the side of an image that is not the model's own.
const STEPS: [(&str, usize, Option<usize>); 4] =
    [("mobilenet_v3_large", 16, None), ("resnet18", 32, Some(64)), ("mlp", 256, None), ("gpt", 2, None)];
/// Runs of each step, of which the fastest counts.
const STEP_RUNS: usize = 2;
const BETTER: f64 = 1.001;
/// The constants are at most so many times larger or smaller than what the small programs say.
const MOST: f64 = 4.0;
/// In so many steps of the same ratio.
const TRIED: i32 = 64;
/// Runs of each program; the fastest counts, for what slows a run down is not the device.
const RUNS: usize = 7;
/// No program is run again when it has run for so long.
const LONG_ENOUGH: Duration = Duration::from_secs(2);
/// A program that would run longer is not measured, unless somebody has more patience: a small one says about the same of a slow
/// device.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Constants of what `make` gives, rounded so that measuring again gives them again; of programs that take no longer than somebody
/// has patience for.
pub fn calibrate<E: Executor>(
    name: String,
    make: impl Fn() -> Result<E, ExecError>,
    patience: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<CostModel, CalibrateError> {
    progress("starting kernels");
    let launch = fastest_in_queue(make()?, launches()?)?.as_secs_f64() / LAUNCHES as f64;
    progress("memory bandwidth");
    let stream = fastest(make()?, stream()?)?.as_secs_f64() - launch;
    // Two tensors are read and one is written, of which memory moves each byte about three times: see `Target::seconds`.
    let bytes = 5.0 * 4.0 * STREAM as f64 / stream.max(1e-9);
    let mut seconds_per_flop = Vec::new();
    for side in SIDES {
        let flops = 2.0 * (side as f64).powi(3);
        if seconds_per_flop.last().is_some_and(|last| last * flops > patience.as_secs_f64()) {
            break;
        }
        progress(&format!("products of {side}x{side} matrices"));
        let traffic = 3.0 * 4.0 * (side * side) as f64 / bytes;
        let whole = fastest(make()?, product(side)?)?.as_secs_f64();
        // Predictions count starting and traffic besides; what is left is arithmetic, and never next to nothing.
        let arithmetic = (whole - launch - traffic).max(0.5 * whole);
        seconds_per_flop.push(arithmetic / flops);
    }
    let mean = seconds_per_flop.iter().sum::<f64>() / seconds_per_flop.len() as f64;
    let about = CostModel::new(name, 1e-9 / mean, bytes * 1e-9, launch * 1e6);
    let mut steps = Vec::new();
    for (model, batch, side) in STEPS {
        progress(&format!("steps of {model}"));
        match measure_step(make()?, model, batch, side, &about, patience) {
            Err(e) if e.is_for_another_device() => {}
            step => steps.extend(step?),
        }
    }
    Ok(if steps.is_empty() { about } else { fitted(about, &steps) }.rounded())
}

/// What a device reaches at most: operations of a large matrix product a second, and bytes a second of a long sum, each of which
/// is read or written once. None where there is no room to measure it.
pub fn limits<E: Executor>(make: impl Fn() -> Result<E, ExecError>) -> Result<Option<[f64; 2]>, CalibrateError> {
    let needed = 3 * 4 * STREAM as u64;
    if make()?.device().free() < 2 * needed {
        return Ok(None);
    }
    let side = SIDES[SIDES.len() - 1];
    let product = fastest(make()?, product(side)?)?.as_secs_f64();
    let stream = fastest(make()?, stream()?)?.as_secs_f64();
    Ok(Some([2.0 * (side as f64).powi(3) / product.max(1e-9), needed as f64 / stream.max(1e-9)]))
}

/// Where the time of a step goes, as shares of what was measured.
struct StepTime {
    /// Predicted of arithmetic.
    flops: f64,
    /// Predicted of memory.
    bytes: f64,
    /// Predicted of starting kernels.
    launches: f64,
}

/// The constants whose worst prediction of these steps is the best, a few percent apart.
fn fitted(about: CostModel, steps: &[StepTime]) -> CostModel {
    let factors = || (-TRIED..=TRIED).map(|n| MOST.powf(f64::from(n) / f64::from(TRIED)));
    let mut best = (f64::INFINITY, 1.0, 1.0);
    for (flops, bytes) in factors().flat_map(|flops| factors().map(move |bytes| (flops, bytes))) {
        let wrong = |s: &StepTime| (flops * s.flops + bytes * s.bytes + s.launches).max(1e-9).ln().abs();
        let worst = steps.iter().map(wrong).fold(0.0, f64::max);
        if worst < best.0 {
            best = (worst, flops, bytes);
        }
    }
    CostModel { gflops: about.gflops / best.1, gbytes: about.gbytes / best.2, ..about }
}

/// None where it would take too long.
fn measure_step<E: Executor>(
    executor: E,
    name: &str,
    batch: usize,
    side: Option<usize>,
    about: &CostModel,
    patience: Duration,
) -> Result<Option<StepTime>, CalibrateError> {
    let model = ZooModel::from_name(name)?;
    let model = side.map_or(Ok(model.clone()), |side| model.with_input(&[side, side, 3]))?;
    let training = Training::new(Optimizer::adam().update);
    let room = executor.device().free() / 2;
    let planned = |cost_model: CostModel, target: &dyn Target| {
        // Others may want some of it too.
        let (micro_batch, budget) = (MicroBatch::Off, Some(room));
        let request = Request { micro_batch, budget, cost_model: Some(cost_model), ..Request::new(batch) };
        plan_model(&model, &training, target, &request)
    };
    let plan = planned(about.clone(), executor.target())?;
    // What one constant makes of it is seen when that is a little better: not so much that another plan would be the fastest.
    let whole = plan.predicted_step_seconds;
    if whole > patience.as_secs_f64() {
        return Ok(None);
    }
    let due_to = |cost_model: CostModel| {
        let seconds = planned(cost_model, executor.target())?.predicted_step_seconds;
        Ok::<f64, PlanError>((whole - seconds) / (1.0 - 1.0 / BETTER))
    };
    let flops = due_to(CostModel { gflops: BETTER * about.gflops, ..about.clone() })?;
    let bytes = due_to(CostModel { gbytes: BETTER * about.gbytes, ..about.clone() })?;
    let seconds = fastest_step(executor, plan)?.as_secs_f64().max(1e-9);
    Ok(Some(StepTime { flops: flops / seconds, bytes: bytes / seconds, launches: (whole - flops - bytes) / seconds }))
}

/// The shortest time of a step, on a batch that means nothing.
fn fastest_step<E: Executor>(executor: E, plan: Plan) -> Result<Duration, CalibrateError> {
    // Labels and tokens are the first.
    let batch = SyntheticBatch::new(&plan, 1);
    let views = batch.views();
    let mut engine = Engine::new(executor, plan, Options::default())?;
    engine.init(1)?;
    let mut best = Duration::MAX;
    // The first run warms up.
    for _ in 0..=STEP_RUNS {
        let start = Instant::now();
        engine.run(Phase::Step, &views, 1e-3, Clock::default())?;
        engine.executor().wait()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// The shortest time of all kernels of a program, each of which ends before the next one starts.
fn fastest<E: Executor>(executor: E, graph: Graph) -> Result<Duration, CalibrateError> {
    let mut engine = engine(executor, graph)?;
    shortest(|| {
        let mut time = Duration::ZERO;
        engine.run_observed(Phase::Eval, &[], 0.0, Clock::default(), |_, _, kernel| time += kernel)?;
        Ok(time)
    })
}

/// The same from the first kernel's start to the last one's end, as a step runs them: a device that works on its own starts
/// them one right after the other.
fn fastest_in_queue<E: Executor>(executor: E, graph: Graph) -> Result<Duration, CalibrateError> {
    let mut engine = engine(executor, graph)?;
    shortest(|| {
        let start = Instant::now();
        engine.run(Phase::Eval, &[], 0.0, Clock::default())?;
        engine.executor().wait()?;
        Ok(start.elapsed())
    })
}

fn engine<E: Executor>(executor: E, graph: Graph) -> Result<Engine<E>, CalibrateError> {
    let request = Request { grouping: Grouping::Single, ..Request::new(1) };
    let source = |_| Ok::<_, SourceError>(vec![(Phase::Eval, graph.clone().into())]);
    let plan = plan(&source, executor.target(), &request)?;
    let mut engine = Engine::new(executor, plan, Options::default())?;
    engine.init(1)?;
    Ok(engine)
}

/// Of several runs, the first of which warms up.
fn shortest(mut run: impl FnMut() -> Result<Duration, CalibrateError>) -> Result<Duration, CalibrateError> {
    run()?;
    let (begun, mut best) = (Instant::now(), run()?);
    for _ in 1..RUNS {
        if begun.elapsed() > LONG_ENOUGH {
            break;
        }
        best = best.min(run()?);
    }
    Ok(best)
}

/// A chain of kernels over a handful of numbers.
fn launches() -> GraphResult<Graph> {
    let mut b = Builder::new();
    let mut x = b.param("x", [HANDFUL], Init::Normal { std: 1.0 })?;
    for _ in 0..LAUNCHES {
        x = b.relu(x)?;
    }
    b.output("y", x);
    Ok(b.finish())
}

fn stream() -> GraphResult<Graph> {
    let mut b = Builder::new();
    let (x, y) = (b.param("x", [STREAM], Init::Constant(1.0))?, b.param("y", [STREAM], Init::Constant(2.0))?);
    let sum = b.add(x, y)?;
    b.output("y", sum);
    Ok(b.finish())
}

fn product(side: usize) -> GraphResult<Graph> {
    let mut b = Builder::new();
    let init = Init::Normal { std: 1.0 };
    let (x, y) = (b.param("x", [side, side], init)?, b.param("y", [side, side], init)?);
    let product = b.matmul(x, y)?;
    b.output("y", product);
    Ok(b.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuExecutor;
    use memfit_plan::CONSTANTS;

    #[test]
    fn constants_are_those_that_predict_the_steps() {
        // Products are half as fast as was thought, and memory is four thirds.
        let step = |flops: f64, bytes: f64| {
            let seconds = 2.0 * flops + 0.75 * bytes + 0.1;
            StepTime { flops: flops / seconds, bytes: bytes / seconds, launches: 0.1 / seconds }
        };
        let about = CostModel::new("x", 100.0, 30.0, 1.0);
        let model = fitted(about, &[step(1.0, 8.0), step(5.0, 1.0), step(2.0, 2.0)]);
        assert!((model.gflops / 50.0 - 1.0).abs() < 0.03 && (model.gbytes / 40.0 - 1.0).abs() < 0.03, "{model:?}");
    }

    #[test]
    fn a_machine_is_measured_in_positive_numbers_of_two_digits() {
        let model = calibrate("this".into(), || CpuExecutor::new(1), PATIENCE, &mut |_| {}).expect("it runs");
        for constant in &CONSTANTS {
            let value = constant.value_in(&model);
            assert!(value.is_finite() && value > 0.0, "{} = {value}", constant.key);
        }
        assert_eq!(model.clone().rounded(), model);
        let defaults = CpuExecutor::new(1).expect("one thread").target().cost_model();
        assert_eq!(CostModel::from_toml(&model.to_toml(), &defaults), Ok(model));
    }
}
