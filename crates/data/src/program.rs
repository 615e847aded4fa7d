//! A dataset made ready to run: a list of verbs in which each refers to those before it, with checked numbers. Shuffles
//! and maps are numbered in the order in which data meets them, and by nothing else: a cache, a batch or a prefetch
//! more or less in a pipeline leaves the random numbers of the others as they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::cache::Store;
use crate::count::Count;
use crate::dataset::{Dataset, Generate, MapFn, Prefetch, Remainder, Verb};
use crate::error::{DataError, Result};
use crate::memory::{BytePool, Meter};
use crate::recipe::{self, Batch, Id, Recipe};
use crate::source::Source;

pub(crate) struct Program {
    /// The last one is the whole.
    pub nodes: Vec<Node>,
    pub seed: u64,
    pub pool: BytePool,
    /// What generators gave is drawn through `items` and measured by `generated`.
    pub items: BytePool,
    pub generated: Arc<Meter>,
    /// Bytes that caches leave free for the work in flight.
    pub work: AtomicU64,
    pub depth: Prefetch,
    pub count: Count,
    /// What all shuffle buffers together hold in recipes.
    pub buffers: u64,
    /// Whether recipes hold data, as those of a generator do.
    pub holds: bool,
}

pub(crate) enum Node {
    Rows { source: Arc<dyn Source> },
    Generator { make: Arc<Generate> },
    Map { input: Id, f: Arc<MapFn>, number: u32, key: u64, drew: AtomicBool },
    Shuffle { input: Id, buffer: usize, number: u32 },
    Batch { input: Id, size: usize, remainder: Remainder },
    Cache { input: Id, store: Box<Store> },
    Repeat { input: Id, times: Option<u64>, count: Count },
    Take { input: Id, count: u64 },
    Skip { input: Id, count: u64 },
    Zip { inputs: [Id; 2] },
    Interleave { inputs: Vec<Id>, block: u64 },
}

impl Program {
    pub(crate) fn new(dataset: &Dataset, seed: u64, pool: &BytePool) -> Result<Program> {
        let (items, generated) = pool.metered();
        let mut program = Program {
            nodes: Vec::new(),
            seed,
            pool: pool.clone(),
            items,
            generated,
            work: AtomicU64::new(0),
            depth: prefetch(dataset),
            count: dataset.count(),
            buffers: 0,
            holds: false,
        };
        let mut numbers = 0;
        program.add(dataset, &mut numbers)?;
        Ok(program)
    }

    pub(crate) fn root(&self) -> Id {
        self.nodes.len() as Id - 1
    }

    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    fn stores(&self) -> impl Iterator<Item = &Store> {
        self.nodes.iter().filter_map(|node| if let Node::Cache { store, .. } = node { Some(&**store) } else { None })
    }

    /// Has caches return at least this many bytes, if their elements hold so many.
    pub(crate) fn release(&self, bytes: u64) {
        self.stores().fold(bytes, |left, store| left.saturating_sub(store.release(left)));
    }

    /// Has caches return everything.
    pub(crate) fn give_up_caches(&self) {
        self.stores().for_each(Store::give_up);
    }

    /// What caches hold.
    pub(crate) fn cached(&self) -> u64 {
        self.stores().map(Store::held).sum()
    }

    /// What a person calls an element that is made so.
    pub(crate) fn place(&self, recipe: &Recipe) -> String {
        match recipe {
            Recipe::Row { rows, index } => match self.node(*rows) {
                Node::Rows { source } => source.place(*index as usize),
                _ => unreachable!("a row comes from rows"),
            },
            Recipe::Held(held) => format!("item {} of the generator", held.index),
            Recipe::Map(map) => self.place(&map.input),
            Recipe::Batch(batch) => match batch.items.first() {
                Some(first) => format!("the batch of {} that begins with {}", batch.items.len(), self.place(first)),
                None => "an empty batch".to_string(),
            },
            Recipe::Zip(both) => self.place(&both[0]),
            Recipe::Cached(cached) => self.place(&cached.input),
        }
    }

    pub(crate) fn remainder(&self, batch: &Batch) -> Remainder {
        match self.node(batch.batch) {
            Node::Batch { remainder, .. } => *remainder,
            _ => unreachable!("a batch made it"),
        }
    }

    fn add(&mut self, dataset: &Dataset, numbers: &mut u32) -> Result<Id> {
        let node = match &*dataset.verb {
            Verb::Rows(source) => Node::Rows { source: source.clone() },
            Verb::Generator(make) => {
                self.holds = true;
                Node::Generator { make: make.clone() }
            }
            Verb::Map { input, f, key } => {
                let input = self.add(input, numbers)?;
                Node::Map { input, f: f.clone(), number: next(numbers), key: *key, drew: AtomicBool::new(false) }
            }
            Verb::Shuffle { input, buffer } => {
                positive(*buffer, "shuffle", "a buffer of 1 keeps the order")?;
                let count = input.count();
                let input = self.add(input, numbers)?;
                self.buffers = self.buffers.saturating_add(self.buffer_bytes(input, *buffer, count));
                Node::Shuffle { input, buffer: *buffer, number: next(numbers) }
            }
            Verb::Batch { input, size, remainder } => {
                positive(*size, "batch", "a batch has at least 1 sample")?;
                Node::Batch { input: self.add(input, numbers)?, size: *size, remainder: *remainder }
            }
            Verb::Cache { input, cache } => {
                let count = input.count();
                let input = self.add(input, numbers)?;
                Node::Cache { input, store: Box::new(Store::new(cache, count, input, self)?) }
            }
            Verb::Prefetch { input, .. } => return self.add(input, numbers),
            Verb::Repeat { input, times } => {
                positive(times.unwrap_or(1), "repeat", "repeat(None) is without end")?;
                let count = input.count();
                Node::Repeat { input: self.add(input, numbers)?, times: times.map(|n| n as u64), count }
            }
            Verb::Take { input, count } => Node::Take { input: self.add(input, numbers)?, count: *count as u64 },
            Verb::Skip { input, count } => Node::Skip { input: self.add(input, numbers)?, count: *count as u64 },
            Verb::Zip { inputs: [a, b] } => Node::Zip { inputs: [self.add(a, numbers)?, self.add(b, numbers)?] },
            Verb::Interleave { inputs, block } => {
                positive(*block, "interleave", "a block has at least 1 element")?;
                positive(inputs.len(), "interleave", "it needs at least 1 dataset")?;
                let inputs = inputs.iter().map(|i| self.add(i, numbers)).collect::<Result<_>>()?;
                Node::Interleave { inputs, block: *block as u64 }
            }
        };
        self.nodes.push(node);
        Ok(self.root())
    }

    /// What a buffer of so many recipes of a node takes.
    fn buffer_bytes(&self, input: Id, buffer: usize, count: Count) -> u64 {
        let entries = match count {
            Count::Exact(n) => n.min(buffer as u64),
            Count::Unknown | Count::Endless => buffer as u64,
        };
        entries.saturating_mul(self.recipe_bytes(input))
    }

    /// The most that a recipe of this node takes, apart from data that it holds.
    fn recipe_bytes(&self, id: Id) -> u64 {
        match self.node(id) {
            Node::Rows { .. } => recipe::RECIPE,
            Node::Generator { .. } => recipe::RECIPE + recipe::HELD,
            Node::Map { input, .. } => recipe::MAPPED + self.recipe_bytes(*input),
            Node::Cache { input, .. } => recipe::CACHED + self.recipe_bytes(*input),
            Node::Batch { input, size, .. } => {
                recipe::RECIPE + recipe::BATCH + (self.recipe_bytes(*input)).saturating_mul(*size as u64)
            }
            Node::Shuffle { input, .. } | Node::Repeat { input, .. } => self.recipe_bytes(*input),
            Node::Take { input, .. } | Node::Skip { input, .. } => self.recipe_bytes(*input),
            Node::Zip { inputs: [a, b] } => {
                recipe::RECIPE + recipe::BOX + self.recipe_bytes(*a) + self.recipe_bytes(*b)
            }
            Node::Interleave { inputs, .. } => inputs.iter().map(|i| self.recipe_bytes(*i)).max().unwrap_or(0),
        }
    }
}

fn next(numbers: &mut u32) -> u32 {
    *numbers += 1;
    *numbers - 1
}

fn positive(number: usize, verb: &str, cure: &str) -> Result<()> {
    if number > 0 { Ok(()) } else { Err(DataError::Pipeline(format!("{verb} of 0: {cure}"))) }
}

/// The last prefetch, looked for up to the last batch: before it, elements are samples, and a depth would count those.
fn prefetch(dataset: &Dataset) -> Prefetch {
    match &*dataset.verb {
        Verb::Prefetch { depth, .. } => *depth,
        Verb::Map { input, .. }
        | Verb::Shuffle { input, .. }
        | Verb::Cache { input, .. }
        | Verb::Repeat { input, .. }
        | Verb::Take { input, .. }
        | Verb::Skip { input, .. } => prefetch(input),
        Verb::Rows(_) | Verb::Generator(_) | Verb::Batch { .. } | Verb::Zip { .. } | Verb::Interleave { .. } => {
            Prefetch::Depth(1)
        }
    }
}
