//! The training step as a whole and in micro-batches: names, donations, clipping, what is refused; and that both ways
//! arrive at the same numbers.

use crate::common;

use std::collections::{HashMap, HashSet};

use common::{Tensor, evaluate, input, noise};
use memfit_ir::op::*;
use memfit_ir::{Builder, Graph, Op, Replica, Result, TensorType, ValueId, verify};
use memfit_transform::{
    BatchNorm, Clip, Error, Exchange, Precision, Split, Training, copy_state, exchanging_split, exchanging_step, prune,
    save_masks, split_step, step,
};

const SGD: Update = Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
const ADAM: Update = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };

fn training(update: Update, clip: Clip, frozen: &[&str]) -> Training {
    Training { clip, frozen: frozen.iter().map(|s| s.to_string()).collect(), ..Training::new(update) }
}

/// Two linear layers, the mean of squares; with a batch norm between them if asked for.
fn model(samples: usize, norm: bool) -> (Graph, ValueId) {
    let mut b = Builder::new();
    let loss = build_model(&mut b, samples, norm).unwrap();
    b.output("loss", loss);
    let graph = b.finish();
    verify(&graph).unwrap();
    (graph, loss)
}

fn build_model(b: &mut Builder, samples: usize, norm: bool) -> Result<ValueId> {
    let (x, y) = (input(b, "x", &[samples, 3])?, input(b, "y", &[samples, 2])?);
    let mut h = b.scope("first", |b| {
        let w = b.param("weight", [3, 4], Init::Normal { std: 1.0 })?;
        b.matmul(x, w)
    })?;
    if norm {
        h = b.scope("norm", |b| {
            let (scale, bias) =
                (b.param("scale", [4], Init::Constant(1.0))?, b.param("bias", [4], Init::Constant(0.0))?);
            let mut statistic = |name, start| b.state(name, StateClass::Statistic, TensorType::f32([4]), start);
            let running = [statistic("mean", Init::Constant(0.0))?, statistic("var", Init::Constant(1.0))?];
            let [y, mean, var] = b.batch_norm(h, scale, bias, 1e-3)?;
            let update = Op::BatchUpdate(BatchUpdate { momentum: 0.75 });
            let new = b.op_outputs(update, &[running[0], running[1], mean, var])?;
            b.donate(running[0], new[0]);
            b.donate(running[1], new[1]);
            Ok(y)
        })?;
    }
    let logits = b.scope("second", |b| {
        let w = b.param("weight", [4, 2], Init::Normal { std: 1.0 })?;
        b.matmul(h, w)
    })?;
    b.output("logits", logits);
    b.mean_squared_error(logits, y)
}

fn count(graph: &Graph, name: &str) -> usize {
    graph.nodes().iter().filter(|n| n.op.name() == name).count()
}

fn state_names(graph: &Graph, class: StateClass) -> Vec<&str> {
    graph.states().filter(|(s, _)| s.class == class).map(|(s, _)| s.name.as_str()).collect()
}

/// The states that a run changes.
fn changed(graph: &Graph) -> Vec<&str> {
    let name = |v| match graph.producer_op(v) {
        Op::State(s) => s.name.as_str(),
        other => panic!("{} is donated", other.name()),
    };
    graph.donations.iter().map(|d| name(d.old)).collect()
}

fn outputs(graph: &Graph) -> Vec<&str> {
    graph.outputs.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn adam_has_two_slots_for_each_parameter() {
    let (forward, loss) = model(8, true);
    let graph = step(&forward, loss, &training(ADAM, Clip::None, &[])).unwrap().graph;
    verify(&graph).unwrap();
    assert_eq!(count(&graph, "adam"), 4);
    assert_eq!(outputs(&graph), ["logits", "loss"]);
    assert_eq!(
        state_names(&graph, StateClass::Slot),
        [
            "optimizer/first/weight/m",
            "optimizer/first/weight/v",
            "optimizer/norm/scale/m",
            "optimizer/norm/scale/v",
            "optimizer/norm/bias/m",
            "optimizer/norm/bias/v",
            "optimizer/second/weight/m",
            "optimizer/second/weight/v",
        ]
    );
    assert_eq!(changed(&graph)[..3], ["norm/mean", "norm/var", "first/weight"]);
    assert_eq!(graph.donations.len(), 2 + 4 * 3);
    assert_eq!(graph.inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["x", "y", "lr", "clock"]);
    let scopes: Vec<&str> = graph.nodes().iter().filter(|n| n.op.name() == "adam").map(|n| n.scope.as_str()).collect();
    assert_eq!(scopes, ["first", "norm", "norm", "second"]);
}

#[test]
fn frozen_parameters_have_no_slot_and_no_gradient() {
    let (forward, loss) = model(8, false);
    let graph = step(&forward, loss, &training(ADAM, Clip::None, &["first/weight"])).unwrap().graph;
    assert_eq!(changed(&graph), ["second/weight", "optimizer/second/weight/m", "optimizer/second/weight/v"]);
    // Forward two, and one for the weight of the second.
    assert_eq!(count(&graph, "matmul"), 3);
}

#[test]
fn the_forward_pass_ends_where_the_loss_is_made_whatever_passes_do_to_the_graph() {
    for precision in Precision::ALL {
        let training = Training { precision, ..training(ADAM, Clip::GlobalNorm(1.0), &[]) };
        for norm in [false, true] {
            let (forward, loss) = model(8, norm);
            let made = forward.producer_op(loss).name();
            let whole = step(&forward, loss, &training).unwrap();
            assert_eq!(whole.graph.output("loss").map(|v| whole.graph.producer(v)), whole.forward_end);
            let masked = save_masks(&whole);
            assert_eq!(masked.graph.output("loss").map(|v| masked.graph.producer(v)), masked.forward_end);
            let (_, state) = whole.graph.states().last().unwrap();
            let copied = copy_state(&masked, state).unwrap();
            assert_eq!(copied.graph.output("loss").map(|v| copied.graph.producer(v)), copied.forward_end);
            let split = split_step(&forward, loss, &training, 0.5).unwrap();
            let end = split.accumulate.forward_end.unwrap();
            assert_eq!(split.accumulate.graph.node(end).op.name(), made);
        }
    }
}

/// A model may give another number under the name of the loss, and nothing then reads the loss itself.
#[test]
fn the_forward_pass_ends_at_its_last_node_where_the_loss_is_pruned() {
    let mut b = Builder::new();
    let w = b.param("w", [4], Init::Constant(1.0)).unwrap();
    let y = b.unary(Unary::Exp, w).unwrap();
    let other = b.mean(w).unwrap();
    let loss = b.mean(y).unwrap();
    b.output("loss", other);
    let step = step(&b.finish(), loss, &training(SGD, Clip::None, &[])).unwrap();
    let names: Vec<&str> = step.graph.nodes().iter().map(|n| n.op.name()).collect();
    assert_eq!(names[..3], ["state", "exp", "reduce_mean"]);
    assert_eq!(step.forward_end, Some(memfit_ir::NodeId(2)));
}

#[test]
fn the_models_clock_is_used() {
    let mut b = Builder::new();
    let x = input(&mut b, "x", &[4, 3]).unwrap();
    let w = b.param("w", [4, 3], Init::Constant(1.0)).unwrap();
    let y = b.mul(x, w).unwrap();
    let y = b.dropout(y, 0.5).unwrap();
    let loss = b.mean(y).unwrap();
    let graph = step(&b.finish(), loss, &training(SGD, Clip::None, &[])).unwrap().graph;
    assert_eq!(graph.inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["x", "clock", "lr"]);
    assert_eq!(outputs(&graph), ["loss"], "the loss is an output even if the model does not say so");
    assert_eq!(count(&graph, "dropout"), 2);
}

#[test]
fn clipping() {
    let (forward, loss) = model(8, false);
    let graph = step(&forward, loss, &training(SGD, Clip::Value(0.5), &[])).unwrap().graph;
    assert_eq!((count(&graph, "max"), count(&graph, "min")), (2, 2));
    let graph = step(&forward, loss, &training(SGD, Clip::GlobalNorm(0.5), &[])).unwrap().graph;
    assert_eq!((count(&graph, "reduce_sum_squares"), count(&graph, "sqrt")), (2, 1));
    for limit in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        for clip in [Clip::Value(limit), Clip::GlobalNorm(limit)] {
            assert!(matches!(step(&forward, loss, &training(SGD, clip, &[])), Err(Error::Clip { .. })));
        }
    }
}

/// The gradients that one step with plain SGD used, all in one row.
fn applied(clip: Clip) -> Vec<f64> {
    let (forward, loss) = model(8, false);
    let mut states = start(&forward);
    states.extend([("x".to_string(), noise(&[8, 3], 1)), ("y".to_string(), noise(&[8, 2], 2))]);
    run(&step(&forward, loss, &training(SGD, clip, &[])).unwrap().graph, &mut states);
    let before = start(&forward);
    let change = |name: &str| before[name].data.iter().zip(&states[name].data).map(|(a, b)| (a - b) / 0.1).collect();
    let changes: [Vec<f64>; 2] = ["first/weight", "second/weight"].map(change);
    changes.concat()
}

#[test]
fn clipped_gradients_keep_their_limit() {
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
    let free = applied(Clip::None);
    let norm = free.iter().map(|g| g * g).sum::<f64>().sqrt();
    assert!(norm > 0.5 && free.iter().any(|g| g.abs() > 0.5), "the test must have something to clip");
    let held: Vec<f64> = free.iter().map(|g| g.clamp(-0.5, 0.5)).collect();
    let scaled: Vec<f64> = free.iter().map(|g| g * 0.5 / norm).collect();
    assert!(close(&applied(Clip::Value(0.5)), &held));
    assert!(close(&applied(Clip::GlobalNorm(0.5)), &scaled));
    assert_eq!(applied(Clip::GlobalNorm(1e3)), free);
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let mut b = Builder::new();
    let x = input(&mut b, "x", &[2]).unwrap();
    let w = b.param("w", [2], Init::Constant(0.0)).unwrap();
    b.param("lost", [2], Init::Constant(0.0)).unwrap();
    let y = b.mul(x, w).unwrap();
    let loss = b.mean(y).unwrap();
    let graph = b.finish();
    let refusal = |loss, frozen: &[&str]| step(&graph, loss, &training(SGD, Clip::None, frozen)).unwrap_err();
    assert_eq!(refusal(loss, &[]), Error::Unreached { param: "lost".into() });
    assert_eq!(refusal(loss, &["w", "lost"]), Error::NothingToTrain);
    assert_eq!(refusal(loss, &["v"]), Error::UnknownFrozen { name: "v".into() });
    assert_eq!(refusal(y, &["lost"]), Error::Loss { ty: TensorType::f32([2]) });
    assert!(matches!(refusal(ValueId(99), &[]), Error::NotDifferentiable { .. }));
    step(&graph, loss, &training(SGD, Clip::None, &["lost"])).unwrap();
}

#[test]
fn pruning_keeps_order_and_drops_the_unread() {
    let mut b = Builder::new();
    input(&mut b, "unread", &[2]).unwrap();
    let x = input(&mut b, "x", &[2]).unwrap();
    b.param("unread state", [2], Init::Constant(0.0)).unwrap();
    let w = b.param("w", [2], Init::Constant(0.0)).unwrap();
    let dead = b.mul(x, x).unwrap();
    b.relu(dead).unwrap();
    let y = b.add(x, w).unwrap();
    let z = b.mul(y, y).unwrap();
    b.output("z", z);
    let new = b.sub(w, x).unwrap();
    b.donate(w, new);
    let graph = prune(&b.finish());
    verify(&graph).unwrap();
    let names: Vec<&str> = graph.nodes().iter().map(|n| n.op.name()).collect();
    assert_eq!(names, ["input", "state", "add", "mul", "sub"]);
    assert_eq!(graph.output("z"), Some(ValueId(3)));
    assert_eq!(changed(&graph), ["w"]);
    assert_eq!(prune(&graph), graph);
}

#[test]
fn a_split_step_changes_the_model_at_its_end_only() {
    let (forward, loss) = model(4, true);
    let Split { accumulate, apply, .. } =
        split_step(&forward, loss, &training(ADAM, Clip::GlobalNorm(1.0), &[]), 0.5).unwrap();
    let accumulate = accumulate.graph;
    verify(&accumulate).unwrap();
    verify(&apply).unwrap();
    let sums = [
        "accumulate/first/weight",
        "accumulate/norm/scale",
        "accumulate/norm/bias",
        "accumulate/second/weight",
        "accumulate/loss",
        "accumulate/norm/mean",
        "accumulate/norm/var",
    ];
    assert_eq!(changed(&accumulate), sums);
    assert_eq!(state_names(&apply, StateClass::Accumulator).into_iter().collect::<HashSet<_>>(), HashSet::from(sums));
    assert_eq!(count(&accumulate, "batch_update"), 0);
    assert_eq!(state_names(&accumulate, StateClass::Statistic), [""; 0], "running statistics are not read");
    assert_eq!(count(&apply, "batch_update"), 1);
    assert_eq!(outputs(&accumulate), ["logits"]);
    assert_eq!(outputs(&apply), ["loss"]);
    assert_eq!(apply.inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["lr", "clock"]);
    assert!(changed(&apply).iter().all(|name| !name.starts_with("accumulate/")));
}

/// Runs a graph and puts what it changes back into the states.
fn run(graph: &Graph, states: &mut HashMap<String, Tensor>) -> Vec<Tensor> {
    let values = evaluate(graph, states);
    for (name, d) in changed(graph).into_iter().zip(&graph.donations) {
        states.insert(name.to_string(), values[d.new.index()].clone());
    }
    values
}

fn start(graph: &Graph) -> HashMap<String, Tensor> {
    let mut given: HashMap<String, Tensor> = HashMap::new();
    for (i, (s, _)) in graph.states().enumerate() {
        given.insert(s.name.clone(), noise(&s.shape, i as u64 + 20));
    }
    given.insert("lr".into(), Tensor { shape: vec![], data: vec![0.1] });
    given.insert("clock".into(), Tensor { shape: vec![4], data: vec![0.0; 4] });
    given
}

fn rows(t: &Tensor, from: usize, to: usize) -> Tensor {
    let width = t.data.len() / t.shape[0];
    Tensor { shape: vec![to - from, width], data: t.data[from * width..to * width].to_vec() }
}

/// Three micro-batches, one of them of another size, arrive where the whole batch does.
#[test]
fn micro_batches_add_up_to_the_batch() {
    let (x, y) = (noise(&[8, 3], 1), noise(&[8, 2], 2));
    for clip in [Clip::None, Clip::Value(0.3), Clip::GlobalNorm(0.3), Clip::GlobalNorm(1e3)] {
        let training = training(SGD, clip, &[]);
        let (forward, loss) = model(8, false);
        let whole = step(&forward, loss, &training).unwrap().graph;
        let mut expected = start(&forward);
        expected.extend([("x".to_string(), x.clone()), ("y".to_string(), y.clone())]);
        let whole_loss = run(&whole, &mut expected)[whole.output("loss").unwrap().index()].data[0];

        let mut states = start(&forward);
        let mut apply = None;
        for (from, to) in [(0, 3), (3, 6), (6, 8)] {
            let (forward, loss) = model(to - from, false);
            let split = split_step(&forward, loss, &training, (to - from) as f32 / 8.0).unwrap();
            for (s, _) in split.accumulate.graph.states().filter(|(s, _)| s.class == StateClass::Accumulator) {
                states.entry(s.name.clone()).or_insert_with(|| Tensor::new(&s.shape, |_| 0.0));
            }
            states.extend([("x".to_string(), rows(&x, from, to)), ("y".to_string(), rows(&y, from, to))]);
            run(&split.accumulate.graph, &mut states);
            apply = Some(split.apply);
        }
        let apply = apply.unwrap();
        let split_loss = run(&apply, &mut states)[apply.output("loss").unwrap().index()].data[0];

        assert!((whole_loss - split_loss).abs() < 1e-9, "{clip:?}: {whole_loss} {split_loss}");
        for name in ["first/weight", "second/weight"] {
            assert_ne!(start(&forward)[name], expected[name]);
            for (a, b) in expected[name].data.iter().zip(&states[name].data) {
                assert!((a - b).abs() < 1e-9, "{clip:?} {name}: {a} {b}");
            }
        }
    }
}

/// Of two equal halves the averaged statistics are those of the batch, so that the running ones must be too.
#[test]
fn running_statistics_move_once_a_batch() {
    let (forward, loss) = model(4, true);
    let training = training(SGD, Clip::None, &[]);
    let data = [("x".to_string(), noise(&[4, 3], 1)), ("y".to_string(), noise(&[4, 2], 2))];
    let mut expected = start(&forward);
    expected.extend(data.clone());
    run(&step(&forward, loss, &training).unwrap().graph, &mut expected);

    let split = split_step(&forward, loss, &training, 0.5).unwrap();
    let mut states = start(&forward);
    states.extend(data);
    for (s, _) in split.accumulate.graph.states().filter(|(s, _)| s.class == StateClass::Accumulator) {
        states.insert(s.name.clone(), Tensor::new(&s.shape, |_| 0.0));
    }
    run(&split.accumulate.graph, &mut states);
    run(&split.accumulate.graph, &mut states);
    run(&split.apply, &mut states);
    for name in ["norm/mean", "norm/var", "norm/scale", "norm/bias", "first/weight", "second/weight"] {
        for (a, b) in expected[name].data.iter().zip(&states[name].data) {
            assert!((a - b).abs() < 1e-9, "{name}: {a} {b}");
        }
    }
}

#[test]
fn what_cannot_be_split_is_refused() {
    let (forward, loss) = model(4, true);
    let training = training(SGD, Clip::None, &[]);
    for share in [0.0, -0.5, 1.5, f32::NAN] {
        assert!(matches!(split_step(&forward, loss, &training, share), Err(Error::Share { .. })));
    }
    let mut shown = forward.clone();
    shown.outputs.push(("running".into(), forward.donations[0].new));
    let error = split_step(&shown, loss, &training, 0.5).unwrap_err();
    assert!(matches!(error, Error::CannotSplit { op: "batch_update", .. }), "{error}");

    let mut b = Builder::new();
    let loss = build_model(&mut b, 4, false).unwrap();
    let counter = b.state("counter", StateClass::Statistic, TensorType::f32([]), Init::Constant(0.0)).unwrap();
    let next = b.add(counter, loss).unwrap();
    b.donate(counter, next);
    let error = split_step(&b.finish(), loss, &training, 0.5).unwrap_err();
    assert!(error.to_string().contains("\"counter\""), "{error}");
}

// ---- synchronised batch norms ----------------------------------------------------------------------------------------

const SYNCHRONISED: Exchange = Exchange {
    replica: Replica { lanes: 2, count: 2, rank: 1 },
    batch_norm: BatchNorm::Synchronised,
    ..Exchange::ALONE
};

/// The scopes of all exchanges, in order; each but the first waits for the one before.
fn exchanges(graph: &Graph) -> Vec<String> {
    let all: Vec<_> = graph.nodes().iter().filter(|n| n.op.is_exchange()).collect();
    for pair in all.windows(2) {
        assert_eq!(pair[0].outputs.last(), pair[1].inputs.last(), "{} and {}", pair[0].scope, pair[1].scope);
    }
    all.iter().map(|n| n.scope.clone()).collect()
}

#[test]
fn only_norms_that_are_trained_are_synchronised() {
    let (graph, loss) = model(4, true);
    for (frozen, of_norm) in [(&[][..], 3), (&["norm/scale", "norm/bias"][..], 0)] {
        let step = exchanging_step(&graph, loss, &training(ADAM, Clip::None, frozen), 0.5, &SYNCHRONISED).unwrap();
        let found = exchanges(&step.graph);
        assert_eq!(found.iter().filter(|scope| *scope == "norm").count(), of_norm, "{found:?}");
        // And one for gradients, loss and statistics.
        assert_eq!(found.len(), of_norm + 1, "{found:?}");
    }
    let whole = training(ADAM, Clip::None, &[]);
    let split = exchanging_split(&graph, loss, &whole, 0.25, &SYNCHRONISED);
    assert_eq!(split.unwrap_err(), Error::Synchronised);
    let alone = Exchange { replica: Replica::ALONE, ..SYNCHRONISED };
    assert_eq!(exchanging_step(&graph, loss, &whole, 1.0, &alone), step(&graph, loss, &whole));
}

#[test]
fn what_flows_into_a_joined_mean_is_joined() {
    let mut b = Builder::new();
    let x = input(&mut b, "x", &[4, 3]).unwrap();
    let loss = b.scope("layer", |b| {
        let w = b.param("weight", [3, 4], Init::Normal { std: 1.0 })?;
        let h = b.matmul(x, w)?;
        let mean = b.op_outputs(Op::BatchStats, &[h])?[0];
        let zero = b.param("zero", [4], Init::Constant(0.0))?;
        b.mean_squared_error(mean, zero)
    });
    let (loss, graph) = (loss.unwrap(), b.finish());
    let step = exchanging_step(&graph, loss, &training(SGD, Clip::None, &[]), 0.5, &SYNCHRONISED).unwrap();
    // Mean and variance, what flows into the mean, and in the end the gradients.
    assert_eq!(exchanges(&step.graph).len(), 4);
    let end = step.forward_end.unwrap();
    let joins: Vec<_> = step.graph.node_ids().filter(|id| step.graph.node(*id).op.is_exchange()).collect();
    assert_eq!(joins.iter().filter(|id| **id <= end).count(), 2);
    let of_mean = step.graph.node(joins[2]);
    let read = step.graph.nodes().iter().any(|n| n.inputs.contains(&of_mean.outputs[0]));
    assert!(read, "nobody reads what all replicas' losses say of the mean");
}
