//! A run without a command line: configured, planned, trained, resumed and evaluated by calls.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use memfit::train::run_dir::WEIGHTS;
use memfit::train::{Event, Flow};
use memfit_run::run_dir::{Rows, Trained};
use memfit_run::train::{End, Finished, Observer, Planning, RunEvent, prepare, run_all};
use memfit_run::{Purpose, RunConfig, RunError, RunResources, open};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("memfit-run-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whether it is there does not matter any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Counts what it hears of.
#[derive(Default)]
struct Counter {
    steps: Mutex<u32>,
    finished: Mutex<Vec<u32>>,
}

impl Observer for Counter {
    fn on_event(&self, _: usize, event: &Event) -> Flow {
        if matches!(event, Event::Step { .. }) {
            *self.steps.lock().expect("no panic") += 1;
        }
        Flow::Continue
    }

    fn on_finish(&self, finished: &Finished) {
        self.finished.lock().expect("no panic").push(finished.outcome.steps);
    }

    fn on_failure(&self, _: &RunResources, error: &RunError) {
        panic!("{error}");
    }
}

/// Trains to the end; gives the steps that were made, and the names of what happened before.
fn train(config: RunConfig) -> (u32, Vec<&'static str>) {
    let mut events = Vec::new();
    let runs = open(vec![config], Purpose::Train, false).expect("it is right");
    let trainings = prepare(runs, &Planning::default(), &mut |event| {
        events.push(match event {
            RunEvent::Data { .. } => "data",
            RunEvent::DataChanged { .. } => "data changed",
            RunEvent::Planning(_) => "planning",
            RunEvent::Planned { .. } => "planned",
            RunEvent::Shared(_) => "shared",
            RunEvent::Weights { .. } => "weights",
            RunEvent::Caching { .. } => "caching",
            RunEvent::Resumed { .. } => "resumed",
        });
    });
    let counter = Counter::default();
    let ends = run_all(trainings.expect("it fits"), &counter);
    assert!(matches!(ends[..], [End::Finished]));
    assert_eq!(counter.finished.into_inner().expect("no panic").len(), 1);
    (counter.steps.into_inner().expect("no panic"), events)
}

fn digits(steps: i64, out: &Path) -> RunConfig {
    let mut config = RunConfig::default();
    config.set("train", "steps", steps).expect("a number");
    config.set("train", "out", out.to_string_lossy().into_owned()).expect("a path");
    config.set("memory", "threads", 1).expect("a number");
    config
}

#[test]
fn a_run_is_trained_resumed_and_evaluated_by_calls() {
    let folder = Folder::new("digits");
    assert_eq!(train(digits(3, &folder.0)), (3, vec!["data", "planned"]));
    assert!(folder.0.join(WEIGHTS).is_file());
    let mut resumed = RunConfig::resume(&folder.0).expect("a run");
    resumed.set("train", "steps", 5).expect("a number");
    assert_eq!(train(resumed), (2, vec!["data", "planned", "resumed"]));
    let trained = Trained::open(RunConfig::resume(&folder.0).expect("a run"), Rows::AtMost(8)).expect("a model");
    assert_eq!((trained.class(7), trained.session.plan().micro_batch), ("7".to_string(), 8));
}

#[test]
fn what_is_wrong_is_a_fact_and_names_no_option() {
    let folder = Folder::new("wrong");
    let set = |section: &str, key: &str, value: toml::Value| {
        let mut config = digits(3, &folder.0);
        config.set(section, key, value).expect("it is of its kind");
        config
    };
    let error = |config: RunConfig| {
        let runs = open(vec![config], Purpose::Train, false);
        runs.and_then(|runs| prepare(runs, &Planning::default(), &mut |_| {})).err().expect("it is wrong")
    };
    let too_large = error(set("train", "batch", 5000.into()));
    assert!(matches!(too_large, RunError::BatchTooLarge { batch: 5000, samples: 1438 }), "{too_large}");
    let refused = error(set("memory", "budget", "1MiB".into()));
    assert!(matches!(refused, RunError::Plan { .. }), "{refused}");
    let no_data = error(set("model", "name", "resnet18".into()));
    assert!(matches!(&no_data, RunError::NoData { model } if model == "resnet18"), "{no_data}");
    let unknown = error(set("memory", "device", "cpu:0/1".into()));
    assert!(matches!(&unknown, RunError::NotSplit { name } if name == "cpu:0/1"), "{unknown}");
    for error in [too_large, refused, no_data, unknown] {
        assert!(!error.to_string().contains("--"), "{error}");
    }
    assert!(!folder.0.exists(), "nothing is made of a run that cannot begin");
}
