//! Streams that begin or wrap recipes: rows, a generator, map and cache.

use std::sync::Arc;

use super::Stream;
use crate::dataset::{Generate, Items};
use crate::error::Result;
use crate::in_memory::Tensors;
use crate::panics::catch_panic;
use crate::pipeline::{Node, Pipeline};
use crate::recipe::{CacheRecipe, GeneratedItem, MapRecipe, NodeId, Recipe};

pub(super) struct Rows {
    pub rows: NodeId,
    pub next: u64,
    pub len: u64,
}

impl Stream for Rows {
    fn next(&mut self, _: &Pipeline) -> Result<Option<Recipe>> {
        if self.next == self.len {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(Recipe::Row { rows: self.rows, index: self.next - 1 }))
    }

    fn skip(&mut self, _: &Pipeline, n: u64) -> Result<u64> {
        let skipped = n.min(self.len - self.next);
        self.next += skipped;
        Ok(skipped)
    }
}

pub(super) struct Generator {
    items: Items,
    index: u64,
    /// An item for which the pool had no room yet.
    waiting: Option<Result<Tensors>>,
}

impl Generator {
    pub(super) fn new(make: &Arc<Generate>) -> Result<Generator> {
        let items = catch_panic(|| "the generator".to_string(), || Ok(make()))?;
        Ok(Generator { items, index: 0, waiting: None })
    }

    fn item(&mut self) -> Result<Option<Result<Tensors>>> {
        let (index, items) = (self.index, &mut self.items);
        catch_panic(|| format!("item {index} of the generator"), || Ok(items.next()))
    }
}

impl Stream for Generator {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        if self.waiting.is_none() {
            self.waiting = self.item()?;
        }
        let Some(item) = &self.waiting else { return Ok(None) };
        let lease = pipeline.generator_pool.reserve(item.as_ref().map_or(0, Tensors::bytes))?;
        let index = self.index;
        self.index += 1;
        Ok(self.waiting.take().map(|item| Recipe::Generated(Box::new(GeneratedItem { index, item, lease }))))
    }

    fn skip(&mut self, _: &Pipeline, n: u64) -> Result<u64> {
        for skipped in 0..n {
            if self.waiting.take().is_none() && self.item()?.is_none() {
                return Ok(skipped);
            }
            self.index += 1;
        }
        Ok(n)
    }
}

pub(super) struct Map {
    pub map: NodeId,
    pub epoch: u64,
    pub element: u64,
    pub input: Box<dyn Stream>,
}

impl Stream for Map {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        let Some(input) = self.input.next(pipeline)? else { return Ok(None) };
        let mapped = MapRecipe { map: self.map, epoch: self.epoch, element: self.element, input };
        self.element += 1;
        Ok(Some(Recipe::Map(Box::new(mapped))))
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        let skipped = self.input.skip(pipeline, n)?;
        self.element += skipped;
        Ok(skipped)
    }
}

pub(super) struct Cached {
    pub cache: NodeId,
    pub index: u64,
    pub input: Box<dyn Stream>,
}

impl Stream for Cached {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        let Some(input) = self.input.next(pipeline)? else {
            self.ended(pipeline);
            return Ok(None);
        };
        let cached = CacheRecipe { cache: self.cache, index: self.index, missing: false, input };
        self.index += 1;
        Ok(Some(Recipe::Cached(Box::new(cached))))
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        let skipped = self.input.skip(pipeline, n)?;
        self.index += skipped;
        if skipped < n {
            self.ended(pipeline);
        }
        Ok(skipped)
    }
}

impl Cached {
    /// The cache learns how many elements there are.
    fn ended(&self, pipeline: &Pipeline) {
        let Node::Cache { store, .. } = pipeline.node(self.cache) else { unreachable!("a cache opened it") };
        store.ended(self.index, pipeline);
    }
}
