//! A batch that means nothing, for whoever wants to measure a step and has no data: numbers of any size, and labels and tokens of
//! every kind that the model knows.

use memfit_exec::TensorView;
use memfit_ir::op::{CLOCK, LEARNING_RATE, has_row_per_sample};
use memfit_ir::{DType, TensorType, philox};
use memfit_plan::Plan;

/// What a step of a plan reads, the whole batch of it.
pub struct SyntheticBatch(Vec<(String, TensorType, Vec<u8>)>);

impl SyntheticBatch {
    /// For the steps of a plan; whole numbers are below `classes`.
    pub fn new(plan: &Plan, classes: usize) -> SyntheticBatch {
        let inputs = inputs(plan);
        SyntheticBatch(
            inputs
                .map(|(name, ty)| {
                    let bytes = numbers(name, &ty, classes);
                    (name.to_string(), ty, bytes)
                })
                .collect(),
        )
    }

    /// What such a batch takes of the host's memory.
    pub fn bytes(plan: &Plan) -> u64 {
        inputs(plan).map(|(_, ty)| ty.bytes()).sum()
    }

    /// What a step is given.
    pub fn views(&self) -> Vec<(&str, TensorView<'_>)> {
        self.0
            .iter()
            .map(|(name, ty, bytes)| (name.as_str(), TensorView { dtype: ty.dtype, shape: &ty.shape, bytes }))
            .collect()
    }
}

/// Names and types of what a step is given: of all rows of a batch that are the replica's, where an input has a row for each sample.
fn inputs(plan: &Plan) -> impl Iterator<Item = (&str, TensorType)> {
    let training = plan.programs.iter().find(|p| p.phase.is_training()).or(plan.programs.first());
    let inputs = training
        .into_iter()
        .flat_map(|program| program.graph.inputs().map(|(name, v)| (name, program.graph.ty(v).clone())));
    let data = inputs.filter(|(name, _)| *name != CLOCK && *name != LEARNING_RATE);
    data.map(|(name, ty)| {
        if has_row_per_sample(name, &ty.shape, plan.micro_batch) {
            (name, TensorType::new(ty.dtype, [&[plan.rows().len()], &ty.shape[1..]].concat()))
        } else {
            (name, ty)
        }
    })
}

/// Of any size: a core that multiplies zeros all the time may be faster.
fn numbers(name: &str, ty: &TensorType, classes: usize) -> Vec<u8> {
    let draw = || philox::uniform(1, name, ty.elements());
    match ty.dtype {
        DType::F32 => draw().flat_map(f32::to_ne_bytes).collect(),
        DType::I32 => {
            let last = classes.max(1) as f32 - 1.0;
            draw().flat_map(|x| (((x + 1.0) / 2.0 * classes as f32).min(last) as i32).to_ne_bytes()).collect()
        }
        _ => vec![0; ty.bytes() as usize],
    }
}
