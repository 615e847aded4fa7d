//! Times contractions whose left operand is a batch norm and a ReLU: computed while it is read, against a pass of its own
//! before it. `prologue [THREADS] [RUNS]`; the two take turns, and the median of their times and of their ratio is shown.

use memfit::ir::op::{Conv, ConvFilter, ConvTranspose, Eps, MatMul, Pad2, Unary};
use memfit::ir::{Builder, DType, Graph, Op, Result as Built, TensorType, ValueId};
use memfit_bench::{Failure, Timed, median};

fn main() -> Result<(), Failure> {
    let args: Vec<usize> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let (threads, runs) = (args.first().copied().unwrap_or(1), args.get(1).copied().unwrap_or(10));
    println!("{:<58} {:>10} {:>10} {:>7}", "", "fed ms", "apart ms", "ratio");
    for (op, a, b) in cases() {
        for stored in [DType::F32, DType::BF16] {
            let mut fed = Timed::new(graph(&op, &a, &b, stored, false)?, threads)?;
            let mut apart = Timed::new(graph(&op, &a, &b, stored, true)?, threads)?;
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..runs {
                let (f, a) = (fed.run()?, apart.run()?);
                times.iter_mut().zip([1e3 * f, 1e3 * a, f / a]).for_each(|(list, x)| list.push(x));
            }
            let what = format!("{} {stored}{a:?} {b:?}", op.name());
            let [f, a, ratio] = times.map(median);
            println!("{what:<58} {f:>10.3} {a:>10.3} {ratio:>7.3}");
        }
    }
    Ok(())
}

/// Layers of resnets, of a u-net and of a transformer.
fn cases() -> Vec<(Op, Vec<usize>, Vec<usize>)> {
    let mut list = Vec::new();
    for (batch, side, from, to, window, stride) in [
        (8, 32, 64, 64, 3, 1),
        (32, 16, 128, 128, 3, 1),
        (64, 8, 256, 256, 3, 1),
        (64, 4, 512, 512, 3, 1),
        (4, 56, 64, 256, 1, 1),
        (4, 56, 256, 64, 1, 1),
        (4, 28, 128, 128, 3, 2),
        (4, 14, 1024, 256, 1, 1),
        (4, 7, 512, 2048, 1, 1),
        (1, 224, 64, 64, 3, 1),
        (1, 56, 512, 256, 3, 1),
    ] {
        let conv = Conv { stride: [stride; 2], pad: Pad2::all(window / 2), dilation: [1, 1], groups: 1 };
        let (x, w) = (vec![batch, side, side, from], vec![window, window, from, to]);
        let y = vec![batch, side / stride, side / stride, to];
        list.push((Op::Conv(conv), x.clone(), w.clone()));
        list.push((Op::ConvFilter(ConvFilter { conv, size: [window; 2] }), x, y.clone()));
        if stride == 1 {
            list.push((Op::ConvTranspose(ConvTranspose { conv, size: [side; 2] }), y, w));
        }
    }
    for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true)] {
        let turned = |turn: bool, r: usize, c: usize| if turn { vec![c, r] } else { vec![r, c] };
        for (m, k, n) in [(1024, 768, 768), (1024, 768, 2048), (1024, 3072, 768)] {
            let op = Op::MatMul(MatMul { transpose_a, transpose_b });
            list.push((op, turned(transpose_a, m, k), turned(transpose_b, k, n)));
        }
    }
    list
}

/// The left operand is computed; where it is kept, it is given out too and so has memory.
fn graph(op: &Op, a: &[usize], b_shape: &[usize], stored: DType, kept: bool) -> Built<Graph> {
    let mut b = Builder::new();
    let mut x = b.input("a", TensorType::new(stored, a))?;
    if stored != DType::F32 {
        x = b.cast(x, DType::F32)?;
    }
    let mut inputs = vec![x];
    for name in ["mean", "var", "scale", "bias"] {
        inputs.push(b.input(name, TensorType::f32(&a[a.len() - 1..]))?);
    }
    let x = b.op(Op::BatchApply(Eps(0.1)), &inputs)?;
    let x = b.unary(Unary::Relu, x)?;
    let w: ValueId = b.input("b", TensorType::f32(b_shape))?;
    let y = b.op(op.clone(), &[x, w])?;
    b.output("y", y);
    if kept {
        b.output("x", x);
    }
    Ok(b.finish())
}
