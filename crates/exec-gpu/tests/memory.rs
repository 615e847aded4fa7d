//! The memory of the device: what is taken is what was planned, steps take nothing more, and copies arrive. Alone in its process,
//! because the device counts for all.
#![cfg(feature = "gpu")]

mod common;

use std::sync::Arc;

use common::{gpu, graph};
use memfit_exec::{Clock, Device, Engine, ExecError, Executor, Growth, Options, Recorder, TensorView};
use memfit_exec_gpu::{GpuExecutor, GpuMemory};
use memfit_ir::op::{Init, LEARNING_RATE, MatMul};
use memfit_ir::{Builder, TensorType};
use memfit_nn::Optimizer;
use memfit_nn::zoo::Mlp;
use memfit_plan::{MicroBatch, Phase, Place, Plan, PlanError, Request, Segment, plan};
use memfit_train::{Session, programs};
use memfit_transform::Training;

/// One test after the other: they count the same device.
#[test]
fn the_memory_of_the_device_is_the_plan() {
    let parts: [fn(GpuExecutor); 11] = [
        a_hundred_steps_take_nothing,
        an_allocation_among_captured_launches_is_an_error,
        copies_are_part_of_what_a_device_gives,
        numbers_of_two_steps_are_kept,
        numbers_are_kept_while_another_model_runs_in_the_same_memory,
        a_session_looks_at_a_step_when_the_next_is_started,
        engines_on_threads_of_their_own_capture_no_launch_of_another,
        training_in_micro_batches_and_evaluation_take_what_was_said,
        copies_of_any_size_arrive,
        segments_may_be_larger_than_operands,
        fills_reach_every_byte_of_a_place_and_no_other,
    ];
    for part in parts {
        let Some(executor) = gpu() else { return };
        part(executor);
    }
}

fn planned(executor: &impl Executor, build: impl Fn(&mut Builder) -> memfit_ir::Result<()>) -> Result<Plan, PlanError> {
    let g = graph(build);
    plan(&|_| Ok(vec![(Phase::Eval, g.clone().into())]), executor.target(), &Request::new(1))
}

const ROWS: usize = 30;

/// Two layers that learn to give `y`, by hand: the gradient of the last one only. Its `loss` is a sum of squares.
fn learner(executor: &impl Executor) -> Plan {
    let g = graph(|b| {
        let x = b.input("x", TensorType::f32([ROWS, 70]))?;
        let y = b.input("y", TensorType::f32([ROWS, 10]))?;
        let lr = b.input(LEARNING_RATE, TensorType::f32([]))?;
        let first = b.param("first", [70, 110], Init::Normal { std: 0.1 })?;
        let last = b.param("last", [110, 10], Init::Normal { std: 0.1 })?;
        let h = b.matmul(x, first)?;
        let h = b.relu(h)?;
        let given = b.matmul(h, last)?;
        let wrong = b.sub(given, y)?;
        let [row, column] = [[1, ROWS * 10], [ROWS * 10, 1]].map(|shape| b.reshape(wrong, shape));
        let loss = b.matmul(row?, column?)?;
        let loss = b.reshape(loss, [])?;
        b.output("loss", loss);
        let transposed = MatMul { transpose_a: true, transpose_b: false };
        let gradient = b.matmul_with(h, wrong, transposed)?;
        let change = b.mul(gradient, lr)?;
        let next = b.sub(last, change)?;
        b.donate(last, next);
        Ok(())
    });
    plan(&|_| Ok(vec![(Phase::Step, g.clone().into())]), executor.target(), &Request::new(1)).unwrap()
}

/// Step after step, each with other data and another rate.
fn with_batch<T>(step: u32, run: impl FnOnce(&[(&str, TensorView)], f32) -> T) -> T {
    let x: Vec<f32> = (0..ROWS as u32 * 70).map(|i| ((i + step) % 17) as f32 / 8.0 - 1.0).collect();
    let y: Vec<f32> = (0..ROWS as u32 * 10).map(|i| ((i * (1 + step % 3)) % 5) as f32 - 2.0).collect();
    let inputs = [("x", TensorView::f32(&[ROWS, 70], &x)), ("y", TensorView::f32(&[ROWS, 10], &y))];
    run(&inputs, 1e-4 / (1.0 + step as f32))
}

fn step(engine: &mut Engine<GpuExecutor>, step: u32) {
    with_batch(step, |inputs, lr| engine.step(inputs, lr, Clock { step, seed: 7 })).unwrap();
}

fn engine(executor: &GpuExecutor, options: Options) -> Engine<GpuExecutor> {
    let mut engine = Engine::new(executor.clone(), learner(executor), options).unwrap();
    engine.init(1).unwrap();
    engine
}

/// From the third step on they are replayed; the results are those of launches one by one, and of poisoned ones.
fn a_hundred_steps_take_nothing(executor: GpuExecutor) {
    assert_eq!(executor.reserved_bytes().segments, 0, "no arena was taken yet");
    let mut replayed = engine(&executor, Options::default());
    let arena = replayed.plan().arena_bytes();
    assert_eq!(executor.reserved_bytes().segments, arena);
    let mut poisoned = engine(&executor, Options { poison: true, ..Options::default() });
    let mut recorded = engine(&executor, Options::default());
    recorded.record(Some(Arc::new(Recorder::new(1000, 20))));
    for number in 0..12 {
        [&mut replayed, &mut poisoned, &mut recorded].into_iter().for_each(|engine| step(engine, number));
        let loss = replayed.loss().unwrap();
        assert!(loss.is_finite() && loss > 0.0);
        assert_eq!(poisoned.loss().unwrap().to_bits(), loss.to_bits(), "step {number} poisoned");
        assert_eq!(recorded.loss().unwrap().to_bits(), loss.to_bits(), "step {number} launch by launch");
        let weights = replayed.read_state("last").unwrap();
        assert!(poisoned.read_state("last").unwrap() == weights, "step {number} poisoned");
        assert!(recorded.read_state("last").unwrap() == weights, "step {number} launch by launch");
    }
    drop((poisoned, recorded));
    let planned = replayed.plan().staging_bytes;
    let before = executor.reserved_bytes();
    for number in 12..112 {
        step(&mut replayed, number);
        if number % 10 == 0 {
            replayed.read_state("first").unwrap();
        }
        let reserved = executor.reserved_bytes();
        assert_eq!(reserved, before, "step {number} took memory");
    }
    assert_eq!((before.segments, before.other), (arena, 0));
    assert!(before.staging + before.parameters <= planned, "{before:?} beside {planned} planned");
    println!("{before:?}, {planned} planned beside the segments");
    drop(replayed);
    let after = executor.reserved_bytes();
    assert_eq!((after.segments, after.staging, after.other), (0, 0, 0), "all of it is given back");
}

fn an_allocation_among_captured_launches_is_an_error(executor: GpuExecutor) {
    executor.capture_launches(|_| {}).expect("nothing is no allocation");
    let name = executor.gpu().name.clone();
    let problem = match executor.capture_launches(|client| drop(client.empty(1 << 20))) {
        Err(ExecError::Device { device, problem }) => {
            assert!(device.contains(&name), "{device}");
            problem
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was captured"),
    };
    assert!(problem.contains("capture"), "{problem}");
    // The device is as good as before.
    let mut engine = engine(&executor, Options::default());
    (0..3).for_each(|number| step(&mut engine, number));
    assert!(engine.loss().unwrap().is_finite());
}

fn copies_are_part_of_what_a_device_gives(executor: GpuExecutor) {
    let plan = learner(&executor);
    let (arena, beside) = (plan.arena_bytes(), plan.staging_bytes);
    assert!(beside > 2 * plan.input_bytes(), "two batches, and more");
    let small = executor.on(Device::new("small", arena + beside - 1));
    let refused = Engine::new(small.clone(), plan.clone(), Options::default());
    assert!(matches!(refused, Err(ExecError::DeviceFull(_))));
    assert_eq!(small.device().used(), 0, "nothing is held by who was refused");
    let device = Device::new("exact", arena + beside);
    let engine = Engine::new(executor.on(device.clone()), plan, Options::default()).unwrap();
    assert_eq!(device.used(), arena + beside);
    drop(engine);
    assert_eq!(device.used(), 0);
}

fn numbers_of_two_steps_are_kept(executor: GpuExecutor) {
    let (mut now, mut later) = (engine(&executor, Options::default()), engine(&executor, Options::default()));
    let (_, place) = later.numbers().into_iter().find(|(name, _)| name == "loss").unwrap();
    let mut losses = Vec::new();
    let mut kept = [0];
    for number in 0..9 {
        step(&mut now, number);
        losses.push(now.loss().unwrap().to_bits());
        step(&mut later, number);
        assert!(later.keep(&[place]).unwrap(), "a GPU works on its own");
        if number > 0 {
            later.kept(&mut kept).unwrap();
            assert_eq!(kept[0], losses[number as usize - 1], "step {}", number - 1);
        }
    }
    later.kept(&mut kept).unwrap();
    assert_eq!(Some(&kept[0]), losses.last());
    let mut read = [0];
    later.read_words(&[place], &mut read).unwrap();
    assert_eq!(read, kept);
}

fn numbers_are_kept_while_another_model_runs_in_the_same_memory(executor: GpuExecutor) {
    let mut alone = engine(&executor, Options::default());
    let mut first = engine(&executor, Options::default());
    let shared = first.transient().clone();
    let mut second = Engine::sharing(executor.clone(), learner(&executor), Options::default(), &shared).unwrap();
    second.init(2).unwrap();
    let place = first.numbers()[0].1;
    for number in 0..5 {
        step(&mut alone, number);
        step(&mut first, number);
        first.keep(&[place]).unwrap();
        step(&mut second, number);
        second.keep(&[place]).unwrap();
        let (mut of_first, mut of_second) = ([0], [0]);
        first.kept(&mut of_first).unwrap();
        second.kept(&mut of_second).unwrap();
        assert_eq!(of_first[0], alone.loss().unwrap().to_bits(), "step {number}");
        assert_eq!(of_second[0], second.loss().unwrap().to_bits(), "step {number}");
        assert_ne!(of_first, of_second);
        assert!(matches!(first.loss(), Err(ExecError::Gone { .. })));
    }
}

fn a_session_looks_at_a_step_when_the_next_is_started(executor: GpuExecutor) {
    let mut now = Session::new(executor.clone(), learner(&executor), 1).unwrap();
    let mut later = Session::new(executor.clone(), learner(&executor), 1).unwrap();
    let losses: Vec<f32> = (0..8).map(|i| with_batch(i, |batch, lr| now.step(batch, lr)).unwrap()).collect();
    for (i, loss) in (0..).zip(&losses) {
        with_batch(i, |batch, lr| later.start_step(batch, lr)).unwrap();
        assert_eq!(later.lag(), 1);
        if i > 0 {
            assert!(later.look().unwrap());
            assert_eq!(later.output("loss").unwrap(), losses[i as usize - 1], "beside {loss}");
        }
    }
    assert!(later.look().unwrap() && !later.look().unwrap());
    assert_eq!(later.output("loss").unwrap(), losses[7]);
    assert!(now.weight("last").unwrap() == later.weight("last").unwrap());
}

fn engines_on_threads_of_their_own_capture_no_launch_of_another(executor: GpuExecutor) {
    let train = || {
        let mut engine = engine(&executor, Options::default());
        (0..10).for_each(|number| step(&mut engine, number));
        (engine.loss().unwrap().to_bits(), engine.read_state("last").unwrap())
    };
    let alone = train();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(train)).collect();
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() == alone));
    });
}

/// All programs of a model: accumulate, apply, evaluate. What stands beside the arena is no more than was said, and the same
/// after every round.
fn training_in_micro_batches_and_evaluation_take_what_was_said(executor: GpuExecutor) {
    let (model, training) = (Mlp::new(20, &[33], 7), Training::new(Optimizer::adam().update));
    let request = Request { micro_batch: MicroBatch::Exactly(4), ..Request::new(8) };
    let plan = plan(&|rows| programs(&model, &training, 8, rows), executor.target(), &request).unwrap();
    assert!(plan.program(Phase::Accumulate).is_some() && plan.program(Phase::Eval).is_some());
    let (arena, beside) = (plan.arena_bytes(), plan.staging_bytes);
    let before = executor.reserved_bytes();
    let options = |poison| Options { poison, ..Options::default() };
    let mut session = Session::with_options(executor.clone(), plan.clone(), 1, options(false)).unwrap();
    let (x, y): (Vec<f32>, Vec<i32>) =
        ((0..160).map(|i| (i % 13) as f32 / 6.0 - 1.0).collect(), (0..8).map(|i| i % 7).collect());
    let batch = [("x", TensorView::f32(&[8, 20], &x)), ("y", TensorView::i32(&[8], &y))];
    let mut room = vec![0; session.eval_bytes("logits").unwrap()];
    let mut round = |session: &mut Session<GpuExecutor>| {
        let loss = session.step(&batch, 1e-2).unwrap();
        // Three rows do not fill a micro-batch.
        let rows = [("x", TensorView::f32(&[3, 20], &x[..60])), ("y", TensorView::i32(&[3], &y[..3]))];
        let mut logits = Vec::new();
        let eval = session.eval(&rows, "logits", &mut room, |_, bytes| {
            logits.extend_from_slice(bytes);
            Ok(())
        });
        eval.unwrap();
        (loss.to_bits(), logits)
    };
    let mut poisoned = Session::with_options(executor.clone(), plan, 1, options(true)).unwrap();
    let expected: Vec<_> = (0..6).map(|_| round(&mut poisoned)).collect();
    drop(poisoned);
    let mut reserved = Vec::new();
    for (number, expected) in expected.iter().enumerate() {
        assert!(round(&mut session) == *expected, "round {number}");
        reserved.push(executor.reserved_bytes());
    }
    // The second round captures; from then on there is nothing new.
    let (second, last) = (reserved[2], reserved[5]);
    assert_eq!(second, last);
    assert_eq!((last.segments - before.segments, last.other), (arena, 0));
    let taken = last.staging + last.parameters - before.staging - before.parameters;
    assert!(taken <= beside, "{last:?} after {before:?}, but {beside} were said");
}

/// More than a buffer of copies has, fewer than a word, and from the middle of a word on.
fn copies_of_any_size_arrive(executor: GpuExecutor) {
    let size = 700_001;
    let mut memory = executor.allocate("bytes", 2 * 700_032, Growth::default()).unwrap();
    let place = Place { segment: Segment::State, offset: 700_032, size: size as u64 };
    let bytes: Vec<u8> = (0..size).map(|i| (i * i / 7 + i) as u8).collect();
    let read = |memory: &GpuMemory, place: Place| {
        let mut bytes = vec![0; place.size as usize];
        executor.read(memory, place, &mut bytes).unwrap();
        bytes
    };
    for piece in [size, 65_536, 4096, 9999, 7] {
        executor.fill(&mut memory, place, 0xee);
        for (i, part) in bytes.chunks(piece).enumerate() {
            executor.write(&mut memory, place, (i * piece) as u64, part);
            // What is written goes on where it ended, also if somebody looked meanwhile.
            if i == 5 {
                executor.wait().unwrap();
            }
        }
        assert!(read(&memory, place) == bytes, "in pieces of {piece}");
    }
    for size in [1, 2, 3, 5, 6] {
        let place = Place { segment: Segment::State, offset: 64, size };
        executor.write(&mut memory, place, 0, &bytes[..size as usize]);
        assert_eq!(read(&memory, place), bytes[..size as usize]);
    }
    assert!(read(&memory, place) == bytes, "what lies beside them");
}

/// A kernel is given one value at a time: the limit of what it can be given is not one of the segment.
fn segments_may_be_larger_than_operands(executor: GpuExecutor) {
    let limit = executor.target().largest_binding();
    let too_large = planned(&executor, |b| {
        let x = b.input("x", TensorType::f32([limit as usize / 4 + 1]))?;
        let y = b.scope("wide", |b| b.relu(x))?;
        b.output("y", y);
        Ok(())
    });
    assert!(matches!(too_large, Err(PlanError::Binding { bytes, .. }) if bytes == limit + 4), "{too_large:?}");
    // A device whose operands are gigabytes is not filled for this.
    if limit > 256 << 20 {
        println!("segments beyond the largest operand are not tried: it has {limit} bytes");
        return;
    }
    let elements = limit as usize / 4 / 2 + 1;
    let plan = planned(&executor, |b| {
        let x = b.input("x", TensorType::f32([elements]))?;
        let y = b.scale(x, 2.0)?;
        let z = b.scale(y, 2.0)?;
        b.output("y", y);
        b.output("z", z);
        Ok(())
    })
    .unwrap();
    assert!(plan.transient_bytes > limit);
    let mut engine = Engine::new(executor, plan, Options::default()).unwrap();
    let x: Vec<f32> = (0..elements).map(|i| (i % 1000) as f32).collect();
    engine.run(Phase::Eval, &[("x", TensorView::f32(&[elements], &x))], 0.0, Clock::default()).unwrap();
    let z = engine.output(Phase::Eval, "z").unwrap();
    let wrong = z.chunks_exact(4).zip(&x).position(|(z, x)| z != (4.0 * x).to_ne_bytes());
    assert_eq!(wrong, None, "of {elements}");
}

fn fills_reach_every_byte_of_a_place_and_no_other(executor: GpuExecutor) {
    let plan = planned(&executor, |b| {
        for (name, n) in [("a", 3), ("b", 70), ("c", 1)] {
            b.param(name, [n], Init::Constant(1.5))?;
        }
        let x = b.input("x", TensorType::f32([1]))?;
        let y = b.relu(x)?;
        b.output("y", y);
        Ok(())
    })
    .unwrap();
    let (mut arena, states) =
        (executor.allocate("states", plan.state_bytes, Default::default()).unwrap(), &plan.states);
    assert_eq!(states.len(), 3);
    for s in states {
        executor.write(&mut arena, s.place, 0, &vec![7; s.place.size as usize]);
    }
    executor.fill(&mut arena, states[1].place, 0xff);
    executor.wait().unwrap();
    for (i, s) in states.iter().enumerate() {
        let mut bytes = vec![0; s.place.size as usize];
        executor.read(&arena, s.place, &mut bytes).unwrap();
        let expected = if i == 1 { 0xff } else { 7 };
        assert!(bytes.iter().all(|&b| b == expected), "{}: {bytes:?}", s.name);
    }
    // A part of a place, in words and not.
    executor.write(&mut arena, states[1].place, 8, &[1, 2, 3, 4]);
    let mut bytes = vec![0; 15];
    executor.read(&arena, states[1].place, &mut bytes).unwrap();
    assert_eq!(bytes, [255, 255, 255, 255, 255, 255, 255, 255, 1, 2, 3, 4, 255, 255, 255]);
}
