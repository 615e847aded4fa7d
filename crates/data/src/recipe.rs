//! How an element is made: what flows through a pipeline instead of the element. A recipe is small, holds no data (but
//! for that of a generator), and can be followed any number of times, by any thread, with the same result.

use crate::error::Result;
use crate::memory::Lease;
use crate::plain::Tensors;

/// A node of the program, by its place in it.
pub(crate) type Id = u32;

#[derive(Debug)]
pub(crate) enum Recipe {
    Row {
        rows: Id,
        index: u64,
    },
    /// What a generator gave.
    Held(Box<Held>),
    Map(Box<Mapped>),
    Batch(Box<Batch>),
    Zip(Box<[Recipe; 2]>),
    Cached(Box<Cached>),
}

#[derive(Debug)]
pub(crate) struct Held {
    pub index: u64,
    pub item: Result<Tensors>,
    /// For the bytes of the item.
    pub lease: Lease,
}

#[derive(Debug)]
pub(crate) struct Mapped {
    pub map: Id,
    pub epoch: u64,
    /// Its number among the elements that the map got in this epoch.
    pub element: u64,
    pub input: Recipe,
}

#[derive(Debug)]
pub(crate) struct Batch {
    pub batch: Id,
    pub items: Vec<Recipe>,
}

#[derive(Debug)]
pub(crate) struct Cached {
    pub cache: Id,
    pub index: u64,
    /// It was looked for and is not there.
    pub missing: bool,
    pub input: Recipe,
}

impl Recipe {
    /// What it holds of the pool.
    pub(crate) fn held(&self) -> u64 {
        match self {
            Recipe::Row { .. } => 0,
            Recipe::Held(held) => held.lease.bytes(),
            Recipe::Map(map) => map.input.held(),
            Recipe::Batch(batch) => batch.items.iter().map(Recipe::held).sum(),
            Recipe::Zip(both) => both.iter().map(Recipe::held).sum(),
            Recipe::Cached(cached) => cached.input.held(),
        }
    }
}

/// Bytes of a recipe and of one thing that it points to, with what an allocator puts around it.
pub(crate) const RECIPE: u64 = std::mem::size_of::<Recipe>() as u64;
pub(crate) const MAPPED: u64 = std::mem::size_of::<Mapped>() as u64 + BOX;
pub(crate) const BATCH: u64 = std::mem::size_of::<Batch>() as u64 + 2 * BOX;
pub(crate) const CACHED: u64 = std::mem::size_of::<Cached>() as u64 + BOX;
pub(crate) const HELD: u64 = std::mem::size_of::<Held>() as u64 + BOX;
pub(crate) const BOX: u64 = 16;
