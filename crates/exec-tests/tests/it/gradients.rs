//! Gradients as the transform builds them, from the reference, against the slopes of the forward ops: the change of
//! Σ(y · ct) when one input element moves, in f64, where a central difference is good to about nine digits.

use std::collections::{HashMap, HashSet};

use memfit_exec_tests::generate::{Example, FAMILIES, Family, Purpose, numbered};
use memfit_exec_tests::{Reference, Runner, Tensor, check_close};
use memfit_ir::Op;
use memfit_ir::op::{Binary, Compare, ReduceKind, Unary};

/// How the gradient of an op is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gradient {
    /// Against differences: it is the forward op of an example.
    Differences,
    /// It is a gradient itself, and part of one that is checked.
    Part,
    /// Nothing flows through it.
    None,
    /// Replicas meet in it: it has no gradient, and one executor alone has no example of it.
    Exchange,
}
use Gradient::*;

macro_rules! gradients {
    ($($variant:pat => $gradient:expr,)*) => {
        /// Every variant of [`Op`], by the number of its line. Without a `_` arm, so that a new op must be given a line.
        fn line(op: &Op) -> usize {
            let mut line = 0;
            $(if matches!(op, $variant) { return line; } line += 1;)*
            let _ = |op: &Op| match op { $($variant => (),)* };
            unreachable!("line {line} of {}", op.name())
        }

        const GRADIENTS: &[(&str, Gradient)] = &[$((stringify!($variant), $gradient)),*];
    };
}

gradients! {
    Op::Input(_) => None,
    Op::State(_) => None,
    Op::Fill(_) => None,
    Op::Unary(_) => Differences,
    Op::UnaryGrad(_) => Part,
    Op::Mask(_) => None,
    Op::MaskGrad(_) => Part,
    Op::Binary(_) => Differences,
    Op::Compare(_) => None,
    Op::Select => Differences,
    Op::Cast(_) => Differences,
    Op::Dropout(_) => Differences,
    Op::Reduce(_) => Differences,
    Op::Reshape(_) => Differences,
    Op::Transpose(_) => Differences,
    Op::Slice(_) => Differences,
    Op::Concat(_) => Differences,
    Op::Pad(_) => Differences,
    Op::Broadcast(_) => Differences,
    Op::MatMul(_) => Differences,
    Op::Conv(_) => Differences,
    Op::ConvTranspose(_) => Differences,
    Op::ConvFilter(_) => Differences,
    Op::Attention(_) => Differences,
    Op::AttentionGrad(_) => Part,
    Op::MaxPool(_) => Differences,
    Op::MaxPoolGrad(_) => Part,
    Op::AvgPool(_) => Differences,
    Op::AvgPoolGrad(_) => Part,
    Op::Upsample(_) => Differences,
    Op::UpsampleGrad(_) => Part,
    Op::BatchStats => Differences,
    Op::BatchApply(_) => Differences,
    Op::BatchGradReduce(_) => Part,
    Op::BatchGradInput(_) => Part,
    Op::BatchUpdate(_) => None,
    Op::LayerNorm(_) => Differences,
    Op::LayerNormGrad => Part,
    Op::RmsNorm(_) => Differences,
    Op::RmsNormGrad => Part,
    Op::GroupNorm(_) => Differences,
    Op::GroupNormGrad(_) => Part,
    Op::Softmax(_) => Differences,
    Op::SoftmaxGrad(_) => Part,
    Op::CrossEntropy(_) => Differences,
    Op::CrossEntropyGrad(_) => Part,
    Op::Gather => Differences,
    Op::GatherGrad(_) => Part,
    Op::Update(_) => None,
    Op::Join(_) => Exchange,
    Op::Replicate(_) => Exchange,
}

/// Examples of each family. Unary and binary have the most members to meet.
const EXAMPLES: u32 = 120;

fn examples(family: &Family) -> impl Iterator<Item = Example> {
    (0..EXAMPLES).map(|i| {
        family
            .example(Purpose::Slopes, &numbered(i, family.name))
            .unwrap_or_else(|e| panic!("{} {i}: {e}", family.name))
    })
}

/// Σ(y · ct), and the outputs it is made from.
fn total(example: &Example, inputs: &HashMap<String, Tensor>) -> f64 {
    let outputs = Reference.run(&example.graph, inputs, &example.states).unwrap().outputs;
    let seeds = 0..example.seeds;
    seeds
        .flat_map(|i| outputs[&format!("y{i}")].data.clone().into_iter().zip(&inputs[&format!("ct{i}")].data))
        .map(|(y, ct)| y * ct)
        .sum()
}

fn check(family: &str, example: &Example) {
    let given = Reference.run(&example.graph, &example.inputs, &example.states).unwrap().outputs;
    for name in &example.differentiated {
        let mut inputs = example.inputs.clone();
        let mut slopes = Tensor::zeros(&inputs[name].ty);
        for (i, slope) in slopes.data.iter_mut().enumerate() {
            let (step, x) = (1e-5, inputs[name].data[i]);
            let mut moved = |to: f64| {
                inputs.get_mut(name).unwrap().data[i] = to;
                total(example, &inputs)
            };
            *slope = (moved(x + step) - moved(x - step)) / (2.0 * step);
            moved(x);
        }
        // A slope that is 0 comes out as the rounding of a difference, divided by the step.
        let largest = slopes.data.iter().fold(0.0f64, |m, s| m.max(s.abs()));
        let tolerance = 1e-6 + 1e-9 / largest.max(1e-9);
        let what = format!("{family}: gradient by {name}\n{}", memfit_ir::text::print(&example.graph));
        check_close(&what, &slopes, &given[&format!("grad/{name}")], tolerance).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn gradients_are_the_slopes_of_every_op() {
    for family in &FAMILIES {
        examples(family).for_each(|example| check(family.name, &example));
    }
}

#[test]
fn no_op_is_forgotten() {
    let mut met = vec![false; GRADIENTS.len()];
    let mut names = HashSet::new();
    for family in &FAMILIES {
        for example in examples(family) {
            let differentiated = !example.differentiated.is_empty();
            for node in example.graph.nodes() {
                let line = line(&node.op);
                met[line] |= differentiated || GRADIENTS[line].1 == None;
                names.insert(node.op.name());
            }
        }
    }
    let is_missed = |((_, gradient), met): &(&(&str, Gradient), bool)| !met && *gradient != Exchange;
    let missed: Vec<&str> = GRADIENTS.iter().zip(met).filter(is_missed).map(|((name, _), _)| *name).collect();
    assert!(missed.is_empty(), "no example has {missed:?}");
    let members = [
        &Unary::ALL.map(Unary::name)[..],
        &Binary::ALL.map(Binary::name),
        &Compare::ALL.map(Compare::name),
        &ReduceKind::ALL.map(ReduceKind::name),
    ];
    let missed: Vec<&str> = members.concat().into_iter().filter(|name| !names.contains(name)).collect();
    assert!(missed.is_empty(), "no example has {missed:?}");
}
