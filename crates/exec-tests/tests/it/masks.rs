//! Masks instead of activations: the gradient from a bit is the gradient from the output, to the last bit, and a training
//! that saves masks is the training that saves activations.

use crate::common;

use std::collections::HashMap;

use common::{cpu, sgd};
use memfit_exec_cpu::isa::Isa;
use memfit_exec_tests::families::{config, same};
use memfit_exec_tests::generate::{Example, Recipe, Samples};
use memfit_exec_tests::{Result, RunResult, Runner, Settings, Tensor, check_same, round_to};
use memfit_ir::op::{Conv, Init, LEARNING_RATE, Pad2, Unary, Window};
use memfit_ir::{Builder, DType, Graph, Op, Result as Built, TensorType, ValueId, philox};
use memfit_test_effort::Effort;
use memfit_transform::{Grouping, StepGraph, Training, save_masks, split_step, step};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

const MASKED: [Unary; 5] =
    [Unary::Relu, Unary::Relu6, Unary::LeakyRelu(0.2), Unary::LeakyRelu(0.0), Unary::HardSigmoid];

/// Bounds, neighbours of bounds, both zeros, infinities, NaN.
const OUTPUTS: [f64; 14] = [
    0.0,
    -0.0,
    1e-42,
    -1e-42,
    0.5,
    1.0,
    0.99999994,
    6.0,
    5.9999995,
    7.0,
    -3.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
const GRADIENTS: [f64; 7] = [1.5, -0.0, 0.0, -1e-40, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

#[test]
fn the_gradient_from_a_bit_is_the_gradient_from_the_output() {
    let check = |dtype: DType, elements: usize, isa: Isa, grouping: Grouping| -> Result<()> {
        let ty = TensorType::new(dtype, [elements]);
        let cycle = |numbers: &[f64], every: usize| -> Tensor {
            let at = |i: usize| round_to(dtype, f64::from(numbers[i / every % numbers.len()] as f32));
            Tensor { ty: ty.clone(), data: (0..elements).map(at).collect() }
        };
        let feeds = HashMap::from([
            ("y".to_string(), cycle(&OUTPUTS, 1)),
            ("dy".to_string(), cycle(&GRADIENTS, OUTPUTS.len())),
        ]);
        for u in MASKED {
            let mut b = Builder::new();
            let (y, dy) = (b.input("y", ty.clone())?, b.input("dy", ty.clone())?);
            let bits = b.op(Op::Mask(u), &[y])?;
            let (masked, plain) = (b.op(Op::MaskGrad(u), &[bits, dy])?, b.op(Op::UnaryGrad(u), &[y, dy])?);
            for (name, v) in [("bits", bits), ("masked", masked), ("plain", plain)] {
                b.output(name, v);
            }
            let result = cpu(2, isa, Settings { grouping, poison: true, squeeze: 0 }).run(
                &b.finish(),
                &feeds,
                &HashMap::new(),
            )?;
            let what = format!("{} of {ty}, {}, {grouping:?}", u.name(), isa.name());
            check_same(&what, &result.outputs["plain"], &result.outputs["masked"])?;
        }
        Ok(())
    };
    for isa in common::isas() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for elements in [1, 7, 8, 9, 15, 16, 17, 98, 1024, 1025, 40_003] {
                for grouping in [Grouping::Fused, Grouping::Single] {
                    check(dtype, elements, isa, grouping).unwrap_or_else(|e| panic!("{e}"));
                }
            }
        }
    }
}

/// Steps with each graph from the same start: the same states and outputs, whatever the threads and the grouping.
fn check_steps(what: &str, graphs: [&Graph; 2], feeds: impl Fn(u32) -> HashMap<String, Tensor>) -> Result<()> {
    let train = |graph: &Graph, threads, grouping| -> Result<RunResult> {
        let mut runner = cpu(threads, Isa::chosen().unwrap(), Settings { grouping, poison: true, squeeze: 0 });
        let mut result =
            RunResult { outputs: HashMap::new(), states: memfit_exec_tests::reference::initial_states(graph, 5) };
        for step in 0..4 {
            result = runner.run(graph, &feeds(step), &result.states)?;
        }
        Ok(result)
    };
    let expected = train(graphs[0], 1, Grouping::Single)?;
    for (threads, grouping) in [(1, Grouping::Fused), (3, Grouping::Fused), (2, Grouping::Single)] {
        same(&format!("{what}, {threads} threads, {grouping:?}"), &expected, &train(graphs[1], threads, grouping)?)?;
    }
    Ok(())
}

fn count(graph: &Graph, is: impl Fn(&Op) -> bool) -> usize {
    graph.nodes().iter().filter(|n| is(&n.op)).count()
}

/// conv → relu → max pool → conv → relu6 → global mean → classes: both activations end in a pool, which has no use for
/// them in its gradient. The channels are no whole bytes.
fn small_convnet() -> Built<(Graph, ValueId)> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([3, 9, 7, 2]))?;
    let labels = b.input("y", TensorType::i32([3]))?;
    let conv = Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 1], groups: 1 };
    let w = b.param("w1", [3, 3, 2, 5], Init::Normal { std: 0.4 })?;
    let y = b.conv(x, w, conv)?;
    let y = b.unary(Unary::Relu, y)?;
    let y = b.max_pool(y, Window { size: [2, 2], stride: [2, 2], pad: Pad2::NONE })?;
    let w = b.param("w2", [3, 3, 5, 11], Init::Normal { std: 0.4 })?;
    let y = b.conv(y, w, conv)?;
    let y = b.unary(Unary::Relu6, y)?;
    let y = b.global_avg_pool(y)?;
    let w = b.param("w3", [11, 4], Init::Normal { std: 0.4 })?;
    let y = b.matmul(y, w)?;
    let each = b.cross_entropy(y, labels, 0.0)?;
    let loss = b.mean(each)?;
    Ok((b.finish(), loss))
}

#[test]
fn a_convnet_trains_to_the_same_bits() {
    let (forward, loss) = small_convnet().unwrap();
    let plain = step(&forward, loss, &sgd(0.9)).unwrap();
    let masked = save_masks(&plain).graph;
    assert_eq!(count(&masked, |op| matches!(op, Op::MaskGrad(_))), 2, "both activations end in a pool");
    assert_eq!(count(&masked, |op| matches!(op, Op::UnaryGrad(_))), 0);
    let feeds = |step: u32| {
        let numbers = philox::normal(u64::from(step), "x", 3 * 9 * 7 * 2).map(f64::from).collect();
        let clock = Tensor::i32([4], &[step as i32, 0, 3, 0]).unwrap();
        HashMap::from([
            ("x".to_string(), Tensor::f32([3, 9, 7, 2], numbers).unwrap()),
            ("y".to_string(), Tensor::i32([3], &[0, 3, 1]).unwrap()),
            (LEARNING_RATE.to_string(), Tensor::f32([], vec![f64::from(0.1f32)]).unwrap()),
            (memfit_ir::op::CLOCK.to_string(), clock),
        ])
    };
    check_steps("convnet", [&plain.graph, &masked], feeds).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_graph_of_a_micro_batch_saves_masks_too() {
    let (forward, loss) = small_convnet().unwrap();
    let training: Training = sgd(0.9);
    let split = split_step(&forward, loss, &training, 0.5).unwrap();
    assert_eq!(count(&save_masks(&split.accumulate).graph, |op| matches!(op, Op::MaskGrad(_))), 2);
    let apply = StepGraph::from(split.apply);
    assert_eq!(save_masks(&apply), apply);
}

#[test]
fn any_model_trains_to_the_same_bits() {
    let recipes =
        prop::collection::vec(any::<u32>(), 1..120).prop_map(|draws| Recipe { draws, samples: Samples::Together });
    let mut replaced = 0;
    let seen = std::cell::RefCell::new(&mut replaced);
    let outcome = TestRunner::new(config(30)).run(&(recipes, 1usize..5), |(recipe, batch)| {
        let Example { graph: plain, forward_end, .. } =
            recipe.example(batch).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let masked = save_masks(&StepGraph { graph: plain.clone(), forward_end }).graph;
        memfit_ir::verify(&masked).map_err(|e| TestCaseError::fail(e.to_string()))?;
        **seen.borrow_mut() += count(&masked, |op| matches!(op, Op::MaskGrad(_)));
        let failed = |e| TestCaseError::fail(format!("{e}\n{}", memfit_ir::text::print(&masked)));
        check_steps("model", [&plain, &masked], |_| recipe.feeds(&plain)).map_err(failed)
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
    assert!(replaced > 0 || Effort::from_env() == Effort::Short, "no model has an activation whose mask is enough");
}
