//! What planning itself takes: a counting allocator sees the survey and the plan of zoo models. One test in a binary of its
//! own, so that no other test's allocations are counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::{CpuExecutor, Request, Subject, Training, ZooModel};

struct Counting;

/// Bytes that are allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::SeqCst) + bytes;
    PEAK.fetch_max(live, Ordering::SeqCst);
}

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        LIVE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Bytes at most during planning, and of the plan alone.
fn measure(name: &str, batch: usize) -> (usize, usize) {
    let (model, cpu) = (ZooModel::from_name(name).expect("a model"), CpuExecutor::new(2).expect("threads"));
    let (training, request) = (Training::new(Optimizer::adam().update), Request::new(batch));
    let subject = Subject { model: &model, training: &training, target: cpu.target(), request: &request };
    let before = LIVE.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    let plan = subject.survey().and_then(|survey| survey.plan(None)).expect("a plan");
    let (peak, after) = (PEAK.load(Ordering::SeqCst), LIVE.load(Ordering::SeqCst));
    drop(plan);
    (peak - before, after - LIVE.load(Ordering::SeqCst))
}

/// A hundred candidates are looked at, but no more than their outlines are kept beside the one that is drafted.
#[test]
fn planning_takes_a_few_times_its_plan() {
    for (name, batch) in [("digits", 32), ("mobilenet_v3_small", 32), ("resnet50", 16), ("gpt", 8), ("unet", 4)] {
        let (peak, plan) = measure(name, batch);
        println!("{name}, batch {batch}: {} KiB for a plan of {} KiB", peak >> 10, plan >> 10);
        assert!(peak <= 8 * plan, "{name}: {peak} bytes for a plan of {plan}");
    }
}
