//! What processes of a training have of memory: what was planned, the program, and what MPI took when it began.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::job::resident_peak;
use super::{Bench, LONGEST, Rank, Seen, text};

const MIB: u64 = 1 << 20;

/// What is left for what nobody counts.
const SLACK: u64 = 2 * MIB;

/// MPICH takes room for messages when they come, after it has begun: 0.6 MiB were seen.
const SLACK_OF_MPICH: u64 = 3 * MIB;

/// Between the 20th step and the last, of evaluations and checkpoints that were not made before.
const GROWTH: u64 = 2 * MIB;

pub fn check(bench: &Bench) -> Seen {
    let arguments = ["train", "--json", "--steps", "200", "--lanes", "4"];
    let alone = bench.folder("memory-alone")?;
    let ended = bench.run_alone(&alone, &[&arguments[..], &["--out", &text(&alone.join("run"))]].concat())?;
    ended.check_passed()?;
    let of_alone = Figures::read(&ended.stdout)?;
    let folder = bench.folder("memory")?;
    let rank = Rank::new(&arguments).and(&["--out", &text(&folder.join("run"))]);
    let mut job = bench.start(&folder, &vec![rank; 3])?;
    let has_step = |step: u32| {
        let said = fs::read_to_string(folder.join("stdout.txt")).unwrap_or_default();
        said.lines().any(|l| l.contains("\"event\":\"step\"") && l.contains(&format!("\"step\":{step},")))
    };
    job.wait_until("step 20", |_| has_step(20))?;
    let peaks = |job: &super::Job| -> BTreeMap<usize, u64> {
        job.processes().iter().filter_map(|p| Some((p.rank, resident_peak(p.pid)?))).collect()
    };
    let (early, mut late) = (peaks(&job), BTreeMap::new());
    while job.is_running() {
        late.extend(peaks(&job));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ended = job.end(LONGEST)?;
    ended.check_passed()?;
    let figures = Figures::read(&ended.stdout)?;
    if early.len() != 3 || late.len() != 3 {
        bail!("of three processes there were {early:?}, then {late:?}");
    }
    let program = of_alone.peak - of_alone.planned();
    let slack = if bench.library.suffix == "mpich" { SLACK_OF_MPICH } else { SLACK };
    let limit = figures.planned() + program + figures.mpi + slack;
    let shown = |bytes: u64| format!("{:.1}", bytes as f64 / MIB as f64);
    let said = format!(
        "arena and pipeline {}, program {}, MPI {}, so at most {} MiB; ranks had {} MiB after 20 steps, {} MiB at the end",
        shown(figures.planned()),
        shown(program),
        shown(figures.mpi),
        shown(limit),
        early.values().map(|b| shown(*b)).collect::<Vec<_>>().join(", "),
        late.values().map(|b| shown(*b)).collect::<Vec<_>>().join(", "),
    );
    let has_grown = early.iter().any(|(rank, peak)| late[rank] > peak + GROWTH);
    if has_grown || late.values().any(|peak| *peak > limit) {
        bail!("{said}");
    }
    Ok(said)
}

/// Of a total for each process only what is really taken is kept: libraries of MPI map far more.
pub fn total(bench: &Bench) -> Seen {
    const TOTAL: u64 = 96 * MIB;
    let folder = bench.folder("total")?;
    let rank = Rank::new(&["train", "--steps", "50", "--lanes", "4", "--total", "96MiB"]);
    let mut job = bench.start(&folder, &vec![rank.and(&["--out", &text(&folder.join("run"))]); 3])?;
    let mut peaks: BTreeMap<usize, u64> = BTreeMap::new();
    while job.is_running() {
        peaks.extend(job.processes().iter().filter_map(|p| Some((p.rank, resident_peak(p.pid)?))));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    job.end(LONGEST)?.check_passed()?;
    let shown: Vec<String> = peaks.values().map(|b| format!("{:.1}", *b as f64 / MIB as f64)).collect();
    let said = format!("ranks had at most {} of 96 MiB", shown.join(", "));
    if peaks.len() != 3 || peaks.values().any(|peak| *peak > TOTAL) {
        bail!("{said}");
    }
    Ok(said)
}

/// Bytes, as a run says them at its end.
struct Figures {
    arena: u64,
    pipeline: u64,
    peak: u64,
    mpi: u64,
}

impl Figures {
    fn read(stdout: &str) -> Result<Figures> {
        let done = stdout.lines().rev().find(|line| line.contains("\"event\":\"done\"")).context("no end was told")?;
        let done: Value = serde_json::from_str(done)?;
        let number = |key: &str| done[key].as_u64().with_context(|| format!("\"{key}\" is not told"));
        Ok(Figures {
            arena: number("arena_bytes")?,
            pipeline: number("host_peak_bytes")?,
            peak: number("measured_peak_bytes")?,
            mpi: done["mpi_bytes"].as_u64().unwrap_or(0),
        })
    }

    fn planned(&self) -> u64 {
        self.arena + self.pipeline
    }
}
