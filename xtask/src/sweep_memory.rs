//! `sweep-memory`: trainings in every limit of memory, MiB by MiB, from where they are refused to where they run. Whatever the
//! limit is, none may be killed, end without a word, or leave a file unfinished.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::cage::{Cage, End};
use crate::command::{run as run_command, succeeds};
use crate::extern_checks::{cargo, work_folder};

/// Limits above the first that is enough, each of which must be enough.
const MORE: u64 = 8;
/// Where something that never runs is given up, in MiB.
const MOST: u64 = 1024;

/// A training, by its model and what else is said; `DATA` stands for a folder of pictures, `TEXT` for a text.
const TRAININGS: [(&str, &str); 5] = [
    ("digits", "--batch 8 --steps 3"),
    ("resnet18", "--input 33x47x3 --batch 3 --steps 4 --data DATA --host-budget 1.5MiB"),
    ("mobilenet_v3_small", "--input 32x32x3 --batch 4 --steps 3 --data DATA --host-budget 1.5MiB"),
    ("efficientnet_b0", "--input 32x32x3 --batch 2 --steps 3 --data DATA --host-budget 1.5MiB"),
    ("gpt", "--batch 1 --steps 2 --data TEXT --host-budget 1.5MiB"),
];

/// `options` are the models that are meant; all where there are none.
pub fn run(options: &[&str]) -> Result<()> {
    let is_known = |name: &&str| TRAININGS.iter().any(|(model, _)| model == name);
    if let Some(unknown) = options.iter().find(|name| !is_known(name)) {
        bail!("there is no training of \"{unknown}\"; see --help");
    }
    let folder = work_folder("sweep-memory")?;
    let program = build()?;
    let (data, text) = (folder.join("pictures"), folder.join("text.txt"));
    run_command(
        cargo("run").args(["--quiet", "--release", "--package", "memfit", "--example", "pictures", "--"]).arg(&data),
    )?;
    std::fs::write(&text, "All that is planned is there. ".repeat(400)).context("cannot write a text")?;
    let out = folder.join(format!("run-{}", std::process::id()));
    let mut cages = vec![Cage::AddressSpace];
    match Cage::group() {
        Ok(cage) => cages.push(cage),
        Err(why) => println!("no control group can be made here, so there is no sweep in one: {why}"),
    }
    println!("| training | limit by | refused in | runs from | tried | seconds |\n|---|---|---|---|---|---|");
    for (model, args) in TRAININGS.iter().filter(|(model, _)| options.is_empty() || options.contains(model)) {
        let path = |word: &str| match word {
            "DATA" => data.join("train").display().to_string(),
            "TEXT" => text.display().to_string(),
            word => word.to_string(),
        };
        for cage in &cages {
            let words: Vec<String> = args.split(' ').map(path).collect();
            let sweep = Sweep { cage, program: &program, model, args, words, out: out.clone() };
            sweep.run()?;
        }
    }
    // What the last of them left.
    let _ = std::fs::remove_dir_all(out);
    Ok(())
}

/// The program as people have it.
fn build() -> Result<PathBuf> {
    run_command(cargo("build").args(["--quiet", "--release", "--package", "memfit-cli"]))?;
    let target = work_folder("release")?;
    let program = target.join("memfit");
    if program.exists() { Ok(program) } else { bail!("cargo built no {}", program.display()) }
}

struct Sweep<'a> {
    cage: &'a Cage,
    program: &'a Path,
    model: &'a str,
    /// As they are shown, and as they are given.
    args: &'a str,
    words: Vec<String>,
    out: PathBuf,
}

impl Sweep<'_> {
    fn run(&self) -> Result<()> {
        let start = Instant::now();
        let loads = self.loads_from()?;
        let (mut first, mut mib) = (None, loads);
        while first.is_none_or(|first| mib <= first + MORE) {
            match (self.train(mib)?, first) {
                (End::Done, None) => first = Some(mib),
                (End::Done, Some(_)) | (End::Refused(_), None) => {}
                (End::Refused(message), Some(first)) => {
                    bail!("{} runs in {first} MiB and not in {mib} ({}): {message}", self.model, self.cage.name())
                }
                (End::Wrong(how), _) => bail!("{} in {mib} MiB ({}): {how}", self.model, self.cage.name()),
            }
            mib += 1;
            if mib > MOST {
                bail!("{} does not run in {MOST} MiB ({})", self.model, self.cage.name());
            }
        }
        let (runs, seconds) = (first.unwrap_or(MOST), start.elapsed().as_secs());
        let (model, args, cage) = (self.model, self.args, self.cage.name());
        println!(
            "| {model} {args} | {cage} | {loads} to {} MiB | {runs} MiB | {} | {seconds} |",
            runs - 1,
            mib - loads
        );
        Ok(())
    }

    /// The first limit in which the system loads the program: below it is nobody who could say anything.
    fn loads_from(&self) -> Result<u64> {
        let loads = |mib: &u64| succeeds(self.cage.command(*mib, self.program).arg("--version"));
        (1..MOST).find(loads).context("the program is loaded in no limit")
    }

    fn train(&self, mib: u64) -> Result<End> {
        if self.out.exists() {
            std::fs::remove_dir_all(&self.out).with_context(|| format!("cannot remove {}", self.out.display()))?;
        }
        let mut command = self.cage.command(mib, self.program);
        command.args(["train", "--threads", "2", "--model", self.model]).args(&self.words);
        let output = command.arg("--out").arg(&self.out).output().context("cannot start a shell")?;
        Ok(End::of(&output, &self.out))
    }
}
