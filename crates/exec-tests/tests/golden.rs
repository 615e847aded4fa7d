//! The golden vectors on the reference executor.

use memfit_exec_tests::Reference;
use memfit_exec_tests::golden::{Case, CaseKind, check, directory, load};

fn check_all(wanted: fn(&CaseKind) -> bool) {
    let cases: Vec<Case> = load(&directory()).unwrap().into_iter().filter(|c| wanted(&c.kind)).collect();
    assert!(!cases.is_empty());
    let wrong: Vec<String> =
        cases.iter().filter_map(|c| check(&mut Reference, c).err()).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{} of {} cases fail:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_op_gives_the_golden_output() {
    check_all(|k| matches!(k, CaseKind::Op(_)));
}

#[test]
fn every_optimizer_gives_the_golden_parameters() {
    check_all(|k| matches!(k, CaseKind::Optimizer(_)));
}

#[test]
fn every_model_gives_the_golden_loss_on_its_first_batch() {
    check_all(|k| matches!(k, CaseKind::Run(_)));
}

#[test]
fn every_graph_is_well_formed() {
    for case in load(&directory()).unwrap() {
        let graph = match &case.kind {
            CaseKind::Op(op) => op.graph(),
            CaseKind::Optimizer(optimizer) => optimizer.graph(),
            CaseKind::Run(run) => run.graph(),
        };
        memfit_ir::verify(&graph.unwrap()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
}
