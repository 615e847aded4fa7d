//! Which models may be cut into micro-batches.

use memfit_ir::op::{Init, ReduceKind};
use memfit_ir::{Builder, Result, TensorType, ValueId};
use memfit_transform::{BatchDependence, batch_dependence};

fn check(name: &str, mixes: bool, build: impl Fn(&mut Builder, ValueId) -> Result<ValueId>) {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([4, 6, 8])).unwrap();
    let loss = build(&mut b, x).unwrap_or_else(|e| panic!("{name}: {e}"));
    let graph = b.finish();
    assert_eq!(batch_dependence(&graph, graph.producer(loss), 4).is_some(), mixes, "{name}");
}

#[test]
fn samples_are_followed_through_layout() {
    check("mean", false, |b, x| b.mean(x));
    check("turned and back", false, |b, x| {
        let t = b.transpose(x, &[1, 0, 2])?;
        let t = b.transpose(t, &[1, 2, 0])?;
        b.mean(t)
    });
    check("rows", false, |b, x| {
        let w = b.param("w", [8, 3], Init::Constant(1.0))?;
        let rows = b.reshape(x, [24, 8])?;
        let y = b.matmul(rows, w)?;
        let y = b.reshape(y, [4, 18])?;
        b.mean(y)
    });
    check("products of samples with each other", true, |b, x| {
        let rows = b.reshape(x, [4, 48])?;
        let turned = b.transpose(rows, &[1, 0])?;
        let y = b.matmul(rows, turned)?;
        b.mean(y)
    });
    check("a softmax over the batch", true, |b, x| {
        let t = b.transpose(x, &[1, 2, 0])?;
        let y = b.softmax(t, 2, false)?;
        b.mean(y)
    });
    check("less the mean of the batch", true, |b, x| {
        let m = b.mean(x)?;
        let y = b.sub(x, m)?;
        b.mean(y)
    });
    check("the square of the mean", true, |b, x| {
        let m = b.mean(x)?;
        b.mul(m, m)
    });
}

#[test]
fn an_input_that_all_samples_share_is_no_batch() {
    let mut b = Builder::new();
    let weights = b.input("class_weights", TensorType::f32([10])).unwrap();
    b.output("weights", weights);
    let x = b.input("x", TensorType::f32([32, 8])).unwrap();
    let (scale, bias) =
        (b.param("scale", [8], Init::Constant(1.0)).unwrap(), b.param("bias", [8], Init::Constant(0.0)).unwrap());
    let [y, ..] = b.batch_norm(x, scale, bias, 1e-5).unwrap();
    let loss = b.mean(y).unwrap();
    let graph = b.finish();
    let found = batch_dependence(&graph, graph.producer(loss), 32).expect("batch statistics mix");
    assert!(matches!(&found, BatchDependence::BatchStatistics { op: "batch_stats", .. }), "{found}");
    let found = batch_dependence(&graph, graph.producer(loss), 16).expect("no input is a batch of 16");
    assert!(found.to_string().contains("16 samples"), "{found}");
}

/// The gradient of a micro-batch is scaled by its share of the batch, which is right for a mean alone.
#[test]
fn only_a_mean_has_shares() {
    check("a sum as the loss", true, |b, x| b.reduce(ReduceKind::Sum, x, &[0, 1, 2], false));
    check("a mean of sums", false, |b, x| {
        let rows = b.reduce(ReduceKind::Sum, x, &[1, 2], false)?;
        b.mean(rows)
    });
    check("a mean and a penalty", false, |b, x| {
        let w = b.param("w", [8], Init::Constant(1.0))?;
        let (y, penalty) = (b.mul(x, w)?, b.reduce(ReduceKind::Sum, w, &[0], false)?);
        let mean = b.mean(y)?;
        b.add(mean, penalty)
    });
}
