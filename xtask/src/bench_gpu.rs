//! `bench-gpu`: training steps of memfit and of burn on the same GPU in software, in turns, each in a process of its own, as a
//! part of BENCHMARKS.md. The measuring is done by a program of `memfit-bench` and by `peers/burn`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::command::run as run_command;
use crate::extern_checks::{cargo, target_folder};
use crate::gpu::with_driver;
use crate::peers::Memfit;
use crate::process::{Results, Runner};
use crate::{machine, median, page, vulkan};

const HEAD: &str = "\
## Beside burn on a GPU

Made by `cargo xtask bench-gpu`.

Whole training steps in f32 (a batch of 32 is sent to the device, forward, loss, backward, Adam, and the loss is read when all of
it has run) on Mesa's llvmpipe, which is a GPU in software, both built as releases, in turns, each in a process of its own. burn
has its default features and wgpu: autodiff, fusion, autotune. A figure is the median over the alternations, and a ratio the
median of the ratios within each. The time of a step is the median of those after 20 to warm up, in which burn tunes its kernels;
processor time is that of all threads, those of the driver that runs the kernels included. The first step and the warm-up include
all that comes before: planning and compiling shaders; burn keeps on disk what it has tuned, so that only its first process ever
tunes.

Bytes are MB of the device as cubecl, which both stand on, counts them: in use after a step, the most in use within one, and
reserved. burn's most is what was seen by a thread that asks again and again and between backward and optimizer, and so at most
what there was; memfit's is its whole arena, which is planned. The buffers that copies go through are in neither count of what is in
use: burn's are not known; memfit's are named below each table, and its reserved bytes include them.

mlp is 784-256-256-10; convnet has two convolutions of 3×3 taps (16 and 32 filters), each with ReLU and pooling by 2, on images of
28×28×1, and a dense layer.

";

const MODELS: [&str; 2] = ["mlp", "convnet"];
/// Of one process: burn compiles and tunes for minutes where others have the cores too.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// What is compared: its key among the results, its name, and what it is multiplied by to be shown.
const FIGURES: [(&str, &str, f64); 7] = [
    ("seconds", "ms a step", 1e3),
    ("processor", "processor ms a step", 1e3),
    ("first", "s to the end of the first step", 1.0),
    ("warm_up", "s with the warm-up", 1.0),
    ("in_use", "MB in use after a step", 1e-6),
    ("peak", "MB in use at most", 1e-6),
    ("reserved", "MB reserved", 1e-6),
];

struct Options {
    alternations: usize,
    steps: usize,
}

pub fn run(words: &[&str]) -> Result<()> {
    let options = options(words)?;
    let driver = vulkan::installed(vulkan::Driver::Mesa)?
        .context("both are measured on a GPU in software, of which there is none")?;
    let programs = [Memfit::build_with("gpu", &["gpu"])?.command(), Command::new(build_burn()?)];
    let [memfit, burn] = programs.map(|mut command| {
        with_driver(&mut command, Some(&driver));
        command
    });
    let mut session = Session { sides: [memfit, burn], runner: Runner::new(TIMEOUT)?, options };
    let mut tables = String::new();
    for model in MODELS {
        let rounds = session.measure(model)?;
        tables += &table(model, &rounds)?;
    }
    let Options { alternations, steps } = session.options;
    let machine = machine::describe();
    let place = format!("Measured on {machine}; {steps} steps in each of {alternations} alternations{}.\n\n", load());
    print!("\n{place}{tables}");
    page::write("bench-gpu", &format!("{HEAD}{place}{tables}"))
}

fn options(words: &[&str]) -> Result<Options> {
    let mut options = Options { alternations: 3, steps: 40 };
    for pair in words.chunks(2) {
        let [name, value] = *pair else { bail!("{} needs a number", pair[0]) };
        let number = value.parse().ok().filter(|&n: &usize| n > 0);
        let number = number.with_context(|| format!("{name} {value}: give a number from 1 on"))?;
        match name {
            "--alternations" => options.alternations = number,
            "--steps" => options.steps = number,
            _ => bail!("\"{name}\" is not an option; see --help"),
        }
    }
    Ok(options)
}

/// Builds the peer beside what cargo builds of the workspace, and gives the program.
fn build_burn() -> Result<PathBuf> {
    let folder = target_folder()?.join("peers/burn");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/burn/Cargo.toml");
    let mut command = cargo("build");
    command.args(["--quiet", "--release", "--locked", "--manifest-path"]).arg(manifest);
    run_command(command.arg("--target-dir").arg(&folder))?;
    Ok(folder.join("release/burn-peer"))
}

/// Who else has the cores, where the system says it.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().map_or(String::new(), |load| format!("; load average at the end {load}"))
}

struct Session {
    /// memfit, and what it is held against.
    sides: [Command; 2],
    runner: Runner,
    options: Options,
}

impl Session {
    /// Every other alternation goes backwards, so that a machine that gets slower favours nobody.
    fn measure(&mut self, model: &str) -> Result<Vec<[Results; 2]>> {
        let mut rounds = Vec::new();
        for round in 0..self.options.alternations {
            let mut results = [None, None];
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                results[side] = Some(self.run(side, model)?);
            }
            if let [Some(memfit), Some(burn)] = results {
                rounds.push([memfit, burn]);
            }
        }
        Ok(rounds)
    }

    fn run(&mut self, side: usize, model: &str) -> Result<Results> {
        let name = ["memfit", "burn"][side];
        let given = &self.sides[side];
        let mut command = Command::new(given.get_program());
        command.envs(given.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.args([model, &self.options.steps.to_string()]);
        let failed = |problem: String| anyhow!("{name}, {model}: {problem}");
        let results = self.runner.run(&mut command).map_err(failed)?;
        let seconds: f64 = results.number("seconds").map_err(failed)?;
        println!("{model}, {name}: {:.1} ms a step", 1e3 * seconds);
        Ok(results)
    }
}

/// Figures of both sides and their ratios.
fn table(model: &str, rounds: &[[Results; 2]]) -> Result<String> {
    let [memfit, burn] = rounds.first().context("no alternation was run")?;
    let said =
        |results: &Results, key: &str| results.text(key).map(str::to_string).map_err(|e| anyhow!("{model}: {e}"));
    let [own, other] = [said(memfit, "parameters")?, said(burn, "parameters")?];
    if own != other {
        bail!("{model} has {own} parameters in memfit, but {other} in burn: these are not the same model");
    }
    let mut text = format!("### {model} b32 adam, {own} parameters\n\n");
    text += &format!(
        "| | {} | {} | memfit ÷ burn |\n|---|---|---|---|\n",
        said(memfit, "versions")?,
        said(burn, "versions")?
    );
    for (key, name, scale) in FIGURES {
        let pairs: Result<Vec<[f64; 2]>, String> =
            rounds.iter().map(|[memfit, burn]| Ok([memfit.number(key)?, burn.number(key)?])).collect();
        let pairs = pairs.map_err(|e| anyhow!("{model}: {e}"))?;
        let of = |pick: fn(&[f64; 2]) -> f64| median(pairs.iter().map(pick).collect()).unwrap_or(f64::NAN);
        let (own, other, ratio) = (of(|p| p[0]), of(|p| p[1]), of(|p| p[0] / p[1]));
        text += &format!("| {name} | {:.2} | {:.2} | {ratio:.2} |\n", own * scale, other * scale);
    }
    let losses = [said(memfit, "loss")?, said(burn, "loss")?];
    let copies: f64 = memfit.number("copies").map_err(|e| anyhow!("{model}: {e}"))?;
    let copies = format!("memfit's copies go through {:.2} MB.", copies * 1e-6);
    text +=
        &format!("\n{copies} Losses after the warm-up, from weights drawn apart: {} and {}.\n\n", losses[0], losses[1]);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{options, table};
    use crate::process::results;

    fn said(seconds: f64, parameters: u32) -> crate::process::Results {
        let numbers = ["processor", "first", "warm_up", "in_use", "peak", "reserved", "copies"]
            .map(|k| format!("result {k} 2\n"));
        let rest = format!("result parameters {parameters}\nresult versions v 1\nresult loss 0.5\n");
        results(&format!("result seconds {seconds}\n{rest}{}", numbers.concat()))
    }

    #[test]
    fn a_ratio_is_the_median_of_those_of_the_alternations() {
        let rounds = [(0.01, 0.02), (0.03, 0.02), (0.02, 0.08)].map(|(a, b)| [said(a, 7), said(b, 7)]);
        let text = table("mlp", &rounds).expect("all figures are there");
        assert!(text.contains("| ms a step | 20.00 | 20.00 | 0.50 |"), "{text}");
        assert!(text.contains("| MB reserved | 0.00 | 0.00 | 1.00 |"), "{text}");
    }

    #[test]
    fn other_models_are_not_compared() {
        let problem = table("mlp", &[[said(0.1, 7), said(0.1, 8)]]).expect_err("they differ").to_string();
        assert!(problem.contains("7 parameters in memfit, but 8 in burn"), "{problem}");
    }

    #[test]
    fn options_are_numbers_from_one_on() {
        let given = options(&["--steps", "5"]).expect("an option");
        assert_eq!((given.steps, given.alternations), (5, 3));
        for wrong in [&["--steps"][..], &["--steps", "0"], &["--alternations", "x"], &["--rounds", "3"]] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
    }
}
