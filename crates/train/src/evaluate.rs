//! Evaluating a model on a data set: one pass, a micro-batch at a time. Replicas deal it out among themselves, and add up the
//! rows of all in the order of the data set: so the scores are the same bits for every number of them.

mod rounds;

use std::collections::BTreeMap;
use std::ops::Range;

use memfit_data::{Buffer, BytePool, DataError, Dataset, Example, LoadOptions, Loader, Next, SkippedSamples};
use memfit_exec::Executor;
use memfit_ir::{DType, TensorType};
use memfit_nn::{HeadInfo, Loss};
use memfit_plan::Phase;

use crate::error::{Result, TrainError};
use crate::fit::Flow;
use crate::metrics::{LabelKind, Metric, Monitor, Scores, Tally};
use crate::row_sums::{Fold, RowSums};
use crate::session::{Session, views};
use rounds::Rounds;

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationResult {
    /// The scores of the model, and of each of its heads.
    pub scores: Scores,
    /// Bad samples that were left out, where that was asked for.
    pub left_out: SkippedSamples,
}

/// Evaluates a model on a data set, whose batches may have any size: the loss and the metrics of each of its heads, which
/// are [`Model::heads`](memfit_nn::Model::heads). Everything but the model comes out of the pool.
///
/// Rows that only fill up the last micro-batch never count: the losses are computed from the rows that are there, in f64.
/// A loss that only the graph knows ([`Loss::Custom`]) is the mean of what the graph gives for those rows.
///
/// Of several replicas each calls it with its part of the data ([`Datasets::test`](crate::Datasets::test)), and all get the
/// scores of the whole.
///
/// ```
/// # use memfit_exec::{Executor, TensorView};
/// # use memfit_exec_cpu::CpuExecutor;
/// # use memfit_nn::{Model, Optimizer, zoo::Mlp};
/// # use memfit_plan::{Request, plan};
/// # use memfit_train::{Session, programs};
/// # use memfit_transform::Training;
/// #
/// # let cpu = CpuExecutor::new(1)?;
/// # let model = Mlp::new(4, &[8], 3);
/// # let training = Training::new(Optimizer::adam().update);
/// # let plan = plan(&|rows| programs(&model, &training, 8, rows), cpu.target(), &Request::new(8))?;
/// # let mut session = Session::new(cpu, plan, 1)?;
/// use memfit_data::{BytePool, Dataset, LoadOptions, Remainder, Tensors};
/// use memfit_ir::TensorType;
/// use memfit_train::evaluate;
///
/// let (x, y) = (vec![0.5f32; 21 * 4], vec![1i32; 21]);
/// let test = Tensors::new().with("x", TensorType::f32([21, 4]), x)?.with("y", TensorType::i32([21]), y)?;
/// let test = Dataset::from_tensors(test)?.batch(10, Remainder::Keep);
/// let scores = evaluate(&mut session, &test, &model.heads()?, LoadOptions::new(BytePool::new(1 << 20)))?.scores;
/// assert_eq!(scores.count, 21);
/// assert!(scores.loss.is_finite() && scores.accuracy.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn evaluate<E: Executor>(
    session: &mut Session<E>,
    data: &Dataset,
    heads: &[HeadInfo],
    options: LoadOptions,
) -> Result<EvaluationResult> {
    let mut evaluator = Evaluator::new(session, heads, &options.pool)?;
    let mut loader = Loader::new(data, options)?;
    match evaluator.run(session, &mut loader, &mut |_| Flow::Continue)? {
        Some(scores) => Ok(EvaluationResult { scores, left_out: loader.skipped().clone() }),
        None => Err(TrainError::NoTestData),
    }
}

/// What an evaluation needs besides model and data.
pub(crate) struct Evaluator {
    outputs: OutputReader,
    /// Where others evaluate the same model.
    rounds: Option<Rounds>,
}

/// Room for what the model gives for one micro-batch, and how to read it.
struct OutputReader {
    heads: Vec<HeadReader>,
    /// The outputs that are read, and where each lies in the room.
    outputs: Vec<(String, Range<usize>)>,
    room: Buffer,
    /// Of one row, of all heads.
    numbers: Vec<f64>,
}

/// How the outputs of a head are read.
struct HeadReader {
    info: HeadInfo,
    /// Elements of a row of its output, and the extent of their last axis.
    elements: usize,
    width: usize,
    /// What it is compared by: its own output, or the losses of its rows.
    output: RowBytes,
    /// Of its own metrics, in their order.
    metrics: Vec<RowBytes>,
    /// How many numbers a row has.
    numbers: usize,
}

/// Where the rows of an output lie in the room.
#[derive(Clone, Copy)]
struct RowBytes {
    start: usize,
    row: usize,
}

impl RowBytes {
    fn of<'a>(&self, room: &'a [u8], row: usize) -> &'a [f32] {
        bytemuck::cast_slice(&room[self.start + row * self.row..][..self.row])
    }
}

/// The sums of one pass.
struct Sums {
    tallies: Vec<Tally>,
    rows: RowSums,
}

/// What a replica has of a data set, a batch a round.
struct Part<'a> {
    loader: &'a mut Loader,
    /// What comes next, and in which round: where a batch was left out, later than in the next one.
    next: Option<(u64, Example)>,
    /// How many it had.
    batches: u64,
    ended: bool,
    /// Why it has nothing, which is an error if nobody has anything.
    nothing_good: Option<DataError>,
}

impl Evaluator {
    pub fn new<E: Executor>(session: &Session<E>, heads: &[HeadInfo], pool: &BytePool) -> Result<Evaluator> {
        let outputs = OutputReader::new(session, heads, pool)?;
        let rounds = Rounds::new(session, outputs.numbers.len(), pool)?;
        Ok(Evaluator { outputs, rounds })
    }

    /// Whether there is such a score, before it takes an epoch to find out.
    pub fn check(&self, monitor: &Monitor) -> Result<()> {
        let known = self.monitors();
        if known.contains(monitor) {
            return Ok(());
        }
        let known = known.iter().map(Monitor::to_string).collect();
        Err(TrainError::NoMetric { monitor: monitor.clone(), known })
    }

    /// All scores that a run can follow: of one head without its name, of several the total loss and those of each.
    fn monitors(&self) -> Vec<Monitor> {
        let heads = &self.outputs.heads;
        let of_head = |head: &HeadReader| Metric::ALL.into_iter().filter(|m| head.tally().has(*m)).collect::<Vec<_>>();
        if let [head] = &heads[..] {
            return of_head(head).into_iter().map(Monitor::from).collect();
        }
        let named = |head: &HeadReader| of_head(head).into_iter().map(|m| m.of(&head.info.name)).collect::<Vec<_>>();
        [Metric::Loss.into()].into_iter().chain(heads.iter().flat_map(named)).collect()
    }

    /// One pass to the end of the loader's epoch; none if `go_on` says to stop, that of any replica: it is given the number of
    /// batches after each, and nothing while the next is not there.
    pub fn run<E: Executor>(
        &mut self,
        session: &mut Session<E>,
        loader: &mut Loader,
        go_on: &mut dyn FnMut(Option<u64>) -> Flow,
    ) -> Result<Option<Scores>> {
        let Evaluator { outputs, rounds } = self;
        let mut sums = outputs.begin();
        let flow = match rounds {
            None => outputs.add_all(session, loader, go_on, &mut sums)?,
            Some(rounds) => outputs.add_together(session, loader, go_on, &mut sums, rounds)?,
        };
        match flow {
            Flow::Stop => Ok(None),
            Flow::Continue => outputs.scores(&sums).map(Some).ok_or(TrainError::NoTestData),
        }
    }
}

impl OutputReader {
    fn new<E: Executor>(session: &Session<E>, heads: &[HeadInfo], pool: &BytePool) -> Result<OutputReader> {
        if heads.is_empty() {
            return Err(TrainError::NoHeads);
        }
        let mut outputs: Vec<(String, Range<usize>)> = Vec::new();
        let mut end = 0;
        let mut place = |name: String| -> Result<RowBytes> {
            let bytes = session.eval_bytes(&name)?;
            let start = end;
            end += bytes;
            outputs.push((name, start..end));
            Ok(RowBytes { start, row: bytes / session.plan().micro_batch })
        };
        let mut readers = Vec::new();
        for info in heads {
            let ty = check_head(session, info)?;
            let compared = if info.loss == Loss::Custom { info.loss_output() } else { info.output.clone() };
            let output = place(compared)?;
            let metrics = info.metrics.iter().map(|m| place(info.metric_output(m))).collect::<Result<_>>()?;
            let of_row = ty.shape.get(1..).unwrap_or_default();
            let (elements, width) = (of_row.iter().product(), of_row.last().copied().unwrap_or(1));
            let mut reader = HeadReader { info: info.clone(), elements, width, output, metrics, numbers: 0 };
            reader.numbers = reader.folds().len();
            readers.push(reader);
        }
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        let room = room(pool, end, &format!("the {} of one micro-batch", names.join(" and ")))?;
        let numbers = vec![0.0; readers.iter().map(|head| head.numbers).sum()];
        Ok(OutputReader { heads: readers, outputs, room, numbers })
    }

    fn begin(&self) -> Sums {
        let tallies = self.heads.iter().map(HeadReader::tally).collect();
        Sums { tallies, rows: RowSums::new(self.heads.iter().flat_map(HeadReader::folds).collect()) }
    }

    /// All of the loader's epoch, unless it is stopped.
    fn add_all<E: Executor>(
        &mut self,
        session: &mut Session<E>,
        loader: &mut Loader,
        go_on: &mut dyn FnMut(Option<u64>) -> Flow,
        sums: &mut Sums,
    ) -> Result<Flow> {
        for batches in 1.. {
            let example = match loader.next_unless(&mut || go_on(None) == Flow::Stop)? {
                Next::Element(example) => example,
                Next::End => break,
                Next::Stopped => return Ok(Flow::Stop),
            };
            let Sums { tallies, rows } = sums;
            self.add(session, &example, tallies, |row| {
                rows.add(row);
                Ok(())
            })?;
            drop(example);
            if go_on(Some(batches)) == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }

    /// The same of all replicas' loaders: what stops one, or is wrong with its data, all hear of in the same round.
    fn add_together<E: Executor>(
        &mut self,
        session: &mut Session<E>,
        loader: &mut Loader,
        go_on: &mut dyn FnMut(Option<u64>) -> Flow,
        sums: &mut Sums,
        rounds: &mut Rounds,
    ) -> Result<Flow> {
        let mut part = Part { loader, next: None, batches: 0, ended: false, nothing_good: None };
        for round in 0.. {
            rounds.begin();
            let own = self.add_round(session, &mut part, round, go_on, &mut sums.tallies, rounds);
            match &own {
                Ok(Flow::Continue) => {}
                Ok(Flow::Stop) => rounds.say(rounds::STOP),
                Err(_) => rounds.say(rounds::FAILED),
            }
            let heard = rounds.exchange(session);
            own?;
            let heard = heard?;
            if let Some(rank) = heard.who_says(rounds::FAILED) {
                return Err(TrainError::Replica { rank });
            }
            if heard.who_says(rounds::STOP).is_some() {
                return Ok(Flow::Stop);
            }
            heard.rows().for_each(|row| sums.rows.add(row));
            if heard.who_says(rounds::MORE).is_none() {
                break;
            }
        }
        for tally in &mut sums.tallies {
            rounds.add_up(session, tally.counts_mut())?;
        }
        match part.nothing_good.filter(|_| sums.rows.count == 0) {
            Some(nothing_good) => Err(nothing_good.into()),
            None => Ok(Flow::Continue),
        }
    }

    /// What this replica has in a round, if anything.
    fn add_round<E: Executor>(
        &mut self,
        session: &mut Session<E>,
        part: &mut Part,
        round: u64,
        go_on: &mut dyn FnMut(Option<u64>) -> Flow,
        tallies: &mut [Tally],
        rounds: &mut Rounds,
    ) -> Result<Flow> {
        if part.find_next(&mut || go_on(None) == Flow::Stop)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        if !part.ended {
            rounds.say(rounds::MORE);
        }
        let Some((_, example)) = part.next.take_if(|(of, _)| *of == round) else { return Ok(go_on(None)) };
        self.add(session, &example, tallies, |row| rounds.push(row))?;
        part.batches += 1;
        Ok(go_on(Some(part.batches)))
    }

    /// Counts the rows of a batch, and hands `each` their numbers, one row after the other.
    fn add<E: Executor>(
        &mut self,
        session: &mut Session<E>,
        example: &Example,
        tallies: &mut [Tally],
        mut each: impl FnMut(&[f64]) -> Result<()>,
    ) -> Result<()> {
        let batch = views(example);
        let OutputReader { heads, outputs, room, numbers } = self;
        session.eval_outputs(&batch, outputs, room.bytes_mut(), |rows, room| {
            for (i, row) in rows.enumerate() {
                let mut rest = &mut numbers[..];
                for (head, tally) in heads.iter().zip(&mut *tallies) {
                    let (own, behind) = rest.split_at_mut(head.numbers);
                    head.add(head.labels(example, row)?, i, room, tally, own)?;
                    rest = behind;
                }
                each(numbers)?;
            }
            Ok(())
        })
    }

    /// None of nothing.
    fn scores(&self, sums: &Sums) -> Option<Scores> {
        let (mut all, mut loss, mut numbers) = (BTreeMap::new(), 0.0, &sums.rows.numbers[..]);
        for (head, tally) in self.heads.iter().zip(&sums.tallies) {
            let (own, behind) = numbers.split_at(head.numbers);
            let (own, metrics) = own.split_at(own.len() - head.metrics.len());
            numbers = behind;
            let mut scores = tally.scores(own, sums.rows.count)?;
            let means = metrics.iter().map(|sum| sum / sums.rows.count as f64);
            scores.metrics = head.info.metrics.iter().cloned().zip(means).collect();
            loss += f64::from(head.info.weight) * scores.loss;
            all.insert(head.info.name.clone(), scores);
        }
        if let [head] = &self.heads[..] {
            let scores = all.remove(&head.info.name)?;
            // The loss that is trained has its weight; what else follows from the loss of the head does not.
            let heads =
                if scores.loss == loss { all } else { BTreeMap::from([(head.info.name.clone(), scores.clone())]) };
            return Some(Scores { loss, heads, ..scores });
        }
        Some(Scores {
            labels: LabelKind::Several,
            count: sums.rows.count,
            loss,
            accuracy: None,
            top5: None,
            mean_iou: None,
            mean_absolute_error: None,
            root_mean_squared_error: None,
            r2: None,
            metrics: BTreeMap::new(),
            heads: all,
        })
    }
}

impl HeadReader {
    fn tally(&self) -> Tally {
        Tally::new(self.info.loss, self.info.units.clone(), self.elements, self.width)
    }

    /// The numbers that a row has: those of its tally, and its own metrics.
    fn folds(&self) -> Vec<Fold> {
        let mut folds = self.tally().folds();
        folds.resize(folds.len() + self.metrics.len(), Fold::Sum);
        folds
    }

    /// The labels of a row; none where the graph alone knows them.
    fn labels<'a>(&self, example: &'a Example, row: usize) -> Result<&'a [u8]> {
        let Some(label) = self.info.label.as_deref().filter(|_| self.info.loss != Loss::Custom) else { return Ok(&[]) };
        let labels = example.get(label)?;
        let row_bytes = labels.bytes().len() / labels.ty().shape.first().copied().unwrap_or(1).max(1);
        Ok(&labels.bytes()[row * row_bytes..][..row_bytes])
    }

    /// Counts what the model gives for the i-th row of a micro-batch; `numbers` become those of the row.
    fn add(&self, labels: &[u8], i: usize, room: &[u8], tally: &mut Tally, numbers: &mut [f64]) -> Result<()> {
        let (own, metrics) = numbers.split_at_mut(self.numbers - self.metrics.len());
        tally.add(self.output.of(room, i), labels, own)?;
        for (metric, number) in self.metrics.iter().zip(metrics) {
            *number = metric.of(room, i).iter().map(|&x| f64::from(x)).sum();
        }
        Ok(())
    }
}

impl Part<'_> {
    /// Asks for the next batch, unless there is one or no more; `stop` is asked meanwhile.
    fn find_next(&mut self, stop: &mut dyn FnMut() -> bool) -> Result<Flow> {
        if self.ended || self.next.is_some() {
            return Ok(Flow::Continue);
        }
        match self.loader.next_unless(stop) {
            Ok(Next::Element(example)) => self.next = Some((self.loader.position().element - 1, example)),
            Ok(Next::End) => self.ended = true,
            Ok(Next::Stopped) => return Ok(Flow::Stop),
            // Others may have something.
            Err(e @ DataError::NothingGood { .. }) => (self.ended, self.nothing_good) = (true, Some(e)),
            Err(e) => return Err(e.into()),
        }
        Ok(Flow::Continue)
    }
}

/// Memory for an evaluation.
fn room(pool: &BytePool, bytes: usize, what: &str) -> Result<Buffer> {
    let too_small = |_| DataError::PoolTooSmall {
        limit: pool.limit(),
        needed: bytes as u64,
        what: format!("evaluation, for {what},"),
    };
    Ok(pool.buffer(bytes).map_err(too_small)?)
}

/// Whether the planned program has the output and the labels that a head needs; gives the type of its output.
fn check_head<'a, E: Executor>(session: &'a Session<E>, head: &HeadInfo) -> Result<&'a TensorType> {
    let output = session.engine().output_type(Phase::Eval, &head.output)?;
    let graph = session.plan().program(Phase::Eval).map(|program| &program.graph);
    let label = head.label.as_ref().and_then(|name| graph.map(|g| Some(g.ty(g.input(name)?)))?);
    let fits = match (head.loss, label) {
        (Loss::Custom, _) => true,
        (Loss::SparseCrossEntropy { .. }, Some(label)) => {
            label.dtype == DType::I32 && label.shape.rank() + 1 == output.shape.rank()
        }
        (_, Some(label)) => *label == *output,
        (_, None) => false,
    };
    let elements: usize = output.shape.get(1..).unwrap_or_default().iter().product();
    if !head.units.is_empty() && head.units.len() != elements {
        return Err(TrainError::Units { head: head.name.clone(), units: head.units.len(), elements });
    }
    if fits && (head.loss == Loss::Custom || output.dtype == DType::F32) {
        return Ok(output);
    }
    Err(TrainError::Head { head: head.name.clone(), loss: head.loss, output: output.clone(), label: label.cloned() })
}
