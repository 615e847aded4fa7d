//! Run cases: a whole model trained for a few steps. The model's forward graph with its loss follows from the spec and
//! from the shapes of the initial weights.

use std::collections::{HashMap, HashSet};

use memfit_ir::op::{CLOCK, Init, LEARNING_RATE, StateClass, Update};
use memfit_ir::{Builder, Graph, TensorType, ValueId};
use memfit_transform::{StepGraph, Training, step};

use super::optimizer::clock;
use super::{Attrs, Named, gpt, sequential};
use crate::error::{Error, Result};
use crate::reference::initial_states;
use crate::tensor::Tensor;

#[derive(Clone, Debug)]
pub struct RunCase {
    pub name: String,
    pub spec: Attrs,
    pub update: Update,
    pub lr: f64,
    /// The weights before the first step, by the names of the graph's parameters.
    pub init: Named,
    /// (x, y) of every step.
    pub batches: Vec<(Tensor, Tensor)>,
    /// The loss of every step, before its update.
    pub losses: Vec<f64>,
    /// The weights after the last step.
    pub weights_after: Named,
    /// The running statistics after the last step, by the names of the graph's statistics.
    pub statistics_after: Named,
}

impl RunCase {
    /// The forward graph: inputs `x` and `y`, a parameter for every initial weight, running statistics with their
    /// update, and the output `loss`.
    pub fn graph(&self) -> Result<Graph> {
        let graph = if self.spec.names().any(|n| n == "heads") {
            let model = gpt::Spec::read(&self.spec)?;
            self.build(|b, weights, x| gpt::logits(b, weights, &model, x))
        } else {
            let model = sequential::Spec::read(&self.spec)?;
            self.build(|b, weights, x| sequential::logits(b, weights, &model, x))
        };
        let graph = graph.map_err(|source| Error::CaseGraph { case: self.name.clone(), source })?;
        let used: HashSet<&str> = graph.states().map(|(s, _)| s.name.as_str()).collect();
        if let Some(unused) = self.init.keys().find(|n| !used.contains(n.as_str())) {
            let problem = format!("the weight \"{unused}\" has no place in the model");
            return Err(Error::Case { case: self.name.clone(), problem });
        }
        Ok(graph)
    }

    /// The training step of the forward graph.
    pub fn step_graph(&self) -> Result<StepGraph> {
        let forward = self.graph()?;
        self.check_after(&forward)?;
        let loss = forward.output("loss").expect("the forward graph has this output");
        let training = Training::new(self.update);
        Ok(step(&forward, loss, &training)?)
    }

    /// What is not stored cannot be compared: every parameter and statistic has an end, and every end belongs to one.
    fn check_after(&self, forward: &Graph) -> Result<()> {
        let kinds = [
            (StateClass::Param, "final", &self.weights_after),
            (StateClass::Statistic, "state", &self.statistics_after),
        ];
        for (class, folder, after) in kinds {
            let known = |name: &str| forward.states().any(|(s, _)| s.class == class && s.name == name);
            let missing = forward.states().find(|(s, _)| s.class == class && !after.contains_key(&s.name));
            let problem = match (missing, after.keys().find(|n| !known(n))) {
                (Some((s, _)), _) => format!("the tensor {folder}/{} is missing", s.name),
                (None, Some(name)) => format!("the tensor {folder}/{name} has no place in the model"),
                (None, None) => continue,
            };
            return Err(Error::Case { case: self.name.clone(), problem });
        }
        Ok(())
    }

    fn build(
        &self,
        logits: impl FnOnce(&mut Builder, &Weights, ValueId) -> memfit_ir::Result<ValueId>,
    ) -> memfit_ir::Result<Graph> {
        let mut b = Builder::new();
        let x = b.input("x", self.batches[0].0.ty.clone())?;
        let y = b.input("y", self.batches[0].1.ty.clone())?;
        let logits = logits(&mut b, &Weights(&self.init), x)?;
        let each = b.cross_entropy(logits, y, 0.0)?;
        let loss = b.mean(each)?;
        b.output("loss", loss);
        Ok(b.finish())
    }

    /// The states of a graph before the first step: the given weights; others start as the graph says.
    pub fn states(&self, graph: &Graph) -> HashMap<String, Tensor> {
        let mut states = initial_states(graph, 0);
        states.extend(self.init.iter().map(|(n, t)| (n.clone(), t.clone())));
        states
    }

    pub fn feeds(&self, step: usize) -> HashMap<String, Tensor> {
        let (x, y) = self.batches[step].clone();
        let lr = Tensor::filled(&TensorType::f32([]), self.lr);
        let named = [("x", x), ("y", y), (LEARNING_RATE, lr), (CLOCK, clock(step))];
        named.into_iter().map(|(name, t)| (name.to_string(), t)).collect()
    }
}

/// The initial weights, from which parameters take their shapes.
pub struct Weights<'a>(&'a Named);

impl Weights<'_> {
    /// The parameter `name` of the current layer.
    pub fn param(&self, b: &mut Builder, name: &str) -> memfit_ir::Result<ValueId> {
        let path = b.path();
        let full = if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
        match self.0.get(&full) {
            Some(t) => b.param(name, t.shape(), Init::Constant(0.0)),
            None => b.fail(format!("the tensor init/{full} is missing")),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// x · `w` + `b` in a layer of its own; the bias is optional.
    pub fn dense(&self, b: &mut Builder, layer: &str, bias: bool, x: ValueId) -> memfit_ir::Result<ValueId> {
        b.scope(layer, |b| {
            let w = self.param(b, "w")?;
            let y = b.matmul(x, w)?;
            if !bias {
                return Ok(y);
            }
            let bias = self.param(b, "b")?;
            b.add(y, bias)
        })
    }
}
