//! What it costs to hand out work and come back: forks of the thread pool with nothing to do, and how many of them a step
//! makes.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use memfit::CpuExecutor;

use crate::{Failure, Runner, Workload, median};

/// Nanoseconds of a fork and its join.
#[derive(Clone, Copy, Debug)]
pub struct ForkCost {
    pub median: f64,
    pub p99: f64,
}

/// How long the forking thread does something else between two forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Workers still look out for work, as between two kernels.
    None,
    /// Long enough for workers to fall asleep, as after a part that only one thread has.
    Long,
}

const FORKS: usize = 20_000;
const FORKS_FROM_SLEEP: usize = 500;
/// Many times what a worker spins before it sleeps.
const LONG: Duration = Duration::from_millis(1);

pub fn fork_cost(threads: usize, gap: Gap) -> Result<ForkCost, Failure> {
    let executor = CpuExecutor::new(threads)?;
    let forks = if gap == Gap::None { FORKS } else { FORKS_FROM_SLEEP };
    let mut times = Vec::with_capacity(forks);
    for _ in 0..forks {
        if gap == Gap::Long {
            let start = Instant::now();
            while start.elapsed() < LONG {
                spin_loop();
            }
        }
        let start = Instant::now();
        executor.fork();
        times.push(start.elapsed().as_secs_f64() * 1e9);
    }
    times.sort_by(f64::total_cmp);
    Ok(ForkCost { median: times[forks / 2], p99: times[forks * 99 / 100] })
}

/// A training step on the fastest plan.
#[derive(Clone, Copy, Debug)]
pub struct StepForks {
    pub forks: usize,
    /// The median of the timed steps.
    pub seconds: f64,
}

/// Times steps of a workload after one to warm up, and counts their forks.
pub fn step_forks(workload: &Workload, threads: usize, steps: usize) -> Result<StepForks, Failure> {
    let mut runner = Runner::fastest(workload, CpuExecutor::new(threads)?)?;
    runner.step()?;
    let before = runner.engine.executor().forks();
    let mut times = Vec::new();
    for _ in 0..steps.max(1) {
        let start = Instant::now();
        runner.step()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(StepForks { forks: (runner.engine.executor().forks() - before) / times.len(), seconds: median(times) })
}
