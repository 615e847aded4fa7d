//! Streams that put recipes together: batch, zip and interleave.

use std::ops::Range;

use super::Stream;
use crate::dataset::Remainder;
use crate::error::Result;
use crate::pipeline::Pipeline;
use crate::recipe::{BatchRecipe, NodeId, Recipe};

pub(super) struct Batches {
    batch: NodeId,
    size: usize,
    remainder: Remainder,
    /// Those that are made.
    rows: Range<usize>,
    input: Box<dyn Stream>,
    /// What the next batch has so far: it is kept when a generator finds no room for the rest.
    items: Vec<Recipe>,
    ended: bool,
}

impl Batches {
    pub(super) fn new(
        batch: NodeId,
        size: usize,
        remainder: Remainder,
        rows: Range<usize>,
        input: Box<dyn Stream>,
    ) -> Batches {
        Batches { batch, size, remainder, rows, input, items: Vec::new(), ended: false }
    }
}

impl Stream for Batches {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        while self.items.len() < self.size && !self.ended {
            match self.input.next(pipeline)? {
                Some(item) => self.items.push(item),
                None => self.ended = true,
            }
        }
        let mut items = std::mem::take(&mut self.items);
        let whole = items.len() == self.size || (!items.is_empty() && self.remainder == Remainder::Keep);
        items.truncate(self.rows.end);
        items.drain(..self.rows.start.min(items.len()));
        Ok(whole.then(|| Recipe::Batch(Box::new(BatchRecipe { batch: self.batch, items }))))
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        let size = self.size as u64;
        let had = self.items.len() as u64;
        self.items.clear();
        let samples = if n == 0 { 0 } else { had + self.input.skip(pipeline, n.saturating_mul(size) - had)? };
        Ok(match self.remainder {
            Remainder::Keep => samples.div_ceil(size),
            Remainder::Drop => samples / size,
        })
    }
}

pub(super) struct Zip {
    inputs: [Box<dyn Stream>; 2],
    /// The first half of the next pair, while there is no room for the second.
    first: Option<Recipe>,
}

impl Zip {
    pub(super) fn new(a: Box<dyn Stream>, b: Box<dyn Stream>) -> Zip {
        Zip { inputs: [a, b], first: None }
    }
}

impl Stream for Zip {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        let [a, b] = &mut self.inputs;
        if self.first.is_none() {
            self.first = a.next(pipeline)?;
        }
        if self.first.is_none() {
            return Ok(None);
        }
        let Some(second) = b.next(pipeline)? else { return Ok(None) };
        Ok(self.first.take().map(|first| Recipe::Zip(Box::new([first, second]))))
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        let [a, b] = &mut self.inputs;
        let had = if n > 0 { self.first.take().is_some() as u64 } else { 0 };
        let skipped = had + a.skip(pipeline, n - had)?;
        b.skip(pipeline, skipped)
    }
}

pub(super) struct Interleave {
    /// None for those that have ended.
    inputs: Vec<Option<Box<dyn Stream>>>,
    block: u64,
    /// Whose turn it is, and how many of its block are left.
    turn: usize,
    left: u64,
}

impl Interleave {
    pub(super) fn new(inputs: Vec<Box<dyn Stream>>, block: u64) -> Interleave {
        Interleave { inputs: inputs.into_iter().map(Some).collect(), block, turn: 0, left: block }
    }

    fn pass_on(&mut self) {
        self.turn = (self.turn + 1) % self.inputs.len();
        self.left = self.block;
    }

    fn ended(&self) -> bool {
        self.inputs.iter().all(Option::is_none)
    }
}

impl Stream for Interleave {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        while !self.ended() {
            if self.left == 0 || self.inputs[self.turn].is_none() {
                self.pass_on();
                continue;
            }
            let Some(input) = &mut self.inputs[self.turn] else { continue };
            match input.next(pipeline)? {
                Some(recipe) => {
                    self.left -= 1;
                    return Ok(Some(recipe));
                }
                None => self.inputs[self.turn] = None,
            }
        }
        Ok(None)
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        let mut skipped = 0;
        while skipped < n && !self.ended() {
            if self.left == 0 || self.inputs[self.turn].is_none() {
                self.pass_on();
                continue;
            }
            let wanted = self.left.min(n - skipped);
            let Some(input) = &mut self.inputs[self.turn] else { continue };
            let got = input.skip(pipeline, wanted)?;
            (skipped, self.left) = (skipped + got, self.left - got);
            if got < wanted {
                self.inputs[self.turn] = None;
            }
        }
        Ok(skipped)
    }
}
