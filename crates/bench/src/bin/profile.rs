//! Where the time of a training step goes: `profile WORKLOAD [THREADS] [STEPS]` prints the median time of each kind of group,
//! and how many the step has.

use std::collections::BTreeMap;
use std::time::Instant;

use memfit::CpuExecutor;
use memfit_bench::{Failure, Runner, Workload, median};

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let workload = Workload::from_name(args.first().ok_or("usage: profile WORKLOAD [THREADS] [STEPS]")?)?;
    let threads = args.get(1).map_or(Ok(2), |n| n.parse())?;
    let steps = args.get(2).map_or(Ok(5), |n| n.parse())?;
    let mut runner = Runner::fastest(workload, CpuExecutor::new(threads)?)?;
    // Each step's seconds, of all and by the ops of a group.
    let mut whole = Vec::new();
    let mut kinds: BTreeMap<String, (usize, Vec<f64>)> = BTreeMap::new();
    runner.step()?;
    for _ in 0..steps {
        let mut times: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        let start = Instant::now();
        runner.observed_step(|program, step, time| {
            let ops: Vec<_> = step.group.nodes.iter().map(|&n| program.graph.node(n).op.name()).collect();
            let (count, sum) = times.entry(ops.join("+")).or_default();
            *count += 1;
            *sum += time.as_secs_f64();
        })?;
        whole.push(start.elapsed().as_secs_f64());
        for (name, (count, sum)) in times {
            let kind = kinds.entry(name).or_default();
            kind.0 = count;
            kind.1.push(sum);
        }
    }
    let mut rows: Vec<_> = kinds.into_iter().map(|(name, (count, times))| (median(times), count, name)).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("{:9.1} ms      a step, with watching", 1e3 * median(whole));
    for (seconds, count, name) in rows {
        println!("{:9.1} ms {count:4} {name}", 1e3 * seconds);
    }
    Ok(())
}
