//! Holds a device against golden vectors: one line for each case, then how many passed and failed. Cases are only read
//! and run here; what counts as close is the library's.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;

use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::golden::{self, Entry};
use memfit_exec_tests::{Planned, Reference, Runner, Settings};

const HELP: &str = "\
Holds a device against golden vectors and prints the largest error of each case.

Usage: golden DIR [--device cpu|gpu|reference] [--threads N] [--case SUBSTRING]

  DIR                   a directory with golden.json and golden.safetensors
  --device cpu          the CPU executor, with a plan for each case (the default)
  --device gpu          the GPU executor; gpu:1 is the second GPU (where built with the feature gpu)
  --device reference    the naive f64 reference
  --threads N           threads of the CPU executor; one for each core unless given
  --case SUBSTRING      only the cases whose names contain it

Example: golden crates/exec-tests/tests/golden --device cpu --threads 2 --case conv2d

Exit codes: 0 all passed, 1 a case failed, 2 wrong use or files that cannot be read
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let done = match parse(&arguments) {
        Ok(Command::Help) => print(HELP).map(|()| ExitCode::SUCCESS),
        Ok(Command::Check(options)) => check_all(&options),
        Err(problem) => Err(problem),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("golden: {problem}");
        ExitCode::from(2)
    })
}

// ---- arguments -------------------------------------------------------------------------------------------------------

#[derive(Debug, PartialEq)]
enum Command {
    Help,
    Check(Options),
}

#[derive(Debug, PartialEq)]
struct Options {
    directory: PathBuf,
    device: Device,
    /// Of the CPU; none for one on each core.
    threads: Option<usize>,
    /// Part of the name of the cases that are run.
    case: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Device {
    Cpu,
    /// Of this number.
    Gpu(usize),
    Reference,
}

fn parse(arguments: &[String]) -> Result<Command, String> {
    let mut directory = None;
    let (mut device, mut threads, mut case) = (Device::Cpu, None, String::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_string())),
            Some(_) | None => (argument.as_str(), None),
        };
        let mut value = || {
            let next = attached.clone().or_else(|| rest.next().cloned());
            next.ok_or_else(|| format!("{name} needs a value; see --help"))
        };
        match name {
            "--help" | "-h" => return Ok(Command::Help),
            "--device" => device = parse_device(&value()?)?,
            "--threads" => threads = Some(parse_threads(&value()?)?),
            "--case" => case = value()?,
            _ if name.starts_with('-') => return Err(format!("{name} is not an option; see --help")),
            _ if directory.is_none() => directory = Some(PathBuf::from(argument)),
            _ => return Err(format!("\"{argument}\" is one directory too many; give one")),
        }
    }
    let directory = directory.ok_or("give a directory with golden.json and golden.safetensors; see --help")?;
    Ok(Command::Check(Options { directory, device, threads, case }))
}

fn parse_device(name: &str) -> Result<Device, String> {
    match name {
        "cpu" => Ok(Device::Cpu),
        "reference" => Ok(Device::Reference),
        "gpu" => Ok(Device::Gpu(0)),
        _ => match name.strip_prefix("gpu:").and_then(|number| number.parse().ok()) {
            Some(number) => Ok(Device::Gpu(number)),
            None => Err(format!("\"{name}\" is not a device; use cpu, gpu, gpu:1 or reference")),
        },
    }
}

fn parse_threads(number: &str) -> Result<usize, String> {
    match number.parse() {
        Ok(n) if n > 0 => Ok(n),
        Ok(_) | Err(_) => Err(format!("\"{number}\" is not a number of threads; use 1 or more")),
    }
}

// ---- cases -----------------------------------------------------------------------------------------------------------

fn check_all(options: &Options) -> Result<ExitCode, String> {
    let mut entries = golden::load(&options.directory).map_err(|e| e.to_string())?;
    entries.retain(|e| e.name.contains(&options.case));
    if entries.is_empty() {
        return Err(format!("no case has \"{}\" in its name; leave --case out to run all", options.case));
    }
    runner(options)?;
    let width = entries.iter().map(|e| e.name.chars().count()).max().unwrap_or(0);
    let mut failed = 0;
    for entry in &entries {
        let (word, outcome) = match check(options, entry) {
            Ok(error) => ("ok", format!("{error:.1e}")),
            Err(reason) => ("FAIL", reason.replace('\n', " ")),
        };
        failed += usize::from(word == "FAIL");
        print(&format!("{word:<5} {:<width$}  {outcome}\n", entry.name))?;
    }
    print(&format!("{} passed, {failed} failed\n", entries.len() - failed))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The largest error of a case, or why it failed. A panic is a bug of the device: it fails its case, not the list.
fn check(options: &Options, entry: &Entry) -> Result<f64, String> {
    let case = entry.case.as_ref().map_err(|e| e.to_string())?;
    let mut runner = runner(options)?;
    let checked = catch_unwind(AssertUnwindSafe(|| golden::check(&mut *runner, case)));
    match checked {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => Err(format!("the device panicked, which is a bug in memfit: {}", message(&*panic))),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it left no message")
}

fn runner(options: &Options) -> Result<Box<dyn Runner>, String> {
    match options.device {
        Device::Reference => Ok(Box::new(Reference)),
        Device::Cpu => {
            let cores = || available_parallelism().map_or(1, usize::from);
            let threads = options.threads.unwrap_or_else(cores);
            Ok(Box::new(Planned::new(move || CpuExecutor::new(threads), Settings::default())))
        }
        Device::Gpu(number) => gpu(number),
    }
}

#[cfg(feature = "gpu")]
fn gpu(number: usize) -> Result<Box<dyn Runner>, String> {
    // It is opened once.
    let executor = memfit_exec_gpu::GpuExecutor::new(number).map_err(|e| e.to_string())?;
    Ok(Box::new(Planned::new(move || Ok(executor.clone()), Settings::default())))
}

#[cfg(not(feature = "gpu"))]
fn gpu(number: usize) -> Result<Box<dyn Runner>, String> {
    Err(format!("gpu:{number} cannot be used: this was built without GPUs; build it with --features gpu"))
}

/// A reader that has seen enough closes the pipe, which is no reason to panic.
fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| format!("cannot write the results: {e}"))
}
