//! The memory of the device: what is taken is what was planned, and steps take nothing more. Alone in its process,
//! because the device counts for all.
#![cfg(feature = "gpu")]

mod common;

use common::{gpu, graph};
use memfit_exec::{Clock, Engine, Executor, Options, TensorView};
use memfit_ir::op::Init;
use memfit_ir::{Builder, TensorType};
use memfit_plan::{Phase, Plan, PlanError, Request, plan};

/// One test after the other: they count the same device.
#[test]
fn the_memory_of_the_device_is_the_plan() {
    let Some(executor) = gpu() else { return };
    steps_take_nothing(executor);
    let Some(executor) = gpu() else { return };
    segments_may_be_larger_than_operands(executor);
    let Some(executor) = gpu() else { return };
    fills_reach_every_byte_of_a_place_and_no_other(executor);
}

fn planned(executor: &impl Executor, build: impl Fn(&mut Builder) -> memfit_ir::Result<()>) -> Result<Plan, PlanError> {
    let g = graph(build);
    plan(&|_| Ok(vec![(Phase::Eval, g.clone().into())]), executor.target(), &Request::new(1))
}

fn steps_take_nothing(executor: memfit_exec_gpu::GpuExecutor) {
    let plan = planned(&executor, |b| {
        let mut h = b.input("x", TensorType::f32([30, 70]))?;
        for (i, [inside, out]) in [[70, 110], [110, 110], [110, 10]].into_iter().enumerate() {
            h = b.scope(i, |b| {
                let w = b.param("weight", [inside, out], Init::Normal { std: 0.1 })?;
                let bias = b.param("bias", [out], Init::Constant(0.5))?;
                let h = b.matmul(h, w)?;
                let h = b.add(h, bias)?;
                b.relu(h)
            })?;
        }
        b.output("y", h);
        Ok(())
    })
    .unwrap();
    assert_eq!(executor.reserved_bytes().segments, 0, "no arena was taken yet");
    let arena = plan.arena_bytes();
    let mut engine = Engine::new(executor, plan, Options { poison: true, ..Options::default() }).unwrap();
    assert_eq!(engine.executor().reserved_bytes().segments, arena);
    engine.init(1).unwrap();
    let x: Vec<f32> = (0..30 * 70).map(|i| (i % 17) as f32 - 8.0).collect();
    let mut run = || {
        let inputs = [("x", TensorView::f32(&[30, 70], &x))];
        engine.run(Phase::Eval, &inputs, 0.0, Clock::default()).unwrap();
        (engine.output(Phase::Eval, "y").unwrap(), engine.executor().reserved_bytes())
    };
    let (first, after_one) = run();
    assert_eq!(after_one.segments, arena);
    for step in 2..=20 {
        let (again, reserved) = run();
        assert_eq!(reserved, after_one, "step {step} took memory");
        assert_eq!(again, first, "step {step} gives other bits");
    }
    let outside = after_one.all - arena;
    println!("{arena} bytes of segments, {outside} bytes beside them for parameters and copies");
}

/// A kernel is given one value at a time: the limit of what it can be given is not one of the segment.
fn segments_may_be_larger_than_operands(executor: memfit_exec_gpu::GpuExecutor) {
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

fn fills_reach_every_byte_of_a_place_and_no_other(executor: memfit_exec_gpu::GpuExecutor) {
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
