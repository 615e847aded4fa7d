//! The lower bound is one: no plan that is found lies below it, whatever the model and however much a device allows.

use memfit_ir::op::{Binary, Init, ReduceKind, Unary, Update};
use memfit_ir::{Builder, DType, Graph, NodeId, Result, TensorType, ValueId};
use memfit_plan::{CostModel, MadeFor, MicroBatch, Phase, Request, Survey, Target, survey};
use memfit_transform::{Fusion, Group, Half, Precision, StepGraph, Training, prune, step};
use proptest::prelude::*;

/// What a device can write in place.
#[derive(Clone, Copy, Debug)]
enum Paper {
    /// Anything over anything of its size, as no kernel can.
    Over,
    /// All but what a contraction itself reads and makes, as kernels can.
    Beside,
}

impl Target for Paper {
    fn fusion(&self) -> Fusion {
        Fusion::FULL
    }
    fn describe(&self) -> MadeFor {
        MadeFor::new("paper", "none")
    }
    fn cost_model(&self) -> CostModel {
        CostModel::new("paper", 270.0, 28.0, 3.0)
    }
    fn supports(&self, _: &Graph, _: NodeId) -> Result<(), String> {
        Ok(())
    }
    fn scratch_bytes(&self, _: &Graph, _: &Group) -> u64 {
        match self {
            Paper::Over => 0,
            Paper::Beside => 100,
        }
    }
    fn seconds(&self, _: &Graph, _: &Group, _: u64, _: &CostModel) -> f64 {
        1.0
    }
    fn alignment(&self) -> u64 {
        4
    }
    fn largest_binding(&self) -> u64 {
        1 << 40
    }
    fn largest_segment(&self) -> u64 {
        1 << 40
    }
    fn can_run_in_place(&self, graph: &Graph, group: &Group, input: ValueId, output: ValueId) -> bool {
        let root = graph.node(group.root());
        let read = group.nodes[..=group.prologue_len].iter().any(|n| graph.node(*n).inputs.contains(&input));
        match self {
            Paper::Over => true,
            Paper::Beside => !root.op.is_contraction() || (!read && !root.outputs.contains(&output)),
        }
    }
}

fn surveyed<'a>(step: &'a StepGraph, phase: Phase, target: &'a dyn Target) -> Survey<'a> {
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(ROWS) };
    survey(move |_| Ok(vec![(phase, step.clone())]), target, &request).unwrap()
}

const ROWS: usize = 64;
const WIDTH: usize = 32;
/// Of a tensor of this many rows and columns in f32.
const BYTES: u64 = (4 * ROWS * WIDTH) as u64;

/// The smallest plan and the bound, without the states.
fn transient(build: impl Fn(&mut Builder) -> Result<ValueId>, target: Paper) -> (u64, u64) {
    let mut b = Builder::new();
    let y = build(&mut b).unwrap();
    b.output("y", y);
    let step = b.finish().into();
    let survey = surveyed(&step, Phase::Eval, &target);
    let (arena, bound) = (survey.frontier().last().unwrap().arena_bytes, survey.lower_bound_bytes());
    let states = arena - survey.frontier().last().unwrap().transient_bytes;
    assert!(bound <= arena, "{target:?}: a plan takes {arena}, the bound is {bound}");
    (arena - states, bound - states)
}

fn weight(b: &mut Builder, name: &str, inside: usize, out: usize) -> Result<ValueId> {
    b.param(name, [inside, out], Init::Normal { std: 0.1 })
}

#[test]
fn a_constant_that_a_chain_holds_takes_nothing() {
    let constant = |b: &mut Builder| {
        let x = b.input("x", TensorType::new(DType::BF16, [ROWS, WIDTH]))?;
        let two = b.fill(2.0, TensorType::f32([ROWS, WIDTH]))?;
        let w = weight(b, "w", WIDTH, 1)?;
        let h = b.cast(x, DType::F32)?;
        let h = b.mul(h, two)?;
        b.matmul(h, w)
    };
    let rows = 4 * ROWS as u64;
    assert_eq!(transient(constant, Paper::Beside), (BYTES / 2 + rows + 100, BYTES / 2 + rows));
    // What a contraction reads itself is in memory, constant or not.
    let read = |b: &mut Builder| {
        let two = b.fill(2.0, TensorType::f32([ROWS, WIDTH]))?;
        let w = weight(b, "w", WIDTH, 1)?;
        b.matmul(two, w)
    };
    assert_eq!(transient(read, Paper::Beside).1, BYTES + rows);
}

#[test]
fn a_sum_may_lie_over_what_is_added() {
    let residual = |b: &mut Builder| {
        let x = b.input("x", TensorType::f32([ROWS, WIDTH]))?;
        let (narrow, wide) = (weight(b, "narrow", WIDTH, 1)?, weight(b, "wide", 1, WIDTH)?);
        let h = b.matmul(x, narrow)?;
        let h = b.matmul(h, wide)?;
        b.add(h, x)
    };
    let rows = 4 * ROWS as u64;
    assert_eq!(transient(residual, Paper::Beside), (BYTES + rows + 100, BYTES + rows));
}

#[test]
fn a_result_counts_as_it_leaves_its_kernel() {
    let narrowed = |b: &mut Builder| {
        let x = b.input("x", TensorType::f32([ROWS, 1]))?;
        let w = weight(b, "w", 1, WIDTH)?;
        let bias = b.param("bias", [WIDTH], Init::Constant(0.0))?;
        let y = b.matmul(x, w)?;
        let y = b.add(y, bias)?;
        b.cast(y, DType::BF16)
    };
    let rows = 4 * ROWS as u64;
    assert_eq!(transient(narrowed, Paper::Beside), (BYTES / 2 + rows + 100, BYTES / 2 + rows));
}

#[test]
fn scratch_of_what_always_runs_alone_counts() {
    let turned = |b: &mut Builder| {
        let x = b.input("x", TensorType::f32([ROWS, WIDTH]))?;
        b.reduce(ReduceKind::Mean, x, &[1], false)
    };
    let rows = 4 * ROWS as u64;
    assert_eq!(transient(turned, Paper::Beside), (BYTES + rows + 100, BYTES + rows + 100));
}

/// One step of making a model: which op, and which of the values so far it reads.
type Stone = (u8, usize, usize);

/// A model of the stones, which gives its loss.
fn built(stones: &[Stone]) -> Result<Graph> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([ROWS, WIDTH]))?;
    let z = b.input("z", TensorType::new(DType::BF16, [ROWS, WIDTH]))?;
    let z = b.cast(z, DType::F32)?;
    let mut wide = vec![x, z];
    let mut narrow = vec![weighed(&mut b, x, "first", WIDTH, 4)?];
    for (i, &(kind, p, q)) in stones.iter().enumerate() {
        let (p, q, r) = (wide[p % wide.len()], wide[q % wide.len()], narrow[q % narrow.len()]);
        let name = format!("w{i}");
        match kind % 10 {
            0 => wide.push(weighed(&mut b, p, &name, WIDTH, WIDTH)?),
            1 => narrow.push(weighed(&mut b, p, &name, WIDTH, 4)?),
            2 => wide.push(weighed(&mut b, r, &name, 4, WIDTH)?),
            3 => wide.push(b.add(p, q)?),
            4 => wide.push(b.relu(p)?),
            5 => wide.push(b.unary(Unary::Tanh, p)?),
            6 => {
                let c = b.fill(0.5, TensorType::f32([ROWS, WIDTH]))?;
                wide.push(b.binary(Binary::Mul, p, c)?);
            }
            7 => wide.push(b.softmax(p, 1, false)?),
            8 => {
                let h = b.cast(p, DType::BF16)?;
                wide.push(b.cast(h, DType::F32)?);
            }
            _ => {
                let flat = b.reshape(p, [ROWS * WIDTH])?;
                let back = b.reshape(flat, [ROWS, WIDTH])?;
                wide.push(b.mul(back, q)?);
            }
        }
    }
    let (last, four) = (wide[wide.len() - 1], narrow[narrow.len() - 1]);
    let last = weighed(&mut b, last, "last", WIDTH, 4)?;
    let loss = b.add(last, four)?;
    let loss = b.mean(loss)?;
    b.output("loss", loss);
    Ok(b.finish())
}

fn weighed(b: &mut Builder, h: ValueId, name: &str, inside: usize, out: usize) -> Result<ValueId> {
    let w = weight(b, name, inside, out)?;
    b.matmul(h, w)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_lies_below_the_bound(
        stones in prop::collection::vec((any::<u8>(), any::<usize>(), any::<usize>()), 0..14),
        mixed in any::<bool>(),
    ) {
        // What nothing reads cannot be trained.
        let forward = prune(&built(&stones).unwrap());
        let loss = forward.output("loss").unwrap();
        let update = Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
        let precision = if mixed { Precision::Mixed(Half::Bf16) } else { Precision::F32 };
        let trained = step(&forward, loss, &Training { precision, ..Training::new(update) }).unwrap();
        let forward = StepGraph::from(forward);
        for target in [Paper::Over, Paper::Beside] {
            for (step, phase) in [(&forward, Phase::Eval), (&trained, Phase::Step)] {
                let survey = surveyed(step, phase, &target);
                let bound = survey.lower_bound_bytes();
                for point in survey.frontier() {
                    prop_assert!(bound <= point.arena_bytes, "{target:?}, {phase:?}: {point:?} below {bound}");
                }
            }
        }
    }
}
