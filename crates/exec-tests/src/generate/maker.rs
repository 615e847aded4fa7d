//! Builds one example: a graph, the numbers that go into it, and its gradients.

use std::collections::HashMap;

use memfit_ir::op::{Fill, Init, StateClass};
use memfit_ir::{Builder, DType, Op, Result as Built, TensorType, ValueId, philox};
use memfit_transform::{Cotangent, gradients, prune, save_masks_before};

use super::draws::Draws;
use super::{Example, Purpose};
use crate::error::Result;
use crate::tensor::{Tensor, round_to};

/// The outputs of an example, of which the first `seeds` are differentiated.
pub struct Outputs {
    pub all: Vec<ValueId>,
    pub seeds: usize,
}

pub type Made = Built<Outputs>;

/// What the elements of a tensor are drawn from. For integers, [`Numbers::Normal`] and the like mean "any small number".
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Numbers {
    Normal,
    /// Wide enough for both ends of clamped functions.
    Wide,
    /// At least a half.
    Positive,
    /// At least a half in size, of either sign.
    NotSmall,
    /// So few different ones that many are equal.
    Few,
    /// Integers from 0 to one less.
    Below(usize),
}

pub struct Maker {
    pub b: Builder,
    pub draws: Draws,
    purpose: Purpose,
    seed: u64,
    inputs: HashMap<String, Tensor>,
    states: HashMap<String, Tensor>,
    differentiated: Vec<(String, ValueId)>,
    /// Whether the gradients read masks where they can.
    pub masks: bool,
}

impl Maker {
    pub fn new(purpose: Purpose, draws: &[u32]) -> Maker {
        let mut draws = Draws::new(draws);
        let seed = draws.draw(1 << 30) as u64;
        let (inputs, states) = (HashMap::new(), HashMap::new());
        Maker { b: Builder::new(), draws, purpose, seed, inputs, states, differentiated: Vec::new(), masks: false }
    }

    pub fn for_kernels(&self) -> bool {
        self.purpose == Purpose::Kernels
    }

    // ---- sizes -------------------------------------------------------------------------------------------------------

    /// One of `odd` for kernels, 1 to 3 for slopes.
    pub fn extent(&mut self, odd: &[usize]) -> usize {
        if self.for_kernels() { self.draws.pick(odd) } else { 1 + self.draws.draw(3) }
    }

    pub fn batch(&mut self) -> usize {
        self.extent(&[1, 2, 3])
    }

    /// Around the widths of vector registers.
    pub fn channels(&mut self) -> usize {
        self.extent(&[1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64])
    }

    pub fn side(&mut self) -> usize {
        self.extent(&[1, 2, 3, 4, 5, 7, 9, 14])
    }

    /// Of `ranks` axes, with not too many elements.
    pub fn shape(&mut self, ranks: std::ops::RangeInclusive<usize>) -> Vec<usize> {
        let rank = ranks.start() + self.draws.draw(ranks.end() - ranks.start() + 1);
        let mut shape: Vec<usize> =
            (0..rank).map(|_| self.extent(&[1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 130, 700])).collect();
        shrink(&mut shape, if self.for_kernels() { 40_000 } else { 24 });
        shape
    }

    // ---- types -------------------------------------------------------------------------------------------------------

    /// Mostly f32.
    pub fn float(&mut self) -> DType {
        if !self.for_kernels() {
            return DType::F32;
        }
        self.draws.pick(&[DType::F32, DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16])
    }

    pub fn any_type(&mut self) -> DType {
        if self.for_kernels() { self.draws.pick(&DType::NUMBERS) } else { DType::F32 }
    }

    // ---- sources -----------------------------------------------------------------------------------------------------

    /// An input that is differentiated where its type has a gradient.
    pub fn input(&mut self, dtype: DType, shape: &[usize], numbers: Numbers) -> Built<ValueId> {
        let v = self.fixed(dtype, shape, numbers)?;
        if dtype.is_float() {
            self.differentiated.push((format!("x{}", self.inputs.len() - 1), v));
        }
        Ok(v)
    }

    pub fn f32(&mut self, shape: &[usize], numbers: Numbers) -> Built<ValueId> {
        self.input(DType::F32, shape, numbers)
    }

    /// An input that is not differentiated.
    pub fn fixed(&mut self, dtype: DType, shape: &[usize], numbers: Numbers) -> Built<ValueId> {
        let name = format!("x{}", self.inputs.len());
        let tensor = self.tensor(&name, &TensorType::new(dtype, shape), numbers);
        self.given(&name, tensor)
    }

    /// An input with these elements.
    pub fn given(&mut self, name: &str, tensor: Tensor) -> Built<ValueId> {
        let v = self.b.input(name, tensor.ty.clone())?;
        self.inputs.insert(name.into(), tensor);
        Ok(v)
    }

    pub fn state(&mut self, name: &str, class: StateClass, shape: &[usize], numbers: Numbers) -> Built<ValueId> {
        let ty = TensorType::f32(shape);
        self.states.insert(name.into(), self.tensor(name, &ty, numbers));
        self.b.state(name, class, ty, Init::Constant(0.0))
    }

    fn tensor(&self, name: &str, ty: &TensorType, numbers: Numbers) -> Tensor {
        let count = ty.elements();
        let words = philox::uniform(self.seed, name, count).map(|x| f64::from(x) * 0.5 + 0.5);
        let data: Vec<f64> = match (numbers, ty.dtype) {
            (Numbers::Below(limit), _) => words.map(|x| (x * limit as f64).floor()).collect(),
            (Numbers::Few, DType::U8) => words.map(|x| (x * 3.0).floor()).collect(),
            (Numbers::Few, _) => words.map(|x| (x * 5.0).floor() - 2.0).collect(),
            (_, DType::U8) => words.map(|x| (x * 256.0).floor()).collect(),
            (_, DType::I32) => words.map(|x| (x * 2001.0).floor() - 1000.0).collect(),
            _ => philox::normal(self.seed, name, count).map(|x| f64::from(spread(numbers, x))).collect(),
        };
        Tensor { ty: ty.clone(), data: data.into_iter().map(|x| round_to(ty.dtype, x)).collect() }
    }

    pub fn constant(&mut self, dtype: DType, shape: &[usize], value: f32) -> Built<ValueId> {
        self.b.op(Op::Fill(Fill { value, dtype, shape: shape.into() }), &[])
    }

    // ---- results -----------------------------------------------------------------------------------------------------

    /// The outputs of an op, the first of which is differentiated if it is a float.
    pub fn one(&mut self, op: Op, inputs: &[ValueId]) -> Made {
        let all = self.b.op_outputs(op, inputs)?;
        self.done(all)
    }

    pub fn done(&self, all: Vec<ValueId>) -> Made {
        let seeds = usize::from(self.b.ty(all[0]).dtype.is_float());
        Ok(Outputs { all, seeds })
    }

    pub fn finish(mut self, made: Outputs) -> Result<Example> {
        for (i, &v) in made.all.iter().enumerate() {
            self.b.output(format!("y{i}"), v);
        }
        let mut seeds = Vec::new();
        for (i, &v) in made.all[..made.seeds].iter().enumerate() {
            let (name, ty) = (format!("ct{i}"), self.b.ty(v).clone());
            let tensor = self.tensor(&name, &ty, Numbers::Normal);
            seeds.push((v, Cotangent::Value(self.given(&name, tensor)?)));
        }
        let wrt: Vec<ValueId> = self.differentiated.iter().map(|(_, v)| *v).collect();
        let mut found = gradients(&self.b.finish(), &seeds, &wrt)?;
        let mut differentiated = Vec::new();
        for ((name, _), gradient) in self.differentiated.into_iter().zip(found.of) {
            if let Some(v) = gradient {
                found.graph.outputs.push((format!("grad/{name}"), v));
                differentiated.push(name);
            }
        }
        let mut graph = prune(&found.graph);
        if let (true, Some(end)) = (self.masks, graph.output("y0")) {
            graph = save_masks_before(&graph, end);
        }
        Ok(Example {
            graph,
            forward_end: None,
            inputs: self.inputs,
            states: self.states,
            seeds: made.seeds,
            differentiated,
        })
    }
}

/// An example of one's own: f32 inputs of these shapes, all of them differentiated.
pub fn example(shapes: &[&[usize]], build: impl FnOnce(&mut Builder, &[ValueId]) -> Built<ValueId>) -> Result<Example> {
    let mut maker = Maker::new(Purpose::Kernels, &[]);
    let inputs: Vec<ValueId> = shapes.iter().map(|shape| maker.f32(shape, Numbers::Normal)).collect::<Built<_>>()?;
    let y = build(&mut maker.b, &inputs)?;
    let made = maker.done(vec![y])?;
    maker.finish(made)
}

/// A number of a standard normal distribution as one of another kind.
fn spread(numbers: Numbers, x: f32) -> f32 {
    match numbers {
        Numbers::Wide => 3.0 * x,
        Numbers::Positive => 0.5 + x.abs(),
        Numbers::NotSmall => x + 0.5f32.copysign(x),
        Numbers::Normal | Numbers::Few | Numbers::Below(_) => x,
    }
}

/// Halves the largest extents until their product is within the limit.
pub fn shrink(extents: &mut [usize], limit: usize) {
    while extents.iter().product::<usize>() > limit {
        if let Some(largest) = extents.iter_mut().max() {
            *largest = largest.div_ceil(2);
        }
    }
}
