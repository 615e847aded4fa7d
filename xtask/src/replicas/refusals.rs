//! What cannot be trained is refused by all processes alike: with one message, one exit code, and before anything is written.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::folder::tensors;
use super::job::{Ended, check_gone};
use super::{Bench, Rank, Seen, seconds, text};
use crate::command::succeeds;
use crate::machines::instruction_sets_of;

/// Within which all have to be gone.
const SOON: Duration = Duration::from_secs(60);

/// MPICH's launcher may end those that are about to end with a code of their own, and tells all codes as one, bit by bit.
pub fn codes(bench: &Bench, code: i32) -> Vec<i32> {
    if bench.is_open_mpi() { vec![code] } else { vec![code, 9, code | 9] }
}

fn refused(bench: &Bench, folder: &Path, ranks: &[Rank], code: i32, parts: &[&str]) -> Result<Ended> {
    let ended = bench.start(folder, ranks)?.end(SOON)?;
    check_gone(folder, Duration::from_secs(2))?;
    ended.check_failed(&codes(bench, code), parts)?;
    if folder.join("run").exists() {
        bail!("something was written to {}", folder.join("run").display());
    }
    Ok(ended)
}

pub fn differences(bench: &Bench) -> Seen {
    let table = |last: &str| {
        let row = |i: u32| format!("{},{},{}\n", i % 7, i % 5, ["cat", "dog"][i as usize % 2]);
        (0..64).map(row).collect::<String>() + last
    };
    let first = bench.write("first.csv", format!("a,b,label\n{}", table("")))?;
    let other = bench.write("other.csv", format!("a,b,label\n{}", table("").replacen("0,0,cat", "9,0,cat", 1)))?;
    let longer = bench.write("longer.csv", format!("a,b,label\n{}", table("1,1,cat\n")))?;
    let csv = ["--model", "mlp", "--data"];
    let sets = instruction_sets_of(Command::new(&bench.program))?;
    let mut seen = Vec::new();
    let cases: [(&[&str], &[&str], &str); 9] = [
        (&[], &["--seed", "2"], "seed"),
        (&["--lanes", "4"], &["--lanes", "8"], "replicas.lanes"),
        (&[], &["--lr", "0.1"], "train.lr"),
        (&[], &["--batch", "64"], "train.batch"),
        (&[], &["--optimizer", "sgd"], "train.optimizer"),
        (&["--shard", "none"], &["--shard", "optimizer"], "replicas.shard"),
        (&["--piece", "1MiB"], &["--piece", "2MiB"], "replicas.piece"),
        (&[csv.as_slice(), &[&first]].concat(), &[csv.as_slice(), &[&other]].concat(), "of the training set"),
        (&[csv.as_slice(), &[&first]].concat(), &[csv.as_slice(), &[&longer]].concat(), "number of samples"),
    ];
    let mut slowest = Duration::ZERO;
    for (common, own, named) in cases {
        let folder = bench.folder("differs")?;
        let base = Rank::new(&["train", "--steps", "12", "--out", &text(&folder.join("run"))]);
        let ranks = [base.and(common), base.and(common), base.and(own)];
        let ended = refused(bench, &folder, &ranks, 2, &["replica 2", named]).with_context(|| named.to_string())?;
        slowest = slowest.max(ended.after);
        seen.push(named);
    }
    if let [one, another, ..] = &sets[..] {
        let folder = bench.folder("isa")?;
        let base = Rank::new(&["train", "--steps", "12", "--out", &text(&folder.join("run"))]);
        let ranks = [one, another].map(|isa| base.clone().with(&format!("MEMFIT_ISA={isa}")));
        refused(bench, &folder, &ranks, 2, &["replica 1", "instruction set"]).context("instruction set")?;
        seen.push("instruction set");
    }
    Ok(format!("refused by name within {}: {}", seconds(slowest), seen.join(", ")))
}

pub fn budget(bench: &Bench) -> Seen {
    for rank in [1, 0] {
        let folder = bench.folder("budget")?;
        let base = Rank::new(&["train", "--steps", "12", "--out", &text(&folder.join("run"))]);
        let mut ranks = vec![base.clone(), base.clone(), base];
        ranks[rank] = ranks[rank].and(&["--budget", "500KiB"]);
        let name = format!("replica {rank}: no plan");
        let name = if rank == 0 { "error: no plan" } else { &name };
        refused(bench, &folder, &ranks, 3, &[name, "500 KiB"]).with_context(|| format!("rank {rank}"))?;
    }
    // Most of it are optimizer states, of which a share would fit.
    let folder = bench.folder("budget-cure")?;
    let rank = Rank::new(&["train", "--steps", "12", "--out", &text(&folder.join("run"))]).and(&[
        "--data",
        &bench.write("wide.csv", wide())?,
        "--model",
        "mlp",
        "--batch",
        "8",
        "--budget",
        "78MiB",
    ]);
    let ended = bench.run(&folder, &vec![rank; 4])?;
    ended.check_failed(&codes(bench, 3), &["--shard optimizer"])?;
    Ok("exit 3, its rank named; --shard optimizer offered where that fits".into())
}

/// Rows of many columns: most of a model are then its first weights.
pub fn wide() -> String {
    let names: Vec<String> = (0..800).map(|i| format!("c{i}")).collect();
    let row = |i: usize| {
        let values: Vec<String> = (0..800).map(|c| ((i * c) % 13).to_string()).collect();
        format!("{},{}\n", values.join(","), ["cat", "dog"][i % 2])
    };
    format!("{},label\n{}", names.join(","), (0..40).map(row).collect::<String>())
}

pub fn arguments(bench: &Bench) -> Seen {
    for wrong in [vec![1], vec![0], vec![0, 1, 2]] {
        let folder = bench.folder("arguments")?;
        let base = Rank::new(&["train", "--steps", "12", "--out", &text(&folder.join("run"))]);
        let mut ranks = vec![base; 3];
        for &rank in &wrong {
            ranks[rank] = ranks[rank].and(&["--nonsense"]);
        }
        refused(bench, &folder, &ranks, 2, &["--nonsense"]).with_context(|| format!("ranks {wrong:?}"))?;
    }
    for (options, part) in [(["--lanes", "2"], "too few for 3 replicas"), (["--data", "nowhere.csv"], "nowhere.csv")] {
        let folder = bench.folder("arguments")?;
        let rank = Rank::new(&["train", "--steps", "12", "--out", &text(&folder.join("run"))]).and(&options);
        let code = if part == "nowhere.csv" { 4 } else { 2 };
        refused(bench, &folder, &vec![rank; 3], code, &[part]).with_context(|| part.to_string())?;
    }
    Ok("told once, whether one process has them or all".into())
}

/// Of several that are refused one tells, however slow the others are.
pub fn busy(bench: &Bench) -> Seen {
    let cores = std::thread::available_parallelism()?.get();
    let spin = || Ok::<_, std::io::Error>(Spinning(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?));
    let _busy: Vec<Spinning> = (0..3 * cores).map(|_| spin()).collect::<Result<_, _>>()?;
    let count = if bench.is_long() { 20 } else { 3 };
    for i in 0..count {
        let folder = bench.folder("busy")?;
        let base = Rank::new(&["train", "--steps", "12", "--out", &text(&folder.join("run"))]);
        let (ranks, code, part) = match i % 3 {
            0 => (vec![base.and(&["--lanes", "2"]); 4], 2, "too few for 4 replicas"),
            1 => (vec![base.and(&["--data", "nowhere.csv"]); 4], 4, "nowhere.csv"),
            _ => (vec![base.clone(), base.clone(), base.and(&["--budget", "500KiB"]), base], 3, "replica 2: no plan"),
        };
        refused(bench, &folder, &ranks, code, &[part]).with_context(|| part.to_string())?;
    }
    Ok(format!("{count} refusals told once each, beside {} loops on {cores} cores", 3 * cores))
}

/// A process that keeps a core busy, for as long as this is there.
struct Spinning(std::process::Child);

impl Drop for Spinning {
    fn drop(&mut self) {
        // It may have been ended by somebody else.
        self.0.kill().and_then(|()| self.0.wait().map(drop)).ok();
    }
}

/// A grey square.
const IMAGE: &[u8] = include_bytes!("grey.png");

pub fn image(bench: &Bench) -> Seen {
    let folder = bench.folder("image")?;
    let data = |name: &str, damaged: Option<&str>| -> Result<String> {
        let data = folder.join(name);
        for class in ["cat", "dog"] {
            fs::create_dir_all(data.join(class))?;
            for i in 0..20 {
                let file = format!("{class}/{i:02}.png");
                let is_damaged = damaged == Some(&file);
                fs::write(data.join(&file), if is_damaged { &IMAGE[..60] } else { IMAGE })?;
            }
        }
        Ok(text(&data))
    };
    // Not among the few that are compared at the start.
    let (whole, damaged) = (data("whole", None)?, data("damaged", Some("cat/07.png"))?);
    let base = Rank::new(&["train", "--epochs", "9", "--batch", "8", "--model", "digits", "--input", "8x8x1"])
        .and(&["--out", &text(&folder.join("run"))]);
    let ranks = [base.and(&["--data", &whole, "--test", &whole]), base.and(&["--data", &damaged, "--test", &whole])];
    let ended = bench.start(&folder, &ranks)?.end(SOON)?;
    check_gone(&folder, Duration::from_secs(2))?;
    ended.check_failed(&codes(bench, 4), &["replica 1", "cat/07.png"])?;
    let told = ended.stderr.matches("cat/07.png").count() + ended.stdout.matches("cat/07.png").count();
    if told != 1 {
        bail!("its path is told {told} times:\n{}{}", ended.stdout, ended.stderr);
    }
    Ok(format!("exit {:?}, its path told once", ended.code.unwrap_or(-1)))
}

pub fn full_disk(bench: &Bench) -> Seen {
    let folder = bench.folder("disk")?;
    let disk = folder.join("disk");
    fs::create_dir(&disk)?;
    if !succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", "size=600k", "tmpfs"]).arg(&disk)) {
        return Ok("not run, because this process may not mount a small disk".into());
    }
    let rank = Rank::new(&["train", "--steps", "12", "--lanes", "4", "--out", &text(&disk.join("run"))]);
    let ended = bench.run(&folder, &vec![rank; 3]);
    let unmounted = succeeds(Command::new("umount").arg(&disk));
    let ended = ended?;
    if !unmounted {
        bail!("{} cannot be unmounted", disk.display());
    }
    check_gone(&folder, Duration::from_secs(2))?;
    ended.check_failed(&codes(bench, 4), &["No space left on device"])?;
    Ok(format!("exit {}: {}", ended.code.unwrap_or(-1), ended.errors()[0].trim_start_matches("error: ")))
}

pub fn without_mpi(bench: &Bench) -> Seen {
    let program = bench.program_without_mpi()?;
    let folder = bench.folder("without")?;
    let run = text(&folder.join("run"));
    let mut command = bench.library.launcher(2);
    command.arg(&program).args(["train", "--steps", "12", "--out", &run]);
    let ended = super::Job::start(command, &folder)?.end(SOON)?;
    if !ended.code.is_some_and(|code| codes(bench, 2).contains(&code)) || folder.join("run").exists() {
        bail!("exit code {:?}:\n{}", ended.code, ended.stderr);
    }
    if !ended.stderr.contains("built without MPI") {
        bail!("it does not say why:\n{}", ended.stderr);
    }
    let mut command = bench.library.launcher(1);
    command.arg(&program).args(["train", "--steps", "2", "--out", &run]);
    super::Job::start(command, &folder)?.end(SOON)?.check_passed().context("one process")?;
    tensors(&folder.join("run"))?;
    Ok("refused for two processes, and trains as one".into())
}
