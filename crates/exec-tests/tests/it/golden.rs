//! The golden vectors on the reference and on the CPU.

use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::golden::{Case, CaseKind, check, directory, load};
use memfit_exec_tests::{Planned, Reference, Runner, Settings};

fn check_all(runner: &mut dyn Runner, wanted: fn(&CaseKind) -> bool) {
    let all = load(&directory()).unwrap().into_iter().map(|entry| entry.case.unwrap());
    let cases: Vec<Case> = all.filter(|c| wanted(&c.kind)).collect();
    assert!(!cases.is_empty());
    let wrong: Vec<String> =
        cases.iter().filter_map(|c| check(runner, c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(wrong.is_empty(), "{} of {} cases fail:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_op_gives_the_golden_output_and_gradients() {
    check_all(&mut Reference, |k| matches!(k, CaseKind::Op(_)));
}

#[test]
fn every_optimizer_gives_the_golden_parameters() {
    check_all(&mut Reference, |k| matches!(k, CaseKind::Optimizer(_)));
}

#[test]
fn every_model_trains_to_the_golden_losses_weights_and_statistics() {
    check_all(&mut Reference, |k| matches!(k, CaseKind::Run(_)));
}

#[test]
fn every_case_passes_on_the_cpu() {
    let settings = Settings { poison: true, squeeze: 100, ..Settings::default() };
    check_all(&mut Planned::new(|| CpuExecutor::new(2), settings), |_| true);
}

#[test]
fn every_graph_is_well_formed() {
    for entry in load(&directory()).unwrap() {
        let graph = match &entry.case.unwrap().kind {
            CaseKind::Op(op) => op.graph_with_gradients(),
            CaseKind::Optimizer(optimizer) => optimizer.graph(),
            CaseKind::Run(run) => run.step_graph().map(|step| step.graph),
        };
        memfit_ir::verify(&graph.unwrap()).unwrap_or_else(|e| panic!("{}: {e}", entry.name));
    }
}
