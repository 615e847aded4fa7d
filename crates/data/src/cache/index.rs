//! Where each element of a cache is. The index too is drawn from the pool, and gives up when there is no room for it.

use std::sync::Arc;

use crate::count::Count;
use crate::memory::{BytePool, Lease, NoRoom};
use crate::tensor::Example;

#[derive(Clone)]
pub(super) enum Entry {
    /// It was not made yet, or is to be kept when it is made again.
    Unknown,
    /// There is no place for it: it is made each time.
    Nowhere,
    Memory(Arc<Kept>),
    /// At this offset of the file.
    Disk(u64),
}

/// An element in memory.
pub(super) struct Kept {
    pub example: Example,
    /// For what stands around the data: names, types, and what allocators add.
    lease: Lease,
}

impl Kept {
    pub(super) fn new(example: &Example, pool: &BytePool) -> Result<Kept, NoRoom> {
        let lease = pool.take(around(example))?;
        Ok(Kept { example: example.copy(pool)?, lease })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lease.bytes() + self.example.held()
    }
}

/// What is around the data of an element, at most.
pub(super) fn around(example: &Example) -> u64 {
    64 + 256 * example.fields.len() as u64
}

pub(super) struct Index {
    /// How many elements there are.
    pub count: Count,
    entries: Vec<Entry>,
    /// For the entries.
    lease: Option<Lease>,
    /// Those in memory, and how many bytes they hold.
    in_memory: Vec<u64>,
    memory: u64,
    /// How many are not unknown.
    settled: u64,
    off: bool,
}

/// An entry, and its place in the list of those in memory.
const ENTRY: u64 = std::mem::size_of::<Entry>() as u64 + 8;

impl Index {
    pub(super) fn new(count: Count) -> Index {
        let (entries, in_memory) = (Vec::new(), Vec::new());
        Index { count, entries, lease: None, in_memory, memory: 0, settled: 0, off: false }
    }

    /// Everything is where a table says, unless the pool has no room to know that.
    pub(super) fn fill(&mut self, table: &[u64], pool: &BytePool) {
        self.count = Count::Exact(table.len() as u64);
        for (index, offset) in table.iter().enumerate() {
            self.set(index as u64, if *offset == 0 { Entry::Nowhere } else { Entry::Disk(*offset) }, pool);
        }
    }

    pub(super) fn get(&self, index: u64) -> Entry {
        self.entries.get(index as usize).cloned().unwrap_or(Entry::Unknown)
    }

    /// Says where an element is, once.
    pub(super) fn set(&mut self, index: u64, entry: Entry, pool: &BytePool) {
        if !self.grow(index, pool) {
            return;
        }
        let place = &mut self.entries[index as usize];
        match (&*place, &entry) {
            (Entry::Unknown, Entry::Memory(kept)) => {
                self.in_memory.push(index);
                self.memory += kept.bytes();
            }
            (Entry::Unknown, _) => {}
            // It turned out to be damaged.
            (Entry::Disk(_), Entry::Nowhere) => self.settled -= 1,
            // Two made the same at the same time.
            _ => return,
        }
        *place = entry;
        self.settled += 1;
    }

    /// Takes out an element that is in memory.
    pub(super) fn pop_memory(&mut self) -> Option<(u64, Arc<Kept>)> {
        let index = self.in_memory.pop()?;
        let Entry::Memory(kept) = std::mem::replace(&mut self.entries[index as usize], Entry::Unknown) else {
            unreachable!("it is listed as being in memory")
        };
        (self.memory, self.settled) = (self.memory - kept.bytes(), self.settled - 1);
        Some((index, kept))
    }

    /// Forgets everything for good.
    pub(super) fn give_up(&mut self) {
        *self = Index { off: true, ..Index::new(self.count) };
    }

    pub(super) fn held(&self) -> u64 {
        self.memory + self.lease.as_ref().map_or(0, Lease::bytes)
    }

    /// The offsets of all elements, when all are settled.
    pub(super) fn whole(&self) -> Option<Vec<u64>> {
        let offset = |entry: &Entry| if let Entry::Disk(offset) = entry { *offset } else { 0 };
        let whole = self.count == Count::Exact(self.settled) && !self.off;
        whole.then(|| self.entries.iter().take(self.settled as usize).map(offset).collect())
    }

    /// Makes an entry for `index`, if the pool has room.
    fn grow(&mut self, index: u64, pool: &BytePool) -> bool {
        let len = self.entries.len() as u64;
        if self.off || index < len {
            return !self.off;
        }
        let more = match self.count {
            Count::Exact(n) => n.max(index + 1),
            Count::Unknown | Count::Endless => (index + 1).max(2 * len).max(64),
        } - len;
        let bytes = more.saturating_mul(ENTRY);
        let lease = match &mut self.lease {
            Some(lease) => lease.grow(bytes),
            None => pool.take(bytes).map(|lease| self.lease = Some(lease)),
        };
        if lease.is_ok() {
            self.entries.reserve_exact(more as usize);
            self.in_memory.reserve_exact(more as usize + self.entries.len() - self.in_memory.len());
            self.entries.resize_with((len + more) as usize, || Entry::Unknown);
        }
        lease.is_ok()
    }
}
