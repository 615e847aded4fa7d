//! Several models on one device: what they take together, and that each computes what it computes alone.

use crate::common;

use common::Batch;
use memfit::exec::{Device, ExecError, Executor, Growth, Transient};
use memfit::nn::optim::Optimizer;
use memfit::plan::{Member, MicroBatch, PlanError, Survey, Together, plan_together};
use memfit::train::Session;
use memfit::{CpuExecutor, Engine, Options, Plan, Request, Training, ZooModel, plan_model, survey_model};
use memfit_test_effort::size;

const MIB: u64 = 1 << 20;

struct Job {
    name: &'static str,
    model: ZooModel,
    training: Training,
    request: Request,
    seed: u64,
}

fn job(name: &'static str, batch: usize, optimizer: &str, seed: u64) -> Job {
    let stem = name.strip_suffix("_cifar");
    let mut model = ZooModel::from_name(stem.unwrap_or(name)).expect("in the zoo");
    if stem.is_some() {
        model = model.with_stem(memfit::nn::zoo::Stem::Cifar).expect("a stem");
        model = model.with_input(&[32, 32, 3]).and_then(|m| m.with_classes(10)).expect("a size");
    }
    let training = Training::new(Optimizer::from_name(optimizer).expect("known").update);
    Job { name, model, training, request: Request { micro_batch: MicroBatch::Off, ..Request::new(batch) }, seed }
}

impl Job {
    fn survey<'a>(&'a self, cpu: &'a CpuExecutor) -> Survey<'a> {
        survey_model(&self.model, &self.training, cpu.target(), &self.request).expect("a survey")
    }
}

fn together(jobs: &[Job], cpu: &CpuExecutor, budget: Option<u64>) -> Result<Together, PlanError> {
    let surveys: Vec<Survey> = jobs.iter().map(|j| j.survey(cpu)).collect();
    let member = |(j, survey)| {
        let j: &Job = j;
        Member { name: j.name, survey, budget: j.request.budget }
    };
    let members: Vec<Member> = jobs.iter().zip(&surveys).map(member).collect();
    plan_together(&members, budget)
}

fn weights(session: &Session<CpuExecutor>) -> Vec<(String, Vec<u8>)> {
    session.weights().map(|s| (s.name.clone(), session.weight(&s.name).expect("a weight"))).collect()
}

/// The weights after some steps alone, on the fastest plan.
fn alone(job: &Job, cpu: &CpuExecutor, steps: usize) -> Vec<(String, Vec<u8>)> {
    let plan = plan_model(&job.model, &job.training, cpu.target(), &job.request).expect("a plan");
    let batch = Batch::of(&plan, &job.model, job.seed);
    let mut session = Session::new(cpu.clone(), plan, job.seed).expect("memory");
    for _ in 0..steps {
        session.step(&batch.views(), 0.01).expect("a step");
    }
    weights(&session)
}

/// Trains in turns within what the plans take together, and compares each with itself alone.
fn check(jobs: &[Job], budget: Option<u64>, steps: usize) -> Together {
    let cpu = CpuExecutor::new(2).expect("threads");
    let planned = together(jobs, &cpu, budget).expect("plans");
    assert!(budget.is_none_or(|b| planned.arena_bytes() <= b));
    let device = Device::new("cpu:0", planned.arena_bytes());
    let on = cpu.on(device.clone());
    let transient = Transient::new(&on, "activations", planned.transient_bytes(), Growth::Commit).expect("memory");
    let start = |(job, plan): (&Job, &Plan)| {
        let options = Options { name: job.name.into(), ..Options::default() };
        let engine = Engine::sharing(on.clone(), plan.clone(), options, &transient).expect("memory");
        (Session::start(engine, job.seed).expect("states"), Batch::of(plan, &job.model, job.seed))
    };
    let mut sessions: Vec<_> = jobs.iter().zip(&planned.plans).map(start).collect();
    // To the byte, and not one more.
    assert_eq!((device.used(), device.free()), (planned.arena_bytes(), 0));
    for _ in 0..steps {
        for (session, batch) in &mut sessions {
            session.step(&batch.views(), 0.01).expect("a step");
        }
    }
    assert_eq!(device.high_water(), planned.arena_bytes());
    for (job, (session, _)) in jobs.iter().zip(&sessions) {
        assert!(weights(session) == alone(job, &cpu, steps), "{} is not what it is alone", job.name);
    }
    drop(sessions);
    drop(transient);
    assert_eq!(device.used(), 0);
    planned
}

#[test]
fn two_of_a_kind_take_little_more_than_one() {
    let jobs = [job("resnet18_cifar", 128, "momentum", 1), job("resnet18_cifar", 128, "momentum", 2)];
    let cpu = CpuExecutor::new(2).expect("threads");
    let sum: u64 = together(&jobs, &cpu, None).expect("plans").plans.iter().map(Plan::arena_bytes).sum();
    assert!(together(&jobs, &cpu, Some(sum * 58 / 100)).is_ok());
    // Of fewer samples the states are more, but steps take a moment.
    let (batch, percent) = size((8, 90), (128, 58));
    let jobs = [job("resnet18_cifar", batch, "momentum", 1), job("resnet18_cifar", batch, "momentum", 2)];
    let sum: u64 = together(&jobs, &cpu, None).expect("plans").plans.iter().map(Plan::arena_bytes).sum();
    check(&jobs, Some(sum * percent / 100), 2);
}

#[test]
fn three_of_different_kinds_under_a_budget() {
    let jobs = [job("resnet18_cifar", 8, "momentum", 1), job("unet", 1, "adam", 2), job("gpt", 1, "adamw", 3)];
    let cpu = CpuExecutor::new(2).expect("threads");
    let free = together(&jobs, &cpu, None).expect("plans");
    let tight = check(&jobs, Some(free.arena_bytes() - free.transient_bytes() / 4), 2);
    // The largest became smaller, and who had room before is as fast as before.
    assert!(tight.transient_bytes() < free.transient_bytes());
    for (before, after) in free.plans.iter().zip(&tight.plans) {
        let fits = before.transient_bytes <= tight.arena_bytes() - tight.state_bytes();
        assert!(!fits || before.predicted_step_seconds == after.predicted_step_seconds);
    }
}

#[test]
fn a_refusal_covers_the_set() {
    let jobs = [job("digits", 32, "adam", 1), job("mlp", 32, "adam", 2)];
    let cpu = CpuExecutor::new(2).expect("threads");
    let smallest = {
        let error = together(&jobs, &cpu, Some(MIB)).expect_err("far too small");
        let PlanError::TogetherRefused(refusal) = error else { panic!("{error}") };
        let text = refusal.to_string();
        for part in ["digits", "mlp", "2 models together", "states", "a budget of", "one after the other"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(refusal.is_proved() && refusal.lower_bound <= refusal.needed);
        refusal.needed
    };
    assert_eq!(together(&jobs, &cpu, Some(smallest)).expect("it said so").arena_bytes(), smallest);
    assert!(matches!(together(&jobs, &cpu, Some(smallest - 1)), Err(PlanError::TogetherRefused(_))));
}

/// As long as a plan with the micro-batch of the model alone fits, that one is taken, because it gives the same bits.
#[test]
fn another_micro_batch_is_the_last_resort() {
    let cpu = CpuExecutor::new(2).expect("threads");
    let mut jobs = [job("digits", 32, "adam", 1), job("gpt", 16, "adamw", 2)];
    let states: u64 = jobs.iter().map(|j| j.survey(&cpu).state_bytes()).sum();
    let whole = jobs[1].survey(&cpu).frontier().last().expect("a plan").transient_bytes;
    jobs[1].request.micro_batch = MicroBatch::Auto;
    let sizes = |budget| together(&jobs, &cpu, Some(budget)).expect("it fits").plans[1].micro_batch;
    assert_eq!(sizes(states + whole), 16);
    let tight = together(&jobs, &cpu, Some(states + whole - 1)).expect("in micro-batches");
    assert!(tight.plans[1].micro_batch < 16 && tight.micro_batches_alone == [32, 16]);
    // What a model may take itself, it keeps to, however much there is for all.
    let own = jobs[1].survey(&cpu).frontier().last().expect("a plan").arena_bytes;
    jobs[1].request.budget = Some(own);
    let plans = together(&jobs, &cpu, Some(u64::MAX)).expect("plans").plans;
    assert_eq!(plans[1].arena_bytes(), own);
    jobs[1].request.budget = Some(own - 1);
    assert!(matches!(together(&jobs, &cpu, None), Err(PlanError::Refused(r)) if r.budget == own - 1));
}

#[test]
fn what_a_step_left_in_memory_is_gone_when_another_has_run() {
    let jobs = [job("digits", 8, "sgd", 1), job("digits", 8, "sgd", 2)];
    let cpu = CpuExecutor::new(1).expect("threads");
    let planned = together(&jobs, &cpu, None).expect("plans");
    let small = Transient::new(&cpu, "too small", planned.transient_bytes() - 64, Growth::Lazy).expect("memory");
    let refused = Engine::sharing(cpu.clone(), planned.plans[0].clone(), Options::default(), &small).err();
    assert!(matches!(refused, Some(ExecError::SharedTooSmall { .. })));
    let shared = Transient::new(&cpu, "both", planned.transient_bytes(), Growth::Commit).expect("memory");
    let session = |i: usize| {
        let plan = planned.plans[i].clone();
        let engine = Engine::sharing(cpu.clone(), plan, Options::default(), &shared).expect("memory");
        Session::start(engine, jobs[i].seed).expect("states")
    };
    let (mut a, mut b) = (session(0), session(1));
    let batch = Batch::of(&planned.plans[0], &jobs[0].model, 1);
    let raw = |s: &Session<CpuExecutor>| s.engine().output(s.engine().loss_phase(), "loss");
    let of_a = a.step(&batch.views(), 0.1).expect("a step");
    assert_eq!(raw(&a).expect("it is there"), of_a.to_ne_bytes());
    let of_b = b.step(&batch.views(), 0.1).expect("a step");
    assert!(matches!(raw(&a), Err(ExecError::Gone { .. })));
    assert_eq!(raw(&b).expect("it is there"), of_b.to_ne_bytes());
    // But a session has its numbers.
    assert_ne!(of_a, of_b);
    assert_eq!((a.output("loss").expect("kept"), b.output("loss").expect("kept")), (of_a, of_b));
}

/// One page too much, for every model: refused before anything is taken.
#[test]
fn no_model_passes_the_limit_of_its_device() {
    let cpu = CpuExecutor::new(2).expect("threads");
    for name in ZooModel::names() {
        let Job { model, training, request, .. } = job(name, 2, "momentum", 1);
        let plan = plan_model(&model, &training, cpu.target(), &request).expect("a plan");
        let parts = [plan.arena_bytes() - 4096, plan.arena_bytes()].map(|limit| Device::new("cpu:0", limit));
        let refused = Engine::new(cpu.on(parts[0].clone()), plan.clone(), Options::default()).err();
        let Some(ExecError::DeviceFull(full)) = refused else { panic!("{name} was not refused") };
        assert_eq!((full.bytes, full.limit), (plan.arena_bytes(), plan.arena_bytes() - 4096));
        assert_eq!((parts[0].used(), parts[0].high_water()), (0, 0), "{name}: nothing is taken");
        // Page by page, so that the test of a large model takes no memory.
        let lazy = Options { growth: Growth::Lazy, ..Options::default() };
        let engine = Engine::new(cpu.on(parts[1].clone()), plan, lazy).expect("it fits to the byte");
        assert_eq!(parts[1].free(), 0);
        drop(engine);
        assert_eq!(parts[1].used(), 0);
    }
}
