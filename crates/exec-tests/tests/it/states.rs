//! States of an engine, copied in and out: each is always whole, and what another engine may have written over is not given.

use crate::common;

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use common::{SEED, engine, sgd};
use memfit_exec::weights::{Match, WeightsError};
use memfit_exec::{Clock, Engine, ExecError, Growth, Options, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Batch, Result, Tensor};
use memfit_ir::op::{Init, StateClass};
use memfit_ir::{Builder, Graph, TensorType, ValueId};
use memfit_plan::{MicroBatch, Request, StateSlot};

/// Weights of several pieces of a file each, and a bias of a few bytes.
fn dense(batch: usize) -> Result<(Graph, ValueId)> {
    let mut b = Builder::new();
    let mut h = b.input("x", TensorType::f32([batch, 100]))?;
    let y = b.input("y", TensorType::i32([batch]))?;
    for (name, [from, to]) in [("a", [100, 500]), ("b", [500, 100])] {
        let w = b.param(name, [from, to], Init::Normal { std: 0.1 })?;
        h = b.matmul(h, w)?;
    }
    let bias = b.param("bias", [100], Init::Constant(0.5))?;
    let logits = b.add(h, bias)?;
    let each = b.cross_entropy(logits, y, 0.0)?;
    let loss = b.mean(each)?;
    Ok((b.finish(), loss))
}

fn batch() -> Batch {
    let x = Tensor::filled(&TensorType::f32([4, 100]), 0.5);
    Batch::new([("x".to_string(), x), ("y".to_string(), Tensor::i32([4], &[1, 2, 3, 4]).unwrap())])
}

fn started(micro_batch: usize, growth: Growth) -> Engine<CpuExecutor> {
    let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), ..Request::new(4) };
    engine(1, &dense, &sgd(0.9), &request, Options { growth, ..Options::default() }).unwrap()
}

fn is_param(slot: &StateSlot) -> bool {
    slot.class == StateClass::Param
}

fn params(engine: &Engine<CpuExecutor>) -> Vec<(String, Vec<u8>)> {
    let params = engine.plan().states.iter().filter(|s| is_param(s));
    params.map(|s| (s.name.clone(), engine.read_state(&s.name).unwrap())).collect()
}

/// A file that cannot be read from some byte on, though it is there.
struct Broken {
    file: Cursor<Vec<u8>>,
    from: u64,
}

impl Read for Broken {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.from.saturating_sub(self.file.position()) {
            0 => Err(io::Error::other("a bad sector")),
            left => self.file.by_ref().take(left).read(bytes),
        }
    }
}

impl Seek for Broken {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn a_load_that_fails_on_the_way_leaves_no_state_half_read() {
    let path = Path::new("broken");
    let mut other = started(4, Growth::Lazy);
    other.init(SEED + 1).unwrap();
    let (given, first) = (params(&other), params(&started(4, Growth::Commit)));
    let mut file = Vec::new();
    other.write_states(&mut file, path, is_param).unwrap();
    let mut read = Vec::new();
    for from in (0..=file.len()).step_by(file.len() / 40) {
        let mut engine = started(4, Growth::Lazy);
        let mut broken = Broken { file: Cursor::new(file.clone()), from: from as u64 };
        let loaded = engine.read_states(&mut broken, path, Match::Exact, is_param);
        assert!(matches!(loaded, Err(WeightsError::Io { .. })) || from == file.len(), "{from}: {loaded:?}");
        let after = params(&engine);
        read.push(after.iter().zip(&given).filter(|(a, b)| a == b).count());
        for (after, (given, first)) in after.iter().zip(given.iter().zip(&first)) {
            assert!(after == given || after == first, "{} is neither its old nor its new self at {from}", after.0);
        }
        // A step puts the states there, and changes nothing at this rate.
        engine.step(&batch().views(), 0.0, Clock::default()).unwrap();
        assert!(params(&engine) == after, "{from}: what is read before a step is not what a step finds");
    }
    read.dedup();
    // The bias is the same for every seed.
    assert_eq!(read, [1, 2, 3]);
}

#[test]
fn a_state_is_written_alone() {
    let [mut lazy, mut committed] = [Growth::Lazy, Growth::Commit].map(|growth| started(4, growth));
    let bias: Vec<f32> = (0..100).map(|i| i as f32).collect();
    for engine in [&mut lazy, &mut committed] {
        engine.write_state("bias", TensorView::f32(&[100], &bias)).unwrap();
        engine.step(&batch().views(), 0.1, Clock::default()).unwrap();
    }
    assert!(params(&lazy) == params(&committed));
    assert_ne!(params(&lazy), params(&started(4, Growth::Lazy)));
}

#[test]
fn accumulators_are_read_after_their_own_step_and_never_written() {
    let mut a = started(2, Growth::Commit);
    let plan = a.plan().clone();
    let mut b = Engine::sharing(a.executor().clone(), plan, Options::default(), a.transient()).unwrap();
    b.init(SEED).unwrap();
    let slot = a.plan().states.iter().find(|s| s.class == StateClass::Accumulator && s.name.ends_with("bias"));
    let name = slot.expect("an accumulator for each parameter").name.clone();
    let is_gone = |engine: &Engine<CpuExecutor>| matches!(engine.read_state(&name), Err(ExecError::Gone { .. }));
    assert!(is_gone(&a) && is_gone(&b), "nothing has run");
    a.step(&batch().views(), 0.1, Clock::default()).unwrap();
    let sums = a.read_state(&name).unwrap();
    assert!(sums.iter().any(|&byte| byte != 0) && is_gone(&b));
    let refused = b.write_state(&name, TensorView { dtype: memfit_ir::DType::F32, shape: &[100], bytes: &sums });
    assert!(matches!(&refused, Err(ExecError::Accumulator { name: said }) if *said == name), "{refused:?}");
    assert_eq!(a.read_state(&name).unwrap(), sums);
    b.step(&batch().views(), 0.1, Clock::default()).unwrap();
    assert!(is_gone(&a) && !is_gone(&b));
}
