//! Streams that begin or wrap recipes: rows, a generator, map and cache.

use std::sync::Arc;

use super::Stream;
use crate::dataset::{Generate, Items};
use crate::error::Result;
use crate::guard::guarded;
use crate::plain::Tensors;
use crate::program::{Node, Program};
use crate::recipe::{Cached as CachedRecipe, Held, Id, Mapped, Recipe};

pub(super) struct Rows {
    pub rows: Id,
    pub next: u64,
    pub len: u64,
}

impl Stream for Rows {
    fn next(&mut self, _: &Program) -> Result<Option<Recipe>> {
        if self.next == self.len {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(Recipe::Row { rows: self.rows, index: self.next - 1 }))
    }

    fn skip(&mut self, _: &Program, n: u64) -> Result<u64> {
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
        let items = guarded(|| "the generator".to_string(), || Ok(make()))?;
        Ok(Generator { items, index: 0, waiting: None })
    }

    fn item(&mut self) -> Result<Option<Result<Tensors>>> {
        let (index, items) = (self.index, &mut self.items);
        guarded(|| format!("item {index} of the generator"), || Ok(items.next()))
    }
}

impl Stream for Generator {
    fn next(&mut self, program: &Program) -> Result<Option<Recipe>> {
        if self.waiting.is_none() {
            self.waiting = self.item()?;
        }
        let Some(item) = &self.waiting else { return Ok(None) };
        let lease = program.items.take(item.as_ref().map_or(0, Tensors::bytes))?;
        let index = self.index;
        self.index += 1;
        Ok(self.waiting.take().map(|item| Recipe::Held(Box::new(Held { index, item, lease }))))
    }

    fn skip(&mut self, _: &Program, n: u64) -> Result<u64> {
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
    pub map: Id,
    pub epoch: u64,
    pub element: u64,
    pub input: Box<dyn Stream>,
}

impl Stream for Map {
    fn next(&mut self, program: &Program) -> Result<Option<Recipe>> {
        let Some(input) = self.input.next(program)? else { return Ok(None) };
        let mapped = Mapped { map: self.map, epoch: self.epoch, element: self.element, input };
        self.element += 1;
        Ok(Some(Recipe::Map(Box::new(mapped))))
    }

    fn skip(&mut self, program: &Program, n: u64) -> Result<u64> {
        let skipped = self.input.skip(program, n)?;
        self.element += skipped;
        Ok(skipped)
    }
}

pub(super) struct Cached {
    pub cache: Id,
    pub index: u64,
    pub input: Box<dyn Stream>,
}

impl Stream for Cached {
    fn next(&mut self, program: &Program) -> Result<Option<Recipe>> {
        let Some(input) = self.input.next(program)? else {
            self.ended(program);
            return Ok(None);
        };
        let cached = CachedRecipe { cache: self.cache, index: self.index, missing: false, input };
        self.index += 1;
        Ok(Some(Recipe::Cached(Box::new(cached))))
    }

    fn skip(&mut self, program: &Program, n: u64) -> Result<u64> {
        let skipped = self.input.skip(program, n)?;
        self.index += skipped;
        if skipped < n {
            self.ended(program);
        }
        Ok(skipped)
    }
}

impl Cached {
    /// The cache learns how many elements there are.
    fn ended(&self, program: &Program) {
        let Node::Cache { store, .. } = program.node(self.cache) else { unreachable!("a cache opened it") };
        store.ended(self.index, program);
    }
}
