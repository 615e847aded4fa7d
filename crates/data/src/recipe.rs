//! How an element is made: what flows through a pipeline instead of the element. A recipe is small, holds no data (but
//! for that of a generator), and can be followed any number of times, by any thread, with the same result.

use crate::error::Result;
use crate::in_memory::Tensors;
use crate::memory::Lease;

/// A node of the pipeline, by its index in it.
pub(crate) type NodeId = u32;

#[derive(Debug)]
pub(crate) enum Recipe {
    Row {
        rows: NodeId,
        index: u64,
    },
    /// What a generator gave.
    Generated(Box<GeneratedItem>),
    Map(Box<MapRecipe>),
    Batch(Box<BatchRecipe>),
    Zip(Box<[Recipe; 2]>),
    Cached(Box<CacheRecipe>),
}

#[derive(Debug)]
pub(crate) struct GeneratedItem {
    pub index: u64,
    pub item: Result<Tensors>,
    /// For the bytes of the item.
    pub lease: Lease,
}

#[derive(Debug)]
pub(crate) struct MapRecipe {
    pub map: NodeId,
    pub epoch: u64,
    /// Its number among the elements that the map got in this epoch.
    pub element: u64,
    pub input: Recipe,
}

#[derive(Debug)]
pub(crate) struct BatchRecipe {
    pub batch: NodeId,
    pub items: Vec<Recipe>,
}

#[derive(Debug)]
pub(crate) struct CacheRecipe {
    pub cache: NodeId,
    pub index: u64,
    /// It was looked for and is not there.
    pub missing: bool,
    pub input: Recipe,
}

impl Recipe {
    /// What it holds of the pool.
    pub(crate) fn held_bytes(&self) -> u64 {
        match self {
            Recipe::Row { .. } => 0,
            Recipe::Generated(held) => held.lease.bytes(),
            Recipe::Map(map) => map.input.held_bytes(),
            Recipe::Batch(batch) => batch.items.iter().map(Recipe::held_bytes).sum(),
            Recipe::Zip(both) => both.iter().map(Recipe::held_bytes).sum(),
            Recipe::Cached(cached) => cached.input.held_bytes(),
        }
    }
}

/// Bytes of a recipe and of one thing that it points to, with what an allocator puts around it.
pub(crate) const RECIPE_BYTES: u64 = std::mem::size_of::<Recipe>() as u64;
pub(crate) const MAP_BYTES: u64 = std::mem::size_of::<MapRecipe>() as u64 + BOX_BYTES;
pub(crate) const BATCH_BYTES: u64 = std::mem::size_of::<BatchRecipe>() as u64 + 2 * BOX_BYTES;
pub(crate) const CACHE_BYTES: u64 = std::mem::size_of::<CacheRecipe>() as u64 + BOX_BYTES;
pub(crate) const GENERATED_BYTES: u64 = std::mem::size_of::<GeneratedItem>() as u64 + BOX_BYTES;
pub(crate) const BOX_BYTES: u64 = 16;
