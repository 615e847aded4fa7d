//! A session by hand: steps, evaluation of any number of rows, weights, a model of one's own.

use crate::common;

use std::collections::HashSet;

use common::{bits, digits, file, plan, session, training};
use memfit_exec::weights::Match;
use memfit_exec::{Executor, TensorView};
use memfit_ir::{Builder, TensorType};
use memfit_nn::layers::{Dense, dense};
use memfit_nn::loss::binary_cross_entropy;
use memfit_nn::{Forward, Head, Mode, Result, from_fn};
use memfit_train::{Session, TrainError};
use memfit_transform::{Half, Objective, Precision};

/// Rows of pixels and their labels, made from their numbers.
fn rows(count: usize) -> (Vec<f32>, Vec<i32>) {
    let pixels = (0..count * 64).map(|i| ((i * 37 + i / 64) % 17) as f32 / 16.0).collect();
    (pixels, (0..count).map(|i| (i * 7 % 10) as i32).collect())
}

fn logits(session: &mut Session<memfit_exec_cpu::CpuExecutor>, count: usize) -> Vec<f32> {
    let (x, y) = rows(count);
    let mut room = vec![0; session.eval_bytes("logits").unwrap()];
    let mut all = vec![f32::NAN; count * 10];
    let (images, labels) = ([count, 8, 8, 1], [count]);
    let batch = [("x", TensorView::f32(&images, &x)), ("y", TensorView::i32(&labels, &y))];
    let each = |rows: std::ops::Range<usize>, bytes: &[u8]| {
        all[rows.start * 10..rows.end * 10].copy_from_slice(bytemuck::cast_slice(bytes));
        Ok(())
    };
    session.eval(&batch, "logits", &mut room, each).unwrap();
    all
}

#[test]
fn any_number_of_rows_gives_each_row_the_same_logits() {
    let mut whole = session(digits(), 12, None, 5);
    let expected = logits(&mut whole, 12);
    assert!(expected.iter().all(|x| x.is_finite()));
    for micro_batch in [2, 4] {
        let mut parts = session(digits(), 4, Some(micro_batch), 5);
        for count in [1, 2, 3, 4, 5, 11, 12] {
            assert_eq!(logits(&mut parts, count), expected[..count * 10], "{count} rows by {micro_batch}");
        }
    }
}

#[test]
fn any_number_of_rows_is_predicted_without_labels() {
    let mut session = session(digits(), 4, Some(2), 5);
    for count in [1, 4, 11] {
        let (x, _) = rows(count);
        let expected = logits(&mut session, count);
        let said = session.predict(&[("x", TensorView::f32(&[count, 8, 8, 1], &x))], "logits").unwrap();
        assert_eq!((said.shape, said.numbers), (vec![count, 10], expected));
    }
    let (x, _) = rows(2);
    let mut fail = |batch: &[(&str, TensorView)], output: &str| session.predict(batch, output).unwrap_err().to_string();
    let images = TensorView::f32(&[2, 8, 8, 1], &x);
    assert!(fail(&[("x", images)], "loss").contains("loss"));
    let labels = TensorView::i32(&[2], &[1, 2]);
    assert!(fail(&[("y", labels)], "logits").contains("\"x\""), "the pixels are needed");
    assert!(fail(&[("x", images), ("z", images)], "logits").contains("\"z\""));
}

#[test]
fn what_cannot_be_evaluated_is_named() {
    let mut session = session(digits(), 4, None, 5);
    let (x, y) = rows(4);
    let (images, labels) = (TensorView::f32(&[4, 8, 8, 1], &x), TensorView::i32(&[3], &y[..3]));
    let mut fail = |batch: &[(&str, TensorView)], output: &str| {
        let mut room = vec![0; 160];
        session.eval(batch, output, &mut room, |_, _| Ok(())).unwrap_err().to_string()
    };
    let message = fail(&[("x", images), ("y", labels)], "logits");
    assert_eq!(message, "input \"y\" has 3 rows, but \"x\" has 4; give both the same");
    assert!(fail(&[], "logits").contains("no rows"));
    let of_images = TensorView::i32(&[4], &y);
    assert!(fail(&[("y", of_images)], "logits").contains("input \"x\" is missing"));
    assert!(fail(&[("x", images)], "loss").contains("not one result for each of 4 rows"));
    assert!(fail(&[("x", images)], "logit").contains("no output \"logit\""));
    let small = TensorView::f32(&[4, 8, 4, 1], &x[..128]);
    assert!(fail(&[("x", small)], "logits").contains("must be f32[4,8,8,1], but is f32[4,8,4,1]"));
}

#[test]
fn steps_learn_count_and_give_the_loss() {
    let mut session = session(digits(), 4, None, 5);
    let (x, y) = rows(4);
    let batch = [("x", TensorView::f32(&[4, 8, 8, 1], &x)), ("y", TensorView::i32(&[4], &y))];
    let early = session.output("loss").unwrap_err().to_string();
    assert_eq!(early, "there is no number \"loss\" here; a step that has ended gives loss");
    let first = session.step(&batch, 1e-2).unwrap();
    let mut last = first;
    for _ in 0..20 {
        last = session.step(&batch, 1e-2).unwrap();
    }
    assert!(last < first / 2.0, "from {first} to {last}");
    assert_eq!((session.steps(), session.skipped_steps().unwrap()), (21, None));
    assert_eq!(session.output("loss").unwrap(), last);
    assert!(matches!(session.output("logits"), Err(TrainError::NoNumber { .. })));
    assert!(session.step(&batch[..1], 1e-2).is_err());
    assert_eq!(session.steps(), 21);
    assert!(session.output("loss").is_err(), "a step that failed gives nothing, and what was before is not its own");
}

#[test]
fn skipped_steps_are_counted_where_the_loss_is_scaled() {
    let training = memfit_transform::Training { precision: Precision::Mixed(Half::F16), ..training() };
    let mut session = Session::new(common::cpu(), plan(digits(), &training, 4, None), 5).unwrap();
    assert_eq!(session.skipped_steps().unwrap(), Some(0));
    let (mut x, y) = rows(4);
    x[3] = f32::INFINITY;
    let before = bits(&session);
    let batch = [("x", TensorView::f32(&[4, 8, 8, 1], &x)), ("y", TensorView::i32(&[4], &y))];
    assert!(!session.step(&batch, 1e-2).unwrap().is_finite());
    assert_eq!(session.skipped_steps().unwrap(), Some(1));
    let changed: Vec<String> =
        before.into_iter().zip(bits(&session)).filter(|(a, b)| a != b).map(|(a, _)| a.0).collect();
    assert_eq!(changed, ["optimizer/loss_scale", "optimizer/skipped_steps"]);
}

#[test]
fn weights_go_to_a_file_and_back() {
    let path = file("weights.safetensors");
    let mut trained = session(digits(), 4, None, 5);
    let (x, y) = rows(4);
    let batch = [("x", TensorView::f32(&[4, 8, 8, 1], &x)), ("y", TensorView::i32(&[4], &y))];
    trained.step(&batch, 1e-2).unwrap();
    trained.save_weights(&path).unwrap();
    let mut other = session(digits(), 2, None, 6);
    let count = other.load_weights(&path, Match::Exact).unwrap();
    let of_model =
        |s: &Session<_>| bits(s).into_iter().filter(|(n, _)| !n.starts_with("optimizer/")).collect::<Vec<_>>();
    assert_eq!(of_model(&trained), of_model(&other));
    assert_eq!(count, of_model(&other).len());
    assert!(other.weights().count() > count, "the optimizer's own are weights too, but not in the file");
    let bias = [7f32; 10];
    other.set_weight("fc/bias", TensorView::f32(&[10], &bias)).unwrap();
    assert_eq!(other.weight("fc/bias").unwrap(), bytemuck::cast_slice::<f32, u8>(&bias));
    std::fs::remove_file(path).unwrap();
}

/// A teacher and a student in one program; the loss, a number besides, and logits of both.
fn distillation(batch: usize, _: Mode) -> Result<Forward> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([batch, 6]))?;
    let tall = b.scope("teacher", |b| dense(b, "fc1", x, Dense::new(32)))?;
    let tall = b.scope("teacher", |b| b.relu(tall))?;
    let taught = b.scope("teacher", |b| dense(b, "fc2", tall, Dense::new(3)))?;
    let logits = b.scope("student", |b| dense(b, "fc", x, Dense::new(3)))?;
    let loss = b.mean_squared_error(logits, taught)?;
    let size = b.mean(taught)?;
    b.output("loss", loss);
    b.output("logits", logits);
    b.output("mean_of_teacher", size);
    Ok(Forward { graph: b.finish(), loss, heads: vec![] })
}

#[test]
fn a_student_learns_from_a_teacher_in_the_same_program() {
    let frozen = ["fc1", "fc2"].iter().flat_map(|l| ["weight", "bias"].map(|p| format!("teacher/{l}/{p}"))).collect();
    let training = memfit_transform::Training { frozen, ..training() };
    let mut session =
        Session::new(common::cpu(), plan(&from_fn("distillation", distillation), &training, 8, None), 3).unwrap();
    let x: Vec<f32> = (0..48).map(|i| ((i * 31) % 13) as f32 / 13.0).collect();
    let batch = [("x", TensorView::f32(&[8, 6], &x))];
    let before = bits(&session);
    let first = session.step(&batch, 3e-2).unwrap();
    let mean = session.output("mean_of_teacher").unwrap();
    let mut last = first;
    for _ in 0..300 {
        last = session.step(&batch, 3e-2).unwrap();
    }
    assert!(last < first / 20.0, "from {first} to {last}");
    assert_eq!(session.output("mean_of_teacher").unwrap(), mean, "the teacher stays as it is");
    let changed: HashSet<String> =
        before.into_iter().zip(bits(&session)).filter(|(a, b)| a != b).map(|(a, _)| a.0).collect();
    assert!(changed.contains("student/fc/weight") && !changed.iter().any(|n| n.starts_with("teacher/")), "{changed:?}");
}

/// A generator that makes pairs of numbers out of noise, and a judge who tells them from true ones.
fn adversaries(batch: usize, _: Mode) -> Result<Forward> {
    let mut b = Builder::new();
    let (noise, real) = (b.input("noise", TensorType::f32([batch, 3]))?, b.input("real", TensorType::f32([batch, 2]))?);
    let made = b.scope("generator", |b| dense(b, "fc", noise, Dense::new(2)))?;
    let both = b.concat(&[real, made], 1)?;
    let both = b.reshape(both, [2 * batch, 2])?;
    let says = b.scope("judge", |b| dense(b, "fc", both, Dense::new(1)))?;
    let says = b.reshape(says, [batch, 2])?;
    let [ones, zeros] = [1.0, 0.0].map(|x| b.fill(x, TensorType::f32([batch, 1])));
    let (ones, zeros) = (ones?, zeros?);
    let truth = b.concat(&[ones, zeros], 1)?;
    let loss = binary_cross_entropy(&mut b, says, truth)?;
    let of_made = b.slice(says, &[0, 1], &[batch, 2])?;
    let fooled = binary_cross_entropy(&mut b, of_made, ones)?;
    b.output("loss", loss);
    b.output("g_loss", fooled);
    b.output("made", made);
    Ok(Forward { graph: b.finish(), loss, heads: vec![] })
}

#[test]
fn adversaries_follow_their_own_losses_and_both_can_be_read() {
    let objective = Objective { loss: "g_loss".into(), trains: vec!["generator".into()] };
    let training = memfit_transform::Training { objectives: vec![objective], ..training() };
    let noise: Vec<f32> = (0..12).map(|i| ((i * 5) % 7) as f32 / 7.0).collect();
    let real: Vec<f32> = (0..8).map(|i| 3.0 + (i % 3) as f32).collect();
    let batch = [("noise", TensorView::f32(&[4, 3], &noise)), ("real", TensorView::f32(&[4, 2], &real))];
    let losses = [None, Some(2)].map(|micro_batch| {
        let mut session =
            Session::new(common::cpu(), plan(&from_fn("adversaries", adversaries), &training, 4, micro_batch), 3)
                .unwrap();
        let before = bits(&session);
        let loss = session.step(&batch, 1e-2).unwrap();
        let changed = before.into_iter().zip(bits(&session)).filter(|(a, b)| a != b).map(|(a, _)| a.0);
        let changed: Vec<String> = changed.filter(|n| n.ends_with("/weight")).collect();
        assert_eq!(changed, ["generator/fc/weight", "judge/fc/weight"]);
        let made = session.output("made").unwrap_err().to_string();
        assert_eq!(made, "there is no number \"made\" here; a step that has ended gives loss, g_loss");
        let losses = [loss, session.output("loss").unwrap(), session.output("g_loss").unwrap()];
        let mut room = vec![0; session.eval_bytes("made").unwrap()];
        let mut rows = 0;
        let each = |some: std::ops::Range<usize>, _: &[u8]| {
            rows += some.len();
            Ok(())
        };
        session.eval(&batch, "made", &mut room, each).unwrap();
        assert_eq!(rows, 4, "evaluation has every output");
        assert_eq!(session.output("g_loss").unwrap(), losses[2], "evaluation leaves it as it is");
        losses
    });
    // The generator's comes last; the two ways of a step may round differently.
    assert_eq!(losses[0][0], losses[0][1]);
    assert_ne!(losses[0][1], losses[0][2]);
    losses[0].iter().zip(losses[1]).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{losses:?}"));
}

/// With weights of `classes` classes, which are the same for all samples, and a target that only a metric reads; of an odd number
/// of rows it cannot be built.
fn of_even_rows(batch: usize, classes: usize, mode: Mode) -> Result<Forward> {
    if !batch.is_multiple_of(2) {
        return Err(memfit_nn::Error::Option { model: "even", problem: "rows come in pairs".into() });
    }
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([batch, 3]))?;
    let (weights, truth) =
        (b.input("weights", TensorType::f32([classes]))?, b.input("truth", TensorType::f32([batch, classes]))?);
    let y = dense(&mut b, "fc", x, Dense::new(classes))?;
    let squared = b.mul(y, y)?;
    let loss = b.mul(squared, weights)?;
    let error = b.sub(y, truth)?;
    Forward::new(b, mode, &[Head::custom("y", y, loss).metric("error", error)])
}

#[test]
fn inputs_may_be_the_same_for_all_samples_or_be_read_by_metrics_alone() {
    let model = from_fn("even", |batch, mode| of_even_rows(batch, 5, mode));
    let numbers: Vec<f32> = (0..64).map(|i| (i * 7 % 11) as f32 / 11.0).collect();
    for precision in [Precision::F32, Precision::Mixed(Half::Bf16)] {
        let training = memfit_transform::Training { precision, ..training() };
        let losses = [None, Some(4), Some(2)].map(|micro_batch| {
            let mut session = Session::new(common::cpu(), plan(&model, &training, 8, micro_batch), 3).unwrap();
            let batch = [
                ("x", TensorView::f32(&[8, 3], &numbers[..24])),
                ("weights", TensorView::f32(&[5], &numbers[..5])),
                ("truth", TensorView::f32(&[8, 5], &numbers[..40])),
            ];
            let loss = session.step(&batch, 1e-3).unwrap();
            let mut room = vec![0; session.eval_bytes("y/error").unwrap()];
            session.eval(&batch, "y/error", &mut room, |_, _| Ok(())).unwrap();
            let unknown = session.step(&[batch[0], batch[1], batch[2], ("z", batch[0].1)], 1e-3).unwrap_err();
            assert!(unknown.to_string().contains("\"z\""), "{unknown}");
            loss
        });
        assert!(losses.iter().all(|loss| (loss / losses[0] - 1.0).abs() < 1e-5), "{losses:?}");
    }
}

/// The sizes of micro-batches that a model may have in the end.
fn sizes(model: &dyn memfit_nn::Model, training: &memfit_transform::Training) -> HashSet<usize> {
    let source = |rows: usize| memfit_train::programs(model, training, 8, rows);
    let cpu = common::cpu();
    let survey = memfit_plan::survey(source, cpu.target(), &memfit_plan::Request::new(8)).unwrap();
    survey.frontier().iter().map(|point| point.micro_batch).chain([8]).collect()
}

#[test]
fn sizes_that_a_model_cannot_be_cut_into_are_left_out() {
    let of_classes = |classes| from_fn("even", move |batch, mode| of_even_rows(batch, classes, mode));
    assert!(sizes(&of_classes(5), &training()).is_subset(&HashSet::from([2, 4, 8])));
    assert!(sizes(&of_classes(5), &training()).contains(&2));
    // Its weights would look as if there were one for each row.
    assert!(!sizes(&of_classes(2), &training()).contains(&2));
    // A second loss that is no mean of the samples' keeps the batch whole.
    let adversaries = |mode: fn(&mut Builder, memfit_ir::ValueId) -> memfit_ir::Result<memfit_ir::ValueId>| {
        from_fn("adversaries", move |batch, _| {
            let mut b = Builder::new();
            let x = b.input("x", TensorType::f32([batch, 2048, 2]))?;
            let made = b.scope("generator", |b| dense(b, "fc", x, Dense::new(2)))?;
            let says = b.scope("discriminator", |b| dense(b, "fc", made, Dense::new(2)))?;
            let squared = b.mul(says, says)?;
            let loss = b.mean(squared)?;
            let cubed = b.mul(squared, says)?;
            let of_made = b.mean(cubed)?;
            let second = mode(&mut b, of_made)?;
            b.output("loss", loss);
            b.output("g_loss", second);
            Ok(Forward { graph: b.finish(), loss, heads: vec![] })
        })
    };
    let objective = Objective { loss: "g_loss".into(), trains: vec!["generator".into()] };
    let training = memfit_transform::Training { objectives: vec![objective], ..training() };
    assert!(sizes(&adversaries(|_, mean| Ok(mean)), &training).len() > 1);
    assert_eq!(sizes(&adversaries(|b, mean| b.unary(memfit_ir::op::Unary::Exp, mean)), &training), HashSet::from([8]));
}
