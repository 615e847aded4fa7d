//! `memfit train`: plan, take the memory, train, judge; and leave a folder from which it can go on.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use memfit::data::{OnBad, Skipped};
use memfit::nn::zoo::Task as ModelTask;
use memfit::plan::bytes::Bytes;
use memfit::plan::save::Labels;
use memfit::train::run_dir::{RunDir, WEIGHTS, Which};
use memfit::train::{
    Checkpoint, Decay, EarlyStop, Event, Feed, FitOptions, Flow, Metric, Outcome, Period, Progress, SaveEvery,
    Schedule, Scores, Task, Why, fit,
};
use memfit::{CpuExecutor, Session};
use serde_json::{Value, json};

use crate::bar::Bar;
use crate::data;
use crate::failure::{Interrupted, usage};
use crate::planning::{self, Planned};
use crate::resident;
use crate::run::{Resume, Run, TrainRun};
use crate::run_dir;
use crate::same_data;
use crate::say::{count, say};
use crate::signals::Signals;
use crate::weights;

pub fn train(run: &mut TrainRun) -> Result<()> {
    let signals = Signals::listen().context("signals cannot be listened to")?;
    let started = Instant::now();
    if let Some(Resume { folder, .. }) = &run.resume {
        same_data::check(folder, &run.opened, run.run.json)?;
    }
    check(run)?;
    let executor = CpuExecutor::new(run.run.threads)?;
    if run.budget_untold {
        run.run.request.budget = Some(planning::budget_to_plan_for(&run.run, &executor)?);
    }
    let run = &*run;
    let mut start = match &run.resume {
        Some(from) => resume(run, executor, from)?,
        None => begin(run, executor)?,
    };
    let session = &mut start.session;
    let data = data::datasets(&run.opened, &run.run, &run.spec, session.plan().micro_batch)?;
    let epoch = small(data.train.len().unwrap_or(0));
    let (folder, length) = (start.folder, length(run));
    let options = options(run, start.run_dir, start.progress)?;
    let (plan, first) = (session.plan(), session.steps());
    let bar =
        Bar::new(length.steps(epoch).into(), first.into(), plan.batch, plan.arena_bytes(), run.run.request.budget);
    let mut teller = Teller { run: &run.run, bar, peak: plan.peak_bytes };
    let outcome = fit(session, &data, &options, &mut |event| {
        teller.hear(event);
        if signals.asked_to_stop() { Flow::Stop } else { Flow::Continue }
    });
    drop(teller);
    let outcome = outcome?;
    if outcome.why == Why::Interrupted {
        return Err(Interrupted { folder, saved: outcome.saved }.into());
    }
    let weights = folder.join(WEIGHTS);
    let step = run_dir::export(&folder, session, &weights)?;
    let best = outcome.best.map(|value| Best { metric: options.metric, value, step });
    let (arena, peak_host) = (session.plan().arena_bytes(), run.pool.high_water());
    let end = End { run, folder: &folder, outcome: &outcome, first, best, arena, peak_host };
    end.tell(started);
    Ok(())
}

fn options(run: &TrainRun, run_dir: RunDir, progress: Progress) -> Result<FitOptions> {
    let t = &run.spec.train;
    Ok(FitOptions {
        length: length(run),
        schedule: schedule(run),
        task: task(&run.run),
        evaluate: Period::Epochs(1),
        metric: metric(run)?,
        early_stop: t.patience.map(|n| EarlyStop { patience: small(n), min_delta: 0.0 }),
        run: Some(run_dir),
        save: SaveEvery { epoch: true, steps: t.save_every.map(small), time: None },
        progress,
        feed: Feed {
            pool: run.pool.clone(),
            test_pool: run.pool.clone(),
            threads: run.run.threads,
            bad: if run.spec.data.skip_bad == Some(true) { OnBad::Skip } else { OnBad::Fail },
        },
    })
}

/// More than anybody counts to is as good as the most.
fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A session at its first step, or at the one where it was left.
struct Start {
    session: Session<CpuExecutor>,
    run_dir: RunDir,
    folder: PathBuf,
    progress: Progress,
}

fn begin(run: &TrainRun, executor: CpuExecutor) -> Result<Start> {
    let planned = match &run.plan {
        Some(path) => planning::load(&run.run, &executor, path)?,
        None => planning::plan(&run.run, &executor)?,
    };
    print(run, &planned);
    let labels = planning::labels(&run.run, &executor, planned.plan.micro_batch)?;
    let folder = match &run.spec.train.out {
        Some(folder) => folder.clone(),
        None => run_dir::free(&run.run.name)?,
    };
    let plan = planned.plan;
    let text = run_dir::text(&run.said, &run.run, run.opened.kind)?;
    let run_dir = RunDir::create_again(&folder, &plan, &labels)?;
    run_dir::describe(&folder, &text, &run.opened)?;
    resident::give_back();
    let mut session = Session::new(executor, plan, run.run.seed)?;
    if let Some(path) = &run.spec.model.weights {
        weights::start_from(&mut session, path, &run.run)?;
    }
    Ok(Start { session, run_dir, folder, progress: Progress::default() })
}

fn resume(run: &TrainRun, executor: CpuExecutor, Resume { folder, which }: &Resume) -> Result<Start> {
    let (run_dir, saved) = RunDir::resume(folder, *which)?;
    let finished = check_length(run, &saved.checkpoint)?;
    check_threads(run, &saved.plan.labels)?;
    let labels = planning::labels(&run.run, &executor, saved.plan.plan.micro_batch)?;
    planning::check_labels(&run.run, &saved.plan, &labels, &folder.display().to_string())?;
    let session = Session::resume(executor, &saved)?;
    run_dir::describe_again(folder, &run.said)?;
    let planned = Planned::of_file(session.plan().clone(), folder.display().to_string());
    print(run, &planned);
    if !run.run.json {
        match finished {
            false => say!("  resumed at step {}, epoch {}", session.steps(), saved.checkpoint.progress.epoch + 1),
            true => say!("  at its end, step {}: give more --epochs or --steps to go on", session.steps()),
        }
    }
    Ok(Start { session, run_dir, folder: folder.into(), progress: saved.checkpoint.progress })
}

/// Whether nothing is left to do. Less than was done cannot be.
fn check_length(run: &TrainRun, checkpoint: &Checkpoint) -> Result<bool> {
    let (option, wanted, unit, done) = match length(run) {
        Period::Steps(n) => ("--steps", u64::from(n), "step", u64::from(checkpoint.step)),
        Period::Epochs(n) => ("--epochs", u64::from(n), "epoch", checkpoint.progress.epoch),
    };
    match wanted < done {
        false => Ok(wanted == done),
        true => Err(usage(format!(
            "{option} {wanted} is less than the {} that the run has made; give more to go on, or leave it out",
            count(done, unit)
        ))),
    }
}

/// A run goes on with its own plan, which is made for a number of threads.
fn check_threads(run: &TrainRun, labels: &Labels) -> Result<()> {
    let (ours, theirs) = (run.run.threads.to_string(), labels.get("threads"));
    match theirs.filter(|theirs| **theirs != ours) {
        None => Ok(()),
        Some(theirs) => Err(usage(format!(
            "--threads {ours}: the run goes on with its own plan, which is made for {theirs}; leave out --threads \
             (the result is the same for every number of them)"
        ))),
    }
}

fn print(run: &TrainRun, planned: &Planned) {
    super::plan::print(&run.run, planned);
    if !run.run.json {
        let host = Bytes(run.pool.limit()).to_string();
        say!("  host       {host:>10}  at most, for the data pipeline");
    }
}

/// What would only come out after the memory is taken, or after the training.
fn check(run: &TrainRun) -> Result<()> {
    let opened = &run.opened;
    let (batch, samples) = (run.run.request.batch, opened.train.len());
    if batch > samples {
        return Err(usage(format!(
            "--batch {batch} is larger than the training set, which has {}",
            count(samples, "sample")
        )));
    }
    if let Some(classes) =
        opened.facts.classes.filter(|n| run.run.model.task() == ModelTask::Classes && *n > run.run.model.classes())
    {
        let has = run.run.model.classes();
        return Err(usage(format!(
            "the data have {}, but the model is to have {has}; leave out --classes",
            count(classes, "class")
        )));
    }
    if let Some(path) = run.spec.model.weights.as_ref().filter(|_| run.resume.is_none()) {
        weights::check(path, &run.run)?;
    }
    if run.spec.data.skip_bad != Some(true) && run.run.model.task() == ModelTask::Classes {
        check_test_labels(run)?;
    }
    // It describes, and does nothing yet.
    data::datasets(opened, &run.run, &run.spec, run.run.request.batch)?;
    metric(run).map(|_| ())
}

/// A class that the model does not have would only show when the first epoch is over.
fn check_test_labels(run: &TrainRun) -> Result<()> {
    // What was held out of the training set was counted with it.
    let counted = run.spec.data.test.is_none() && run.opened.facts.classes.is_some();
    match run.opened.test.as_ref().filter(|_| !counted) {
        Some(test) => Ok(test.check_classes(run.run.model.classes(), &run.pool)?),
        None => Ok(()),
    }
}

fn length(run: &TrainRun) -> Period {
    match (run.spec.train.steps, run.spec.train.epochs) {
        (Some(steps), _) => Period::Steps(small(steps)),
        (None, epochs) => Period::Epochs(small(epochs.unwrap_or(EPOCHS))),
    }
}

/// Times through the data, where nothing was said.
const EPOCHS: usize = 20;

fn schedule(run: &TrainRun) -> Schedule {
    let t = &run.spec.train;
    let peak = run.run.learning_rate;
    let decay = match t.schedule.as_deref() {
        Some("cosine") => Decay::Cosine { floor: peak * t.decay.unwrap_or(0.0) },
        Some("step") => {
            Decay::Step { every: Period::Epochs(small(t.decay_every.unwrap_or(10))), factor: t.decay.unwrap_or(0.1) }
        }
        _ => Decay::Constant,
    };
    Schedule { peak, warm_up: Period::Steps(small(t.warm_up.unwrap_or(0))), decay }
}

pub fn task(run: &Run) -> Task {
    match run.model.task() {
        ModelTask::Classes | ModelTask::Tokens => Task::Classes,
        ModelTask::Masks => Task::Masks,
    }
}

fn metric(run: &TrainRun) -> Result<Metric> {
    let usual = match run.run.model.task() {
        ModelTask::Classes => Metric::Accuracy,
        ModelTask::Tokens => Metric::Loss,
        ModelTask::Masks => Metric::MeanIou,
    };
    let Some(said) = &run.spec.train.monitor else { return Ok(usual) };
    Metric::ALL.into_iter().find(|m| m.name() == said).ok_or_else(|| {
        let known: Vec<&str> = Metric::ALL.iter().map(|m| m.name()).collect();
        usage(format!("train.monitor \"{said}\" is not known; there are {}", known.join(", ")))
    })
}

// ---- telling ---------------------------------------------------------------------------------------------------------

struct Teller<'a> {
    run: &'a Run,
    bar: Bar,
    peak: u64,
}

impl Teller<'_> {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Step { step, loss, lr, seconds, waited, skipped, epoch } => {
                if self.run.json {
                    say!(
                        "{}",
                        json!({ "event": "step", "step": step, "epoch": epoch + 1, "loss": loss, "lr": lr, "ms": seconds * 1e3,
                                "waited_ms": waited * 1e3, "skipped": skipped, "live_peak_bytes": self.peak })
                    );
                } else {
                    self.bar.step(u64::from(*step) + 1, *loss);
                }
            }
            Event::Evaluating { .. } | Event::Stopped(_) => {}
            Event::Evaluated(evaluation) => {
                self.bar.judged(score(&evaluation.scores, self.run.model.task()));
                if self.run.json {
                    let scores = scores(&evaluation.scores);
                    say!("{}", json!({ "event": "eval", "step": evaluation.step, "scores": scores }));
                }
            }
            Event::Epoch { epoch, loss, scores } => self.epoch(*epoch, *loss, scores.as_ref()),
            Event::Checkpoint { which, path, step } => {
                if self.run.json {
                    let which = if *which == Which::Best { "best" } else { "last" };
                    let path = path.display().to_string();
                    say!("{}", json!({ "event": "checkpoint", "which": which, "path": path, "step": step }));
                }
            }
        }
    }

    fn epoch(&mut self, epoch: u64, loss: f64, judged: Option<&Scores>) {
        self.bar.clear();
        if self.run.json {
            let accuracy = judged.map(|s| s.accuracy);
            let scores = judged.map(scores);
            say!(
                "{}",
                json!({ "event": "epoch", "epoch": epoch + 1, "loss": loss, "test_accuracy": accuracy, "scores": scores })
            );
        } else {
            let judged = judged.map_or(String::new(), |s| format!("  {}", words(s, self.run.model.task())));
            say!("epoch {:>3}  loss {loss:.4}{judged}", epoch + 1);
        }
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
struct Best {
    metric: Metric,
    value: f64,
    step: u32,
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
struct End<'a> {
    run: &'a TrainRun,
    folder: &'a Path,
    outcome: &'a Outcome,
    /// The step at which this process began.
    first: u32,
    best: Option<Best>,
    arena: u64,
    peak_host: u64,
}

impl End<'_> {
    fn tell(&self, started: Instant) {
        let Outcome { why, steps, evaluation, left_out, test_left_out, .. } = self.outcome;
        let seconds = started.elapsed().as_secs_f64();
        let made = steps.saturating_sub(self.first);
        let judged = evaluation.as_ref().map(|e| &e.scores);
        let run_dir = self.folder.display().to_string();
        if self.run.run.json {
            let best = self.best.as_ref();
            let best = best.map(|b| json!({ "metric": b.metric.name(), "value": b.value, "step": b.step }));
            let is_classes = self.run.run.model.task() == ModelTask::Classes;
            say!(
                "{}",
                json!({ "event": "done", "steps": steps, "steps_made": made, "seconds": seconds,
                        "early_stop": *why == Why::NoBetter,
                        "test_accuracy": judged.filter(|_| is_classes).map(|s| s.accuracy), "scores": judged.map(scores),
                        "best": best, "arena_bytes": self.arena, "host_peak_bytes": self.peak_host,
                        "measured_peak_bytes": resident::peak(), "skipped_samples": left_out.count,
                        "skipped_test_samples": test_left_out.count, "run_dir": run_dir })
            );
            return;
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
        say!("memory: {} arena + {} data pipeline{resident}", Bytes(self.arena), Bytes(self.peak_host));
        say!("run: {run_dir}  (memfit eval | predict {run_dir})");
    }
}

pub fn tell_left_out(left_out: &Skipped, set: &str) {
    if left_out.count > 0 {
        say!("left out {} of the {set} set that could not be read:", count(left_out.count, "sample"));
        left_out.first.iter().for_each(|bad| say!("  {}: {}", bad.place, bad.problem));
    }
}
