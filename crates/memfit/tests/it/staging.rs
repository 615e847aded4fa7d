//! A device that takes something beside the arena: a budget is for all of it, alone and together.

use memfit::exec::Executor;
use memfit::fixes::{plan_or_fixes, plan_together_or_fixes};
use memfit::ir::{Graph, NodeId, ValueId};
use memfit::nn::optim::Optimizer;
use memfit::plan::{
    Change, CostModel, MadeFor, Member, MicroBatch, Need, PlanError, Point, StagedProgram, Survey, Target, Together,
    TogetherRefusal, plan_together,
};
use memfit::search::largest_batch;
use memfit::transform::{Fusion, Group};
use memfit::{CpuExecutor, Request, Subject, Training, ZooModel};

/// The CPU as if copies went through buffers, and kernels were kept.
struct Staged<'a>(&'a dyn Target);

const OF_KERNEL: u64 = 200;

impl Target for Staged<'_> {
    fn describe(&self) -> MadeFor {
        self.0.describe()
    }
    fn cost_model(&self) -> CostModel {
        self.0.cost_model()
    }
    fn supports(&self, graph: &Graph, node: NodeId) -> Result<(), String> {
        self.0.supports(graph, node)
    }
    fn fusion(&self) -> Fusion {
        self.0.fusion()
    }
    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64 {
        self.0.scratch_bytes(graph, group)
    }
    fn seconds(&self, graph: &Graph, group: &Group, fresh: u64, cost_model: &CostModel) -> f64 {
        self.0.seconds(graph, group, fresh, cost_model)
    }
    fn staging_bytes(&self, programs: &[StagedProgram]) -> u64 {
        let inputs = programs.iter().map(|p| p.input_bytes).max().unwrap_or(0);
        2 * inputs + OF_KERNEL * programs.iter().map(|p| p.kernels).sum::<u64>()
    }
    fn alignment(&self) -> u64 {
        self.0.alignment()
    }
    fn largest_binding(&self) -> u64 {
        self.0.largest_binding()
    }
    fn largest_segment(&self) -> u64 {
        self.0.largest_segment()
    }
    fn can_run_in_place(&self, graph: &Graph, group: &Group, input: ValueId, output: ValueId) -> bool {
        self.0.can_run_in_place(graph, group, input, output)
    }
}

/// A model and how it is trained.
struct Job(ZooModel, Training, Request);

fn job(name: &str, batch: usize) -> Job {
    let model = ZooModel::from_name(name).expect("in the zoo");
    let model = if name == "unet" { model.with_input(&[16, 16, 3]).expect("a size") } else { model };
    Job(model, Training::new(Optimizer::from_name("adam").expect("known").update), Request::new(batch))
}

impl Job {
    fn subject<'a>(&'a self, target: &'a dyn Target) -> Subject<'a> {
        Subject { model: &self.0, training: &self.1, target, request: &self.2 }
    }
}

#[test]
fn a_budget_holds_the_arena_and_what_stands_beside_it() {
    let cpu = CpuExecutor::new(1).expect("threads");
    let (target, job) = (Staged(cpu.target()), job("unet", 8));
    let survey = job.subject(&target).survey().expect("a survey");
    let points = survey.frontier();
    assert!(points.len() > 1 && points.iter().all(|p| p.staging_bytes > 0), "{points:?}");
    assert!(points.is_sorted_by(|a, b| a.seconds <= b.seconds && a.device_bytes() > b.device_bytes()), "{points:?}");
    let differ = |p: &Point| p.staging_bytes != points[0].staging_bytes;
    assert!(points.iter().any(differ), "a plan with more kernels takes more beside its arena");
    for (i, point) in points.iter().enumerate() {
        for (budget, expected) in [(point.device_bytes(), Some(point)), (point.device_bytes() - 1, points.get(i + 1))] {
            match (survey.plan(Some(budget)), expected) {
                (Ok(plan), Some(point)) => {
                    assert_eq!((plan.arena_bytes(), plan.staging_bytes), (point.arena_bytes, point.staging_bytes));
                    assert!(plan.device_bytes() <= budget && plan.lower_bound_bytes <= plan.device_bytes());
                    let kernels: usize = plan.programs.iter().map(|p| p.launches.len()).sum();
                    let least = OF_KERNEL * kernels as u64 + 2 * plan.input_bytes();
                    assert!(plan.staging_bytes >= least, "{} for {kernels} kernels", plan.staging_bytes);
                }
                (Err(PlanError::Refused(refusal)), None) => {
                    assert_eq!((refusal.needed, refusal.budget), (point.device_bytes(), budget));
                    assert_eq!(refusal.staging_bytes, point.staging_bytes);
                    assert!(refusal.lower_bound <= refusal.needed && refusal.to_string().contains("beside the arena"));
                }
                (result, expected) => panic!("{budget}: {:?} instead of {expected:?}", result.map(|p| p.arena_bytes())),
            }
        }
    }
}

#[test]
fn what_a_refusal_proposes_fits_with_what_stands_beside_the_arena() {
    let cpu = CpuExecutor::new(1).expect("threads");
    let target = Staged(cpu.target());
    let mut job = job("digits", 64);
    let smallest = job.subject(&target).survey().expect("a survey").frontier().last().expect("a plan").device_bytes();
    let budget = smallest - smallest / 50;
    let subject = job.subject(&target);
    let survey = subject.survey().expect("a survey");
    let refused = plan_or_fixes(&subject, &survey, Some(budget), &mut |_| {});
    let Err(PlanError::Refused(refusal)) = refused else { panic!("it fits") };
    assert!(refusal.fixes.len() > 1, "{refusal}");
    drop(survey);
    for fix in &refusal.fixes {
        let mut budget = budget;
        let mut job = Job(job.0.clone(), job.1.clone(), job.2.clone());
        for change in &fix.changes {
            match change {
                Change::Budget(bytes) => budget = *bytes,
                Change::Batch(batch) => job.2.batch = *batch,
                Change::Precision(precision) => job.1.precision = *precision,
                Change::MicroBatch(micro_batch) => job.2.micro_batch = *micro_batch,
                other => panic!("{other}"),
            }
        }
        let plan = job.subject(&target).survey().and_then(|s| s.plan(Some(budget))).expect("it was proposed");
        assert_eq!((plan.device_bytes(), plan.arena_bytes()), (fix.device_bytes(), fix.arena_bytes), "{fix}");
    }
    job.2.micro_batch = MicroBatch::Off;
    let found = largest_batch(&job.subject(&target), budget, None, &mut |_| {}).expect("a search");
    assert!(found.plan.is_some_and(|plan| plan.device_bytes() <= budget));
    assert!(found.tried.iter().all(|t| t.fits == t.needed.is_some_and(|n| n <= budget)), "{:?}", found.tried);
}

/// Two that take turns, in one piece each.
fn two_jobs(name: &str, batches: [usize; 2]) -> [Job; 2] {
    batches.map(|batch| {
        let Job(model, training, request) = job(name, batch);
        Job(model, training, Request { micro_batch: MicroBatch::Off, ..request })
    })
}

fn members<'a>(names: &'a [&'a str], surveys: &'a [Survey<'a>]) -> Vec<Member<'a>> {
    names.iter().zip(surveys).map(|(name, survey)| Member { name, survey, budget: None }).collect()
}

/// All that plans take together.
fn taken(together: &Together) -> u64 {
    together.arena_bytes() + together.plans.iter().map(|p| p.staging_bytes).sum::<u64>()
}

fn refused(members: &[Member], budget: u64) -> TogetherRefusal {
    match plan_together(members, Some(budget)) {
        Err(PlanError::TogetherRefused(refusal)) => *refusal,
        other => panic!("{:?}", other.map(|t| taken(&t))),
    }
}

#[test]
fn models_share_a_budget_with_what_stands_beside_their_arenas() {
    let cpu = CpuExecutor::new(1).expect("threads");
    let target = Staged(cpu.target());
    let (names, jobs) = (["a", "b"], two_jobs("unet", [8, 5]));
    let surveys: Vec<Survey> = jobs.iter().map(|j| j.subject(&target).survey().expect("a survey")).collect();
    let all = members(&names, &surveys);
    let free = plan_together(&all, None).expect("plans");
    let needed = refused(&all, 1 << 20).needed;
    assert!(needed < taken(&free), "there is something to choose");
    let mut slowest = vec![f64::INFINITY; 2];
    for i in 0..=24 {
        let budget = needed + (taken(&free) - needed) * i / 24;
        let together = plan_together(&all, Some(budget)).expect("it was said to fit");
        assert!(taken(&together) <= budget, "{} of {budget}", taken(&together));
        for (plan, slowest) in together.plans.iter().zip(&mut slowest) {
            assert!(plan.predicted_step_seconds <= *slowest, "a larger budget gave a slower plan");
            *slowest = plan.predicted_step_seconds;
        }
    }
    let refusal = refused(&all, needed - 1);
    assert_eq!(refusal.needed, needed);
    assert!(refusal.lower_bound <= needed && refusal.to_string().contains("for copies"), "{refusal}");
}

#[test]
fn what_is_proposed_for_one_of_several_lets_all_of_them_in() {
    let cpu = CpuExecutor::new(1).expect("threads");
    let target = Staged(cpu.target());
    let (names, jobs) = (["a", "b"], two_jobs("digits", [64, 40]));
    let subjects: Vec<Subject> = jobs.iter().map(|j| j.subject(&target)).collect();
    let surveys: Vec<Survey> = subjects.iter().map(|s| s.survey().expect("a survey")).collect();
    let all = members(&names, &surveys);
    let budget = refused(&all, 1 << 20).needed * 97 / 100;
    let Err(PlanError::TogetherRefused(refusal)) = plan_together_or_fixes(&subjects, &all, Some(budget), &mut |_| {})
    else {
        panic!("it fits")
    };
    let changed: Vec<&Need> = refusal.to_be_changed();
    assert!(!changed.is_empty(), "{refusal}");
    // One fix of each, in every combination of their first ones.
    for i in 0..changed.iter().map(|need| need.fixes.len()).max().unwrap_or(0) {
        let mut with_fixes = two_jobs("digits", [64, 40]);
        for need in &changed {
            let at = names.iter().position(|name| *name == need.name).expect("one of them");
            for change in &need.fixes[i.min(need.fixes.len() - 1)].changes {
                match change {
                    Change::Batch(batch) => with_fixes[at].2.batch = *batch,
                    Change::Precision(precision) => with_fixes[at].1.precision = *precision,
                    Change::MicroBatch(micro_batch) => with_fixes[at].2.micro_batch = *micro_batch,
                    other => panic!("{other}"),
                }
            }
        }
        let surveys: Vec<Survey> = with_fixes.iter().map(|j| j.subject(&target).survey().expect("a survey")).collect();
        let together = plan_together(&members(&names, &surveys), Some(budget)).expect("it was proposed");
        assert!(taken(&together) <= budget);
    }
}
