//! The states of a model: their initial values, and copies in and out by name. Where memory grows when it is used, a state
//! takes none until it is written or a program runs; reading it takes none.

use std::sync::{MutexGuard, PoisonError};

use memfit_ir::op::Init;
use memfit_ir::{DType, philox};
use memfit_plan::{Place, Segment, StateSlot};

use crate::engine::Engine;
use crate::error::ExecError;
use crate::executor::Executor;
use crate::host_memory::Growth;
use crate::inputs::{TensorView, check_tensor};

/// The state segment.
pub(crate) struct States<M> {
    pub memory: M,
    /// Of initial values.
    seed: u64,
    /// For each state of the plan, whether its initial value is still to be put there.
    unset: Vec<bool>,
}

/// How many initial values are made at once.
const INITIAL: usize = 4096;

impl<M> States<M> {
    /// As the memory is.
    pub fn new(memory: M, count: usize) -> Self {
        States { memory, seed: 0, unset: vec![false; count] }
    }
}

impl<E: Executor> Engine<E> {
    /// Sets every state to its initial value: a function of the seed and the state's name. Where memory grows when it is used,
    /// that is when the first program runs, for those that were not written until then.
    pub fn init(&mut self, seed: u64) -> Result<(), ExecError> {
        let is_random = |s: &&StateSlot| s.init != Init::Constant(0.0);
        if let Some(slot) = self.plan.states.iter().filter(is_random).find(|s| s.ty.dtype != DType::F32) {
            return Err(ExecError::Init { name: slot.name.clone(), ty: slot.ty.clone() });
        }
        let mut states = self.states();
        states.seed = seed;
        // Accumulators begin anew with every step.
        let is_kept = |slot: &StateSlot| slot.place.segment == Segment::State;
        states.unset.iter_mut().zip(&self.plan.states).for_each(|(unset, slot)| *unset = is_kept(slot));
        drop(states);
        if self.options.growth == Growth::Commit {
            drop(self.set_states());
        }
        Ok(())
    }

    /// Looks at the state segment.
    pub fn look_at_states<T>(&self, look: impl FnOnce(&E::Memory) -> T) -> T {
        look(&self.states().memory)
    }

    pub(crate) fn states(&self) -> MutexGuard<'_, States<E::Memory>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The states as a program finds them: those that were not written have their initial values.
    pub(crate) fn set_states(&self) -> MutexGuard<'_, States<E::Memory>> {
        let mut states = self.states();
        let States { memory, seed, unset } = &mut *states;
        for (slot, unset) in self.plan.states.iter().zip(unset).filter(|(_, unset)| **unset) {
            self.init_state(memory, slot, *seed);
            *unset = false;
        }
        states
    }

    /// Through a small buffer, so that no second copy of the tensor exists.
    fn init_state(&self, memory: &mut E::Memory, slot: &StateSlot, seed: u64) {
        if slot.init == Init::Constant(0.0) {
            return self.executor.fill(memory, slot.place, 0);
        }
        let mut buffer = [0f32; INITIAL];
        let count = slot.ty.elements();
        for start in (0..count).step_by(INITIAL) {
            let part = &mut buffer[..INITIAL.min(count - start)];
            draw_initial(slot, seed, start, part);
            self.executor.write(memory, slot.place, 4 * start as u64, bytemuck::cast_slice(part));
        }
    }

    pub fn state(&self, name: &str) -> Result<&StateSlot, ExecError> {
        Ok(&self.plan.states[self.state_index(name)?])
    }

    fn state_index(&self, name: &str) -> Result<usize, ExecError> {
        let found = self.plan.states.iter().position(|s| s.name == name);
        found.ok_or_else(|| ExecError::Unknown { what: "state", name: name.into() })
    }

    pub fn read_state(&self, name: &str) -> Result<Vec<u8>, ExecError> {
        let mut bytes = vec![0; self.state(name)?.place.size as usize];
        self.read_state_into(name, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies a state; the buffer must have its size.
    pub fn read_state_into(&self, name: &str, bytes: &mut [u8]) -> Result<(), ExecError> {
        let slot = self.state(name)?;
        if bytes.len() as u64 != slot.place.size {
            return Err(ExecError::OutputLength { name: name.into(), ty: slot.ty.clone(), bytes: bytes.len() });
        }
        self.read_place(name, slot.place, bytes)
    }

    /// Sets a state that outlives a step.
    pub fn write_state(&mut self, name: &str, tensor: TensorView) -> Result<(), ExecError> {
        let index = self.state_index(name)?;
        let slot = &self.plan.states[index];
        check_tensor(name, &slot.ty, &tensor)?;
        if slot.place.segment == Segment::Transient {
            return Err(ExecError::Accumulator { name: name.into() });
        }
        let mut states = self.states();
        self.executor.write(&mut states.memory, slot.place, 0, tensor.bytes);
        states.unset[index] = false;
        Ok(())
    }

    /// Sets a part of a state that outlives a step. Only when all parts are there is it said to be set: until then one that had
    /// its initial value still to come has it still to come.
    pub(crate) fn write_part(&mut self, index: usize, offset: u64, part: &[u8]) {
        let place = self.plan.states[index].place;
        self.executor.write(&mut self.states().memory, place, offset, part);
    }

    /// See [`Engine::write_part`].
    pub(crate) fn mark_set(&mut self, index: usize) {
        self.states().unset[index] = false;
    }

    /// Copies a place of this name, or a part of it: a state, or what a program of this engine made and no other engine has
    /// written over.
    pub(crate) fn read_place(&self, name: &str, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        if place.segment == Segment::Transient {
            return self.executor.read(&self.last_run(name)?.memory, place, bytes);
        }
        let states = self.states();
        let mut unset = self.plan.states.iter().zip(&states.unset).filter(|(_, unset)| **unset).map(|(slot, _)| slot);
        match unset.find(|s| (s.place.offset..s.place.offset + s.place.size).contains(&place.offset)) {
            Some(slot) => read_initial(slot, states.seed, place.offset - slot.place.offset, bytes),
            None => self.executor.read(&states.memory, place, bytes)?,
        }
        Ok(())
    }
}

/// What a part of a state will be, before it is there: reading takes no memory.
fn read_initial(slot: &StateSlot, seed: u64, offset: u64, bytes: &mut [u8]) {
    if slot.init == Init::Constant(0.0) {
        return bytes.fill(0);
    }
    let first = offset as usize / 4;
    let mut buffer = [0f32; INITIAL];
    for (i, bytes) in bytes.chunks_mut(4 * INITIAL).enumerate() {
        let part = &mut buffer[..bytes.len() / 4];
        draw_initial(slot, seed, first + i * INITIAL, part);
        bytes.copy_from_slice(bytemuck::cast_slice(part));
    }
}

/// Initial values of a state, from one of its elements on.
fn draw_initial(slot: &StateSlot, seed: u64, start: usize, numbers: &mut [f32]) {
    let range = start..start + numbers.len();
    let set = |(to, from): (&mut f32, f32)| *to = from;
    match slot.init {
        Init::Constant(c) => numbers.fill(c),
        Init::Normal { std } => {
            let drawn = philox::normal_at(seed, &slot.name, range).map(|x| x * std);
            numbers.iter_mut().zip(drawn).for_each(set);
        }
        Init::Uniform { limit } => {
            let drawn = philox::uniform_at(seed, &slot.name, range).map(|x| x * limit);
            numbers.iter_mut().zip(drawn).for_each(set);
        }
    }
}
