//! Every gradient op of the reference against the slope of its forward op: the change of Σ(y · dy) when one input
//! element moves, in f64, where a central difference is good to about nine digits.

use std::collections::HashMap;

use memfit_exec_tests::reference::evaluate;
use memfit_exec_tests::{Tensor, check_close};
use memfit_ir::op::*;
use memfit_ir::{Builder, Op, ValueId, philox};

type Tensors = HashMap<String, Tensor>;

/// Reproducible numbers of a normal distribution.
fn random(name: &str, shape: &[usize]) -> Tensor {
    let data = philox::normal(1, name, shape.iter().product()).map(f64::from).collect();
    Tensor::f32(shape, data).unwrap()
}

/// `forward` appends the op to its inputs x and gives its outputs y, the first of which is differentiated; `gradient`
/// appends the gradient op to (x, y, dy) and gives dx for the first inputs.
fn check(
    name: &str,
    inputs: &[Tensor],
    forward: impl Fn(&mut Builder, &[ValueId]) -> Vec<ValueId>,
    gradient: impl Fn(&mut Builder, &[ValueId], &[ValueId], ValueId) -> Vec<ValueId>,
) {
    let key = |i: usize| format!("x{i}");
    let mut feeds: Tensors = inputs.iter().enumerate().map(|(i, t)| (key(i), t.clone())).collect();
    let mut b = Builder::new();
    let x: Vec<ValueId> = inputs.iter().enumerate().map(|(i, t)| b.input(&key(i), t.ty.clone()).unwrap()).collect();
    let y = forward(&mut b, &x);
    let dy = b.input("dy", b.ty(y[0]).clone()).unwrap();
    feeds.insert("dy".into(), random("dy", b.shape(y[0])));
    let dx = gradient(&mut b, &x, &y, dy);
    let graph = b.finish();

    let values = evaluate(&graph, &feeds, &Tensors::new()).unwrap();
    let total_when_moved = |input: usize, element: usize, step: f64| -> f64 {
        let mut moved = feeds.clone();
        moved.get_mut(&key(input)).unwrap().data[element] += step;
        let values = evaluate(&graph, &moved, &Tensors::new()).unwrap();
        values[y[0]].data.iter().zip(&values[dy].data).map(|(y, dy)| y * dy).sum()
    };
    for (input, &dx) in dx.iter().enumerate() {
        let mut slopes = Tensor::zeros(&inputs[input].ty);
        for i in 0..slopes.data.len() {
            let step = 1e-5;
            slopes.data[i] = (total_when_moved(input, i, step) - total_when_moved(input, i, -step)) / (2.0 * step);
        }
        check_close(&format!("{name} by input {input}"), &slopes, &values[dx], 1e-7).unwrap();
    }
}

#[test]
fn unary() {
    for u in Unary::ALL {
        let mut x = random("x", &[4, 9]);
        // Wide enough for both ends of the clamped functions; positive where the function asks for it.
        x.data.iter_mut().for_each(|x| *x *= 3.0);
        if matches!(u, Unary::Log | Unary::Sqrt | Unary::Rsqrt) {
            x.data.iter_mut().for_each(|x| *x = x.abs() + 0.5);
        }
        let forward = |b: &mut Builder, x: &[ValueId]| vec![b.unary(u, x[0]).unwrap()];
        check(u.name(), &[x], forward, |b, x, y, dy| {
            let saved = match u.grad_reads() {
                Reads::Input => x[0],
                Reads::Output => y[0],
            };
            vec![b.op(Op::UnaryGrad(u), &[saved, dy]).unwrap()]
        });
    }
}

#[test]
fn convolution() {
    let pad = Pad2 { top: 1, bottom: 2, left: 0, right: 1 };
    for (groups, channels_out) in [(1, 3), (2, 6), (4, 4)] {
        let conv = Conv { stride: [2, 1], pad, dilation: [1, 2], groups };
        let (x, w) = (random("x", &[2, 5, 6, 4]), random("w", &[3, 2, 4 / groups, channels_out]));
        let forward = |b: &mut Builder, x: &[ValueId]| vec![b.conv(x[0], x[1], conv).unwrap()];
        check("conv2d", &[x, w], forward, |b, x, _, dy| {
            let dx = b.op(Op::ConvTranspose(ConvTranspose { conv, size: [5, 6] }), &[dy, x[1]]).unwrap();
            let dw = b.op(Op::ConvFilter(ConvFilter { conv, size: [3, 2] }), &[x[0], dy]).unwrap();
            vec![dx, dw]
        });
    }
}

#[test]
fn attention() {
    for causal in [false, true] {
        let a = Attention { causal, scale: 0.7 };
        let forward = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::Attention(a), x).unwrap();
        check("attention", &[random("qkv", &[2, 5, 3, 2, 4])], forward, |b, x, y, dy| {
            b.op_outputs(Op::AttentionGrad(a), &[x[0], y[0], y[1], dy]).unwrap()
        });
    }
}

#[test]
fn pooling() {
    let window = Window { size: [2, 3], stride: [2, 1], pad: Pad2 { top: 1, bottom: 0, left: 1, right: 2 } };
    let grad = WindowGrad { window, size: [5, 4] };
    let x = [random("x", &[2, 5, 4, 3])];
    let max = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::MaxPool(window), x).unwrap();
    check("max_pool", &x, max, |b, _, y, dy| b.op_outputs(Op::MaxPoolGrad(grad), &[y[1], dy]).unwrap());
    let avg = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::AvgPool(window), x).unwrap();
    check("avg_pool", &x, avg, |b, _, _, dy| b.op_outputs(Op::AvgPoolGrad(grad), &[dy]).unwrap());
}

#[test]
fn upsampling() {
    for mode in UpsampleMode::ALL {
        let u = Upsample { mode, factor: [2, 3] };
        let forward = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::Upsample(u), x).unwrap();
        check(mode.name(), &[random("x", &[2, 3, 4, 2])], forward, |b, _, _, dy| {
            b.op_outputs(Op::UpsampleGrad(u), &[dy]).unwrap()
        });
    }
}

#[test]
fn batch_norm() {
    let eps = 1e-3;
    let mut var = random("var", &[4]);
    var.data.iter_mut().for_each(|v| *v = v.abs() + 0.1);
    let inputs = [random("x", &[3, 2, 2, 4]), random("scale", &[4]), random("bias", &[4]), random("mean", &[4]), var];
    for batch_stats in [true, false] {
        let forward = |b: &mut Builder, x: &[ValueId]| {
            if batch_stats {
                return b.batch_norm(x[0], x[1], x[2], eps).unwrap().to_vec();
            }
            vec![b.op(Op::BatchApply(Eps(eps)), &[x[0], x[3], x[4], x[1], x[2]]).unwrap(), x[3], x[4]]
        };
        check("batch_norm", &inputs, forward, |b, x, y, dy| {
            let sums = b.op_outputs(Op::BatchGradReduce(Eps(eps)), &[x[0], y[1], y[2], dy]).unwrap();
            let grad = Op::BatchGradInput(BatchGradInput { eps, batch_stats });
            let dx = b.op(grad, &[x[0], y[1], y[2], x[1], dy, sums[0], sums[1]]).unwrap();
            vec![dx, sums[0], sums[1]]
        });
    }
}

#[test]
fn layer_group_and_rms_norm() {
    let inputs = [random("x", &[3, 2, 2, 6]), random("scale", &[6]), random("bias", &[6])];
    let eps = 1e-3;
    let layer = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::LayerNorm(Eps(eps)), x).unwrap();
    check("layer_norm", &inputs, layer, |b, x, y, dy| {
        b.op_outputs(Op::LayerNormGrad, &[x[0], y[1], y[2], x[1], dy]).unwrap()
    });
    let norm = GroupNorm { groups: 3, eps };
    let group = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::GroupNorm(norm), x).unwrap();
    check("group_norm", &inputs, group, |b, x, y, dy| {
        b.op_outputs(Op::GroupNormGrad(3), &[x[0], y[1], y[2], x[1], dy]).unwrap()
    });
    let rms = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::RmsNorm(Eps(eps)), x).unwrap();
    check("rms_norm", &inputs[..2], rms, |b, x, y, dy| b.op_outputs(Op::RmsNormGrad, &[x[0], y[1], x[1], dy]).unwrap());
}

#[test]
fn softmax() {
    for s in [Softmax { log: false }, Softmax { log: true }] {
        let forward = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::Softmax(s), x).unwrap();
        check("softmax", &[random("x", &[3, 5])], forward, |b, _, y, dy| {
            b.op_outputs(Op::SoftmaxGrad(s), &[y[0], dy]).unwrap()
        });
    }
}

#[test]
fn cross_entropy_of_classes_and_of_distributions() {
    let c = CrossEntropy { smoothing: 0.1 };
    for labels in [Tensor::i32([3], &[4, 0, 2]).unwrap(), random("labels", &[3, 5])] {
        let forward = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::CrossEntropy(c), x).unwrap();
        check("cross_entropy", &[random("x", &[3, 5]), labels], forward, |b, x, y, dy| {
            b.op_outputs(Op::CrossEntropyGrad(c), &[x[0], x[1], y[1], dy]).unwrap()
        });
    }
}

#[test]
fn gather() {
    let inputs = [random("table", &[4, 3]), Tensor::i32([2, 3], &[0, 3, 3, 1, 0, 3]).unwrap()];
    let forward = |b: &mut Builder, x: &[ValueId]| b.op_outputs(Op::Gather, x).unwrap();
    check("gather", &inputs, forward, |b, x, _, dy| {
        b.op_outputs(Op::GatherGrad(GatherGrad { rows: 4 }), &[x[1], dy]).unwrap()
    });
}
