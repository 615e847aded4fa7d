//! A naive f64 evaluator for the ops whose gradients are built from other ops. It shares no code with any executor.

use std::collections::HashMap;

use memfit_ir::op::{Binary, Compare, Conv, MatMul, ReduceKind, Unary, Update};
use memfit_ir::{Builder, Graph, Node, Op, Result, TensorType, ValueId};

#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Tensor {
    pub fn new(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Tensor {
        let mut data = Vec::new();
        for mut flat in 0..shape.iter().product() {
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = flat % shape[axis];
                flat /= shape[axis];
            }
            data.push(f(&index));
        }
        Tensor { shape: shape.to_vec(), data }
    }

    /// The element at an index of a shape that this one broadcasts to.
    pub fn at(&self, index: &[usize]) -> f64 {
        let lead = index.len() - self.shape.len();
        let flat = self.shape.iter().zip(&index[lead..]).fold(0, |f, (&d, &i)| f * d + if d == 1 { 0 } else { i });
        self.data[flat]
    }

    fn place(&mut self, index: &[usize]) -> &mut f64 {
        let flat = self.shape.iter().zip(index).fold(0, |f, (&d, &i)| f * d + i);
        &mut self.data[flat]
    }

    fn zeros(shape: &[usize]) -> Tensor {
        Tensor::new(shape, |_| 0.0)
    }
}

/// Numbers between 0.3 and 1.7, different for each seed and place.
pub fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    Tensor::new(shape, |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        0.3 + 1.4 * ((state >> 40) as f64 / (1u64 << 24) as f64)
    })
}

/// The value of everything, given the inputs and states by name.
pub fn evaluate(graph: &Graph, given: &HashMap<String, Tensor>) -> Vec<Tensor> {
    let mut values: Vec<Tensor> = Vec::new();
    for node in graph.nodes() {
        let inputs: Vec<&Tensor> = node.inputs.iter().map(|v| &values[v.index()]).collect();
        let outputs = run(graph, node, &inputs, given);
        for (v, t) in node.outputs.iter().zip(&outputs) {
            assert_eq!(graph.shape(*v), t.shape, "{}", node.op.name());
        }
        values.extend(outputs);
    }
    values
}

fn run(graph: &Graph, node: &Node, x: &[&Tensor], given: &HashMap<String, Tensor>) -> Vec<Tensor> {
    let out = graph.shape(node.outputs[0]).to_vec();
    let one = |f: &dyn Fn(&[usize]) -> f64| vec![Tensor::new(&out, f)];
    match &node.op {
        Op::Input(i) => vec![given[&i.name].clone()],
        Op::State(s) => vec![given[&s.name].clone()],
        Op::Fill(f) => one(&|_| f.value as f64),
        Op::Unary(u) => one(&|i| unary(*u, x[0].at(i))),
        Op::Binary(b) => one(&|i| binary(*b, x[0].at(i), x[1].at(i))),
        Op::Compare(c) => one(&|i| compare(*c, x[0].at(i), x[1].at(i)) as u8 as f64),
        Op::Select => one(&|i| if x[0].at(i) != 0.0 { x[1].at(i) } else { x[2].at(i) }),
        Op::Cast(_) | Op::Broadcast(_) => one(&|i| x[0].at(i)),
        Op::Reshape(_) => vec![Tensor { shape: out.clone(), data: x[0].data.clone() }],
        Op::Transpose(perm) => one(&|i| {
            let mut from = vec![0; i.len()];
            perm.iter().enumerate().for_each(|(to, &p)| from[p] = i[to]);
            x[0].at(&from)
        }),
        Op::Slice(s) => one(&|i| x[0].at(&i.iter().zip(&s.start).map(|(i, s)| i + s).collect::<Vec<_>>())),
        Op::Pad(p) => one(&|i| {
            let inside = (0..i.len()).all(|a| i[a] >= p[a].0 && i[a] - p[a].0 < x[0].shape[a]);
            if inside { x[0].at(&i.iter().zip(p).map(|(i, p)| i - p.0).collect::<Vec<_>>()) } else { 0.0 }
        }),
        Op::Concat(axis) => one(&|i| {
            let (mut i, mut part) = (i.to_vec(), 0);
            while i[*axis] >= x[part].shape[*axis] {
                i[*axis] -= x[part].shape[*axis];
                part += 1;
            }
            x[part].at(&i)
        }),
        Op::Reduce(r) => vec![reduce(r.kind, &r.axes, x[0], &out)],
        Op::MatMul(m) => one(&|i| matmul(*m, x[0], x[1], i)),
        Op::Conv(c) => vec![trilinear(c, [Some(x[0]), Some(x[1]), None], &out)],
        Op::ConvTranspose(c) => vec![trilinear(&c.conv, [None, Some(x[1]), Some(x[0])], &out)],
        Op::ConvFilter(c) => vec![trilinear(&c.conv, [Some(x[0]), None, Some(x[1])], &out)],
        Op::BatchStats => batch_stats(x[0], &out),
        Op::BatchApply(e) => one(&|i| (x[0].at(i) - x[1].at(i)) * rstd(x[2].at(i), e.0) * x[3].at(i) + x[4].at(i)),
        Op::BatchGradReduce(e) => {
            let mut sums = vec![Tensor::zeros(&out), Tensor::zeros(&out)];
            Tensor::new(&x[0].shape, |i| {
                let channel = [i[i.len() - 1]];
                *sums[0].place(&channel) += x[3].at(i) * (x[0].at(i) - x[1].at(i)) * rstd(x[2].at(i), e.0);
                *sums[1].place(&channel) += x[3].at(i);
                0.0
            });
            sums
        }
        Op::BatchGradInput(b) => one(&|i| {
            let (rows, r) = ((x[0].data.len() / x[1].data.len()) as f64, rstd(x[2].at(i), b.eps));
            let hat = (x[0].at(i) - x[1].at(i)) * r;
            let through = if b.batch_stats { (x[6].at(i) + hat * x[5].at(i)) / rows } else { 0.0 };
            x[3].at(i) * r * (x[4].at(i) - through)
        }),
        Op::CrossEntropy(c) => {
            let classes = *x[0].shape.last().unwrap();
            let at = |row: &[usize], k: usize| [row, &[k]].concat();
            let lse = Tensor::new(&out, |row| (0..classes).map(|k| x[0].at(&at(row, k)).exp()).sum::<f64>().ln());
            let s = c.smoothing as f64;
            let q = |i: &[usize]| (1.0 - s) * x[1].at(i) + s / classes as f64;
            let term = |row: &[usize], k| q(&at(row, k)) * (lse.at(row) - x[0].at(&at(row, k)));
            vec![Tensor::new(&out, |row| (0..classes).map(|k| term(row, k)).sum()), lse.clone()]
        }
        Op::BatchUpdate(u) => {
            let m = u.momentum as f64;
            (0..2).map(|k| Tensor::new(&out, |i| m * x[k].at(i) + (1.0 - m) * x[k + 2].at(i))).collect()
        }
        Op::Update(Update::Sgd { momentum: 0.0, .. }) => one(&|i| x[0].at(i) - x[2].at(i) * x[1].at(i)),
        other => panic!("{} is not evaluated here", other.name()),
    }
}

fn rstd(var: f64, eps: f32) -> f64 {
    1.0 / (var + eps as f64).sqrt()
}

fn unary(u: Unary, x: f64) -> f64 {
    match u {
        Unary::Neg => -x,
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        other => panic!("{} is not evaluated here", other.name()),
    }
}

fn binary(b: Binary, x: f64, y: f64) -> f64 {
    match b {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::Pow => x.powf(y),
        Binary::SigmoidCrossEntropy => x.max(0.0) - x * y + (-x.abs()).exp().ln_1p(),
    }
}

fn compare(c: Compare, x: f64, y: f64) -> bool {
    match c {
        Compare::Eq => x == y,
        Compare::Ne => x != y,
        Compare::Lt => x < y,
        Compare::Le => x <= y,
        Compare::Gt => x > y,
        Compare::Ge => x >= y,
    }
}

fn reduce(kind: ReduceKind, axes: &[usize], x: &Tensor, out: &[usize]) -> Tensor {
    let mut kept = x.shape.clone();
    axes.iter().for_each(|&a| kept[a] = 1);
    let start = if kind == ReduceKind::Max { f64::NEG_INFINITY } else { 0.0 };
    let mut sums = Tensor::new(&kept, |_| start);
    let count: usize = axes.iter().map(|&a| x.shape[a]).product();
    Tensor::new(&x.shape, |i| {
        let to: Vec<usize> = (0..i.len()).map(|a| if axes.contains(&a) { 0 } else { i[a] }).collect();
        let (v, so_far) = (x.at(i), sums.place(&to));
        *so_far = match kind {
            ReduceKind::Sum => *so_far + v,
            ReduceKind::Mean => *so_far + v / count as f64,
            ReduceKind::Max => so_far.max(v),
            ReduceKind::SumSquares => *so_far + v * v,
        };
        0.0
    });
    Tensor { shape: out.to_vec(), data: sums.data }
}

fn matmul(m: MatMul, a: &Tensor, b: &Tensor, i: &[usize]) -> f64 {
    let (batch, place) = i.split_at(i.len() - 2);
    let element = |t: &Tensor, row: usize, col: usize, turned: bool| {
        let batch = &batch[..t.shape.len() - 2];
        t.at(&[batch, &if turned { [col, row] } else { [row, col] }].concat())
    };
    let inner = a.shape[a.shape.len() - if m.transpose_a { 2 } else { 1 }];
    (0..inner).map(|k| element(a, place[0], k, m.transpose_a) * element(b, k, place[1], m.transpose_b)).sum()
}

/// Σ x·w·y over the places that a convolution joins, for the one of x, w and y that is not given.
fn trilinear(c: &Conv, given: [Option<&Tensor>; 3], out: &[usize]) -> Tensor {
    let mut result = Tensor::zeros(out);
    let shape = |i: usize| given[i].map_or(out.to_vec(), |t| t.shape.clone());
    let (xs, ws, ys) = (shape(0), shape(1), shape(2));
    let per_group = ws[3] / c.groups;
    Tensor::new(&[ys[0], ys[1], ys[2], ys[3], ws[0], ws[1], ws[2]], |i| {
        let row = (i[1] * c.stride[0] + i[4] * c.dilation[0]).wrapping_sub(c.pad.top);
        let col = (i[2] * c.stride[1] + i[5] * c.dilation[1]).wrapping_sub(c.pad.left);
        if row < xs[1] && col < xs[2] {
            let x = [i[0], row, col, i[3] / per_group * ws[2] + i[6]];
            let (w, y) = ([i[4], i[5], i[6], i[3]], [i[0], i[1], i[2], i[3]]);
            let product: f64 = [x, w, y].iter().zip(given).filter_map(|(i, t)| t.map(|t| t.at(i))).product();
            let missing = given.iter().position(Option::is_none).unwrap();
            *result.place(&[x, w, y][missing]) += product;
        }
        0.0
    });
    result
}

fn batch_stats(x: &Tensor, out: &[usize]) -> Vec<Tensor> {
    let rows = (x.data.len() / out[0]) as f64;
    let sum = |f: &dyn Fn(usize, f64) -> f64| {
        Tensor::new(out, |c| x.data.iter().skip(c[0]).step_by(out[0]).map(|&v| f(c[0], v)).sum::<f64>() / rows)
    };
    let mean = sum(&|_, v| v);
    let var = sum(&|c, v| (v - mean.data[c]).powi(2));
    vec![mean, var]
}

pub fn input(b: &mut Builder, name: &str, shape: &[usize]) -> Result<ValueId> {
    b.input(name, TensorType::f32(shape))
}
