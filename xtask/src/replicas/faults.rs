//! Processes that are killed, stopped or asked to stop in the middle of a training: the others end in time, nothing is left
//! running, and the run goes on to the bytes of one that nobody disturbed.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::folder::{check_same, saved_step, tensors_and_plan};
use super::job::{Ended, Job, Process, check_gone, end_left, signal};
use super::{Bench, Rank, Seen, seconds, text};

/// How long the others are waited for.
const STALL: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(5);

/// More steps than any of these trainings makes.
const FOR_EVER: &str = "1000000";

const RUN: &str = "[train]\nsave_every = 5\n[replicas]\nlanes = 4\n";

/// A run that is disturbed, and the number of processes that it began with.
struct Disturbed<'a> {
    bench: &'a Bench,
    folder: std::path::PathBuf,
    file: String,
    first: usize,
}

impl<'a> Disturbed<'a> {
    fn new(bench: &'a Bench, name: &str, first: usize) -> Result<Disturbed<'a>> {
        Ok(Disturbed { bench, folder: bench.folder(name)?, file: bench.write("disturbed.toml", RUN)?, first })
    }

    fn run(&self) -> std::path::PathBuf {
        self.folder.join("run")
    }

    fn saved(&self) -> Option<u64> {
        saved_step(&self.run())
    }

    /// Begins the run, or goes on with it where something is saved.
    fn rank(&self, steps: &str) -> Rank {
        let run = text(&self.run());
        let place = match self.saved() {
            Some(_) => ["--resume", &run],
            None => ["--out", &run],
        };
        let file: &[&str] = if self.saved().is_some() { &[] } else { &[&self.file] };
        Rank::new(&["train"]).and(file).and(&["--steps", steps, "--stall", "3s"]).and(&place)
    }

    fn start(&self, count: usize, options: &[&str]) -> Result<Job> {
        let ranks = vec![self.rank(FOR_EVER); count];
        Job::start(self.bench.launcher(options, &ranks), &self.folder)
    }

    /// Starts it, and waits until it has saved something that it had not.
    fn start_and_save(&self, count: usize, options: &[&str]) -> Result<(Job, Vec<Process>)> {
        let before = self.saved().unwrap_or(0);
        let mut job = self.start(count, options)?;
        job.wait_until("a checkpoint", |job| self.saved().unwrap_or(0) > before && job.processes().len() == count)?;
        let processes = job.processes();
        Ok((job, processes))
    }

    /// Goes on for some steps with another number of processes, and compares with a run that was not disturbed.
    fn check_goes_on(&self, count: usize) -> Result<u64> {
        let steps = self.saved().context("nothing is saved")? + 5;
        let rank = self.rank(&steps.to_string());
        self.bench.run(&self.folder, &vec![rank; count])?.check_passed().context("going on")?;
        let whole = Disturbed { folder: self.bench.folder("undisturbed")?, file: self.file.clone(), ..*self };
        let rank = whole.rank(&steps.to_string());
        self.bench.run(&whole.folder, &vec![rank; self.first])?.check_passed().context("undisturbed")?;
        check_same(&tensors_and_plan(&self.run())?, &tensors_and_plan(&whole.run())?)?;
        Ok(steps)
    }
}

/// Of a random process at a random moment, going on with another number each time.
pub fn kills(bench: &Bench) -> Seen {
    let count = if bench.is_long() { 20 } else { 2 };
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64 | 1;
    let mut random = Random(seed);
    let disturbed = Disturbed::new(bench, "killed", 4)?;
    let mut slowest = Duration::ZERO;
    let mut codes = Vec::new();
    for ranks in [4, 2, 3, 1].into_iter().cycle().take(count) {
        // Until something is saved it begins again, as it began.
        let ranks = if disturbed.saved().is_none() { disturbed.first } else { ranks };
        let mut job = disturbed.start(ranks, &[])?;
        job.wait_until("its processes", |job| job.processes().len() == ranks)?;
        std::thread::sleep(Duration::from_millis(random.below(2500)));
        let processes = job.processes();
        let Some(victim) = processes.get(random.below(ranks as u64) as usize) else {
            bail!("of {ranks} processes there are {processes:?} (seed {seed})");
        };
        signal("KILL", victim.pid)?;
        let ended = job.end(Duration::from_secs(10)).with_context(|| format!("rank {} of {ranks}", victim.rank))?;
        check_gone(&disturbed.folder, Duration::from_secs(10).saturating_sub(ended.after))?;
        slowest = slowest.max(ended.after);
        codes.extend(ended.code);
    }
    if disturbed.saved().is_none() {
        let (job, processes) = disturbed.start_and_save(disturbed.first, &[])?;
        signal("KILL", processes[0].pid)?;
        job.end(Duration::from_secs(10))?;
    }
    let steps = disturbed.check_goes_on(3).with_context(|| format!("seed {seed}"))?;
    codes.sort();
    codes.dedup();
    let slowest = seconds(slowest);
    Ok(format!(
        "{count} kills, the last process gone after {slowest}, launcher's codes {codes:?}; same at step {steps}"
    ))
}

pub fn stopped(bench: &Bench) -> Seen {
    stop(bench, 2)
}

pub fn stopped_first(bench: &Bench) -> Seen {
    stop(bench, 0)
}

fn stop(bench: &Bench, rank: usize) -> Seen {
    let disturbed = Disturbed::new(bench, "stopped", 3)?;
    let (job, processes) = disturbed.start_and_save(3, &[])?;
    signal("STOP", processes[rank].pid)?;
    let since = Instant::now();
    let ended = job.end(STALL + SLACK)?;
    // Launchers leave some time between asking a process to end and ending it.
    check_gone(&disturbed.folder, (STALL + SLACK).saturating_sub(since.elapsed()))?;
    let codes: &[i32] = if bench.is_open_mpi() { &[6] } else { &[6, 9, 6 | 9] };
    let goes_on = format!("memfit train --resume {}", text(&disturbed.run()));
    ended.check_failed(codes, &[&format!("replica {rank} did not come within 3 s"), &goes_on])?;
    check_named_once(&ended, &format!("replica {rank} "))?;
    let steps = disturbed.check_goes_on(2)?;
    Ok(format!("exit {:?} after {}, named once; same at step {steps}", ended.code.unwrap_or(-1), seconds(ended.after)))
}

/// Before MPI has begun.
pub fn stopped_at_start(bench: &Bench) -> Seen {
    absent_at_start(bench, &["sh", "-c", "kill -STOP $$; exec \"$@\"", "sh"])
}

pub fn never_comes(bench: &Bench) -> Seen {
    absent_at_start(bench, &["sh", "-c", "sleep 30; exec \"$@\"", "sh"])
}

/// A process that does not come to meet the others, which say so as soon as they do of one that stops later.
fn absent_at_start(bench: &Bench, program: &[&str]) -> Seen {
    let mut seen = Vec::new();
    for absent in [1, 0] {
        let folder = bench.folder("absent")?;
        let file = bench.write("stall.toml", "[replicas]\nstall = \"3s\"\n")?;
        let out = text(&folder.join("run"));
        let ways: [&[&str]; 2] = [&["--stall", "3s"], &[&file]];
        let rank = Rank::new(&["train", "--steps", "12", "--out", &out]).and(ways[absent]);
        let mut ranks = vec![rank.clone(), rank.clone(), rank];
        ranks[absent] = ranks[absent].clone().after(program);
        // The one that is absent has no code of its own.
        let ended = Job::start(bench.launcher(&[], &ranks), &folder)?.end(STALL + SLACK)?;
        check_gone(&folder, SLACK)?;
        let codes: &[i32] = if bench.is_open_mpi() { &[6] } else { &[6, 9, 6 | 9] };
        let told = format!("replica {absent} did not come within 3 s");
        ended.check_failed(codes, &[&told]).with_context(|| told.clone())?;
        check_named_once(&ended, &told)?;
        seen.push(format!("{told}, told after {}", seconds(ended.after)));
    }
    Ok(seen.join("; "))
}

pub fn check_named_once(ended: &Ended, name: &str) -> Result<()> {
    match ended.stderr.matches(name).count() + ended.stdout.matches(name).count() {
        1 => Ok(()),
        n => bail!("\"{name}\" is said {n} times:\n{}", ended.stderr),
    }
}

pub fn usr1(bench: &Bench) -> Seen {
    asked(bench, "USR1", &[None, Some(1), Some(0)])
}

pub fn term(bench: &Bench) -> Seen {
    asked(bench, "TERM", &[Some(0), None, Some(2)])
}

pub fn int(bench: &Bench) -> Seen {
    asked(bench, "INT", &[None, Some(2)])
}

/// Asks the launcher or one rank to stop: all save after the same step. The first of these, or where there is time all.
fn asked(bench: &Bench, name: &str, whom: &[Option<usize>]) -> Seen {
    let whom = if bench.is_long() { whom } else { &whom[..1] };
    // Open MPI's launcher asks its processes to end, and ends them after so many seconds; which it then waits in any case.
    let grace: &[&str] = if bench.is_open_mpi() { &["--mca", "odls_base_sigkill_timeout", "5"] } else { &[] };
    let mut seen = Vec::new();
    for rank in whom {
        let target = rank.map_or("launcher".to_string(), |rank| format!("rank {rank}"));
        let disturbed = Disturbed::new(bench, "asked", 3)?;
        let options = if rank.is_none() && name != "USR1" { grace } else { &[] };
        let (job, processes) = disturbed.start_and_save(3, options)?;
        signal(name, rank.map_or(job.launcher(), |rank| processes[rank].pid))?;
        let ended = job.end(Duration::from_secs(30)).with_context(|| target.clone())?;
        check_gone(&disturbed.folder, Duration::from_secs(5)).with_context(|| target.clone())?;
        check_interrupted(&ended, &disturbed.folder).with_context(|| target.clone())?;
        let steps = disturbed.check_goes_on(2).with_context(|| target.clone())?;
        let (code, after) = (ended.code.map_or("a signal".into(), |code| code.to_string()), seconds(ended.after));
        seen.push(format!("to the {target}: launcher's code {code} after {after}, same at step {steps}"));
    }
    end_left(&bench.work);
    Ok(seen.join("; "))
}

fn check_interrupted(ended: &Ended, folder: &Path) -> Result<()> {
    let saved = saved_step(&folder.join("run")).context("nothing is saved")?;
    let said = format!("interrupted and saved at step {saved};");
    // What was asked for is no error, and is told once.
    match (&ended.errors()[..], ended.stderr.matches(&said).count()) {
        ([], 1) => Ok(()),
        (errors, told) => {
            bail!("{} errors, and told {told} times: \"{said}\" is to be said once:\n{}", errors.len(), ended.stderr)
        }
    }
}

/// Xorshift; for moments, not for statistics.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}
