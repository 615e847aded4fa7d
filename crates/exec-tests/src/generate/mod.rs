//! Random examples of every op, for any executor. An example is a function of its family and a list of draws: the same
//! list gives the same example, and a shorter list with smaller numbers a simpler one. Nothing here runs anything.

mod alone;
mod contract;
mod draws;
mod elementwise;
mod layout;
mod loss;
mod maker;
mod mask;
mod model;
mod norm;
mod prologue;
mod state;
mod window;

use std::collections::HashMap;

use memfit_ir::{Graph, NodeId};

pub use alone::{alone, on_normal_numbers};
pub use draws::numbered;
pub use maker::example;
pub use model::{Recipe, Samples};

use crate::error::Result;
use crate::tensor::Tensor;
use maker::{Made, Maker};

/// What an example is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Small, f32, and away from kinks: for comparing gradients with differences.
    Slopes,
    /// Odd sizes, edges, ties and every element type: for comparing executors.
    Kernels,
}

#[derive(Clone, Debug)]
pub struct Example {
    /// The outputs of the op are `y0`, `y1`…. The first [`Example::seeds`] of them have a cotangent, an input `ct0`…; the
    /// gradient of Σ y · ct by each input of `differentiated` is the output `grad/NAME`.
    pub graph: Graph,
    /// As in [`StepGraph`](memfit_transform::StepGraph); for the steps of a model.
    pub forward_end: Option<NodeId>,
    pub inputs: HashMap<String, Tensor>,
    pub states: HashMap<String, Tensor>,
    pub seeds: usize,
    pub differentiated: Vec<String>,
}

/// Examples of one op, or of a few that belong together.
#[derive(Clone, Copy)]
pub struct Family {
    pub name: &'static str,
    make: fn(&mut Maker) -> Made,
}

impl Family {
    pub fn named(name: &str) -> Option<Family> {
        FAMILIES.iter().find(|f| f.name == name).copied()
    }

    /// The example that the draws describe.
    pub fn example(&self, purpose: Purpose, draws: &[u32]) -> Result<Example> {
        let mut maker = Maker::new(purpose, draws);
        let made = (self.make)(&mut maker)?;
        maker.finish(made)
    }
}

const fn family(name: &'static str, make: fn(&mut Maker) -> Made) -> Family {
    Family { name, make }
}

pub const FAMILIES: [Family; 38] = [
    family("unary", elementwise::unary),
    family("mask", mask::mask),
    family("binary", elementwise::binary),
    family("compare", elementwise::compare),
    family("select", elementwise::select),
    family("cast", elementwise::cast),
    family("dropout", elementwise::dropout),
    family("chain", elementwise::chain),
    family("fill", layout::fill),
    family("reduce", layout::reduce),
    family("reshape", layout::reshape),
    family("transpose", layout::transpose),
    family("slice", layout::slice),
    family("concat", layout::concat),
    family("pad", layout::pad),
    family("broadcast", layout::broadcast),
    family("matmul", contract::matmul),
    family("conv", contract::conv),
    family("depthwise", contract::depthwise),
    family("conv_transpose", contract::conv_transpose),
    family("conv_filter", contract::conv_filter),
    family("conv_3x3", contract::conv_3x3),
    family("prologue", prologue::prologue),
    family("attention", contract::attention),
    family("max_pool", window::max_pool),
    family("avg_pool", window::avg_pool),
    family("upsample", window::upsample),
    family("batch_norm", norm::batch_norm),
    family("batch_stats", norm::batch_stats),
    family("batch_apply", norm::batch_apply),
    family("batch_update", state::batch_update),
    family("layer_norm", norm::layer_norm),
    family("rms_norm", norm::rms_norm),
    family("group_norm", norm::group_norm),
    family("softmax", loss::softmax),
    family("cross_entropy", loss::cross_entropy),
    family("gather", loss::gather),
    family("update", state::update),
];
