//! Chores of the repository that are no part of memfit: `cargo xtask --help` lists them. Reads arguments and hands over; what a
//! chore does stands in its module.

mod apt;
mod bench_gpu;
mod bench_kernels;
mod bench_peers;
mod bench_plan;
mod bench_replicas;
mod bench_shared;
mod bench_together;
mod browser;
mod built;
#[path = "../../crates/cli/tests/it/cage.rs"]
mod cage;
mod ci;
mod command;
mod exports;
mod extern_checks;
mod gpu;
mod job_files;
mod machine;
mod machines;
mod mpi;
mod page;
mod peers;
mod process;
mod python;
mod replicas;
mod report;
mod sweep_memory;
mod vulkan;

use std::process::ExitCode;

use anyhow::{Result, bail};
use report::{OnFailure, Report};

const HELP: &str = "\
Usage: cargo xtask ci
       cargo xtask ci-full
       cargo xtask ci-machines
       cargo xtask ci-extern [--seed N]...
       cargo xtask check-mpi
       cargo xtask check-job-files
       cargo xtask check-reports
       cargo xtask test-replicas [--long] [WORD]...
       cargo xtask sweep-memory [MODEL]...
       cargo xtask bench-kernels [--rounds N] [--alternations N]
       cargo xtask bench-plan [--rounds N] [WORKLOAD]...
       cargo xtask bench-together [--rounds N]
       cargo xtask bench-shared [--rounds N]
       cargo xtask bench-peers [OPTION VALUE]...
       cargo xtask bench-gpu [--alternations N] [--steps N]
       cargo xtask bench-replicas [--alternations N] [--steps N]
       cargo xtask bench-mpi [--ranks N] [OPTION N]...

  ci            all that a change has to pass, which .ci/run runs: format, lints, docs, the tests, ci-machines and
                ci-extern; ends with the first failure, and with a table of what ran and how long

  ci-full       the same, and what is too long for every change: all random cases, every test on every machine of
                ci-machines, the GPU executor's kernels on a second driver and its lints, the benchmarks' programs once;
                goes on after a failure; an hour or two

  ci-machines   the tests as if this machine had fewer instructions, one core or 4 GiB of memory; says what it cannot
                look like

  ci-extern     what needs more than Rust: installs Python packages into a cache folder, has an oracle in Python
                write golden vectors and holds the CPU against them, passes weights to Python and back, has
                exports of profiles read by TensorBoard and its Profile tab, runs the GPU executor's tests and the
                golden vectors on a Vulkan driver in software, check-mpi, check-job-files, test-replicas and
                check-reports
  --seed N      the seed of a set of golden vectors, instead of 1 and 2; may be given several times

  check-mpi     has several processes exchange by Open MPI and by MPICH, which are installed where they are missing; among
                them some that leave, sleep, are stopped or do something else

  check-job-files  holds the MPIJob, the batch script and the Dockerfile of examples/replicas against what reads them; installs
                packages of Python and JavaScript into a cache folder

  check-reports  opens reports of profiles in Chromium, which is installed where it is missing: that they draw what the
                profiles say, on a laptop and on a phone, and can be read by everybody; leaves screenshots in
                target/report

  test-replicas  trains in several processes by Open MPI and by MPICH, of which some are killed, stopped, asked to stop, told
                something else or have no room: that they end in the same bytes, alike and with one message
  --long        also what is too long for every change: more of each, and hosts of which one is cut off, which need root;
                some minutes
  WORD          only checks with such a word in their names

  sweep-memory  trains five models in every limit of memory, MiB by MiB, from where they are refused to where they run:
                under ulimit -v, and in a control group where one can be made; half an hour, less for some of digits,
                resnet18, mobilenet_v3_small, efficientnet_b0 and gpt

  bench-kernels  times kernels against a matrix product and a long sum, matrix products in turns with PyTorch's, and
                forks of the thread pool, and writes its part of BENCHMARKS.md; five minutes on a quiet machine
  --rounds N           how often each kernel takes its turn; 5 if not given
  --alternations N     how often memfit and PyTorch take their turns; 3 if not given

  bench-plan    times training steps under smaller and smaller budgets, in turns with the fastest plan, and writes
                its part of BENCHMARKS.md; a quarter of an hour on a quiet machine

  bench-together  times several models in one memory, in turns with one after the other, and writes its part of
                BENCHMARKS.md; a quarter of an hour on a quiet machine
  --rounds N           how often; 5 if not given

  bench-shared  times several processes at once on two threads each, alone and beside one that never rests, and writes
                its part of BENCHMARKS.md; five minutes on a quiet machine
  --rounds N           how often; 5 if not given

  bench-peers   times training steps of memfit, PyTorch, TensorFlow and JAX in turns, and writes its part of
                BENCHMARKS.md; about an hour on a quiet machine, and some GB of Python packages at first
  --only A,B           of mlp, resnet18_cifar, resnet50, mobilenet_v3_large, unet, gpt; sections of others stay
  --peers A,B          of torch, tensorflow, jax; without torch the machine's limit is not measured
  --alternations N     how often each takes its turn; 3 if not given
  --steps N            how many steps are timed in a process at least, 5 if not given; 3 where a step takes over 5 s
  --threads N          2 if not given
  --timeout SECONDS    after which a process is given up, 600 if not given

  bench-gpu     times training steps of memfit and burn on a GPU in software in turns, and writes its part of
                BENCHMARKS.md; ten minutes on a quiet machine, and twenty to build burn at first
  --alternations N     how often each takes its turn; 3 if not given
  --steps N            how many steps are timed in a process; 40 if not given

  bench-replicas  times training by two processes of memfit and of PyTorch in turns, and the ordered sum beside
                MPI_Allreduce, and writes its part of BENCHMARKS.md; ten minutes on a quiet machine
  --alternations N     how often each takes its turn; 3 if not given
  --steps N            how many steps are timed in a process; 5 if not given

  bench-mpi     times the ordered sum of exchanges beside MPI_Allreduce, with Open MPI and with MPICH, and prints it as
                JSON; some minutes on a quiet machine
  --ranks N            how many processes; 2 if not given
  --floats N           of how many numbers; 25 million if not given
  --rounds N           how often each takes its turn; 5 if not given
  --piece N            bytes that are added up at once; several sizes if not given
  --chunk N            bytes that a wire moves at once; several sizes if not given

The cache folder is $MEMFIT_CACHE, $XDG_CACHE_HOME/memfit or ~/.cache/memfit, the first that is set.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--help" | "-h" | "help"] | [_, "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["bench-gpu", ref options @ ..] => bench_gpu::run(options),
        ["bench-kernels", ref options @ ..] => bench_kernels::run(options),
        ["bench-mpi", ref options @ ..] => mpi::bench(options),
        ["bench-peers", ref options @ ..] => bench_peers::run(options),
        ["bench-plan", ref options @ ..] => bench_plan::run(options),
        ["bench-replicas", ref options @ ..] => bench_replicas::run(options),
        ["bench-shared", ref options @ ..] => bench_shared::run(options),
        ["bench-together", ref options @ ..] => bench_together::run(options),
        ["sweep-memory", ref options @ ..] => sweep_memory::run(options),
        ["ci"] => ci::run(),
        ["ci-full"] => ci::run_full(),
        ["ci-machines"] => alone(|report| machines::check(report, machines::Extent::Short)),
        ["ci-extern", ref options @ ..] => {
            let seeds = seeds(options)?;
            alone(|report| extern_checks::check(report, &seeds, machines::Extent::Short))
        }
        ["check-mpi"] => alone(mpi::check),
        ["check-job-files"] => alone(job_files::check),
        ["check-reports"] => alone(browser::check),
        ["test-replicas", ref options @ ..] => replicas::run(options),
        [] => bail!("give a task; see --help"),
        ["ci" | "ci-full" | "ci-machines" | "check-mpi" | "check-job-files" | "check-reports", option, ..] => {
            bail!("\"{option}\" is not an option; see --help")
        }
        [task, ..] => bail!("there is no task \"{task}\"; see --help"),
    }
}

/// A part of `ci` by itself.
fn alone(checks: impl FnOnce(&mut Report) -> Result<()>) -> Result<()> {
    let mut report = Report::new(OnFailure::Stop);
    let done = checks(&mut report);
    done.and(report.finish())
}

/// None of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

fn seeds(options: &[&str]) -> Result<Vec<u32>> {
    let mut seeds = Vec::new();
    for pair in options.chunks(2) {
        match *pair {
            ["--seed", number] => match number.parse() {
                Ok(seed) => seeds.push(seed),
                Err(e) => bail!("--seed {number}: {e}"),
            },
            ["--seed"] => bail!("--seed needs a number"),
            _ => bail!("\"{}\" is not an option; see --help", pair[0]),
        }
    }
    Ok(if seeds.is_empty() { extern_checks::SEEDS.to_vec() } else { seeds })
}

#[cfg(test)]
mod tests {
    use super::seeds;

    fn check(options: &[&str], expected: Result<&[u32], &str>) {
        let given = seeds(options).map_err(|e| e.to_string());
        assert_eq!(given.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn seeds_are_those_given_or_two() {
        check(&[], Ok(&[1, 2]));
        check(&["--seed", "7", "--seed", "9"], Ok(&[7, 9]));
        check(&["--seed"], Err("--seed needs a number"));
        check(&["--seed", "x"], Err("--seed x: invalid digit found in string"));
        check(&["7", "--seed"], Err("\"7\" is not an option; see --help"));
    }
}
