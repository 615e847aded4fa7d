//! The kernels that are measured: one op each, on the shapes of a model.

use memfit::ir::op::{Binary, CLOCK, Init, LEARNING_RATE, MatMul, StateClass, Update};
use memfit::ir::{Builder, Graph, Op, TensorType, ValueId, graph_cost};
use memfit::nn::optim::Optimizer;
use memfit::transform::StepGraph;
use memfit::{Training, ZooModel, programs};

use crate::Failure;

/// One op on inputs of some types.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub op: Op,
    pub inputs: Vec<TensorType>,
    /// How often a step has it.
    pub count: usize,
}

/// What a run of a case does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub flops: f64,
    /// Inputs read once, and outputs written once.
    pub bytes: f64,
}

impl Case {
    pub fn new(op: Op, inputs: Vec<TensorType>) -> Case {
        Case { op, inputs, count: 1 }
    }

    /// The op alone.
    pub fn graph(&self) -> Result<Graph, Failure> {
        let mut b = Builder::new();
        if let Op::Update(update) = self.op {
            self.update(&mut b, update)?;
            return Ok(b.finish());
        }
        let mut inputs = Vec::new();
        for (i, ty) in self.inputs.iter().enumerate() {
            inputs.push(b.input(&format!("x{i}"), ty.clone())?);
        }
        for (i, y) in b.op_outputs(self.op.clone(), &inputs)?.into_iter().enumerate() {
            b.output(format!("y{i}"), y);
        }
        Ok(b.finish())
    }

    /// An update takes the places of its parameter and slots, so that these are states.
    fn update(&self, b: &mut Builder, update: Update) -> Result<(), Failure> {
        let (mut inputs, mut old): (Vec<ValueId>, Vec<ValueId>) = Default::default();
        for (i, ty) in self.inputs.iter().enumerate() {
            let clock = 2 + update.slots().len() + 1;
            inputs.push(match i {
                1 => b.input("gradient", ty.clone())?,
                _ if i == clock - 1 => b.input(LEARNING_RATE, ty.clone())?,
                _ if i == clock => b.input(CLOCK, ty.clone())?,
                _ => {
                    let class = if i == 0 { StateClass::Param } else { StateClass::Slot };
                    old.push(b.state(&format!("s{i}"), class, ty.clone(), Init::Constant(0.0))?);
                    old[old.len() - 1]
                }
            });
        }
        let new = b.op_outputs(self.op.clone(), &inputs)?;
        old.into_iter().zip(new).for_each(|(old, new)| b.donate(old, new));
        Ok(())
    }

    pub fn work(&self) -> Result<Work, Failure> {
        let sum = graph_cost(&self.graph()?);
        Ok(Work { flops: sum.flops as f64, bytes: (sum.bytes_read + sum.bytes_written) as f64 })
    }

    /// The op and the shapes of what it reads.
    pub fn name(&self) -> String {
        let shape = |t: &TensorType| t.shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        let shapes: Vec<String> = self.inputs.iter().map(shape).collect();
        format!("{} {}", self.op.name(), shapes.join(" "))
    }
}

/// A square product.
pub fn sgemm(side: usize) -> Case {
    let op = Op::MatMul(MatMul { transpose_a: false, transpose_b: false });
    Case::new(op, vec![TensorType::f32([side, side]); 2])
}

/// Every different kernel of a training step of which `wanted` is true, before anything is grouped.
pub fn kernels(model: &ZooModel, batch: usize, wanted: impl Fn(&Op) -> bool) -> Result<Vec<Case>, Failure> {
    kernels_of(model, batch, &Training::new(Optimizer::momentum().update), wanted)
}

/// The same of a step that is trained in a given way.
pub fn kernels_of(
    model: &ZooModel,
    batch: usize,
    training: &Training,
    wanted: impl Fn(&Op) -> bool,
) -> Result<Vec<Case>, Failure> {
    let mut cases: Vec<Case> = Vec::new();
    for (_, StepGraph { graph, .. }) in programs(model, training, batch, batch)?.into_iter().take(1) {
        for node in graph.node_ids().map(|id| graph.node(id)).filter(|n| wanted(&n.op)) {
            let inputs = node.inputs.iter().map(|&v| graph.ty(v).clone()).collect();
            let case = Case::new(node.op.clone(), inputs);
            match cases.iter_mut().find(|c| c.op == case.op && c.inputs == case.inputs) {
                Some(same) => same.count += 1,
                None => cases.push(case),
            }
        }
    }
    Ok(cases)
}

/// The products and convolutions of a training step, forward and both backwards.
pub fn contractions(model: &ZooModel, batch: usize) -> Result<Vec<Case>, Failure> {
    kernels(model, batch, |op| matches!(op, Op::MatMul(_) | Op::Conv(_) | Op::ConvTranspose(_) | Op::ConvFilter(_)))
}

/// A sum of two vectors, longer than caches are.
pub fn stream() -> Case {
    Case::new(Op::Binary(Binary::Add), vec![TensorType::f32([16 << 20]); 2])
}

/// Whether memory is what bounds an op. Updates are left out: they depend on the optimizer.
pub fn is_stream(op: &Op) -> bool {
    let contracts = matches!(
        op,
        Op::MatMul(_)
            | Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::ConvFilter(_)
            | Op::Attention(_)
            | Op::AttentionGrad(_)
    );
    !contracts
        && !matches!(
            op,
            Op::Input(_) | Op::State(_) | Op::Fill(_) | Op::Reshape(_) | Op::Update(_) | Op::BatchUpdate(_)
        )
}
