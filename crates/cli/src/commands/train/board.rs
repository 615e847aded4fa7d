//! What trainings print while they run and when they end, to people or to machines. With several runs, every line says of which
//! it is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use memfit::exec::Farewell;
use memfit::nn::zoo::Task;
use memfit::plan::bytes::Bytes;
use memfit::train::run_dir::WEIGHTS;
use memfit::train::{Event, Flow, Outcome, StopReason};
use memfit_run::text::count;
use memfit_run::train::{Finished, Observer, Training};
use memfit_run::{RunError, RunResources, resident};
use serde_json::{Value, json};

use crate::bar::{Bar, LOG_EVERY, Line};
use crate::failure;
use crate::output::{outln, progress};
use crate::show::event::of_run;
use crate::show::scores::{main_score, metric, print_skipped, scores, words};
use crate::signals::Signals;

/// Shows all trainings of the process.
pub struct Board {
    json: bool,
    signals: Signals,
    /// Of the process.
    started: Instant,
    /// What MPI took of memory when it began, where it did.
    mpi_bytes: Option<u64>,
    shown: Mutex<Shown>,
}

struct Shown {
    rows: Vec<Row>,
    line: Line,
}

struct Row {
    label: String,
    is_one_of_several: bool,
    /// Another process tells of the same training.
    is_silent: bool,
    task: Task,
    bar: Bar,
    /// The most bytes that are live in a step.
    peak: u64,
}

impl Board {
    pub fn new(
        trainings: &[Training],
        signals: Signals,
        started: Instant,
        json: bool,
        mpi_bytes: Option<u64>,
    ) -> Board {
        let row = |t: &Training| {
            let plan = t.session.plan();
            let budget = t.run.request.budget;
            Row {
                label: t.run.label.clone(),
                is_one_of_several: t.run.is_one_of_several,
                is_silent: !t.is_first(),
                task: t.run.model.task(),
                bar: Bar::new(t.steps(), t.first_step.into(), plan, budget),
                peak: plan.peak_bytes,
            }
        };
        let rows = trainings.iter().map(row).collect();
        let log_every = trainings.iter().filter_map(|t| t.run.config.report.log_every).min().unwrap_or(LOG_EVERY);
        let shown = Mutex::new(Shown { rows, line: Line::new(log_every) });
        Board { json, signals, started, mpi_bytes, shown }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Board {
    fn on_event(&self, index: usize, event: &Event) -> Flow {
        let mut shown = self.shown();
        match shown.rows[index].is_silent {
            true => {}
            false if self.json => shown.rows[index].print_json(event),
            false => shown.show(index, event),
        }
        if self.signals.asked_to_stop() { Flow::Stop } else { Flow::Continue }
    }

    fn on_finish(&self, finished: &Finished) {
        let mut shown = self.shown();
        shown.line.clear();
        let seconds = self.started.elapsed().as_secs_f64();
        if self.json {
            print_end_json(finished, seconds, self.mpi_bytes)
        } else {
            print_end(finished, seconds, self.mpi_bytes)
        }
    }

    /// Of the only one, the error that ends the process says it.
    fn on_failure(&self, run: &RunResources, error: &RunError) {
        if run.is_one_of_several && run.crew.is_first() {
            self.shown().line.clear();
            failure::print_of_run(run, error, self.json);
        }
    }

    fn farewell(&self, error: &RunError) -> Farewell {
        failure::farewell(error)
    }
}

impl Shown {
    /// To people.
    fn show(&mut self, index: usize, event: &Event) {
        let row = &mut self.rows[index];
        match event {
            Event::Step { step, epoch, loss, .. } => row.bar.step(u64::from(*step) + 1, *epoch, *loss),
            Event::Waiting => row.bar.doing("waiting for data".into()),
            Event::Evaluating { batches } => row.bar.doing(format!("evaluating, {}", count(*batches, "batch"))),
            Event::Evaluated(evaluation) => row.bar.evaluated(main_score(&evaluation.scores, row.task)),
            Event::Epoch { epoch, loss, scores } => {
                self.line.clear();
                let evaluated = scores.as_ref().map_or(String::new(), |s| format!("  {}", words(s, row.task)));
                let label = if row.is_one_of_several { format!("{}  ", row.label) } else { String::new() };
                outln!("{label}epoch {:>3}  loss {loss:.4}{evaluated}", epoch + 1);
            }
            Event::Checkpoint { .. } | Event::Stopped(_) => {}
        }
        if self.line.is_log_due() {
            self.rows.iter_mut().filter(|row| !row.is_silent).for_each(|row| progress(&row.log()));
        }
        let rows = &self.rows;
        self.line.draw(|| match &rows[..] {
            [row] => row.bar.line(resident::now()),
            rows => rows.iter().map(|r| r.bar.short(&r.label)).collect::<Vec<_>>().join("  |  "),
        });
    }
}

impl Row {
    /// How far it is, for a log.
    fn log(&mut self) -> String {
        let label = if self.is_one_of_several { format!("{}  ", self.label) } else { String::new() };
        self.bar.log(&label)
    }

    /// To machines.
    fn print_json(&self, event: &Event) {
        let Some(mut event) = as_data(event, self.task, self.peak) else { return };
        if self.is_one_of_several {
            event["run"] = self.label.as_str().into();
        }
        outln!("{event}");
    }
}

/// An event as data, with the most bytes that are live in a step.
fn as_data(event: &Event, task: Task, peak: u64) -> Option<Value> {
    Some(match event {
        Event::Step { step, loss, lr, seconds, waited, turn, skipped, epoch } => {
            json!({ "event": "step", "step": step, "epoch": epoch + 1, "loss": loss, "lr": lr, "ms": seconds * 1e3,
                    "waited_ms": waited * 1e3, "turn_ms": turn * 1e3, "skipped": skipped, "live_peak_bytes": peak })
        }
        Event::Waiting | Event::Evaluating { .. } | Event::Stopped(_) => return None,
        Event::Evaluated(evaluation) => {
            json!({ "event": "eval", "step": evaluation.step, "scores": scores(&evaluation.scores) })
        }
        Event::Epoch { epoch, loss, scores: evaluated } => {
            let evaluated = evaluated.as_ref();
            let mut event = json!({ "event": "epoch", "epoch": epoch + 1, "loss": loss,
                                    "test_accuracy": evaluated.and_then(|s| s.accuracy), "scores": evaluated.map(scores) });
            without_accuracy_of_values(&mut event, task);
            event
        }
        Event::Checkpoint { which, path, step } => {
            json!({ "event": "checkpoint", "which": which.name(), "path": path.display().to_string(), "step": step })
        }
    })
}

/// Numbers are not right or wrong.
fn without_accuracy_of_values(event: &mut Value, task: Task) {
    if let Some(event) = event.as_object_mut().filter(|_| task == Task::Values) {
        event.remove("test_accuracy");
    }
}

fn print_end_json(finished: &Finished, seconds: f64, mpi_bytes: Option<u64>) {
    let Finished { training, outcome, best, weights_step } = finished;
    let Outcome { reason, steps, evaluation, left_out, test_left_out, .. } = outcome;
    let evaluated = evaluation.as_ref().map(|e| &e.scores);
    let best = best.map(|(metric, value)| json!({ "metric": metric.name(), "value": value, "step": weights_step }));
    let is_classifier = training.run.model.task() == Task::Classes;
    let mut done = json!({ "event": "done", "steps": steps, "steps_made": steps.saturating_sub(training.first_step),
                "seconds": seconds, "early_stop": *reason == StopReason::NoBetter,
                "test_accuracy": evaluated.filter(|_| is_classifier).and_then(|s| s.accuracy),
                "scores": evaluated.map(scores), "best": best, "arena_bytes": training.session.plan().arena_bytes(),
                "host_peak_bytes": training.run.pool.high_water(), "measured_peak_bytes": resident::peak(),
                "skipped_samples": left_out.count, "skipped_test_samples": test_left_out.count,
                "run_dir": training.folder.display().to_string() });
    without_accuracy_of_values(&mut done, training.run.model.task());
    if !training.others.is_empty() {
        let all = Taken::of(training);
        done["replicas"] = json!({ "here": all.replicas, "arena_bytes": all.arena(), "most_arena_bytes": all.most_arena,
                                   "staging_bytes": all.staging, "host_peak_bytes": all.host });
    }
    if let Some(bytes) = mpi_bytes {
        done["mpi_bytes"] = bytes.into();
    }
    outln!("{}", of_run(&training.run, done));
}

fn print_end(finished: &Finished, seconds: f64, mpi_bytes: Option<u64>) {
    let Finished { training, outcome, best, weights_step } = finished;
    let Outcome { reason, steps, evaluation, left_out, test_left_out, .. } = outcome;
    let run = &training.run;
    if run.is_one_of_several {
        outln!("{}:", run.label);
    }
    if *reason == StopReason::NoBetter {
        let patience = run.config.train.patience.unwrap_or(0);
        outln!("stopped early: nothing better for {}", count(patience, "evaluation"));
    }
    print_skipped(left_out, "training");
    print_skipped(test_left_out, "test");
    let result = evaluation.as_ref().map_or(String::new(), |e| format!(": {}", words(&e.scores, run.model.task())));
    let made = steps.saturating_sub(training.first_step);
    let in_all = if made == *steps { String::new() } else { format!(", {steps} in all") };
    outln!("{} in {seconds:.1} s{in_all}{result}", count(made, "step"));
    if let Some((name, value)) = *best {
        outln!("best: {} at step {weights_step}, in {WEIGHTS}", metric(name, value));
    }
    print_memory(training, mpi_bytes);
    let run_dir = training.folder.display();
    // Without a test set there is nothing that `eval` could take by itself.
    let eval = evaluation.as_ref().map_or(String::new(), |_| format!("memfit eval {run_dir}, "));
    let reads = match (run.model.task(), run.model.input().as_deref()) {
        (Task::Tokens, _) => "--prompt TEXT",
        (_, Ok([_, _, 1 | 3])) => "photo.jpg",
        (_, _) => "rows.csv",
    };
    outln!("run: {run_dir}  ({eval}memfit predict {run_dir} {reads})");
}

/// What all replicas of a training in this process took.
#[derive(Default)]
struct Taken {
    replicas: usize,
    state: u64,
    transient: u64,
    most_arena: u64,
    staging: u64,
    /// At most, in their data pipelines.
    host: u64,
}

impl Taken {
    fn of(training: &Training) -> Taken {
        let others = training.others.iter().map(|other| (&other.session, &other.run));
        let mut taken = Taken::default();
        for (session, run) in std::iter::once((&training.session, &training.run)).chain(others) {
            let plan = session.plan();
            taken.replicas += 1;
            taken.state += plan.state_bytes;
            taken.transient += plan.transient_bytes;
            taken.most_arena = taken.most_arena.max(plan.arena_bytes());
            taken.staging += plan.staging_bytes;
            taken.host += run.pool.high_water();
        }
        taken
    }

    fn arena(&self) -> u64 {
        self.state + self.transient
    }
}

fn print_memory(training: &Training, mpi_bytes: Option<u64>) {
    let taken = Taken::of(training);
    let resident = resident::peak().map_or(String::new(), |b| format!("; the process had at most {}", Bytes(b)));
    let copies = match taken.staging {
        0 => String::new(),
        bytes => format!(" + {} for copies", Bytes(bytes)),
    };
    let mpi = mpi_bytes.map_or(String::new(), |b| format!(" + {} MPI", Bytes(b)));
    let most = Bytes(taken.most_arena);
    let (arenas, pipelines, of_replicas) = match taken.replicas {
        1 => ("arena".to_string(), "data pipeline", String::new()),
        n => (format!("arenas of {n} replicas, {most} at most"), "data pipelines", format!(" of {n} replicas")),
    };
    let (host, arena) = (Bytes(taken.host), Bytes(taken.arena()));
    if training.is_shared {
        let (state, transient) = (Bytes(taken.state), Bytes(taken.transient));
        outln!(
            "memory: {state} states + {transient} in turns{of_replicas}{copies} + {host} {pipelines}{mpi}{resident}"
        );
    } else {
        outln!("memory: {arena} {arenas}{copies} + {host} {pipelines}{mpi}{resident}");
    }
}
