//! A graph that is run again and again on data that mean nothing.

use memfit::exec::Executor;
use memfit::ir::{DType, Graph, TensorType, philox};
use memfit::plan::{Request, plan};
use memfit::{Clock, CpuExecutor, Engine, Options, Phase, SourceError, TensorView};

use crate::Failure;

/// An engine that has run its graph once.
pub struct Timed {
    engine: Engine<CpuExecutor>,
    data: Vec<(String, TensorType, Vec<u8>)>,
}

impl Timed {
    pub fn new(graph: Graph, threads: usize) -> Result<Timed, Failure> {
        let executor = CpuExecutor::new(threads)?;
        let source = |_| Ok::<_, SourceError>(vec![(Phase::Step, graph.clone().into())]);
        let plan = plan(&source, executor.target(), &Request::new(1))?;
        let mut engine = Engine::new(executor, plan, Options::default())?;
        engine.init(1)?;
        let data = graph.inputs().map(|(n, v)| (n.to_string(), graph.ty(v).clone(), bytes(graph.ty(v)))).collect();
        let mut timed = Timed { engine, data };
        timed.run()?;
        Ok(timed)
    }

    /// Seconds of the kernels.
    pub fn run(&mut self) -> Result<f64, Failure> {
        let views: Vec<(&str, TensorView)> = self
            .data
            .iter()
            .map(|(n, t, b)| (n.as_str(), TensorView { dtype: t.dtype, shape: &t.shape, bytes: b }))
            .collect();
        let mut spent = 0.0;
        self.engine.run_observed(Phase::Step, &views, 0.0, Clock::default(), |_, _, t| spent += t.as_secs_f64())?;
        Ok(spent)
    }
}

fn bytes(ty: &TensorType) -> Vec<u8> {
    let numbers = philox::uniform(1, "x", ty.elements()).map(f32::abs);
    match ty.dtype {
        DType::F32 => numbers.flat_map(f32::to_ne_bytes).collect(),
        // Bits of any kind are fine where only the time counts; labels must be small.
        _ => vec![0; ty.bytes() as usize],
    }
}
