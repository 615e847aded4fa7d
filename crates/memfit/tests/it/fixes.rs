//! What a refusal offers works when it is done, beside everything else that was asked; and the largest batch is found
//! however large the budget.

use memfit::exec::Executor;
use memfit::fixes::plan_or_fixes;
use memfit::ir::Replica;
use memfit::nn::optim::Optimizer;
use memfit::plan::{Change, Effect, Fix, MicroBatch};
use memfit::replicas::largest_replica;
use memfit::search::{LIMIT, largest_batch};
use memfit::transform::{Exchange, Shard};
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
            Change::Shard(shard) => request.exchange.shard = *shard,
            other => {
                panic!("a change that is not offered here: {other}")
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
    checked_fixes_in(name, request, budget)
}

/// The same for a budget that is too small.
fn checked_fixes_in(name: &str, request: &Request, budget: u64) -> Vec<Fix> {
    let (cpu, training) = (cpu(), Training::new(Optimizer::adam().update));
    let model = ZooModel::from_name(name).expect("a name of the zoo");
    let subject = Subject { model: &model, training: &training, target: cpu.target(), request };
    let survey = subject.survey().expect("a survey");
    let request = Request { budget: Some(budget), ..request.clone() };
    let Err(PlanError::Refused(refusal)) = plan_or_fixes(&subject, &survey, Some(budget), &mut |_| {}) else {
        panic!("{name} fits into less than its smallest plan")
    };
    for fix in &refusal.fixes {
        let (mut request, training) = changed(&request, &training, &fix.changes);
        if matches!(fix.changes[..], [Change::Shard(_)]) {
            // It is named with what the replica of the largest share takes.
            let replicas = Subject { training: &training, request: &request, ..subject }.replicas().expect("replicas");
            request.exchange.replica.rank = largest_replica(&replicas).expect("there are some").rank;
        }
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

/// A replica of several, with a batch of 24 rows for each lane.
fn of_replicas(lanes: usize, count: usize, rank: usize, micro_batch: MicroBatch) -> Request {
    let exchange = Exchange { replica: Replica { lanes, count, rank }, ..Exchange::ALONE };
    Request { exchange, micro_batch, ..Request::new(24 * lanes) }
}

#[test]
fn what_is_offered_to_a_replica_leaves_its_lanes_whole() {
    for (lanes, count, micro_batch) in
        [(2, 2, MicroBatch::Auto), (6, 3, MicroBatch::Off), (5, 2, MicroBatch::Exactly(24)), (4, 1, MicroBatch::Allow)]
    {
        let fixes = checked_fixes("digits", &of_replicas(lanes, count, count - 1, micro_batch));
        let change = |wanted: fn(&Change) -> bool| {
            fixes.iter().find(|f| wanted(&f.changes[0])).unwrap_or_else(|| panic!("{lanes} lanes: {fixes:?}"))
        };
        let batch = change(|c| matches!(c, Change::Batch(_)));
        let Change::Batch(samples) = batch.changes[0] else { unreachable!() };
        assert!(samples.is_multiple_of(lanes) && samples < 24 * lanes, "{batch}");
        let micro = change(|c| matches!(c, Change::MicroBatch(_)));
        let Change::MicroBatch(MicroBatch::Exactly(samples)) = micro.changes[0] else { panic!("{micro}") };
        assert!(24usize.is_multiple_of(samples) && samples < 24, "{micro}");
        assert_eq!(micro.effect, Some(Effect::Leaves { samples, has_statistics: true }), "all replicas are cut alike");
    }
}

#[test]
fn sharing_out_the_optimizers_states_is_offered_where_it_is_enough() {
    let request = of_replicas(4, 4, 2, MicroBatch::Auto);
    let is_shard = |f: &&Fix| f.changes == [Change::Shard(Shard::Optimizer)];
    let (cpu, training) = (cpu(), Training::new(Optimizer::adam().update));
    let model = ZooModel::from_name("digits").expect("a name of the zoo");
    let smallest = |request: &Request| {
        let subject = Subject { model: &model, training: &training, target: cpu.target(), request };
        let replicas = subject.replicas().expect("replicas");
        let survey = subject.survey().expect("a survey");
        (survey.frontier().pop().expect("a plan").arena_bytes, largest_replica(&replicas).expect("some").rank)
    };
    let (whole, _) = smallest(&request);
    let mut shared = request.clone();
    shared.exchange.shard = Shard::Optimizer;
    shared.exchange.replica.rank = smallest(&shared).1;
    let (enough, _) = smallest(&shared);
    assert!(enough < whole);
    for (budget, is_offered) in [(enough, true), (enough - 1, false), ((enough + whole) / 2, true)] {
        let fixes = checked_fixes_in("digits", &request, budget);
        let fix = fixes.iter().find(is_shard);
        assert_eq!(fix.is_some(), is_offered, "{budget}: {fixes:?}");
        assert!(fix.is_none_or(|f| f.arena_bytes <= budget && f.seconds > 0.0));
    }
    let alone = checked_fixes("digits", &Request { micro_batch: MicroBatch::Off, ..Request::new(96) });
    assert!(alone.iter().find(is_shard).is_none(), "one replica has nobody to share with");
}
