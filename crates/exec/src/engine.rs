//! The step loop: a plan, its memory and its kernels. After it is made, a step allocates nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use memfit_ir::op::{CLOCK, LEARNING_RATE, StateClass, has_row_per_sample};
use memfit_ir::{DType, TensorType, ValueId};
use memfit_plan::validate::validate;
use memfit_plan::{Launch, Phase, Place, Plan, Program};

use crate::arena::{Arena, Tenant, Transient};
use crate::error::ExecError;
use crate::executor::Executor;
use crate::host_memory::Growth;
use crate::recorder::{LaunchId, Recorder, StepEvent, now};
use crate::states::States;

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

/// When a step happens: what randomness and bias correction depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clock {
    /// Counted from 0.
    pub step: u32,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// Who holds the memory, as others see it: the name of the model.
    pub name: String,
    pub growth: Growth,
    /// Fill every buffer with NaN at its planned death: a value that is read too late poisons the weights.
    pub poison: bool,
}

impl Options {
    /// Who holds some memory of the model.
    fn holder(&self, what: &str) -> String {
        if self.name.is_empty() { what.to_string() } else { format!("{what} of {}", self.name) }
    }
}

/// A planned model with its memory, on one executor.
pub struct Engine<E: Executor> {
    pub(crate) executor: E,
    pub(crate) states: Mutex<States<E::Memory>>,
    pub(crate) transient: Transient<E::Memory>,
    pub(crate) tenant: Tenant,
    pub(crate) plan: Plan,
    /// Kernels of each program, in order.
    kernels: Vec<Vec<E::Kernel>>,
    pub(crate) options: Options,
    /// Who is told of every step.
    recorder: Option<Arc<Recorder>>,
}

/// Who is told of launches.
enum Watch<'a> {
    Nobody,
    /// When each began and ended.
    Recorder(&'a Recorder),
    /// The time of each, which ends before the next one starts.
    Observer(&'a mut dyn FnMut(&Program, &Launch, Duration)),
}

/// What one run of a program is given.
#[derive(Clone, Copy)]
struct RunInputs<'a> {
    /// Of the whole batch, by name.
    tensors: &'a [(&'a str, TensorView<'a>)],
    lr: f32,
    clock: Clock,
    /// Which micro-batch of it, counted from 0.
    part: usize,
}

/// All ones: NaN in every float type.
const POISON: u8 = 0xff;

impl<E: Executor> Engine<E> {
    /// Takes memory and compiles every kernel. States are not set yet: see [`Engine::init`].
    pub fn new(executor: E, plan: Plan, options: Options) -> Result<Self, ExecError> {
        check_plan(&executor, &plan)?;
        // Both or none, so that a limit is met before anything is allocated.
        executor.device().check_room(&options.holder("the arena"), plan.arena_bytes())?;
        let holder = options.holder("activations");
        let transient = Transient::new(&executor, &holder, plan.transient_bytes, options.growth)?;
        Engine::join(executor, plan, options, transient)
    }

    /// The same in a transient segment that other engines run in too, in turns.
    pub fn sharing(
        executor: E,
        plan: Plan,
        options: Options,
        transient: &Transient<E::Memory>,
    ) -> Result<Self, ExecError> {
        check_plan(&executor, &plan)?;
        let (needed, given) = (plan.transient_bytes, transient.bytes());
        if needed > given {
            return Err(ExecError::SharedTooSmall { needed, given });
        }
        Engine::join(executor, plan, options, transient.clone())
    }

    fn join(executor: E, plan: Plan, options: Options, transient: Transient<E::Memory>) -> Result<Self, ExecError> {
        let memory = executor.allocate(&options.holder("weights"), plan.state_bytes, options.growth)?;
        let states = Mutex::new(States::new(memory, plan.states.len()));
        let compile = |p: &Program| p.launches.iter().map(|s| executor.compile(p, s)).collect::<Result<Vec<_>, _>>();
        let kernels = plan.programs.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Engine { executor, states, transient, tenant: Tenant::new(), plan, kernels, options, recorder: None })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// The transient segment, which other engines may share.
    pub fn transient(&self) -> &Transient<E::Memory> {
        &self.transient
    }

    /// From now on tells of every training step and its kernels; or of none any more.
    pub fn record(&mut self, recorder: Option<Arc<Recorder>>) {
        self.recorder = recorder;
    }

    /// Bytes of both segments in pages that the system holds; none where the device does not say.
    pub fn resident_bytes(&self) -> Option<u64> {
        let states = self.executor.resident_bytes(&self.set_states().memory)?;
        Some(states + self.transient.look(|memory| self.executor.resident_bytes(memory))?)
    }

    // ---- running -----------------------------------------------------------------------------------------------------

    /// One training step on a whole batch; in micro-batches if the plan says so. The loss is the output "loss" of the
    /// phase that [`Engine::loss_phase`] names.
    pub fn step(&mut self, inputs: &[(&str, TensorView)], lr: f32, clock: Clock) -> Result<(), ExecError> {
        let whole = RunInputs { tensors: inputs, lr, clock, part: 0 };
        let Some(recorder) = self.recorder.clone() else { return self.run_step(&whole, None) };
        let (first_kernel, begin) = (recorder.kernel_count(), now());
        self.run_step(&whole, Some(&recorder))?;
        let (end, resident_bytes) = (now(), self.resident_bytes());
        recorder.step(StepEvent { step: clock.step, begin, end, first_kernel, resident_bytes });
        Ok(())
    }

    fn run_step(&self, whole: &RunInputs, recorder: Option<&Recorder>) -> Result<(), ExecError> {
        let watch = || recorder.map_or(Watch::Nobody, Watch::Recorder);
        self.in_turn(|engine, arena| {
            if engine.plan.program(Phase::Step).is_some() {
                return engine.run_program(arena, Phase::Step, whole, watch());
            }
            for slot in engine.plan.states.iter().filter(|s| s.class == StateClass::Accumulator) {
                engine.executor.fill(arena.segment_mut(slot.place), slot.place, 0);
            }
            for part in 0..engine.plan.accumulate() {
                engine.run_program(arena, Phase::Accumulate, &RunInputs { part, ..*whole }, watch())?;
            }
            engine.run_program(arena, Phase::Apply, &RunInputs { tensors: &[], ..*whole }, watch())
        })
    }

    /// Runs something that nobody else runs meanwhile in the same memory.
    fn in_turn<T>(&self, run: impl FnOnce(&Self, &mut Arena<E::Memory>) -> T) -> T {
        let mut states = self.set_states();
        let mut turn = self.transient.lock();
        turn.last = Some(self.tenant);
        run(self, &mut Arena { state: &mut states.memory, transient: &mut turn.memory })
    }

    /// The phase whose output "loss" is the loss of the whole step.
    pub fn loss_phase(&self) -> Phase {
        if self.plan.program(Phase::Step).is_some() { Phase::Step } else { Phase::Apply }
    }

    /// The loss of the step that ran last.
    pub fn loss(&self) -> Result<f32, ExecError> {
        let mut loss = [0f32; 1];
        self.read_output(self.loss_phase(), "loss", bytemuck::cast_slice_mut(&mut loss))?;
        Ok(loss[0])
    }

    /// Runs one program once. On a device that works on its own it may still run when this returns; reading an output
    /// waits for it.
    pub fn run(&mut self, phase: Phase, inputs: &[(&str, TensorView)], lr: f32, clock: Clock) -> Result<(), ExecError> {
        let inputs = RunInputs { tensors: inputs, lr, clock, part: 0 };
        self.in_turn(|engine, arena| engine.run_program(arena, phase, &inputs, Watch::Nobody))
    }

    /// Runs one program once and reports the time of every launch, each of which ends before the next one starts.
    pub fn run_observed(
        &mut self,
        phase: Phase,
        inputs: &[(&str, TensorView)],
        lr: f32,
        clock: Clock,
        mut observe: impl FnMut(&Program, &Launch, Duration),
    ) -> Result<(), ExecError> {
        let inputs = RunInputs { tensors: inputs, lr, clock, part: 0 };
        self.in_turn(|engine, arena| engine.run_program(arena, phase, &inputs, Watch::Observer(&mut observe)))
    }

    fn run_program(
        &self,
        arena: &mut Arena<E::Memory>,
        phase: Phase,
        inputs: &RunInputs,
        watch: Watch,
    ) -> Result<(), ExecError> {
        let index = self.index(phase)?;
        self.stage(arena, index, inputs)?;
        self.launch(arena, index, inputs.part, watch)
    }

    /// Evaluates some rows of a batch of any size, at most a micro-batch of them. What they leave of the micro-batch is
    /// filled up with the last of them, and so are the results.
    pub fn eval(&mut self, inputs: &[(&str, TensorView)], rows: Range<usize>) -> Result<(), ExecError> {
        let index = self.index(Phase::Eval)?;
        self.in_turn(|engine, arena| {
            engine.stage_rows(arena, index, inputs, rows)?;
            engine.launch(arena, index, 0, Watch::Nobody)
        })
    }

    /// Runs the kernels of a program whose inputs are there.
    fn launch(
        &self,
        arena: &mut Arena<E::Memory>,
        index: usize,
        part: usize,
        mut watch: Watch,
    ) -> Result<(), ExecError> {
        if let Watch::Observer(_) = watch {
            // What was staged is not the first launch's time.
            self.executor.wait()?;
        }
        let program = &self.plan.programs[index];
        for (number, (launch, kernel)) in program.launches.iter().zip(&self.kernels[index]).enumerate() {
            let failed = |problem| {
                let root = program.graph.node(launch.group.root());
                ExecError::Data { op: root.op.name(), layer: root.scope.clone(), problem }
            };
            match &mut watch {
                Watch::Nobody => self.executor.launch(kernel, arena).map_err(failed)?,
                Watch::Recorder(recorder) => {
                    let id = LaunchId { program: index as u16, micro_batch: part as u32, launch: number as u32 };
                    self.executor.launch_recorded(kernel, arena, id, recorder).map_err(failed)?;
                }
                Watch::Observer(observe) => {
                    let start = Instant::now();
                    self.executor.launch(kernel, arena).map_err(failed)?;
                    self.executor.wait()?;
                    observe(program, launch, start.elapsed());
                }
            }
            if self.options.poison {
                let dead = launch.dies.iter().filter_map(|&v| program.place(v)).chain(launch.scratch);
                dead.for_each(|place| self.executor.fill(arena.segment_mut(place), place, POISON));
            }
        }
        Ok(())
    }

    fn index(&self, phase: Phase) -> Result<usize, ExecError> {
        self.plan.programs.iter().position(|p| p.phase == phase).ok_or(ExecError::NoPhase(phase))
    }

    /// Copies the inputs of a program into its segment; of a whole batch, the rows of the micro-batch.
    fn stage(&self, arena: &mut Arena<E::Memory>, index: usize, inputs: &RunInputs) -> Result<(), ExecError> {
        let RunInputs { tensors, lr, clock, part } = *inputs;
        let program = &self.plan.programs[index];
        let parts = if program.phase == Phase::Accumulate { self.plan.accumulate() } else { 1 };
        check_known(&self.plan, program, tensors)?;
        let first_sample = (part * self.plan.micro_batch) as i32;
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
            self.executor.write(arena.segment_mut(place), place, 0, bytes);
        }
        Ok(())
    }

    /// Whether an input has a row for each sample of a micro-batch.
    fn has_rows(&self, name: &str, ty: &TensorType) -> bool {
        has_row_per_sample(name, &ty.shape, self.plan.micro_batch)
    }

    /// Copies the given rows of each input, and then the last of them again until its place is full.
    fn stage_rows(
        &self,
        arena: &mut Arena<E::Memory>,
        index: usize,
        inputs: &[(&str, TensorView)],
        rows: Range<usize>,
    ) -> Result<(), ExecError> {
        let program = &self.plan.programs[index];
        check_known(&self.plan, program, inputs)?;
        for (name, v) in program.graph.inputs() {
            let Some(place) = program.place(v) else { continue };
            let ty = program.graph.ty(v);
            match inputs.iter().find(|(n, _)| *n == name) {
                Some((_, tensor)) if !self.has_rows(name, ty) => {
                    self.executor.write(arena.segment_mut(place), place, 0, whole_tensor(name, ty, tensor)?);
                }
                Some((_, tensor)) => {
                    let (bytes, row) = rows_in_range(name, ty, tensor, &rows)?;
                    self.executor.write(arena.segment_mut(place), place, 0, bytes);
                    for offset in (bytes.len() as u64..place.size).step_by(row.len().max(1)) {
                        self.executor.write(arena.segment_mut(place), place, offset, row);
                    }
                }
                // Evaluation has neither a time nor a learning rate.
                None if name == CLOCK || name == LEARNING_RATE => {
                    self.executor.fill(arena.segment_mut(place), place, 0)
                }
                None => return Err(missing(program, name, ty)),
            }
        }
        Ok(())
    }

    // ---- outputs -----------------------------------------------------------------------------------------------------

    fn output_place(&self, phase: Phase, name: &str) -> Result<(&Program, ValueId, Place), ExecError> {
        let program = &self.plan.programs[self.index(phase)?];
        let unknown = || ExecError::Unknown { what: "output", name: name.into() };
        let v = program.graph.output(name).ok_or_else(unknown)?;
        Ok((program, v, program.place(v).ok_or_else(unknown)?))
    }

    pub fn output_type(&self, phase: Phase, name: &str) -> Result<&TensorType, ExecError> {
        let (program, v, _) = self.output_place(phase, name)?;
        Ok(program.graph.ty(v))
    }

    /// Copies an output of the program that ran last; the buffer must have its size.
    pub fn read_output(&self, phase: Phase, name: &str, bytes: &mut [u8]) -> Result<(), ExecError> {
        let (program, v, place) = self.output_place(phase, name)?;
        if bytes.len() as u64 != place.size {
            let ty = program.graph.ty(v).clone();
            return Err(ExecError::OutputLength { name: name.into(), ty, bytes: bytes.len() });
        }
        self.read_place(name, place, bytes)
    }

    pub fn output(&self, phase: Phase, name: &str) -> Result<Vec<u8>, ExecError> {
        let (_, _, place) = self.output_place(phase, name)?;
        let mut bytes = vec![0; place.size as usize];
        self.read_place(name, place, &mut bytes)?;
        Ok(bytes)
    }
}

fn check_plan<E: Executor>(executor: &E, plan: &Plan) -> Result<(), ExecError> {
    for program in &plan.programs {
        let phase = program.phase;
        validate(plan, program, executor.target()).map_err(|problem| {
            let difference = plan.made_elsewhere(executor.target()).map_or(String::new(), |d| format!("{d}: "));
            ExecError::Plan { phase, problem: difference + &problem }
        })?;
    }
    Ok(())
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
