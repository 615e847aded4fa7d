//! What a refusal offers works when it is done, beside everything else that was asked; and the largest batch is found
//! however large the budget.

use memfit::exec::Executor;
use memfit::fixes::plan_or_fixes;
use memfit::nn::optim::Optimizer;
use memfit::plan::{Change, Fix, MicroBatch};
use memfit::search::{LIMIT, largest_batch};
use memfit::{CpuExecutor, PlanError, Request, Subject, Training, ZooModel};

fn cpu() -> CpuExecutor {
    CpuExecutor::new(1).expect("one thread")
}

/// The request and the precision with the changes of a fix.
fn changed(request: &Request, training: &Training, changes: &[Change]) -> (Request, Training) {
    let (mut request, mut training) = (request.clone(), training.clone());
    for change in changes {
        match change {
            Change::Batch(samples) => request.batch = *samples,
            Change::MicroBatch(micro_batch) => request.micro_batch = *micro_batch,
            Change::Budget(bytes) => request.budget = Some(*bytes),
            Change::Precision(precision) => training.precision = *precision,
            Change::Model(_) | Change::Split(_) | Change::Total(_) | Change::ProcessLimit(_) => {
                panic!("a change that is not offered here: {change}")
            }
        }
    }
    (request, training)
}

/// Refuses a budget somewhat below the smallest plan; the fixes, each of which was done.
fn checked_fixes(name: &str, request: &Request) -> Vec<Fix> {
    let (cpu, training) = (cpu(), Training::new(Optimizer::adam().update));
    let model = ZooModel::from_name(name).expect("a name of the zoo");
    let subject = Subject { model: &model, training: &training, target: cpu.target(), request };
    let survey = subject.survey().expect("a survey");
    let smallest = survey.frontier().pop().expect("a plan");
    let budget = smallest.arena_bytes - smallest.transient_bytes / 10;
    let request = Request { budget: Some(budget), ..request.clone() };
    let Err(PlanError::Refused(refusal)) = plan_or_fixes(&subject, &survey, Some(budget), &mut |_| {}) else {
        panic!("{name} fits into less than its smallest plan")
    };
    for fix in &refusal.fixes {
        let (request, training) = changed(&request, &training, &fix.changes);
        let done = Subject { training: &training, request: &request, ..subject }.survey();
        let plan = done.and_then(|s| s.plan(request.budget)).unwrap_or_else(|e| panic!("{fix}: {e}"));
        assert_eq!(plan.arena_bytes(), fix.arena_bytes, "{fix}");
    }
    refusal.fixes
}

#[test]
fn a_smaller_batch_is_offered_so_that_it_can_be_done() {
    let off = Change::MicroBatch(MicroBatch::Off);
    for (micro_batch, is_turned_off) in [(MicroBatch::Exactly(256), true), (MicroBatch::Off, false)] {
        let fixes = checked_fixes("digits", &Request { micro_batch, ..Request::new(256) });
        let smaller = fixes.iter().find(|f| matches!(f.changes[0], Change::Batch(_))).expect("a smaller batch fits");
        assert_eq!(smaller.changes.contains(&off), is_turned_off, "{smaller}");
    }
}

#[test]
fn a_batch_that_cannot_be_built_does_not_fit() {
    let (cpu, training) = (cpu(), Training::new(Optimizer::adam().update));
    let model =
        ZooModel::from_name("digits").expect("a name of the zoo").with_input(&[4096, 4096, 1]).expect("an input");
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(1) };
    let subject = Subject { model: &model, training: &training, target: cpu.target(), request: &request };
    let most = Request { batch: LIMIT, ..request.clone() };
    let most = Subject { request: &most, ..subject }.survey().map(|s| s.frontier());
    assert!(matches!(most, Err(PlanError::Source(_))), "the largest batch can be built after all");
    let found = largest_batch(&subject, 1 << 60, None, &mut |_| {}).expect("an answer");
    let batch = found.plan.expect("one sample fits").batch;
    assert!(found.tried.iter().any(|t| t.batch == batch + 1 && !t.fits), "{batch}: {:?}", found.tried);
}
