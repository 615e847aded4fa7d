//! Judging a model by a data set: one pass, a micro-batch at a time.

use memfit_data::{Buffer, BytePool, DataError, Dataset, Example, LoadOptions, Loader, SkippedSamples};
use memfit_exec::Executor;
use memfit_ir::DType;
use memfit_plan::Phase;

use crate::error::{Result, TrainError};
use crate::fit::Flow;
use crate::metrics::{LABELS, LOGITS, Metric, Scores, Tally, Task};
use crate::session::{Session, views};

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub scores: Scores,
    /// Bad samples that were left out, where that was asked for.
    pub left_out: SkippedSamples,
}

/// The scores of a model on a data set, whose batches may have any size. Everything but the model comes out of the
/// pool.
pub fn evaluate<E: Executor>(
    session: &mut Session<E>,
    data: &Dataset,
    task: Task,
    options: LoadOptions,
) -> Result<Judged> {
    let mut judge = Judge::new(session, task, &options.pool)?;
    let mut loader = Loader::new(data, options)?;
    match judge.run(session, &mut loader, &mut |_| Flow::Continue)? {
        Some(scores) => Ok(Judged { scores, left_out: loader.skipped().clone() }),
        None => Err(TrainError::NoTestData),
    }
}

/// What an evaluation needs besides model and data: room for the logits of one micro-batch, and how to read them.
pub(crate) struct Judge {
    task: Task,
    classes: usize,
    room: Buffer,
}

impl Judge {
    pub fn new<E: Executor>(session: &Session<E>, task: Task, pool: &BytePool) -> Result<Judge> {
        let ty = session.engine().output_type(Phase::Eval, LOGITS)?;
        let possible = Task::of(session.plan());
        if possible != Some(task) || ty.dtype != DType::F32 {
            return Err(TrainError::Task { task, logits: ty.clone() });
        }
        let (classes, bytes) = (ty.shape.last().copied().unwrap_or(1), session.eval_bytes(LOGITS)?);
        let room = pool.buffer(bytes).map_err(|_| DataError::PoolTooSmall {
            limit: pool.limit(),
            needed: bytes as u64,
            what: "evaluation, for the logits of one micro-batch,".into(),
        })?;
        Ok(Judge { task, classes, room })
    }

    /// Whether there is such a score, before it takes an epoch to find out.
    pub fn check(&self, metric: Metric) -> Result<()> {
        match Tally::new(self.task, self.classes).has(metric) {
            true => Ok(()),
            false => Err(TrainError::NoMetric { metric, task: self.task }),
        }
    }

    /// One pass to the end of the loader's epoch; none if there is nothing in it, or if `heard`, which is told the
    /// number of batches, says to stop.
    pub fn run<E: Executor>(
        &mut self,
        session: &mut Session<E>,
        loader: &mut Loader,
        heard: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<Option<Scores>> {
        let mut tally = Tally::new(self.task, self.classes);
        let mut batches = 0;
        while let Some(example) = loader.next()? {
            self.add(session, &example, &mut tally)?;
            batches += 1;
            if heard(batches) == Flow::Stop {
                return Ok(None);
            }
        }
        Ok(tally.scores())
    }

    fn add<E: Executor>(&mut self, session: &mut Session<E>, example: &Example, tally: &mut Tally) -> Result<()> {
        let batch = views(example);
        let labels = example.get(LABELS)?;
        let row_bytes = labels.bytes().len() / labels.ty().shape.first().copied().unwrap_or(1).max(1);
        let task = self.task;
        session.eval(&batch, LOGITS, self.room.bytes_mut(), |rows, logits| {
            let labels = &labels.bytes()[rows.start * row_bytes..rows.end * row_bytes];
            let logits = bytemuck::cast_slice(logits);
            match task {
                Task::Classes => tally.add_classes(logits, bytemuck::cast_slice(labels)),
                Task::Masks => tally.add_masks(logits, bytemuck::cast_slice(labels)),
            }
        })
    }
}
