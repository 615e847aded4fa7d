//! Reductions and norms of shapes that are spread in different ways over units, cubes and launches, against the f64 reference.
#![cfg(feature = "gpu")]

mod common;

use std::collections::HashMap;

use common::{gpu, graph};
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::{Expected, Planned, Runner, Settings, Tensor, round_to};
use memfit_ir::op::{Reduce, ReduceKind};
use memfit_ir::{Graph, Op, TensorType, philox};
use memfit_transform::Grouping;

/// Runs a graph on numbers of a normal distribution, in poisoned memory, and holds all of it against the reference.
fn check(what: &str, graph: &Graph) {
    if gpu().is_none() {
        return;
    }
    let drawn = |name: &str, ty: &TensorType| {
        let data = philox::normal(7, name, ty.elements()).map(|x| round_to(ty.dtype, f64::from(x))).collect();
        (name.to_string(), Tensor::new(ty.clone(), data).unwrap())
    };
    let inputs: HashMap<_, _> = graph.inputs().map(|(name, v)| drawn(name, graph.ty(v))).collect();
    let expected = Expected::new(graph, &inputs, &HashMap::new()).unwrap();
    let settings = Settings { grouping: Grouping::Fused, poison: true, squeeze: 0 };
    let given = Planned::new(|| GpuExecutor::new(0), settings).run(graph, &inputs, &HashMap::new());
    let given = given.unwrap_or_else(|e| panic!("{what}: {e}"));
    expected.check(&given).unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn any_axes_of_any_extents_are_reduced() {
    let cases: [(&[usize], &[usize]); 20] = [
        (&[1], &[0]),
        (&[], &[]),
        (&[7], &[]),
        (&[300_001], &[0]),
        (&[5, 1000], &[1]),
        (&[1000, 10], &[1]),
        (&[70_000, 3], &[0]),
        (&[5000, 17], &[0]),
        (&[3000, 33], &[0]),
        (&[999, 64], &[0]),
        (&[77, 1000], &[0]),
        (&[2, 40_000], &[0]),
        (&[3, 7, 7, 65], &[1, 2]),
        (&[2, 1, 1, 5], &[1, 2]),
        (&[3, 100, 100, 24], &[1, 2]),
        (&[6, 5, 4, 3], &[0, 2]),
        (&[6, 5, 4, 3], &[1, 3]),
        (&[4, 33, 9, 17], &[0, 2]),
        (&[20, 3, 5000], &[0, 2]),
        (&[1, 5, 1, 7, 1], &[0, 1, 2, 3, 4]),
    ];
    for (shape, axes) in cases {
        let all = graph(|b| {
            let x = b.input("x", TensorType::f32(shape))?;
            for kind in ReduceKind::ALL {
                let y = b.op(Op::Reduce(Reduce { kind, axes: axes.to_vec(), keep: false }), &[x])?;
                b.output(kind.name(), y);
            }
            Ok(())
        });
        check(&format!("{shape:?} over {axes:?}"), &all);
    }
}
