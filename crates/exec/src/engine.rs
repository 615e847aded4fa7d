//! The step loop: a plan, its memory and its kernels. After it is made, a step allocates nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memfit_ir::{Donation, Fold, Replica, TensorType, ValueId};
use memfit_plan::validate::validate;
use memfit_plan::{Launch, Phase, Place, Plan, Program, Segment};

use crate::arena::{Arena, Tenancy, Tenant, Transient};
use crate::error::ExecError;
use crate::exchange::{self, Exchange};
use crate::executor::Executor;
use crate::host_memory::Growth;
use crate::indices::Indices;
use crate::inputs::{RunInputs, TensorView};
use crate::recorder::{LaunchId, Recorder, StepEvent, now};
use crate::states::States;
use crate::wire::{Farewell, Wire};

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
    /// How each program is run the next time. Before the memory: what was captured is given back first.
    runs: Mutex<Vec<Run<E::Captured>>>,
    pub(crate) executor: E,
    pub(crate) states: Mutex<States<E::Memory>>,
    pub(crate) transient: Transient<E::Memory>,
    pub(crate) tenant: Tenant,
    pub(crate) plan: Plan,
    /// Kernels of each program, in order.
    kernels: Vec<Vec<E::Kernel>>,
    /// What stands between them, in order.
    exchanges: Vec<Vec<Exchange>>,
    /// To the other replicas.
    connection: Mutex<Connection>,
    /// For each of the replica's lanes, what is done with its sum.
    schedule: Vec<Vec<Fold>>,
    /// Outputs that are read together; kept, so that reading allocates once.
    read_together: Mutex<Vec<(Place, Range<usize>)>>,
    /// Inputs of each program that are indices.
    pub(crate) indices: Vec<Vec<Indices>>,
    pub(crate) options: Options,
    /// Who is told of every step.
    recorder: Option<Arc<Recorder>>,
}

/// The way to the other replicas.
#[derive(Default)]
struct Connection {
    wire: Option<Box<dyn Wire>>,
    /// Room for what is exchanged, where the device has memory of its own.
    staging: Vec<u8>,
    /// Room for a word of each.
    words: Vec<u64>,
}

/// How a program is run.
enum Run<C> {
    /// One by one, which compiles what is left to be compiled.
    First,
    /// It is captured, if the device does that.
    Second,
    Replay(C),
    OneByOne,
}

/// Who is told of launches.
enum Watch<'a> {
    Nobody,
    /// When each began and ended.
    Recorder(&'a Recorder),
    /// The time of each, which ends before the next one starts.
    Observer(&'a mut dyn FnMut(&Program, &Launch, Duration)),
}

/// All ones: NaN in every float type.
const POISON: u8 = 0xff;

impl<E: Executor> Engine<E> {
    /// Takes memory and compiles every kernel. States are not set yet: see [`Engine::init`].
    pub fn new(executor: E, plan: Plan, options: Options) -> Result<Self, ExecError> {
        check_plan(&executor, &plan)?;
        // Both or none, so that a limit is met before anything is allocated.
        executor.device().check_room(&options.holder("the arena"), plan.device_bytes())?;
        // Before memory is taken: what a device cannot compile is known then.
        let kernels = compile(&executor, &plan)?;
        let holder = options.holder("activations");
        let transient = Transient::new(&executor, &holder, plan.transient_bytes, options.growth)?;
        Engine::join(executor, plan, kernels, options, transient)
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
        let kernels = compile(&executor, &plan)?;
        Engine::join(executor, plan, kernels, options, transient.clone())
    }

    fn join(
        mut executor: E,
        plan: Plan,
        kernels: Vec<Vec<E::Kernel>>,
        options: Options,
        transient: Transient<E::Memory>,
    ) -> Result<Self, ExecError> {
        executor.take_staging(&options.holder("copies"), &plan)?;
        let memory = executor.allocate(&options.holder("weights"), plan.state_bytes, options.growth)?;
        let states = Mutex::new(States::new(memory, plan.states.len()));
        let runs = Mutex::new(plan.programs.iter().map(|_| Run::First).collect());
        let indices = plan.programs.iter().map(|p| Indices::of(&p.graph)).collect();
        let exchanges = plan.programs.iter().map(Exchange::all).collect();
        let (connection, schedule) = (Mutex::default(), plan.replica.schedule());
        let (tenant, recorder) = (Tenant::new(), None);
        Ok(Engine {
            runs,
            executor,
            states,
            transient,
            tenant,
            plan,
            kernels,
            exchanges,
            connection,
            schedule,
            read_together: Mutex::default(),
            indices,
            options,
            recorder,
        })
    }

    /// Connects it to the other replicas that its plan is made for.
    pub fn connect(&mut self, wire: Box<dyn Wire>) -> Result<(), ExecError> {
        let Replica { count, rank, .. } = self.plan.replica;
        let (given_rank, given_count) = (wire.rank(), wire.size());
        if (rank, count) != (given_rank, given_count) {
            return Err(ExecError::WrongWire { rank, count, given_rank, given_count });
        }
        let has_own_memory = self.executor.host_base(&mut self.states().memory).is_none();
        let staging = if has_own_memory { exchange::staging_bytes(&self.plan) as usize } else { 0 };
        self.connection = Mutex::new(Connection { wire: Some(wire), staging: vec![0; staging], words: vec![0; count] });
        Ok(())
    }

    /// Says something to all replicas, and gives what they say, taken together bit by bit. All have to ask at the same time.
    pub fn agree(&self, word: u64) -> Result<u64, ExecError> {
        let Replica { rank, count, .. } = self.plan.replica;
        if count == 1 {
            return Ok(word);
        }
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Connection { wire, words, .. } = &mut *connection;
        let wire = wire.as_mut().ok_or(ExecError::NotConnected { rank, count })?;
        let said = wire.all_gather(&word.to_ne_bytes(), bytemuck::cast_slice_mut(words));
        said.map_err(|source| ExecError::Wire { layer: String::new(), source })?;
        Ok(words.iter().fold(0, |all, word| all | word))
    }

    /// What every replica sends, in the order of their ranks. All have to ask at the same time, with as many bytes.
    pub fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), ExecError> {
        if self.plan.replica.count == 1 {
            receive.copy_from_slice(send);
            return Ok(());
        }
        let failed = |source| ExecError::Wire { layer: String::new(), source };
        self.with_wire(|wire| wire.all_gather(send, receive).map_err(failed))
    }

    /// Goes for good, and tells the other replicas why: whoever waits for this one, now or later, gets
    /// [`WireError::Left`](crate::WireError::Left). Nothing where it is alone.
    pub fn leave(&self, why: Farewell) {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wire) = &mut connection.wire {
            wire.leave(why);
        }
    }

    /// Does something over the connection to the other replicas.
    pub(crate) fn with_wire<T>(
        &self,
        exchange: impl FnOnce(&mut dyn Wire) -> Result<T, ExecError>,
    ) -> Result<T, ExecError> {
        let Replica { rank, count, .. } = self.plan.replica;
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let wire = connection.wire.as_mut().ok_or(ExecError::NotConnected { rank, count })?;
        exchange(&mut **wire)
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
        self.recorder = recorder.inspect(|recorder| recorder.set_clock(self.executor.kernel_clock()));
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
        let ran = self.run_step(&whole, Some(&recorder));
        // Also after a failure: what is not told now would be told of the next step.
        let told = self.executor.tell_recorded(&recorder);
        ran.and(told)?;
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
            for (lane, folds) in engine.schedule.iter().enumerate() {
                engine.clear_sums(arena)?;
                for part in lane * engine.plan.leaves()..(lane + 1) * engine.plan.leaves() {
                    engine.run_program(arena, Phase::Accumulate, &RunInputs { part, ..*whole }, watch())?;
                }
                for &fold in folds {
                    let nothing = RunInputs { tensors: &[], ..*whole };
                    engine.run_program(arena, Phase::Fold(fold), &nothing, watch())?;
                }
            }
            engine.run_program(arena, Phase::Apply, &RunInputs { tensors: &[], ..*whole }, watch())
        })
    }

    /// Sets the sums over the micro-batches of a lane to zero. What is kept of other lanes stays.
    fn clear_sums(&self, arena: &mut Arena<E::Memory>) -> Result<(), ExecError> {
        let program = &self.plan.programs[self.index(Phase::Accumulate)?];
        for Donation { old, .. } in &program.graph.donations {
            if let Some(place) = program.place(*old) {
                self.executor.fill(arena.segment_mut(place), place, 0);
            }
        }
        Ok(())
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
    /// filled up with the last of them, and so are the results. Inputs that are `absent` are zero: for whoever reads what does
    /// not depend on them.
    pub fn eval(
        &mut self,
        inputs: &[(&str, TensorView)],
        absent: &[String],
        rows: Range<usize>,
    ) -> Result<(), ExecError> {
        let index = self.index(Phase::Eval)?;
        self.in_turn(|engine, arena| {
            engine.stage_rows(arena, index, inputs, absent, rows)?;
            engine.launch(arena, index, 0, Watch::Nobody)
        })
    }

    /// Runs the kernels of a program whose inputs are there: as a whole, where nobody looks at them one by one.
    fn launch(&self, arena: &mut Arena<E::Memory>, index: usize, part: usize, watch: Watch) -> Result<(), ExecError> {
        // What is captured runs as a whole, and replicas meet in between.
        let is_watched = self.options.poison || !self.exchanges[index].is_empty() || !matches!(watch, Watch::Nobody);
        if is_watched || !self.replay(arena, index)? {
            self.launch_each(arena, index, part, watch)?;
        }
        self.executor.end_run()
    }

    /// Runs a program as a whole, from its second run on; false if it is to be run kernel by kernel.
    fn replay(&self, arena: &mut Arena<E::Memory>, index: usize) -> Result<bool, ExecError> {
        let run = &mut self.runs.lock().unwrap_or_else(PoisonError::into_inner)[index];
        match run {
            Run::First => *run = Run::Second,
            Run::Second => {
                let captured = self.executor.capture(&self.kernels[index], arena)?;
                *run = captured.map_or(Run::OneByOne, Run::Replay);
            }
            Run::Replay(_) | Run::OneByOne => {}
        }
        match run {
            Run::Replay(captured) => self.executor.replay(captured).map(|()| true),
            Run::First | Run::Second | Run::OneByOne => Ok(false),
        }
    }

    fn launch_each(
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
        let (mut kernels, mut exchanges) = (self.kernels[index].iter(), self.exchanges[index].iter().peekable());
        for (number, launch) in program.launches.iter().enumerate() {
            let id = LaunchId { program: index as u16, micro_batch: part as u32, launch: number as u32 };
            if let Some(exchange) = exchanges.next_if(|e| e.launch == number) {
                self.exchange(arena, exchange, id, &mut watch)?;
                self.poison(arena, program, launch);
                continue;
            }
            let Some(kernel) = kernels.next() else { continue };
            let failed = |problem| {
                let root = program.graph.node(launch.group.root());
                ExecError::Data { op: root.op.name(), layer: root.scope.clone(), problem }
            };
            match &mut watch {
                Watch::Nobody => self.executor.launch(kernel, arena).map_err(failed)?,
                Watch::Recorder(recorder) => {
                    self.executor.launch_recorded(kernel, arena, id, recorder).map_err(failed)?;
                }
                Watch::Observer(observe) => {
                    let start = Instant::now();
                    self.executor.launch(kernel, arena).map_err(failed)?;
                    self.executor.wait()?;
                    observe(program, launch, start.elapsed());
                }
            }
            self.poison(arena, program, launch);
        }
        Ok(())
    }

    /// Fills what is dead after a launch with NaN, if that is asked for.
    fn poison(&self, arena: &mut Arena<E::Memory>, program: &Program, launch: &Launch) {
        if self.options.poison {
            let dead = launch.dies.iter().filter_map(|&v| program.place(v)).chain(launch.scratch);
            dead.for_each(|place| self.executor.fill(arena.segment_mut(place), place, POISON));
        }
    }

    /// Meets the other replicas, once all that was launched before has run.
    fn exchange(
        &self,
        arena: &mut Arena<E::Memory>,
        exchange: &Exchange,
        id: LaunchId,
        watch: &mut Watch,
    ) -> Result<(), ExecError> {
        let Replica { rank, count, .. } = self.plan.replica;
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Connection { wire, staging, .. } = &mut *connection;
        let wire = wire.as_mut().ok_or(ExecError::NotConnected { rank, count })?;
        self.executor.wait()?;
        let (begin, start) = (now(), Instant::now());
        exchange.run(&self.executor, arena, &mut **wire, staging)?;
        match watch {
            Watch::Nobody => {}
            Watch::Recorder(recorder) => recorder.kernel(id, [(0, begin, now())]),
            Watch::Observer(observe) => {
                let program = &self.plan.programs[id.program as usize];
                observe(program, &program.launches[exchange.launch], start.elapsed());
            }
        }
        Ok(())
    }

    fn index(&self, phase: Phase) -> Result<usize, ExecError> {
        self.plan.programs.iter().position(|p| p.phase == phase).ok_or(ExecError::NoPhase(phase))
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

    /// The place of an output that is copied to so many bytes.
    fn output_of(&self, phase: Phase, name: &str, bytes: usize) -> Result<Place, ExecError> {
        let (program, v, place) = self.output_place(phase, name)?;
        if bytes as u64 != place.size {
            return Err(ExecError::OutputLength { name: name.into(), ty: program.graph.ty(v).clone(), bytes });
        }
        Ok(place)
    }

    /// Copies an output of the program that ran last; the buffer must have its size.
    pub fn read_output(&self, phase: Phase, name: &str, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.read_place(name, self.output_of(phase, name, bytes.len())?, bytes)
    }

    /// The same of several outputs, each to its part of `room`, which must have its size. A device that works on its own is
    /// waited for once.
    pub fn read_outputs(
        &self,
        phase: Phase,
        outputs: &[(impl AsRef<str>, Range<usize>)],
        room: &mut [u8],
    ) -> Result<(), ExecError> {
        let mut places = self.read_together.lock().unwrap_or_else(PoisonError::into_inner);
        places.clear();
        for (name, part) in outputs {
            let place = self.output_of(phase, name.as_ref(), part.len())?;
            match place.segment {
                Segment::Transient => places.push((place, part.clone())),
                // States may be there on paper only.
                Segment::State => self.read_place(name.as_ref(), place, &mut room[part.clone()])?,
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        let name = outputs.first().map_or("", |(name, _)| name.as_ref());
        let transient = self.last_run(name)?;
        self.executor.read_all(&transient.memory, &places, room)
    }

    /// The outputs of a step that are single numbers, by name: where [`Engine::keep`] finds them.
    pub fn numbers(&self) -> Vec<(String, Place)> {
        let Some(program) = self.plan.program(self.loss_phase()) else { return Vec::new() };
        let outputs = program.graph.outputs.iter().filter(|(_, v)| *program.graph.ty(*v) == TensorType::f32([]));
        outputs.filter_map(|(name, v)| Some((name.clone(), program.place(*v)?))).collect()
    }

    /// Puts the first word of each of these places aside, as the program that ran last left them, without waiting for it.
    /// False, and nothing is put aside, where reading waits for nothing: see [`Engine::read_words`].
    pub fn keep(&self, places: &[Place]) -> Result<bool, ExecError> {
        self.with_last_run(|engine, arena| engine.executor.keep(arena, places))?
    }

    /// The words that were put aside longest ago, of which no more than two are kept. Waits until they are there.
    pub fn kept(&self, words: &mut [u32]) -> Result<(), ExecError> {
        self.executor.kept(words)
    }

    /// The first word of each of these places, once the program that ran last has ended.
    pub fn read_words(&self, places: &[Place], words: &mut [u32]) -> Result<(), ExecError> {
        self.with_last_run(|engine, arena| {
            places.iter().zip(words).try_for_each(|(&place, word)| {
                engine.executor.read(arena.segment(place), place, bytemuck::bytes_of_mut(word))
            })
        })?
    }

    /// The memory in which the last run left an output, unless another model has run there since.
    pub(crate) fn last_run(&self, output: &str) -> Result<MutexGuard<'_, Tenancy<E::Memory>>, ExecError> {
        let turn = self.transient.lock();
        if turn.last == Some(self.tenant) { Ok(turn) } else { Err(ExecError::Gone { name: output.into() }) }
    }

    /// Looks at what the last run left, unless another model has run in the same memory since.
    fn with_last_run<T>(&self, look: impl FnOnce(&Self, &mut Arena<E::Memory>) -> T) -> Result<T, ExecError> {
        let mut states = self.set_states();
        let mut turn = self.last_run("loss")?;
        Ok(look(self, &mut Arena { state: &mut states.memory, transient: &mut turn.memory }))
    }

    pub fn output(&self, phase: Phase, name: &str) -> Result<Vec<u8>, ExecError> {
        let (_, _, place) = self.output_place(phase, name)?;
        let mut bytes = vec![0; place.size as usize];
        self.read_place(name, place, &mut bytes)?;
        Ok(bytes)
    }
}

/// The kernels of each program, in order.
fn compile<E: Executor>(executor: &E, plan: &Plan) -> Result<Vec<Vec<E::Kernel>>, ExecError> {
    let is_kernel = |p: &Program, s: &Launch| !p.graph.node(s.group.root()).op.is_exchange();
    let program = |p: &Program| p.launches.iter().filter(|s| is_kernel(p, s)).map(|s| executor.compile(p, s)).collect();
    plan.programs.iter().map(program).collect()
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
