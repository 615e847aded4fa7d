//! Measures a device for a cost model: small programs, planned and run as any other.

use std::time::Duration;

use memfit_exec::{Clock, Engine, ExecError, Executor, Options};
use memfit_ir::op::Init;
use memfit_ir::{Builder, Graph, Result as GraphResult};
use memfit_plan::{CostModel, Phase, PlanError, Request, plan};
use memfit_transform::Grouping;

use crate::SourceError;

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
}

/// Sides of the square matrices whose products are measured.
const SIDES: [usize; 3] = [384, 768, 1152];
/// Elements of the sum whose memory traffic is measured: 192 MiB in three tensors, more than caches hold.
const STREAM: usize = 16 << 20;
/// Kernels of a program whose work is next to nothing, and the numbers that each works on: enough to wake every thread.
const LAUNCHES: usize = 256;
const HANDFUL: usize = 8192;
/// Runs of each program; the fastest counts, for what slows a run down is not the device.
const RUNS: usize = 7;

/// Constants of what `make` gives, rounded so that measuring again gives them again.
pub fn calibrate<E: Executor>(
    name: String,
    make: impl Fn() -> Result<E, ExecError>,
    progress: &mut dyn FnMut(&str),
) -> Result<CostModel, CalibrateError> {
    progress("starting kernels");
    let launch = fastest(make()?, launches()?)?.as_secs_f64() / LAUNCHES as f64;
    progress("memory bandwidth");
    let stream = fastest(make()?, stream()?)?.as_secs_f64() - launch;
    // Two tensors are read and one is written, of which memory moves each byte about three times: see `Target::seconds`.
    let bytes = 5.0 * 4.0 * STREAM as f64 / stream.max(1e-9);
    let mut seconds_per_flop = 0.0;
    for side in SIDES {
        progress(&format!("products of {side}x{side} matrices"));
        let traffic = 3.0 * 4.0 * (side * side) as f64 / bytes;
        let whole = fastest(make()?, product(side)?)?.as_secs_f64();
        // Predictions count starting and traffic besides; what is left is arithmetic, and never next to nothing.
        let arithmetic = (whole - launch - traffic).max(0.5 * whole);
        seconds_per_flop += arithmetic / (2.0 * (side as f64).powi(3)) / SIDES.len() as f64;
    }
    let gflops = 1e-9 / seconds_per_flop;
    Ok(CostModel::new(name, gflops, bytes * 1e-9, launch * 1e6).rounded())
}

/// The shortest time of all kernels of a program.
fn fastest<E: Executor>(executor: E, graph: Graph) -> Result<Duration, CalibrateError> {
    let request = Request { grouping: Grouping::Single, ..Request::new(1) };
    let source = |_| Ok::<_, SourceError>(vec![(Phase::Eval, graph.clone().into())]);
    let plan = plan(&source, executor.target(), &request)?;
    let mut engine = Engine::new(executor, plan, Options::default())?;
    engine.init(1)?;
    let mut best = Duration::MAX;
    // The first run warms up.
    for _ in 0..=RUNS {
        let mut time = Duration::ZERO;
        engine.run_observed(Phase::Eval, &[], 0.0, Clock::default(), |_, _, kernel| time += kernel)?;
        best = best.min(time);
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
    fn a_machine_is_measured_in_positive_numbers_of_two_digits() {
        let model = calibrate("this".into(), || CpuExecutor::new(1), &mut |_| {}).expect("it runs");
        for constant in &CONSTANTS {
            let value = constant.value_in(&model);
            assert!(value.is_finite() && value > 0.0, "{} = {value}", constant.key);
        }
        assert_eq!(model.clone().rounded(), model);
        let defaults = CpuExecutor::new(1).expect("one thread").target().cost_model();
        assert_eq!(CostModel::from_toml(&model.to_toml(), &defaults), Ok(model));
    }
}
