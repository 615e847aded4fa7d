//! The inputs of a step, as an engine takes them.

use memfit_exec::TensorView;
use memfit_ir::op::{CLOCK, LEARNING_RATE};
use memfit_ir::{DType, Graph, TensorType, philox};

use crate::tensor::Tensor;

pub struct Batch(Vec<(String, TensorType, Vec<u8>)>);

impl Batch {
    /// Without clock and learning rate, which are the engine's own.
    pub fn new(tensors: impl IntoIterator<Item = (String, Tensor)>) -> Batch {
        let own = |(name, _): &(String, Tensor)| [CLOCK, LEARNING_RATE].contains(&name.as_str());
        let others = tensors.into_iter().filter(|t| !own(t));
        Batch(others.map(|(name, t)| (name, t.ty.clone(), t.to_bytes())).collect())
    }

    /// Numbers for `x` and `y` of a model of the zoo: images, masks and features are floats, classes and tokens are integers
    /// below 10.
    pub fn of_zoo(graph: &Graph, rows: usize, seed: u64) -> Batch {
        let feed = |name: &str| {
            let given = graph.ty(graph.input(name).expect("models have x and y"));
            let ty = TensorType::new(given.dtype, [&[rows], &given.shape[1..]].concat());
            let numbers = philox::uniform(seed, name, ty.elements()).map(f64::from);
            let data = match ty.dtype {
                DType::I32 => numbers.map(|u| (u.abs() * 10.0).floor()).collect(),
                _ if name == "y" => numbers.map(|u| f64::from(u > 0.0)).collect(),
                _ => numbers.collect(),
            };
            (name.to_string(), Tensor { ty, data })
        };
        Batch::new([feed("x"), feed("y")])
    }

    pub fn views(&self) -> Vec<(&str, TensorView<'_>)> {
        self.0
            .iter()
            .map(|(name, ty, bytes)| (name.as_str(), TensorView { dtype: ty.dtype, shape: &ty.shape, bytes }))
            .collect()
    }
}
