//! Where each element of a cache is. The index too is drawn from the pool, and gives up when there is no room for it.

use std::sync::Arc;

use crate::cardinality::Cardinality;
use crate::memory::{BytePool, Lease, NoRoom};
use crate::tensor::Example;

#[derive(Clone)]
pub(super) enum Entry {
    /// It was not made yet, or is to be kept when it is made again.
    Unknown,
    /// There is no place for it: it is made each time.
    Uncached,
    Memory(Arc<CachedElement>),
    /// At this offset of the file.
    Disk(u64),
}

/// An element in memory.
pub(super) struct CachedElement {
    pub example: Example,
    /// For what stands around the data: names, types, and what allocators add.
    lease: Lease,
}

impl CachedElement {
    pub(super) fn new(example: &Example, pool: &BytePool) -> Result<CachedElement, NoRoom> {
        let lease = pool.reserve(overhead_bytes(example))?;
        Ok(CachedElement { example: example.copy(pool)?, lease })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lease.bytes() + self.example.held_bytes()
    }
}

/// What is around the data of an element, at most.
pub(super) fn overhead_bytes(example: &Example) -> u64 {
    64 + 256 * example.fields.len() as u64
}

pub(super) struct Index {
    /// How many elements there are.
    pub count: Cardinality,
    entries: Vec<Entry>,
    /// For the entries.
    lease: Option<Lease>,
    /// Those in memory, and how many bytes they hold.
    in_memory: Vec<u64>,
    memory: u64,
    /// How many are not unknown.
    resolved: u64,
    disabled: bool,
}

/// An entry, and its place in the list of those in memory.
const ENTRY_BYTES: u64 = std::mem::size_of::<Entry>() as u64 + 8;

impl Index {
    pub(super) fn new(count: Cardinality) -> Index {
        let (entries, in_memory) = (Vec::new(), Vec::new());
        Index { count, entries, lease: None, in_memory, memory: 0, resolved: 0, disabled: false }
    }

    /// Everything is where a table says, unless the pool has no room to know that.
    pub(super) fn load(&mut self, table: &[u64], pool: &BytePool) {
        self.count = Cardinality::Exact(table.len() as u64);
        for (index, offset) in table.iter().enumerate() {
            self.set(index as u64, if *offset == 0 { Entry::Uncached } else { Entry::Disk(*offset) }, pool);
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
        let slot = &mut self.entries[index as usize];
        match (&*slot, &entry) {
            (Entry::Unknown, Entry::Memory(element)) => {
                self.in_memory.push(index);
                self.memory += element.bytes();
            }
            (Entry::Unknown, _) => {}
            // It turned out to be damaged.
            (Entry::Disk(_), Entry::Uncached) => self.resolved -= 1,
            // Two made the same at the same time.
            _ => return,
        }
        *slot = entry;
        self.resolved += 1;
    }

    /// Takes out an element that is in memory.
    pub(super) fn pop_memory(&mut self) -> Option<(u64, Arc<CachedElement>)> {
        let index = self.in_memory.pop()?;
        let Entry::Memory(element) = std::mem::replace(&mut self.entries[index as usize], Entry::Unknown) else {
            unreachable!("it is listed as being in memory")
        };
        (self.memory, self.resolved) = (self.memory - element.bytes(), self.resolved - 1);
        Some((index, element))
    }

    /// Forgets everything for good.
    pub(super) fn disable(&mut self) {
        *self = Index { disabled: true, ..Index::new(self.count) };
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.memory + self.lease.as_ref().map_or(0, Lease::bytes)
    }

    /// The offsets of all elements, when all are resolved.
    pub(super) fn complete_table(&self) -> Option<Vec<u64>> {
        let offset = |entry: &Entry| if let Entry::Disk(offset) = entry { *offset } else { 0 };
        let complete = self.count == Cardinality::Exact(self.resolved) && !self.disabled;
        complete.then(|| self.entries.iter().take(self.resolved as usize).map(offset).collect())
    }

    /// Makes an entry for `index`, if the pool has room.
    fn grow(&mut self, index: u64, pool: &BytePool) -> bool {
        let len = self.entries.len() as u64;
        if self.disabled || index < len {
            return !self.disabled;
        }
        let more = match self.count {
            Cardinality::Exact(n) => n.max(index + 1),
            Cardinality::Unknown | Cardinality::Infinite => (index + 1).max(2 * len).max(64),
        } - len;
        let bytes = more.saturating_mul(ENTRY_BYTES);
        let lease = match &mut self.lease {
            Some(lease) => lease.grow(bytes),
            None => pool.reserve(bytes).map(|lease| self.lease = Some(lease)),
        };
        if lease.is_ok() {
            self.entries.reserve_exact(more as usize);
            self.in_memory.reserve_exact(more as usize + self.entries.len() - self.in_memory.len());
            self.entries.resize_with((len + more) as usize, || Entry::Unknown);
        }
        lease.is_ok()
    }
}
