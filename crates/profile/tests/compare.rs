//! What a comparison says of layers and kernels adds up to what it says of the whole.

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::{CpuExecutor, Request, Training, ZooModel, survey_model};
use memfit_profile::compare::compare;
use memfit_profile::{Labels, Profile, from_plan};

/// Profiles of the fastest and of the smallest plan.
fn profiles(model: &str) -> [Profile; 2] {
    let cpu = CpuExecutor::new(2).unwrap();
    let (training, request) = (Training::new(Optimizer::adam().update), Request::new(4));
    let zoo = ZooModel::from_name(model).unwrap();
    let survey = survey_model(&zoo, &training, cpu.target(), &request).unwrap();
    let smallest = survey.frontier().last().unwrap().arena_bytes;
    let labels = Labels { model: model.into(), ..Labels::default() };
    [None, Some(smallest)].map(|budget| from_plan(&survey.plan(budget).unwrap(), &labels))
}

#[test]
fn differences_of_layers_and_kernels_add_up() {
    for model in ["resnet18", "gpt", "mobilenet_v3_small"] {
        let [a, b] = profiles(model);
        let comparison = compare(&a, &b).unwrap();
        let peak = |p: &Profile| p.memory.peak_bytes as i64;
        let by_layer: i64 = comparison.layers.iter().map(|l| l.after as i64 - l.before as i64).sum();
        let by_class: i64 = comparison.classes.iter().map(|c| c.after as i64 - c.before as i64).sum();
        assert_eq!((by_layer, by_class), (peak(&b) - peak(&a), peak(&b) - peak(&a)), "{model}");
        assert!(by_layer < 0, "{model}");
        let kernels: f64 = comparison.kernels.iter().map(|k| k.after - k.before).sum();
        let whole = b.memory.predicted_step_ms - a.memory.predicted_step_ms;
        assert!((kernels - whole).abs() < 1e-6 * b.memory.predicted_step_ms, "{model}: {kernels} and not {whole}");
        let back = compare(&b, &a).unwrap();
        assert_eq!(back.layers.len(), comparison.layers.len());
    }
}

#[test]
fn what_is_the_same_is_said_to_be_and_other_models_are_refused() {
    let [a, _] = profiles("mlp");
    let [other, _] = profiles("digits");
    assert!(compare(&a, &a).unwrap().markdown(["a", "b"]).contains("The plans are the same."));
    let problem = compare(&a, &other).unwrap_err().to_string();
    assert!(problem.contains("mlp") && problem.contains("digits"), "{problem}");
}

#[test]
fn words_of_a_profile_add_no_line_or_column_to_a_comparison_and_move_no_cursor() {
    let [a, mut b] = profiles("digits");
    b.programs[0].launches[0].layer = "a|b\n# c\u{1b}[2J".into();
    b.run.device = "\u{1b}]0;title\u{7}".into();
    let comparison = compare(&a, &b).unwrap();
    assert!(comparison.kernels.iter().any(|k| k.layer.contains('\n')), "the data are as they were");
    let text = comparison.markdown(["a", "b"]);
    assert!(text.contains("a\\|b # c"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text}");
}

#[test]
fn times_that_cannot_be_are_refused() {
    let [profile, _] = profiles("mlp");
    assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
    for time in [-1.0, 1e300] {
        let mut forged = profile.clone();
        forged.programs[0].launches[0].predicted_us = time;
        let problem = Profile::from_json(&forged.to_json()).unwrap_err().to_string();
        assert!(problem.contains("negative"), "{problem}");
    }
}
