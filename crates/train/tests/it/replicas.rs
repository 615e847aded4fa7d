//! Replicas that train together: every number of them, with every plan, ends in the same bits.

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{digits, images, pixels_and_classes, training};
use memfit_data::{BytePool, DataError, Dataset, Remainder};
use memfit_exec::{ExecError, Executor, Farewell, Options, TensorView, ThreadWire, WireError, thread_wires};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::{Op, Replica};
use memfit_nn::optim::Optimizer;
use memfit_plan::report::batch_statistics;
use memfit_plan::save::Labels;
use memfit_plan::{MicroBatch, Phase, Plan, PlanError, Request};
use memfit_train::{
    CheckpointKind, Datasets, EarlyStop, Event, FitOptions, Flow, Outcome, Period, RunDir, SaveEvery, Session,
    StopReason, TrainError, fit, replica_programs, run_dir,
};
use memfit_transform::{BatchNorm, Clip, Exchange, Half, Precision, Shard, Training};

/// Of a batch.
pub const LANES: usize = 4;
pub const BATCH: usize = 32;
const STEPS: usize = 4;
pub const STALL: Duration = Duration::from_secs(120);

/// How replicas differ from each other, which is to change nothing.
#[derive(Clone, Copy)]
pub struct Setting {
    pub micro_batch: usize,
    pub shard: Shard,
    pub piece: usize,
    pub batch_norm: BatchNorm,
    /// Odd replicas have one thread and no more memory than they need, the others two and as much as they like.
    pub uneven: bool,
    pub poison: bool,
}

pub const EVEN: Setting = Setting {
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

pub fn session(training: &Training, replica: Replica, setting: Setting) -> Session<CpuExecutor> {
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
    // Whether the smallest recomputes depends on the scratch of the machine's kernels; its exchanges do not.
    assert!(of_small.arena_bytes() <= of_fast.arena_bytes());
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

/// How replicas are trained through `fit`.
#[derive(Clone, Copy)]
struct Together {
    micro_batch: usize,
    /// Rows of the test set, and of its batches.
    test: [usize; 2],
    /// What the last replica is asked to stop at, after so many steps.
    stop_at: Option<fn(&Event, u32) -> bool>,
    /// Which row of the test set is not as it should be, and how.
    wrong: Option<(usize, Wrong)>,
    shard: Shard,
}

#[derive(Clone, Copy)]
enum Wrong {
    Torn,
    NotANumber,
    Label,
}

const TOGETHER: Together = Together { micro_batch: 2, test: [13, 2], stop_at: None, wrong: None, shard: Shard::None };

impl Together {
    fn test_set(&self) -> Dataset {
        let wrong = self.wrong;
        Dataset::from_tensors(images(self.test[0], 2)).unwrap().map(move |mut example, context| {
            match wrong.filter(|(row, _)| *row as u64 == context.element()) {
                Some((row, Wrong::Torn)) => return Err(DataError::bad(format!("{row}.png"), "it is torn")),
                Some((_, Wrong::NotANumber)) => example.get_mut("x")?.f32s_mut()[0] = f32::NAN,
                Some((_, Wrong::Label)) => example.get_mut("y")?.bytes_mut().copy_from_slice(&10i32.to_le_bytes()),
                None => {}
            }
            Ok(example)
        })
    }

    /// One replica, of which the first has a folder. Whoever fails says so to the others.
    fn run(&self, replica: Replica, wire: ThreadWire, folder: &Path) -> Result<Outcome, TrainError> {
        let mut session =
            session(&training(), replica, Setting { micro_batch: self.micro_batch, shard: self.shard, ..EVEN });
        if replica.count > 1 {
            session.connect(Box::new(wire)).unwrap();
        }
        let rows = session.plan().rows();
        let train = Dataset::from_tensors(images(100, 1)).unwrap().shuffle(100).batch_rows(BATCH, rows, BATCH / LANES);
        let test = self.test_set().batch(self.test[1], Remainder::Keep).shard(replica.count, replica.rank);
        let data = Datasets { train, test: Some(test) };
        let is_first = replica.rank == 0;
        let run = is_first.then(|| RunDir::create(folder, session.plan(), &Labels::new()).unwrap());
        let heads = digits().heads().unwrap();
        // Only the first has a clock.
        let save = SaveEvery { time: is_first.then_some(Duration::ZERO), ..SaveEvery::default() };
        let early_stop = Some(EarlyStop { patience: 2, min_delta: 0.0 });
        let options = FitOptions {
            run,
            save,
            early_stop,
            ..FitOptions::new(heads, Period::Epochs(3), 1e-2, BytePool::new(1 << 20))
        };
        let mut steps = 0;
        let mut observer = |event: &Event| {
            steps += u32::from(matches!(event, Event::Step { .. }));
            match self.stop_at {
                Some(stop_at) if replica.rank + 1 == replica.count && stop_at(event, steps) => Flow::Stop,
                _ => Flow::Continue,
            }
        };
        let ended = fit(&mut session, &data, &options, &mut observer);
        if let Err(e) = &ended {
            session.leave(Farewell { kind: replica.rank as u8, message: e.to_string() });
        }
        ended
    }

    fn run_all(&self, count: usize, folder: &Path) -> Vec<Result<Outcome, TrainError>> {
        let replica = Replica { lanes: LANES, count, rank: 0 };
        std::thread::scope(|scope| {
            let wires = thread_wires(count, STALL).into_iter().enumerate();
            let run = |(rank, wire)| scope.spawn(move || self.run(replica.with_rank(rank), wire, folder));
            wires.map(run).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// What they leave, and how all of them ended.
    fn fit(&self, count: usize, name: &str) -> (BTreeMap<PathBuf, Vec<u8>>, Outcome) {
        let folder = common::folder(&format!("replicas-{name}-{count}"));
        let mut ends = self.run_all(count, &folder).into_iter().map(Result::unwrap);
        let first = ends.next().unwrap();
        // Nothing was written by the others.
        let expected = Outcome { saved: None, ..first.clone() };
        ends.for_each(|end| assert_eq!(end, expected, "all end alike"));
        (tensors(&folder), first)
    }
}

/// The files of tensors in a folder, which is removed.
fn tensors(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "safetensors"));
    let files = files.map(|path| (path.file_name().unwrap().into(), std::fs::read(&path).unwrap())).collect();
    std::fs::remove_dir_all(folder).unwrap();
    files
}

#[test]
fn replicas_that_are_fitted_leave_the_checkpoints_and_the_scores_of_one() {
    // The last has fewer batches than there are replicas.
    for (i, (micro_batch, test)) in [(8, [13, 5]), (2, [13, 2]), (4, [3, 2])].into_iter().enumerate() {
        let together = Together { micro_batch, test, ..TOGETHER };
        let name = format!("same-{i}");
        let (files, alone) = together.fit(1, &name);
        assert!(!files.is_empty());
        assert_eq!(alone.evaluation.as_ref().unwrap().scores.count, test[0] as u64);
        for count in 2..=LANES {
            let (others, outcome) = together.fit(count, &name);
            assert_eq!(outcome, alone, "{count} replicas");
            assert!(others == files, "{count} replicas");
            // Of whom each has a part of the states, which the first one gathers.
            let (others, outcome) = Together { shard: Shard::Optimizer, ..together }.fit(count, &name);
            assert_eq!(outcome, alone, "{count} replicas that share the optimizer's states");
            assert!(others == files, "{count} replicas that share the optimizer's states");
        }
    }
}

#[test]
fn one_that_is_asked_to_stop_stops_all_after_the_same_step() {
    let at_step = |event: &Event, steps| steps == 5 && matches!(event, Event::Step { .. });
    let (_, end) = Together { stop_at: Some(at_step), ..TOGETHER }.fit(3, "stop");
    assert_eq!(end.reason, StopReason::Interrupted);
}

#[test]
fn one_that_is_asked_to_stop_in_an_evaluation_stops_that_of_all() {
    for stop_at in [
        |event: &Event, _| matches!(event, Event::Evaluating { batches: 2 }),
        // It has nothing to evaluate any more while another has.
        |event: &Event, steps| steps == 3 && matches!(event, Event::Waiting),
    ] {
        for count in 2..=LANES {
            let together = Together { stop_at: Some(stop_at), test: [17, 2], ..TOGETHER };
            let (_, end) = together.fit(count, "stop-evaluation");
            assert_eq!((end.reason, end.steps), (StopReason::Interrupted, 3), "{count} replicas");
            assert_eq!(end.evaluation, None, "in the first one");
        }
    }
}

#[test]
fn what_is_wrong_with_the_part_of_one_ends_all_and_costs_no_training() {
    // What the device refuses is no matter of the test set alone, and nobody waits for what else it may say.
    for (wrong, says, is_saved) in [(Wrong::Torn, "it is torn", true), (Wrong::Label, "index 10 at position", false)] {
        // Of batches of 2, row 12 is in the part of the first of three and of two, and row 3 in that of the second.
        for (row, count, whose) in [(12, 3, 0), (12, 2, 0), (3, 3, 1), (3, 2, 1)] {
            let folder = common::folder(&format!("replicas-wrong-{row}-{count}-{}", says.len()));
            let ends = Together { wrong: Some((row, wrong)), ..TOGETHER }.run_all(count, &folder);
            for (rank, end) in ends.into_iter().enumerate() {
                let error = end.unwrap_err();
                assert!(error.to_string().contains(says), "replica {rank} of {count}: {error}");
                let (source, step) = match error {
                    TrainError::Test { source, step, .. } => (*source, Some(step)),
                    other => (other, None),
                };
                assert_eq!(step, (is_saved && rank == 0).then_some(3), "it is saved where the folder is");
                match source {
                    TrainError::Exec(ExecError::Wire { source: WireError::Left { rank: left, why }, .. }) => {
                        assert_eq!((left, why.kind as usize), (whose, whose));
                        assert_ne!(rank, whose);
                    }
                    _ => assert_eq!(rank, whose, "{source}"),
                }
            }
            let saved = run_dir::read(&folder, CheckpointKind::Last).unwrap();
            assert_eq!(saved.checkpoint.step, 3);
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[test]
fn a_number_that_is_none_is_told_by_the_one_that_has_it() {
    let folder = common::folder("replicas-nan");
    let ends = Together { wrong: Some((3, Wrong::NotANumber)), ..TOGETHER }.run_all(3, &folder);
    let said: Vec<String> = ends.into_iter().map(|end| end.unwrap_err().to_string()).collect();
    assert!(said.iter().all(|e| e.contains("its batch has numbers that are not finite")), "{said:?}");
    let with_place: Vec<bool> = said.iter().map(|e| e.contains("\"x\" of row 3")).collect();
    assert_eq!(with_place, [false, true, false], "{said:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn batches_of_a_test_set_that_are_too_large_to_be_shared_are_refused_by_all() {
    let folder = common::folder("replicas-large");
    let together = Together { micro_batch: 4, test: [13, 5], ..TOGETHER };
    for (rank, end) in together.run_all(2, &folder).into_iter().enumerate() {
        let problem = end.unwrap_err().to_string();
        assert!(problem.contains("at most 4 at a time"), "replica {rank}: {problem}");
    }
    together.fit(1, "large");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_part_of_the_optimizers_states_is_gathered_by_the_first_replica_alone() {
    let replica = Replica { lanes: LANES, count: 2, rank: 1 };
    let mut session = session(&training(), replica, Setting { shard: Shard::Optimizer, ..EVEN });
    let folder = common::file("replicas-part");
    let run = Some(RunDir::create(&folder, session.plan(), &Labels::new()).unwrap());
    let rows = session.plan().rows();
    let data = Datasets {
        train: Dataset::from_tensors(images(100, 1)).unwrap().batch_rows(BATCH, rows, BATCH / LANES),
        test: None,
    };
    let heads = digits().heads().unwrap();
    let options = FitOptions { run, ..FitOptions::new(heads, Period::Epochs(1), 1e-2, BytePool::new(1 << 20)) };
    let ended = fit(&mut session, &data, &options, &mut |_| Flow::Continue);
    assert!(matches!(ended, Err(TrainError::PartOfStates { rank: 1 })), "{ended:?}");
    std::fs::remove_dir_all(folder).unwrap();
}
