//! A device that really refuses memory, inside of its runtime's own thread: told once as an error, nothing hangs, and what was
//! there before goes on. Alone in its process, whose limit it lowers.
#![cfg(all(feature = "gpu", target_os = "linux"))]

mod common;

use common::gpu;
use memfit_exec::{Device, ExecError, Executor, Growth, TensorView};
use memfit_exec_gpu::GpuExecutor;
use memfit_nn::Optimizer;
use memfit_nn::zoo::Mlp;
use memfit_plan::{MicroBatch, Plan, Request, plan};
use memfit_train::{Session, programs};
use memfit_transform::Training;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than is left.
const TOO_MUCH: u64 = 1 << 30;
/// What the runtime may take meanwhile for what it does anyway.
const LEFT: u64 = 200 << 20;

/// Runs with an address space that is `LEFT` larger than now, and no more. Of a device in software that is its memory.
fn with_little_left<T>(run: impl FnOnce() -> T) -> T {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = sizes.split_whitespace().next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    let current = Some(pages * rustix::param::page_size() as u64 + LEFT);
    setrlimit(Resource::As, Rlimit { current, ..before }).unwrap();
    let result = run();
    setrlimit(Resource::As, before).unwrap();
    result
}

fn mlp(executor: &GpuExecutor, width: usize, batch: usize) -> Plan {
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
    let (model, training) = (Mlp::new(20, &[width], 7), Training::new(Optimizer::adam().update));
    plan(&|rows| programs(&model, &training, batch, rows), executor.target(), &request).unwrap()
}

/// That somebody was refused what is more than was left, and by whom.
fn check_refused<T>(result: Result<T, ExecError>, executor: &GpuExecutor, holder: &str) {
    match result {
        Err(ExecError::OutOfMemory { device, holder: told, bytes, source }) => {
            assert!(device.contains(&executor.gpu().name) && told == holder, "{device}, {told}: {source}");
            assert!(bytes > LEFT, "{bytes}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was given"),
    }
}

#[test]
fn memory_that_a_device_refuses_is_an_error_and_nothing_is_lost() {
    let Some(executor) = gpu() else { return };
    if !executor.gpu().is_software() {
        return eprintln!("skipped: the memory of this device is not the process's");
    }
    let mut session = Session::new(executor.clone(), mlp(&executor, 33, 8), 1).unwrap();
    let (x, y): (Vec<f32>, Vec<i32>) = ((0..160).map(|i| (i % 13) as f32).collect(), (0..8).map(|i| i % 7).collect());
    let batch = [("x", TensorView::f32(&[8, 20], &x)), ("y", TensorView::i32(&[8], &y))];
    let mut step = || session.step(&batch, 1e-3).unwrap();
    let first = step();
    let device = Device::new("enough", u64::MAX);
    let on = executor.on(device.clone());
    let segment = |bytes: u64| on.allocate("activations of a", bytes, Growth::Commit);
    check_refused(with_little_left(|| segment(TOO_MUCH)), &executor, "activations of a");
    // What is left is given: nothing takes it twice.
    drop(with_little_left(|| segment(LEFT / 4 * 3)).unwrap());
    let plan = mlp(&executor, 1, 1_600_000);
    let copies = || on.clone().take_staging("copies of b", &plan);
    check_refused(with_little_left(copies), &executor, "copies of b");
    assert_eq!(device.used(), 0, "nothing is held by who was refused");
    // What was there before goes on, and there is as much as before.
    assert!(step() < first);
    drop(segment(TOO_MUCH).unwrap());
    assert!(step() < first);
}
