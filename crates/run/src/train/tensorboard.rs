//! What TensorBoard shows of a training while it goes on: an event file in the run's folder, one more each time it is resumed.
//! It is told of the steps that the run's history keeps.

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use memfit::Plan;
use memfit::data::BytePool;
use memfit::exec::weights::read_header;
use memfit::ir::op::StateClass;
use memfit::profile::export::tensorboard::{At, EventFile};
use memfit::profile::{Labels, from_plan, markdown};
use memfit::train::history::is_kept;
use memfit::train::run_dir::{self, CheckpointKind};
use memfit::train::{Event, Metric, Scores};
use memfit_files::open_own;

use super::Training;
use crate::error::{Result, RunError};
use crate::history;
use crate::resident;
use crate::resources::RunResources;

/// The event file of a training.
pub struct Log {
    events: EventFile,
    folder: PathBuf,
    batch: usize,
    peak_bytes: u64,
    /// Parameters whose values are shown as histograms; none where nobody asked for them.
    histograms: Vec<String>,
    /// Those of the task.
    metrics: Vec<Metric>,
    pool: BytePool,
    /// What could not be written; nothing is tried after it.
    failed: Option<std::io::Error>,
}

impl Log {
    /// Of a training that begins or goes on; none where its run file says so.
    pub fn open(training: &Training) -> Result<Option<Log>> {
        let (run, plan) = (&training.run, training.session.plan());
        if run.config.report.tensorboard == Some(false) {
            return Ok(None);
        }
        let folder = training.folder.clone();
        let first = At::now(first_event(training.first_step));
        let opened = EventFile::create(&folder, first).and_then(|mut events| {
            events.text("plan", first, &training.plan_summary)?;
            events.flush()?;
            Ok(events)
        });
        let events = opened.map_err(|source| RunError::Write { path: folder.clone(), source })?;
        let parameters = plan.states.iter().filter(|s| s.class == StateClass::Param).map(|s| s.name.clone());
        let wants_histograms = run.config.report.histograms == Some(true);
        Ok(Some(Log {
            events,
            folder,
            batch: plan.batch,
            peak_bytes: plan.peak_bytes,
            histograms: parameters.filter(|_| wants_histograms).collect(),
            metrics: history::metrics(run.model.task(), run.config.train.monitor.as_deref()),
            pool: run.pool.clone(),
            failed: None,
        }))
    }

    /// Writes down what happened.
    pub fn on_event(&mut self, event: &Event) {
        if self.failed.is_none() {
            self.failed = self.write(event).err();
        }
    }

    /// Whether something could not be written.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether all was written.
    pub fn finish(mut self) -> Result<()> {
        let flushed = match self.failed.take() {
            Some(failed) => Err(failed),
            None => self.events.flush(),
        };
        flushed.map_err(|source| RunError::Write { path: self.folder, source })
    }

    fn write(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Step { step, loss, lr, seconds, waited, .. } if is_kept(step + 1) => {
                let at = At::now(u64::from(*step) + 1);
                let rate = self.batch as f64 / (seconds + waited).max(1e-9);
                self.events.scalar("loss", at, *loss)?;
                self.events.scalar("learning_rate", at, *lr)?;
                self.events.scalar("samples_per_s", at, rate as f32)?;
                self.events.scalar("memory/live_peak_bytes", at, self.peak_bytes as f32)?;
                match resident::now() {
                    Some(bytes) => self.events.scalar("memory/process_bytes", at, bytes as f32),
                    None => Ok(()),
                }
            }
            Event::Evaluated(evaluation) => self.scores(At::now(evaluation.step.into()), &evaluation.scores),
            Event::Checkpoint { which: CheckpointKind::Last, step, .. } => {
                if !self.histograms.is_empty() {
                    self.weights(At::now((*step).into()))?;
                }
                self.events.flush()
            }
            Event::Step { .. }
            | Event::Epoch { .. }
            | Event::Checkpoint { .. }
            | Event::Waiting
            | Event::Evaluating { .. }
            | Event::Stopped(_) => Ok(()),
        }
    }

    fn scores(&mut self, at: At, scores: &Scores) -> std::io::Result<()> {
        for (metric, value) in self.metrics.iter().filter_map(|m| Some((m, scores.get(*m)?))) {
            self.events.scalar(&format!("test/{}", metric.name()), at, value as f32)?;
        }
        self.events.flush()
    }

    /// Histograms of the checkpoint that was just written. What has no room in the data pipeline's memory is named instead.
    fn weights(&mut self, at: At) -> std::io::Result<()> {
        let saved = run_dir::read(&self.folder, CheckpointKind::Last).map_err(std::io::Error::other)?;
        let path = saved.tensors().to_path_buf();
        drop(saved);
        let mut file = open_own(&path)?;
        let length = file.metadata()?.len();
        let (data, metadata) = read_header(&mut file, length, &path).map_err(std::io::Error::other)?;
        let mut left_out = Vec::new();
        for name in &self.histograms {
            let place = metadata.info(name).map(|info| (info.data_offsets.0 as u64, info.data_offsets.1 as u64));
            let reserved =
                place.and_then(|(start, end)| Some((start, end - start, self.pool.reserve(end - start).ok()?)));
            // The room is held until the histogram is written.
            let Some((start, bytes, _room)) = reserved else {
                left_out.push(name.as_str());
                continue;
            };
            let values = read_values(&mut file, data + start, bytes)?;
            self.events.histogram(&format!("weights/{name}"), at, &values)?;
        }
        match left_out[..] {
            [] => Ok(()),
            _ => self.events.text("weights/left out", at, &format!("no room for {}", left_out.join(", "))),
        }
    }
}

/// The plan in words, as Markdown. It takes more memory than it has, which is given back before the arena is taken.
pub fn plan_summary(run: &RunResources, plan: &Plan) -> String {
    let labels = Labels {
        model: run.name.clone(),
        precision: run.training.precision.name().into(),
        optimizer: run.optimizer.clone(),
        budget: run.request.budget,
        ..Labels::default()
    };
    markdown(&from_plan(plan, &labels))
}

/// The step of the first event that this process writes: one before it was written by an earlier one, and stays.
fn first_event(first_step: u32) -> u64 {
    u64::from(first_step) + 1
}

/// The numbers of 32 bits in so many bytes of a file.
fn read_values(file: &mut (impl Read + Seek), start: u64, bytes: u64) -> std::io::Result<Vec<f32>> {
    let mut values = vec![0f32; bytes as usize / size_of::<f32>()];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::first_event;

    #[test]
    fn what_was_written_of_the_step_that_a_run_goes_on_from_stays() {
        // Readers forget what older files say of the first event's step and of later ones.
        assert_eq!([0, 1, 60].map(first_event), [1, 2, 61]);
    }
}
