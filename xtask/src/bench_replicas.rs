//! `bench-replicas`: training by two processes, memfit beside PyTorch, in turns, and the ordered sum of exchanges beside
//! MPI_Allreduce, as a part of BENCHMARKS.md. PyTorch is measured by a script in `peers/`, the sum by `wire_check`; memfit's times
//! are those that it prints, and its bytes are looked at here.

mod memfit;
mod table;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::command::{output, run as run_command, shown};
use crate::extern_checks::work_folder;
use crate::mpi::{Library, MPICH, OPEN_MPI};
use crate::page;
use crate::peers::Python;
use crate::process::Runner;
use memfit::{Memfit, Start};
use table::{Measured, Sample, Sums};

/// A workload, who trains it, and who is compared to whom.
struct Workload {
    /// In PyTorch's script.
    name: &'static str,
    title: &'static str,
    /// memfit's run file.
    run: &'static str,
    sides: &'static [Side],
    /// One of the sides beside another, by their labels.
    ratios: &'static [[&'static str; 2]],
}

struct Side {
    label: &'static str,
    who: Who,
}

enum Who {
    /// A variant of the script.
    Torch(&'static str),
    Memfit(Start, &'static [&'static str]),
}

const DDP: &str = "PyTorch DDP, 2 processes × 1 thread";
const ZERO1: &str = "PyTorch DDP, ZeroRedundancyOptimizer";
const FSDP2: &str = "PyTorch FSDP2";
const RANKS: &str = "memfit, 2 processes × 1 thread";
const SHARDED: &str = "memfit, the same, --shard optimizer";
const LANES: &str = "memfit, 1 process × 2 threads, --lanes 2";
const THREADS: &str = "memfit, 1 process, --replicas 2 × 1 thread";

const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "resnet18_cifar",
        title: "resnet18_cifar b128 momentum",
        run: "[model]\nname = \"resnet18\"\nstem = \"cifar\"\ninput = [32, 32, 3]\nclasses = 10\n\
              [data]\ntrain = \"images.npz\"\nhold_out = 0.0\n\
              [train]\nbatch = 128\noptimizer = \"momentum\"\nlr = 0.001\n",
        sides: &[
            Side { label: DDP, who: Who::Torch("ddp") },
            Side { label: RANKS, who: Who::Memfit(Start::Launcher, &["--threads", "1"]) },
            Side { label: LANES, who: Who::Memfit(Start::Alone, &["--threads", "2", "--lanes", "2"]) },
            Side { label: THREADS, who: Who::Memfit(Start::Alone, &["--threads", "2", "--replicas", "2"]) },
        ],
        ratios: &[[RANKS, DDP], [RANKS, LANES], [THREADS, LANES]],
    },
    Workload {
        name: "gpt",
        title: "gpt b8 adamw",
        run: "[model]\nname = \"gpt\"\n[data]\ntrain = \"tokens.bin\"\nhold_out = 0.0\n\
              [train]\nbatch = 8\noptimizer = \"adamw\"\n",
        sides: &[
            Side { label: DDP, who: Who::Torch("ddp") },
            Side { label: RANKS, who: Who::Memfit(Start::Launcher, &["--threads", "1"]) },
            Side { label: ZERO1, who: Who::Torch("zero1") },
            Side { label: SHARDED, who: Who::Memfit(Start::Launcher, &["--threads", "1", "--shard", "optimizer"]) },
            Side { label: FSDP2, who: Who::Torch("fsdp2") },
        ],
        ratios: &[[RANKS, DDP], [SHARDED, ZERO1], [SHARDED, FSDP2]],
    },
];

/// Steps of memfit that are not timed, as many as the script of PyTorch has.
const WARM_UP: usize = 2;
/// Of one process.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes that are added up at once: what an exchange of memfit takes if nothing else is said, and more.
const PIECES: [usize; 2] = [1 << 20, 4 << 20];
/// Of which a wire moves so many at once, if nothing else is said.
const CHUNK: &str = "524288";
/// Of the ordered sum in one process.
const ROUNDS: &str = "15";

struct Options {
    alternations: usize,
    steps: usize,
}

pub fn run(words: &[&str]) -> Result<()> {
    let session = Session::new(options(words)?)?;
    let mut measured: Vec<Measured> = WORKLOADS.iter().map(Measured::new).collect();
    let mut sums: Vec<Sums> = session.wires.iter().flat_map(|(l, _)| PIECES.map(|p| Sums::new(l.name, p))).collect();
    for round in 0..session.options.alternations {
        for (workload, measured) in WORKLOADS.iter().zip(&mut measured) {
            session.measure(workload, measured, round)?;
        }
        session.sum(&mut sums)?;
        // After each, so that a run which is stopped has not been in vain.
        page::write("bench-replicas", &table::page(session.options.steps, round + 1, &measured, &sums)?)?;
    }
    Ok(())
}

fn options(words: &[&str]) -> Result<Options> {
    let mut options = Options { alternations: 3, steps: 5 };
    for pair in words.chunks(2) {
        let number = || match pair.get(1).map(|n| n.parse::<usize>()) {
            Some(Ok(n)) if n > 0 => Ok(n),
            _ => bail!("{} needs a number from 1 on", pair[0]),
        };
        match pair[0] {
            "--alternations" => options.alternations = number()?,
            "--steps" => options.steps = number()?,
            other => bail!("\"{other}\" is not an option; see --help"),
        }
    }
    Ok(options)
}

struct Session {
    options: Options,
    torch: Python,
    memfit: Memfit,
    /// What measures sums, by library.
    wires: Vec<(Library, PathBuf)>,
    runner: Runner,
}

impl Session {
    /// Installs what is missing, builds what is run and writes what is trained on.
    fn new(options: Options) -> Result<Session> {
        let torch = Python::install("torch")?;
        if let Err(reason) = OPEN_MPI.installed()? {
            bail!("processes of memfit are started by Open MPI: {reason}");
        }
        let memfit = OPEN_MPI.build("memfit", "release")?;
        let mut wires = vec![(OPEN_MPI, memfit.with_file_name("wire_check"))];
        match MPICH.installed()? {
            Ok(()) => wires.push((MPICH, MPICH.build("wire_check", "release")?)),
            Err(reason) => println!("MPICH: not measured, because {reason}"),
        }
        let folder = work_folder("replicas")?;
        run_command(torch.script("replicas_data.py").arg(&folder))?;
        for workload in WORKLOADS {
            fs::write(folder.join(workload.name).with_extension("toml"), workload.run)?;
        }
        let memfit = Memfit::new(memfit, folder, TIMEOUT)?;
        Ok(Session { options, torch, memfit, wires, runner: Runner::new(TIMEOUT)? })
    }

    /// Every other alternation goes backwards, so that a machine that gets slower favours nobody.
    fn measure(&self, workload: &Workload, measured: &mut Measured, round: usize) -> Result<()> {
        let mut order: Vec<usize> = (0..workload.sides.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for i in order {
            let side = &workload.sides[i];
            let sample = self.sample(workload, side).with_context(|| format!("{}, {}", workload.name, side.label))?;
            let ms = sample.milliseconds().unwrap_or(f64::NAN);
            println!("{} {}, {}: {ms:.0} ms, {:.0} MiB", round + 1, workload.name, side.label, sample.net as f64 / MIB);
            measured.samples[i].push(sample);
        }
        Ok(())
    }

    fn sample(&self, workload: &Workload, side: &Side) -> Result<Sample> {
        match side.who {
            Who::Memfit(start, options) => {
                let run = format!("{}.toml", workload.name);
                self.memfit.train(start, &run, options, WARM_UP, self.options.steps)
            }
            Who::Torch(variant) => {
                let mut command = self.torch.script("torch_replicas.py");
                command.args([workload.name, variant, "1", &self.options.steps.to_string()]);
                let results = self.runner.run(&mut command).map_err(|e| anyhow!(e))?;
                Sample::of_script(&results).map_err(|e| anyhow!(e))
            }
        }
    }

    fn sum(&self, sums: &mut [Sums]) -> Result<()> {
        let of = |(library, program): &(Library, PathBuf), piece: usize| -> Result<[f64; 2]> {
            let mut command = library.launcher(2);
            let piece = piece.to_string();
            command.arg(program).args(["bench", "--chunk", CHUNK, "--piece", &piece, "--rounds", ROUNDS]);
            let (said, ok) = output(&mut command)?;
            let said: Value = serde_json::from_str(&said).with_context(|| shown(&command))?;
            let number = |key: &str| said["sums"][0][key].as_f64();
            match (number("ordered_ms"), number("allreduce_ms")) {
                (Some(ordered), Some(reduced)) if ok => Ok([ordered, reduced]),
                _ => bail!("{} says {said}", shown(&command)),
            }
        };
        let wires = self.wires.iter().flat_map(|wire| PIECES.map(|piece| (wire, piece)));
        for ((wire, piece), sums) in wires.zip(sums) {
            sums.milliseconds.push(of(wire, piece)?);
        }
        Ok(())
    }
}

const MIB: f64 = 1048576.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_numbers_from_one_on() {
        let given = options(&["--steps", "4"]).expect("an option");
        assert_eq!((given.steps, given.alternations), (4, 3));
        for wrong in [&["--steps"][..], &["--steps", "0"], &["--rounds", "3"]] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn whoever_is_compared_is_measured() {
        for workload in WORKLOADS {
            let labels = || workload.sides.iter().map(|s| s.label);
            assert!(workload.ratios.iter().flatten().all(|of| labels().any(|label| label == *of)), "{}", workload.name);
        }
    }
}
