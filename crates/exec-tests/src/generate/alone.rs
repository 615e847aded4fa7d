//! Ops by themselves, on numbers that nothing chose.

use std::collections::HashMap;

use memfit_ir::{Builder, DType, Graph, Op, TensorType, philox};

use super::Example;
use crate::error::Result;
use crate::tensor::{Tensor, round_to};

/// An op alone, on inputs x0, x1… of these types, with all that it makes as outputs y0, y1….
pub fn alone(op: &Op, inputs: &[TensorType]) -> Result<Graph> {
    let mut b = Builder::new();
    let inputs = inputs.iter().enumerate();
    let x = inputs.map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect::<memfit_ir::Result<Vec<_>>>()?;
    let y = b.op_outputs(op.clone(), &x)?;
    y.into_iter().enumerate().for_each(|(i, y)| b.output(format!("y{i}"), y));
    Ok(b.finish())
}

/// A graph without states, on numbers of a normal distribution; of integers, their sizes, all below 6.
pub fn on_normal_numbers(graph: Graph) -> Example {
    let drawn = |name: &str, ty: &TensorType| {
        let number = |x: f32| if ty.dtype == DType::I32 { f64::from(x.abs()).trunc() } else { f64::from(x) };
        let data = philox::normal(7, name, ty.elements()).map(|x| round_to(ty.dtype, number(x))).collect();
        Tensor { ty: ty.clone(), data }
    };
    let inputs = graph.inputs().map(|(name, v)| (name.to_string(), drawn(name, graph.ty(v)))).collect();
    Example { graph, forward_end: None, inputs, states: HashMap::new(), seeds: 0, differentiated: Vec::new() }
}
