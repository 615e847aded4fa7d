//! The inputs of a program: tensors of the host that are checked and copied into its segment.

use std::ops::Range;

use memfit_ir::op::{CLOCK, LEARNING_RATE, has_row_per_sample};
use memfit_ir::{DType, TensorType, ValueId};
use memfit_plan::{Phase, Plan, Program};

use crate::arena::Arena;
use crate::engine::{Clock, Engine};
use crate::error::ExecError;
use crate::executor::Executor;

/// A tensor of the host: its type and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    pub dtype: DType,
    pub shape: &'a [usize],
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    pub fn f32(shape: &'a [usize], data: &'a [f32]) -> Self {
        TensorView { dtype: DType::F32, shape, bytes: bytemuck::cast_slice(data) }
    }

    pub fn i32(shape: &'a [usize], data: &'a [i32]) -> Self {
        TensorView { dtype: DType::I32, shape, bytes: bytemuck::cast_slice(data) }
    }

    fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape)
    }
}

/// What one run of a program is given.
#[derive(Clone, Copy)]
pub(crate) struct RunInputs<'a> {
    /// Of the whole batch, by name.
    pub tensors: &'a [(&'a str, TensorView<'a>)],
    pub lr: f32,
    pub clock: Clock,
    /// Which micro-batch of it, counted from 0.
    pub part: usize,
}

impl<E: Executor> Engine<E> {
    /// Copies the inputs of a program into its segment; of a whole batch, the rows of the micro-batch.
    pub(crate) fn stage(
        &self,
        arena: &mut Arena<E::Memory>,
        index: usize,
        inputs: &RunInputs,
    ) -> Result<(), ExecError> {
        let RunInputs { tensors, lr, clock, part } = *inputs;
        let program = &self.plan.programs[index];
        let parts = if program.phase == Phase::Accumulate { self.plan.accumulate() } else { 1 };
        check_known(&self.plan, program, tensors)?;
        let first_sample = (self.plan.rows().start + part * self.plan.micro_batch) as i32;
        let ticks = [clock.step as i32, first_sample, clock.seed as i32, (clock.seed >> 32) as i32];
        for (name, v) in program.graph.inputs() {
            let Some(place) = program.place(v) else { continue };
            let ty = program.graph.ty(v);
            let bytes: &[u8] = match tensors.iter().find(|(n, _)| *n == name) {
                Some((_, tensor)) if self.has_rows(name, ty) => rows_of_part(name, ty, tensor, part, parts)?,
                Some((_, tensor)) => whole_tensor(name, ty, tensor)?,
                None if name == CLOCK => bytemuck::cast_slice(&ticks),
                None if name == LEARNING_RATE => bytemuck::bytes_of(&lr),
                None => return Err(missing(program, name, ty)),
            };
            self.check_indices(index, v, bytes)?;
            self.executor.write(arena.segment_mut(place), place, 0, bytes);
        }
        Ok(())
    }

    /// Whether an input has a row for each sample of a micro-batch.
    fn has_rows(&self, name: &str, ty: &TensorType) -> bool {
        has_row_per_sample(name, &ty.shape, self.plan.micro_batch)
    }

    /// Copies the given rows of each input, and then the last of them again until its place is full. What is absent is zero.
    pub(crate) fn stage_rows(
        &self,
        arena: &mut Arena<E::Memory>,
        index: usize,
        inputs: &[(&str, TensorView)],
        absent: &[String],
        rows: Range<usize>,
    ) -> Result<(), ExecError> {
        let program = &self.plan.programs[index];
        check_known(&self.plan, program, inputs)?;
        for (name, v) in program.graph.inputs() {
            let Some(place) = program.place(v) else { continue };
            let ty = program.graph.ty(v);
            match inputs.iter().find(|(n, _)| *n == name) {
                Some((_, tensor)) if !self.has_rows(name, ty) => {
                    let bytes = whole_tensor(name, ty, tensor)?;
                    self.check_indices(index, v, bytes)?;
                    self.executor.write(arena.segment_mut(place), place, 0, bytes);
                }
                Some((_, tensor)) => {
                    let (bytes, row) = rows_in_range(name, ty, tensor, &rows)?;
                    self.check_indices(index, v, bytes)?;
                    self.executor.write(arena.segment_mut(place), place, 0, bytes);
                    for offset in (bytes.len() as u64..place.size).step_by(row.len().max(1)) {
                        self.executor.write(arena.segment_mut(place), place, offset, row);
                    }
                }
                // Evaluation has neither a time nor a learning rate.
                None if name == CLOCK || name == LEARNING_RATE || absent.iter().any(|a| a == name) => {
                    self.executor.fill(arena.segment_mut(place), place, 0)
                }
                None => return Err(missing(program, name, ty)),
            }
        }
        Ok(())
    }

    /// Whether an input of a program that is read as indices has none outside of its range.
    fn check_indices(&self, index: usize, input: ValueId, bytes: &[u8]) -> Result<(), ExecError> {
        let graph = &self.plan.programs[index].graph;
        let mut indices = self.indices[index].iter().filter(|i| i.input == input);
        indices.try_for_each(|i| i.check(graph, bytes))
    }
}

pub(crate) fn check_tensor(name: &str, expected: &TensorType, given: &TensorView) -> Result<(), ExecError> {
    if given.dtype != expected.dtype || given.shape != &expected.shape[..] {
        return Err(ExecError::WrongInput { name: name.into(), expected: expected.clone(), given: given.ty() });
    }
    check_length(name, given)
}

fn check_length(name: &str, given: &TensorView) -> Result<(), ExecError> {
    // In bits, which is where a product of extents that no tensor has would overflow.
    let bits = given.shape.iter().try_fold(given.dtype.bits(), |n, &d| n.checked_mul(d));
    if bits.map(|n| n.div_ceil(8)) != Some(given.bytes.len()) {
        return Err(ExecError::InputLength { name: name.into(), ty: given.ty(), bytes: given.bytes.len() });
    }
    Ok(())
}

/// What another program reads is the model's too: a label that only a metric compares is there in training as well.
fn check_known(plan: &Plan, program: &Program, inputs: &[(&str, TensorView)]) -> Result<(), ExecError> {
    let is_known = |name: &str| plan.programs.iter().any(|p| p.graph.input(name).is_some());
    match inputs.iter().find(|(n, _)| !is_known(n)) {
        Some((name, _)) => {
            let known: Vec<&str> = program.graph.inputs().map(|(n, _)| n).collect();
            Err(ExecError::UnknownInput { name: name.to_string(), known: known.join(", ") })
        }
        None => Ok(()),
    }
}

fn missing(program: &Program, name: &str, ty: &TensorType) -> ExecError {
    ExecError::MissingInput { name: name.to_string(), phase: program.phase, expected: ty.clone() }
}

/// The bytes of an input that is the same for all samples.
fn whole_tensor<'a>(name: &str, ty: &TensorType, whole: &TensorView<'a>) -> Result<&'a [u8], ExecError> {
    check_tensor(name, ty, whole)?;
    Ok(whole.bytes)
}

/// The bytes of rows of a batch, and of the last of them.
fn rows_in_range<'a>(
    name: &str,
    ty: &TensorType,
    whole: &TensorView<'a>,
    rows: &Range<usize>,
) -> Result<(&'a [u8], &'a [u8]), ExecError> {
    let Some((&most, sample)) = ty.shape.split_first() else { return Ok((whole_tensor(name, ty, whole)?, &[])) };
    let count = whole.shape.first().copied().unwrap_or(0);
    let fits = whole.dtype == ty.dtype && whole.shape.get(1..) == Some(sample);
    if !fits || rows.is_empty() || rows.len() > most || rows.end > count {
        let expected = TensorType::new(ty.dtype, [&[rows.end], sample].concat());
        return Err(ExecError::WrongInput { name: name.into(), expected, given: whole.ty() });
    }
    check_length(name, whole)?;
    let size = whole.bytes.len() / count;
    let bytes = &whole.bytes[rows.start * size..rows.end * size];
    Ok((bytes, &bytes[bytes.len() - size..]))
}

/// The rows of one micro-batch out of a whole batch.
fn rows_of_part<'a>(
    name: &str,
    ty: &TensorType,
    whole: &TensorView<'a>,
    part: usize,
    parts: usize,
) -> Result<&'a [u8], ExecError> {
    let fits = whole.dtype == ty.dtype
        && whole.shape.len() == ty.shape.rank()
        && whole
            .shape
            .iter()
            .zip(ty.shape.iter())
            .enumerate()
            .all(|(i, (&w, &t))| w == if i == 0 { t * parts } else { t });
    if !fits {
        let mut expected = ty.clone();
        if parts > 1 && ty.shape.rank() > 0 {
            let mut dims = ty.shape.to_vec();
            dims[0] *= parts;
            expected = TensorType::new(ty.dtype, dims);
        }
        return Err(ExecError::WrongInput { name: name.into(), expected, given: whole.ty() });
    }
    check_length(name, whole)?;
    let size = whole.bytes.len() / parts;
    Ok(&whole.bytes[part * size..][..size])
}
