//! Every model of the zoo trains on the GPU as on the CPU: each step takes the same states to the same states. And training goes
//! on from there by itself: the tightest plan gives the same bits as the fastest, and so does the same plan again.
//!
//! A step has kinks: where the input of a ReLU is zero but for rounding, rounding decides whether a gradient goes through, and
//! two results that are both right differ by a tenth. Such a state has to be what the CPU makes of some states that are the same
//! but for their last bits. Other states are nothing but rounding (the gradient of a bias that a norm takes away again): how
//! much, the same steps of the CPU tell.
#![cfg(feature = "gpu")]

mod common;

use std::ops::Range;

use common::gpu;
use memfit_exec::{Executor, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::zoo::{self, State, Trainee, difference, floats, moved};
use memfit_plan::Survey;
use memfit_test_effort::Effort;
use memfit_transform::Precision;

const BATCH: usize = 2;
const STEPS: u32 = 3;
/// What a state may be off by, as a share of its largest number.
const TOLERANCE: f32 = 1e-3;
/// How often the CPU takes steps from states that differ in their last bits.
const NEIGHBOURS: u64 = 8;
/// Rounding on another device is no more than so many times that of the CPU.
const LUCK: f32 = 4.0;

/// Steps of the CPU from some states.
struct Leg {
    steps: Range<u32>,
    before: Vec<State>,
    after: Vec<State>,
}

impl Leg {
    fn new(cpu: &mut Trainee<CpuExecutor>, steps: Range<u32>, before: Vec<State>) -> Leg {
        let after = take(cpu, steps.clone(), &before);
        Leg { steps, before, after }
    }
}

/// The states after these steps.
fn take<E: Executor>(trainee: &mut Trainee<E>, steps: Range<u32>, before: &[State]) -> Vec<State> {
    trainee.set_states(steps.start, before).unwrap();
    steps.for_each(|_| trainee.step().unwrap());
    trainee.states().unwrap()
}

/// A state that is not what the CPU made of the same states before.
struct Apart<'a> {
    index: usize,
    /// As the GPU left it.
    given: &'a State,
    tolerance: f32,
    /// How far it is from what the CPU made.
    distance: f32,
    /// Of what the CPU makes of nearby states, how far the nearest is from it,
    nearest: f32,
    /// how near two of them are to each other, which is what rounding does besides kinks,
    rounding: f32,
    /// and how far they are from what it made.
    spread: f32,
}

/// The states that differ by more than the tolerance, measured beside what the CPU makes of nearby states.
fn apart<'a>(cpu: &mut Trainee<CpuExecutor>, leg: &Leg, given: &'a [State]) -> Vec<Apart<'a>> {
    let measured = |(index, ((_, exact), given)): (usize, (&State, &'a State))| {
        let tolerance = TOLERANCE * floats(exact).iter().fold(0f32, |m, x| m.max(x.abs()));
        let distance = difference(exact, &given.1);
        Apart { index, given, tolerance, distance, nearest: distance, rounding: f32::INFINITY, spread: 0.0 }
    };
    let all = leg.after.iter().zip(given).enumerate().map(measured);
    let mut apart: Vec<Apart> = all.filter(|s| s.distance.is_nan() || s.distance > s.tolerance).collect();
    let mut last = leg.after.clone();
    let neighbours = if apart.is_empty() { 0 } else { NEIGHBOURS };
    for seed in 1..=neighbours {
        let next = take(cpu, leg.steps.clone(), &moved(&leg.before, seed));
        for state in &mut apart {
            let of = |states: &[State], other: &[u8]| difference(&states[state.index].1, other);
            state.nearest = state.nearest.min(of(&next, &state.given.1));
            state.rounding = state.rounding.min(of(&next, &last[state.index].1));
            state.spread = state.spread.max(of(&next, &leg.after[state.index].1));
        }
        last = next;
    }
    apart
}

/// A step from the same states leads to the same states.
fn check_step(model: &str, cpu: &mut Trainee<CpuExecutor>, leg: &Leg, given: &[State]) {
    let apart = apart(cpu, leg, given);
    for Apart { given: (name, _), tolerance, distance, nearest, rounding, .. } in &apart {
        let allowed = tolerance + LUCK * rounding;
        assert!(nearest <= &allowed, "{name} is {distance:e} off, and {nearest:e} from the CPU's in any states nearby");
    }
    let largest = apart.iter().map(|s| s.nearest / (s.tolerance + LUCK * s.rounding)).fold(0.0, f32::max);
    let (step, apart) = (leg.steps.start, apart.len());
    println!("{model}, step {step}: {apart} states behind kinks, {largest:.2} of what they may differ by beside them");
}

/// Several steps, each from where the last one led: which kinks lie on the way differs, and they add up.
fn check_course(cpu: &mut Trainee<CpuExecutor>, leg: &Leg, given: &[State]) {
    for Apart { given: (name, _), tolerance, distance, spread, .. } in apart(cpu, leg, given) {
        let allowed = tolerance + LUCK * spread;
        assert!(distance <= allowed, "{name} is off by {distance:e}; the CPU by {spread:e} from states nearby");
    }
}

fn check_same(way: &str, expected: &[State], given: &[State]) {
    for (a, b) in expected.iter().zip(given) {
        assert!(a == b, "{} has other bits: {way}", a.0);
    }
}

/// Each step from the states that the CPU has then, and all of them in one go; gives the states at its end.
fn check_beside_cpu(name: &str, executor: &GpuExecutor, plans: &Survey) -> Vec<State> {
    let (model, training) = (zoo::small(name), zoo::training(Precision::F32));
    let cpu = CpuExecutor::new(2).unwrap();
    let plan = zoo::plans(&model, &training, cpu.target(), BATCH).unwrap().plan(None).unwrap();
    let mut cpu = Trainee::new(cpu.clone(), plan, Options::default()).unwrap();
    let known = executor.gpu().compiled().len();
    let mut gpu = Trainee::new(executor.clone(), plans.plan(None).unwrap(), Options::default()).unwrap();
    let compiled = executor.gpu().compiled();
    let seconds: f64 = compiled[known..].iter().map(|(_, time)| time.as_secs_f64()).sum();
    println!("{name}: {} shaders more, compiled in {seconds:.1} s", compiled.len() - known);

    let initial = cpu.states().unwrap();
    check_same("initial values", &initial, &gpu.states().unwrap());
    let mut states = initial.clone();
    for step in 0..STEPS {
        let leg = Leg::new(&mut cpu, step..step + 1, states);
        check_step(name, &mut cpu, &leg, &take(&mut gpu, leg.steps.clone(), &leg.before));
        states = leg.after;
    }
    let course = Leg { steps: 0..STEPS, before: initial, after: states };
    let last = take(&mut gpu, course.steps.clone(), &course.before);
    check_course(&mut cpu, &course, &last);
    last
}

/// Trained without full effort too: one of each kind.
const CROSS_SECTION: [&str; 5] = ["mlp", "digits", "mobilenet_v3_small", "unet", "gpt"];

fn check(name: &str) {
    let full = Effort::from_env() == Effort::Full;
    if !CROSS_SECTION.contains(&name) && !full {
        return;
    }
    let Some(executor) = gpu() else { return };
    let (model, training) = (zoo::small(name), zoo::training(Precision::F32));
    let plans = zoo::plans(&model, &training, executor.target(), BATCH).unwrap();
    let expected = check_beside_cpu(name, &executor, &plans);
    let smallest = plans.frontier().last().expect("a plan").arena_bytes;
    let ways = [("the tightest plan", Some(smallest)), ("the fastest plan again", None)];
    for (way, budget) in ways.into_iter().take(if full { 2 } else { 1 }) {
        let poisoned = Options { poison: true, ..Options::default() };
        let trainee = Trainee::new(executor.clone(), plans.plan(budget).unwrap(), poisoned).unwrap();
        check_same(way, &expected, &trainee.train().unwrap());
    }
}

memfit_exec_tests::each_zoo_model!(check);
