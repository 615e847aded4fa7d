//! A planned model with its state: steps, evaluation, weights. It knows neither data sets nor epochs.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memfit_data::{Example, Tensor};
use memfit_exec::weights::Match;
use memfit_exec::{Clock, Engine, Executor, Farewell, Options, Recorder, TensorView, Wire};
use memfit_ir::op::{CLOCK, LEARNING_RATE, StateClass, has_row_per_sample};
use memfit_ir::{DType, Op};
use memfit_plan::{Phase, Place, Plan, StateSlot};
use memfit_transform::precision::SKIPPED_STEPS;

use crate::error::{Result, TrainError};
use crate::turns::{Ticket, Turn};

/// A planned model on a device: its memory, its weights, and one training step at a time.
///
/// ```
/// use memfit_exec::{Executor, TensorView};
/// use memfit_exec_cpu::CpuExecutor;
/// use memfit_nn::{Model, Optimizer, zoo::Mlp};
/// use memfit_plan::{Request, plan};
/// use memfit_train::{Session, programs};
/// use memfit_transform::Training;
///
/// let cpu = CpuExecutor::new(1)?;
/// let model = Mlp::new(4, &[8], 3);
/// let training = Training::new(Optimizer::adam().update);
/// let plan = plan(&|rows| programs(&model, &training, 8, rows), cpu.target(), &Request::new(8))?;
/// let mut session = Session::new(cpu, plan, 1)?;
///
/// let (x, y) = (vec![0.5f32; 8 * 4], vec![1i32; 8]);
/// let batch = [("x", TensorView::f32(&[8, 4], &x)), ("y", TensorView::i32(&[8], &y))];
/// let first = session.step(&batch, 1e-2)?;
/// let second = session.step(&batch, 1e-2)?;
/// assert!(second < first);
/// assert_eq!(session.output("loss")?, second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session<E: Executor> {
    pub(crate) engine: Engine<E>,
    /// The number of the next one.
    pub(crate) step: u32,
    pub(crate) seed: u64,
    numbers: Numbers,
    /// Where others have the device too.
    turns: Turns,
    /// For its turn, before the last step.
    waited: Duration,
}

/// The single numbers that steps give, and who has seen them.
struct Numbers {
    /// Of the outputs, in the order of their places.
    names: Vec<String>,
    /// Of all of them; behind the outputs, the count of skipped steps where there is one.
    places: Vec<Place>,
    /// What was looked at last, or is there to be looked at.
    words: Vec<u32>,
    /// Whether the words are those of the step that was looked at last.
    is_seen: bool,
    /// Steps that were started and not looked at.
    unseen: usize,
    /// Whether the device keeps them meanwhile.
    is_kept: bool,
}

/// Steps whose numbers a device keeps at a time.
const KEPT: usize = 2;

impl<E: Executor> Session<E> {
    /// Takes the memory of the plan and sets every state to its initial value.
    pub fn new(executor: E, plan: Plan, seed: u64) -> Result<Self> {
        Session::with_options(executor, plan, seed, Options::default())
    }

    /// The same with options of the engine: how memory is committed, what it is called among the device's holders.
    pub fn with_options(executor: E, plan: Plan, seed: u64, options: Options) -> Result<Self> {
        Session::start(Engine::new(executor, plan, options)?, seed)
    }

    /// With the memory that an engine has, every state at its initial value.
    pub fn start(mut engine: Engine<E>, seed: u64) -> Result<Self> {
        engine.init(seed)?;
        Ok(Session::at(engine, 0, seed))
    }

    pub(crate) fn at(engine: Engine<E>, step: u32, seed: u64) -> Self {
        let numbers = Numbers::new(&engine);
        Session { engine, step, seed, numbers, turns: Turns::default(), waited: Duration::ZERO }
    }

    /// From now on takes its turns with others on the same device: a step, or the evaluation of a micro-batch, at a time.
    pub fn take_turns(&mut self, ticket: Ticket) {
        self.turns = Turns { ticket: Some(ticket), device: None };
    }

    /// The same for one of several replicas, whose devices others have too: the first one has the ticket, and a step is the turn of
    /// all of them, so that no two models wait for each other's devices. Whoever computes on this one's device has its lock.
    pub fn take_turns_together(&mut self, ticket: Option<Ticket>, device: Arc<Mutex<()>>) {
        self.turns = Turns { ticket, device: Some(device) };
    }

    /// Connects it to the other replicas that train with it, each on its part of a batch: see [`Plan::rows`]. With the same lanes,
    /// any number of replicas ends in the same bits.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use memfit_exec::{Executor, TensorView, ThreadWire, thread_wires};
    /// use memfit_exec_cpu::CpuExecutor;
    /// use memfit_ir::Replica;
    /// use memfit_nn::{Optimizer, zoo::Mlp};
    /// use memfit_plan::{Request, plan};
    /// use memfit_train::{Session, replica_programs};
    /// use memfit_transform::{Exchange, Training};
    ///
    /// // One replica of so many, which share batches of 8 in 4 lanes.
    /// fn train(count: usize, wire: ThreadWire) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    ///     let (model, training) = (Mlp::new(4, &[8], 3), Training::new(Optimizer::adam().update));
    ///     let replica = Replica { lanes: 4, count, rank: memfit_exec::Wire::rank(&wire) };
    ///     let request = Request { exchange: Exchange { replica, ..Exchange::ALONE }, ..Request::new(8) };
    ///     let cpu = CpuExecutor::new(1)?;
    ///     let programs = |rows: usize| replica_programs(&model, &training, 8, rows, &request.exchange);
    ///     let plan = plan(&programs, cpu.target(), &request)?;
    ///     let mut session = Session::new(cpu, plan, 1)?;
    ///     session.connect(Box::new(wire))?;
    ///     let rows = session.plan().rows();
    ///     let (x, y): (Vec<f32>, Vec<i32>) = rows.clone().map(|row| (row as f32, row as i32 % 3)).unzip();
    ///     let x: Vec<f32> = x.into_iter().flat_map(|x| [x, 1.0, -x, 0.5]).collect();
    ///     let (of_x, of_y) = ([rows.len(), 4], [rows.len()]);
    ///     let batch = [("x", TensorView::f32(&of_x, &x)), ("y", TensorView::i32(&of_y, &y))];
    ///     (0..3).try_for_each(|_| session.step(&batch, 1e-2).map(drop))?;
    ///     Ok(session.weight("fc1/weight")?)
    /// }
    ///
    /// let together = |count: usize| std::thread::scope(|scope| {
    ///     let wires = thread_wires(count, Duration::from_secs(60)).into_iter();
    ///     let threads: Vec<_> = wires.map(|wire| scope.spawn(move || train(count, wire))).collect();
    ///     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    /// });
    /// let alone = together(1)?;
    /// assert!(together(3)?.iter().all(|weights| *weights == alone[0]));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn connect(&mut self, wire: Box<dyn Wire>) -> Result<()> {
        Ok(self.engine.connect(wire)?)
    }

    /// Goes for good, and tells the others why, who then come to an end too: for whoever has met an error, and will not train on.
    pub fn leave(&self, why: Farewell) {
        self.engine.leave(why);
    }

    /// Whether it trains with others.
    pub(crate) fn has_others(&self) -> bool {
        self.plan().replica.has_others()
    }

    /// Whether others update parameters for it, and keep what that takes.
    pub(crate) fn has_part_of_states(&self) -> bool {
        has_part_of_states(self.plan())
    }

    /// Whether the first replica writes checkpoints and needs the states of the others for that; each says whether it has a folder.
    pub(crate) fn first_saves(&self, has_folder: bool) -> Result<bool> {
        if self.has_part_of_states() { Ok(self.agree(u64::from(has_folder))? != 0) } else { Ok(false) }
    }

    /// What all replicas say, taken together bit by bit.
    pub(crate) fn agree(&self, word: u64) -> Result<u64> {
        Ok(self.engine.agree(word)?)
    }

    /// What every replica sends, in the order of their ranks: as many bytes each.
    pub(crate) fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<()> {
        Ok(self.engine.all_gather(send, receive)?)
    }

    /// From now on tells of every step and its kernels; or of none any more.
    pub fn record(&mut self, recorder: Option<Arc<Recorder>>) {
        self.engine.record(recorder);
    }

    /// The plan that it runs.
    pub fn plan(&self) -> &Plan {
        self.engine.plan()
    }

    /// What runs it.
    pub fn engine(&self) -> &Engine<E> {
        &self.engine
    }

    /// The number of the next step, which is how many there were.
    pub fn steps(&self) -> u32 {
        self.step
    }

    /// Where all its randomness comes from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// One step on a whole batch; gives its loss, and waits for it. Allocates nothing after the first.
    pub fn step(&mut self, batch: &[(&str, TensorView)], lr: f32) -> Result<f32> {
        self.start_step(batch, lr)?;
        while self.look()? {}
        self.output("loss")
    }

    /// One step on a whole batch, whose numbers are there when [`Session::look`] says so. A device that works on its own is
    /// given the step and left alone: this waits until the step before has ended, so that a batch is staged while the last one
    /// is worked on. Elsewhere the step is over when this returns. Allocates nothing after the first.
    ///
    /// A device keeps the numbers of two steps: of a third one, the oldest are lost to whoever has not looked at them.
    pub fn start_step(&mut self, batch: &[(&str, TensorView)], lr: f32) -> Result<()> {
        let next = self.step.checked_add(1).ok_or(TrainError::TooManySteps)?;
        while self.numbers.unseen >= KEPT {
            self.look()?;
        }
        // What no device keeps is read over what was seen before.
        self.numbers.is_seen &= self.numbers.is_kept;
        let asked = Instant::now();
        let turn = self.turns.step(&self.engine)?;
        self.waited = asked.elapsed();
        self.engine.step(batch, lr, Clock { step: self.step, seed: self.seed })?;
        // Now, because whoever has the next turn may write over them.
        let Numbers { places, words, is_seen, unseen, is_kept, .. } = &mut self.numbers;
        *is_kept = self.engine.keep(places)?;
        if !*is_kept {
            (*is_seen, *unseen) = (false, 0);
            self.engine.read_words(places, words)?;
        }
        *unseen += 1;
        turn.end(&self.engine)?;
        self.step = next;
        Ok(())
    }

    /// Looks at the numbers of the oldest step that nobody has looked at: waits until it has ended, and from then on
    /// [`Session::output`] gives them. False if there is none.
    pub fn look(&mut self) -> Result<bool> {
        let Numbers { words, is_seen, unseen, is_kept, .. } = &mut self.numbers;
        if *unseen == 0 {
            return Ok(false);
        }
        if *is_kept {
            self.engine.kept(words)?;
        }
        *is_seen = true;
        *unseen -= 1;
        Ok(true)
    }

    /// How many steps may go unseen so that looking at those before them waits for nothing: one, where the device works on its
    /// own, and none elsewhere. Known after the first step.
    pub fn lag(&self) -> usize {
        usize::from(self.numbers.is_kept)
    }

    /// How long the last step waited for its turn.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// A number that the last step gave, until the next step: `loss`, the loss of one head as `head/loss` where there are
    /// several, or whatever else the model has as a scalar output. Where steps are looked at later than they are started, it is
    /// one of the step that was looked at last.
    pub fn output(&self, name: &str) -> Result<f32> {
        let Numbers { names, words, is_seen, .. } = &self.numbers;
        let index = names.iter().position(|n| n == name).filter(|_| *is_seen);
        let number = index.map(|i| f32::from_bits(words[i]));
        number.ok_or_else(|| TrainError::NoNumber { name: name.into(), known: names.join(", ") })
    }

    /// How many steps were skipped until the one that was looked at last, it included; none where nothing is ever skipped.
    pub(crate) fn skips_seen(&self) -> Option<i32> {
        let Numbers { names, words, is_seen, .. } = &self.numbers;
        words.get(names.len()).filter(|_| *is_seen).map(|&word| word as i32)
    }

    /// How many steps changed nothing because a gradient was not finite; none where the loss is not scaled, and
    /// nothing is ever skipped.
    pub fn skipped_steps(&self) -> Result<Option<i32>> {
        if !self.weights().any(|s| s.name == SKIPPED_STEPS) {
            return Ok(None);
        }
        let mut counts = [0i32; 4];
        self.engine.read_state_into(SKIPPED_STEPS, bytemuck::cast_slice_mut(&mut counts))?;
        Ok(Some(counts[0]))
    }

    /// Evaluates any number of rows, a micro-batch at a time, and hands `each` the numbers of some rows and what the
    /// output says of them. `room` is for one micro-batch of it: see [`Session::eval_bytes`]. Inputs on which that output does not
    /// depend, such as labels, may be left out.
    pub fn eval(
        &mut self,
        batch: &[(&str, TensorView)],
        output: &str,
        room: &mut [u8],
        mut each: impl FnMut(Range<usize>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = self.eval_bytes(output)?;
        let row_bytes = bytes / self.plan().micro_batch;
        self.eval_outputs(batch, &[(output, 0..bytes)], room, |rows, room| {
            let real = rows.len() * row_bytes;
            each(rows, &room[..real])
        })
    }

    /// What the model says of any number of rows, as numbers: one of its outputs, evaluated a micro-batch at a time. Inputs on
    /// which that output does not depend, such as labels, may be left out.
    ///
    /// ```
    /// # use memfit_exec::{Executor, TensorView};
    /// # use memfit_exec_cpu::CpuExecutor;
    /// # use memfit_nn::{Optimizer, zoo::Mlp};
    /// # use memfit_plan::{Request, plan};
    /// # use memfit_train::{Session, programs};
    /// # use memfit_transform::Training;
    /// #
    /// # let cpu = CpuExecutor::new(1)?;
    /// # let model = Mlp::new(4, &[8], 3);
    /// # let training = Training::new(Optimizer::adam().update);
    /// # let plan = plan(&|rows| programs(&model, &training, 8, rows), cpu.target(), &Request::new(8))?;
    /// # let mut session = Session::new(cpu, plan, 1)?;
    /// let rows = vec![0.5f32; 21 * 4];
    /// let logits = session.predict(&[("x", TensorView::f32(&[21, 4], &rows))], "logits")?;
    /// assert_eq!((&logits.shape[..], logits.numbers.len()), (&[21, 3][..], 63));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn predict(&mut self, inputs: &[(&str, TensorView)], output: &str) -> Result<Prediction> {
        let ty = self.engine.output_type(Phase::Eval, output)?.clone();
        if ty.dtype != DType::F32 {
            return Err(TrainError::NotFloats { name: output.into(), ty });
        }
        let mut room = vec![0; self.eval_bytes(output)?];
        let mut numbers = Vec::new();
        self.eval(inputs, output, &mut room, |_, bytes| {
            numbers.extend(bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)));
            Ok(())
        })?;
        let row: usize = ty.shape[1..].iter().product();
        Ok(Prediction { shape: [&[numbers.len() / row.max(1)], &ty.shape[1..]].concat(), numbers })
    }

    /// The same of several outputs, each of which has its place in the room; what lies there behind the rows that
    /// `each` is told of only fills up the micro-batch.
    pub(crate) fn eval_outputs(
        &mut self,
        batch: &[(&str, TensorView)],
        outputs: &[(impl AsRef<str>, Range<usize>)],
        room: &mut [u8],
        mut each: impl FnMut(Range<usize>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let count = rows(self.plan(), batch)?;
        let absent = absent(self.plan(), batch, outputs);
        for start in (0..count).step_by(self.plan().micro_batch) {
            let rows = start..count.min(start + self.plan().micro_batch);
            let turn = self.turns.eval();
            self.engine.eval(batch, &absent, rows.clone())?;
            self.engine.read_outputs(Phase::Eval, outputs, room)?;
            drop(turn);
            each(rows, room)?;
        }
        Ok(())
    }

    /// Bytes of an output of the evaluation of one micro-batch, which must have a result for each of its rows.
    pub fn eval_bytes(&self, output: &str) -> Result<usize> {
        let (ty, micro_batch) = (self.engine.output_type(Phase::Eval, output)?, self.plan().micro_batch);
        match ty.shape.first() {
            Some(&rows) if rows == micro_batch => Ok(ty.bytes() as usize),
            _ => Err(TrainError::NotByRow { name: output.into(), ty: ty.clone(), micro_batch }),
        }
    }

    // ---- weights ----------------------------------------------------------------------------------------------------

    /// Names and types of what outlives a step: parameters, running statistics, what the optimizer keeps.
    pub fn weights(&self) -> impl Iterator<Item = &StateSlot> {
        self.plan().states.iter().filter(|s| s.class.outlives_step())
    }

    /// The bytes of a state by its name.
    pub fn weight(&self, name: &str) -> Result<Vec<u8>> {
        Ok(self.engine.read_state(name)?)
    }

    /// Sets a state by its name.
    pub fn set_weight(&mut self, name: &str, tensor: TensorView) -> Result<()> {
        Ok(self.engine.write_state(name, tensor)?)
    }

    /// Parameters and running statistics: all that it takes to use the model.
    pub fn save_weights(&self, path: &Path) -> Result<()> {
        Ok(self.engine.save(path, |s| s.class != StateClass::Slot)?)
    }

    /// What [`Session::save_weights`] wrote, or any file whose names and shapes fit; gives how many were read.
    pub fn load_weights(&mut self, path: &Path, matching: Match) -> Result<usize> {
        Ok(self.engine.load(path, matching, |s| s.class != StateClass::Slot)?)
    }
}

/// How it takes its turns.
#[derive(Default)]
struct Turns {
    ticket: Option<Ticket>,
    /// Of replicas that take a turn together: the lock of this one's device.
    device: Option<Arc<Mutex<()>>>,
}

/// The device, for as long as this lives.
struct OwnTurn<'a> {
    _turn: Option<Turn<'a>>,
    device: Option<MutexGuard<'a, ()>>,
}

impl Turns {
    /// For a step: of replicas, when the first one has its turn and all have come.
    fn step<E: Executor>(&mut self, engine: &Engine<E>) -> Result<OwnTurn<'_>> {
        let _turn = self.ticket.as_mut().map(Ticket::turn);
        let device = match &self.device {
            Some(device) => {
                engine.agree(0)?;
                Some(lock(device))
            }
            None => None,
        };
        Ok(OwnTurn { _turn, device })
    }

    /// For the evaluation of a micro-batch, in which nobody waits for another replica.
    fn eval(&mut self) -> OwnTurn<'_> {
        match &self.device {
            Some(device) => OwnTurn { _turn: None, device: Some(lock(device)) },
            None => OwnTurn { _turn: self.ticket.as_mut().map(Ticket::turn), device: None },
        }
    }
}

impl OwnTurn<'_> {
    /// Ends it: of replicas, when all have what they came for.
    fn end<E: Executor>(self, engine: &Engine<E>) -> Result<()> {
        if self.device.is_some() {
            engine.agree(0)?;
        }
        Ok(())
    }
}

fn lock(device: &Mutex<()>) -> MutexGuard<'_, ()> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Numbers {
    fn new<E: Executor>(engine: &Engine<E>) -> Numbers {
        let (names, mut places): (Vec<String>, Vec<Place>) = engine.numbers().into_iter().unzip();
        places.extend(engine.plan().states.iter().find(|s| s.name == SKIPPED_STEPS).map(|s| s.place));
        let words = vec![0; places.len()];
        Numbers { names, places, words, is_seen: false, unseen: 0, is_kept: false }
    }
}

/// Whether a plan is that of a replica for which others update parameters, and keep what that takes.
pub(crate) fn has_part_of_states(plan: &Plan) -> bool {
    let mut nodes = plan.programs.iter().flat_map(|p| p.graph.nodes());
    nodes.any(|node| matches!(node.op, Op::Replicate(_)))
}

/// An element of a data set as a model reads it; nothing is copied.
pub fn views(example: &Example) -> Vec<(&str, TensorView<'_>)> {
    example.fields.iter().map(|(name, tensor)| (name.as_str(), view(tensor))).collect()
}

fn view(tensor: &Tensor) -> TensorView<'_> {
    TensorView { dtype: tensor.ty().dtype, shape: &tensor.ty().shape, bytes: tensor.bytes() }
}

/// What a model says of some rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The first extent is that of the rows.
    pub shape: Vec<usize>,
    /// Row after row.
    pub numbers: Vec<f32>,
}

/// Inputs of the evaluation that are not given, and on which none of these outputs depends.
fn absent(plan: &Plan, batch: &[(&str, TensorView)], outputs: &[(impl AsRef<str>, Range<usize>)]) -> Vec<String> {
    let Some(graph) = plan.program(Phase::Eval).map(|program| &program.graph) else { return Vec::new() };
    let is_given = |name: &str| [CLOCK, LEARNING_RATE].contains(&name) || batch.iter().any(|(given, _)| *given == name);
    if graph.inputs().all(|(name, _)| is_given(name)) {
        return Vec::new();
    }
    let mut read = vec![false; graph.values().len()];
    outputs.iter().filter_map(|(name, _)| graph.output(name.as_ref())).for_each(|v| read[v.index()] = true);
    for node in graph.nodes().iter().rev() {
        if node.outputs.iter().any(|v| read[v.index()]) {
            node.inputs.iter().for_each(|v| read[v.index()] = true);
        }
    }
    let unread = graph.inputs().filter(|(name, v)| !is_given(name) && !read[v.index()]);
    unread.map(|(name, _)| name.to_string()).collect()
}

/// How many rows a batch has, which is the same for every input that has a row for each sample.
fn rows(plan: &Plan, batch: &[(&str, TensorView)]) -> Result<usize> {
    let graph = plan.program(Phase::Eval).map(|program| &program.graph);
    let has_rows = |name: &str| match graph.and_then(|graph| Some(graph.shape(graph.input(name)?))) {
        Some(shape) => has_row_per_sample(name, shape, plan.micro_batch),
        None => true,
    };
    let with_rows = batch.iter().filter(|(name, _)| has_rows(name));
    let mut counts = with_rows.filter_map(|(name, t)| Some((*name, *t.shape.first()?)));
    let (first, rows) = counts.next().filter(|(_, rows)| *rows > 0).ok_or(TrainError::NoRows)?;
    match counts.find(|(_, n)| *n != rows) {
        Some((name, n)) => Err(TrainError::Rows { name: name.into(), rows: n, other: first.into(), other_rows: rows }),
        None => Ok(rows),
    }
}
