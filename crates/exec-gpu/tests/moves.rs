//! What moves elements on the GPU where the random examples of the suite seldom look: many parts, many ids, ids that are
//! wrong, empty tensors, NaN and infinity.
#![cfg(feature = "gpu")]

mod common;

use std::collections::HashMap;

use common::{gpu, graph};
use memfit_exec::{Clock, Engine, Executor, Options, TensorView};
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::{Planned, Reference, RunResult, Runner, Settings, Tensor, check_close};
use memfit_ir::op::{CLOCK, GatherGrad, Init, LEARNING_RATE, Pad2, StateClass, Unary, Update, Window};
use memfit_ir::{DType, Graph, Op, TensorType};
use memfit_plan::{Phase, Request, plan};

type Inputs<'a> = [(&'a str, Tensor)];

fn run(graph: &Graph, inputs: &Inputs) -> RunResult {
    let mut runner = Planned::new(|| GpuExecutor::new(0), Settings { poison: true, ..Settings::default() });
    runner.run(graph, &named(inputs), &HashMap::new()).unwrap()
}

fn named(inputs: &Inputs) -> HashMap<String, Tensor> {
    inputs.iter().map(|(name, t)| (name.to_string(), t.clone())).collect()
}

fn check(what: &str, graph: &Graph, inputs: &Inputs, tolerance: f64) {
    let expected = Reference.run(graph, &named(inputs), &HashMap::new()).unwrap();
    let given = run(graph, inputs);
    for (name, e) in &expected.outputs {
        check_close(&format!("{what}: {name}"), e, &given.outputs[name], tolerance).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Whole numbers below a limit, which look random.
fn whole(ty: TensorType, limit: usize) -> Tensor {
    let data = (0..ty.elements()).map(|i| ((i * 7919 + i * i * 31) % limit) as f64).collect();
    Tensor::new(ty, data).unwrap()
}

fn tensor(ty: TensorType, data: &[f64]) -> Tensor {
    Tensor::new(ty, data.to_vec()).unwrap()
}

#[test]
fn more_parts_than_a_kernel_binds_are_joined() {
    if gpu().is_none() {
        return;
    }
    for dtype in DType::NUMBERS {
        // Lengths of which none and of which all fill whole words.
        for lengths in [[3, 1, 2, 5, 1], [4, 8, 4, 12, 4]] {
            let shapes: Vec<[usize; 2]> = (0..23).map(|i| [3, lengths[i % 5]]).collect();
            let names: Vec<String> = (0..23).map(|i| format!("x{i}")).collect();
            let g = graph(|b| {
                let parts: memfit_ir::Result<Vec<_>> =
                    names.iter().zip(&shapes).map(|(name, s)| b.input(name, TensorType::new(dtype, *s))).collect();
                let y = b.op(Op::Concat(1), &parts?)?;
                b.output("y", y);
                Ok(())
            });
            let part = |(i, s): (usize, &[usize; 2])| whole(TensorType::new(dtype, *s), 60 + i);
            let parts = names.iter().map(String::as_str).zip(shapes.iter().enumerate().map(part));
            check(&format!("{dtype}, {lengths:?}"), &g, &parts.collect::<Vec<_>>(), 0.0);
        }
    }
}

#[test]
fn parts_and_sources_without_elements_are_nothing() {
    if gpu().is_none() {
        return;
    }
    let g = graph(|b| {
        let full = b.input("full", TensorType::f32([2, 3]))?;
        let empty = b.input("empty", TensorType::f32([2, 0]))?;
        let joined = b.op(Op::Concat(1), &[empty, full, empty])?;
        let padded = b.op(Op::Pad(vec![(1, 0), (2, 2)]), &[empty])?;
        b.output("joined", joined);
        b.output("padded", padded);
        Ok(())
    });
    let full = whole(TensorType::f32([2, 3]), 9);
    check("empty", &g, &[("full", full), ("empty", Tensor::zeros(&TensorType::f32([2, 0])))], 0.0);
}

fn gather_and_gradient(rows: usize, columns: usize, ids: usize) -> Graph {
    graph(|b| {
        let table = b.input("table", TensorType::f32([rows, columns]))?;
        let i = b.input("ids", TensorType::i32([ids]))?;
        // Computed on the device: of what it is given, the host sees that it is outside.
        let away = b.unary(Unary::Neg, i)?;
        let i = b.unary(Unary::Neg, away)?;
        let dy = b.input("dy", TensorType::f32([ids, columns]))?;
        let y = b.op(Op::Gather, &[table, i])?;
        let dtable = b.op(Op::GatherGrad(GatherGrad { rows }), &[i, dy])?;
        b.output("y", y);
        b.output("dtable", dtable);
        Ok(())
    })
}

#[test]
fn rows_of_many_equal_ids_are_summed_up_across_blocks() {
    if gpu().is_none() {
        return;
    }
    for (rows, columns, ids, different) in [
        (1, 3, 1, 1),
        (1, 1, 2000, 1),
        (2, 5, 1000, 2),
        (7, 3, 4099, 7),
        (3000, 2, 513, 300),
        (50, 4, 640, 11),
        (5, 2, 0, 1),
    ] {
        let g = gather_and_gradient(rows, columns, ids);
        let table = whole(TensorType::f32([rows, columns]), 100);
        let i = whole(TensorType::i32([ids]), different);
        let dy = whole(TensorType::f32([ids, columns]), 100);
        check(&format!("{ids} ids of {rows}"), &g, &[("table", table), ("ids", i), ("dy", dy)], 1e-6);
    }
}

#[test]
fn a_sum_over_all_ids_of_more_blocks_than_are_joined_at_once_is_right() {
    if gpu().is_none() {
        return;
    }
    let (rows, ids) = (3, 70_001);
    let g = gather_and_gradient(rows, 1, ids);
    let table = whole(TensorType::f32([rows, 1]), 100);
    let (i, dy) = (whole(TensorType::i32([ids]), rows), whole(TensorType::f32([ids, 1]), 10));
    check("70001 ids", &g, &[("table", table), ("ids", i), ("dy", dy)], 1e-6);
}

/// A device cannot stop a step; what must not happen is that nobody notices.
#[test]
fn an_id_outside_of_the_table_is_nan_in_its_row_and_in_the_first_row_of_the_gradient() {
    if gpu().is_none() {
        return;
    }
    for bad in [-1.0, 3.0, f64::from(i32::MIN), f64::from(i32::MAX)] {
        let g = gather_and_gradient(3, 2, 3);
        let table = whole(TensorType::f32([3, 2]), 9);
        let ids = tensor(TensorType::i32([3]), &[1.0, bad, 2.0]);
        let dy = tensor(TensorType::f32([3, 2]), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let given = run(&g, &[("table", table.clone()), ("ids", ids), ("dy", dy)]);
        let (y, dtable) = (&given.outputs["y"].data, &given.outputs["dtable"].data);
        assert!(y[2].is_nan() && y[3].is_nan(), "{bad}: {y:?}");
        assert_eq!([y[0], y[1], y[4], y[5]], [table.data[2], table.data[3], table.data[4], table.data[5]]);
        assert!(dtable[0].is_nan() && dtable[1].is_nan(), "{bad}: {dtable:?}");
        assert_eq!(dtable[2..], [1.0, 2.0, 5.0, 6.0], "{bad}");
    }
}

#[test]
fn an_update_that_is_held_back_changes_no_bit_whatever_the_gradient() {
    if gpu().is_none() {
        return;
    }
    let ty = TensorType::f32([3]);
    let g = graph(|b| {
        let mut state = |name, class| b.state(name, class, ty.clone(), Init::Constant(0.0));
        let [w, m, v] = [state("w", StateClass::Param)?, state("m", StateClass::Slot)?, state("v", StateClass::Slot)?];
        let gradient = b.input("g", ty.clone())?;
        let (lr, clock) = (b.input(LEARNING_RATE, TensorType::f32([]))?, b.input(CLOCK, TensorType::i32([4]))?);
        let gate = b.input("gate", TensorType::new(DType::U8, []))?;
        let rule = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, decoupled: true };
        let new = b.op_outputs(Op::Update(rule), &[w, gradient, m, v, lr, clock, gate])?;
        [w, m, v].into_iter().zip(new).for_each(|(old, new)| b.donate(old, new));
        Ok(())
    });
    let states: HashMap<String, Tensor> =
        ["w", "m", "v"].map(|name| (name.to_string(), tensor(ty.clone(), &[1.5, 0.25, 3.0]))).into();
    let after = |open: f64| {
        let inputs = [
            ("g", tensor(ty.clone(), &[f64::NAN, f64::INFINITY, 1.0])),
            (LEARNING_RATE, tensor(TensorType::f32([]), &[0.5])),
            (CLOCK, Tensor::zeros(&TensorType::i32([4]))),
            ("gate", tensor(TensorType::new(DType::U8, []), &[open])),
        ];
        let mut runner = Planned::new(|| GpuExecutor::new(0), Settings::default());
        runner.run(&g, &named(&inputs), &states).unwrap().states
    };
    assert_eq!(after(0.0), states);
    let changed = after(1.0);
    assert!(changed["w"].data[0].is_nan() && changed["m"].data[1].is_infinite(), "{changed:?}");
    assert!(changed["w"].data[2] < 3.0, "{changed:?}");
}

#[test]
fn the_first_nan_of_a_window_is_its_maximum_and_infinities_are_numbers() {
    if gpu().is_none() {
        return;
    }
    let (nan, low, high) = (f64::NAN, f64::NEG_INFINITY, f64::INFINITY);
    let window = Window { size: [1, 3], stride: [1, 3], pad: Pad2::NONE };
    let g = graph(|b| {
        let x = b.input("x", TensorType::f32([1, 1, 15, 1]))?;
        let outputs = b.op_outputs(Op::MaxPool(window), &[x])?;
        b.output("y", outputs[0]);
        b.output("index", outputs[1]);
        Ok(())
    });
    let x = [1.0, nan, 2.0, nan, 5.0, nan, low, low, low, low, high, nan, 0.0, high, high];
    let given = run(&g, &[("x", tensor(TensorType::f32([1, 1, 15, 1]), &x))]);
    let y = &given.outputs["y"].data;
    assert!(y[0].is_nan() && y[1].is_nan() && y[3].is_nan(), "{y:?}");
    assert_eq!([y[2], y[4]], [low, high]);
    assert_eq!(given.outputs["index"].data, [1.0, 0.0, 0.0, 2.0, 1.0]);
}

/// Small ones, one of which ends within a word, beside one that no buffer for copies holds.
#[test]
fn outputs_that_are_read_together_are_those_read_one_by_one() {
    let Some(executor) = gpu() else { return };
    let lengths = [7, 100_003, 33, 1];
    let names: Vec<String> = (0..lengths.len()).map(|i| format!("y{i}")).collect();
    let g = graph(|b| {
        for (i, name) in names.iter().enumerate() {
            let x = b.input(&format!("x{i}"), TensorType::f32([lengths[i]]))?;
            let y = b.unary(Unary::Neg, x)?;
            let dtype = if i == 2 { DType::BF16 } else { DType::F32 };
            let y = b.op(Op::Cast(dtype), &[y])?;
            b.output(name, y);
        }
        Ok(())
    });
    let source = |_| Ok(vec![(Phase::Eval, g.clone().into())]);
    let plan = plan(&source, executor.target(), &Request::new(1)).unwrap();
    let mut engine = Engine::new(executor, plan, Options::default()).unwrap();
    engine.init(1).unwrap();
    let data = lengths.map(|n| (0..n).map(|i| i as f32 + 0.5).collect::<Vec<f32>>());
    let shapes = lengths.map(|n| [n]);
    let inputs: Vec<(String, TensorView)> =
        (0..lengths.len()).map(|i| (format!("x{i}"), TensorView::f32(&shapes[i], &data[i]))).collect();
    let inputs: Vec<(&str, TensorView)> = inputs.iter().map(|(name, view)| (name.as_str(), *view)).collect();
    engine.run(Phase::Eval, &inputs, 0.0, Clock::default()).unwrap();
    let one_by_one: Vec<Vec<u8>> = names.iter().map(|name| engine.output(Phase::Eval, name).unwrap()).collect();
    // In another order than they have in memory, and with a gap between them.
    let (mut outputs, mut end) = (Vec::new(), 0);
    for i in [2, 0, 1, 3] {
        outputs.push((names[i].as_str(), end..end + one_by_one[i].len()));
        end += one_by_one[i].len() + 3;
    }
    let mut room = vec![0xaa; end];
    engine.read_outputs(Phase::Eval, &outputs, &mut room).unwrap();
    for ((name, part), i) in outputs.iter().zip([2, 0, 1, 3]) {
        assert!(room[part.clone()] == one_by_one[i], "{name}");
        assert_eq!(room[part.end..][..3], [0xaa; 3], "behind {name}");
    }
    assert!(engine.read_outputs(Phase::Eval, &[("y0", 0..8)], &mut room).is_err(), "a part of another size");
}
