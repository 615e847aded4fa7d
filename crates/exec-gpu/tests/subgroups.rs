//! No result depends on how many units exchange registers. Mesa's driver in software has as many as its vectors are wide, which a
//! variable of its own says when it is loaded: the same examples run in two processes, and give the same bits.
#![cfg(feature = "gpu")]

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use common::{gpu, runner};
use memfit_exec_tests::generate::{Example, FAMILIES, Purpose, alone, numbered, on_normal_numbers};
use memfit_exec_tests::{RunResult, Runner, Settings};
use memfit_ir::op::MatMul;
use memfit_ir::{Op, TensorType, fingerprint};
use memfit_transform::StepGraph;

/// Set where this is a process of one width.
const CHILD: &str = "MEMFIT_TEST_SUBGROUPS";
/// The bits of a vector, by Mesa's driver in software.
const WIDTH: &str = "LP_NATIVE_VECTOR_WIDTH";
/// What starts the lines that a child says.
const SUBGROUPS: &str = "units that exchange registers:";
const RESULT: &str = "result of";

#[test]
fn no_bit_depends_on_how_many_units_exchange_registers() {
    let Some(executor) = gpu() else { return };
    let units = executor.gpu().features.subgroups;
    if std::env::var_os(CHILD).is_some() {
        println!("{SUBGROUPS} {units:?}");
        examples().iter().for_each(|(name, example)| println!("{RESULT} {name} {:x}", result(name, example)));
    } else if executor.gpu().name.contains("llvmpipe") {
        let [narrow, wide] = std::thread::scope(|scope| {
            let children = ["128", "256"].map(|bits| scope.spawn(move || child(bits)));
            children.map(|child| child.join().unwrap())
        });
        assert_ne!(lines(&narrow, SUBGROUPS), lines(&wide, SUBGROUPS), "the driver takes no notice of {WIDTH}");
        let (narrow, wide) = (lines(&narrow, RESULT), lines(&wide, RESULT));
        assert_eq!(narrow.len(), examples().len());
        let others: Vec<_> = narrow.iter().zip(&wide).filter(|(a, b)| a != b).collect();
        assert!(others.is_empty() && narrow.len() == wide.len(), "other bits: {others:?}");
    } else {
        eprintln!("skipped: {} has one size of subgroups, {units:?}", executor.gpu().name);
    }
}

/// What this test says in a process whose vectors have so many bits.
fn child(bits: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.arg("--nocapture").env(CHILD, "1").env(WIDTH, bits).output().unwrap();
    assert!(output.status.success(), "{bits} bits: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lines<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(start)).collect()
}

/// Some of each family, and a product that is cubek's.
fn examples() -> Vec<(String, Example)> {
    let numbers = 0..memfit_test_effort::cases(2);
    let some = FAMILIES.iter().flat_map(|family| numbers.clone().map(move |number| (family, number)));
    let drawn = some.map(|(family, number)| {
        let example = family.example(Purpose::Kernels, &numbered(number, family.name)).unwrap();
        (format!("{} {number}", family.name), example)
    });
    let [a, b] = [[136, 144], [144, 160]].map(TensorType::f32);
    let product = alone(&Op::MatMul(MatMul { transpose_a: false, transpose_b: false }), &[a, b]).unwrap();
    drawn.chain([("a large product".to_string(), on_normal_numbers(product))]).collect()
}

/// All bits of a run in one number.
fn result(name: &str, Example { graph, forward_end, inputs, states, .. }: &Example) -> u64 {
    let step = StepGraph { graph: graph.clone(), forward_end: *forward_end };
    let run = runner(Settings::default()).run_step(&step, inputs, states);
    let RunResult { outputs, states } = run.unwrap_or_else(|e| panic!("{name}: {e}"));
    let ordered: BTreeMap<_, _> = outputs.iter().chain(&states).collect();
    let bits = |data: &[f64]| data.iter().map(|x| format!("{:x} ", x.to_bits())).collect::<String>();
    fingerprint(&ordered.iter().map(|(name, t)| format!("{name} {}", bits(&t.data))).collect::<String>())
}
