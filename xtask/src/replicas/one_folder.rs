//! Processes that share no file system: each is in a folder of its own, as on a host of its own, and only the first has the run file,
//! the weights to start from and the folder of the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::folder::{Files, check_same, tensors};
use super::job::{Ended, LONGEST, MARK, Process, check_gone, resident_peak};
use super::{Bench, Rank, Seen, text};

const RUN: &str = "[train]\nsave_every = 5\n[replicas]\nlanes = 4\n";

/// More than there are processes in any of these.
const HOSTS: usize = 4;

/// A folder for each process.
struct Hosts<'a> {
    bench: &'a Bench,
    folder: PathBuf,
}

impl<'a> Hosts<'a> {
    /// With a run file on the first.
    fn new(bench: &'a Bench, name: &str) -> Result<Hosts<'a>> {
        let hosts = Hosts { bench, folder: bench.folder(name)? };
        for i in 0..HOSTS {
            fs::create_dir(hosts.of(i))?;
        }
        fs::write(hosts.of(0).join("run.toml"), RUN)?;
        Ok(hosts)
    }

    fn of(&self, rank: usize) -> PathBuf {
        self.folder.join(format!("host-{rank}"))
    }

    /// A process where it is started.
    fn rank(&self, rank: usize, arguments: &[&str]) -> Rank {
        let chdir = format!("--chdir={}", text(&self.of(rank)));
        Rank::new(arguments).with(&chdir).with(&format!("{MARK}={}", text(&self.folder)))
    }

    /// So many processes that are told the same.
    fn ranks(&self, count: usize, arguments: &[&str]) -> Vec<Rank> {
        (0..count).map(|rank| self.rank(rank, arguments)).collect()
    }

    fn run(&self, count: usize, arguments: &[&str]) -> Result<Ended> {
        self.bench.run(&self.folder, &self.ranks(count, arguments))
    }

    /// Whatever they did, nothing came to lie anywhere but on the first.
    fn check_others_are_empty(&self) -> Result<()> {
        for i in 1..HOSTS {
            if let Some(entry) = fs::read_dir(self.of(i))?.next() {
                bail!("host {i} has {}", entry?.path().display());
            }
        }
        Ok(())
    }
}

/// 4, then 2, 3 and 1, where one that nobody disturbed ends in the same states.
pub fn resumed(bench: &Bench) -> Seen {
    for options in [&[][..], &["--shard", "optimizer"]] {
        let hosts = Hosts::new(bench, "one-folder")?;
        let begin = [&["train", "run.toml", "--steps", "6", "--out", "runs/a"], options].concat();
        hosts.run(4, &begin)?.check_passed().context("beginning")?;
        // What another has under the same name is not looked at.
        fs::create_dir_all(hosts.of(1).join("runs/a"))?;
        fs::write(hosts.of(1).join("runs/a/run.toml"), "[train]\nbatch = 1\n")?;
        for (count, steps) in [(2, "12"), (3, "18")] {
            let arguments = ["train", "--resume", "runs/a", "--steps", steps];
            hosts.run(count, &arguments)?.check_passed().with_context(|| format!("going on with {count}"))?;
        }
        fs::remove_dir_all(hosts.of(1).join("runs"))?;
        let run = hosts.of(0).join("runs/a");
        bench.run_alone(&hosts.folder, &["train", "--resume", &text(&run), "--steps", "24"])?.check_passed()?;
        let file = bench.write("one-folder.toml", RUN)?;
        // Whoever ends earlier evaluates there too, and may find other weights the best.
        let last = |mut files: Files| {
            files.retain(|name, _| name.starts_with("step-00000024-"));
            files
        };
        let expected = last(bench.trained_alone(&[&file, "--steps", "24"])?);
        if expected.len() != 1 {
            bail!("there are {} checkpoints of step 24", expected.len());
        }
        check_same(&last(tensors(&run)?), &expected).with_context(|| format!("{options:?}"))?;
        hosts.check_others_are_empty()?;
    }
    Ok("4, then 2, 3 and 1 processes end in the states of one, also sharded; the others' folders are empty".into())
}

pub fn damaged(bench: &Bench) -> Seen {
    let hosts = Hosts::new(bench, "one-damaged")?;
    hosts.run(3, &["train", "run.toml", "--steps", "6", "--out", "runs/a"])?.check_passed()?;
    let run = hosts.of(0).join("runs/a");
    let named = |name: &String| name.starts_with("step-");
    let name = tensors(&run)?.into_keys().find(named).context("no checkpoint")?;
    let mut bytes = fs::read(run.join(&name))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(run.join(&name), bytes)?;
    let before = fs::read(run.join("last.json"))?;
    let ended = hosts.run(3, &["train", "--resume", "runs/a", "--steps", "12"])?;
    check_gone(&hosts.folder, std::time::Duration::from_secs(2))?;
    ended.check_failed(&super::refusals::codes(bench, 4), &[&name, "checksum"])?;
    if fs::read(run.join("last.json"))? != before {
        bail!("something was saved");
    }
    hosts.check_others_are_empty()?;
    Ok(format!("exit {}: {}", ended.code.unwrap_or(-1), ended.errors()[0].trim_start_matches("error: ")))
}

pub fn weights(bench: &Bench) -> Seen {
    let hosts = Hosts::new(bench, "one-weights")?;
    let first = hosts.of(0);
    bench
        .run_alone(&hosts.folder, &["train", "--steps", "6", "--out", &text(&first.join("runs/a"))])?
        .check_passed()?;
    fs::rename(first.join("runs/a/weights.safetensors"), first.join("given.safetensors"))?;
    let given = text(&first.join("given.safetensors"));
    let expected = bench.trained_alone(&["--steps", "6", "--lanes", "4", "--weights", &given])?;
    for (count, options) in [(3, &[][..]), (2, &["--shard", "optimizer"])] {
        let out = format!("runs/{count}");
        let arguments = ["train", "run.toml", "--steps", "6", "--weights", "given.safetensors", "--out", &out];
        hosts.run(count, &[&arguments[..], options].concat())?.check_passed()?;
        check_same(&tensors(&first.join(out))?, &expected).with_context(|| format!("{count} processes"))?;
    }
    hosts.check_others_are_empty()?;
    // One that was told of none would wait for nothing.
    let mut ranks = hosts.ranks(2, &["train", "--steps", "6", "--weights", "given.safetensors", "--out", "runs/x"]);
    ranks[1] = hosts.rank(1, &["train", "--steps", "6", "--out", "runs/x"]);
    let ended = bench.run(&hosts.folder, &ranks)?;
    ended.check_failed(&super::refusals::codes(bench, 2), &["replica 1", "weights to start from"])?;
    Ok("3 processes, and 2 sharded, end as one that reads the file; who is told of none is named".into())
}

pub fn cache(bench: &Bench) -> Seen {
    let hosts = Hosts::new(bench, "one-cache")?;
    let cache = hosts.folder.join("digits.cache");
    fs::write(hosts.of(0).join("cache.toml"), format!("[data]\ncache = {:?}\n{RUN}", text(&cache)))?;
    let file = bench.write("one-folder.toml", RUN)?;
    let expected = bench.trained_alone(&[&file, "--steps", "6"])?;
    let mut kept = Vec::new();
    for (out, count) in [("runs/a", 3), ("runs/b", 2)] {
        hosts.run(count, &["train", "cache.toml", "--steps", "6", "--out", out])?.check_passed()?;
        check_same(&tensors(&hosts.of(0).join(out))?, &expected).with_context(|| out.to_string())?;
        kept.push(fs::read(&cache).context("no cache is kept")?);
    }
    if kept[0] != kept[1] {
        bail!("the cache was made anew");
    }
    Ok("made before the first step, read again by another number of processes; the same bytes".into())
}

/// Most of it are states: 60 MiB.
pub fn memory(bench: &Bench) -> Seen {
    const GROWTH: u64 = 2 << 20;
    let hosts = Hosts::new(bench, "one-memory")?;
    let table = bench.write("one-memory.csv", super::refusals::wide())?;
    let options = ["--data", &table, "--model", "mlp", "--batch", "8", "--lanes", "4"];
    let begin = [&["train", "--steps", "4", "--out", "runs/a"], &options[..]].concat();
    let fresh = peaks(&hosts, &begin)?;
    let resumed = peaks(&hosts, &["train", "--resume", "runs/a", "--steps", "8"])?;
    let shown = |peaks: &BTreeMap<usize, u64>| {
        peaks.values().map(|b| format!("{:.1}", *b as f64 / f64::from(1 << 20))).collect::<Vec<_>>().join(", ")
    };
    let said = format!("VmHWM of a new run {} MiB, of the resumed one {} MiB", shown(&fresh), shown(&resumed));
    if fresh.len() != 3 || resumed.len() != 3 || resumed.iter().any(|(rank, peak)| *peak > fresh[rank] + GROWTH) {
        bail!("{said}");
    }
    Ok(said)
}

/// The most that each of three processes had.
fn peaks(hosts: &Hosts, arguments: &[&str]) -> Result<BTreeMap<usize, u64>> {
    let mut job = hosts.bench.start(&hosts.folder, &hosts.ranks(3, arguments))?;
    let mut peaks = BTreeMap::new();
    while job.is_running() {
        let peak = |process: Process| Some((process.rank, resident_peak(process.pid)?));
        peaks.extend(job.processes().into_iter().filter_map(peak));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    job.end(LONGEST)?.check_passed()?;
    Ok(peaks)
}

/// The same path for all, which leads each to where it was started.
pub fn data(bench: &Bench) -> Seen {
    let hosts = Hosts::new(bench, "one-data")?;
    let table = (0..40).map(|i| format!("{},{},{}\n", i % 7, i % 5, ["cat", "dog"][i % 2])).collect::<String>();
    for rank in [0, 1] {
        fs::write(hosts.of(rank).join("pets.csv"), format!("a,b,label\n{table}"))?;
    }
    let path = Path::new("/proc/self/cwd/pets.csv");
    let arguments = ["train", "--model", "mlp", "--batch", "8", "--steps", "6", "--data", &text(path)];
    let ended = hosts.run(3, &[&arguments[..], &["--out", "runs/a"]].concat())?;
    check_gone(&hosts.folder, std::time::Duration::from_secs(2))?;
    ended.check_failed(&super::refusals::codes(bench, 4), &["replica 2", "pets.csv"])?;
    if hosts.of(0).join("runs").exists() {
        bail!("something was written");
    }
    Ok(format!("exit {}: {}", ended.code.unwrap_or(-1), ended.errors()[0].trim_start_matches("error: ")))
}
