//! States that are overwritten while somebody still needs them: the planner copies them, whatever the grouping, and the CPU
//! gives what the reference gives.

use std::collections::HashMap;

use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Planned, Reference, Runner, Settings, Tensor, check_close};
use memfit_ir::op::Init;
use memfit_ir::{Builder, Graph, TensorType, verify};
use memfit_transform::Grouping;

const ZERO: Init = Init::Constant(0.0);

fn check(build: impl FnOnce(&mut Builder) -> memfit_ir::Result<()>) {
    let mut b = Builder::new();
    build(&mut b).unwrap();
    let graph: Graph = b.finish();
    verify(&graph).unwrap();
    let square = |from: i32| {
        let data = (0..9).map(|i| ((i * 7 + from) % 5) as f64 - 2.0).collect();
        Tensor::new(TensorType::f32([3, 3]), data).unwrap()
    };
    let inputs = HashMap::from([("x".to_string(), square(1))]);
    let states: HashMap<String, Tensor> =
        graph.states().enumerate().map(|(i, (s, _))| (s.name.clone(), square(2 + i as i32))).collect();
    let expected = Reference.run(&graph, &inputs, &states).unwrap();
    for grouping in [Grouping::Fused, Grouping::Single] {
        for threads in [1, 3] {
            let executor = || CpuExecutor::new(threads);
            let mut runner = Planned::new(executor, Settings { grouping, poison: true, squeeze: 100 });
            let given = runner.run(&graph, &inputs, &states).unwrap();
            for (a, b) in [(&expected.outputs, &given.outputs), (&expected.states, &given.states)] {
                for (name, t) in a {
                    check_close(name, t, &b[name], 1e-6).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_state_times_itself() {
    check(|b| {
        let w = b.param("w", [3, 3], ZERO)?;
        let new = b.matmul(w, w)?;
        b.donate(w, new);
        Ok(())
    });
}

#[test]
fn a_state_plus_a_product_of_it() {
    check(|b| {
        let x = b.input("x", TensorType::f32([3, 3]))?;
        let w = b.param("w", [3, 3], ZERO)?;
        let product = b.matmul(w, x)?;
        let new = b.add(w, product)?;
        b.donate(w, new);
        Ok(())
    });
}

#[test]
fn how_far_a_state_moved() {
    check(|b| {
        let x = b.input("x", TensorType::f32([3, 3]))?;
        let w = b.param("w", [3, 3], ZERO)?;
        let new = b.add(w, x)?;
        let moved = b.sub(new, w)?;
        b.output("moved", moved);
        b.donate(w, new);
        Ok(())
    });
}

#[test]
fn two_states_that_swap() {
    check(|b| {
        let v = b.param("v", [3, 3], ZERO)?;
        let w = b.param("w", [3, 3], ZERO)?;
        let (new_v, new_w) = (b.scale(w, 2.0)?, b.scale(v, 3.0)?);
        b.donate(v, new_v);
        b.donate(w, new_w);
        Ok(())
    });
}

#[test]
fn a_state_from_a_view_of_itself() {
    check(|b| {
        let w = b.param("w", [3, 3], ZERO)?;
        let flat = b.reshape(w, [9])?;
        let twice = b.add(flat, flat)?;
        let new = b.reshape(twice, [3, 3])?;
        b.donate(w, new);
        Ok(())
    });
}
