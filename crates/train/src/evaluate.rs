//! Evaluating a model on a data set: one pass, a micro-batch at a time.

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
use crate::session::{Session, views};

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
/// ```
/// # use memfit_exec::{Executor, TensorView};
/// # use memfit_exec_cpu::CpuExecutor;
/// # use memfit_nn::{Model, Optimizer, zoo::Mlp};
/// # use memfit_plan::{Request, plan};
/// # use memfit_train::{Session, programs};
/// # use memfit_transform::Training;
/// #
/// # let cpu = CpuExecutor::new(1)?;
/// # let model = Mlp { sizes: vec![4, 8, 3] };
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

/// What an evaluation needs besides model and data: room for what the model gives for one micro-batch, and how to read
/// it.
pub(crate) struct Evaluator {
    heads: Vec<HeadReader>,
    /// The outputs that are read, and where each lies in the room.
    outputs: Vec<(String, Range<usize>)>,
    room: Buffer,
}

/// How the outputs of a head are read.
struct HeadReader {
    info: HeadInfo,
    /// Extent of the last axis of its output.
    width: usize,
    /// What it is compared by: its own output, or the losses of its rows.
    output: RowBytes,
    /// Of its own metrics, in their order.
    metrics: Vec<RowBytes>,
}

/// Where the rows of an output lie in the room.
#[derive(Clone, Copy)]
struct RowBytes {
    start: usize,
    row: usize,
}

impl RowBytes {
    fn of<'a>(&self, room: &'a [u8], rows: usize) -> &'a [f32] {
        bytemuck::cast_slice(&room[self.start..][..rows * self.row])
    }
}

/// The sums of one pass.
struct Sums {
    tallies: Vec<Tally>,
    /// By head, of its own metrics.
    metrics: Vec<Vec<f64>>,
    rows: u64,
}

impl Evaluator {
    pub fn new<E: Executor>(session: &Session<E>, heads: &[HeadInfo], pool: &BytePool) -> Result<Evaluator> {
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
            let width = ty.shape.last().copied().unwrap_or(1);
            readers.push(HeadReader { info: info.clone(), width, output, metrics });
        }
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        let room = pool.buffer(end).map_err(|_| DataError::PoolTooSmall {
            limit: pool.limit(),
            needed: end as u64,
            what: format!("evaluation, for the {} of one micro-batch,", names.join(" and ")),
        })?;
        Ok(Evaluator { heads: readers, outputs, room })
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
        let of_head = |head: &HeadReader| Metric::ALL.into_iter().filter(|m| head.tally().has(*m)).collect::<Vec<_>>();
        if let [head] = &self.heads[..] {
            return of_head(head).into_iter().map(Monitor::from).collect();
        }
        let named = |head: &HeadReader| of_head(head).into_iter().map(|m| m.of(&head.info.name)).collect::<Vec<_>>();
        [Metric::Loss.into()].into_iter().chain(self.heads.iter().flat_map(named)).collect()
    }

    /// One pass to the end of the loader's epoch; none if there is nothing in it, or if `go_on` says to stop: it is given
    /// the number of batches after each, and nothing while the next is not there.
    pub fn run<E: Executor>(
        &mut self,
        session: &mut Session<E>,
        loader: &mut Loader,
        go_on: &mut dyn FnMut(Option<u64>) -> Flow,
    ) -> Result<Option<Scores>> {
        let mut sums = Sums {
            tallies: self.heads.iter().map(HeadReader::tally).collect(),
            metrics: self.heads.iter().map(|h| vec![0.0; h.metrics.len()]).collect(),
            rows: 0,
        };
        let mut batches = 0;
        loop {
            match loader.next_unless(&mut || go_on(None) == Flow::Stop)? {
                Next::Element(example) => self.add(session, &example, &mut sums)?,
                Next::End => return Ok(self.scores(&sums)),
                Next::Stopped => return Ok(None),
            }
            batches += 1;
            if go_on(Some(batches)) == Flow::Stop {
                return Ok(None);
            }
        }
    }

    fn add<E: Executor>(&mut self, session: &mut Session<E>, example: &Example, sums: &mut Sums) -> Result<()> {
        let batch = views(example);
        let heads = &self.heads;
        session.eval_outputs(&batch, &self.outputs, self.room.bytes_mut(), |rows, room| {
            for (i, head) in heads.iter().enumerate() {
                head.add(example, &rows, room, &mut sums.tallies[i])?;
                for (metric, sum) in head.metrics.iter().zip(&mut sums.metrics[i]) {
                    *sum += metric.of(room, rows.len()).iter().map(|&x| f64::from(x)).sum::<f64>();
                }
            }
            sums.rows += rows.len() as u64;
            Ok(())
        })
    }

    /// None of nothing.
    fn scores(&self, sums: &Sums) -> Option<Scores> {
        let mut all = BTreeMap::new();
        let mut loss = 0.0;
        for ((head, tally), metrics) in self.heads.iter().zip(&sums.tallies).zip(&sums.metrics) {
            let mut scores = tally.scores()?;
            let means = metrics.iter().map(|sum| sum / sums.rows as f64);
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
            count: sums.rows,
            loss,
            accuracy: None,
            top5: None,
            mean_iou: None,
            mean_absolute_error: None,
            metrics: BTreeMap::new(),
            heads: all,
        })
    }
}

impl HeadReader {
    fn tally(&self) -> Tally {
        Tally::new(self.info.loss, self.width)
    }

    fn add(&self, example: &Example, rows: &Range<usize>, room: &[u8], tally: &mut Tally) -> Result<()> {
        let given = self.output.of(room, rows.len());
        let Some(label) = self.info.label.as_deref().filter(|_| self.info.loss != Loss::Custom) else {
            tally.add_losses(given);
            return Ok(());
        };
        let labels = example.get(label)?;
        let row_bytes = labels.bytes().len() / labels.ty().shape.first().copied().unwrap_or(1).max(1);
        let labels = &labels.bytes()[rows.start * row_bytes..rows.end * row_bytes];
        match self.info.loss {
            Loss::SparseCrossEntropy { .. } => tally.add_classes(given, bytemuck::cast_slice(labels)),
            Loss::CrossEntropy { .. } => tally.add_distributions(given, bytemuck::cast_slice(labels)),
            Loss::BinaryCrossEntropy => tally.add_masks(given, bytemuck::cast_slice(labels)),
            Loss::MeanSquaredError => tally.add_values(given, bytemuck::cast_slice(labels)),
            Loss::Custom => Ok(()),
        }
    }
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
        (Loss::CrossEntropy { .. } | Loss::BinaryCrossEntropy | Loss::MeanSquaredError, Some(label)) => {
            *label == *output
        }
        (_, None) => false,
    };
    if fits && (head.loss == Loss::Custom || output.dtype == DType::F32) {
        return Ok(output);
    }
    Err(TrainError::Head { head: head.name.clone(), loss: head.loss, output: output.clone(), label: label.cloned() })
}
