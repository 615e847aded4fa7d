//! What a refusal offers works when it is done, beside everything else that was asked; and the largest batch is found
//! however large the budget.

use memfit::exec::Executor;
use memfit::fixes::plan_or_fixes;
use memfit::nn::optim::Optimizer;
use memfit::plan::{Fix, MicroBatch};
use memfit::search::{LIMIT, largest_batch};
use memfit::{CpuExecutor, Half, PlanError, Precision, Request, Subject, Training, ZooModel};

fn cpu() -> CpuExecutor {
    CpuExecutor::new(1).expect("one thread")
}

/// The request and the precision with the options of a fix typed beside them.
fn typed(request: &Request, training: &Training, change: &str) -> (Request, Training) {
    let (mut request, mut training) = (request.clone(), training.clone());
    let words: Vec<&str> = change.split(' ').collect();
    for option in words.as_chunks::<2>().0 {
        match option {
            ["--batch", n] => request.batch = n.parse().expect("a number"),
            ["--micro-batch", "off"] => request.micro_batch = MicroBatch::Off,
            ["--micro-batch", n] => request.micro_batch = MicroBatch::Exactly(n.parse().expect("a number")),
            ["--budget", size] => request.budget = Some(memfit::plan::bytes::parse(size).expect("a size").0),
            ["--precision", "mixed"] => training.precision = Precision::Mixed(Half::Bf16),
            other => panic!("an option that is not known here: {other:?}"),
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
        let (request, training) = typed(&request, &training, &fix.change);
        let done = Subject { training: &training, request: &request, ..subject }.survey();
        let plan = done.and_then(|s| s.plan(request.budget)).unwrap_or_else(|e| panic!("{}: {e}", fix.change));
        assert_eq!(plan.arena_bytes(), fix.arena_bytes, "{}", fix.change);
    }
    refusal.fixes
}

#[test]
fn a_smaller_batch_is_offered_so_that_it_can_be_typed() {
    let whole = Request { micro_batch: MicroBatch::Exactly(256), ..Request::new(256) };
    let fixes = checked_fixes("digits", &whole);
    let smaller = fixes.iter().find(|f| f.change.starts_with("--batch ")).expect("a smaller batch fits");
    assert!(smaller.change.ends_with(" --micro-batch off"), "{}", smaller.change);
    let fixes = checked_fixes("digits", &Request { micro_batch: MicroBatch::Off, ..Request::new(256) });
    let smaller = fixes.iter().find(|f| f.change.starts_with("--batch ")).expect("a smaller batch fits");
    assert!(!smaller.change.contains("--micro-batch"), "{}", smaller.change);
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
