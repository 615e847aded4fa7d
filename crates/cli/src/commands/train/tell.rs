//! What a training tells, to people or to machines. With several runs, every line says of which it is.

use std::path::Path;
use std::time::Instant;

use memfit::data::SkippedSamples;
use memfit::nn::zoo::Task as ModelTask;
use memfit::plan::Plan;
use memfit::plan::bytes::Bytes;
use memfit::train::run_dir::{WEIGHTS, Which};
use memfit::train::{Checkpoint, Event, Metric, Outcome, Scores, Why};
use memfit::{CpuExecutor, Session};
use serde_json::{Value, json};

use super::Training;
use crate::bar::{Bar, Line};
use crate::failure::{self, problem_words};
use crate::planning::Planned;
use crate::resident;
use crate::runs::TrainRun;
use crate::say::{count, say};
use crate::together::tell_plan;

/// The plan of a run, before it takes its memory.
pub fn plan(run: &TrainRun, planned: &Planned, is_shared: bool) {
    match run.run.label {
        Some(_) => tell_plan(&run.place.neighbour(&run.run), planned, is_shared),
        None => crate::commands::plan::print(&run.run, planned),
    }
    if run.run.json {
        return;
    }
    let host = Bytes(run.place.pool.limit()).to_string();
    say!("  host       {host:>10}  at most, for the data pipeline");
    if !run.spec.memory.logical.is_empty() {
        say!(
            "  device     {:>10}  is the limit of {}",
            Bytes(run.place.device.limit()).to_string(),
            run.place.device.name()
        );
    }
}

/// Where a run goes on.
pub fn resumed(run: &TrainRun, session: &Session<CpuExecutor>, is_over: bool, from: &Checkpoint) {
    if run.run.json {
        return;
    }
    let label = run.run.prefix();
    match is_over {
        false => say!("  {label}resumed at step {}, epoch {}", session.steps(), from.progress.epoch + 1),
        true => say!("  {label}at its end, step {}: give more --epochs or --steps to go on", session.steps()),
    }
}

/// Hears of all runs, and shows them.
pub struct Board<'a> {
    rows: Vec<Row<'a>>,
    line: Line,
}

struct Row<'a> {
    run: &'a TrainRun,
    bar: Bar,
    peak: u64,
}

impl<'a> Board<'a> {
    pub fn new(trainings: &[Training<'a>]) -> Board<'a> {
        let row = |t: &Training<'a>| {
            let plan = t.session.plan();
            let bar = Bar::new(t.steps(), t.first.into(), plan.batch, plan.arena_bytes(), t.run.run.request.budget);
            Row { run: t.run, bar, peak: plan.peak_bytes }
        };
        Board { rows: trainings.iter().map(row).collect(), line: Line::new() }
    }

    pub fn hear(&mut self, index: usize, event: &Event) {
        let Row { run, peak, .. } = &self.rows[index];
        if !run.run.json {
            return self.show(index, event);
        }
        if let Some(told) = as_data(event, *peak) {
            say!("{}", run.run.event(told));
        }
    }

    /// To people.
    fn show(&mut self, index: usize, event: &Event) {
        let Row { run, bar, .. } = &mut self.rows[index];
        let task = run.run.model.task();
        match event {
            Event::Step { step, loss, .. } => bar.step(u64::from(*step) + 1, *loss),
            Event::Evaluated(evaluation) => bar.judged(score(&evaluation.scores, task)),
            Event::Epoch { epoch, loss, scores } => {
                self.line.clear();
                let judged = scores.as_ref().map_or(String::new(), |s| format!("  {}", words(s, task)));
                say!("{}epoch {:>3}  loss {loss:.4}{judged}", run.run.prefix(), epoch + 1);
            }
            Event::Evaluating { .. } | Event::Checkpoint { .. } | Event::Stopped(_) => {}
        }
        self.draw();
    }

    /// A run is over.
    pub fn end(&mut self, told: &Told) {
        self.line.clear();
        told.tell();
    }

    /// A run failed. Of the only one, the error that ends the process says it.
    pub fn fail(&mut self, run: &TrainRun, error: &anyhow::Error) {
        if run.run.label.is_some() {
            self.line.clear();
            failure::tell_of_run(&run.run, error);
        }
    }

    fn draw(&mut self) {
        let rows = &self.rows;
        self.line.draw(|| match &rows[..] {
            [row] => row.bar.line(resident::now()),
            rows => rows.iter().map(|r| r.bar.short(&r.run.place.label)).collect::<Vec<_>>().join("  |  "),
        });
    }
}

/// An event as data, with the most bytes that are live in a step.
fn as_data(event: &Event, peak: u64) -> Option<Value> {
    Some(match event {
        Event::Step { step, loss, lr, seconds, waited, turn, skipped, epoch } => {
            json!({ "event": "step", "step": step, "epoch": epoch + 1, "loss": loss, "lr": lr, "ms": seconds * 1e3,
                    "waited_ms": waited * 1e3, "turn_ms": turn * 1e3, "skipped": skipped, "live_peak_bytes": peak })
        }
        Event::Evaluating { .. } | Event::Stopped(_) => return None,
        Event::Evaluated(evaluation) => {
            json!({ "event": "eval", "step": evaluation.step, "scores": scores(&evaluation.scores) })
        }
        Event::Epoch { epoch, loss, scores: judged } => {
            let judged = judged.as_ref();
            json!({ "event": "epoch", "epoch": epoch + 1, "loss": loss, "test_accuracy": judged.map(|s| s.accuracy),
                    "scores": judged.map(scores) })
        }
        Event::Checkpoint { which, path, step } => {
            let which = if *which == Which::Best { "best" } else { "last" };
            json!({ "event": "checkpoint", "which": which, "path": path.display().to_string(), "step": step })
        }
    })
}

/// The scores that matter for a task, in words.
pub fn words(scores: &Scores, task: ModelTask) -> String {
    let top5 = scores.top5.filter(|_| task == ModelTask::Classes);
    let top5 = top5.map_or(String::new(), |t| format!(", top 5 {:.2} %", t * 100.0));
    format!("test loss {:.4}, {}{top5}", scores.loss, score(scores, task))
}

/// The one of them that is looked at first.
fn score(scores: &Scores, task: ModelTask) -> String {
    match task {
        ModelTask::Classes => format!("accuracy {:.2} %", scores.accuracy * 100.0),
        ModelTask::Tokens => format!("perplexity {:.2}", scores.perplexity().unwrap_or(f64::NAN)),
        ModelTask::Masks => format!("mean IoU {:.4}", scores.mean_iou),
    }
}

pub fn scores(s: &Scores) -> Value {
    let mut all = serde_json::Map::new();
    for metric in Metric::ALL {
        if let Some(value) = s.get(metric) {
            all.insert(metric.name().into(), value.into());
        }
    }
    all.insert("count".into(), s.count.into());
    all.into()
}

/// Of the watched metric, and the step of the weights that are kept for it.
pub struct Best {
    pub metric: Metric,
    pub value: f64,
    pub step: u32,
}

impl Best {
    fn words(&self) -> String {
        let (name, value) = (metric_words(self.metric), self.value);
        match self.metric {
            Metric::Accuracy | Metric::Top5 => format!("{name} {:.2} %", value * 100.0),
            Metric::Perplexity => format!("{name} {value:.2}"),
            Metric::Loss | Metric::MeanIou => format!("{name} {value:.4}"),
        }
    }
}

fn metric_words(metric: Metric) -> &'static str {
    match metric {
        Metric::Loss => "test loss",
        Metric::Accuracy => "accuracy",
        Metric::Top5 => "top 5",
        Metric::MeanIou => "mean IoU",
        Metric::Perplexity => "perplexity",
    }
}

/// What is told at the end.
pub struct Told<'a> {
    pub run: &'a TrainRun,
    pub folder: &'a Path,
    pub outcome: &'a Outcome,
    /// The step at which this process began.
    pub first: u32,
    pub best: Option<Best>,
    pub plan: &'a Plan,
    pub peak_host: u64,
    /// Its memory, with others.
    pub is_shared: bool,
    /// Of the process.
    pub started: Instant,
}

impl Told<'_> {
    fn tell(&self) {
        let Outcome { why, steps, evaluation, left_out, test_left_out, .. } = self.outcome;
        let seconds = self.started.elapsed().as_secs_f64();
        let made = steps.saturating_sub(self.first);
        let judged = evaluation.as_ref().map(|e| &e.scores);
        let run_dir = self.folder.display().to_string();
        if self.run.run.json {
            let best = self.best.as_ref();
            let best = best.map(|b| json!({ "metric": b.metric.name(), "value": b.value, "step": b.step }));
            let is_classes = self.run.run.model.task() == ModelTask::Classes;
            let done = json!({ "event": "done", "steps": steps, "steps_made": made, "seconds": seconds,
                        "early_stop": *why == Why::NoBetter,
                        "test_accuracy": judged.filter(|_| is_classes).map(|s| s.accuracy), "scores": judged.map(scores),
                        "best": best, "arena_bytes": self.plan.arena_bytes(), "host_peak_bytes": self.peak_host,
                        "measured_peak_bytes": resident::peak(), "skipped_samples": left_out.count,
                        "skipped_test_samples": test_left_out.count, "run_dir": run_dir });
            say!("{}", self.run.run.event(done));
            return;
        }
        if let Some(label) = &self.run.run.label {
            say!("{label}:");
        }
        if *why == Why::NoBetter {
            say!(
                "stopped early: nothing better for {}",
                count(self.run.spec.train.patience.unwrap_or(0), "evaluation")
            );
        }
        tell_left_out(left_out, "training");
        tell_left_out(test_left_out, "test");
        let result = judged.map_or(String::new(), |s| format!(": {}", words(s, self.run.run.model.task())));
        let resident = resident::peak().map_or(String::new(), |b| format!("; the process had at most {}", Bytes(b)));
        let in_all = if made == *steps { String::new() } else { format!(", {steps} in all") };
        say!("{} in {seconds:.1} s{in_all}{result}", count(made, "step"));
        if let Some(best) = &self.best {
            say!("best: {} at step {}, in {WEIGHTS}", best.words(), best.step);
        }
        let (arena, host) = (self.plan.arena_bytes(), Bytes(self.peak_host));
        match self.is_shared {
            false => say!("memory: {} arena + {host} data pipeline{resident}", Bytes(arena)),
            true => say!(
                "memory: {} states + {} in turns + {host} data pipeline{resident}",
                Bytes(self.plan.state_bytes),
                Bytes(self.plan.transient_bytes)
            ),
        }
        say!("run: {run_dir}  (memfit eval | predict {run_dir})");
    }
}

pub fn tell_left_out(left_out: &SkippedSamples, set: &str) {
    if left_out.count > 0 {
        say!("left out {} of the {set} set that could not be read:", count(left_out.count, "sample"));
        left_out.first.iter().for_each(|bad| say!("  {}: {}", bad.location, problem_words(&bad.problem)));
    }
}
