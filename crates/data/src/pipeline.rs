//! A dataset made ready to run: a list of verbs in which each refers to those before it, with checked numbers. Shuffles
//! and maps are numbered in the order in which data meets them, and by nothing else: a cache, a batch or a prefetch
//! more or less in a pipeline leaves the random numbers of the others as they were.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::cache::Store;
use crate::cardinality::Cardinality;
use crate::collate::Gaps;
use crate::dataset::{Dataset, Generate, MapFn, Prefetch, Remainder, Verb};
use crate::error::{DataError, Result};
use crate::memory::{BytePool, Meter};
use crate::recipe::{self, BatchRecipe, NodeId, Recipe};
use crate::source::Source;

pub(crate) struct Pipeline {
    /// The last one is the whole.
    pub nodes: Vec<Node>,
    pub seed: u64,
    pub pool: BytePool,
    /// What generators gave is drawn through `generator_pool` and measured by `generator_meter`.
    pub generator_pool: BytePool,
    pub generator_meter: Arc<Meter>,
    /// Bytes that caches leave free for the work in flight.
    pub in_flight_bytes: AtomicU64,
    pub prefetch: Prefetch,
    pub cardinality: Cardinality,
    /// What all shuffle buffers together hold in recipes.
    pub shuffle_bytes: u64,
    /// Whether recipes hold data, as those of a generator do.
    pub has_generator: bool,
}

pub(crate) enum Node {
    Rows { source: Arc<dyn Source> },
    Generator { make: Arc<Generate> },
    Map { input: NodeId, f: Arc<MapFn>, number: u32, key: u64, drew_random: AtomicBool },
    Shuffle { input: NodeId, buffer: usize, number: u32 },
    Batch { input: NodeId, size: usize, remainder: Remainder, rows: Range<usize>, lane: usize },
    Cache { input: NodeId, store: Box<Store> },
    Repeat { input: NodeId, times: Option<u64>, count: Cardinality },
    Take { input: NodeId, count: u64 },
    Skip { input: NodeId, count: u64 },
    Shard { input: NodeId, count: u64, index: u64 },
    Zip { inputs: [NodeId; 2] },
    Interleave { inputs: Vec<NodeId>, block: u64 },
}

impl Pipeline {
    pub(crate) fn new(dataset: &Dataset, seed: u64, pool: &BytePool) -> Result<Pipeline> {
        let (generator_pool, generator_meter) = pool.metered();
        let mut pipeline = Pipeline {
            nodes: Vec::new(),
            seed,
            pool: pool.clone(),
            generator_pool,
            generator_meter,
            in_flight_bytes: AtomicU64::new(0),
            prefetch: last_prefetch(dataset),
            cardinality: dataset.cardinality(),
            shuffle_bytes: 0,
            has_generator: false,
        };
        let mut numbers = 0;
        pipeline.add(dataset, &mut numbers)?;
        Ok(pipeline)
    }

    pub(crate) fn root(&self) -> NodeId {
        self.nodes.len() as NodeId - 1
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    fn stores(&self) -> impl Iterator<Item = &Store> {
        self.nodes.iter().filter_map(|node| if let Node::Cache { store, .. } = node { Some(&**store) } else { None })
    }

    /// Has caches return at least this many bytes, if their elements hold so many.
    pub(crate) fn evict(&self, bytes: u64) {
        self.stores().fold(bytes, |left, store| left.saturating_sub(store.evict(left)));
    }

    /// Has caches return everything.
    pub(crate) fn disable_caches(&self) {
        self.stores().for_each(Store::disable);
    }

    /// Whether a cache is to be a file, and is not yet.
    pub(crate) fn has_unfinished_file(&self) -> bool {
        self.stores().any(Store::is_unfinished_file)
    }

    /// What caches hold.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.stores().map(Store::held_bytes).sum()
    }

    /// What a person calls an element that is made so.
    pub(crate) fn location(&self, recipe: &Recipe) -> String {
        match recipe {
            Recipe::Row { rows, index } => match self.node(*rows) {
                Node::Rows { source } => source.location(*index as usize),
                _ => unreachable!("a row comes from rows"),
            },
            Recipe::Generated(generated) => format!("item {} of the generator", generated.index),
            Recipe::Map(map) => self.location(&map.input),
            Recipe::Batch(batch) => match batch.items.first() {
                Some(first) => {
                    format!("the batch of {} that begins with {}", batch.items.len(), self.location(first))
                }
                None => "an empty batch".to_string(),
            },
            Recipe::Zip(both) => self.location(&both[0]),
            Recipe::Cached(cached) => self.location(&cached.input),
        }
    }

    /// What becomes of a batch in which samples are missing.
    pub(crate) fn gaps(&self, batch: &BatchRecipe) -> Gaps {
        match self.node(batch.batch) {
            Node::Batch { remainder: Remainder::Keep, .. } => Gaps::Close,
            Node::Batch { size, lane, .. } if lane == size => Gaps::Fill,
            Node::Batch { lane, .. } => Gaps::FillLanes(*lane),
            _ => unreachable!("a batch made it"),
        }
    }

    fn add(&mut self, dataset: &Dataset, numbers: &mut u32) -> Result<NodeId> {
        let node = match &*dataset.verb {
            Verb::Rows(source) => Node::Rows { source: source.clone() },
            Verb::Generator(make) => {
                self.has_generator = true;
                Node::Generator { make: make.clone() }
            }
            Verb::Map { input, f, key } => {
                let input = self.add(input, numbers)?;
                Node::Map {
                    input,
                    f: f.clone(),
                    number: next_number(numbers),
                    key: *key,
                    drew_random: AtomicBool::new(false),
                }
            }
            Verb::Shuffle { input, buffer } => {
                check_positive(*buffer, "shuffle", "a buffer of 1 keeps the order")?;
                let count = input.cardinality();
                let input = self.add(input, numbers)?;
                self.shuffle_bytes = self.shuffle_bytes.saturating_add(self.buffer_bytes(input, *buffer, count));
                Node::Shuffle { input, buffer: *buffer, number: next_number(numbers) }
            }
            Verb::Batch { input, size, remainder, rows, lane } => {
                check_positive(*size, "batch", "a batch has at least 1 sample")?;
                check_rows(rows, *size)?;
                check_lane(rows, *size, *lane)?;
                let (input, rows) = (self.add(input, numbers)?, rows.clone());
                Node::Batch { input, size: *size, remainder: *remainder, rows, lane: *lane }
            }
            Verb::Cache { input, cache } => {
                let count = input.cardinality();
                let input = self.add(input, numbers)?;
                Node::Cache { input, store: Box::new(Store::new(cache, count, input, self)?) }
            }
            Verb::Prefetch { input, .. } => return self.add(input, numbers),
            Verb::Repeat { input, times } => {
                check_positive(times.unwrap_or(1), "repeat", "repeat(None) is without end")?;
                let count = input.cardinality();
                Node::Repeat { input: self.add(input, numbers)?, times: times.map(|n| n as u64), count }
            }
            Verb::Take { input, count } => Node::Take { input: self.add(input, numbers)?, count: *count as u64 },
            Verb::Skip { input, count } => Node::Skip { input: self.add(input, numbers)?, count: *count as u64 },
            Verb::Shard { input, count, index } => {
                check_shard(*count, *index)?;
                Node::Shard { input: self.add(input, numbers)?, count: *count as u64, index: *index as u64 }
            }
            Verb::Zip { inputs: [a, b] } => Node::Zip { inputs: [self.add(a, numbers)?, self.add(b, numbers)?] },
            Verb::Interleave { inputs, block } => {
                check_positive(*block, "interleave", "a block has at least 1 element")?;
                check_positive(inputs.len(), "interleave", "it needs at least 1 dataset")?;
                let inputs = inputs.iter().map(|i| self.add(i, numbers)).collect::<Result<_>>()?;
                Node::Interleave { inputs, block: *block as u64 }
            }
        };
        self.nodes.push(node);
        Ok(self.root())
    }

    /// What a buffer of so many recipes of a node takes.
    fn buffer_bytes(&self, input: NodeId, buffer: usize, count: Cardinality) -> u64 {
        let entries = match count {
            Cardinality::Exact(n) => n.min(buffer as u64),
            Cardinality::Unknown | Cardinality::Infinite => buffer as u64,
        };
        entries.saturating_mul(self.recipe_bytes(input))
    }

    /// The most that a recipe of this node takes, apart from data that it holds.
    fn recipe_bytes(&self, id: NodeId) -> u64 {
        match self.node(id) {
            Node::Rows { .. } => recipe::RECIPE_BYTES,
            Node::Generator { .. } => recipe::RECIPE_BYTES + recipe::GENERATED_BYTES,
            Node::Map { input, .. } => recipe::MAP_BYTES + self.recipe_bytes(*input),
            Node::Cache { input, .. } => recipe::CACHE_BYTES + self.recipe_bytes(*input),
            Node::Batch { input, size, .. } => {
                recipe::RECIPE_BYTES + recipe::BATCH_BYTES + (self.recipe_bytes(*input)).saturating_mul(*size as u64)
            }
            Node::Shuffle { input, .. } | Node::Repeat { input, .. } => self.recipe_bytes(*input),
            Node::Take { input, .. } | Node::Skip { input, .. } | Node::Shard { input, .. } => {
                self.recipe_bytes(*input)
            }
            Node::Zip { inputs: [a, b] } => {
                recipe::RECIPE_BYTES + recipe::BOX_BYTES + self.recipe_bytes(*a) + self.recipe_bytes(*b)
            }
            Node::Interleave { inputs, .. } => inputs.iter().map(|i| self.recipe_bytes(*i)).max().unwrap_or(0),
        }
    }
}

fn next_number(numbers: &mut u32) -> u32 {
    *numbers += 1;
    *numbers - 1
}

fn check_rows(rows: &Range<usize>, size: usize) -> Result<()> {
    if !rows.is_empty() && rows.end <= size {
        return Ok(());
    }
    Err(DataError::Pipeline(format!("a batch of {size} has no rows {} to {}", rows.start, rows.end)))
}

fn check_lane(rows: &Range<usize>, size: usize, lane: usize) -> Result<()> {
    if lane > 0 && [rows.start, rows.end, size].iter().all(|row| row.is_multiple_of(lane)) {
        return Ok(());
    }
    Err(DataError::Pipeline(format!("rows {} to {} of {size} are no whole lanes of {lane}", rows.start, rows.end)))
}

fn check_shard(count: usize, index: usize) -> Result<()> {
    if index < count {
        return Ok(());
    }
    Err(DataError::Pipeline(format!("shard {index} of {count}: they are counted from 0")))
}

fn check_positive(number: usize, verb: &str, cure: &str) -> Result<()> {
    if number > 0 { Ok(()) } else { Err(DataError::Pipeline(format!("{verb} of 0: {cure}"))) }
}

/// The last prefetch, looked for up to the last batch: before it, elements are samples, and a depth would count those.
fn last_prefetch(dataset: &Dataset) -> Prefetch {
    match &*dataset.verb {
        Verb::Prefetch { depth, .. } => *depth,
        Verb::Map { input, .. }
        | Verb::Shuffle { input, .. }
        | Verb::Cache { input, .. }
        | Verb::Repeat { input, .. }
        | Verb::Take { input, .. }
        | Verb::Skip { input, .. }
        | Verb::Shard { input, .. } => last_prefetch(input),
        Verb::Rows(_) | Verb::Generator(_) | Verb::Batch { .. } | Verb::Zip { .. } | Verb::Interleave { .. } => {
            Prefetch::Depth(1)
        }
    }
}
