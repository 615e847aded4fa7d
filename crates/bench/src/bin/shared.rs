//! Cores that are shared: several processes at once, each on two threads, alone and beside a process that never rests.
//! `shared [--rounds N]` prints a table in Markdown; `cargo xtask bench-shared` writes it into BENCHMARKS.md. It runs `memfit`
//! from its own folder, and itself: `shared steps WORKLOAD N` is a job, `shared hog` what others are measured beside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memfit::CpuExecutor;
use memfit_bench::{Failure, Runner, Workload, median};

/// The first is what others are held against.
const PROCESSES: [usize; 4] = [1, 2, 4, 8];
/// A hog ends by itself after so long.
const HOG: Duration = Duration::from_secs(120);
/// Of the processor time that the system counts.
const TICKS_A_SECOND: f64 = 100.0;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => bench(5),
        ["--rounds", rounds] => bench(rounds.parse()?),
        ["steps", workload, steps] => make_steps(Workload::from_name(workload)?, steps.parse()?),
        ["hog"] => hog(),
        _ => Err("usage: shared [--rounds N]".into()),
    }
}

/// What each of the processes does.
enum Job {
    /// `memfit train` with its built-in data, for so many epochs.
    Train(usize),
    Steps(&'static str, usize),
}

const JOBS: [Job; 3] = [Job::Train(10), Job::Steps("mlp", 40), Job::Steps("resnet18_cifar", 2)];

/// How a job is run.
#[derive(Clone, Copy, PartialEq)]
struct Case {
    processes: usize,
    beside_hog: bool,
}

/// Seconds of a round.
#[derive(Clone, Copy)]
struct Times {
    /// Until the last process has ended.
    wall: f64,
    /// Of the processor, in all of them.
    processor: f64,
}

fn bench(rounds: usize) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("memfit-bench-shared-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    println!("| job | processes | beside | wall s | ÷ (processes × alone) | processor s | ÷ (processes × alone) |");
    println!("|---|---|---|---|---|---|---|");
    let done = JOBS.iter().try_for_each(|job| bench_job(job, rounds.max(1), &folder));
    std::fs::remove_dir_all(&folder)?;
    done
}

fn bench_job(job: &Job, rounds: usize, folder: &Path) -> Result<(), Failure> {
    let cases: Vec<Case> = [false, true]
        .into_iter()
        .flat_map(|beside_hog| PROCESSES.map(|processes| Case { processes, beside_hog }))
        .collect();
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); cases.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for (case, times) in cases.iter().zip(&mut times) {
            let time = run(job, *case, folder)?;
            if round > 0 {
                times.push(time);
            }
        }
    }
    // Each case beside the first of the same round, so that the share of others' load is the same.
    let alone = times[0].clone();
    for (case, times) in cases.iter().zip(&times) {
        let n = case.processes as f64;
        let ratio = |of: fn(&Times) -> f64| median(times.iter().zip(&alone).map(|(t, a)| of(t) / of(a) / n).collect());
        println!(
            "| {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            job.name(),
            case.processes,
            if case.beside_hog { "a hog at nice 19" } else { "" },
            median(times.iter().map(|t| t.wall).collect()),
            ratio(|t| t.wall),
            median(times.iter().map(|t| t.processor).collect()),
            ratio(|t| t.processor),
        );
    }
    Ok(())
}

fn run(job: &Job, case: Case, folder: &Path) -> Result<Times, Failure> {
    let mut hog = if case.beside_hog { Some(Ended(own("hog")?.spawn()?)) } else { None };
    let (before, start) = (processor_seconds()?, Instant::now());
    let runs: Vec<PathBuf> = (0..case.processes).map(|i| folder.join(i.to_string())).collect();
    let mut children = Vec::new();
    for run in &runs {
        children.push(Ended(job.command(run)?.spawn()?));
    }
    for child in &mut children {
        let status = child.0.wait()?;
        if !status.success() {
            return Err(format!("{} failed: {status}", job.name()).into());
        }
    }
    // The hog still runs, and is not counted.
    let times = Times { wall: start.elapsed().as_secs_f64(), processor: processor_seconds()? - before };
    if let Some(hog) = &mut hog
        && let Some(status) = hog.0.try_wait()?
    {
        return Err(format!("the hog ended before the others: {status}").into());
    }
    for run in runs.iter().filter(|run| run.exists()) {
        std::fs::remove_dir_all(run)?;
    }
    Ok(times)
}

impl Job {
    fn name(&self) -> String {
        match self {
            Job::Train(epochs) => format!("`memfit train --epochs {epochs}`"),
            Job::Steps(workload, steps) => format!("{workload}, {steps} steps"),
        }
    }

    fn command(&self, run: &Path) -> Result<Command, Failure> {
        let mut command = match self {
            Job::Train(epochs) => {
                let mut command = Command::new(beside("memfit")?);
                command.args(["train", "--threads", "2", "--epochs", &epochs.to_string(), "--out"]).arg(run);
                command
            }
            Job::Steps(workload, steps) => {
                let mut command = own("steps")?;
                command.args([workload, &steps.to_string()[..]]);
                command
            }
        };
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(command)
    }
}

/// This program as something else.
fn own(what: &str) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(what);
    Ok(command)
}

/// A program of the same build.
fn beside(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!("there is no {}; build the package memfit-cli", path.display()).into()),
    }
}

/// A process that does not outlive the measurement, whatever becomes of it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of this process's children that have ended.
fn processor_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which is in brackets and may hold anything: state, then 12 numbers to those of this process itself.
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has another form")?;
    let ticks = fields.split_whitespace().skip(13).take(2).map(|n| n.parse::<f64>());
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS_A_SECOND)
}

fn make_steps(workload: &Workload, steps: usize) -> Result<(), Failure> {
    let mut runner = Runner::fastest(workload, CpuExecutor::new(2)?)?;
    (0..steps).try_for_each(|_| runner.step())
}

/// Wants a core whenever nobody else does.
fn hog() -> Result<(), Failure> {
    rustix::process::nice(19)?;
    let start = Instant::now();
    while start.elapsed() < HOG {
        std::hint::spin_loop();
    }
    Ok(())
}
