//! With a lazy arena, the pages that a step touches are those of the plan: none outside of the union of all places, and
//! every page that a value lies on. Weights that are loaded before the first step touch their own.

#![cfg(target_os = "linux")]

use crate::common;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Cursor, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{engine, sgd};
use memfit_exec::weights::Match;
use memfit_exec::{Clock, Engine, Growth, HostMemory, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::generate::{Recipe, Samples, numbered};
use memfit_exec_tests::{Batch, Result, Tensor};
use memfit_ir::op::{Conv, Init, Pad2, StateClass, Unary, Window};
use memfit_ir::{Builder, Graph, TensorType, ValueId};
use memfit_plan::{MicroBatch, Place, Program, Request, Segment, StateSlot};

/// Of the system: 4 KiB on most, 16 or 64 on some.
fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// Past the test's captured output: that it could not look.
fn skipped(what: &str, problem: &io::Error) {
    // Where nobody can read it, nobody asked.
    let _ =
        writeln!(io::stderr(), "{what}: skipped, because /proc/self/pagemap does not tell what was touched: {problem}");
}

/// Pages of a segment that are in memory, by their number in it. An error means that the system does not tell.
fn resident(engine: &Engine<CpuExecutor>, segment: Segment, bytes: u64) -> io::Result<HashSet<u64>> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let first = match segment {
        Segment::State => engine.look_at_states(HostMemory::base),
        Segment::Transient => engine.transient().look(HostMemory::base),
    };
    let first = first as u64 / page();
    let mut entry = [0u8; 8];
    let mut pages = HashSet::new();
    for page in 0..bytes.div_ceil(page()) {
        pagemap.read_exact_at(&mut entry, (first + page) * 8)?;
        // Bit 63: present; bit 62: swapped out.
        if u64::from_ne_bytes(entry) >> 62 != 0 {
            pages.insert(page);
        }
    }
    Ok(pages)
}

fn pages(places: impl Iterator<Item = Place>) -> HashSet<u64> {
    places.filter(|p| p.size > 0).flat_map(|p| p.offset / page()..(p.offset + p.size).div_ceil(page())).collect()
}

fn values(program: &Program) -> impl Iterator<Item = Place> {
    program.places.iter().flatten().copied().filter(|p| p.segment == Segment::Transient)
}

/// Wide enough that most values lie on pages of their own.
fn wide(batch: usize) -> Result<(Graph, ValueId)> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([batch, 40, 40, 3]))?;
    let y = b.input("y", TensorType::i32([batch]))?;
    let normal = Init::Normal { std: 0.05 };
    let w = b.param("conv", [3, 3, 3, 24], normal)?;
    let h = b.conv(x, w, Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 1], groups: 1 })?;
    let h = b.unary(Unary::Silu, h)?;
    let h = b.max_pool(h, Window { size: [2, 2], stride: [2, 2], pad: Pad2::NONE })?;
    let width = 20 * 20 * 24;
    let h = b.reshape(h, [batch, width])?;
    let w = b.param("dense", [width, 10], normal)?;
    let logits = b.matmul(h, w)?;
    let each = b.cross_entropy(logits, y, 0.0)?;
    let loss = b.mean(each)?;
    Ok((b.finish(), loss))
}

fn check(name: &str, forward: common::Forward, batch: usize, micro_batch: usize, inputs: &Batch) {
    let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), ..Request::new(batch) };
    let options = Options { growth: Growth::Lazy, ..Options::default() };
    // Some systems give huge pages unasked, of which a touch takes all.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let mut engine = engine(2, forward, &sgd(0.9), &request, options).unwrap();
    engine.step(&inputs.views(), 0.1, Clock::default()).unwrap();

    let plan = engine.plan();
    let touched = match resident(&engine, Segment::Transient, plan.transient_bytes) {
        Ok(touched) => touched,
        Err(e) => return skipped(name, &e),
    };
    let scratch = plan.programs.iter().flat_map(|p| p.launches.iter().filter_map(|s| s.scratch));
    let written = pages(plan.programs.iter().flat_map(values));
    let planned: HashSet<u64> = written.union(&pages(scratch)).copied().collect();
    println!("{name}: {} pages touched, {} of values, {} planned", touched.len(), written.len(), planned.len());
    let sorted = |set: HashSet<u64>| {
        let mut list: Vec<u64> = set.into_iter().collect();
        list.sort_unstable();
        list
    };
    let outside: HashSet<u64> = touched.difference(&planned).copied().collect();
    assert_eq!(sorted(outside), [0u64; 0], "{name}: pages touched that no value and no scratch lies on");
    let missed: HashSet<u64> = written.difference(&touched).copied().collect();
    assert_eq!(sorted(missed), [0u64; 0], "{name}: pages of values that were not touched");
    let segment = plan.transient_bytes.div_ceil(page());
    assert!(planned.len() as u64 <= segment, "{name}: {} pages planned of {segment}", planned.len());
}

#[test]
fn a_step_touches_the_planned_pages_and_no_others() {
    for (micro_batch, name) in [(4, "whole"), (2, "in micro-batches")] {
        let (graph, _) = wide(4).unwrap();
        let x = Tensor::filled(graph.ty(graph.input("x").unwrap()), 0.5);
        let feeds = [("x".to_string(), x), ("y".to_string(), Tensor::i32([4], &[1, 2, 3, 4]).unwrap())];
        check(name, &wide, 4, micro_batch, &Batch::new(feeds));
    }
    for i in 0..20 {
        let recipe = Recipe { draws: numbered(i, "lazy"), samples: Samples::Together };
        let forward = |n: usize| recipe.forward(n);
        let inputs = Batch::new(recipe.feeds(&recipe.forward(16).unwrap().0));
        check(&format!("model {i}"), &forward, 16, 16, &inputs);
    }
}

#[test]
fn loading_weights_touches_their_pages_and_no_others() {
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let lazy = || {
        let options = Options { growth: Growth::Lazy, ..Options::default() };
        engine(1, &wide, &sgd(0.9), &Request::new(4), options).unwrap()
    };
    let is_param = |s: &StateSlot| s.class == StateClass::Param;
    let path = Path::new("in memory");
    let (source, mut target) = (lazy(), lazy());
    let mut file = Vec::new();
    source.write_states(&mut file, path, is_param).unwrap();
    target.read_states(&mut Cursor::new(file), path, Match::Exact, is_param).unwrap();
    let plan = target.plan();
    let touched = |engine: &Engine<CpuExecutor>| {
        let states = resident(engine, Segment::State, plan.state_bytes)?;
        Ok::<_, io::Error>((states, resident(engine, Segment::Transient, plan.transient_bytes)?))
    };
    let (source, target) = match (touched(&source), touched(&target)) {
        (Ok(source), Ok(target)) => (source, target),
        (Err(e), _) | (_, Err(e)) => return skipped("loading weights", &e),
    };
    assert_eq!(source, Default::default(), "a checkpoint of initial values needs none");
    let params = pages(plan.states.iter().filter(|s| is_param(s)).map(|s| s.place));
    assert!(!params.is_empty() && params.len() as u64 * page() < plan.state_bytes * 2 / 3);
    assert_eq!(target, (params, HashSet::new()));
}
