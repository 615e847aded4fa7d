//! The buffers of a profile are what the plan says: at every launch of every program they add up to its live bytes.

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::plan::MicroBatch;
use memfit::{CpuExecutor, Plan, Request, Training, ZooModel, plan_model, survey_model};
use memfit_profile::{Class, Labels, Profile, from_plan};

/// Differences between what is live and what the plan says, in all launches.
fn check(plan: &Plan) -> Profile {
    let profile = from_plan(plan, &Labels::default());
    let mut most = 0;
    for (p, program) in profile.programs.iter().enumerate() {
        for (n, launch) in program.launches.iter().enumerate() {
            let planned = plan.programs[p].launches[n].live_bytes;
            let live: u64 = profile.live_by_class(p, n).iter().sum();
            assert_eq!(live, plan.state_bytes + planned, "launch {n} of {}", program.phase);
            assert_eq!(launch.live_bytes, planned);
            most = most.max(live);
        }
    }
    assert_eq!(most, plan.peak_bytes);
    assert_eq!(profile.peak.live.iter().map(|e| e.bytes).sum::<u64>(), plan.peak_bytes, "what is live at the peak");
    profile
}

fn training() -> Training {
    Training::new(Optimizer::adam().update)
}

#[test]
fn live_tensors_add_up_for_every_model_of_the_zoo_at_the_fastest_and_the_smallest_plan() {
    let cpu = CpuExecutor::new(2).unwrap();
    let mut plans_with_recompute = 0;
    for name in ZooModel::names() {
        let model = ZooModel::from_name(name).unwrap();
        let (training, request) = (training(), Request::new(4));
        let survey = survey_model(&model, &training, cpu.target(), &request).unwrap();
        let smallest = survey.frontier().last().unwrap().arena_bytes;
        for budget in [None, Some(smallest)] {
            let plan = survey.plan(budget).unwrap();
            let profile = check(&plan);
            let is_recomputed = profile.programs.iter().any(|p| p.buffers.iter().any(|b| b.recomputed));
            // What is recomputed while a contraction reads it has no buffer.
            assert!(!is_recomputed || plan.recomputed_ops > 0, "{name} in {budget:?}");
            plans_with_recompute += usize::from(is_recomputed);
        }
    }
    assert!(plans_with_recompute > 5, "{plans_with_recompute}");
}

#[test]
fn micro_batches_are_there() {
    let cpu = CpuExecutor::new(2).unwrap();
    let model = ZooModel::from_name("digits").unwrap();
    let request = Request { micro_batch: MicroBatch::Exactly(8), ..Request::new(32) };
    let training = training();
    let survey = survey_model(&model, &training, cpu.target(), &request).unwrap();
    let smallest = survey.frontier().last().unwrap().arena_bytes;
    let profile = check(&survey.plan(Some(smallest)).unwrap());
    let runs: Vec<(String, usize)> = profile.programs.iter().map(|p| (p.phase.clone(), p.repeats)).collect();
    assert_eq!(runs[..2], [("accumulate".into(), 4), ("apply".into(), 1)]);
    assert!(profile.programs[0].accumulator_bytes > 0);
    assert!(profile.states.iter().any(|s| s.class == Class::Accumulators));
}

#[test]
fn a_profile_reads_back_to_the_same() {
    let cpu = CpuExecutor::new(1).unwrap();
    let model = ZooModel::from_name("digits").unwrap();
    let plan = plan_model(&model, &training(), cpu.target(), &Request::new(8)).unwrap();
    let profile = check(&plan);
    assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
}

#[test]
fn every_field_of_a_profile_is_documented() {
    fn keys(value: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                found.insert(key.clone());
                keys(value, found);
            }),
            serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let cpu = CpuExecutor::new(1).unwrap();
    let model = ZooModel::from_name("digits").unwrap();
    let plan = plan_model(&model, &training(), cpu.target(), &Request::new(8)).unwrap();
    let mut profile = from_plan(&plan, &Labels::default());
    profile.frontier.push(memfit_profile::FrontierPoint {
        arena_bytes: 1,
        step_ms: 1.0,
        micro_batch: 1,
        recomputed_ops: 0,
    });
    profile.limits = Some(memfit_profile::MachineLimits { gflops: 1.0, gbytes: 1.0 });
    profile.pipeline = Some(memfit_profile::Pipeline::default());
    profile.curves.push(memfit_profile::Curve::default());
    profile.run.path = Some("here".into());
    profile.memory.staging_bytes = 1;
    let slice = memfit_profile::Slice { program: 0, launch: 0, micro_batch: 0, thread: 0, begin_us: 0.0, end_us: 1.0 };
    profile.measured = Some(memfit_profile::Measured {
        steps: vec![memfit_profile::StepSample::default()],
        kernels: vec![vec![memfit_profile::KernelTimes::default()]],
        slices: vec![slice],
        ..memfit_profile::Measured::default()
    });
    let mut found = std::collections::BTreeSet::new();
    keys(&serde_json::to_value(&profile).unwrap(), &mut found);
    let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profile.md")).unwrap();
    let missing: Vec<&String> = found.iter().filter(|key| !documented.contains(&format!("| `{key}` |"))).collect();
    assert!(found.len() > 80 && missing.is_empty(), "{missing:?}");
}
