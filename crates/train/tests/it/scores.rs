//! Scores that are counted on the host against the loss that the eval program computes itself, for every task of the
//! zoo; and those of a model with several heads.

use crate::common;

use std::time::Duration;

use common::{cpu, plan, training};
use memfit_data::{BytePool, DataError, Dataset, LoadOptions, OnBad, Remainder, Tensors};
use memfit_exec::{Executor, TensorView, ThreadWire, thread_wires};
use memfit_ir::op::Unary;
use memfit_ir::{Builder, DType, Replica, TensorType, philox};
use memfit_nn::layers::{Dense, dense};
use memfit_nn::zoo::{Digits, Gpt, Unet};
use memfit_nn::{Forward, Head, Loss, Model, from_fn};
use memfit_plan::{MicroBatch, Phase, Request};
use memfit_train::{LabelKind, Metric, Scores, Session, evaluate, replica_programs};
use memfit_transform::Exchange;

const ROWS: usize = 4;

/// Random numbers for an input: of classes below `limit`, or of 0…1.
fn random(tensors: Tensors, name: &str, ty: &TensorType, limit: usize) -> Tensors {
    let numbers = philox::uniform(1, name, ty.elements()).map(|x| (x + 1.0) / 2.0);
    match ty.dtype {
        DType::I32 => {
            let classes: Vec<i32> = numbers.map(|x| ((x * limit as f32) as i32).min(limit as i32 - 1)).collect();
            tensors.with(name, ty.clone(), classes).unwrap()
        }
        _ => tensors.with(name, ty.clone(), numbers.collect::<Vec<f32>>()).unwrap(),
    }
}

/// Evaluates a model on one micro-batch of random rows, and looks at what its own loss says of them.
fn check(model: &dyn Model, labels: LabelKind) -> Scores {
    let plan = plan(model, &training(), ROWS, None);
    let mut session = Session::new(cpu(), plan, 1).unwrap();
    let graph = &session.plan().program(Phase::Eval).unwrap().graph;
    let classes = *graph.ty(graph.output("logits").unwrap()).shape.last().unwrap();
    let tensors = graph.inputs().fold(Tensors::new(), |t, (name, v)| random(t, name, graph.ty(v), classes));
    let data = Dataset::from_tensors(tensors).unwrap().batch(ROWS, Remainder::Drop);
    let load = LoadOptions { threads: 1, ..LoadOptions::new(BytePool::new(1 << 22)) };
    let scores = evaluate(&mut session, &data, &model.heads().unwrap(), load).unwrap().scores;
    assert_eq!(scores.labels, labels);
    let mut own = [0f32];
    session.engine().read_output(Phase::Eval, "loss", bytemuck::cast_slice_mut(&mut own)).unwrap();
    let own = f64::from(own[0]);
    assert!((scores.loss - own).abs() < 1e-5 * (1.0 + own), "{} on the host, {own} by the program", scores.loss);
    for metric in [Metric::Accuracy, Metric::MeanIou] {
        assert!((0.0..=1.0).contains(&scores.get(metric).unwrap()), "{scores:?}");
    }
    scores
}

#[test]
fn the_host_and_the_program_agree_on_the_loss() {
    let digits = check(&Digits::default(), LabelKind::Classes);
    assert_eq!(digits.count, ROWS as u64);
    let gpt = check(&Gpt { layers: 1, width: 16, heads: 2, sequence: 12, vocabulary: 30 }, LabelKind::Classes);
    assert_eq!(gpt.count, 12 * ROWS as u64, "position by position");
    let perplexity = gpt.perplexity().unwrap();
    assert!((20.0..40.0).contains(&perplexity), "it knows nothing yet of 30 tokens: {perplexity}");
    let unet = check(&Unet { channels: vec![4, 8], input: [8, 8, 3], outputs: 2, ..Unet::default() }, LabelKind::Masks);
    assert_eq!((unet.count, unet.perplexity()), (8 * 8 * 2 * ROWS as u64, None), "pixel by pixel and mask by mask");
    let exclusive = Unet { channels: vec![4, 8], input: [8, 8, 3], outputs: 3, exclusive: true, ..Unet::default() };
    assert_eq!(check(&exclusive, LabelKind::Classes).count, 8 * 8 * ROWS as u64, "pixel by pixel");
}

/// The scores of many test sets, as each of some replicas has them that evaluate a model of tokens together.
fn scores_of_replicas(model: &Gpt, count: usize, micro_batch: usize) -> Vec<Vec<Scores>> {
    let run = |rank: usize, wire: ThreadWire| {
        let replica = Replica { lanes: count, count, rank };
        let exchange = Exchange { replica, piece: 64, ..Exchange::ALONE };
        let batch = micro_batch * count;
        let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), exchange, ..Request::new(batch) };
        let source = |rows: usize| replica_programs(model, &training(), batch, rows, &exchange);
        let mut session =
            Session::new(cpu(), memfit_plan::plan(&source, cpu().target(), &request).unwrap(), 1).unwrap();
        if count > 1 {
            session.connect(Box::new(wire)).unwrap();
        }
        let graph = &session.plan().program(Phase::Eval).unwrap().graph;
        let of_rows = |v, rows: usize| TensorType::new(graph.ty(v).dtype, [&[rows], &graph.shape(v)[1..]].concat());
        let inputs: Vec<(String, TensorType)> = graph.inputs().map(|(name, v)| (name.into(), of_rows(v, 11))).collect();
        let tensors = inputs.iter().fold(Tensors::new(), |t, (name, ty)| random(t, name, ty, 30));
        let all = Dataset::from_tensors(tensors).unwrap();
        let mut scores = Vec::new();
        for (rows, of_batch) in (1..=11).flat_map(|rows| (1..=micro_batch).map(move |of_batch| (rows, of_batch))) {
            for bad in [None, Some(1..3), Some(4..9)] {
                let torn = bad.clone().filter(|bad| bad.start > 0 && bad.end <= rows);
                let torn = move |row: u64| torn.as_ref().is_some_and(|torn| torn.contains(&(row as usize)));
                let data = all.clone().take(rows).map(move |example, context| match torn(context.element()) {
                    true => Err(DataError::bad(context.location(), "it is torn")),
                    false => Ok(example),
                });
                let data = data.batch(of_batch, Remainder::Keep).shard(count, rank);
                let load = LoadOptions { threads: 1, bad: OnBad::Skip, ..LoadOptions::new(BytePool::new(1 << 20)) };
                scores.push(evaluate(&mut session, &data, &model.heads().unwrap(), load).unwrap().scores);
            }
        }
        scores
    };
    std::thread::scope(|scope| {
        let wires = thread_wires(count, Duration::from_secs(120)).into_iter().enumerate();
        let threads: Vec<_> = wires.map(|(rank, wire)| scope.spawn(move || run(rank, wire))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Rows of many labels, whose scores depend neither on how they are batched nor on who evaluates them.
#[test]
fn every_number_of_replicas_has_the_scores_of_one() {
    let gpt = Gpt { layers: 1, width: 16, heads: 2, sequence: 12, vocabulary: 30 };
    let alone = scores_of_replicas(&gpt, 1, 3).swap_remove(0);
    // By the rows of the test set, their batches, and what of them is bad.
    for of_rows in alone.chunks(3 * 3) {
        for bad in 0..3 {
            assert!(of_rows.iter().skip(bad).step_by(3).all(|scores| *scores == of_rows[bad]), "{of_rows:?}");
        }
    }
    assert_ne!(alone[0].loss, alone[9].loss);
    for count in 2..=4 {
        for (rank, scores) in scores_of_replicas(&gpt, count, 3).into_iter().enumerate() {
            assert_eq!(scores, alone, "replica {rank} of {count}");
        }
    }
}

/// Two heads, one of them with a loss and a metric of its own, on rows that do not fill the last micro-batch.
#[test]
fn every_head_has_its_own_scores_and_padding_counts_for_nothing() {
    let model = from_fn("two heads", |batch, mode| {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([batch, 3]))?;
        let target = b.input("target", TensorType::f32([batch, 2]))?;
        let y = dense(&mut b, "fc", x, Dense::new(2))?;
        let difference = b.sub(y, target)?;
        let absolute = b.unary(Unary::Abs, difference)?;
        let heads = [
            Head::new("value", y, Loss::MeanSquaredError, target).weight(2.0),
            Head::custom("own", y, absolute).weight(0.25).metric("distance", absolute),
        ];
        Forward::new(b, mode, &heads)
    });
    let mut session = Session::new(cpu(), plan(&model, &training(), 4, Some(2)), 1).unwrap();
    let (count, heads) = (7, model.heads().unwrap());
    let numbers: Vec<f32> = philox::normal(5, "numbers", count * 5).collect();
    let (x, target) = numbers.split_at(count * 3);
    let tensors = Tensors::new().with("x", TensorType::f32([count, 3]), x.to_vec()).unwrap();
    let tensors = tensors.with("target", TensorType::f32([count, 2]), target.to_vec()).unwrap();
    let data = Dataset::from_tensors(tensors).unwrap();
    let load = || LoadOptions { threads: 1, ..LoadOptions::new(BytePool::new(1 << 16)) };
    let scores = evaluate(&mut session, &data.clone().batch(7, Remainder::Keep), &heads, load()).unwrap().scores;
    let (value, own) = (&scores.heads["value"], &scores.heads["own"]);
    let mean_absolute = value.mean_absolute_error.unwrap();
    assert_eq!((scores.count, value.count, own.count), (7, 14, 7));
    assert!(
        (own.loss - mean_absolute).abs() < 1e-6 && (own.metrics["distance"] - own.loss).abs() < 1e-12,
        "{scores:?}"
    );
    assert!((scores.loss - (2.0 * value.loss + 0.25 * own.loss)).abs() < 1e-12, "{scores:?}");
    // By other batches, of which the last micro-batch is another.
    for rows in 1..7 {
        let batched = data.clone().batch(rows, Remainder::Keep);
        assert_eq!(evaluate(&mut session, &batched, &heads, load()).unwrap().scores, scores, "batches of {rows}");
    }
    let json = serde_json::to_string(&scores).unwrap();
    assert_eq!(serde_json::from_str::<Scores>(&json).unwrap(), scores);
    for (monitor, there) in [
        (Metric::Loss.into(), true),
        (Metric::Loss.of("own"), true),
        (Metric::MeanAbsoluteError.of("value"), true),
        (Metric::Accuracy.of("value"), false),
        (Metric::Accuracy.into(), false),
        (Metric::Loss.of("nobody"), false),
    ] {
        assert_eq!(scores.monitored(&monitor).is_some(), there, "{monitor}");
    }
    // In training each head's own loss is a number of the step, and their weighted sum is the loss.
    let batch = [("x", TensorView::f32(&[4, 3], &x[..12])), ("target", TensorView::f32(&[4, 2], &target[..8]))];
    let loss = session.step(&batch, 1e-3).unwrap();
    let parts = 2.0 * session.output("value/loss").unwrap() + 0.25 * session.output("own/loss").unwrap();
    assert!((loss - parts).abs() < 1e-5, "{loss} {parts}");
}
