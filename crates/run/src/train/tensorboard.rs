//! What TensorBoard shows of a training while it goes on: an event file in the run's folder, one more each time it is resumed.
//! It is told of the steps that the run's history keeps.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

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
        // TensorBoard forgets what another file has from this step on. Steps are counted from 1 here, and the last one that was
        // saved stays.
        let first = At::now(u64::from(training.first_step) + 1);
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
        for (metric, value) in Metric::ALL.into_iter().filter_map(|m| Some((m, scores.get(m)?))) {
            self.events.scalar(&format!("test/{}", metric.name()), at, value as f32)?;
        }
        self.events.flush()
    }

    /// Histograms of the checkpoint that was just written. What has no room in the data pipeline's memory is named instead.
    fn weights(&mut self, at: At) -> std::io::Result<()> {
        let saved = run_dir::read(&self.folder, CheckpointKind::Last).map_err(std::io::Error::other)?;
        let mut left_out = Vec::new();
        for name in &self.histograms {
            match read_tensor(saved.tensors(), name, &self.pool)? {
                Some(values) => self.events.histogram(&format!("weights/{name}"), at, &values)?,
                None => left_out.push(name.as_str()),
            }
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

/// The values of a tensor of numbers of 32 bits; none where it has no room.
fn read_tensor(path: &Path, name: &str, pool: &BytePool) -> std::io::Result<Option<Vec<f32>>> {
    let mut file = open_own(path)?;
    let length = file.metadata()?.len();
    let (data, metadata) = read_header(&mut file, length, path).map_err(std::io::Error::other)?;
    let Some(info) = metadata.info(name) else { return Ok(None) };
    let (start, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
    // As it is read and as it is looked at, until it is written.
    let Ok(_room) = pool.reserve(end - start) else { return Ok(None) };
    let mut values = vec![0f32; (end - start) as usize / size_of::<f32>()];
    file.seek(SeekFrom::Start(data + start))?;
    file.read_exact(bytemuck::cast_slice_mut(&mut values))?;
    Ok(Some(values))
}
