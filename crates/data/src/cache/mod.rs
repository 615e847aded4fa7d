//! What a cache keeps, and where: in what the pool has left beside the work in flight, then on disk, and else nowhere.
//! It is never in the way: what is not there, or is damaged, is made again, and memory is returned when work needs it.

mod file;
mod index;
mod record;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::cardinality::Cardinality;
use crate::dataset::{Cache, Remainder};
use crate::error::{DataError, Result};
use crate::memory::BytePool;
use crate::pipeline::{Node, Pipeline};
use crate::recipe::NodeId;
use crate::tensor::Example;
use file::{CacheFile, Trailer};
use index::{CachedElement, Entry, Index};
use record::RecordError;

pub(crate) struct Store {
    pool: BytePool,
    /// What it is a cache of.
    input: NodeId,
    index: Mutex<Index>,
    /// Whether elements may be in memory; otherwise it is to be finished as a file.
    in_memory: bool,
    disk: Mutex<Disk>,
    /// Reads beside whoever writes.
    reader: OnceLock<CacheFile>,
    /// What it keeps was made by an earlier run with random numbers.
    was_random: AtomicBool,
}

struct Disk {
    file: Option<CacheFile>,
    limit: u64,
    /// Under which name it is to be finished, and what it then says of itself.
    target: Option<(PathBuf, u64)>,
}

impl Store {
    /// A cache of a node that `pipeline` has already.
    pub(crate) fn new(cache: &Cache, count: Cardinality, input: NodeId, pipeline: &Pipeline) -> Result<Store> {
        let (in_memory, limit, target) = match cache {
            Cache::Memory { spill } => (true, *spill, None),
            Cache::Disk { path, limit } => (false, *limit, Some((path.clone(), fingerprint(pipeline, input)))),
        };
        let store = Store {
            pool: pipeline.pool.clone(),
            input,
            index: Mutex::new(Index::new(count)),
            in_memory,
            disk: Mutex::new(Disk { file: None, limit, target }),
            reader: OnceLock::new(),
            was_random: AtomicBool::new(false),
        };
        store.open(pipeline.seed)?;
        Ok(store)
    }

    /// Finds the file of an earlier run, or begins a new one.
    fn open(&self, seed: u64) -> Result<()> {
        let mut disk = self.disk();
        let Some((path, fingerprint)) = disk.target.clone() else { return Ok(()) };
        let io = |source| DataError::Io { path: path.clone(), source };
        if let Some(foreign_file) = CacheFile::foreign_file(&path).map_err(io)? {
            return Err(DataError::source(path.display(), foreign_file));
        }
        if let Some((file, trailer, table)) = CacheFile::open(&path).map_err(io)? {
            let same = trailer.fingerprint == fingerprint && (!trailer.random || trailer.seed == seed);
            if same {
                self.index().load(&table, &self.pool);
                self.was_random.store(trailer.random, Ordering::Relaxed);
                disk.target = None;
                // It is finished: what it lacks did not fit.
                disk.limit = 0;
                let _ = self.reader.set(file);
                return Ok(());
            }
        }
        let file = CacheFile::partial(&path).map_err(io)?;
        let _ = self.reader.set(file.reader().map_err(io)?);
        disk.file = Some(file);
        Ok(())
    }

    /// Whether it is to be a file, and is not yet.
    pub(crate) fn is_unfinished_file(&self) -> bool {
        !self.in_memory && self.disk().target.is_some()
    }

    pub(crate) fn has(&self, index: u64) -> bool {
        matches!(self.index().get(index), Entry::Memory(_) | Entry::Disk(_))
    }

    pub(crate) fn get(&self, index: u64, pool: &BytePool) -> Result<Option<Example>> {
        let entry = self.index().get(index);
        match entry {
            Entry::Unknown | Entry::Uncached => Ok(None),
            Entry::Memory(element) => Ok(Some(element.example.copy(pool)?)),
            Entry::Disk(offset) => match self.reader.get().map(|file| record::read_record(file, offset, pool)) {
                Some(Ok(example)) => Ok(Some(example)),
                Some(Err(RecordError::NoRoom(e))) => Err(e.into()),
                Some(Err(RecordError::Damaged)) | None => {
                    self.index().set(index, Entry::Uncached, &self.pool);
                    Ok(None)
                }
            },
        }
    }

    /// Keeps what was made, if there is a place for it.
    pub(crate) fn put(&self, index: u64, made: &Result<Example>, pipeline: &Pipeline) {
        if !matches!(self.index().get(index), Entry::Unknown) || matches!(made, Err(DataError::NoRoom(_))) {
            return;
        }
        let entry = match made {
            Ok(example) => self.in_memory(example, pipeline).unwrap_or_else(|| self.on_disk(example)),
            Err(_) => Entry::Uncached,
        };
        self.index().set(index, entry, &self.pool);
        self.finish_if_complete(pipeline);
    }

    /// Its input has so many elements.
    pub(crate) fn ended(&self, count: u64, pipeline: &Pipeline) {
        self.index().count = Cardinality::Exact(count);
        self.finish_if_complete(pipeline);
    }

    /// What it holds of the pool.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.index().held_bytes()
    }

    /// Returns bytes to the pool, as many as asked for if elements hold so many: moves them to disk, or forgets them.
    pub(crate) fn evict(&self, bytes: u64) -> u64 {
        // Others may keep more meanwhile.
        let before = self.held_bytes();
        while before.saturating_sub(self.held_bytes()) < bytes {
            let popped = self.index().pop_memory();
            let Some((index, element)) = popped else { break };
            if let Entry::Disk(offset) = self.on_disk(&element.example) {
                self.index().set(index, Entry::Disk(offset), &self.pool);
            }
        }
        before.saturating_sub(self.held_bytes())
    }

    /// Returns all it holds, and keeps nothing any more.
    pub(crate) fn disable(&self) {
        self.index().disable();
    }

    fn in_memory(&self, example: &Example, pipeline: &Pipeline) -> Option<Entry> {
        // Something stays for the work in flight, even before it is known how much that is.
        let spare = pipeline.in_flight_bytes.load(Ordering::Relaxed).max(self.pool.limit() / 4);
        let bytes = example.held_bytes() + index::overhead_bytes(example);
        if !self.in_memory || self.pool.free() < bytes.saturating_add(spare) {
            return None;
        }
        CachedElement::new(example, &self.pool).ok().map(|element| Entry::Memory(Arc::new(element)))
    }

    fn on_disk(&self, example: &Example) -> Entry {
        let mut disk = self.disk();
        let end = disk.file.as_ref().map_or(0, |file| file.end);
        if end.saturating_add(record::record_bytes(example)) > disk.limit {
            return Entry::Uncached;
        }
        match self.write(&mut disk, example) {
            Ok(offset) => Entry::Disk(offset),
            Err(_) => {
                // The disk is full, or as good as that: what is there stays, nothing is added.
                disk.limit = 0;
                Entry::Uncached
            }
        }
    }

    fn write(&self, disk: &mut Disk, example: &Example) -> std::io::Result<u64> {
        let file = match disk.file.take() {
            Some(file) => file,
            None => CacheFile::temporary()?,
        };
        let file = disk.file.insert(file);
        if self.reader.get().is_none() {
            let _ = self.reader.set(file.reader()?);
        }
        record::write_record(file, example)
    }

    fn finish_if_complete(&self, pipeline: &Pipeline) {
        if self.in_memory {
            return;
        }
        let Some(table) = self.index().complete_table() else { return };
        let mut disk = self.disk();
        let Some((path, fingerprint)) = disk.target.take() else { return };
        let random = is_random(pipeline, self.input);
        let trailer = Trailer { fingerprint, seed: pipeline.seed, random, count: table.len() as u64 };
        if let Some(file) = &mut disk.file {
            // If it cannot get its name, this run has it all the same, and the next one makes it anew.
            let _ = file.finish(&path, trailer, table.into_iter());
        }
        disk.limit = 0;
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // An index is sound after each of its operations.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // A record counts only when its offset is in the index.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number for what can be told of how elements are made.
fn fingerprint(pipeline: &Pipeline, id: NodeId) -> u64 {
    let of = |id: &NodeId| fingerprint(pipeline, *id);
    let (kind, numbers, inputs): (u64, Vec<u64>, Vec<u64>) = match pipeline.node(id) {
        Node::Rows { source } => (0, vec![source.len() as u64, source.fingerprint()], vec![]),
        Node::Generator { .. } => (1, vec![], vec![]),
        Node::Map { input, number, key, .. } => (2, vec![*number as u64, *key], vec![of(input)]),
        Node::Shuffle { input, buffer, number } => (3, vec![*buffer as u64, *number as u64], vec![of(input)]),
        Node::Batch { input, size, remainder, rows, lane } => {
            let numbers = [*size, usize::from(*remainder == Remainder::Keep), rows.start, rows.end, *lane];
            (4, numbers.map(|n| n as u64).to_vec(), vec![of(input)])
        }
        Node::Cache { input, .. } => (5, vec![], vec![of(input)]),
        Node::Repeat { input, times, .. } => (6, vec![times.unwrap_or(0)], vec![of(input)]),
        Node::Take { input, count } => (7, vec![*count], vec![of(input)]),
        Node::Skip { input, count } => (8, vec![*count], vec![of(input)]),
        Node::Shard { input, count, index } => (11, vec![*count, *index], vec![of(input)]),
        Node::Zip { inputs } => (9, vec![], inputs.iter().map(of).collect()),
        Node::Interleave { inputs, block } => (10, vec![*block], inputs.iter().map(of).collect()),
    };
    // Another version may decode otherwise.
    let version = memfit_ir::fingerprint(env!("CARGO_PKG_VERSION"));
    [numbers, inputs].iter().fold(version ^ kind, |sum, words| checksum(sum, bytemuck::cast_slice(words)))
}

/// Whether elements of a node were made with random numbers.
fn is_random(pipeline: &Pipeline, id: NodeId) -> bool {
    match pipeline.node(id) {
        Node::Rows { .. } | Node::Generator { .. } => false,
        Node::Shuffle { .. } => true,
        Node::Map { input, drew_random, .. } => drew_random.load(Ordering::Relaxed) || is_random(pipeline, *input),
        Node::Cache { input, store } => store.was_random.load(Ordering::Relaxed) || is_random(pipeline, *input),
        Node::Batch { input, .. }
        | Node::Repeat { input, .. }
        | Node::Take { input, .. }
        | Node::Skip { input, .. }
        | Node::Shard { input, .. } => is_random(pipeline, *input),
        Node::Zip { inputs } => inputs.iter().any(|id| is_random(pipeline, *id)),
        Node::Interleave { inputs, .. } => inputs.iter().any(|id| is_random(pipeline, *id)),
    }
}

/// A number that changes when one of the bytes does.
pub(crate) fn checksum(start: u64, bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(mix(start, bytes.len() as u64), |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(sum, u64::from_le_bytes(last)), 0)
}
