//! What the walk builds and what it leaves out: names, scopes, types, accumulation, errors.

use memfit_ir::op::*;
use memfit_ir::{Builder, DType, Graph, Op, Result, TensorType, ValueId, verify};
use memfit_transform::{Cotangent, Error, Gradients, gradients};

const CONV: Conv = Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 1], groups: 1 };
const WINDOW: Window = Window { size: [2, 2], stride: [2, 2], pad: Pad2::NONE };

fn build(f: impl FnOnce(&mut Builder) -> Result<ValueId>) -> (Graph, ValueId) {
    let mut b = Builder::new();
    let y = f(&mut b).unwrap();
    (b.finish(), y)
}

fn ones(graph: &Graph, y: ValueId, wrt: &[ValueId]) -> memfit_transform::Result<Gradients> {
    gradients(graph, &[(y, Cotangent::Constant(1.0))], wrt)
}

/// The ops after the forward graph, with their layers.
fn appended(forward: &Graph, found: &Gradients) -> Vec<String> {
    let line = |n: &memfit_ir::Node| match n.scope.as_str() {
        "" => n.op.name().to_string(),
        scope => format!("{} @{scope}", n.op.name()),
    };
    found.graph.nodes()[forward.nodes().len()..].iter().map(line).collect()
}

fn input(b: &mut Builder, name: &str, shape: &[usize]) -> Result<ValueId> {
    b.input(name, TensorType::f32(shape))
}

fn zeros(b: &mut Builder, name: &str, shape: &[usize]) -> Result<ValueId> {
    b.param(name, shape, Init::Constant(0.0))
}

fn dense(b: &mut Builder, name: &str, x: ValueId, units: usize) -> Result<ValueId> {
    let inputs = b.shape(x)[b.shape(x).len() - 1];
    b.scope(name, |b| {
        let (w, bias) = (zeros(b, "weight", &[inputs, units])?, zeros(b, "bias", &[units])?);
        let y = b.matmul(x, w)?;
        b.add(y, bias)
    })
}

fn mlp(b: &mut Builder) -> Result<ValueId> {
    let x = input(b, "image", &[8, 5])?;
    let labels = b.input("labels", TensorType::i32([8]))?;
    let hidden = dense(b, "first", x, 4)?;
    let hidden = b.relu(hidden)?;
    let logits = dense(b, "second", hidden, 3)?;
    let loss = b.cross_entropy(logits, labels, 0.0)?;
    b.mean(loss)
}

fn params(graph: &Graph) -> Vec<ValueId> {
    graph.states().map(|(_, v)| v).collect()
}

#[test]
fn dense_layers() {
    let (graph, loss) = build(mlp);
    let found = ones(&graph, loss, &params(&graph)).unwrap();
    verify(&found.graph).unwrap();
    assert_eq!(found.graph.nodes()[..graph.nodes().len()], *graph.nodes(), "the forward nodes stay");
    let expected = [
        "fill", // the seed
        "fill",
        "div",
        "broadcast",
        "cross_entropy_grad",
        "reduce_sum @second",
        "matmul @second",
        "matmul @second",
        "relu_grad",
        "reduce_sum @first",
        "matmul @first", // the weight only: nobody asked for the image
    ];
    assert_eq!(appended(&graph, &found), expected);
}

#[test]
fn frozen_layers_cost_nothing() {
    let (graph, loss) = build(mlp);
    let wrt = [graph.state("second/bias").unwrap()];
    let found = ones(&graph, loss, &wrt).unwrap();
    let expected = ["fill", "fill", "div", "broadcast", "cross_entropy_grad", "reduce_sum @second"];
    assert_eq!(appended(&graph, &found), expected);
}

#[test]
fn each_side_of_a_convolution_on_its_own() {
    let (graph, y) = build(|b| {
        let x = input(b, "x", &[1, 4, 4, 2])?;
        let w = zeros(b, "w", &[3, 3, 2, 6])?;
        b.conv(x, w, CONV)
    });
    let (x, w) = (graph.input("x").unwrap(), graph.state("w").unwrap());
    assert_eq!(appended(&graph, &ones(&graph, y, &[x]).unwrap()), ["fill", "conv2d_transpose"]);
    assert_eq!(appended(&graph, &ones(&graph, y, &[w]).unwrap()), ["fill", "conv2d_filter"]);
}

#[test]
fn contributions_are_added_in_order() {
    let (graph, y) = build(|b| {
        let x = b.scope("shared", |b| zeros(b, "x", &[3]))?;
        let neg = b.unary(Unary::Neg, x)?;
        let exp = b.unary(Unary::Exp, x)?;
        let tanh = b.unary(Unary::Tanh, x)?;
        b.concat(&[neg, exp, tanh], 0)
    });
    let found = ones(&graph, y, &params(&graph)).unwrap();
    verify(&found.graph).unwrap();
    let expected = ["fill", "slice", "slice", "slice", "tanh_grad", "exp_grad", "add @shared", "neg", "add @shared"];
    assert_eq!(appended(&graph, &found), expected);
    let last = found.graph.nodes().last().unwrap();
    let first = found.graph.node(found.graph.producer(last.inputs[0]));
    assert_eq!(found.of, [Some(last.outputs[0])]);
    assert_eq!(found.graph.producer_op(first.inputs[0]), &Op::UnaryGrad(Unary::Tanh));
    assert_eq!(found.graph.producer_op(first.inputs[1]), &Op::UnaryGrad(Unary::Exp));
}

#[test]
fn a_transposed_matmul_needs_no_transpose() {
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let (graph, y) = build(|b| {
            let (x, w) = (zeros(b, "x", &[4, 4])?, zeros(b, "w", &[4, 4])?);
            b.matmul_with(x, w, MatMul { transpose_a, transpose_b })
        });
        assert_eq!(appended(&graph, &ones(&graph, y, &params(&graph)).unwrap()), ["fill", "matmul", "matmul"]);
    }
}

#[test]
fn unary_gradients_read_what_the_op_says() {
    for u in Unary::ALL {
        let (graph, y) = build(|b| {
            let x = zeros(b, "x", &[2, 3])?;
            b.unary(u, x)
        });
        let x = graph.state("x").unwrap();
        let found = ones(&graph, y, &[x]).unwrap();
        let node = found.graph.nodes().last().unwrap();
        let seed = found.graph.nodes()[graph.nodes().len()].outputs[0];
        match u {
            Unary::Neg => assert_eq!((&node.op, &node.inputs[..]), (&Op::Unary(u), &[seed][..])),
            _ => {
                let saved = if u.grad_reads() == Reads::Input { x } else { y };
                assert_eq!((&node.op, &node.inputs[..]), (&Op::UnaryGrad(u), &[saved, seed][..]));
            }
        }
    }
}

type Case = (&'static str, fn(&mut Builder) -> Result<ValueId>, &'static [&'static str]);

/// Ops with a gradient op of their own: what is appended after the seed, by every parameter.
const OWN: &[Case] = &[
    ("attention", |b| zeros(b, "qkv", &[1, 5, 3, 2, 4]).and_then(|qkv| b.attention(qkv, false)), &["attention_grad"]),
    ("dropout", |b| zeros(b, "x", &[2, 3]).and_then(|x| b.dropout(x, 0.5)), &["dropout"]),
    ("max_pool", |b| zeros(b, "x", &[1, 5, 4, 2]).and_then(|x| b.max_pool(x, WINDOW)), &["max_pool_grad"]),
    ("avg_pool", |b| zeros(b, "x", &[1, 5, 4, 2]).and_then(|x| b.avg_pool(x, WINDOW)), &["avg_pool_grad"]),
    (
        "upsample",
        |b| zeros(b, "x", &[1, 2, 3, 2]).and_then(|x| b.upsample(x, UpsampleMode::Bilinear, [2, 3])),
        &["upsample_grad"],
    ),
    (
        "batch_norm",
        |b| {
            let (x, s, o) = (zeros(b, "x", &[2, 3, 4])?, zeros(b, "scale", &[4])?, zeros(b, "bias", &[4])?);
            Ok(b.batch_norm(x, s, o, 1e-5)?[0])
        },
        &["batch_grad_reduce", "batch_grad_input"],
    ),
    (
        "layer_norm",
        |b| {
            let (x, s, o) = (zeros(b, "x", &[2, 3, 4])?, zeros(b, "scale", &[4])?, zeros(b, "bias", &[4])?);
            b.layer_norm(x, s, o, 1e-5)
        },
        &["layer_norm_grad"],
    ),
    (
        "rms_norm",
        |b| {
            let (x, s) = (zeros(b, "x", &[2, 3, 4])?, zeros(b, "scale", &[4])?);
            b.rms_norm(x, s, 1e-5)
        },
        &["rms_norm_grad"],
    ),
    (
        "group_norm",
        |b| {
            let (x, s, o) = (zeros(b, "x", &[2, 3, 4])?, zeros(b, "scale", &[4])?, zeros(b, "bias", &[4])?);
            b.group_norm(x, s, o, 2, 1e-5)
        },
        &["group_norm_grad"],
    ),
    ("softmax", |b| zeros(b, "x", &[2, 3]).and_then(|x| b.softmax(x, 1, false)), &["softmax_grad"]),
    ("log_softmax", |b| zeros(b, "x", &[2, 3]).and_then(|x| b.softmax(x, 1, true)), &["log_softmax_grad"]),
    (
        "gather",
        |b| {
            let table = zeros(b, "table", &[7, 3])?;
            let ids = b.input("ids", TensorType::i32([2, 2]))?;
            b.gather(table, ids)
        },
        &["gather_grad"],
    ),
    ("cast", |b| zeros(b, "x", &[2]).and_then(|x| b.cast(x, DType::BF16)), &["cast"]),
    (
        "half-precision bias",
        |b| {
            let (x, bias) = (zeros(b, "x", &[2, 3])?, zeros(b, "bias", &[3])?);
            let (x, bias) = (b.cast(x, DType::F16)?, b.cast(bias, DType::F16)?);
            b.add(x, bias)
        },
        &["cast", "reduce_sum", "cast", "cast", "cast"],
    ),
];

#[test]
fn ops_with_a_gradient_of_their_own() {
    for (what, build_case, expected) in OWN {
        let (graph, y) = build(build_case);
        let wrt = params(&graph);
        let found = ones(&graph, y, &wrt).unwrap_or_else(|e| panic!("{what}: {e}"));
        verify(&found.graph).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(appended(&graph, &found)[1..], **expected, "{what}");
        for (v, d) in wrt.iter().zip(&found.of) {
            assert_eq!(found.graph.ty(d.unwrap()), graph.ty(*v), "{what}");
        }
    }
}

#[test]
fn a_value_in_the_middle_and_one_out_of_reach() {
    let (graph, loss) = build(mlp);
    let (image, bias) = (graph.input("image").unwrap(), graph.state("first/bias").unwrap());
    let hidden = graph.nodes().iter().find(|n| n.op == Op::Unary(Unary::Relu)).unwrap().outputs[0];
    let found = ones(&graph, loss, &[hidden]).unwrap();
    assert_eq!(found.graph.shape(found.of[0].unwrap()), [8, 4]);
    assert!(!appended(&graph, &found).contains(&"relu_grad".to_string()));
    let found = ones(&graph, hidden, &[image, graph.state("second/bias").unwrap(), bias]).unwrap();
    assert_eq!(found.of.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    let found = ones(&graph, loss, &[loss]).unwrap();
    assert_eq!(appended(&graph, &found), ["fill"]);
}

#[test]
fn integers_and_comparisons_carry_nothing() {
    let (graph, y) = build(|b| {
        let x = zeros(b, "x", &[3])?;
        let zero = b.constant(0.0)?;
        let mask = b.compare(Compare::Gt, x, zero)?;
        b.cast(mask, DType::F32)
    });
    let found = ones(&graph, y, &params(&graph)).unwrap();
    assert_eq!(found.of, [None]);
    assert_eq!(found.graph, graph);
}

#[test]
fn convolutions_can_be_differentiated_again() {
    let (graph, y) = build(|b| {
        let (x, w) = (zeros(b, "x", &[1, 4, 4, 2])?, zeros(b, "w", &[3, 3, 2, 6])?);
        b.conv(x, w, CONV)
    });
    let once = ones(&graph, y, &params(&graph)).unwrap();
    for d in &once.of {
        let twice = ones(&once.graph, d.unwrap(), &params(&graph)).unwrap();
        verify(&twice.graph).unwrap();
        assert_eq!(twice.of.iter().filter(|d| d.is_some()).count(), 1);
    }
}

#[test]
fn second_derivatives_are_refused_where_they_flow_only() {
    let (graph, y) = build(|b| {
        b.scope("layer", |b| {
            let x = zeros(b, "x", &[3])?;
            b.unary(Unary::Tanh, x)
        })
    });
    let once = ones(&graph, y, &params(&graph)).unwrap();
    let error = ones(&once.graph, once.of[0].unwrap(), &params(&graph)).unwrap_err();
    assert_eq!(error, Error::NoGradient { op: "tanh_grad", scope: "layer".into() });
    assert!(error.to_string().contains("tanh_grad in layer \"layer\""), "{error}");
    // The gradient node stands in this graph too, but nothing flows through it.
    ones(&once.graph, y, &params(&graph)).unwrap();
}

#[test]
fn outputs_that_serve_the_gradient_only_are_not_differentiated() {
    let (graph, lse) = build(|b| {
        let qkv = zeros(b, "qkv", &[1, 2, 3, 1, 2])?;
        Ok(b.op_outputs(Op::Attention(Attention { causal: true, scale: 1.0 }), &[qkv])?[1])
    });
    let error = ones(&graph, lse, &params(&graph)).unwrap_err();
    assert_eq!(error, Error::AuxiliaryOutput { op: "attention", scope: "".into(), output: 1 });
}

#[test]
fn foreign_statistics_must_be_constant() {
    let apply = |b: &mut Builder, statistics_of: &str| {
        let (x, other) = (zeros(b, "x", &[4, 2])?, zeros(b, "other", &[4, 2])?);
        let (scale, bias) = (zeros(b, "scale", &[2])?, zeros(b, "bias", &[2])?);
        let stats = b.op_outputs(Op::BatchStats, &[if statistics_of == "x" { x } else { other }])?;
        b.scope("norm", |b| b.op(Op::BatchApply(Eps(1e-3)), &[x, stats[0], stats[1], scale, bias]))
    };
    let refused = Error::Statistics { op: "batch_apply", scope: "norm".into() };
    let (graph, y) = build(|b| apply(b, "other"));
    let of = |name| graph.state(name).unwrap();
    ones(&graph, y, &[of("x"), of("scale")]).unwrap();
    assert_eq!(ones(&graph, y, &[of("other")]).unwrap_err(), refused);
    // Its own statistics, but their gradient is asked for: it would be folded into that of x.
    let (graph, y) = build(|b| apply(b, "x"));
    let mean = graph.nodes().iter().find(|n| n.op == Op::BatchStats).unwrap().outputs[0];
    assert_eq!(ones(&graph, y, &[mean]).unwrap_err(), refused);
}

#[test]
fn bad_requests_are_errors() {
    let (graph, loss) = build(mlp);
    let labels = graph.input("labels").unwrap();
    let image = graph.input("image").unwrap();
    let message = |r: memfit_transform::Result<Gradients>| r.unwrap_err().to_string();
    assert_eq!(message(ones(&graph, loss, &[labels])), "%1 cannot be differentiated: it is i32[8]");
    assert_eq!(message(ones(&graph, ValueId(99), &[image])), "%99 cannot be differentiated: it does not exist");
    assert_eq!(
        message(gradients(&graph, &[(loss, Cotangent::Value(image))], &[image])),
        format!("the gradient given for %{} is f32[8,5], but the value is f32[]", loss.0)
    );
}
