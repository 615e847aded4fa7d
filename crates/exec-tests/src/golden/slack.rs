//! How far rounding alone may move a trained parameter.
//!
//! Adaptive optimizers divide a gradient by its own size. Where it should be 0 (the bias of attention's keys), or passes
//! near 0 in an early step, what they see is rounding divided by rounding, and they move the element by up to the
//! learning rate. That says nothing about an executor, so it is left out of the comparison: never more than the learning
//! rate in a step, and next to nothing for elements whose gradients are of the usual size.

use std::collections::HashMap;

use memfit_ir::Graph;
use memfit_ir::op::Update;

use super::RunCase;
use crate::error::Result;
use crate::runner::{Reference, Runner};
use crate::tensor::Tensor;

/// How exactly a kernel may be expected to know a gradient, as a share of the largest in its tensor.
const GRADIENT_ROUNDING: f64 = 1e-6;

/// The slack of every parameter's elements after the steps so far, from a training without rounding.
pub struct Slack<'a> {
    case: &'a RunCase,
    exact: HashMap<String, Tensor>,
    of: HashMap<&'a str, Vec<f64>>,
}

impl<'a> Slack<'a> {
    pub fn new(case: &'a RunCase, states: HashMap<String, Tensor>) -> Slack<'a> {
        Slack { case, exact: states, of: HashMap::new() }
    }

    pub fn of(&self, param: &str, element: usize) -> f64 {
        self.of.get(param).and_then(|all| all.get(element)).copied().unwrap_or(0.0)
    }

    /// Trains one step on the reference and adds what it may move.
    pub fn step(&mut self, graph: &Graph, step: usize) -> Result<()> {
        let Some(slot) = second_moment(self.case.update) else { return Ok(()) };
        self.exact = Reference.run(graph, &self.case.feeds(step), &self.exact)?.states;
        for name in self.case.weights_after.keys() {
            let Some(squares) = self.exact.get(&format!("optimizer/{name}/{slot}")) else { continue };
            let largest = squares.data.iter().copied().fold(0.0, f64::max);
            let all = self.of.entry(name).or_insert_with(|| vec![0.0; squares.data.len()]);
            for (slack, square) in all.iter_mut().zip(&squares.data) {
                *slack += self.case.lr * (GRADIENT_ROUNDING * (largest / square).sqrt()).min(1.0);
            }
        }
        Ok(())
    }
}

/// The slot that an optimizer divides by.
fn second_moment(update: Update) -> Option<&'static str> {
    match update {
        Update::Sgd { .. } => None,
        Update::Adam { .. } | Update::RmsProp { .. } | Update::Adagrad { .. } => update.slots().last().copied(),
    }
}
