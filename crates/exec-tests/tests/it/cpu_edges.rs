//! What random numbers do not meet: infinities, NaN, numbers at the ends of their types, empty tensors, ids outside of
//! their table.

use crate::common;

use std::collections::HashMap;

use common::{check_everywhere, cpu};
use memfit_exec_cpu::isa::Isa;
use memfit_exec_tests::generate::example;
use memfit_exec_tests::{Reference, Result, Runner, Settings, Tensor, round_to};
use memfit_ir::op::*;
use memfit_ir::{Builder, DType, Op, TensorType, ValueId};

/// All outputs of one op on the reference and on the CPU.
fn run(op: &Op, inputs: &[Tensor], isa: Isa) -> Result<[Vec<Tensor>; 2]> {
    let mut b = Builder::new();
    let mut feeds = HashMap::new();
    let mut x = Vec::new();
    for (i, t) in inputs.iter().enumerate() {
        x.push(b.input(&format!("x{i}"), t.ty.clone())?);
        feeds.insert(format!("x{i}"), t.clone());
    }
    let y = b.scope("layer1/op", |b| b.op_outputs(op.clone(), &x))?;
    y.iter().enumerate().for_each(|(i, &v)| b.output(format!("y{i}"), v));
    let graph = b.finish();
    let outputs = |runner: &mut dyn Runner| -> Result<Vec<Tensor>> {
        let result = runner.run(&graph, &feeds, &HashMap::new())?;
        Ok((0..y.len()).map(|i| result.outputs[&format!("y{i}")].clone()).collect())
    };
    Ok([outputs(&mut Reference)?, outputs(&mut cpu(2, isa, Settings::default()))?])
}

/// Each element of each output agrees as a number of its type, on every instruction set.
fn check(op: Op, inputs: &[Tensor], close: impl Fn(f64, f64) -> bool) {
    for isa in common::isas() {
        let [expected, given] = run(&op, inputs, isa).unwrap();
        for (e, g) in expected.iter().zip(&given) {
            for (i, (&e, &g)) in e.data.iter().zip(&g.data).enumerate() {
                let e = if given[0].ty.dtype == DType::F32 { f64::from(e as f32) } else { e };
                let at: Vec<f64> = inputs.iter().filter_map(|t| t.data.get(i).copied()).collect();
                assert!(close(e, g), "{} of {at:?} is {g:e}, expected {e:e} ({})", op.name(), isa.name());
            }
        }
    }
}

fn same(e: f64, g: f64) -> bool {
    e == g || (e.is_nan() && g.is_nan())
}

fn tensor(dtype: DType, data: &[f64]) -> Tensor {
    let data = data.iter().map(|&x| round_to(dtype, if dtype == DType::F32 { f64::from(x as f32) } else { x }));
    Tensor::new(TensorType::new(dtype, [data.len()]), data.collect()).unwrap()
}

/// Smaller numbers are zero.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

const NUMBERS: [f64; 32] = [
    f64::NEG_INFINITY,
    -1e18,
    -1e10,
    -200.0,
    -100.0,
    -88.0,
    -50.0,
    -20.0,
    -10.0,
    -6.0,
    -3.0,
    -1.0,
    -1e-4,
    -1e-10,
    -SMALLEST,
    -0.0,
    0.0,
    SMALLEST,
    1e-10,
    1e-4,
    1.0,
    3.0,
    6.0,
    10.0,
    20.0,
    50.0,
    88.0,
    100.0,
    200.0,
    1e10,
    1e18,
    f64::INFINITY,
];

// ---- functions -------------------------------------------------------------------------------------------------------

#[test]
fn functions_hold_from_one_end_of_the_numbers_to_the_other() {
    // Small results beside a large argument, as of gelu at -6, are exact to the argument's last places only.
    let close = |e: f64, g: f64| same(e, g) || (e.is_finite() && (e - g).abs() <= 1e-6 + 2e-6 * e.abs());
    let ones = tensor(DType::F32, &[1.0; NUMBERS.len()]);
    for u in Unary::ALL {
        let x = tensor(DType::F32, &NUMBERS);
        check(Op::Unary(u), std::slice::from_ref(&x), close);
        // The square of a number at the end is beyond it.
        let moderate = tensor(DType::F32, &NUMBERS.map(|x| x.clamp(-1e5, 1e5)));
        check(Op::UnaryGrad(u), &[moderate, ones.clone()], close);
    }
}

#[test]
fn a_nan_is_never_swallowed() {
    let nan = |at: usize| {
        let mut numbers = [1.0, 2.0, -3.0, 0.5];
        numbers[at] = f64::NAN;
        tensor(DType::F32, &numbers)
    };
    let becomes_nan = |op: Op, inputs: &[Tensor]| {
        for isa in common::isas() {
            let [_, given] = run(&op, inputs, isa).unwrap();
            assert!(given[0].data.iter().any(|x| x.is_nan()), "{} hides a NaN ({})", op.name(), isa.name());
        }
    };
    let image = |t: Tensor| Tensor::f32([1, 2, 2, 1], t.data).unwrap();
    for at in 0..4 {
        Unary::ALL.iter().for_each(|&u| becomes_nan(Op::Unary(u), &[nan(at)]));
        for b in Binary::ALL {
            becomes_nan(Op::Binary(b), &[nan(at), tensor(DType::F32, &[1.0; 4])]);
            // 1 to the power of anything is 1.
            becomes_nan(Op::Binary(b), &[tensor(DType::F32, &[2.0; 4]), nan(at)]);
        }
        for kind in ReduceKind::ALL {
            becomes_nan(Op::Reduce(Reduce { kind, axes: vec![0], keep: false }), &[nan(at)]);
        }
        let window = Window { size: [2, 2], stride: [2, 2], pad: Pad2::NONE };
        becomes_nan(Op::MaxPool(window), &[image(nan(at))]);
        becomes_nan(Op::AvgPool(window), &[image(nan(at))]);
        becomes_nan(Op::Softmax(Softmax { log: false }), &[nan(at)]);
    }
}

#[test]
fn a_softmax_of_masked_and_of_huge_scores_is_a_distribution() {
    let close = |e: f64, g: f64| same(e, g) || (e - g).abs() <= 1e-6 * e.abs();
    let rows =
        Tensor::f32([2, 3], [1.0, f64::NEG_INFINITY, 2.0, 1e30, -1e30, 0.0].map(|x| f64::from(x as f32)).to_vec());
    for log in [false, true] {
        check(Op::Softmax(Softmax { log }), &[rows.as_ref().unwrap().clone()], close);
    }
}

// ---- types -----------------------------------------------------------------------------------------------------------

#[test]
fn casts_round_to_even_truncate_and_saturate() {
    let edges = [2.5, -2.5, 255.4, 256.0, 65504.0, 65519.0, 65520.0, 6e-8, 2e-8, 5.9e-5, 2147483648.0, -2147483904.0];
    let integers = [0.0, 1.0, -1.0, 255.0, 256.0, 300.0, 16777217.0, -16777219.0, 2147483647.0, -2147483648.0];
    let numbers = [&NUMBERS[..], &edges, &integers, &[f64::NAN]].concat();
    for from in DType::NUMBERS {
        let given = match from {
            DType::F32 | DType::F16 | DType::BF16 => tensor(from, &numbers),
            DType::I32 | DType::U8 | DType::Bit => tensor(from, &integers),
        };
        DType::NUMBERS.iter().for_each(|&to| check(Op::Cast(to), std::slice::from_ref(&given), same));
    }
}

#[test]
fn integers_are_exact_beyond_what_floats_hold() {
    let numbers = [16777217.0, 16777216.0, -16777217.0, 2147483647.0, 5.0];
    let pairs: Vec<[f64; 2]> = numbers.iter().flat_map(|&a| numbers.map(|b| [a, b])).collect();
    let side = |i: usize| tensor(DType::I32, &pairs.iter().map(|p| p[i]).collect::<Vec<_>>());
    Compare::ALL.iter().for_each(|&c| check(Op::Compare(c), &[side(0), side(1)], same));
    [Binary::Min, Binary::Max].iter().for_each(|&b| check(Op::Binary(b), &[side(0), side(1)], same));
    let small = tensor(DType::I32, &[4099.0, -3.0, 16777217.0]);
    [Binary::Add, Binary::Sub, Binary::Mul]
        .iter()
        .for_each(|&b| check(Op::Binary(b), &[small.clone(), tensor(DType::I32, &[4099.0, 4.0, 2.0])], same));
    [Unary::Neg, Unary::Abs].iter().for_each(|&u| check(Op::Unary(u), &[side(0)], same));
}

// ---- sizes -----------------------------------------------------------------------------------------------------------

#[test]
fn empty_tensors_are_no_special_case() {
    let examples = [
        example(&[&[0, 3]], |b, x| b.unary(Unary::Tanh, x[0])),
        example(&[&[2, 0], &[2, 0]], |b, x| b.add(x[0], x[1])),
        example(&[&[0, 3], &[3, 4]], |b, x| b.matmul(x[0], x[1])),
        example(&[&[0, 1040], &[1040, 600]], |b, x| b.matmul(x[0], x[1])),
        example(&[&[7, 0, 1040], &[7, 1040, 600]], |b, x| b.matmul(x[0], x[1])),
        example(&[&[2, 0], &[0, 4]], |b, x| b.matmul(x[0], x[1])),
        example(&[&[2, 3], &[2, 0]], |b, x| b.concat(x, 1)),
        example(&[&[4, 3]], |b, x| {
            let none: ValueId = b.slice(x[0], &[2, 0], &[2, 3])?;
            b.pad(none, &[(1, 0), (0, 0)])
        }),
        example(&[&[0, 3]], |b, x| b.transpose(x[0], &[1, 0])),
        example(&[&[0, 3]], |b, x| b.reduce(ReduceKind::Sum, x[0], &[1], false)),
        example(&[&[0, 4, 4, 3], &[3, 3, 3, 5]], |b, x| {
            b.conv(x[0], x[1], Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups: 1 })
        }),
        // By fewer multiplications.
        example(&[&[0, 8, 8, 16], &[3, 3, 16, 16]], |b, x| {
            b.conv(x[0], x[1], Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 1], groups: 1 })
        }),
    ];
    for example in examples {
        let example = example.unwrap();
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
