//! Mixed precision: where a small convnet is rounded, forward and backward, and what holds for every graph.

use std::collections::HashSet;

use memfit_ir::op::*;
use memfit_ir::{Builder, DType, Graph, Op, Result, TensorType, ValueId, text, verify};
use memfit_transform::{Clip, Error, Half, Precision, Training, forward_in, split_step, step};

fn training(precision: Precision, clip: Clip) -> Training {
    let update = Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    Training { clip, precision, ..Training::new(update) }
}

const BF16: Precision = Precision::Mixed(Half::Bf16);
const F16: Precision = Precision::Mixed(Half::F16);

/// A convolution, a batch norm and a relu with a sum around the two, the mean over the image, a dense layer.
fn convnet(b: &mut Builder) -> Result<ValueId> {
    let x = b.input("x", TensorType::f32([2, 4, 4, 3]))?;
    let y = b.input("y", TensorType::i32([2]))?;
    let conv = Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups: 1 };
    let w = b.param("w1", [1, 1, 3, 3], Init::Constant(1.0))?;
    let x = b.conv(x, w, conv)?;
    let w = b.param("w2", [1, 1, 3, 3], Init::Constant(1.0))?;
    let h = b.conv(x, w, conv)?;
    let (scale, bias) = (b.param("scale", [3], Init::Constant(1.0))?, b.param("bias", [3], Init::Constant(0.0))?);
    let [h, mean, var] = b.batch_norm(h, scale, bias, 0.0)?;
    let mut statistic = |name, start| b.state(name, StateClass::Statistic, TensorType::f32([3]), start);
    let running = [statistic("mean", Init::Constant(0.0))?, statistic("var", Init::Constant(1.0))?];
    let update = Op::BatchUpdate(BatchUpdate { momentum: 0.5 });
    let new = b.op_outputs(update, &[running[0], running[1], mean, var])?;
    b.donate(running[0], new[0]);
    b.donate(running[1], new[1]);
    let h = b.add(x, h)?;
    let h = b.relu(h)?;
    let h = b.global_avg_pool(h)?;
    let w = b.param("w3", [3, 5], Init::Constant(1.0))?;
    let logits = b.matmul(h, w)?;
    b.output("logits", logits);
    let rows = b.cross_entropy(logits, y, 0.0)?;
    b.mean(rows)
}

fn model(build: fn(&mut Builder) -> Result<ValueId>) -> (Graph, ValueId) {
    let mut b = Builder::new();
    let loss = build(&mut b).unwrap();
    b.output("loss", loss);
    (b.finish(), loss)
}

fn check(graph: &Graph, expected: &str) {
    verify(graph).unwrap();
    let given = text::print(graph);
    assert_eq!(given.trim(), expected.trim(), "\n{given}");
}

#[test]
fn a_forward_graph_rounds_what_leaves_its_chain() {
    let (graph, _) = model(convnet);
    check(&forward_in(&graph, BF16).unwrap(), FORWARD);
    assert_eq!(forward_in(&graph, Precision::F32).unwrap(), graph);
}

const FORWARD: &str = r#"
%0 = input "x" : f32[2,4,4,3]
%1 = input "y" : i32[2]
%2 = state "w1" {class=param, init=constant(1.0)} : f32[1,1,3,3]
%3 = conv2d(%0, %2) {stride=[1,1], pad=[0,0,0,0], dilation=[1,1], groups=1} : f32[2,4,4,3]
%4 = cast(%3) : bf16[2,4,4,3]
%5 = state "w2" {class=param, init=constant(1.0)} : f32[1,1,3,3]
%6 = cast(%4) : f32[2,4,4,3]
%7 = conv2d(%6, %5) {stride=[1,1], pad=[0,0,0,0], dilation=[1,1], groups=1} : f32[2,4,4,3]
%8 = cast(%7) : bf16[2,4,4,3]
%9 = state "scale" {class=param, init=constant(1.0)} : f32[3]
%10 = state "bias" {class=param, init=constant(0.0)} : f32[3]
%11 = cast(%8) : f32[2,4,4,3]
%12, %13 = batch_stats(%11) : f32[3], f32[3]
%14 = cast(%8) : f32[2,4,4,3]
%15 = batch_apply(%14, %12, %13, %9, %10) {eps=0.0} : f32[2,4,4,3]
%16 = state "mean" {class=statistic, init=constant(0.0)} : f32[3]
%17 = state "var" {class=statistic, init=constant(1.0)} : f32[3]
%18, %19 = batch_update(%16, %17, %12, %13) {momentum=0.5} : f32[3], f32[3]
%20 = cast(%4) : f32[2,4,4,3]
%21 = add(%20, %15) : f32[2,4,4,3]
%22 = relu(%21) : f32[2,4,4,3]
%23 = cast(%22) : bf16[2,4,4,3]
%24 = cast(%23) : f32[2,4,4,3]
%25 = reduce_mean(%24) {axes=[1,2], keep=false} : f32[2,3]
%26 = state "w3" {class=param, init=constant(1.0)} : f32[3,5]
%27 = matmul(%25, %26) {transpose_a=false, transpose_b=false} : f32[2,5]
%28 = cast(%27) : bf16[2,5]
%29 = cast(%28) : f32[2,5]
%30, %31 = cross_entropy(%29, %1) {smoothing=0.0} : f32[2], f32[2]
%32 = reduce_mean(%30) {axes=[0], keep=false} : f32[]
%33 = cast(%28) : f32[2,5]
update %16 -> %18
update %17 -> %19
output "logits" %33
output "loss" %32
"#;

#[test]
fn a_step_keeps_16_bits_and_widens_before_each_reader() {
    let (graph, loss) = model(convnet);
    check(&step(&graph, loss, &training(BF16, Clip::None)).unwrap().graph, STEP);
}

const STEP: &str = r#"
%0 = input "x" : f32[2,4,4,3]
%1 = input "y" : i32[2]
%2 = state "w1" {class=param, init=constant(1.0)} : f32[1,1,3,3]
%3 = conv2d(%0, %2) {stride=[1,1], pad=[0,0,0,0], dilation=[1,1], groups=1} : f32[2,4,4,3]
%4 = cast(%3) : bf16[2,4,4,3]
%5 = state "w2" {class=param, init=constant(1.0)} : f32[1,1,3,3]
%6 = cast(%4) : f32[2,4,4,3]
%7 = conv2d(%6, %5) {stride=[1,1], pad=[0,0,0,0], dilation=[1,1], groups=1} : f32[2,4,4,3]
%8 = cast(%7) : bf16[2,4,4,3]
%9 = state "scale" {class=param, init=constant(1.0)} : f32[3]
%10 = state "bias" {class=param, init=constant(0.0)} : f32[3]
%11 = cast(%8) : f32[2,4,4,3]
%12, %13 = batch_stats(%11) : f32[3], f32[3]
%14 = cast(%8) : f32[2,4,4,3]
%15 = batch_apply(%14, %12, %13, %9, %10) {eps=0.0} : f32[2,4,4,3]
%16 = state "mean" {class=statistic, init=constant(0.0)} : f32[3]
%17 = state "var" {class=statistic, init=constant(1.0)} : f32[3]
%18, %19 = batch_update(%16, %17, %12, %13) {momentum=0.5} : f32[3], f32[3]
%20 = cast(%4) : f32[2,4,4,3]
%21 = add(%20, %15) : f32[2,4,4,3]
%22 = relu(%21) : f32[2,4,4,3]
%23 = cast(%22) : bf16[2,4,4,3]
%24 = cast(%23) : f32[2,4,4,3]
%25 = reduce_mean(%24) {axes=[1,2], keep=false} : f32[2,3]
%26 = state "w3" {class=param, init=constant(1.0)} : f32[3,5]
%27 = matmul(%25, %26) {transpose_a=false, transpose_b=false} : f32[2,5]
%28 = cast(%27) : bf16[2,5]
%29 = cast(%28) : f32[2,5]
%30, %31 = cross_entropy(%29, %1) {smoothing=0.0} : f32[2], f32[2]
%32 = reduce_mean(%30) {axes=[0], keep=false} : f32[]
%33 = fill {value=1.0} : f32[]
%34 = fill {value=2.0} : f32[]
%35 = div(%33, %34) : f32[]
%36 = broadcast(%35) : f32[2]
%37 = cast(%28) : f32[2,5]
%38 = cross_entropy_grad(%37, %1, %31, %36) {smoothing=0.0} : f32[2,5]
%39 = cast(%38) : bf16[2,5]
%40 = cast(%39) : f32[2,5]
%41 = matmul(%25, %40) {transpose_a=true, transpose_b=false} : f32[3,5]
%42 = cast(%39) : f32[2,5]
%43 = matmul(%42, %26) {transpose_a=false, transpose_b=true} : f32[2,3]
%44 = reshape(%43) : f32[2,1,1,3]
%45 = fill {value=16.0} : f32[]
%46 = div(%44, %45) : f32[2,1,1,3]
%47 = broadcast(%46) : f32[2,4,4,3]
%48 = cast(%47) : bf16[2,4,4,3]
%49 = cast(%23) : f32[2,4,4,3]
%50 = cast(%48) : f32[2,4,4,3]
%51 = relu_grad(%49, %50) : f32[2,4,4,3]
%52 = cast(%51) : bf16[2,4,4,3]
%53 = cast(%8) : f32[2,4,4,3]
%54 = cast(%52) : f32[2,4,4,3]
%55, %56 = batch_grad_reduce(%53, %12, %13, %54) {eps=0.0} : f32[3], f32[3]
%57 = cast(%8) : f32[2,4,4,3]
%58 = cast(%52) : f32[2,4,4,3]
%59 = batch_grad_input(%57, %12, %13, %9, %58, %55, %56) {eps=0.0, batch_stats=true} : f32[2,4,4,3]
%60 = cast(%59) : bf16[2,4,4,3]
%61 = cast(%4) : f32[2,4,4,3]
%62 = cast(%60) : f32[2,4,4,3]
%63 = conv2d_filter(%61, %62) {stride=[1,1], pad=[0,0,0,0], dilation=[1,1], groups=1, size=[1,1]} : f32[1,1,3,3]
%64 = cast(%60) : f32[2,4,4,3]
%65 = conv2d_transpose(%64, %5) {stride=[1,1], pad=[0,0,0,0], dilation=[1,1], groups=1, size=[4,4]} : f32[2,4,4,3]
%66 = cast(%52) : f32[2,4,4,3]
%67 = add(%66, %65) : f32[2,4,4,3]
%68 = cast(%67) : bf16[2,4,4,3]
%69 = cast(%68) : f32[2,4,4,3]
%70 = conv2d_filter(%0, %69) {stride=[1,1], pad=[0,0,0,0], dilation=[1,1], groups=1, size=[1,1]} : f32[1,1,3,3]
%71 = input "lr" : f32[]
%72 = input "clock" : i32[4]
%73 = sgd(%2, %70, %71, %72) {momentum=0.0, nesterov=false, weight_decay=0.0} : f32[1,1,3,3]
%74 = sgd(%5, %63, %71, %72) {momentum=0.0, nesterov=false, weight_decay=0.0} : f32[1,1,3,3]
%75 = sgd(%9, %55, %71, %72) {momentum=0.0, nesterov=false, weight_decay=0.0} : f32[3]
%76 = sgd(%10, %56, %71, %72) {momentum=0.0, nesterov=false, weight_decay=0.0} : f32[3]
%77 = sgd(%26, %41, %71, %72) {momentum=0.0, nesterov=false, weight_decay=0.0} : f32[3,5]
%78 = cast(%28) : f32[2,5]
update %16 -> %18
update %17 -> %19
update %2 -> %73
update %5 -> %74
update %9 -> %75
update %10 -> %76
update %26 -> %77
output "logits" %78
output "loss" %32
"#;

/// The nodes that read a value that was widened, and how many widened values there are.
fn widened(graph: &Graph) -> Vec<(ValueId, usize)> {
    let users = graph.users();
    let casts =
        graph.nodes().iter().filter(|n| n.op == Op::Cast(DType::F32) && graph.ty(n.inputs[0]).dtype.bits() == 16);
    casts.map(|n| (n.outputs[0], users[n.outputs[0].index()].len())).collect()
}

#[test]
fn every_reader_has_a_cast_of_its_own() {
    let (graph, loss) = model(convnet);
    for precision in [BF16, F16] {
        let graph = step(&graph, loss, &training(precision, Clip::None)).unwrap().graph;
        let casts = widened(&graph);
        assert!(casts.len() > 10);
        for (v, readers) in casts {
            let given_out = graph.outputs.iter().any(|(_, o)| *o == v);
            assert_eq!(readers + usize::from(given_out), 1, "%{}", v.0);
        }
    }
}

/// Everything that is the state of something, or its gradient, is f32.
#[test]
fn parameters_their_gradients_and_slots_are_f32() {
    let (graph, loss) = model(convnet);
    for precision in [BF16, F16] {
        let graph = step(&graph, loss, &training(precision, Clip::GlobalNorm(1.0))).unwrap().graph;
        for node in graph.nodes().iter().filter(|n| matches!(n.op, Op::Update(_))) {
            let narrow = |v: &ValueId| graph.ty(*v).dtype.bits() == 16;
            assert!(!node.inputs.iter().any(narrow));
            // Nor were they ever less: a gradient comes from a contraction or a reduction, not from a cast.
            let mut g = node.inputs[1];
            while let Op::Binary(_) = graph.producer_op(g) {
                g = graph.node(graph.producer(g)).inputs[0];
            }
            assert!(!matches!(graph.producer_op(g), Op::Cast(_)), "{}", graph.producer_op(g).name());
        }
    }
}

#[test]
fn the_scale_is_a_state_of_the_end_of_a_step_only() {
    let (graph, loss) = model(convnet);
    let changed = |graph: &Graph| -> Vec<String> {
        let name = |v| match graph.producer_op(v) {
            Op::State(s) => s.name.clone(),
            other => panic!("{} is donated", other.name()),
        };
        graph.donations.iter().map(|d| name(d.old)).collect()
    };
    let scale = ["optimizer/loss_scale", "optimizer/good_steps", "optimizer/skipped_steps"];
    let all = ["mean", "var", "w1", "w2", "scale", "bias", "w3"];
    let whole = step(&graph, loss, &training(F16, Clip::None)).unwrap().graph;
    assert_eq!(changed(&whole), [&all[..], &scale[..]].concat());
    let split = split_step(&graph, loss, &training(F16, Clip::None), 0.5).unwrap();
    verify(&split.accumulate.graph).unwrap();
    assert_eq!(changed(&split.apply), [&all[..], &scale[..]].concat());
    assert!(split.accumulate.graph.state(scale[0]).is_some());
    assert!(changed(&split.accumulate.graph).iter().all(|name| name.starts_with("accumulate/")));
    // Every update of the whole step waits for the same gate.
    let gates: HashSet<ValueId> = whole
        .nodes()
        .iter()
        .filter(|n| matches!(n.op, Op::Update(_) | Op::BatchUpdate(_)))
        .map(|n| n.inputs[n.inputs.len() - 1])
        .collect();
    assert_eq!(gates.len(), 1);
    assert!(gates.iter().all(|g| whole.producer_op(*g) == &Op::Compare(Compare::Le)));
}

#[test]
fn bf16_and_f32_have_no_scale() {
    let (graph, loss) = model(convnet);
    for precision in [Precision::F32, BF16] {
        let graph = step(&graph, loss, &training(precision, Clip::None)).unwrap().graph;
        assert!(graph.states().all(|(s, _)| !s.name.starts_with("optimizer/")));
    }
}

/// A state that the model changes by any op is held back too; one whose new value is read cannot be.
#[test]
fn what_a_model_changes_is_held_back_or_refused() {
    let counter = |read: bool| {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([2, 3])).unwrap();
        let w = b.param("w", [3, 3], Init::Constant(1.0)).unwrap();
        let y = b.matmul(x, w).unwrap();
        let vector = TensorType::f32([3]);
        let [mean, var] = ["mean", "var"]
            .map(|name| b.state(name, StateClass::Statistic, vector.clone(), Init::Constant(1.0)).unwrap());
        let seen = b.state("seen", StateClass::Statistic, TensorType::f32([]), Init::Constant(0.0)).unwrap();
        let one = b.constant(1.0).unwrap();
        let more = b.add(seen, one).unwrap();
        b.donate(seen, more);
        let stats = b.op_outputs(Op::BatchStats, &[x]).unwrap();
        let new =
            b.op_outputs(Op::BatchUpdate(BatchUpdate { momentum: 0.5 }), &[mean, var, stats[0], stats[1]]).unwrap();
        b.donate(mean, new[0]);
        b.donate(var, new[1]);
        let y = if read { b.sub(y, new[0]).unwrap() } else { y };
        let square = b.mul(y, y).unwrap();
        let loss = b.mean(square).unwrap();
        (b.finish(), loss)
    };
    let (graph, loss) = counter(false);
    let held = step(&graph, loss, &training(F16, Clip::None)).unwrap().graph;
    let seen = held.state("seen").unwrap();
    let new = held.donations.iter().find(|d| d.old == seen).unwrap().new;
    assert_eq!(held.producer_op(new), &Op::Select);
    let (graph, loss) = counter(true);
    step(&graph, loss, &training(BF16, Clip::None)).unwrap();
    let error = step(&graph, loss, &training(F16, Clip::None)).unwrap_err();
    let problem = "reads the new value of the state \"mean\"".to_string();
    assert_eq!(error, Error::CannotSkip { op: "sub", scope: String::new(), problem });
}

#[test]
fn the_loss_and_statistics_stay_in_f32() {
    let (graph, _) = model(|b| {
        let (x, y) = (b.input("x", TensorType::f32([4, 8]))?, b.input("y", TensorType::f32([4, 6]))?);
        let w = b.param("w", [8, 6], Init::Constant(1.0))?;
        let h = b.matmul(x, w)?;
        // A norm by hand: its row statistics are not rounded.
        let mean = b.reduce(ReduceKind::Mean, h, &[1], true)?;
        let centred = b.sub(h, mean)?;
        let var = b.reduce(ReduceKind::SumSquares, centred, &[1], true)?;
        let rstd = b.unary(Unary::Rsqrt, var)?;
        let h = b.mul(centred, rstd)?;
        let w = b.param("w2", [6, 6], Init::Constant(1.0))?;
        let h = b.matmul(h, w)?;
        let elements = b.sigmoid_cross_entropy(h, y)?;
        let loss = b.mean(elements)?;
        // Weight decay as part of the loss makes the loss no part of the model.
        let squares = b.reduce(ReduceKind::SumSquares, w, &[0, 1], false)?;
        b.add(loss, squares)
    });
    let graph = forward_in(&graph, BF16).unwrap();
    let rounded: Vec<&str> = graph
        .nodes()
        .iter()
        .filter(|n| n.op == Op::Cast(DType::BF16))
        .map(|n| graph.producer_op(n.inputs[0]).name())
        .collect();
    assert_eq!(rounded, ["matmul", "sub", "mul", "matmul"]);
}
