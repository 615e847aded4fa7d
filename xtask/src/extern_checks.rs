//! What needs more than Rust: golden vectors from an oracle in Python, weights that Python reads and writes, exports that the
//! programs read that they are for, a GPU in software, processes that exchange and train by MPI, files that start
//! these elsewhere, reports in a browser. Judges nothing itself: the oracles and the commands of memfit do.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::built::Built;
use crate::command::{output, run as run_command, shown};
use crate::machines::{Extent, instruction_sets};
use crate::python::{self, Dependencies};
use crate::report::Report;
use crate::{browser, exports, gpu, job_files, mpi, replicas};

/// Of the sets of golden vectors, where none are asked for.
pub const SEEDS: [u32; 2] = [1, 2];

/// All of these checks, with a set of golden vectors for each seed.
pub fn check(report: &mut Report, seeds: &[u32], extent: Extent) -> Result<()> {
    let mut vectors = Vec::new();
    report.check("golden vectors and weights from Python", || {
        vectors = check_oracle(seeds, extent)?;
        Ok(())
    })?;
    report.check("exports in the programs that read them", exports::check)?;
    gpu::check(report, extent, &vectors)?;
    mpi::check(report)?;
    job_files::check(report)?;
    replicas::check(report, extent)?;
    browser::check(report)?;
    match extent {
        Extent::Short => Ok(()),
        // It comes with the browser.
        Extent::Full => gpu::check_other_driver(report),
    }
}

/// The folders of the golden vectors, on which the CPU passed.
fn check_oracle(seeds: &[u32], extent: Extent) -> Result<Vec<PathBuf>> {
    let requirements = python::oracle().join("requirements.txt");
    let interpreter =
        step("Python environment", || python::environment("python", &requirements, Dependencies::Installed))?;
    let oracle = Oracle { interpreter, work: work_folder("oracle")?, built: Built::new()? };
    step("weights to Python and back", || oracle.check_weights())?;
    if extent == Extent::Full {
        step("weights of torchvision and timm", || oracle.check_foreign_weights())?;
    }
    step("augmentation against Pillow", || seeds.iter().try_for_each(|seed| oracle.check_pictures(*seed)))?;
    step("the oracle against the bundled golden vectors", || oracle.check_itself())?;
    let sets = instruction_sets(&oracle.built)?;
    let mut folders = Vec::new();
    for &seed in seeds {
        let vectors = step(&format!("golden vectors of seed {seed}"), || oracle.vectors(seed))?;
        for isa in &sets {
            step(&format!("the CPU with {isa} instructions against seed {seed}"), || oracle.check_cpu(&vectors, isa))?;
        }
        folders.push(vectors);
    }
    Ok(folders)
}

/// A part of a check: the first that fails ends it.
pub fn step<T>(name: &str, check: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("== {name}");
    let start = Instant::now();
    let done = check().with_context(|| name.to_string())?;
    println!("   {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}

struct Oracle {
    interpreter: PathBuf,
    /// Takes what the checks write.
    work: PathBuf,
    built: Built,
}

impl Oracle {
    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.interpreter);
        // Compiled files would land in the repository.
        command.arg("-B").arg(python::oracle().join(name));
        command
    }

    /// It has to reproduce what another framework computed before it may judge.
    fn check_itself(&self) -> Result<()> {
        run_command(self.script("golden.py").arg("--check").arg(repository().join("crates/exec-tests/tests/golden")))
    }

    /// The folder of a seed's vectors, which are written first unless these sources have written them before.
    fn vectors(&self, seed: u32) -> Result<PathBuf> {
        let folder = self.work.join(format!("seed-{seed}"));
        let marker = folder.join("made-from.txt");
        let sources = oracle_sources()?;
        if fs::read_to_string(&marker).is_ok_and(|made_from| made_from == sources) {
            println!("unchanged: {}", folder.display());
            return Ok(folder);
        }
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        run_command(self.script("golden.py").args(["--seed", &seed.to_string(), "--out"]).arg(&folder))?;
        fs::write(&marker, sources)?;
        Ok(folder)
    }

    fn check_weights(&self) -> Result<()> {
        let mut script = self.script("weights.py");
        script.arg(self.work.join("weights")).arg("--").arg(self.built.program("memfit")?.get_program());
        run_command(script.current_dir(repository()))
    }

    /// In a Python of its own: PyTorch is large.
    fn check_foreign_weights(&self) -> Result<()> {
        let requirements = python::oracle().join("requirements-torch.txt");
        let interpreter = python::environment("oracle-torch", &requirements, Dependencies::Installed)?;
        let mut script = Command::new(interpreter);
        script.arg("-B").arg(python::oracle().join("foreign_weights.py"));
        script.arg(self.work.join("foreign-weights")).arg("--").arg(self.built.example("logits")?.get_program());
        run_command(script.current_dir(repository()))
    }

    /// What is bundled is torchvision's, which is too large to have here.
    fn check_pictures(&self, seed: u32) -> Result<()> {
        let folder = self.work.join("pictures");
        run_command(self.script("pictures.py").args(["--seed", &seed.to_string(), "--out"]).arg(&folder))?;
        run_command(self.built.example("operations")?.arg(&folder))
    }

    /// Prints the cases that fail and the count.
    fn check_cpu(&self, vectors: &Path, isa: &str) -> Result<()> {
        let mut golden = self.built.program("golden")?;
        golden.arg(vectors).args(["--device", "cpu"]).env("MEMFIT_ISA", isa);
        let (lines, passed) = output(&mut golden)?;
        for line in lines.lines().filter(|l| !l.starts_with("ok ")) {
            println!("{line}");
        }
        if !passed {
            bail!("the CPU does not compute what the oracle says; again with: MEMFIT_ISA={isa} {}", shown(&golden));
        }
        Ok(())
    }
}

/// All that decides what the vectors are.
fn oracle_sources() -> Result<String> {
    let mut text = String::new();
    for name in ["requirements.txt", "golden.py", "cases.py", "draw.py", "ops.py", "training.py"] {
        let path = python::oracle().join(name);
        text += &fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(text)
}

pub fn cargo(task: &str) -> Command {
    let mut command = Command::new(cargo_program());
    command.arg(task).current_dir(repository()).env("RUST_BACKTRACE", "0");
    command
}

/// The cargo that runs this.
fn cargo_program() -> OsString {
    env::var_os("CARGO").unwrap_or("cargo".into())
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Beside what cargo builds, so that it is never in the way of the sources and is cleaned with them.
pub fn work_folder(name: &str) -> Result<PathBuf> {
    let folder = target_folder()?.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Where cargo builds.
pub fn target_folder() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find out where this program stands")?;
    let target = program.ancestors().nth(2).context("this program stands in no target folder")?;
    Ok(target.to_path_buf())
}
