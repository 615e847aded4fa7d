//! What holds of the plans of every model of the zoo.

use memfit::exec::Executor;
use memfit::nn::optim::Optimizer;
use memfit::plan::{MicroBatch, Survey};
use memfit::{CpuExecutor, Half, Model, Precision, Request, Training, survey_model};

/// Every model in every precision, whole and in micro-batches.
fn for_each_survey(check: impl Fn(&str, &Survey)) {
    let cpu = CpuExecutor::new(1).expect("one thread");
    for name in Model::names() {
        let model = Model::from_name(name).expect("a name of the zoo");
        for precision in [Precision::F32, Precision::Mixed(Half::Bf16)] {
            let training = Training { precision, ..Training::new(Optimizer::adam().update) };
            for micro_batch in [1, 2] {
                let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), ..Request::new(2) };
                let survey = survey_model(&model, &training, cpu.target(), &request).expect("a survey");
                check(&format!("{name} in {}, 2 in {micro_batch}", precision.name()), &survey);
            }
        }
    }
}

#[test]
fn no_plan_of_the_zoo_lies_below_its_bound() {
    for_each_survey(|what, survey| {
        let bound = survey.lower_bound_bytes();
        for point in survey.frontier() {
            assert!(bound <= point.arena_bytes, "{what}: {point:?} below {bound}");
        }
        println!("{what}: the bound is {bound}, the smallest plan {:?}", survey.frontier().last());
    });
}

#[test]
fn reading_from_other_places_alone_is_no_reason_to_take_more_memory() {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let model = Model::from_name("vit_b16").expect("a name of the zoo");
    let precision = Precision::Mixed(Half::Bf16);
    let training = Training { precision, ..Training::new(Optimizer::adam().update) };
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(4) };
    let survey = survey_model(&model, &training, cpu.target(), &request).expect("a survey");
    let fastest = survey.plan(None).expect("the fastest plan");
    let cost = fastest.savings.iter().find(|s| s.tool == "recompute" && s.bytes < 0);
    assert_eq!((fastest.recomputed_ops, cost), (0, None));
}
