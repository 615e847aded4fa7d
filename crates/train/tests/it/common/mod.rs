//! What the tests share: small models, planned for the CPU.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memfit_data::{BytePool, Dataset, OnBad, Remainder, Tensors};
use memfit_exec::Executor;
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::{TensorType, philox};
use memfit_nn::Model;
use memfit_nn::optim::Optimizer;
use memfit_nn::zoo::Digits;
use memfit_plan::{MicroBatch, Plan, Request};
use memfit_train::{
    Datasets, Decay, Feed, FitOptions, Metric, Period, Progress, RunDir, SaveEvery, Schedule, Session, history,
    programs, run_dir,
};
use memfit_transform::Training;

pub fn cpu() -> CpuExecutor {
    CpuExecutor::new(1).unwrap()
}

pub fn training() -> Training {
    Training::new(Optimizer::adam().update)
}

/// The convnet of the zoo for images of 8×8: dropout, batch norm.
pub fn digits() -> &'static dyn Model {
    static MODEL: Digits = Digits { input: [8, 8, 1], classes: 10, dropout: 0.25, width: 1.0, kernel: 3 };
    &MODEL
}

pub fn plan(model: &dyn Model, training: &Training, batch: usize, micro_batch: Option<usize>) -> Plan {
    let micro_batch = micro_batch.map_or(MicroBatch::Exactly(batch), MicroBatch::Exactly);
    let request = Request { micro_batch, ..Request::new(batch) };
    let source = |rows: usize| programs(model, training, batch, rows);
    memfit_plan::plan(&source, cpu().target(), &request).unwrap()
}

pub fn session(model: &dyn Model, batch: usize, micro_batch: Option<usize>, seed: u64) -> Session<CpuExecutor> {
    Session::new(cpu(), plan(model, &training(), batch, micro_batch), seed).unwrap()
}

/// Every state that outlives a step.
pub fn bits(session: &Session<CpuExecutor>) -> Vec<(String, Vec<u8>)> {
    session.weights().map(|s| (s.name.clone(), session.weight(&s.name).unwrap())).collect()
}

/// A path of its own for each test.
pub fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("memfit-train-{}-{name}", std::process::id()))
}

// ---- data -----------------------------------------------------------------------------------------------------------

/// Images of 8×8 with a bright row or column, which is their class, and some noise. No two are the same.
pub fn images(count: usize, seed: u64) -> Tensors {
    let (x, y) = pixels_and_classes(count, seed);
    let with_x = Tensors::new().with("x", TensorType::f32([count, 8, 8, 1]), x).unwrap();
    with_x.with("y", TensorType::i32([count]), y).unwrap()
}

pub fn pixels_and_classes(count: usize, seed: u64) -> (Vec<f32>, Vec<i32>) {
    let noise: Vec<f32> = philox::uniform(seed, "noise", count * 64).collect();
    let mut x = noise.iter().map(|n| n * 0.3).collect::<Vec<f32>>();
    let y: Vec<i32> = (0..count).map(|i| ((i * 7 + seed as usize) % 10) as i32).collect();
    for (image, &class) in x.chunks_exact_mut(64).zip(&y) {
        let at = |i: usize| if class < 5 { class as usize * 8 + i } else { i * 8 + class as usize - 5 };
        (0..8).for_each(|i| image[at(i)] += 1.0);
    }
    (x, y)
}

/// Shuffled batches to train on, and a test set whose last batch is not full.
pub fn datasets(batch: usize) -> Datasets {
    let train = Dataset::from_tensors(images(44, 1)).unwrap().shuffle(44).batch(batch, Remainder::Drop);
    let test = Dataset::from_tensors(images(13, 2)).unwrap().batch(5, Remainder::Keep);
    Datasets { train, test: Some(test) }
}

/// One pool, with room for training in batches of 8 or for evaluation, but not for both at once.
pub fn feed(threads: usize) -> Feed {
    let pool = BytePool::new(5500);
    Feed { test_pool: pool.clone(), pool, threads, bad: OnBad::Fail }
}

/// A few epochs with everything that can happen in them.
pub fn options(run: Option<RunDir>, progress: Progress) -> FitOptions {
    FitOptions {
        length: Period::Epochs(2),
        schedule: Schedule { peak: 1e-2, warm_up: Period::Steps(3), decay: Decay::Cosine { floor: 1e-4 } },
        heads: digits().heads().unwrap(),
        evaluate: Period::Epochs(1),
        monitor: Metric::Loss.into(),
        early_stop: None,
        run,
        save: SaveEvery { steps: Some(2), ..SaveEvery::default() },
        progress,
        feed: feed(1),
    }
}

/// A folder of its own for each test, empty.
pub fn folder(name: &str) -> PathBuf {
    let path = file(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// What lies in a folder, byte by byte; of its history, all that does not depend on the clock or on when it was stopped.
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entry = |e: std::io::Result<std::fs::DirEntry>| {
        let path = e.unwrap().path();
        let (name, bytes) = (path.file_name().unwrap().to_str().unwrap().to_string(), std::fs::read(&path).unwrap());
        let bytes = match name.as_str() {
            run_dir::HISTORY => without_clock(folder),
            run_dir::EVENTS => events_without_clock(&bytes),
            _ => bytes,
        };
        (name, bytes)
    };
    std::fs::read_dir(folder).unwrap().map(entry).collect()
}

fn without_clock(folder: &Path) -> Vec<u8> {
    let clock = ["samples_per_s", "step_ms", "waited_ms", "process_bytes"];
    let mut rows = history::read(folder).unwrap();
    for row in &mut rows {
        for (value, _) in row.values.iter_mut().zip(history::COLUMNS).filter(|(_, c)| clock.contains(c)) {
            *value = None;
        }
    }
    format!("{rows:?}").into_bytes()
}

fn events_without_clock(bytes: &[u8]) -> Vec<u8> {
    let mut kept = String::new();
    for line in std::str::from_utf8(bytes).unwrap().lines() {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        for key in ["time", "ms", "waited_ms", "process_bytes"] {
            event.as_object_mut().unwrap().remove(key);
        }
        // It is told when the checkpoint is there, and not before.
        if event["event"] != "checkpoint" {
            kept += &format!("{event}\n");
        }
    }
    kept.into_bytes()
}
