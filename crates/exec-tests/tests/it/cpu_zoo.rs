//! Every model of the zoo trains on the CPU, with poison: what is read after its planned death shows as a NaN. The
//! tightest plan, on one thread, gives the same bits as the fastest on two.

use memfit_exec::{Executor, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::each_zoo_model;
use memfit_exec_tests::zoo::{self, State, Trainee};
use memfit_plan::{Plan, PlanError};
use memfit_test_effort::Effort;
use memfit_transform::{Half, Precision};

const BATCH: usize = 2;

/// The states after three steps under poison.
fn train(executor: &CpuExecutor, plan: Plan) -> Vec<State> {
    let options = Options { poison: true, ..Options::default() };
    let trainee = Trainee::new(executor.clone(), plan, options).unwrap();
    let before = trainee.states().unwrap();
    let after = trainee.train().unwrap();
    for ((name, bytes), before) in after.iter().zip(before) {
        assert!(zoo::floats(bytes).all(f32::is_finite), "{name} is not finite");
        assert_ne!(bytes, &before.1, "{name} has not changed");
    }
    after
}

/// The plans of a model for every budget: smaller ones are slower, the smallest gives the same bits as the fastest, and
/// below it there is a refusal that claims no more than is proved.
fn check_in(precision: Precision, name: &str) {
    let (model, training) = (zoo::small(name), zoo::training(precision));
    let executor = CpuExecutor::new(1).unwrap();
    let survey = zoo::plans(&model, &training, executor.target(), BATCH).unwrap();
    let points = survey.frontier();
    for pair in points.windows(2) {
        assert!(pair[0].arena_bytes > pair[1].arena_bytes && pair[0].seconds < pair[1].seconds, "{pair:?}");
    }
    let smallest = points[points.len() - 1].arena_bytes;
    assert!(survey.lower_bound_bytes() <= smallest, "the bound is above a plan");
    for point in &points {
        let plan = survey.plan(Some(point.arena_bytes)).unwrap();
        assert_eq!(plan.arena_bytes(), point.arena_bytes);
        assert!(plan.peak_bytes <= plan.arena_bytes());
        assert!(
            plan.arena_bytes() as f64 <= 1.01 * plan.peak_bytes as f64,
            "{} of {}",
            plan.arena_bytes(),
            plan.peak_bytes
        );
        let between = survey.plan(Some(point.arena_bytes + 1)).unwrap();
        assert_eq!(between, plan, "a byte more changes nothing");
    }
    let refused = survey.plan(Some(smallest - 1)).unwrap_err();
    let PlanError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.needed, smallest);
    assert_eq!(refusal.is_proved(), smallest - 1 < survey.lower_bound_bytes());
    assert!(!refusal.largest.is_empty() && refusal.largest.len() <= 10);

    let tightest = train(&executor, survey.plan(Some(smallest)).unwrap());
    let executor = CpuExecutor::new(2).unwrap();
    let survey = zoo::plans(&model, &training, executor.target(), BATCH).unwrap();
    let fastest = train(&executor, survey.plan(None).unwrap());
    for (a, b) in fastest.iter().zip(&tightest) {
        assert!(a == b, "{} differs under the tightest plan", a.0);
    }
}

fn check(name: &str) {
    check_in(Precision::F32, name);
    if Effort::from_env() != Effort::Short {
        check_in(Precision::Mixed(Half::Bf16), name);
    }
}

each_zoo_model!(check);
