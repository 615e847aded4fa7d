//! Times contractions whose left operand is a batch norm and a ReLU: computed while it is read, against a pass of its own
//! before it. `prologue [THREADS] [RUNS]`; the two take turns, and the median of their times and of their ratio is shown.

use memfit_exec::{Clock, Engine, Executor, Options, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::op::{Conv, ConvFilter, ConvTranspose, Eps, MatMul, Pad2, Unary};
use memfit_ir::{Builder, DType, Graph, Op, Result as Built, TensorType, ValueId, philox};
use memfit_plan::{Phase, Request, plan};

type Failure = Box<dyn std::error::Error>;

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
                times.iter_mut().zip([f, a, f / a]).for_each(|(list, x)| list.push(x));
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

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

/// An engine that has run its graph once.
struct Timed {
    engine: Engine<CpuExecutor>,
    data: Vec<(String, TensorType, Vec<u8>)>,
}

impl Timed {
    fn new(graph: Graph, threads: usize) -> Result<Timed, Failure> {
        let executor = CpuExecutor::new(threads)?;
        let plan = plan(&|_| Ok(vec![(Phase::Step, graph.clone())]), executor.target(), &Request::new(1))?;
        let engine = Engine::new(executor, plan, Options::default())?;
        let data = graph.inputs().map(|(n, v)| (n.to_string(), graph.ty(v).clone(), bytes(graph.ty(v)))).collect();
        let mut timed = Timed { engine, data };
        timed.run()?;
        Ok(timed)
    }

    /// Milliseconds of the kernels.
    fn run(&mut self) -> Result<f64, Failure> {
        let views: Vec<(&str, TensorView)> = self
            .data
            .iter()
            .map(|(n, t, b)| (n.as_str(), TensorView { dtype: t.dtype, shape: &t.shape, bytes: b }))
            .collect();
        let mut spent = 0.0;
        self.engine.run_observed(Phase::Step, &views, 0.0, Clock::default(), |_, _, t| spent += t.as_secs_f64())?;
        Ok(spent * 1e3)
    }
}

fn bytes(ty: &TensorType) -> Vec<u8> {
    let numbers = philox::uniform(1, "x", ty.elements()).map(f32::abs);
    match ty.dtype {
        DType::BF16 => numbers.flat_map(|x| half::bf16::from_f32(x).to_ne_bytes()).collect(),
        _ => numbers.flat_map(f32::to_ne_bytes).collect(),
    }
}
