//! Forward passes with several heads: what they are called, what they sum to, and what is refused.

use memfit_ir::{Builder, TensorType, ValueId, text};
use memfit_nn::layers::{Dense, dense};
use memfit_nn::zoo::{Labels, Mlp, Resnet, Task};
use memfit_nn::{Forward, Head, Loss, Mode, Model, Result, ZooModel, from_fn};

const SPARSE: Loss = Loss::SparseCrossEntropy { smoothing: 0.0 };

/// A graph with a value of two channels, its classes, and numbers of its shape.
fn start() -> (Builder, [ValueId; 3]) {
    let mut b = Builder::new();
    let x = b.input("pixels", TensorType::f32([4, 3])).unwrap();
    let classes = b.input("kind", TensorType::i32([4])).unwrap();
    let numbers = b.input("weight", TensorType::f32([4, 2])).unwrap();
    let y = dense(&mut b, "fc", x, Dense::new(2)).unwrap();
    (b, [y, classes, numbers])
}

fn outputs(forward: &Forward) -> Vec<String> {
    forward.graph.outputs.iter().map(|(name, v)| format!("{name} {}", forward.graph.ty(*v))).collect()
}

#[test]
fn outputs_have_the_names_of_their_heads() {
    for (mode, expected) in [
        (Mode::Train, ["loss f32[]", "kind/loss f32[]", "kind f32[4,2]", "own/loss f32[]", "own f32[4,2]"].as_slice()),
        (Mode::Eval, &["loss f32[]", "kind f32[4,2]", "own f32[4,2]", "own/loss f32[4]", "own/size f32[4]"]),
    ] {
        let (mut b, [y, classes, numbers]) = start();
        let product = b.mul(y, numbers).unwrap();
        let heads =
            [Head::new("kind", y, SPARSE, classes), Head::custom("own", y, product).weight(0.5).metric("size", y)];
        let forward = Forward::new(b, mode, &heads).unwrap();
        assert_eq!(outputs(&forward), expected, "{mode:?}");
        let [kind, own] = &forward.heads[..] else { panic!("two heads") };
        assert_eq!((kind.label.as_deref(), kind.loss, kind.weight), (Some("kind"), SPARSE, 1.0));
        assert_eq!((own.label.as_deref(), own.loss, own.weight), (None, Loss::Custom, 0.5));
        assert_eq!((own.loss_output(), own.metric_output("size")), ("own/loss".into(), "own/size".into()));
    }
}

#[test]
fn one_head_is_the_loss_itself() {
    let (b, [y, _, numbers]) = start();
    let forward = Forward::new(b, Mode::Train, &[Head::new("y", y, Loss::MeanSquaredError, numbers)]).unwrap();
    assert_eq!(outputs(&forward), ["loss f32[]", "y f32[4,2]"]);
    let (b, [y, _, numbers]) = start();
    let half = Head::new("y", y, Loss::MeanSquaredError, numbers).weight(0.5);
    let weighted = Forward::new(b, Mode::Train, &[half]).unwrap();
    assert_eq!(weighted.graph.nodes().len(), forward.graph.nodes().len() + 2, "a constant and a product");
}

#[test]
fn heads_that_cannot_be_are_refused_by_name() {
    type Make = fn(&mut Builder, [ValueId; 3]) -> Vec<Head>;
    let cases: [(Make, &str); 8] = [
        (|_, _| vec![], "it has no head"),
        (|_, [y, c, _]| vec![Head::new("loss", y, SPARSE, c)], "a head cannot be called \"loss\""),
        (|_, [y, c, _]| vec![Head::new("", y, SPARSE, c)], "a head cannot be called \"\""),
        (|_, [y, c, _]| vec![Head::new("a", y, SPARSE, c), Head::new("a", y, SPARSE, c)], "two heads are called \"a\""),
        (|_, [y, c, _]| vec![Head::new("a", y, SPARSE, c).weight(f32::NAN)], "head \"a\" has the weight NaN"),
        (|_, [y, _, _]| vec![Head::new("a", y, Loss::MeanSquaredError, y)], "its labels must be an input"),
        (|_, [y, c, _]| vec![Head::new("a", y, Loss::Custom, c)], "use Head::custom"),
        (|_, [y, c, n]| vec![Head::new("a", y, SPARSE, c), Head::new("b", y, SPARSE, n)], "sparse labels must be i32"),
    ];
    for (make, expected) in cases {
        let (mut b, values) = start();
        let heads = make(&mut b, values);
        let error = Forward::new(b, Mode::Train, &heads).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}\nexpected: {expected}");
    }
    let (mut b, [y, ..]) = start();
    let scalar = b.mean(y).unwrap();
    let error = Forward::new(b, Mode::Train, &[Head::custom("a", y, scalar)]).expect_err("no rows").to_string();
    assert!(error.contains("losses must be f32 with the batch as first axis"), "{error}");
}

#[test]
fn a_closure_a_network_and_a_name_are_the_same_model() {
    let mlp = Mlp::new(6, &[5], 4);
    let copy = mlp.clone();
    let models: [Box<dyn Model>; 3] = [
        Box::new(mlp.clone()),
        Box::new(ZooModel::from(mlp)),
        Box::new(from_fn("closure", move |batch, mode| copy.build(batch, mode))),
    ];
    let graph = |model: &dyn Model| -> Result<String> { Ok(text::print(&model.build(3, Mode::Train)?.graph)) };
    for model in &models {
        assert_eq!(graph(model).unwrap(), graph(&models[0]).unwrap(), "{}", model.name());
        assert_eq!(model.heads().unwrap()[0].output, "logits");
    }
    let names: Vec<&str> = models.iter().map(|m| m.name()).collect();
    assert_eq!(names, ["mlp", "mlp", "closure"]);
}

#[test]
fn siblings_go_down_to_the_smallest_and_keep_input_classes_and_labels() {
    let labels = Labels { smoothing: 0.1, ..Labels::default() };
    let model = ZooModel::from(Resnet::resnet101().cifar()).with_labels(labels);
    let (mut smaller, mut names) = (model.smaller(), Vec::new());
    while let Some(model) = smaller {
        let forward = model.build(2, Mode::Train).unwrap();
        assert_eq!(forward.graph.shape(forward.output("logits").unwrap()), [2, 10]);
        assert_eq!(forward.heads[0].loss, Loss::SparseCrossEntropy { smoothing: 0.1 });
        names.push(model.name().to_string());
        smaller = model.smaller();
    }
    assert_eq!(names, ["resnet50", "resnet34", "resnet18"]);
    assert!(Mlp::default().smaller().is_none());
}

#[test]
fn a_network_that_classifies_predicts_numbers_and_no_other_does() {
    let huber = Loss::Huber { delta: 0.5 };
    let model = ZooModel::from_name("resnet18").unwrap().with_values(2, huber).unwrap();
    assert_eq!((model.task(), model.classes()), (Task::Values, 2));
    for mode in [Mode::Train, Mode::Eval] {
        let forward = model.build(4, mode).unwrap();
        assert_eq!(forward.graph.ty(forward.graph.input("y").unwrap()), &TensorType::f32([4, 2]));
        assert_eq!(forward.heads[0].loss, huber);
    }
    for (name, loss) in [("unet", huber), ("gpt", huber), ("mlp", SPARSE)] {
        let refused = ZooModel::from_name(name).unwrap().with_values(1, loss).expect_err(name).to_string();
        assert!(refused.contains("does not predict numbers"), "{refused}");
    }
}

#[test]
fn weights_are_an_input_of_training_alone() {
    let weighted = Labels { weighted: true, ..Labels::default() };
    let of = |name: &str, labels: Labels, mode: Mode| {
        let model = ZooModel::from_name(name).unwrap().with_labels(labels);
        model.build(2, mode).map(|f| f.graph.input("w").map(|w| f.graph.ty(w).to_string()))
    };
    assert_eq!(of("mlp", weighted, Mode::Train).unwrap().as_deref(), Some("f32[2]"));
    assert_eq!(of("mlp", weighted, Mode::Eval).unwrap(), None);
    assert_eq!(of("mlp", Labels::default(), Mode::Train).unwrap(), None);
    for (name, labels) in [("unet", weighted), ("gpt", weighted), ("mlp", Labels { soft: true, ..weighted })] {
        assert!(of(name, labels, Mode::Train).is_err(), "{name}");
    }
}
