//! What random numbers do not meet: infinities, NaN, numbers at the ends of their types, empty tensors, ids outside of
//! their table.

use crate::common;

use std::collections::HashMap;

use common::{check_everywhere, cpu};
use memfit_exec_cpu::isa::Isa;
use memfit_exec_tests::edges::{self, Edge};
use memfit_exec_tests::{Runner, Settings, Tensor};
use memfit_ir::op::*;
use memfit_ir::{Builder, Op, TensorType, ValueId};

/// On every instruction set.
fn check(edges: Vec<Edge>) {
    for isa in common::isas() {
        for edge in &edges {
            edge.check(&mut cpu(2, isa, Settings::default())).unwrap_or_else(|e| panic!("{e} ({})", isa.name()));
        }
    }
}

#[test]
fn functions_hold_from_one_end_of_the_numbers_to_the_other() {
    check(edges::functions());
}

#[test]
fn a_nan_is_never_swallowed() {
    check(edges::nans().unwrap());
}

#[test]
fn a_softmax_of_masked_and_of_huge_scores_is_a_distribution() {
    check(edges::softmaxes().unwrap());
}

#[test]
fn attention_keeps_its_head_with_huge_scores_and_shows_a_nan() {
    check(edges::attention().unwrap());
}

#[test]
fn casts_round_to_even_truncate_and_saturate() {
    check(edges::casts());
}

#[test]
fn integers_are_exact_beyond_what_floats_hold() {
    check(edges::integers());
}

#[test]
fn empty_tensors_are_no_special_case() {
    for example in edges::empty().unwrap() {
        let text = memfit_ir::text::print(&example.graph);
        check_everywhere(&example).unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
}

#[test]
fn an_id_outside_of_its_table_names_op_layer_place_and_limit() {
    let table = Tensor::f32([3, 2], vec![0.0; 6]).unwrap();
    let ids = |id: i32| Tensor::i32([2], &[0, id]).unwrap();
    let message = |op: Op, inputs: &[Tensor]| {
        let mut b = Builder::new();
        let x: Vec<ValueId> =
            inputs.iter().enumerate().map(|(i, t)| b.input(&format!("x{i}"), t.ty.clone()).unwrap()).collect();
        let y = b.scope("layer1/op", |b| b.op(op, &x)).unwrap();
        b.output("y", y);
        let feeds = inputs.iter().enumerate().map(|(i, t)| (format!("x{i}"), t.clone())).collect();
        let mut runner = cpu(2, Isa::chosen().unwrap(), Settings::default());
        runner.run(&b.finish(), &feeds, &HashMap::new()).unwrap_err().to_string()
    };
    let outside = |op: &str, id: i32| {
        format!(
            "{op} in layer \"layer1/op\": index {id} at position 1 is outside of 0..{}",
            if op == "gather" { 3 } else { 2 }
        )
    };
    for id in [3, -1, i32::MIN, i32::MAX] {
        assert_eq!(message(Op::Gather, &[table.clone(), ids(id)]), outside("gather", id));
    }
    let logits = Tensor::f32([2, 2], vec![0.0; 4]).unwrap();
    let entropy = Op::CrossEntropy(CrossEntropy { smoothing: 0.0 });
    assert_eq!(message(entropy, &[logits, ids(2)]), outside("cross_entropy", 2));
}

/// As many elements as one thread takes alone, and as several share.
#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn subnormals_are_zero_on_every_thread() {
    let mut b = Builder::new();
    let mut feeds = HashMap::new();
    let numbers = |n: usize, x: f32| Tensor { ty: TensorType::f32([n]), data: vec![f64::from(x); n] };
    for n in [3, 100_000] {
        for (name, x) in [("operand", 1e-40), ("result", 1e-20)] {
            let name = format!("{name}{n}");
            let x = numbers(n, x);
            let v = b.input(&name, x.ty.clone()).unwrap();
            let factor = b.input(&format!("{name}/factor"), x.ty.clone()).unwrap();
            let y = b.binary(Binary::Mul, v, factor).unwrap();
            b.output(&name, y);
            let exponent = if name.starts_with("operand") { 1e30 } else { 1e-20 };
            feeds.insert(format!("{name}/factor"), numbers(n, exponent));
            feeds.insert(name, x);
        }
    }
    let graph = b.finish();
    for isa in common::isas() {
        for threads in [1, 3] {
            let given = cpu(threads, isa, Settings::default()).run(&graph, &feeds, &HashMap::new()).unwrap();
            for (name, y) in &given.outputs {
                assert!(y.data.iter().all(|&y| y == 0.0), "{name}, {threads} threads, {}", isa.name());
            }
        }
    }
}
