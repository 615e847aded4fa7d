//! Gradients that are built from other ops, against central differences in f64.

use crate::common;

use std::collections::HashMap;

use common::{Tensor, evaluate, input, noise};
use memfit_ir::infer::broadcast;
use memfit_ir::op::{
    BatchGradInput, Binary, Compare, Conv, ConvFilter, ConvTranspose, Eps, Init, MatMul, Pad2, ReduceKind,
};
use memfit_ir::{Builder, Op, Result, TensorType, ValueId, verify};
use memfit_transform::{Cotangent, gradients};

/// Builds a graph that ends in one value, weights it by an input of its own, and compares every gradient by a float
/// input with central differences.
fn check(what: &str, build: impl FnOnce(&mut Builder) -> Result<ValueId>) {
    check_with(what, HashMap::new(), build);
}

/// The same with some of the inputs given.
fn check_with(what: &str, fixed: HashMap<String, Tensor>, build: impl FnOnce(&mut Builder) -> Result<ValueId>) {
    let mut b = Builder::new();
    let y = build(&mut b).unwrap_or_else(|e| panic!("{what}: {e}"));
    let wrt: Vec<(String, ValueId)> = b.graph().inputs().map(|(n, v)| (n.to_string(), v)).collect();
    let ty = b.ty(y).clone();
    let weight = b.input("weight of y", ty).unwrap();
    let forward = b.finish();
    let mut given: HashMap<String, Tensor> = forward
        .inputs()
        .enumerate()
        .map(|(i, (name, v))| (name.to_string(), noise(forward.shape(v), i as u64 + 1)))
        .collect();
    given.extend(fixed);

    let ids: Vec<ValueId> = wrt.iter().map(|&(_, v)| v).collect();
    let found = gradients(&forward, &[(y, Cotangent::Value(weight))], &ids).unwrap_or_else(|e| panic!("{what}: {e}"));
    verify(&found.graph).unwrap_or_else(|e| panic!("{what}: {e}"));
    let values = evaluate(&found.graph, &given);
    let loss = |given: &HashMap<String, Tensor>| {
        let values = evaluate(&forward, given);
        let weighted = values[y.index()].data.iter().zip(&values[weight.index()].data).map(|(y, w)| y * w);
        weighted.sum::<f64>()
    };
    for ((name, _), gradient) in wrt.iter().zip(found.of) {
        let gradient = &values[gradient.unwrap_or_else(|| panic!("{what}: no gradient by {name}")).index()];
        for i in 0..gradient.data.len() {
            let mut nudged = given.clone();
            let h = 1e-5;
            nudged.get_mut(name).unwrap().data[i] += h;
            let above = loss(&nudged);
            nudged.get_mut(name).unwrap().data[i] -= 2.0 * h;
            let expected = (above - loss(&nudged)) / (2.0 * h);
            let error = (gradient.data[i] - expected).abs() / (1.0 + expected.abs());
            assert!(error < 1e-6, "{what}: by {name}[{i}] {} expected {expected}", gradient.data[i]);
        }
    }
}

/// Every shape that broadcasts with another one, once.
fn shapes() -> Vec<[Vec<usize>; 2]> {
    let all: [&[usize]; 6] = [&[], &[3], &[1, 3], &[2, 1], &[2, 3], &[4, 1, 3]];
    let mut pairs = Vec::new();
    for a in all {
        for b in all {
            if broadcast(a, b).is_some() {
                pairs.push([a.to_vec(), b.to_vec()]);
            }
        }
    }
    pairs
}

#[test]
fn binary_ops_with_every_kind_of_broadcast() {
    for b in Binary::ALL {
        for [x, y] in shapes() {
            check(&format!("{} {x:?} {y:?}", b.name()), |g| {
                let (x, y) = (input(g, "x", &x)?, input(g, "y", &y)?);
                g.binary(b, x, y)
            });
        }
    }
}

#[test]
fn one_value_on_both_sides() {
    for b in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Pow, Binary::SigmoidCrossEntropy] {
        check(b.name(), |g| {
            let x = input(g, "x", &[2, 3])?;
            g.binary(b, x, x)
        });
    }
}

#[test]
fn ties_split_evenly() {
    let gradient = |build: &dyn Fn(&mut Builder) -> ValueId, x: Tensor| {
        let mut b = Builder::new();
        let y = build(&mut b);
        let graph = b.finish();
        let x_id = graph.input("x").unwrap();
        let found = gradients(&graph, &[(y, Cotangent::Constant(1.0))], &[x_id]).unwrap();
        let values = evaluate(&found.graph, &HashMap::from([("x".to_string(), x)]));
        values[found.of[0].unwrap().index()].data.clone()
    };
    let x = Tensor { shape: vec![5], data: vec![3.0, 1.0, 3.0, -2.0, 2.0] };
    for (b, expected) in [(Binary::Max, [1.0, 0.0, 1.0, 0.0, 0.5]), (Binary::Min, [0.0, 1.0, 0.0, 1.0, 0.5])] {
        let build = |g: &mut Builder| {
            let x = input(g, "x", &[5]).unwrap();
            let two = g.constant(2.0).unwrap();
            g.binary(b, x, two).unwrap()
        };
        assert_eq!(gradient(&build, x.clone()), expected, "{}", b.name());
    }
    let build = |g: &mut Builder| {
        let x = input(g, "x", &[5]).unwrap();
        g.reduce(ReduceKind::Max, x, &[0], false).unwrap()
    };
    assert_eq!(gradient(&build, x), [0.5, 0.0, 0.5, 0.0, 0.0]);
}

#[test]
fn powers_of_zero_are_finite() {
    let mut b = Builder::new();
    let (x, p) = (input(&mut b, "x", &[3]).unwrap(), input(&mut b, "p", &[3]).unwrap());
    let y = b.binary(Binary::Pow, x, p).unwrap();
    let found = gradients(&b.finish(), &[(y, Cotangent::Constant(1.0))], &[x, p]).unwrap();
    let given = HashMap::from([
        ("x".to_string(), Tensor { shape: vec![3], data: vec![0.0, 0.0, 3.0] }),
        ("p".to_string(), Tensor { shape: vec![3], data: vec![0.0, 2.0, 0.0] }),
    ]);
    let values = evaluate(&found.graph, &given);
    assert_eq!(values[found.of[0].unwrap().index()].data, [0.0, 0.0, 0.0]);
    assert_eq!(values[found.of[1].unwrap().index()].data, [0.0, 0.0, 3f64.ln()]);
}

#[test]
fn select_with_broadcast() {
    check("select", |g| {
        let (x, y) = (input(g, "x", &[3])?, input(g, "y", &[2, 1])?);
        let limit = g.fill(1.0, TensorType::f32([4, 1, 1]))?;
        let (low, high) = (g.binary(Binary::Add, x, y)?, g.constant(2.0)?);
        let high = g.mul(limit, high)?;
        let c = g.compare(Compare::Lt, low, high)?;
        g.select(c, x, y)
    });
}

#[test]
fn reductions() {
    for kind in ReduceKind::ALL {
        for axes in [&[][..], &[0], &[1], &[2], &[0, 2], &[0, 1, 2]] {
            for keep in [false, true] {
                check(&format!("{} over {axes:?}", kind.name()), |g| {
                    let x = input(g, "x", &[2, 3, 4])?;
                    g.reduce(kind, x, axes, keep)
                });
            }
        }
    }
}

#[test]
fn layouts() {
    check("reshape", |g| {
        let x = input(g, "x", &[2, 6])?;
        g.reshape(x, [3, 4])
    });
    check("transpose", |g| {
        let x = input(g, "x", &[2, 3, 4])?;
        g.transpose(x, &[2, 0, 1])
    });
    check("slice", |g| {
        let x = input(g, "x", &[4, 5])?;
        g.slice(x, &[1, 0], &[3, 2])
    });
    check("concat", |g| {
        let (x, y, z) = (input(g, "x", &[2, 1])?, input(g, "y", &[2, 3])?, input(g, "z", &[2, 2])?);
        g.concat(&[x, y, z, x], 1)
    });
    check("pad", |g| {
        let x = input(g, "x", &[2, 3])?;
        g.pad(x, &[(1, 0), (2, 3)])
    });
    check("broadcast", |g| {
        let x = input(g, "x", &[3, 1])?;
        g.broadcast(x, [2, 3, 4])
    });
}

#[test]
fn matmul_in_all_forms() {
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        for (batch_a, batch_b) in [(&[][..], &[][..]), (&[2], &[2]), (&[2, 2], &[2, 2]), (&[2], &[]), (&[2, 2], &[])] {
            if transpose_a && batch_a != batch_b {
                continue; // no such op
            }
            let place = |turned: bool, rows, cols| if turned { [cols, rows] } else { [rows, cols] };
            let a = [batch_a, &place(transpose_a, 3, 4)].concat();
            let b = [batch_b, &place(transpose_b, 4, 5)].concat();
            check(&format!("{a:?} {transpose_a} times {b:?} {transpose_b}"), |g| {
                let (a, b) = (input(g, "a", &a)?, input(g, "b", &b)?);
                g.matmul_with(a, b, MatMul { transpose_a, transpose_b })
            });
        }
    }
}

#[test]
fn the_three_convolutions() {
    let pad = Pad2 { top: 1, bottom: 0, left: 2, right: 1 };
    for (stride, dilation, groups) in
        [([1, 1], [1, 1], 1), ([2, 1], [1, 2], 1), ([2, 3], [1, 1], 2), ([1, 2], [2, 1], 4)]
    {
        let c = Conv { stride, pad, dilation, groups };
        let (x_shape, w_shape) = ([2, 5, 6, 4], [3, 2, 4 / groups, 4]);
        let mut b = Builder::new();
        let (x, w) = (input(&mut b, "x", &x_shape).unwrap(), input(&mut b, "w", &w_shape).unwrap());
        let y = b.conv(x, w, c).unwrap();
        let y_shape = b.shape(y).to_vec();
        check(&format!("conv {c:?}"), |g| {
            let (x, w) = (input(g, "x", &x_shape)?, input(g, "w", &w_shape)?);
            g.conv(x, w, c)
        });
        check(&format!("transpose {c:?}"), |g| {
            let (y, w) = (input(g, "y", &y_shape)?, input(g, "w", &w_shape)?);
            g.conv_transpose(y, w, ConvTranspose { conv: c, size: [5, 6] })
        });
        check(&format!("filter {c:?}"), |g| {
            let (x, y) = (input(g, "x", &x_shape)?, input(g, "y", &y_shape)?);
            g.op(Op::ConvFilter(ConvFilter { conv: c, size: [3, 2] }), &[x, y])
        });
    }
}

#[test]
fn batch_norm_and_other_uses_of_its_statistics() {
    let norm = |g: &mut Builder| {
        let (x, scale, bias) = (input(g, "x", &[3, 2, 2])?, input(g, "scale", &[2])?, input(g, "bias", &[2])?);
        g.batch_norm(x, scale, bias, 1e-3)
    };
    check("batch norm", |g| Ok(norm(g)?[0]));
    check("batch norm, its mean and its variance", |g| {
        let [y, mean, var] = norm(g)?;
        let sum = g.mul(y, var)?;
        g.add(sum, mean)
    });
    for output in 0..2 {
        check("batch statistics", |g| {
            let x = input(g, "x", &[3, 2, 2])?;
            Ok(g.op_outputs(Op::BatchStats, &[x])?[output])
        });
    }
}

#[test]
fn batch_norm_by_running_statistics_is_an_affine_map() {
    let mut b = Builder::new();
    let x = input(&mut b, "x", &[3, 2]).unwrap();
    let vector = |b: &mut Builder, name: &str| input(b, name, &[2]).unwrap();
    let [mean, var, scale, bias] = ["mean", "var", "scale", "bias"].map(|name| vector(&mut b, name));
    let y = b.op(Op::BatchApply(Eps(0.0)), &[x, mean, var, scale, bias]).unwrap();
    let graph = b.finish();
    let found = gradients(&graph, &[(y, Cotangent::Constant(1.0))], &[x, scale]).unwrap();
    let expected = Op::BatchGradInput(BatchGradInput { eps: 0.0, batch_stats: false });
    assert_eq!(found.graph.producer_op(found.of[0].unwrap()), &expected);
    let given: HashMap<String, Tensor> =
        graph.inputs().map(|(name, v)| (name.to_string(), noise(graph.shape(v), v.0 as u64))).collect();
    let values = evaluate(&found.graph, &given);
    for (i, dx) in values[found.of[0].unwrap().index()].data.iter().enumerate() {
        assert!((dx - given["scale"].data[i % 2] / given["var"].data[i % 2].sqrt()).abs() < 1e-12);
    }
}

#[test]
fn cross_entropy_by_dense_labels() {
    for smoothing in [0.0, 0.25] {
        let logits = noise(&[2, 3, 4], 7);
        check_with("labels", HashMap::from([("logits".into(), logits)]), |g| {
            let labels = input(g, "labels", &[2, 3, 4])?;
            let logits = g.param("logits", [2, 3, 4], Init::Constant(0.0))?;
            g.cross_entropy(logits, labels, smoothing)
        });
    }
}
