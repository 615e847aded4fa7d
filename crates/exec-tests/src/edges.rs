//! What random numbers do not meet: infinities, NaN, numbers at the ends of their types, empty tensors. Lists of single ops
//! on such numbers, for every executor.

use std::collections::HashMap;

use memfit_ir::op::*;
use memfit_ir::{DType, Op, TensorType, ValueId};

use crate::error::{Error, Result};
use crate::generate::{Example, FAMILIES, Purpose, alone, example, numbered};
use crate::runner::{Reference, RunResult, Runner};
use crate::tensor::{Tensor, indices, round_to};

/// An op on such numbers, and how its results are held against the reference's.
#[derive(Clone, Debug)]
pub struct Edge {
    pub op: Op,
    pub inputs: Vec<Tensor>,
    pub agreement: Agreement,
}

#[derive(Clone, Copy, Debug)]
pub enum Agreement {
    /// Each element is the same number, or a NaN as well.
    Same,
    /// The same, or finite and off by no more than `absolute` + `relative` × its size.
    Close { absolute: f64, relative: f64 },
    /// A NaN wherever the reference has one; elsewhere there may be more.
    KeepsNans,
    /// Some NaN in the first result.
    SomeNan,
}

impl Edge {
    fn new(op: Op, inputs: &[Tensor], agreement: Agreement) -> Edge {
        Edge { op, inputs: inputs.to_vec(), agreement }
    }

    /// Runs the op, here and on the reference.
    pub fn check(&self, runner: &mut dyn Runner) -> Result<()> {
        let types: Vec<_> = self.inputs.iter().map(|t| t.ty.clone()).collect();
        let graph = alone(&self.op, &types)?;
        let named = |(i, t): (usize, &Tensor)| (format!("x{i}"), t.clone());
        let feeds: HashMap<_, _> = self.inputs.iter().enumerate().map(named).collect();
        let expected = Reference.run(&graph, &feeds, &HashMap::new())?.outputs;
        let given = runner.run(&graph, &feeds, &HashMap::new())?.outputs;
        if let Agreement::SomeNan = self.agreement {
            let found = given["y0"].data.iter().any(|x| x.is_nan());
            return if found { Ok(()) } else { Err(Error::HiddenNan { op: self.op.name() }) };
        }
        expected.iter().try_for_each(|(name, e)| self.compare(name, e, &given[name]))
    }

    fn compare(&self, name: &str, expected: &Tensor, given: &Tensor) -> Result<()> {
        for (i, index) in indices(expected.shape()).enumerate() {
            let (e, g) = (expected.data[i], given.data[i]);
            let e = if given.ty.dtype == DType::F32 { f64::from(e as f32) } else { e };
            if !self.agreement.allows(e, g) {
                let at = self.inputs.iter().filter_map(|t| t.data.get(i).copied()).collect();
                let (op, output) = (self.op.name(), name.to_string());
                return Err(Error::Edge { op, output, index, at, expected: e, given: g });
            }
        }
        Ok(())
    }
}

impl Agreement {
    fn allows(self, e: f64, g: f64) -> bool {
        let same = e == g || (e.is_nan() && g.is_nan());
        match self {
            Agreement::Same => same,
            Agreement::Close { absolute, relative } => {
                same || (e.is_finite() && (e - g).abs() <= absolute + relative * e.abs())
            }
            Agreement::KeepsNans | Agreement::SomeNan => !e.is_nan() || g.is_nan(),
        }
    }
}

fn tensor(dtype: DType, data: &[f64]) -> Tensor {
    let round = |x: f64| round_to(dtype, if dtype == DType::F32 { f64::from(x as f32) } else { x });
    Tensor { ty: TensorType::new(dtype, [data.len()]), data: data.iter().copied().map(round).collect() }
}

fn f32s(shape: &[usize], data: &[f64]) -> Result<Tensor> {
    Tensor::f32(shape, data.iter().map(|&x| f64::from(x as f32)).collect())
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

/// Functions and their gradients from one end of the numbers to the other.
pub fn functions() -> Vec<Edge> {
    // Small results beside a large argument, as of gelu at -6, are exact to the argument's last places only.
    let close = Agreement::Close { absolute: 1e-6, relative: 2e-6 };
    let x = tensor(DType::F32, &NUMBERS);
    // The square of a number at the end is beyond it.
    let moderate = tensor(DType::F32, &NUMBERS.map(|x| x.clamp(-1e5, 1e5)));
    let ones = tensor(DType::F32, &[1.0; NUMBERS.len()]);
    let both = |u: Unary| {
        let gradient = Edge::new(Op::UnaryGrad(u), &[moderate.clone(), ones.clone()], close);
        [Edge::new(Op::Unary(u), std::slice::from_ref(&x), close), gradient]
    };
    Unary::ALL.into_iter().flat_map(both).collect()
}

/// Ops that must not swallow a NaN, wherever it stands among four numbers.
pub fn nans() -> Result<Vec<Edge>> {
    let mut edges = Vec::new();
    for at in 0..4 {
        let mut numbers = [1.0, 2.0, -3.0, 0.5];
        numbers[at] = f64::NAN;
        let nan = tensor(DType::F32, &numbers);
        let image = f32s(&[1, 2, 2, 1], &numbers)?;
        let mut becomes_nan = |op: Op, inputs: &[Tensor]| edges.push(Edge::new(op, inputs, Agreement::SomeNan));
        Unary::ALL.into_iter().for_each(|u| becomes_nan(Op::Unary(u), std::slice::from_ref(&nan)));
        for b in Binary::ALL {
            becomes_nan(Op::Binary(b), &[nan.clone(), tensor(DType::F32, &[1.0; 4])]);
            // 1 to the power of anything is 1.
            becomes_nan(Op::Binary(b), &[tensor(DType::F32, &[2.0; 4]), nan.clone()]);
        }
        for kind in ReduceKind::ALL {
            becomes_nan(Op::Reduce(Reduce { kind, axes: vec![0], keep: false }), std::slice::from_ref(&nan));
        }
        let window = Window { size: [2, 2], stride: [2, 2], pad: Pad2::NONE };
        becomes_nan(Op::MaxPool(window), std::slice::from_ref(&image));
        becomes_nan(Op::AvgPool(window), &[image]);
        becomes_nan(Op::Softmax(Softmax { log: false }), &[nan]);
    }
    Ok(edges)
}

/// Rows with masked and with huge scores, which are distributions all the same.
pub fn softmaxes() -> Result<Vec<Edge>> {
    let rows = f32s(&[2, 3], &[1.0, f64::NEG_INFINITY, 2.0, 1e30, -1e30, 0.0])?;
    let close = Agreement::Close { absolute: 0.0, relative: 1e-6 };
    Ok([false, true].map(|log| Edge::new(Op::Softmax(Softmax { log }), std::slice::from_ref(&rows), close)).to_vec())
}

/// Casts round to even, truncate and saturate.
pub fn casts() -> Vec<Edge> {
    let edges = [2.5, -2.5, 255.4, 256.0, 65504.0, 65519.0, 65520.0, 6e-8, 2e-8, 5.9e-5, 2147483648.0, -2147483904.0];
    let integers = [0.0, 1.0, -1.0, 255.0, 256.0, 300.0, 16777217.0, -16777219.0, 2147483647.0, -2147483648.0];
    let numbers = [&NUMBERS[..], &edges, &integers, &[f64::NAN]].concat();
    let given = |from: DType| match from {
        DType::F32 | DType::F16 | DType::BF16 => tensor(from, &numbers),
        DType::I32 | DType::U8 | DType::Bit => tensor(from, &integers),
    };
    let cast = |from: DType, to: DType| Edge::new(Op::Cast(to), &[given(from)], Agreement::Same);
    DType::NUMBERS.into_iter().flat_map(|from| DType::NUMBERS.map(|to| cast(from, to))).collect()
}

/// Integers beyond what floats hold are exact.
pub fn integers() -> Vec<Edge> {
    let numbers = [16777217.0, 16777216.0, -16777217.0, 2147483647.0, 5.0];
    let pairs: Vec<[f64; 2]> = numbers.iter().flat_map(|&a| numbers.map(|b| [a, b])).collect();
    let side = |i: usize| tensor(DType::I32, &pairs.iter().map(|p| p[i]).collect::<Vec<_>>());
    let small = [tensor(DType::I32, &[4099.0, -3.0, 16777217.0]), tensor(DType::I32, &[4099.0, 4.0, 2.0])];
    let both = [side(0), side(1)];
    let mut edges: Vec<Edge> =
        Compare::ALL.into_iter().map(|c| Edge::new(Op::Compare(c), &both, Agreement::Same)).collect();
    edges.extend([Binary::Min, Binary::Max].map(|b| Edge::new(Op::Binary(b), &both, Agreement::Same)));
    let exact = [Binary::Add, Binary::Sub, Binary::Mul].map(|b| Edge::new(Op::Binary(b), &small, Agreement::Same));
    edges.extend(exact);
    edges.extend([Unary::Neg, Unary::Abs].map(|u| Edge::new(Op::Unary(u), &both[..1], Agreement::Same)));
    edges
}

/// Attention with huge and infinite scores, and with a NaN among queries, keys or values. A sequence that no other op
/// would cut is long enough for several tiles.
pub fn attention() -> Result<Vec<Edge>> {
    const SEQUENCE: usize = 70;
    let mut edges = Vec::new();
    // Of a position: the query, the key and the value, of one number each.
    let shape = [1, SEQUENCE, 3, 1, 1];
    let plain = |t: usize| [1.0, (t % 5) as f64 - 2.0, t as f64 / 8.0];
    let with = |position: usize, part: usize, x: f64| {
        let mut data: Vec<f64> = (0..SEQUENCE).flat_map(plain).collect();
        data[3 * position + part] = x;
        f32s(&shape, &data)
    };
    let open = Op::Attention(Attention { causal: false, scale: 1.0 });
    let causal = Op::Attention(Attention { causal: true, scale: 1.0 });
    let close = Agreement::Close { absolute: 1e-6, relative: 1e-5 };
    for (part, x) in
        [(0, 1e5), (0, f64::NAN), (0, f64::INFINITY), (1, -1e30), (1, f64::NEG_INFINITY), (1, f64::INFINITY)]
    {
        edges.push(Edge::new(open.clone(), &[with(66, part, x)?], close));
    }
    for (part, position) in [(0, 3), (1, 3), (2, 3), (2, 40), (1, 66), (2, 66)] {
        let qkv = with(position, part, f64::NAN)?;
        edges.push(Edge::new(open.clone(), std::slice::from_ref(&qkv), close));
        // What is 0 times a NaN that no query may see is a NaN, too.
        edges.push(Edge::new(causal.clone(), &[qkv], Agreement::KeepsNans));
    }
    edges.push(nan_slope(&shape, &with(0, 0, 1.0)?)?);
    Ok(edges)
}

/// The gradient of attention where the slope of one query is a NaN.
fn nan_slope(shape: &[usize; 5], qkv: &Tensor) -> Result<Edge> {
    let sequence = shape[1];
    let mut dy = vec![0.5; sequence];
    dy[66] = f64::NAN;
    let (y, lse) = (f32s(&[1, sequence, 1, 1], &vec![1.0; sequence])?, f32s(&[1, 1, sequence], &vec![5.0; sequence])?);
    let inputs = [qkv.clone(), y, lse, f32s(&[1, sequence, 1, 1], &dy)?];
    Ok(Edge::new(Op::AttentionGrad(Attention { causal: true, scale: 1.0 }), &inputs, Agreement::KeepsNans))
}

/// Tensors of no elements, which are no special case.
pub fn empty() -> Result<Vec<Example>> {
    let conv = |pad| Conv { stride: [1, 1], pad, dilation: [1, 1], groups: 1 };
    [
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
        example(&[&[0, 5, 3, 2, 4]], |b, x| b.attention(x[0], true)),
        example(&[&[0, 4, 4, 3], &[3, 3, 3, 5]], |b, x| b.conv(x[0], x[1], conv(Pad2::NONE))),
        // By fewer multiplications.
        example(&[&[0, 8, 8, 16], &[3, 3, 16, 16]], |b, x| b.conv(x[0], x[1], conv(Pad2::all(1)))),
    ]
    .into_iter()
    .collect()
}

/// The example of each family with this number, with a NaN or an infinity in each of its float inputs in turn; each with the
/// name of what it is.
pub fn spoiled(number: u32) -> Result<Vec<(String, Example)>> {
    let mut all = Vec::new();
    for family in FAMILIES {
        let example = family.example(Purpose::Kernels, &numbered(number, family.name))?;
        let is_float = |t: &Tensor| t.ty.dtype.is_float() && !t.data.is_empty();
        let mut names: Vec<&String> =
            example.inputs.iter().filter(|(_, t)| is_float(t)).map(|(name, _)| name).collect();
        names.sort();
        for (name, x) in names.into_iter().flat_map(|name| [f64::NAN, f64::INFINITY].map(|x| (name, x))) {
            let mut spoiled = example.clone();
            let elements = spoiled.inputs.get_mut(name).into_iter().flat_map(|t| &mut t.data);
            // Not at an end.
            let middle = example.inputs[name].data.len() * 2 / 3;
            elements.skip(middle).take(1).for_each(|element| *element = x);
            all.push((format!("{} {number}, {x} in {name}", family.name), spoiled));
        }
    }
    Ok(all)
}

/// Whether there is a NaN wherever the reference and another executor both have one, and none where neither does. They may
/// differ: padding and faster algorithms multiply by zeros of their own.
pub fn check_nans(what: &str, reference: &RunResult, other: &RunResult, given: &RunResult) -> Result<()> {
    for (name, g) in given.outputs.iter().chain(&given.states) {
        let of = |run: &RunResult| run.outputs.get(name).or(run.states.get(name)).cloned();
        let (Some(r), Some(o)) = (of(reference), of(other)) else { continue };
        for (i, index) in indices(g.shape()).enumerate() {
            let (given, reference, other) = (g.data[i], r.data[i], o.data[i]);
            if reference.is_nan() == other.is_nan() && given.is_nan() != reference.is_nan() {
                return Err(Error::NanPlace { what: format!("{what}: {name}"), index, given, reference, other });
            }
        }
    }
    Ok(())
}
