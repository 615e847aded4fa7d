//! A run that is stopped anywhere and resumed leaves the same bytes as one that was not: states, best, everything in
//! its folder.

use crate::common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{contents, cpu, datasets, digits, folder, options, plan, training};
use memfit_exec_cpu::CpuExecutor;
use memfit_plan::Plan;
use memfit_train::{
    CheckpointKind, EarlyStop, Event, FitOptions, Flow, Outcome, Period, Progress, RunDir, SaveEvery, Session,
    StopReason, fit,
};
use memfit_transform::{Half, Precision, Training};

type Change<'a> = &'a dyn Fn(&mut FitOptions);

/// Starts a run, or goes on with it; stops at the event of this number.
fn part(folder: &Path, plan: &Plan, change: Change, stop_at: usize, threads: usize) -> (Outcome, usize) {
    let (run, mut session, progress) = match RunDir::resume(folder, CheckpointKind::Last) {
        Ok((run, saved)) => (run, Session::resume(cpu(), &saved).unwrap(), saved.checkpoint.progress),
        Err(_) => {
            let run = RunDir::create(folder, plan, &Default::default()).unwrap();
            (run, Session::new(cpu(), plan.clone(), 7).unwrap(), Progress::default())
        }
    };
    let mut options = options(Some(run), progress);
    options.feed = common::feed(threads);
    change(&mut options);
    let mut events = 0;
    let mut observer = |_: &Event| {
        events += 1;
        if events > stop_at { Flow::Stop } else { Flow::Continue }
    };
    let outcome = fit::<CpuExecutor>(&mut session, &datasets(8), &options, &mut observer).unwrap();
    (outcome, events)
}

/// The whole run in one part: how it ended, what it left, and its number of events.
fn whole(name: &str, plan: &Plan, change: Change) -> (Outcome, BTreeMap<String, Vec<u8>>, usize) {
    let folder = folder(name);
    let (outcome, events) = part(&folder, plan, change, usize::MAX, 1);
    let left = contents(&folder);
    std::fs::remove_dir_all(folder).unwrap();
    (outcome, left, events)
}

/// Names of files that differ.
fn differing(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    a.keys().chain(b.keys()).filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

/// Stops a run at every event in turn, and resumes it to the end.
fn check_every_stop(name: &str, training: &Training, micro_batch: Option<usize>, change: Change) {
    let plan = plan(digits(), training, 8, micro_batch);
    let (outcome, left, events) = whole(name, &plan, change);
    assert_ne!(outcome.reason, StopReason::Interrupted);
    assert!(events > 15, "{name}: {events} events");
    for stop_at in 0..events {
        let folder = folder(name);
        let (stopped, _) = part(&folder, &plan, change, stop_at, 1);
        assert!(stopped.reason == StopReason::Interrupted || stopped == outcome, "{name}: event {stop_at}");
        // The number of threads that make the data is nobody's business.
        let (resumed, _) = part(&folder, &plan, change, usize::MAX, 1 + stop_at % 3);
        assert_eq!(resumed, outcome, "{name}: stopped at event {stop_at}");
        assert_eq!(differing(&contents(&folder), &left), [""; 0], "{name}: stopped at event {stop_at}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_run_stopped_at_any_event_ends_in_the_same_bytes() {
    check_every_stop("stop-epochs", &training(), None, &|_| {});
}

#[test]
fn so_does_one_in_micro_batches_that_is_evaluated_by_steps() {
    check_every_stop("stop-steps", &training(), Some(4), &|options| {
        options.length = Period::Steps(9);
        options.evaluate = Period::Steps(4);
        options.save = SaveEvery { epoch: false, steps: Some(5), time: None };
    });
}

#[test]
fn so_does_one_that_keeps_checkpoints_of_steps() {
    let keeping = |options: &mut FitOptions| options.run = options.run.take().map(|run| run.keeping(2));
    check_every_stop("stop-keeping", &training(), None, &keeping);
    let plan = plan(digits(), &training(), 8, None);
    let (_, left, _) = whole("keeping", &plan, &keeping);
    let kept: Vec<&str> =
        left.keys().map(String::as_str).filter(|n| n.ends_with("0.json") || n.ends_with("8.json")).collect();
    assert_eq!(kept, ["step-00000008.json", "step-00000010.json"], "of ten steps, every second one");
}

#[test]
fn so_does_one_in_f16_that_is_stopped_early() {
    let training = Training { precision: Precision::Mixed(Half::F16), ..training() };
    check_every_stop("stop-f16", &training, None, &|options| {
        options.length = Period::Epochs(50);
        options.early_stop = Some(EarlyStop { patience: 1, min_delta: 2.0 });
    });
}

#[test]
fn a_run_in_many_parts_ends_in_the_same_bytes() {
    let plan = plan(digits(), &training(), 8, None);
    let (outcome, left, _) = whole("parts-whole", &plan, &|_| {});
    for events in [4, 5, 9] {
        let folder = folder("parts");
        let mut parts = 1;
        let last = loop {
            let (ended, _) = part(&folder, &plan, &|_| {}, events, parts % 3 + 1);
            if ended.reason != StopReason::Interrupted {
                break ended;
            }
            parts += 1;
        };
        assert!(parts > 2, "{parts} parts");
        assert_eq!((last, differing(&contents(&folder), &left)), (outcome.clone(), vec![]), "parts of {events} events");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
