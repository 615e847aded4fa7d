//! Random models: graphs of layers with branches, their parameters and a scalar loss, and the training step of them. A
//! model is a function of its draws and the batch size: with the same draws it has the same layers at every batch size.

use std::collections::HashMap;

use memfit_ir::op::*;
use memfit_ir::{Builder, DType, Graph, Op, Result as Built, TensorType, ValueId, philox};
use memfit_transform::{Clip, Precision, StepGraph, Training, step};

use super::Example;
use super::draws::Draws;
use crate::error::Result;
use crate::reference::initial_states;
use crate::tensor::Tensor;

/// Whether a sample's result may depend on the rest of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    Independent,
    /// With batch norm.
    Together,
}

/// A model that is not built yet.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub draws: Vec<u32>,
    pub samples: Samples,
}

impl Recipe {
    /// The forward graph with inputs `x` and `y` (and the clock, where there is dropout), and its loss.
    pub fn forward(&self, batch: usize) -> Result<(Graph, ValueId)> {
        let mut draws = Draws::new(&self.draws);
        let image = draws.flip();
        let sample: Vec<usize> = if image {
            vec![3 + draws.draw(6), 3 + draws.draw(6), 1 + draws.draw(4)]
        } else {
            vec![1 + draws.draw(40)]
        };
        let mut m = Model { b: Builder::new(), draws, samples: self.samples, leaves: Vec::new(), layers: 0 };
        let x = m.b.input("x", TensorType::f32([&[batch], &sample[..]].concat()))?;
        m.leaves.push(x);
        for _ in 0..2 + m.draws.draw(9) {
            m.layer()?;
        }
        let loss = m.loss(batch)?;
        m.b.output("loss", loss);
        Ok((m.b.finish(), loss))
    }

    pub fn training(&self) -> Training {
        let mut draws = Draws::new(&self.draws);
        let weight_decay = draws.pick(&[0.0, 0.01]);
        let update = match draws.draw(3) {
            0 => Update::Sgd { momentum: 0.0, nesterov: false, weight_decay },
            1 => Update::Sgd { momentum: 0.9, nesterov: draws.flip(), weight_decay },
            // Next to a small eps, a gradient near 0 would be decided by rounding.
            _ => Update::Adam { beta1: 0.9, beta2: 0.99, eps: 0.1, weight_decay, decoupled: draws.flip() },
        };
        let clip = draws.pick(&[Clip::None, Clip::None, Clip::Value(0.05), Clip::GlobalNorm(0.5)]);
        Training { clip, ..Training::new(update) }
    }

    /// One training step on a batch.
    pub fn example(&self, batch: usize) -> Result<Example> {
        self.example_in(batch, Precision::F32)
    }

    pub fn example_in(&self, batch: usize, precision: Precision) -> Result<Example> {
        let (forward, loss) = self.forward(batch)?;
        let StepGraph { graph, forward_end } = step(&forward, loss, &Training { precision, ..self.training() })?;
        let states = initial_states(&graph, 5);
        let inputs = self.feeds(&graph);
        Ok(Example { graph, forward_end, inputs, states, seeds: 0, differentiated: Vec::new() })
    }

    /// Numbers for the inputs of a graph of this model.
    pub fn feeds(&self, graph: &Graph) -> HashMap<String, Tensor> {
        let seed = u64::from(self.draws.first().copied().unwrap_or(0));
        let feed = |(name, v): (&str, ValueId)| {
            let ty = graph.ty(v);
            let count = ty.elements();
            let data = match name {
                LEARNING_RATE => vec![f64::from(0.1f32)],
                CLOCK => vec![3.0, 0.0, 77.0, -2.0],
                _ if ty.dtype == DType::I32 => {
                    philox::uniform(seed, name, count).map(|u| (f64::from(u).abs() * CLASSES as f64).floor()).collect()
                }
                _ => philox::normal(seed, name, count).map(f64::from).collect(),
            };
            (name.to_string(), Tensor { ty: ty.clone(), data })
        };
        graph.inputs().map(feed).collect()
    }
}

const CLASSES: usize = 7;

struct Model {
    b: Builder,
    draws: Draws,
    samples: Samples,
    /// Values that nothing has used up yet; the first axis of each is the sample.
    leaves: Vec<ValueId>,
    layers: usize,
}

impl Model {
    /// One more layer on one of the leaves, in a scope of its own.
    fn layer(&mut self) -> Built<()> {
        let at = self.draws.draw(self.leaves.len());
        let x = self.leaves[at];
        // What is kept besides is a branch: it ends in the loss, or is joined again.
        if self.leaves.len() > 3 || !self.draws.one_in(3) {
            self.leaves.remove(at);
        }
        let name = format!("layer{}", self.layers);
        self.layers += 1;
        let y = self.scoped(&name, x)?;
        self.leaves.push(y);
        Ok(())
    }

    fn scoped(&mut self, name: &str, x: ValueId) -> Built<ValueId> {
        // The builder's scope wants a closure over itself, so the model moves in and out.
        let mut b = std::mem::take(&mut self.b);
        let made = b.scope(name, |inner| {
            std::mem::swap(&mut self.b, inner);
            let made = if self.b.shape(x).len() == 4 { self.image_layer(x) } else { self.row_layer(x) };
            std::mem::swap(&mut self.b, inner);
            made
        });
        self.b = b;
        made
    }

    fn param(&mut self, name: &str, shape: &[usize], std: f32) -> Built<ValueId> {
        self.b.param(name, shape, Init::Normal { std })
    }

    // ---- layers ------------------------------------------------------------------------------------------------------

    fn image_layer(&mut self, x: ValueId) -> Built<ValueId> {
        let &[_, h, w, c] = self.b.shape(x) else { return self.b.fail("not an image") };
        match self.draws.draw(8) {
            0 | 1 => self.conv(x, [h, w, c], 1),
            2 => self.conv(x, [h, w, c], c),
            3 if h > 1 && w > 1 => {
                let window = Window { size: [2, 2], stride: [1 + self.draws.draw(2), 2], pad: Pad2::NONE };
                if self.draws.flip() { self.b.max_pool(x, window) } else { self.b.avg_pool(x, window) }
            }
            4 if h * w < 50 => {
                let mode = self.draws.pick(&UpsampleMode::ALL);
                self.b.upsample(x, mode, [2, 1])
            }
            5 => self.b.global_avg_pool(x),
            6 => self.norm(x, c),
            _ => self.pointwise(x),
        }
    }

    fn row_layer(&mut self, x: ValueId) -> Built<ValueId> {
        let &[n, width] = self.b.shape(x) else { return self.b.fail("not rows") };
        match self.draws.draw(6) {
            0 | 1 => {
                let out = 1 + self.draws.draw(30);
                let (weight, bias) = (self.param("w", &[width, out], 0.3)?, self.param("b", &[out], 0.1)?);
                let y = self.b.matmul(x, weight)?;
                self.b.add(y, bias)
            }
            2 => self.norm(x, width),
            3 => {
                let scores = self.b.softmax(x, 1, false)?;
                self.b.mul(scores, x)
            }
            4 if width > 1 => {
                let cut = 1 + self.draws.draw(width - 1);
                let (left, right) = (self.b.slice(x, &[0, 0], &[n, cut])?, self.b.slice(x, &[0, cut], &[n, width])?);
                self.b.concat(&[right, left], 1)
            }
            _ => self.pointwise(x),
        }
    }

    /// A convolution with bias; of as many groups as channels it is depthwise.
    fn conv(&mut self, x: ValueId, [h, w, c]: [usize; 3], groups: usize) -> Built<ValueId> {
        let out = if groups == 1 { 1 + self.draws.draw(20) } else { groups };
        let window = [1 + self.draws.draw(3), 1 + self.draws.draw(3)];
        let stride = [1 + self.draws.draw(2), 1];
        let pad = memfit_ir::infer::same_padding([h, w], window, stride, [1, 1]);
        let weight = self.param("w", &[window[0], window[1], c / groups, out], 0.3)?;
        let y = self.b.conv(x, weight, Conv { stride, pad, dilation: [1, 1], groups })?;
        let bias = self.param("b", &[out], 0.1)?;
        self.b.add(y, bias)
    }

    fn norm(&mut self, x: ValueId, channels: usize) -> Built<ValueId> {
        // The gradient of a norm of very few numbers is 0, and what a device gives instead is rounding.
        if channels < 4 {
            return self.pointwise(x);
        }
        let scale = self.param("scale", &[channels], 1.0)?;
        let bias = self.param("bias", &[channels], 0.1)?;
        if self.samples == Samples::Together && self.draws.flip() {
            return self.batch_norm(x, scale, bias);
        }
        match self.draws.draw(2) {
            0 => self.b.layer_norm(x, scale, bias, 0.1),
            _ => self.b.group_norm(x, scale, bias, 1, 0.1),
        }
    }

    fn batch_norm(&mut self, x: ValueId, scale: ValueId, bias: ValueId) -> Built<ValueId> {
        let [y, mean, var] = self.b.batch_norm(x, scale, bias, 0.1)?;
        let ty = self.b.ty(mean).clone();
        let running_mean = self.b.state("mean", StateClass::Statistic, ty.clone(), Init::Constant(0.0))?;
        let running_var = self.b.state("var", StateClass::Statistic, ty, Init::Constant(1.0))?;
        let update = Op::BatchUpdate(BatchUpdate { momentum: 0.9 });
        let new = self.b.op_outputs(update, &[running_mean, running_var, mean, var])?;
        self.b.donate(running_mean, new[0]);
        self.b.donate(running_var, new[1]);
        Ok(y)
    }

    /// An activation, dropout, or a meeting with another leaf of the same shape.
    fn pointwise(&mut self, x: ValueId) -> Built<ValueId> {
        let alike: Vec<ValueId> =
            self.leaves.iter().copied().filter(|&v| v != x && self.b.shape(v) == self.b.shape(x)).collect();
        if !alike.is_empty() && self.draws.flip() {
            let other = self.draws.pick(&alike);
            let op = self.draws.pick(&[Binary::Add, Binary::Mul, Binary::Sub]);
            return self.b.binary(op, x, other);
        }
        match self.draws.draw(4) {
            0 => self.b.dropout(x, 0.3),
            1 => {
                let scale = self.b.param("gate", [], Init::Constant(1.0))?;
                let y = self.b.mul(x, scale)?;
                self.b.unary(Unary::Tanh, y)
            }
            _ => {
                let smooth =
                    [Unary::Silu, Unary::GeluTanh, Unary::GeluErf, Unary::Sigmoid, Unary::Softplus, Unary::Relu];
                let u = self.draws.pick(&smooth);
                self.b.unary(u, x)
            }
        }
    }

    // ---- loss --------------------------------------------------------------------------------------------------------

    /// A classifier on one of the leaves, and a little of every other, so that every parameter is reached.
    fn loss(&mut self, batch: usize) -> Built<ValueId> {
        let labels = self.b.input("y", TensorType::i32([batch]))?;
        let leaves = std::mem::take(&mut self.leaves);
        let mut total = None;
        for (i, &leaf) in leaves.iter().enumerate() {
            let part = if i == 0 { self.classify(leaf, labels)? } else { self.penalty(leaf)? };
            total = Some(match total {
                None => part,
                Some(sum) => self.b.add(sum, part)?,
            });
        }
        match total {
            Some(loss) => Ok(loss),
            None => self.b.fail("no leaves"),
        }
    }

    fn classify(&mut self, x: ValueId, labels: ValueId) -> Built<ValueId> {
        let shape = self.b.shape(x).to_vec();
        let width = shape[1..].iter().product();
        let rows = self.b.reshape(x, [shape[0], width])?;
        let weight = self.param("head/w", &[width, CLASSES], 0.3)?;
        let logits = self.b.matmul(rows, weight)?;
        self.b.output("logits", logits);
        let each = self.b.cross_entropy(logits, labels, 0.1)?;
        self.b.mean(each)
    }

    fn penalty(&mut self, x: ValueId) -> Built<ValueId> {
        let bounded = self.b.unary(Unary::Tanh, x)?;
        let square = self.b.mul(bounded, bounded)?;
        self.b.mean(square)
    }
}
