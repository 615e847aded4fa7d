//! Which replicas train a run, and which of them are in this process: threads of it, each on a device of its own, or the process
//! itself, where a launcher started several. What all of them have to agree on is settled here, before anything is planned.

use std::ops::RangeInclusive;
use std::time::Duration;

use memfit::exec::{Wire, WireError};
use memfit::ir::Replica;
use memfit::plan::bytes::Bytes;
use memfit::transform::{BatchNorm, Exchange, Shard};

use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::neighbours::Neighbours;
use crate::resources::{Purpose, threads};

/// The processes that a launcher started to train the same runs, this one among them.
pub trait Peers {
    /// Which of them this is, counted from 0.
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// Those on the same machine.
    fn neighbours(&self) -> Neighbours;

    /// Bytes by which this process grew when it joined them.
    fn resident_bytes_taken(&self) -> u64;

    /// What each of them says, when all have said something.
    fn gather(&self, words: &[u8]) -> Result<Vec<Vec<u8>>, WireError>;

    /// Brings what the first of them has there to all others, who have as much room for it.
    fn hand_out(&self, bytes: &mut [u8]) -> Result<(), WireError>;

    /// A connection to all others, who have to ask for it too. Whoever does not come within `stall` is named.
    fn wire(&self, stall: Duration) -> Result<Box<dyn Wire>, WireError>;
}

/// The replicas of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// How many there are, in all processes.
    pub size: usize,
    /// How many of them are in this process, ...
    pub here: usize,
    /// ... and the rank of the first of these.
    pub first: usize,
    /// The processes on the same machine.
    pub neighbours: Neighbours,
    /// How many share the threads of a process where it is trained.
    sharers: usize,
    /// That sums over a batch are cut into, ...
    pub lanes: usize,
    /// ... and whether somebody said how many.
    pub are_lanes_said: bool,
    pub shard: Shard,
    pub batch_norm: BatchNorm,
    /// Bytes that are exchanged at a time.
    pub piece: usize,
    /// How long a replica is waited for.
    pub stall: Duration,
}

/// How long a replica is waited for where nobody says it.
const STALL: Duration = Duration::from_secs(300);

impl Crew {
    /// One that is the only one.
    pub const ALONE: Crew = Crew {
        size: 1,
        here: 1,
        first: 0,
        neighbours: Neighbours::NONE,
        sharers: 1,
        lanes: 1,
        are_lanes_said: false,
        shard: Shard::None,
        batch_norm: BatchNorm::Leaf,
        piece: Exchange::PIECE,
        stall: STALL,
    };

    /// What a run says, and the launcher. The lanes are written down: they stay as they are when the run goes on with more
    /// replicas or fewer.
    pub(crate) fn new(config: &mut RunConfig, purpose: Purpose, peers: Option<&dyn Peers>) -> Result<Crew> {
        if purpose == Purpose::Answer {
            return Ok(Crew::ALONE);
        }
        let count = config.replicas.count.unwrap_or(1);
        let processes = peers.map_or(1, Peers::size);
        if processes > 1 && count > 1 && config.is_overridden("replicas", "count") {
            let problem = format!(
                "is {count}, but each of the {processes} processes that were started is one replica; start more of them instead"
            );
            return Err(RunError::of_key("replicas", "count", problem));
        }
        let size = if processes > 1 { processes } else { count };
        let are_lanes_said = config.replicas.lanes.is_some() || config.resumed_folder().is_some();
        let lanes = lanes(config, size)?;
        if lanes > 1 {
            config.set_count("replicas", "lanes", lanes as u64)?;
        }
        // What is only planned needs no memory of its own for each, but for parts that may differ.
        let is_one_enough = purpose == Purpose::Plan && config.memory.logical.is_empty();
        Ok(Crew {
            size,
            here: if processes > 1 || is_one_enough { 1 } else { size },
            first: if processes > 1 { peers.map_or(0, Peers::rank) } else { 0 },
            neighbours: peers.map_or(Neighbours::NONE, Peers::neighbours),
            sharers: size / processes,
            lanes,
            are_lanes_said,
            shard: if config.replicas.shard.as_deref() == Some("optimizer") { Shard::Optimizer } else { Shard::None },
            batch_norm: match config.replicas.batch_norm.as_deref() {
                Some("synchronised") => BatchNorm::Synchronised,
                _ => BatchNorm::Leaf,
            },
            piece: piece(config, size)?,
            stall: config.replicas.stall.unwrap_or(STALL),
        })
    }

    /// How the step of one of them is joined to those of the others.
    pub fn exchange(&self, rank: usize) -> Exchange {
        let replica = Replica { lanes: self.lanes, count: self.size, rank };
        // What nobody shares has nothing to be cut.
        let (piece, shard) = if self.size > 1 { (self.piece, self.shard) } else { (Exchange::PIECE, Shard::None) };
        Exchange { replica, piece, shard, batch_norm: self.batch_norm }
    }

    /// The batches next to this one of which each replica has one lane, where some have several since nobody said how many there
    /// are.
    pub fn even_batches(&self, batch: usize) -> Option<[usize; 2]> {
        let below = batch / self.size * self.size;
        (!self.are_lanes_said && self.lanes > self.size).then_some([below, below + self.size])
    }

    /// Whether the replica that writes and prints is in this process.
    pub fn is_first(&self) -> bool {
        self.first == 0
    }

    /// Whether replicas share this process.
    pub fn are_threads(&self) -> bool {
        self.here > 1
    }

    /// The threads of this process: as many as are asked for, or its share of the cores. What the folder of a run says it had, maybe
    /// as the only process, is the most of it.
    pub fn all_threads(&self, config: &RunConfig) -> Result<usize> {
        let share = || Ok(self.neighbours.cores(threads(None)?));
        match config.memory.threads {
            None => share(),
            Some(had) if self.shares_cores() && !is_said(config) => Ok(share()?.min(threads(Some(had))?)),
            said => threads(said),
        }
    }

    /// Whether other processes run on the cores of this one.
    pub fn shares_cores(&self) -> bool {
        self.neighbours.core_sharers > 1
    }

    /// Whether this process has its share of the cores since nobody said otherwise.
    pub fn has_share_of_cores(&self, config: &RunConfig) -> bool {
        self.shares_cores() && (config.memory.threads.is_none() || !is_said(config))
    }

    /// What the replica of this number within the process has of its threads; each has one at least.
    pub fn threads(&self, all: usize, index: usize) -> usize {
        (all / self.sharers + usize::from(index < all % self.sharers)).max(1)
    }
}

/// Whether the threads are said by somebody, and not only by the folder of a run.
fn is_said(config: &RunConfig) -> bool {
    config.resumed_folder().is_none() || config.is_overridden("memory", "threads")
}

/// A replica's share of a piece is a message: of many, a piece is larger, so that messages stay worth what they cost.
fn usual_piece(size: usize) -> u64 {
    (Exchange::PIECE * size.div_ceil(8).min(64)) as u64
}

/// Below this a message costs more than what is in it; beyond, room is taken for nothing.
const PIECES: RangeInclusive<u64> = 64..=1 << 30;

fn piece(config: &RunConfig, size: usize) -> Result<usize> {
    let piece = config.replicas.piece.unwrap_or_else(|| usual_piece(size));
    usize::try_from(piece).ok().filter(|_| PIECES.contains(&piece)).ok_or_else(|| {
        let [least, most] = [*PIECES.start(), *PIECES.end()].map(Bytes);
        RunError::of_key("replicas", "piece", format!("must be between {least} and {most}, but is {}", Bytes(piece)))
    })
}

/// Has a search for a batch begin with one that the lanes of a run divide, or else its replicas.
pub fn begin_search(config: &mut RunConfig) -> Result<()> {
    let unit = config.replicas.lanes.or(config.replicas.count).unwrap_or(1).max(1);
    let batch = config.train.batch.unwrap_or(crate::step_config::BATCH);
    config.set_count("train", "batch", batch.next_multiple_of(unit) as u64)
}

/// As many as a run says or began with; at first the smallest number that serves all replicas and divides the batch.
fn lanes(config: &RunConfig, size: usize) -> Result<usize> {
    let batch = config.train.batch.unwrap_or(crate::step_config::BATCH);
    let wrong = |problem: String| RunError::of_key("replicas", "lanes", problem);
    let Some(lanes) = config.replicas.lanes.or(config.resumed_folder().map(|_| 1)) else {
        let fits = |lanes: &usize| batch.is_multiple_of(*lanes);
        return (size..=batch).find(fits).ok_or_else(|| {
            RunError::conflict(format!(
                "{size} replicas cannot share a batch of {batch}: each has a sample of it at least; set train.batch to a \
                 multiple of {size}, or replicas.count to less"
            ))
        });
    };
    if lanes > Replica::MOST_LANES {
        return Err(wrong(format!("is {lanes}, and there are at most {}", Replica::MOST_LANES)));
    }
    if lanes < size {
        let cure = match config.resumed_folder() {
            Some(_) => format!("go on with {lanes} or fewer, or begin another run with more lanes"),
            None => format!("set it to {size} or more, or have fewer replicas"),
        };
        return Err(wrong(format!("is {lanes}, which is too few for {size} replicas: each has one at least; {cure}")));
    }
    if !batch.is_multiple_of(lanes) {
        return Err(wrong(format!("is {lanes}, which does not divide the batch of {batch}; set one to fit the other")));
    }
    Ok(lanes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    struct Launched(usize, usize);

    impl Peers for Launched {
        fn rank(&self) -> usize {
            self.0
        }

        fn size(&self) -> usize {
            self.1
        }

        fn neighbours(&self) -> Neighbours {
            Neighbours { index: self.0, count: self.1, core_index: self.0, core_sharers: self.1, ..Neighbours::NONE }
        }

        fn resident_bytes_taken(&self) -> u64 {
            0
        }

        fn gather(&self, _: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
            Err(WireError::Lost { rank: 0 })
        }

        fn hand_out(&self, _: &mut [u8]) -> Result<(), WireError> {
            Err(WireError::Lost { rank: 0 })
        }

        fn wire(&self, _: Duration) -> Result<Box<dyn Wire>, WireError> {
            Err(WireError::Lost { rank: 0 })
        }
    }

    fn crew(text: &str, peers: Option<&dyn Peers>) -> Result<(Crew, RunConfig), String> {
        let mut config = RunConfig::parse(text, Path::new("")).map_err(|e| e.to_string())?;
        let crew = Crew::new(&mut config, Purpose::Train, peers).map_err(|e| e.to_string())?;
        Ok((crew, config))
    }

    #[test]
    fn lanes_serve_all_replicas_and_divide_the_batch() {
        for (text, size, lanes) in [
            ("", 1, 1),
            ("[replicas]\ncount = 2", 2, 2),
            ("[replicas]\ncount = 3", 3, 4),
            ("[replicas]\ncount = 3\nlanes = 8", 3, 8),
            ("[replicas]\nlanes = 4", 1, 4),
            ("[train]\nbatch = 7\n[replicas]\ncount = 2", 2, 7),
        ] {
            let (crew, config) = crew(text, None).expect(text);
            assert_eq!((crew.size, crew.here, crew.lanes), (size, size, lanes), "{text}");
            assert_eq!(config.replicas.lanes, (lanes > 1).then_some(lanes), "written down");
            assert!((0..size).all(|rank| crew.exchange(rank).replica.exists()));
        }
        for (text, expected) in [
            ("[replicas]\ncount = 33", "33 replicas cannot share a batch of 32"),
            ("[replicas]\ncount = 4\nlanes = 2", "replicas.lanes is 2, which is too few for 4 replicas"),
            ("[replicas]\nlanes = 3", "replicas.lanes is 3, which does not divide the batch of 32"),
            ("[replicas]\nlanes = 1000000", "at most 16384"),
            ("[replicas]\npiece = 0", "replicas.piece must be between 64 B and 1.00 GiB, but is 0 B"),
            ("[replicas]\npiece = 63", "is 63 B"),
            ("[replicas]\npiece = \"2GiB\"", "is 2.00 GiB"),
        ] {
            let problem = crew(text, None).expect_err(text);
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn batches_that_replicas_share_evenly_are_known_where_one_is_not() {
        for (text, batch, expected) in [
            ("[train]\nbatch = 31\n[replicas]\ncount = 2", 31, Some([30, 32])),
            ("[replicas]\ncount = 3", 32, Some([30, 33])),
            ("[replicas]\ncount = 3\nlanes = 4", 32, None),
            ("[replicas]\ncount = 4", 32, None),
            ("[replicas]\nlanes = 4", 32, None),
            ("", 32, None),
        ] {
            let (crew, _) = crew(text, None).expect(text);
            assert_eq!(crew.even_batches(batch), expected, "{text}");
        }
    }

    #[test]
    fn a_search_begins_with_a_batch_that_is_shared_evenly() {
        for (text, batch) in [
            ("", 32),
            ("[replicas]\ncount = 3", 33),
            ("[replicas]\ncount = 64", 64),
            ("[replicas]\ncount = 3\nlanes = 5", 35),
        ] {
            let mut config = RunConfig::parse(text, Path::new("")).expect(text);
            begin_search(&mut config).expect(text);
            assert_eq!(config.train.batch, Some(batch), "{text}");
            let crew = Crew::new(&mut config, Purpose::Plan, None).expect(text);
            assert_eq!(crew.lanes, config.replicas.lanes.unwrap_or(1), "{text}");
        }
    }

    #[test]
    fn a_process_among_others_is_one_replica() {
        let (crew, _) = crew("[replicas]\ncount = 2", Some(&Launched(1, 4))).expect("four processes");
        assert_eq!((crew.size, crew.here, crew.first, crew.lanes), (4, 1, 1, 4));
        assert_eq!(crew.exchange(1).replica, Replica { lanes: 4, count: 4, rank: 1 });
        let (alone, _) = self::crew("[replicas]\ncount = 2", Some(&Launched(0, 1))).expect("one process");
        assert_eq!((alone.size, alone.here), (2, 2));
    }

    #[test]
    fn processes_share_the_cores_unless_somebody_says_otherwise() {
        let cores = threads(None).expect("there are some");
        let (shared, config) = crew("", Some(&Launched(1, 2))).expect("two processes");
        assert_eq!(shared.all_threads(&config).expect("a share"), (cores / 2).max(1));
        assert!(shared.has_share_of_cores(&config));
        let (said, config) = crew("[memory]\nthreads = 7", Some(&Launched(1, 2))).expect("two processes");
        assert_eq!((said.all_threads(&config).expect("said"), said.has_share_of_cores(&config)), (7, false));
        let (alone, config) = crew("", None).expect("one process");
        assert_eq!((alone.all_threads(&config).expect("all"), alone.has_share_of_cores(&config)), (cores, false));
    }

    #[test]
    fn pieces_grow_with_the_number_of_replicas() {
        assert_eq!([2, 8, 9, 64, 512, 4096].map(usual_piece), [1, 1, 2, 8, 64, 64].map(|mib| mib << 20));
    }

    #[test]
    fn threads_are_shared_out() {
        let of = |here, all| {
            (0..here)
                .map(|i| Crew { size: here, here, sharers: here, ..Crew::ALONE }.threads(all, i))
                .collect::<Vec<_>>()
        };
        assert_eq!([of(1, 5), of(2, 5), of(3, 5), of(4, 2)], [vec![5], vec![3, 2], vec![2, 2, 1], vec![1; 4]]);
    }
}
