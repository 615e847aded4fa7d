//! What planning itself takes: a counting allocator sees the survey and the plan of zoo models. One test in a binary of its
//! own, so that no other test's allocations are counted.

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::plan::plan_bytes;
use memfit::{CpuExecutor, PlanError, Request, Subject, Training, ZooModel};
use memfit_test_allocator::{Counting, Who, count};
use memfit_test_effort::some;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What planning takes: bytes.
struct Measured {
    /// At most, and before it the most that it says itself.
    peak: usize,
    said: usize,
    /// Of the plan alone, and the most that is said of it.
    plan: usize,
    plan_said: usize,
}

fn measure(name: &str, batch: usize, budget: Budget) -> Measured {
    let (model, cpu) = (ZooModel::from_name(name).expect("a model"), CpuExecutor::new(2).expect("threads"));
    let (training, request) = (Training::new(Optimizer::adam().update), Request::new(batch));
    let subject = Subject { model: &model, training: &training, target: cpu.target(), request: &request };
    let plan_said = plan_bytes(&subject.programs(batch).expect("programs")) as usize;
    let no_room = Request { planning_room: Some(0), ..request.clone() };
    let said = match (Subject { request: &no_room, ..subject }).survey() {
        Err(PlanError::PlanningRoom { needed, room: 0 }) => needed as usize,
        Err(other) => panic!("{name}: {other}"),
        Ok(_) => panic!("{name} is planned in no memory"),
    };
    let (plan, planning) = count(Who::Process, || {
        let survey = subject.survey().expect("a survey");
        let smallest = survey.frontier().last().map(|point| point.arena_bytes);
        survey.plan(if budget == Budget::Least { smallest } else { None }).expect("a plan")
    });
    let (_, given_back) = count(Who::Process, || drop(plan));
    Measured { peak: planning.peak as usize, said, plan: -given_back.kept as usize, plan_said }
}

/// Which plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Budget {
    /// The fastest.
    Any,
    /// The smallest, which has the most clones.
    Least,
}

/// A hundred candidates are looked at, but no more than their outlines are kept beside the one that is drafted; and what that
/// takes is known before.
#[test]
fn planning_takes_a_few_times_its_plan_and_no_more_than_it_says() {
    for name in some(ZooModel::names()) {
        for (batch, budget) in [(1, Budget::Any), (12, Budget::Least)] {
            let m = measure(name, batch, budget);
            println!(
                "{name}, batch {batch}: {} of {} KiB for a plan of {} of {} KiB",
                m.peak >> 10,
                m.said >> 10,
                m.plan >> 10,
                m.plan_said >> 10
            );
            assert!(m.peak <= 8 * m.plan, "{name}: {} bytes for a plan of {}", m.peak, m.plan);
            assert!(
                m.peak <= m.said && m.plan <= m.plan_said,
                "{name}: {} of {}, {} of {}",
                m.peak,
                m.said,
                m.plan,
                m.plan_said
            );
        }
    }
}
