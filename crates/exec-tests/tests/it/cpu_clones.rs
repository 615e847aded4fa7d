//! A dropout that is computed again draws the same mask: its bits depend on the clock, the stream and the element, not on
//! when or how often it runs.

use std::collections::HashMap;

use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Planned, Runner, Settings, Tensor};
use memfit_ir::op::{CLOCK, Dropout, Init};
use memfit_ir::{Builder, Op, TensorType};
use memfit_transform::Grouping;

#[test]
fn a_clone_of_a_dropout_draws_the_same_mask() {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([5, 77])).unwrap();
    let first = b.dropout(x, 0.4).unwrap();
    // Work in between, as between a forward and a backward pass.
    let w = b.param("w", [77, 77], Init::Constant(0.0)).unwrap();
    let product = b.matmul(first, w).unwrap();
    let clock = b.clock().unwrap();
    let again = b.op(Op::Dropout(Dropout { rate: 0.4, stream: 0 }), &[x, clock]).unwrap();
    let sum = b.add(product, again).unwrap();
    let other = b.dropout(x, 0.4).unwrap();
    for (name, v) in [("first", first), ("again", again), ("sum", sum), ("other", other)] {
        b.output(name, v);
    }
    let graph = b.finish();
    let tensor = |ty: TensorType, data: Vec<f64>| Tensor::new(ty, data).unwrap();
    let inputs = HashMap::from([
        ("x".to_string(), tensor(TensorType::f32([5, 77]), vec![1.0; 5 * 77])),
        (CLOCK.to_string(), tensor(TensorType::i32([4]), vec![9.0, 3.0, 17.0, 0.0])),
    ]);
    let states = HashMap::from([("w".to_string(), tensor(TensorType::f32([77, 77]), vec![0.0; 77 * 77]))]);
    for grouping in [Grouping::Fused, Grouping::Single] {
        let mut runner = Planned::new(|| CpuExecutor::new(2), Settings { grouping, poison: true, squeeze: 100 });
        let outputs = runner.run(&graph, &inputs, &states).unwrap().outputs;
        assert_eq!(outputs["first"].data, outputs["again"].data);
        assert_eq!(outputs["first"].data, outputs["sum"].data, "the product with zeros adds nothing");
        assert_ne!(outputs["first"].data, outputs["other"].data, "another stream, another mask");
        let kept = outputs["first"].data.iter().filter(|&&v| v != 0.0).count();
        assert!((180..280).contains(&kept), "{kept} of 385 kept at rate 0.4");
    }
}
