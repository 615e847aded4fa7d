//! What holds of the plans of every model of the zoo.

use memfit::exec::Executor;
use memfit::ir::Op;
use memfit::nn::optim::Optimizer;
use memfit::plan::report::{Class, ValueClasses, classes_at_peak};
use memfit::plan::{MicroBatch, Survey, Tool};
use memfit::{CpuExecutor, Half, Phase, Precision, Request, Training, ZooModel, survey_model};
use memfit_test_effort::some;

/// Every model in every precision, whole and in micro-batches.
fn for_each_survey(check: impl Fn(&str, &Survey)) {
    let cpu = CpuExecutor::new(1).expect("one thread");
    for name in some(ZooModel::names()) {
        let model = ZooModel::from_name(name).expect("a name of the zoo");
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
fn no_plan_lies_below_its_bound_and_classes_add_up_to_the_peak() {
    for_each_survey(|what, survey| {
        let bound = survey.lower_bound_bytes();
        for point in survey.frontier() {
            assert!(bound <= point.arena_bytes, "{what}: {point:?} below {bound}");
        }
        let smallest = survey.frontier().last().map(|point| point.arena_bytes);
        println!("{what}: the bound is {bound}, the smallest plan takes {smallest:?}");
        for budget in [None, smallest] {
            let plan = survey.plan(budget).expect("a plan of the frontier");
            let classes = classes_at_peak(&plan);
            assert_eq!(classes.iter().map(|c| c.1).sum::<u64>(), plan.peak_bytes, "{what}: {classes:?}");
        }
    });
}

/// Statistics of a batch come from the forward pass, though a state is updated from them.
#[test]
fn batch_statistics_are_no_gradients() {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let model = ZooModel::from_name("resnet18").expect("a name of the zoo");
    let training = Training::new(Optimizer::adam().update);
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(2) };
    let plan = survey_model(&model, &training, cpu.target(), &request).and_then(|s| s.plan(None)).expect("a plan");
    let program = plan.program(Phase::Step).expect("a step");
    let classes = ValueClasses::new(program);
    let mut seen = 0;
    for node in program.graph.nodes().iter().filter(|n| n.op == Op::BatchStats) {
        for v in &node.outputs {
            assert_eq!(classes.class_of(*v), Class::Activations, "in layer {}", node.scope);
            seen += 1;
        }
    }
    assert_eq!(seen, 2 * 20, "a mean and a variance for each of twenty norms");
}

#[test]
fn the_baseline_is_that_of_the_whole_batch() {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let model = ZooModel::from_name("resnet50").expect("a name of the zoo");
    let training = Training::new(Optimizer::adam().update);
    let keep_all = |micro_batch| {
        let request = Request { micro_batch, ..Request::new(4) };
        let plan = survey_model(&model, &training, cpu.target(), &request).and_then(|s| s.plan(None));
        plan.expect("a plan").keep_all_bytes
    };
    assert_eq!(keep_all(MicroBatch::Exactly(1)), keep_all(MicroBatch::Off));
}

/// What is refused where the planner may choose a micro-batch fits with none that is typed.
#[test]
fn a_typed_micro_batch_takes_no_less_than_a_chosen_one() {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let model = ZooModel::from_name("gpt").expect("a name of the zoo");
    let training = Training::new(Optimizer::adam().update);
    let smallest = |micro_batch| {
        let request = Request { micro_batch, ..Request::new(240) };
        let survey = survey_model(&model, &training, cpu.target(), &request).expect("a survey");
        survey.frontier().last().expect("a plan").arena_bytes
    };
    let chosen = smallest(MicroBatch::Auto);
    for n in [1, 2, 10] {
        let typed = smallest(MicroBatch::Exactly(n));
        assert!(chosen <= typed, "{chosen} bytes are the least of all, but {typed} are enough for {n} at a time");
    }
}

#[test]
fn reading_from_other_places_alone_is_no_reason_to_take_more_memory() {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let model = ZooModel::from_name("vit_b16").expect("a name of the zoo");
    let precision = Precision::Mixed(Half::Bf16);
    let training = Training { precision, ..Training::new(Optimizer::adam().update) };
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(4) };
    let survey = survey_model(&model, &training, cpu.target(), &request).expect("a survey");
    let fastest = survey.plan(None).expect("the fastest plan");
    let cost = fastest.savings.iter().find(|s| s.tool == Tool::Recompute && s.bytes < 0);
    assert_eq!((fastest.recomputed_ops, cost), (0, None));
}

/// Queries, keys and values are read where the projection leaves them, and the gradient takes their place.
#[test]
fn nothing_is_moved_for_attention() {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let model = ZooModel::from_name("gpt").expect("a name of the zoo");
    let training = Training::new(Optimizer::adam().update);
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(2) };
    let plan = survey_model(&model, &training, cpu.target(), &request).and_then(|s| s.plan(None)).expect("a plan");
    let program = plan.program(Phase::Step).expect("a step");
    let mut gradients = 0;
    for node in program.graph.nodes() {
        let moves = matches!(node.op, Op::Transpose(_) | Op::Slice(_) | Op::Concat(_) | Op::Pad(_));
        assert!(!moves, "{} in layer {}", node.op.name(), node.scope);
        if matches!(node.op, Op::AttentionGrad(_)) {
            assert!(program.place(node.inputs[0]).is_some());
            assert_eq!(program.place(node.inputs[0]), program.place(node.outputs[0]), "in layer {}", node.scope);
            gradients += 1;
        }
    }
    assert_eq!(gradients, 6);
}
