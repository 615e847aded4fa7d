//! Every model of the zoo trains on the GPU as on the CPU: each step takes the same states to the same states. And training goes
//! on from there by itself: the tightest plan gives the same bits as the fastest, and so does the same plan again.
//!
//! A step has kinks: where the input of a ReLU is zero but for rounding, rounding decides whether a gradient goes through, and
//! two results that are both right differ by a tenth. Such a state has to be what the CPU makes of some states that are the same
//! but for their last bits. Other states are nothing but rounding (the gradient of a bias that a norm takes away again): how near
//! the CPU's own results come to each other says what can be asked of them.
#![cfg(feature = "gpu")]

mod common;

use std::ops::Range;

use common::gpu;
use memfit_exec::{Executor, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::zoo::{self, State, Trainee, calmed, difference, floats, moved};
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
    /// What the CPU made of the same states, and then of nearby ones.
    made: Vec<Vec<u8>>,
}

/// The states that differ by more than the tolerance, beside what the CPU makes of nearby states.
fn apart<'a>(cpu: &mut Trainee<CpuExecutor>, leg: &Leg, given: &'a [State]) -> Vec<Apart<'a>> {
    let measured = |(index, ((_, exact), given)): (usize, (&State, &'a State))| {
        let tolerance = TOLERANCE * floats(exact).fold(0f32, |m, x| m.max(x.abs()));
        let distance = difference(exact, &given.1);
        let is_apart = distance.is_nan() || distance > tolerance;
        is_apart.then(|| Apart { index, given, tolerance, made: vec![exact.clone()] })
    };
    let mut apart: Vec<Apart> = leg.after.iter().zip(given).enumerate().filter_map(measured).collect();
    let neighbours = if apart.is_empty() { 0 } else { NEIGHBOURS };
    for seed in 1..=neighbours {
        let mut next = take(cpu, leg.steps.clone(), &moved(&leg.before, seed));
        apart.iter_mut().for_each(|state| state.made.push(std::mem::take(&mut next[state.index].1)));
    }
    apart
}

impl Apart<'_> {
    /// How far it is from what the CPU made of the same states,
    fn distance(&self) -> f32 {
        difference(&self.made[0], &self.given.1)
    }

    /// and from the nearest that it made.
    fn nearest(&self) -> f32 {
        self.made.iter().map(|made| difference(made, &self.given.1)).fold(f32::INFINITY, f32::min)
    }

    /// How far it may be from that: a few times as far as one that the CPU made is from the nearest other one, in the median.
    fn allowed(&self) -> f32 {
        let mut nearest = vec![f32::INFINITY; self.made.len()];
        for (i, j) in (0..self.made.len()).flat_map(|j| (0..j).map(move |i| (i, j))) {
            let distance = difference(&self.made[i], &self.made[j]);
            [i, j].into_iter().for_each(|k| nearest[k] = nearest[k].min(distance));
        }
        nearest.sort_by(f32::total_cmp);
        self.tolerance + LUCK * nearest[nearest.len() / 2]
    }

    /// How far the CPU itself comes.
    fn spread(&self) -> f32 {
        self.made.iter().map(|made| difference(made, &self.made[0])).fold(0.0, f32::max)
    }
}

/// A step from the same states leads to the same states.
fn check_step(model: &str, cpu: &mut Trainee<CpuExecutor>, leg: &Leg, given: &[State]) {
    let (mut largest, mut loosest) = (0f32, 0f32);
    let apart = apart(cpu, leg, given);
    for state in &apart {
        let (name, nearest, allowed) = (&state.given.0, state.nearest(), state.allowed());
        let distance = state.distance();
        assert!(nearest <= allowed, "{name} is off by {distance:e}, and {nearest:e} from all nearby, not {allowed:e}");
        (largest, loosest) = (largest.max(nearest / allowed), loosest.max(TOLERANCE * allowed / state.tolerance));
    }
    let (step, apart) = (leg.steps.start, apart.len());
    println!("{model}, step {step}: {apart} states apart, {largest:.2} of what they may be, at most {loosest:.4}");
}

/// Several steps, each from where the last one led: which kinks lie on the way differs, and they add up.
fn check_course(cpu: &mut Trainee<CpuExecutor>, leg: &Leg, given: &[State]) {
    for state in apart(cpu, leg, given) {
        let (name, distance, spread) = (&state.given.0, state.distance(), state.spread());
        assert!(distance <= state.tolerance + LUCK * spread, "{name} is off by {distance:e}; the CPU by {spread:e}");
    }
}

fn check_same(way: &str, expected: &[State], given: &[State]) {
    for (a, b) in expected.iter().zip(given) {
        assert!(a == b, "{} has other bits: {way}", a.0);
    }
}

/// Each step from the states that the CPU has then, and all of them in one go; gives the first and the last states.
fn check_beside_cpu(name: &str, executor: &GpuExecutor, plans: &Survey) -> [Vec<State>; 2] {
    let (model, training) = (zoo::small(name), zoo::training(Precision::F32));
    let cpu = CpuExecutor::new(2).unwrap();
    let plan = zoo::plans(&model, &training, cpu.target(), BATCH).unwrap().plan(None).unwrap();
    let mut cpu = Trainee::new(cpu.clone(), plan, Options::default()).unwrap();
    let known = executor.gpu().compiled().len();
    let mut gpu = Trainee::new(executor.clone(), plans.plan(None).unwrap(), Options::default()).unwrap();
    let compiled = executor.gpu().compiled();
    let seconds: f64 = compiled[known..].iter().fold(0.0, |sum, (_, time)| sum + time.as_secs_f64());
    println!("{name}: {} shaders more, compiled in {seconds:.1} s", compiled.len() - known);

    check_same("initial values", &cpu.states().unwrap(), &gpu.states().unwrap());
    let initial = calmed(cpu.states().unwrap());
    let mut states = initial.clone();
    for step in 0..STEPS {
        let leg = Leg::new(&mut cpu, step..step + 1, states);
        check_step(name, &mut cpu, &leg, &take(&mut gpu, leg.steps.clone(), &leg.before));
        states = leg.after;
    }
    let course = Leg { steps: 0..STEPS, before: initial, after: states };
    let last = take(&mut gpu, course.steps.clone(), &course.before);
    check_course(&mut cpu, &course, &last);
    [course.before, last]
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
    let [initial, expected] = check_beside_cpu(name, &executor, &plans);
    let smallest = plans.frontier().last().expect("a plan").device_bytes();
    let ways = [("the tightest plan", Some(smallest)), ("the fastest plan again", None)];
    for (way, budget) in ways.into_iter().take(if full { 2 } else { 1 }) {
        let poisoned = Options { poison: true, ..Options::default() };
        let mut trainee = Trainee::new(executor.clone(), plans.plan(budget).unwrap(), poisoned).unwrap();
        check_same(way, &expected, &take(&mut trainee, 0..STEPS, &initial));
    }
}

memfit_exec_tests::each_zoo_model!(check);
