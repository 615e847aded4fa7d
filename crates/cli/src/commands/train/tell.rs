//! What a training tells, to people or to machines. With several runs, every line says of which it is.

use std::path::Path;
use std::time::Instant;

use memfit::data::Skipped;
use memfit::nn::zoo::Task as ModelTask;
use memfit::plan::Plan;
use memfit::plan::bytes::Bytes;
use memfit::train::run_dir::{WEIGHTS, Which};
use memfit::train::{Checkpoint, Event, Metric, Outcome, Scores, Why};
use memfit::{CpuExecutor, Session};
use serde_json::{Value, json};

use super::Training;
use crate::bar::{Bar, Line};
use crate::failure;
use crate::planning::Planned;
use crate::resident;
use crate::runs::TrainRun;
use crate::say::{count, say};
use crate::together::{labelled, tell_plan};

/// The plan of a run, before it takes its memory.
pub fn plan(run: &TrainRun, planned: &Planned, is_one_of_several: bool) {
    match is_one_of_several {
        true => tell_plan(&run.place.neighbour(&run.run), planned),
        false => crate::commands::plan::print(&run.run, planned),
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
pub fn resumed(run: &TrainRun, session: &Session<CpuExecutor>, is_shared: bool, is_over: bool, from: &Checkpoint) {
    if run.run.json {
        return;
    }
    let label = if is_shared { format!("{} ", run.place.label) } else { String::new() };
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
            let plan = t.start.session.plan();
            let bar = Bar::new(t.steps(), t.first.into(), plan.batch, plan.arena_bytes(), t.run.run.request.budget);
            Row { run: t.run, bar, peak: plan.peak_bytes }
        };
        Board { rows: trainings.iter().map(row).collect(), line: Line::new() }
    }

    /// Of which run a line is, where there are several.
    fn label(&self, index: usize) -> Option<&'a str> {
        (self.rows.len() > 1).then(|| self.rows[index].run.place.label.as_str())
    }

    pub fn hear(&mut self, index: usize, event: &Event) {
        let label = self.label(index);
        let Row { run, bar, peak } = &mut self.rows[index];
        let (json, task) = (run.run.json, run.run.model.task());
        let told = match event {
            Event::Step { step, loss, lr, seconds, waited, turn, skipped, epoch } => {
                bar.step(u64::from(*step) + 1, *loss);
                json!({ "event": "step", "step": step, "epoch": epoch + 1, "loss": loss, "lr": lr, "ms": seconds * 1e3,
                        "waited_ms": waited * 1e3, "turn_ms": turn * 1e3, "skipped": skipped, "live_peak_bytes": peak })
            }
            Event::Evaluating { .. } | Event::Stopped(_) => return,
            Event::Evaluated(evaluation) => {
                bar.judged(score(&evaluation.scores, task));
                json!({ "event": "eval", "step": evaluation.step, "scores": scores(&evaluation.scores) })
            }
            Event::Epoch { epoch, loss, scores: judged } => {
                let judged = judged.as_ref();
                if !json {
                    self.line.clear();
                    let judged = judged.map_or(String::new(), |s| format!("  {}", words(s, task)));
                    let label = label.map_or(String::new(), |l| format!("{l}  "));
                    say!("{label}epoch {:>3}  loss {loss:.4}{judged}", epoch + 1);
                }
                json!({ "event": "epoch", "epoch": epoch + 1, "loss": loss, "test_accuracy": judged.map(|s| s.accuracy),
                        "scores": judged.map(scores) })
            }
            Event::Checkpoint { which, path, step } => {
                let which = if *which == Which::Best { "best" } else { "last" };
                json!({ "event": "checkpoint", "which": which, "path": path.display().to_string(), "step": step })
            }
        };
        if json {
            say!("{}", labelled(told, label));
        } else {
            self.draw();
        }
    }

    /// A run is over.
    pub fn end(&mut self, told: &Told) {
        self.line.clear();
        told.tell((self.rows.len() > 1).then_some(told.run.place.label.as_str()));
    }

    /// A run failed. Of the only one, the error that ends the process says it.
    pub fn fail(&mut self, run: &TrainRun, error: &anyhow::Error) {
        if self.rows.len() > 1 {
            self.line.clear();
            failure::tell_of_run(&run.place.label, error, run.run.json);
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
    /// Of the process.
    pub started: Instant,
}

impl Told<'_> {
    /// With of which run it is, where there are several.
    fn tell(&self, label: Option<&str>) {
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
            say!("{}", labelled(done, label));
            return;
        }
        if let Some(label) = label {
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
        match label {
            None => say!("memory: {} arena + {host} data pipeline{resident}", Bytes(arena)),
            Some(_) => say!(
                "memory: {} states + {} in turns + {host} data pipeline{resident}",
                Bytes(self.plan.state_bytes),
                Bytes(self.plan.transient_bytes)
            ),
        }
        say!("run: {run_dir}  (memfit eval | predict {run_dir})");
    }
}

pub fn tell_left_out(left_out: &Skipped, set: &str) {
    if left_out.count > 0 {
        say!("left out {} of the {set} set that could not be read:", count(left_out.count, "sample"));
        left_out.first.iter().for_each(|bad| say!("  {}: {}", bad.place, bad.problem));
    }
}
