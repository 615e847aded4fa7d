//! What the GPU computes, against the f64 reference: through the planner, the validator and the engine.
#![cfg(feature = "gpu")]

mod common;

use std::collections::HashMap;

use common::{gpu, graph};
use memfit_exec::{Clock, Engine, Executor, Options, TensorView};
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::{Planned, Reference, RunResult, Runner, Settings, Tensor, check_close, round_to};
use memfit_ir::op::{Binary, Init, MatMul, Unary};
use memfit_ir::{Builder, DType, Graph, TensorType, ValueId, philox};
use memfit_plan::{Phase, Request, plan};
use memfit_transform::{Fusion, Grouping};

/// Numbers of a normal distribution that f32 holds, by name.
fn drawn(name: &str, ty: &TensorType) -> Tensor {
    assert_eq!(ty.dtype, DType::F32);
    let data = philox::normal(7, name, ty.elements()).map(|x| round_to(DType::F32, f64::from(x))).collect();
    Tensor::new(ty.clone(), data).unwrap()
}

/// Runs a graph on the reference and on the GPU under every setting that may not change the result, twice each: all
/// outputs and states must agree with the reference, and the second run must find nothing of the first.
fn check(what: &str, graph: &Graph, tolerance: f64) {
    if gpu().is_none() {
        return;
    }
    let inputs: HashMap<String, Tensor> =
        graph.inputs().map(|(name, v)| (name.to_string(), drawn(name, graph.ty(v)))).collect();
    let states: HashMap<String, Tensor> =
        graph.states().map(|(s, v)| (s.name.clone(), drawn(&s.name, graph.ty(v)))).collect();
    let expected = Reference.run(graph, &inputs, &states).unwrap();
    for (grouping, poison) in [(Grouping::Fused, false), (Grouping::Fused, true), (Grouping::Single, true)] {
        let mut runner = Planned::new(|| GpuExecutor::new(0), Settings { grouping, poison, squeeze: 0 });
        for round in 1..=2 {
            let what = format!("{what}, {grouping:?}, poison {poison}, round {round}");
            let given = runner.run(graph, &inputs, &states).unwrap_or_else(|e| panic!("{what}: {e}"));
            compare(&what, &expected, &given, tolerance);
        }
    }
}

fn compare(what: &str, expected: &RunResult, given: &RunResult, tolerance: f64) {
    for (name, e) in expected.outputs.iter().chain(&expected.states) {
        let g = given.outputs.get(name).or_else(|| given.states.get(name)).unwrap();
        check_close(&format!("{what}: {name}"), e, g, tolerance).unwrap_or_else(|e| panic!("{e}"));
    }
}

fn f32(b: &mut Builder, name: &str, shape: &[usize]) -> memfit_ir::Result<ValueId> {
    b.input(name, TensorType::f32(shape))
}

#[test]
fn a_chain_is_computed_element_by_element() {
    for shape in [&[1][..], &[7], &[255], &[256], &[257], &[3, 5, 7], &[64, 33], &[1000, 131]] {
        let g = graph(|b| {
            let (x, y, z) = (f32(b, "x", shape)?, f32(b, "y", shape)?, f32(b, "z", shape)?);
            let sum = b.add(x, y)?;
            let positive = b.relu(sum)?;
            let product = b.mul(positive, z)?;
            // A value inside of the chain that leaves it, too.
            b.output("positive", positive);
            b.output("product", product);
            Ok(())
        });
        check(&format!("add, relu, mul of {shape:?}"), &g, 1e-6);
    }
}

#[test]
fn operands_are_broadcast() {
    for (small, large) in [
        (&[][..], &[4, 5][..]),
        (&[1], &[300]),
        (&[5], &[4, 5]),
        (&[4, 1], &[4, 5]),
        (&[2, 1, 7], &[2, 3, 7]),
        (&[3, 1, 2, 1], &[3, 5, 2, 9]),
        (&[1, 1, 13], &[17, 1, 13]),
    ] {
        let g = graph(|b| {
            let (x, v) = (f32(b, "x", large)?, f32(b, "v", small)?);
            let y = b.sub(v, x)?;
            let y = b.scale(y, -1.5)?;
            let y = b.binary(Binary::Max, y, v)?;
            b.output("y", y);
            Ok(())
        });
        check(&format!("{small:?} over {large:?}"), &g, 1e-6);
    }
}

#[test]
fn every_function_of_one_or_two_numbers_is_right() {
    use Unary::*;
    for u in [
        Neg,
        Abs,
        Exp,
        Tanh,
        Sigmoid,
        Relu,
        Relu6,
        LeakyRelu(0.1),
        Elu(1.3),
        Softplus,
        HardSigmoid,
        HardSwish,
        Silu,
        GeluTanh,
        GeluErf,
    ] {
        let g = graph(|b| {
            let x = f32(b, "x", &[41, 13])?;
            let x = b.scale(x, 3.0)?;
            let y = b.unary(u, x)?;
            b.output("y", y);
            Ok(())
        });
        check(&format!("{u:?}"), &g, 2e-6);
    }
    for u in [Log, Sqrt, Rsqrt] {
        let g = graph(|b| {
            let x = f32(b, "x", &[41, 13])?;
            let one = b.constant(0.5)?;
            let x = b.unary(Abs, x)?;
            let x = b.add(x, one)?;
            let y = b.unary(u, x)?;
            b.output("y", y);
            Ok(())
        });
        check(&format!("{u:?}"), &g, 2e-6);
    }
    for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Min, Binary::Max] {
        let g = graph(|b| {
            let (x, y) = (f32(b, "x", &[41, 13])?, f32(b, "y", &[41, 13])?);
            let y = b.unary(Exp, y)?;
            let y = b.binary(op, x, y)?;
            b.output("y", y);
            Ok(())
        });
        check(&format!("{op:?}"), &g, 2e-6);
    }
}

#[test]
fn products_of_any_shape_and_transpose_are_right() {
    let sizes = [(1, 1, 1), (1, 17, 5), (33, 1, 7), (16, 16, 16), (37, 53, 29), (129, 257, 65)];
    for (m, k, n) in sizes {
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let g = graph(|b| {
                let a = f32(b, "a", &if transpose_a { [k, m] } else { [m, k] })?;
                let w = f32(b, "b", &if transpose_b { [n, k] } else { [k, n] })?;
                let y = b.matmul_with(a, w, MatMul { transpose_a, transpose_b })?;
                b.output("y", y);
                Ok(())
            });
            check(&format!("({m}×{k})·({k}×{n}), transposed {transpose_a} {transpose_b}"), &g, 1e-5);
        }
    }
}

#[test]
fn batches_of_products_are_right() {
    for (a, w, op) in [
        (&[3, 5, 7][..], &[3, 7, 9][..], MatMul { transpose_a: false, transpose_b: false }),
        (&[2, 3, 5, 7], &[2, 3, 9, 7], MatMul { transpose_a: false, transpose_b: true }),
        (&[4, 5, 7], &[7, 9], MatMul { transpose_a: false, transpose_b: false }),
        (&[3, 7, 5], &[3, 7, 9], MatMul { transpose_a: true, transpose_b: false }),
    ] {
        let g = graph(|b| {
            let (x, w) = (f32(b, "a", a)?, f32(b, "b", w)?);
            let y = b.matmul_with(x, w, op)?;
            b.output("y", y);
            Ok(())
        });
        check(&format!("{a:?} · {w:?}"), &g, 1e-5);
    }
}

#[test]
fn a_chain_finishes_a_product() {
    for keep_product in [false, true] {
        let g = graph(|b| {
            let (a, w) = (f32(b, "a", &[37, 19])?, f32(b, "w", &[19, 23])?);
            let (bias, residual) = (f32(b, "bias", &[23])?, f32(b, "residual", &[37, 23])?);
            let raw = b.matmul(a, w)?;
            let y = b.add(raw, bias)?;
            let y = b.relu(y)?;
            let z = b.add(y, residual)?;
            if keep_product {
                b.output("raw", raw);
            }
            b.output("y", y);
            b.output("z", z);
            Ok(())
        });
        check(&format!("product, bias, relu, residual; product kept: {keep_product}"), &g, 1e-5);
    }
}

/// Its operands are computed for it alone: they have no place in the plan but in its scratch.
#[test]
fn chains_feed_a_product() {
    for (left, right) in [(true, false), (false, true), (true, true)] {
        let g = graph(|b| {
            let (x, w) = (f32(b, "x", &[37, 19])?, f32(b, "w", &[19, 23])?);
            let scale = f32(b, "scale", &[19, 1])?;
            let a = if left { b.unary(Unary::Silu, x)? } else { x };
            let w_scaled = if right { b.mul(w, scale)? } else { w };
            let raw = b.matmul(a, w_scaled)?;
            let y = b.relu(raw)?;
            b.output("y", y);
            // Kept anyway, so that computing from them again spares memory.
            b.output("x", x);
            b.output("w", w);
            Ok(())
        });
        let fed = memfit_transform::group::group(&g, &Fusion::FULL).iter().map(|g| g.prologue_len).sum::<usize>();
        assert_eq!(fed, usize::from(left) + usize::from(right), "the planner feeds what the test is about");
        check(&format!("a product of computed operands: {left} {right}"), &g, 1e-5);
    }
}

/// The old state is read by the chain that writes the new one over it: the product has to wait elsewhere.
#[test]
fn a_product_is_added_to_a_state() {
    let g = graph(|b| {
        let (a, w) = (f32(b, "a", &[21, 9])?, f32(b, "w", &[9, 11])?);
        let sum = b.param("sum", [21, 11], Init::Constant(0.0))?;
        let product = b.matmul(a, w)?;
        let new = b.add(sum, product)?;
        b.donate(sum, new);
        Ok(())
    });
    check("a sum of products", &g, 1e-5);
}

fn mlp(batch: usize, widths: &[usize]) -> Graph {
    graph(|b| {
        let mut h = f32(b, "x", &[batch, widths[0]])?;
        for (i, pair) in widths.windows(2).enumerate() {
            h = b.scope(format!("fc{i}"), |b| {
                let w = b.param("weight", [pair[0], pair[1]], Init::Normal { std: 0.1 })?;
                let bias = b.param("bias", [pair[1]], Init::Constant(0.0))?;
                let y = b.matmul(h, w)?;
                let y = b.add(y, bias)?;
                if i + 2 < widths.len() { b.relu(y) } else { Ok(y) }
            })?;
        }
        b.output("logits", h);
        Ok(())
    })
}

#[test]
fn an_mlp_runs_forward() {
    for (batch, widths) in [(1, &[5, 3][..]), (13, &[27, 65, 31, 10]), (32, &[784, 128, 10])] {
        check(&format!("an mlp of {widths:?}, batch {batch}"), &mlp(batch, widths), 1e-5);
    }
}

/// Each thread has a queue of its own on the device: what one thread staged and launched, another has to find.
#[test]
fn an_engine_may_go_from_thread_to_thread() {
    let Some(gpu) = gpu() else { return };
    let g = graph(|b| {
        let x = f32(b, "x", &[1000, 50])?;
        let w = b.param("w", [50, 40], Init::Constant(0.5))?;
        let sum = b.param("sum", [1000, 40], Init::Constant(0.0))?;
        let y = b.matmul(x, w)?;
        let new = b.add(sum, y)?;
        b.donate(sum, new);
        Ok(())
    });
    let plan = plan(&|_| Ok(vec![(Phase::Step, g.clone().into())]), gpu.target(), &Request::new(1)).unwrap();
    let mut engine = Engine::new(gpu, plan, Options::default()).unwrap();
    engine.init(1).unwrap();
    let x = vec![1.0; 50_000];
    for _ in 0..8 {
        std::thread::scope(|s| {
            let run = || {
                let inputs = [("x", TensorView::f32(&[1000, 50], &x))];
                engine.run(Phase::Step, &inputs, 0.0, Clock::default()).unwrap();
            };
            s.spawn(run);
        });
    }
    let sum = engine.read_state("sum").unwrap();
    assert!(sum.chunks_exact(4).all(|x| x == 200f32.to_ne_bytes()), "8 · 50 · 0.5 is not everywhere");
}

#[test]
fn there_is_no_thousandth_gpu() {
    let Err(e) = GpuExecutor::new(999) else { panic!("it exists") };
    assert!(e.to_string().contains("gpu:999"), "{e}");
}
