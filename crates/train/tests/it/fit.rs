//! What a run tells, when it ends, and what it does about numbers that are none.

use crate::common;

use common::{bits, cpu, datasets, digits, folder, images, options, plan, session, training};
use memfit_data::{BytePool, DataError, Dataset, Example, LoadOptions, Remainder, Tensor, Tensors};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::TensorType;
use memfit_nn::Loss;
use memfit_nn::zoo::Digits;
use memfit_plan::Plan;
use memfit_train::{
    CheckpointKind, Datasets, EarlyStop, Event, Feed, FitOptions, Flow, Metric, Outcome, Period, Progress, Result,
    RunDir, SaveEvery, Schedule, Session, StopReason, TrainError, evaluate, fit, run_dir,
};
use memfit_transform::{Half, Precision, Training};

/// Trains the digits and gives all events.
fn events(session: &mut Session<CpuExecutor>, data: &Datasets, options: &FitOptions) -> (Result<Outcome>, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = fit(session, data, options, &mut |event: &Event| {
        // How long data take is nobody's promise.
        if *event != Event::Waiting {
            events.push(event.clone());
        }
        Flow::Continue
    });
    (outcome, events)
}

/// An event in a word, without times.
fn word(event: &Event) -> String {
    match event {
        Event::Step { step, epoch, .. } => format!("step {step} of epoch {epoch}"),
        Event::Waiting => "waiting".into(),
        Event::Evaluating { batches } => format!("{batches} batches"),
        Event::Evaluated(e) => format!("evaluated at {}", e.step),
        Event::Epoch { epoch, scores, .. } => format!("epoch {epoch} scored {}", scores.is_some()),
        Event::Checkpoint { which, step, .. } => format!("{which:?} at {step}"),
        Event::Stopped(why) => format!("{why:?}"),
    }
}

#[test]
fn everything_is_told_in_its_order() {
    let (name, mut session) = (folder("told"), session(digits(), 16, None, 3));
    let run = RunDir::create(&name, session.plan(), &Default::default()).unwrap();
    let (pool, test_pool) = (BytePool::new(1 << 20), BytePool::new(1 << 20));
    let feed = Feed { pool, test_pool, ..common::feed(1) };
    let options = FitOptions { feed, ..options(Some(run), Progress::default()) };
    let (outcome, events) = events(&mut session, &datasets(16), &options);
    let outcome = outcome.unwrap();
    let words: Vec<String> = events.iter().map(word).collect();
    let expected = [
        "Last at 0",
        "step 0 of epoch 0",
        "step 1 of epoch 0",
        "Last at 2",
        "1 batches",
        "2 batches",
        "3 batches",
        "evaluated at 2",
        "Best at 2",
        "epoch 0 scored true",
        "Last at 2",
        "step 2 of epoch 1",
        "step 3 of epoch 1",
        "Last at 4",
        "1 batches",
        "2 batches",
        "3 batches",
        "evaluated at 4",
        "Best at 4",
        "epoch 1 scored true",
        "Last at 4",
        "Done",
    ];
    assert_eq!(words, expected);
    let (losses, rates): (Vec<f32>, Vec<f32>) = events
        .iter()
        .filter_map(|e| if let Event::Step { loss, lr, .. } = e { Some((*loss, *lr)) } else { None })
        .unzip();
    assert!((rates[0] - 1e-2 / 3.0).abs() < 1e-8 && rates[2..] == [1e-2, 1e-2], "{rates:?}");
    let Some(Event::Epoch { loss, .. }) = events.iter().find(|e| matches!(e, Event::Epoch { epoch: 1, .. })) else {
        panic!("there are two epochs")
    };
    assert_eq!(*loss, (f64::from(losses[2]) + f64::from(losses[3])) / 2.0);
    assert_eq!((outcome.reason, outcome.steps), (StopReason::Done, 4));
    assert_eq!(outcome.best, outcome.evaluation.as_ref().map(|e| e.scores.loss));
    std::fs::remove_dir_all(name).unwrap();
}

#[test]
fn a_run_learns_and_its_scores_are_those_of_an_evaluation_by_hand() {
    let mut session = session(digits(), 8, Some(4), 3);
    let options = FitOptions { length: Period::Epochs(12), ..options(None, Progress::default()) };
    let data = datasets(8);
    let outcome = events(&mut session, &data, &options).0.unwrap();
    let scores = outcome.evaluation.unwrap().scores;
    assert!(scores.accuracy > Some(0.9) && scores.count == 13, "{scores:?}");
    let test = data.test.unwrap();
    let load = || LoadOptions { threads: 1, ..LoadOptions::new(BytePool::new(1 << 20)) };
    assert_eq!(evaluate(&mut session, &test, &options.heads, load()).unwrap().scores, scores);
    // Batches of another size hold the same rows in the same order.
    let other = Dataset::from_tensors(images(13, 2)).unwrap().batch(13, Remainder::Keep);
    assert_eq!(evaluate(&mut session, &other, &options.heads, load()).unwrap().scores, scores);
    let small = LoadOptions { threads: 1, ..LoadOptions::new(BytePool::new(100)) };
    let error = evaluate(&mut session, &test, &options.heads, small).unwrap_err().to_string();
    assert!(error.contains("the logits of one micro-batch") && error.contains("160"), "{error}");
}

#[test]
fn the_best_checkpoint_is_the_best_and_patience_ends() {
    let (name, mut session) = (folder("best"), session(digits(), 8, None, 3));
    let run = RunDir::create(&name, session.plan(), &Default::default()).unwrap();
    let options = FitOptions {
        length: Period::Epochs(200),
        // So fast that it gets worse at some time.
        schedule: Schedule::constant(0.05),
        early_stop: Some(EarlyStop { patience: 3, min_delta: 0.0 }),
        ..options(Some(run), Progress::default())
    };
    let (outcome, events) = events(&mut session, &datasets(8), &options);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.reason, StopReason::NoBetter);
    let scores = events.iter().filter_map(|e| if let Event::Evaluated(e) = e { Some(e.clone()) } else { None });
    let scores: Vec<_> = scores.collect();
    let best = scores.iter().min_by(|a, b| a.scores.loss.total_cmp(&b.scores.loss)).unwrap();
    assert_eq!(outcome.best, Some(best.scores.loss));
    assert_eq!(scores.len() - 1 - scores.iter().position(|e| e == best).unwrap(), 3, "evaluations after the best");
    drop(options);
    let saved = run_dir::read(&name, CheckpointKind::Best).unwrap();
    assert_eq!(saved.checkpoint.step, best.step);
    let mut best_session = Session::resume(cpu(), &saved).unwrap();
    let load = LoadOptions { threads: 1, ..LoadOptions::new(BytePool::new(1 << 20)) };
    let again =
        evaluate(&mut best_session, &datasets(8).test.unwrap(), &digits().heads().unwrap(), load).unwrap().scores;
    assert_eq!(again, best.scores);
    assert_ne!(bits(&best_session), bits(&session));
    std::fs::remove_dir_all(name).unwrap();
}

// ---- numbers that are none ------------------------------------------------------------------------------------------

/// Batches in order, of which those of these numbers have a pixel that is too large.
fn broken(batches: &[usize]) -> Datasets {
    with_pixel(batches, f32::MAX)
}

fn with_pixel(batches: &[usize], wrong: f32) -> Datasets {
    let noise = |batch: usize, pixel: usize| {
        if batches.contains(&batch) && pixel == 5 { wrong } else { ((batch * 31 + pixel * 7) % 11) as f32 / 11.0 }
    };
    let x: Vec<f32> = (0..64 * 80).map(|i| noise(i / 512, i % 512)).collect();
    let y: Vec<i32> = (0..80).map(|i| i % 10).collect();
    let table = Tensors::new().with("x", TensorType::f32([80, 8, 8, 1]), x).unwrap();
    let table = table.with("y", TensorType::i32([80]), y).unwrap();
    Datasets { train: Dataset::from_tensors(table).unwrap().batch(8, Remainder::Drop), test: datasets(8).test }
}

fn f16_plan() -> Plan {
    plan(digits(), &Training { precision: Precision::Mixed(Half::F16), ..training() }, 8, None)
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_the_last_good_checkpoint_is_named() {
    let (name, mut session) = (folder("nan"), session(digits(), 8, None, 3));
    let run = RunDir::create(&name, session.plan(), &Default::default()).unwrap();
    let options = options(Some(run), Progress::default());
    let (outcome, events) = events(&mut session, &broken(&[5]), &options);
    let error = outcome.unwrap_err();
    assert!(matches!(error, TrainError::Diverged { step: 5, .. }), "{error}");
    let message = error.to_string();
    for part in [
        "the loss is NaN at step 5",
        "learning rate of",
        "last.json is the last good checkpoint",
        "a smaller learning rate",
    ] {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert_eq!(events.iter().filter(|e| matches!(e, Event::Step { .. })).count(), 5, "{events:?}");
    drop(options);
    let (run, saved) = RunDir::resume(&name, CheckpointKind::Last).unwrap();
    assert_eq!(saved.checkpoint.step, 4, "the last before it");
    let mut session = Session::resume(cpu(), &saved).unwrap();
    let options = common::options(Some(run), saved.checkpoint.progress);
    fit(&mut session, &broken(&[]), &options, &mut |_| Flow::Continue).unwrap();
    std::fs::remove_dir_all(name).unwrap();
    let alone = FitOptions { run: None, ..common::options(None, Progress::default()) };
    let error = fit(&mut common::session(digits(), 8, None, 3), &broken(&[0]), &alone, &mut |_| Flow::Continue);
    assert!(error.unwrap_err().to_string().contains("no checkpoint was kept"));
}

#[test]
fn numbers_that_are_not_finite_in_the_data_are_blamed_by_their_place() {
    for (wrong, precision) in
        [(f32::NAN, Precision::F32), (f32::INFINITY, Precision::F32), (f32::NAN, Precision::Mixed(Half::F16))]
    {
        let plan = plan(digits(), &Training { precision, ..training() }, 8, None);
        let mut session = Session::new(cpu(), plan, 3).unwrap();
        let options = FitOptions { length: Period::Epochs(100), ..options(None, Progress::default()) };
        let batches: &[usize] = if precision == Precision::F32 { &[5] } else { &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] };
        let data = Datasets { test: None, ..with_pixel(batches, wrong) };
        let message = events(&mut session, &data, &options).0.unwrap_err().to_string();
        let row = if precision == Precision::F32 { "\"x\" of row 40" } else { "\"x\" of row 64" };
        for part in ["the loss is NaN", "not finite", row, "mend the data", "start again"] {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
        assert!(!message.contains("learning rate"), "{message}");
    }
}

#[test]
fn what_is_wrong_with_a_test_set_costs_no_training() {
    let (name, whole) = (folder("test-set"), folder("test-set-whole"));
    let torn = Dataset::from_tensors(images(13, 2)).unwrap();
    let torn = torn.map(|_, _| Err(DataError::bad("a.png", "it is torn"))).batch(5, Remainder::Keep);
    let run = |folder: &std::path::Path, data: &Datasets, resumed: bool| {
        let mut session = session(digits(), 8, None, 3);
        let (run, progress) = match resumed {
            false => (RunDir::create(folder, session.plan(), &Default::default()).unwrap(), Progress::default()),
            true => {
                let (run, saved) = RunDir::resume(folder, CheckpointKind::Last).unwrap();
                session = Session::resume(cpu(), &saved).unwrap();
                (run, saved.checkpoint.progress)
            }
        };
        let options = FitOptions { save: SaveEvery::default(), ..options(Some(run), progress) };
        fit(&mut session, data, &options, &mut |_| Flow::Continue).map(|_| bits(&session))
    };
    let message = run(&name, &Datasets { test: Some(torn), ..datasets(8) }, false).unwrap_err().to_string();
    let cure = format!("mend it and resume {}, which then goes on from step 5", name.display());
    for part in ["a.png: it is torn", "that is in the test set", &cure] {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert_eq!(run_dir::read(&name, CheckpointKind::Last).unwrap().checkpoint.step, 5);
    assert_eq!(run(&name, &datasets(8), true).unwrap(), run(&whole, &datasets(8), false).unwrap());
    [name, whole].into_iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
}

/// Data of which no row from `stuck` on ever comes, as from a disk that is gone.
fn stuck_from(stuck: usize) -> Dataset {
    let row = move |index: usize, pool: &BytePool| {
        if index >= stuck {
            loop {
                std::thread::park();
            }
        }
        let x = Tensor::zeros(TensorType::f32([8, 8, 1]), pool)?;
        Ok(Example::default().with("x", x).with("y", Tensor::zeros(TensorType::i32([]), pool)?))
    };
    Dataset::from_fn(44, row).batch(8, Remainder::Drop)
}

#[test]
fn a_run_whose_data_do_not_come_is_stopped_and_saved() {
    let data = datasets(8);
    let (in_training, in_test) = (stuck_from(17), stuck_from(3));
    for (train, test, steps) in [(in_training, data.test, 2), (data.train, Some(in_test), 5)] {
        let (name, mut session) = (folder("stuck"), session(digits(), 8, None, 3));
        let run = RunDir::create(&name, session.plan(), &Default::default()).unwrap();
        let pools = [(); 2].map(|()| BytePool::new(1 << 20));
        let [pool, test_pool] = pools;
        let feed = Feed { pool, test_pool, ..common::feed(2) };
        let save = SaveEvery { epoch: true, steps: None, time: None };
        let options = FitOptions { feed, save, ..options(Some(run), Progress::default()) };
        let outcome = fit(&mut session, &Datasets { train, test }, &options, &mut |event| {
            if *event == Event::Waiting { Flow::Stop } else { Flow::Continue }
        });
        let outcome = outcome.unwrap();
        // A slow machine may ask before; it is never stuck.
        let (reason, made) = (outcome.reason, outcome.steps);
        assert!(reason == StopReason::Interrupted && made <= steps && outcome.saved == Some(made), "{outcome:?}");
        drop(options);
        assert_eq!(RunDir::resume(&name, CheckpointKind::Last).unwrap().1.checkpoint.step, made);
        std::fs::remove_dir_all(name).unwrap();
    }
}

#[test]
fn an_overflow_in_f16_is_a_skipped_step_and_never_a_checkpoint() {
    let (name, mut session) = (folder("f16"), Session::new(cpu(), f16_plan(), 3).unwrap());
    let run = RunDir::create(&name, session.plan(), &Default::default()).unwrap();
    let options = options(Some(run), Progress::default());
    let (outcome, events) = events(&mut session, &broken(&[3, 4, 5]), &options);
    assert_eq!(outcome.unwrap().reason, StopReason::Done);
    let mut bad = false;
    for event in &events {
        match event {
            Event::Step { step, loss, skipped, .. } => {
                bad = !loss.is_finite();
                assert_eq!(bad, [3, 4, 5].contains(&(step % 10)), "{event:?}");
                assert!(*skipped || !bad, "{event:?}");
            }
            Event::Checkpoint { .. } => assert!(!bad, "{event:?}"),
            Event::Epoch { loss, .. } => assert!(loss.is_finite(), "{event:?}"),
            Event::Waiting | Event::Evaluating { .. } | Event::Evaluated(_) | Event::Stopped(_) => {}
        }
    }
    let saved = |step| events.iter().any(|e| matches!(e, Event::Checkpoint { step: s, .. } if *s == step));
    assert!(saved(2) && !saved(4) && !saved(6) && saved(8));
    std::fs::remove_dir_all(name).unwrap();
}

#[test]
fn an_overflow_without_end_stops_the_run() {
    let mut session = Session::new(cpu(), f16_plan(), 3).unwrap();
    let options = FitOptions { length: Period::Epochs(100), ..options(None, Progress::default()) };
    let all: Vec<usize> = (0..10).collect();
    let before = bits(&session);
    let error = events(&mut session, &Datasets { test: None, ..broken(&all) }, &options).0.unwrap_err();
    assert!(matches!(error, TrainError::Overflow { skips: 49, .. }), "{error}");
    assert!(error.to_string().contains("overflowed in f16"), "{error}");
    let changed: Vec<String> =
        before.into_iter().zip(bits(&session)).filter(|(a, b)| a != b).map(|(a, _)| a.0).collect();
    assert_eq!(changed, ["optimizer/loss_scale", "optimizer/skipped_steps"]);
}

// ---- what cannot be done --------------------------------------------------------------------------------------------

#[track_caller]
fn check_refused(data: &Datasets, change: impl FnOnce(&mut FitOptions), expected: &str) {
    let mut options = options(None, Progress::default());
    change(&mut options);
    let error = events(&mut session(digits(), 8, None, 3), data, &options).0.unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
}

#[test]
fn what_cannot_be_done_is_refused_with_a_cure() {
    let rows = || Dataset::from_tensors(images(44, 1)).unwrap();
    let data = datasets(8);
    let no_test = Datasets { test: None, ..data.clone() };
    let stop = EarlyStop { patience: 1, min_delta: 0.0 };
    check_refused(&no_test, |o| o.early_stop = Some(stop), "watches the loss on a test set, but there is none");
    let short = Datasets { train: rows().batch(8, Remainder::Keep), ..no_test.clone() };
    check_refused(&short, |_| {}, "input \"x\" has 4 rows, but the plan takes batches of 8; drop what");
    let empty = Datasets { train: rows().batch(64, Remainder::Drop), ..no_test.clone() };
    check_refused(&empty, |_| {}, "an epoch has no batch of 8 rows");
    let no_rows = Datasets { test: Some(rows().take(0).batch(5, Remainder::Keep)), ..data.clone() };
    check_refused(&no_rows, |_| {}, "the test set has no elements");
    check_refused(
        &data,
        |o| o.heads[0].loss = Loss::BinaryCrossEntropy,
        "head \"logits\" cannot be evaluated by BinaryCrossEntropy: the model gives f32[8,10], and its labels are i32[8]",
    );
    let five = Dataset::from_iter(move || std::iter::repeat_with(|| Ok(images(8, 1))).take(5));
    let unknown = Datasets { train: five, ..no_test };
    check_refused(&unknown, |_| {}, "cannot tell how long an epoch is");
    let mut options = options(None, Progress::default());
    options.schedule = Schedule::constant(1e-3);
    let outcome = events(&mut session(digits(), 8, None, 3), &unknown, &options).0.unwrap();
    assert_eq!(outcome.steps, 10, "a constant rate needs no length");
}

#[test]
fn a_metric_that_a_task_has_not_is_refused() {
    let data = datasets(8);
    let model = Digits { classes: 4, ..Digits::default() };
    let plan = plan(&model, &training(), 8, None);
    let few = |tensors: Tensors| {
        Dataset::from_tensors(tensors).unwrap().map(|mut example, _| {
            let label = example.get_mut("y")?;
            label.bytes_mut()[0] %= 4;
            Ok(example)
        })
    };
    let train = few(images(44, 1)).batch(8, Remainder::Drop);
    let data = Datasets { train, test: data.test.map(|_| few(images(13, 2)).batch(5, Remainder::Keep)) };
    let options = FitOptions { monitor: Metric::Top5.into(), ..options(None, Progress::default()) };
    let (outcome, events) = events(&mut Session::new(cpu(), plan, 3).unwrap(), &data, &options);
    let error = outcome.unwrap_err().to_string();
    assert!(
        error.contains("there is no top5 to monitor; this model has loss, accuracy") && events.is_empty(),
        "{error}"
    );
}

#[test]
fn a_test_set_with_numbers_that_are_none_is_told_by_their_place() {
    let mut session = session(digits(), 8, None, 3);
    let data = Datasets { test: Some(with_pixel(&[2], f32::NAN).train), ..datasets(8) };
    let feed = Feed { test_pool: BytePool::new(1 << 20), ..common::feed(1) };
    let (outcome, _) = events(&mut session, &data, &FitOptions { feed, ..options(None, Progress::default()) });
    match outcome.unwrap_err() {
        TrainError::NotFinite { place: Some(place), .. } => assert_eq!(place.to_string(), "\"x\" of row 16"),
        other => panic!("{other}"),
    }
}
