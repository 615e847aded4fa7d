//! The memory of the whole process: the tightest of its limits, what of it the program itself needs, and whether what was
//! planned is there. Arenas and pipelines are taken from what is left; nothing is taken before it is known to be.

use std::sync::Arc;

use memfit::exec::process::{Limit, Limiter, ToCome, limits};
use memfit::exec::{Device, PROGRAM, Reservation};

use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::host_budget;
use crate::neighbours::Neighbours;
use crate::replicas::Crew;
use crate::resident;
use crate::resources::RunResources;

/// Less than this is nothing to begin with.
const LEAST: u64 = 256 << 10;

/// What the program needs is rounded up to a multiple of this: the system's count of it differs by some pages from start to
/// start, and what fits should fit every time.
const GRAIN: u64 = 256 << 10;

/// The limit of this process, and what is kept of it for all that is neither arena nor pipeline.
pub struct ProcessMemory {
    pub limiter: Limiter,
    /// The limit.
    pub bytes: u64,
    /// For program, stacks, planning, and the writing of checkpoints: what it has now, and what is to come.
    pub outside: u64,
    /// The threads that a run computes with, and what of that is for each.
    threads: usize,
    pub per_thread: u64,
    /// As it was said.
    total: Option<u64>,
    /// Those with whom it shares what nobody said.
    neighbours: Neighbours,
    /// Whether its limit is its share of one that it has with others.
    is_shared: bool,
    _held: Reservation,
}

impl ProcessMemory {
    /// Of a process that is to do these runs; with the device whose limit it is.
    pub fn new(configs: &[RunConfig], crews: &[Crew]) -> Result<(Device, Option<Arc<ProcessMemory>>)> {
        let total = total(configs)?;
        resident::trim_heap();
        let host = Device::host();
        let mut coming = ToCome::default();
        let (mut threads, mut replicas) = (0, 0);
        for (config, crew) in configs.iter().zip(crews) {
            let all = crew.all_threads(config)?;
            let of_replica = (0..crew.here).map(|index| crew.threads(all, index));
            coming.threads += of_replica.clone().map(threads_of_run).sum::<usize>();
            threads = threads.max(of_replica.sum());
            replicas += crew.here;
        }
        coming.threads += threads;
        let neighbours = sharers(configs, crews);
        let all = limits_among(total, &neighbours);
        let Some(limit) = all.min_by_key(|limit| limit.room(&coming)) else { return Ok((host, None)) };
        let (limiter, bytes, is_shared) = (limit.limiter, limit.share(), limit.share() < limit.bytes);
        let outside = (bytes - limit.room(&coming)).next_multiple_of(GRAIN);
        let per_thread = limit.of_thread() * (1 + 2 * replicas as u64);
        let room = bytes.saturating_sub(outside);
        if room < LEAST {
            let outside = limit.kept(&coming).next_multiple_of(GRAIN);
            let sharers = if is_shared { sharers_of(limiter, &neighbours) } else { 1 };
            return Err(RunError::NoRoomForProgram { limiter, limit: bytes, sharers, outside, threads, per_thread });
        }
        let is_whole = limiter == Limiter::Machine && !is_shared;
        let device = if is_whole { host } else { host.limited(bytes) };
        // Of a machine, or of a group around this one, whose memory others hold there may be less.
        let held = device.take(PROGRAM, device.free().saturating_sub(room))?;
        let process =
            ProcessMemory { limiter, bytes, outside, threads, per_thread, total, neighbours, is_shared, _held: held };
        Ok((device, Some(Arc::new(process))))
    }

    /// Whether there is less than the machine has.
    pub fn is_limited(&self) -> bool {
        self.limiter != Limiter::Machine || self.is_shared
    }

    /// How many processes share the limit.
    pub fn sharers(&self) -> usize {
        if self.is_shared { sharers_of(self.limiter, &self.neighbours) } else { 1 }
    }

    pub fn is_said(&self) -> bool {
        self.limiter == Limiter::Said
    }

    /// Where the program would take so many bytes besides.
    pub(crate) fn no_room_for_program(&self, bytes: u64) -> RunError {
        let ProcessMemory { limiter, bytes: limit, threads, per_thread, .. } = *self;
        let (outside, sharers) = (self.outside.saturating_add(bytes), self.sharers());
        RunError::NoRoomForProgram { limiter, limit, sharers, outside, threads, per_thread }
    }

    /// What is there for planning beside so many bytes that pipelines have, while there is no arena.
    pub fn planning_room(&self, in_pipelines: u64) -> u64 {
        (self.bytes - self.outside).saturating_sub(in_pipelines)
    }

    /// Whether there is room, as the system counts it now, for so many bytes of arenas beside the pipelines of all runs of the
    /// process, for all that comes with them, and for files of so many bytes that lie in memory. Pipelines that had all that a
    /// plan left give way where they can: a heap may have come out larger than was kept for it.
    pub fn check_beside(&self, runs: &[&RunResources], arenas: u64, files: u64) -> Result<()> {
        let threads: Vec<usize> = runs.iter().map(|run| run.threads).collect();
        let all = || {
            let pipelines: u64 = runs.iter().map(|run| run.pool.limit().saturating_sub(run.pool.used())).sum();
            arenas.saturating_add(pipelines)
        };
        if let Some(lack) = self.lack(all(), files, &threads) {
            host_budget::give_up(runs, lack.bytes);
        }
        self.check(all(), files, &threads)
    }

    /// The same for so many bytes of arenas and pipelines, on so many threads a run.
    pub fn check(&self, bytes: u64, files: u64, threads: &[usize]) -> Result<()> {
        let Some(Lack { limit, outside, files, .. }) = self.lack(bytes, files, threads) else { return Ok(()) };
        let (limiter, limit, sharers) = (limit.limiter, limit.share(), sharers_of(limit.limiter, &self.neighbours));
        let ProcessMemory { threads, per_thread, .. } = *self;
        Err(RunError::NoRoomForRun { limiter, limit, sharers, outside, needed: bytes, files, threads, per_thread })
    }

    /// The first limit that so much is too much for.
    fn lack(&self, bytes: u64, files: u64, threads: &[usize]) -> Option<Lack> {
        resident::trim_heap();
        let coming = ToCome { threads: threads.iter().map(|&threads| threads_of_run(threads)).sum(), heap: 0 };
        limits_among(self.total, &self.neighbours).find_map(|limit| {
            // They are no part of the process.
            let files = if matches!(limit.limiter, Limiter::Group | Limiter::Machine) { files } else { 0 };
            let lacking = bytes.saturating_add(files).saturating_sub(limit.room(&coming));
            (lacking > 0).then(|| Lack { limit, outside: limit.kept(&coming), files, bytes: lacking })
        })
    }
}

/// All limits, of which each process has its share.
fn limits_among(total: Option<u64>, neighbours: &Neighbours) -> impl Iterator<Item = Limit> {
    let sharers = |limiter| sharers_of(limiter, neighbours);
    limits(total).into_iter().map(move |limit| limit.shared_by(sharers(limit.limiter))).collect::<Vec<_>>().into_iter()
}

fn sharers_of(limiter: Limiter, neighbours: &Neighbours) -> usize {
    match limiter {
        Limiter::Machine => neighbours.count,
        Limiter::Group => neighbours.group_sharers,
        Limiter::AddressSpace | Limiter::Data | Limiter::Said => 1,
    }
}

/// The processes with which memory is shared out. Whoever is told what it may have knows what it does.
fn sharers(configs: &[RunConfig], crews: &[Crew]) -> Neighbours {
    let is_said = configs.iter().any(|config| config.memory.total.is_some() || config.memory.budget.is_some());
    crews.first().filter(|_| !is_said).map_or(Neighbours::NONE, |crew| crew.neighbours)
}

/// What a limit has too little room for.
struct Lack {
    limit: Limit,
    /// What the program itself takes of it, and files that lie in memory.
    outside: u64,
    files: u64,
    /// So much is missing.
    bytes: u64,
}

/// That of a run, and those that read for its training and for its evaluation.
fn threads_of_run(threads: usize) -> usize {
    1 + 2 * threads
}

/// It is said once, or alike.
fn total(configs: &[RunConfig]) -> Result<Option<u64>> {
    let mut said = configs.iter().filter_map(|c| c.memory.total);
    let first = said.next();
    if said.all(|other| Some(other) == first) {
        return Ok(first);
    }
    Err(RunError::conflict(
        "the runs say different totals for the one process that does them; say memory.total once, or the same in each",
    ))
}

/// What a limit is called of which so many processes have equal shares.
pub fn limit_words(limiter: Limiter, sharers: usize) -> String {
    let name = limiter_words(limiter);
    if sharers == 1 {
        name.into()
    } else {
        format!("its share of {name}, which {sharers} processes here have together")
    }
}

fn limiter_words(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::Machine => "all that the machine has",
        Limiter::Group => "the limit of its control group",
        Limiter::AddressSpace => "its limit of address space, ulimit -v",
        Limiter::Data => "its limit of data, ulimit -d",
        Limiter::Said => "memory.total",
    }
}
