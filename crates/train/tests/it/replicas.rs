//! Replicas that train together: every number of them, with every plan, ends in the same bits.

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{digits, images, pixels_and_classes, training};
use memfit_data::{BytePool, Dataset, Remainder};
use memfit_exec::{Executor, Options, TensorView, thread_wires};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::{Op, Replica};
use memfit_nn::optim::Optimizer;
use memfit_plan::report::batch_statistics;
use memfit_plan::save::Labels;
use memfit_plan::{MicroBatch, Phase, Plan, PlanError, Request};
use memfit_train::{
    Datasets, Event, FitOptions, Flow, Period, RunDir, Session, StopReason, TrainError, fit, replica_programs,
};
use memfit_transform::{BatchNorm, Clip, Exchange, Half, Precision, Shard, Training};

/// Of a batch.
const LANES: usize = 4;
const BATCH: usize = 32;
const STEPS: usize = 4;
const STALL: Duration = Duration::from_secs(120);

/// How replicas differ from each other, which is to change nothing.
#[derive(Clone, Copy)]
struct Setting {
    micro_batch: usize,
    shard: Shard,
    piece: usize,
    batch_norm: BatchNorm,
    /// Odd replicas have one thread and no more memory than they need, the others two and as much as they like.
    uneven: bool,
    poison: bool,
}

const EVEN: Setting = Setting {
    micro_batch: 4,
    shard: Shard::None,
    piece: 1 << 12,
    batch_norm: BatchNorm::Leaf,
    uneven: false,
    poison: false,
};

type Bits = BTreeMap<String, Vec<u8>>;

/// Of so many lanes: as many for each, about the same in all.
fn batch(lanes: usize) -> usize {
    BATCH / lanes * lanes
}

/// The fastest plan, or the smallest.
fn plan(training: &Training, replica: Replica, setting: Setting, cpu: &CpuExecutor, smallest: bool) -> Plan {
    let Setting { piece, shard, batch_norm, .. } = setting;
    let (exchange, batch) = (Exchange { replica, piece, shard, batch_norm }, batch(replica.lanes));
    let micro_batch = MicroBatch::Exactly(setting.micro_batch);
    let request = Request { micro_batch, exchange, ..Request::new(batch) };
    let source = |rows: usize| replica_programs(digits(), training, batch, rows, &exchange);
    let survey = memfit_plan::survey(source, cpu.target(), &request).unwrap();
    let least = survey.frontier().iter().map(|point| point.arena_bytes).min();
    survey.plan(least.filter(|_| smallest)).unwrap()
}

fn session(training: &Training, replica: Replica, setting: Setting) -> Session<CpuExecutor> {
    let is_odd = setting.uneven && replica.rank % 2 == 1;
    let cpu = CpuExecutor::new(if is_odd { 1 } else { 2 }).unwrap();
    let plan = plan(training, replica, setting, &cpu, is_odd);
    let options = Options { poison: setting.poison, ..Options::default() };
    Session::with_options(cpu, plan, 7, options).unwrap()
}

/// Some steps of all replicas; the states of each, and the losses.
fn train(training: &Training, lanes: usize, count: usize, setting: Setting) -> Vec<(Bits, Vec<u32>)> {
    let replica = Replica { lanes, count, rank: 0 };
    let run = |rank: usize, wire| {
        let mut session = session(training, replica.with_rank(rank), setting);
        if count > 1 {
            session.connect(Box::new(wire)).unwrap();
        }
        let rows = session.plan().rows();
        let mut losses = Vec::new();
        for step in 0..STEPS {
            let (x, y) = pixels_and_classes(batch(lanes), step as u64);
            let (x, y, count) = (&x[rows.start * 64..rows.end * 64], &y[rows.clone()], rows.len());
            let (of_x, of_y) = ([count, 8, 8, 1], [count]);
            let batch = [("x", TensorView::f32(&of_x, x)), ("y", TensorView::i32(&of_y, y))];
            losses.push(session.step(&batch, 1e-2).unwrap().to_bits());
        }
        (common::bits(&session).into_iter().collect(), losses)
    };
    std::thread::scope(|scope| {
        let wires = thread_wires(count, STALL).into_iter().enumerate();
        let threads: Vec<_> = wires.map(|(rank, wire)| scope.spawn(move || run(rank, wire))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// That all replicas end in the same bits, and in those that one has alone with as many lanes; states that each has a part of are
/// put together.
fn check(training: &Training, lanes: usize, setting: Setting) {
    let alone = train(training, lanes, 1, Setting { shard: Shard::None, uneven: false, ..setting });
    let (expected, losses) = &alone[0];
    for count in 2..=lanes {
        let ends = train(training, lanes, count, setting);
        let mut all = Bits::new();
        for (rank, (bits, seen)) in ends.into_iter().enumerate() {
            assert_eq!(&seen, losses, "losses of replica {rank} of {count}");
            for (name, bytes) in bits {
                let known = all.entry(name.clone()).or_insert_with(|| bytes.clone());
                assert!(*known == bytes, "{name} differs between replicas, of {count}");
            }
        }
        let names = |bits: &Bits| bits.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&all), names(expected), "{count} replicas");
        let other = all.iter().find(|(name, bytes)| expected[*name] != **bytes);
        assert!(other.is_none(), "{} has other bits with {count} replicas", other.unwrap().0);
    }
}

#[test]
fn every_number_of_replicas_ends_in_the_same_bits() {
    check(&training(), LANES, EVEN);
}

#[test]
fn a_lane_that_is_one_micro_batch_is_exchanged_as_its_gradients_come() {
    let whole = Setting { micro_batch: BATCH / LANES, ..EVEN };
    check(&training(), LANES, whole);
    let replica = Replica { lanes: LANES, count: LANES, rank: 1 };
    let plan = plan(&training(), replica, whole, &common::cpu(), false);
    assert!(plan.program(Phase::Step).is_some(), "nothing is accumulated");
}

#[test]
fn plans_threads_pieces_and_poison_change_no_bit() {
    check(&training(), LANES, Setting { uneven: true, piece: 64, ..EVEN });
    check(&training(), LANES, Setting { uneven: true, piece: 1 << 20, micro_batch: 8, poison: true, ..EVEN });
}

#[test]
fn a_sharded_optimizer_changes_no_bit() {
    let clipped = Training { clip: Clip::GlobalNorm(0.1), ..training() };
    for micro_batch in [4, 8] {
        check(&clipped, LANES, Setting { shard: Shard::Optimizer, micro_batch, poison: true, ..EVEN });
    }
}

#[test]
fn lanes_that_no_tree_fits_evenly_are_added_up_alike() {
    // Of 16 lanes, three replicas have 5, 5 and 6, which are one to three parts of the tree.
    check(&training(), 16, Setting { micro_batch: 1, ..EVEN });
}

#[test]
fn skipped_steps_are_skipped_by_all() {
    let mut scaled = Training { precision: Precision::Mixed(Half::F16), ..training() };
    scaled.clip = Clip::GlobalNorm(1.0);
    check(&scaled, LANES, EVEN);
    check(&scaled, LANES, Setting { micro_batch: 8, shard: Shard::Optimizer, ..EVEN });
}

// ---- synchronised batch norms ----------------------------------------------------------------------------------------

/// An optimizer that does not divide by the size of a gradient, of which the smallest are noise.
fn plain() -> Training {
    Training::new(Optimizer::momentum().update)
}

/// Each replica's part of the batch at once, which is all of it for one.
fn synchronised(count: usize) -> Setting {
    Setting { micro_batch: BATCH / count, batch_norm: BatchNorm::Synchronised, ..EVEN }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

/// The largest difference of two states, over the largest number in them; the largest of all states.
fn difference(a: &Bits, b: &Bits) -> f32 {
    let of_state = |(name, bytes): (&String, &Vec<u8>)| {
        let (a, b) = (numbers(bytes), numbers(&b[name]));
        let largest = a.iter().fold(1e-3, |most: f32, x| most.max(x.abs()));
        a.iter().zip(&b).fold(0.0, |most: f32, (x, y)| most.max((x - y).abs())) / largest
    };
    a.iter().map(of_state).fold(0.0, f32::max)
}

#[test]
fn synchronised_batch_norms_are_those_of_the_whole_batch() {
    for count in [2, 3, 4] {
        // Three replicas share 30 samples.
        let samples = batch(count);
        let mut session =
            Session::new(common::cpu(), common::plan(digits(), &plain(), samples, Some(samples)), 7).unwrap();
        let mut losses = Vec::new();
        for step in 0..STEPS {
            let (x, y) = pixels_and_classes(samples, step as u64);
            let (of_x, of_y) = ([samples, 8, 8, 1], [samples]);
            let rows = [("x", TensorView::f32(&of_x, &x)), ("y", TensorView::i32(&of_y, &y))];
            losses.push(session.step(&rows, 1e-2).unwrap());
        }
        let expected: Bits = common::bits(&session).into_iter().collect();
        for uneven in [false, true] {
            let ends = train(&plain(), count, count, Setting { uneven, poison: true, ..synchronised(count) });
            assert!(ends.iter().all(|end| *end == ends[0]), "{count} replicas end in the same bits");
            let (bits, seen) = &ends[0];
            let apart = difference(&expected, bits);
            assert!(apart < 1e-5, "{count} replicas, {apart} apart");
            for (loss, seen) in losses.iter().zip(seen) {
                assert!((f32::from_bits(*seen) / loss - 1.0).abs() < 1e-5, "{loss}, {}", f32::from_bits(*seen));
            }
        }
        // So that this says something: statistics of leaves are others.
        let leaves = train(&plain(), count, count, Setting { batch_norm: BatchNorm::Leaf, ..synchronised(count) });
        assert!(difference(&expected, &leaves[0].0) > 1e-3);
    }
}

#[test]
fn a_synchronised_step_has_the_same_bits_with_every_plan() {
    let mut mixed = Training { precision: Precision::Mixed(Half::Bf16), ..plain() };
    mixed.clip = Clip::GlobalNorm(1.0);
    for training in [plain(), mixed] {
        let whole = synchronised(2);
        let ends = train(&training, 2, 2, whole);
        for other in [
            Setting { uneven: true, piece: 64, ..whole },
            Setting { poison: true, shard: Shard::Optimizer, piece: 1 << 20, ..whole },
        ] {
            let others = train(&training, 2, 2, other);
            for (name, bytes) in others.iter().flat_map(|(bits, _)| bits) {
                assert!(ends[0].0[name] == *bytes, "{name}");
            }
            assert_eq!(others[1].1, ends[0].1);
        }
    }
}

#[test]
fn recompute_repeats_no_exchange() {
    let replica = Replica { lanes: 2, count: 2, rank: 1 };
    let exchanges = |smallest: bool| {
        let plan = plan(&plain(), replica, synchronised(2), &common::cpu(), smallest);
        let step = plan.program(Phase::Step).unwrap();
        let of_launch = |l: &memfit_plan::Launch| step.graph.node(l.group.root());
        let joins = step.launches.iter().map(of_launch).filter(|n| matches!(n.op, Op::Join(_)));
        (joins.map(|n| (n.scope.clone(), n.outputs.len())).collect::<Vec<_>>(), plan)
    };
    let ((fast, of_fast), (small, of_small)) = (exchanges(false), exchanges(true));
    assert!(of_small.recomputed_ops > 0 && of_small.arena_bytes() < of_fast.arena_bytes());
    assert_eq!(fast, small);
    // Two in each norm's forward pass, one in its backward pass, and those of gradients and losses.
    assert!(fast.len() > 3 * 3, "{fast:?}");
    let statistics = batch_statistics(&of_small).unwrap();
    assert_eq!(statistics.to_string(), "3 batch norms: statistics are those of the batch of 32, synchronised");
    let leaf =
        plan(&plain(), replica, Setting { batch_norm: BatchNorm::Leaf, ..synchronised(2) }, &common::cpu(), true);
    let statistics = batch_statistics(&leaf).unwrap();
    assert_eq!(statistics.to_string(), "3 batch norms: statistics are those of a leaf of 16 samples, of a batch of 32");
}

#[test]
fn one_replica_has_nobody_to_synchronise_with() {
    let alone = train(&training(), 1, 1, synchronised(1));
    let leaf = train(&training(), 1, 1, Setting { batch_norm: BatchNorm::Leaf, ..synchronised(1) });
    assert!(alone == leaf);
    let exchange = Exchange { batch_norm: BatchNorm::Synchronised, ..Exchange::ALONE };
    let request = Request { micro_batch: MicroBatch::Exactly(8), exchange, ..Request::new(BATCH) };
    let source = |rows: usize| replica_programs(digits(), &training(), BATCH, rows, &exchange);
    let refused = memfit_plan::plan(&source, common::cpu().target(), &request);
    assert!(matches!(refused, Err(PlanError::Synchronised { micro_batch: 8, .. })), "{refused:?}");
}

#[test]
fn one_lane_is_what_one_device_adds_up() {
    let mut session = common::session(digits(), BATCH, Some(EVEN.micro_batch), 7);
    for step in 0..STEPS {
        let (x, y) = pixels_and_classes(BATCH, step as u64);
        let batch = [("x", TensorView::f32(&[BATCH, 8, 8, 1], &x)), ("y", TensorView::i32(&[BATCH], &y))];
        session.step(&batch, 1e-2).unwrap();
    }
    let expected: Bits = common::bits(&session).into_iter().collect();
    let with_lanes = |lanes| train(&training(), lanes, 1, EVEN).swap_remove(0).0;
    assert!(with_lanes(1) == expected);
    // So that it means something that replicas agree.
    assert!(with_lanes(LANES) != expected, "another tree rounds otherwise");
}

#[test]
fn a_plan_for_several_replicas_needs_a_connection_to_the_others() {
    let replica = Replica { lanes: LANES, count: 2, rank: 0 };
    let mut session = session(&training(), replica, EVEN);
    let (x, y) = pixels_and_classes(BATCH / 2, 0);
    let batch = [("x", TensorView::f32(&[BATCH / 2, 8, 8, 1], &x)), ("y", TensorView::i32(&[BATCH / 2], &y))];
    let problem = session.step(&batch, 1e-2).unwrap_err().to_string();
    assert!(problem.contains("replica 0 of 2") && problem.contains("connect"), "{problem}");
    let wrong = thread_wires(3, STALL).swap_remove(0);
    let problem = session.connect(Box::new(wrong)).unwrap_err().to_string();
    assert!(problem.contains("replica 0 of 2") && problem.contains("0 of 3"), "{problem}");
}

/// What replicas leave that are trained through `fit`, of which the first has a folder: its files, and how each ended.
fn fit_together(count: usize, folder: &Path, stop_at: Option<u32>) -> (BTreeMap<PathBuf, Vec<u8>>, Vec<StopReason>) {
    let replica = Replica { lanes: LANES, count, rank: 0 };
    let run = |rank: usize, wire| {
        let mut session = session(&training(), replica.with_rank(rank), Setting { micro_batch: 2, ..EVEN });
        if count > 1 {
            session.connect(Box::new(wire)).unwrap();
        }
        let rows = session.plan().rows();
        let train = Dataset::from_tensors(images(100, 1)).unwrap().shuffle(100).batch_rows(BATCH, rows);
        let data =
            Datasets { train, test: Some(Dataset::from_tensors(images(13, 2)).unwrap().batch(5, Remainder::Keep)) };
        let heads = digits().heads().unwrap();
        let run = (rank == 0).then(|| RunDir::create(folder, session.plan(), &Labels::new()).unwrap());
        let options = FitOptions { run, ..FitOptions::new(heads, Period::Epochs(3), 1e-2, BytePool::new(1 << 20)) };
        // The last replica is the one that is asked.
        let mut observer = |event: &Event| match event {
            Event::Step { step, .. } if Some(*step) == stop_at && rank + 1 == count => Flow::Stop,
            _ => Flow::Continue,
        };
        let outcome = fit(&mut session, &data, &options, &mut observer).unwrap();
        (outcome.reason, outcome.steps)
    };
    let ends: Vec<(StopReason, u32)> = std::thread::scope(|scope| {
        let run = &run;
        let wires = thread_wires(count, STALL).into_iter().enumerate();
        let threads: Vec<_> = wires.map(|(rank, wire)| scope.spawn(move || run(rank, wire))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ends.iter().all(|end| *end == ends[0]), "all end after the same step: {ends:?}");
    let tensors = |path: &PathBuf| path.extension().is_some_and(|e| e == "safetensors");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(tensors);
    let files = files.map(|path| (path.file_name().unwrap().into(), std::fs::read(&path).unwrap())).collect();
    std::fs::remove_dir_all(folder).unwrap();
    (files, ends.into_iter().map(|(reason, _)| reason).collect())
}

#[test]
fn replicas_that_are_fitted_leave_the_checkpoints_of_one() {
    let alone = fit_together(1, &common::file("replicas-1"), None);
    assert!(!alone.0.is_empty());
    for count in 2..=LANES {
        let together = fit_together(count, &common::file(&format!("replicas-{count}")), None);
        assert!(together.0 == alone.0, "{count} replicas");
    }
}

#[test]
fn one_that_is_asked_to_stop_stops_all_after_the_same_step() {
    let (_, reasons) = fit_together(3, &common::file("replicas-stop"), Some(4));
    assert_eq!(reasons, [StopReason::Interrupted; 3]);
}

#[test]
fn a_part_of_the_optimizers_states_is_not_saved_as_if_it_were_all() {
    let replica = Replica { lanes: LANES, count: 2, rank: 0 };
    let mut session = session(&training(), replica, Setting { shard: Shard::Optimizer, ..EVEN });
    let folder = common::file("replicas-part");
    let run = Some(RunDir::create(&folder, session.plan(), &Labels::new()).unwrap());
    let rows = session.plan().rows();
    let data = Datasets { train: Dataset::from_tensors(images(100, 1)).unwrap().batch_rows(BATCH, rows), test: None };
    let heads = digits().heads().unwrap();
    let options = FitOptions { run, ..FitOptions::new(heads, Period::Epochs(1), 1e-2, BytePool::new(1 << 20)) };
    let ended = fit(&mut session, &data, &options, &mut |_| Flow::Continue);
    assert!(matches!(ended, Err(TrainError::PartOfStates)), "{ended:?}");
    std::fs::remove_dir_all(folder).unwrap();
}
