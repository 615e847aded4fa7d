//! A model of one's own with two inputs and two outputs: an image and a few measurements go in, a class and a price come
//! out, each with its loss. Planned under a budget, trained, stopped half-way, resumed to the same bits.

use std::path::Path;

use memfit::data::{BytePool, Dataset, Example, Remainder, Tensor};
use memfit::exec::Executor;
use memfit::ir::{Builder, TensorType, philox};
use memfit::nn::layers::{Activation, Conv2d, Dense, Padding, Pool, activation, conv2d, dense, flatten, max_pool};
use memfit::nn::optim::Optimizer;
use memfit::nn::{Forward, Head, Loss, Mode, Model, Result as BuildResult};
use memfit::train::{
    CheckpointKind, Datasets, Event, FitOptions, Flow, Metric, Outcome, Period, RunDir, Scores, Session, fit,
};
use memfit::{CpuExecutor, Plan, Request, Training, plan_model};

type Error = Box<dyn std::error::Error>;

const CLASSES: usize = 10;
const FEATURES: usize = 4;
const BATCH: usize = 32;
/// Those that the plan is made for: scratch is counted for each.
const THREADS: usize = 2;
const EPOCHS: u32 = 4;
const BUDGET: u64 = 2 << 20;

/// A small convnet for the image, beside it the measurements, and a head for each of the two questions.
pub struct PricedGlyphs;

impl Model for PricedGlyphs {
    fn name(&self) -> &str {
        "priced_glyphs"
    }

    fn build(&self, batch: usize, mode: Mode) -> BuildResult<Forward> {
        let mut b = Builder::new();
        // Inputs and labels, by names of our own; the data set's fields have the same.
        let image = b.input("image", TensorType::f32([batch, 8, 8, 1]))?;
        let measured = b.input("measured", TensorType::f32([batch, FEATURES]))?;
        let class = b.input("class", TensorType::i32([batch]))?;
        let price = b.input("price", TensorType::f32([batch, 1]))?;

        let conv = Conv2d { padding: Padding::Same, ..Conv2d::new(16, 3) };
        let x = conv2d(&mut b, "conv", image, conv)?;
        let x = activation(&mut b, x, Activation::Relu)?;
        let x = max_pool(&mut b, "pool", x, Pool::new(2))?;
        let x = flatten(&mut b, x)?;
        let x = b.concat(&[x, measured], 1)?;
        let x = dense(&mut b, "trunk", x, Dense::new(64))?;
        let x = activation(&mut b, x, Activation::Relu)?;
        let logits = dense(&mut b, "class", x, Dense::new(CLASSES))?;
        let predicted = dense(&mut b, "price", x, Dense::new(1))?;

        // loss = 1 · cross-entropy + 0.5 · squared error
        let heads = [
            Head::new("class", logits, Loss::SparseCrossEntropy { smoothing: 0.0 }, class),
            Head::new("price", predicted, Loss::MeanSquaredError, price).weight(0.5),
        ];
        Forward::new(b, mode, &heads)
    }
}

pub fn main() -> Result<(), Error> {
    let run = run()?;
    let (class, price) = (&run.scores.heads["class"], &run.scores.heads["price"]);
    println!(
        "test loss {:.4}: class {:.1} % right, price off by {:.3} on average",
        run.scores.loss,
        100.0 * class.accuracy.unwrap_or(f64::NAN),
        price.mean_absolute_error.unwrap_or(f64::NAN)
    );
    println!("stopped and resumed, the weights are {}", if run.same_bits { "the same bits" } else { "others" });
    Ok(())
}

/// What came out of it.
pub struct Run {
    /// Of the last evaluation.
    pub scores: Scores,
    /// Whether the run in two parts ended in the weights of the run in one.
    pub same_bits: bool,
}

pub fn run() -> Result<Run, Error> {
    let cpu = CpuExecutor::new(THREADS)?;
    let training = Training::new(Optimizer::adam().update);
    let request = Request { budget: Some(BUDGET), ..Request::new(BATCH) };
    let plan = plan_model(&PricedGlyphs, &training, cpu.target(), &request)?;
    println!("{} bytes for batches of {BATCH}, of {BUDGET} allowed", plan.arena_bytes());

    // In one part.
    let mut whole = Session::new(cpu, plan.clone(), 1)?;
    let outcome = train(&mut whole, None, &mut |_| Flow::Continue)?;
    let scores = outcome.evaluation.ok_or("it was evaluated")?.scores;

    // In two parts, as if the power had failed in between.
    let folder = std::env::temp_dir().join(format!("memfit-two-inputs-{}", std::process::id()));
    stop_half_way(&folder, plan)?;
    let resumed = resume(&folder)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(Run { scores, same_bits: weights(&whole)? == weights(&resumed)? })
}

fn stop_half_way(folder: &Path, plan: Plan) -> Result<(), Error> {
    let run = RunDir::create(folder, &plan, &Default::default())?;
    let mut session = Session::new(CpuExecutor::new(THREADS)?, plan, 1)?;
    train(&mut session, Some((run, Default::default())), &mut |event| match event {
        Event::Step { step: 77, .. } => Flow::Stop,
        _ => Flow::Continue,
    })?;
    println!("stopped after {} steps", session.steps());
    Ok(())
}

/// Goes on with the very next sample, in the plan that the run was begun with.
fn resume(folder: &Path) -> Result<Session<CpuExecutor>, Error> {
    let (run, saved) = RunDir::resume(folder, CheckpointKind::Last)?;
    let mut session = Session::resume(CpuExecutor::new(THREADS)?, &saved)?;
    train(&mut session, Some((run, saved.checkpoint.progress)), &mut |_| Flow::Continue)?;
    Ok(session)
}

/// Trains to the end, or until the observer says stop.
fn train(
    session: &mut Session<CpuExecutor>,
    run: Option<(RunDir, memfit::train::Progress)>,
    observer: &mut dyn FnMut(&Event) -> Flow,
) -> Result<Outcome, Error> {
    let data = Datasets {
        train: glyphs(0, 1024).shuffle(1024).batch(BATCH, Remainder::Drop),
        test: Some(glyphs(1024, 200).batch(50, Remainder::Keep)),
    };
    let (run, progress) = run.map_or((None, Default::default()), |(run, progress)| (Some(run), progress));
    let options = FitOptions {
        monitor: Metric::Accuracy.of("class"),
        run,
        progress,
        ..FitOptions::new(PricedGlyphs.heads()?, Period::Epochs(EPOCHS), 3e-3, BytePool::new(4 << 20))
    };
    let mut observe = |event: &Event| {
        if let Event::Epoch { epoch, loss, .. } = event {
            println!("epoch {}  loss {loss:.4}", epoch + 1);
        }
        observer(event)
    };
    Ok(fit(session, &data, &options, &mut observe)?)
}

fn weights(session: &Session<CpuExecutor>) -> Result<Vec<Vec<u8>>, Error> {
    Ok(session.weights().map(|state| session.weight(&state.name)).collect::<Result<_, _>>()?)
}

/// Ten patterns of 8×8 seen through noise, each with measurements that its price follows from.
fn glyphs(first: usize, count: usize) -> Dataset {
    let patterns: Vec<f32> = philox::normal(3, "patterns", CLASSES * 64).collect();
    Dataset::from_fn(count, move |index: usize, pool: &BytePool| {
        let (class, seed) = (index % CLASSES, (first + index) as u64);
        let mut image = Tensor::zeros(TensorType::f32([8, 8, 1]), pool)?;
        let pattern = &patterns[class * 64..][..64];
        let noise = philox::normal(seed, "noise", 64);
        image.f32s_mut().iter_mut().zip(pattern).zip(noise).for_each(|((to, p), n)| *to = p + 0.8 * n);
        let mut measured = Tensor::zeros(TensorType::f32([FEATURES]), pool)?;
        measured.f32s_mut().iter_mut().zip(philox::normal(seed, "measured", FEATURES)).for_each(|(to, n)| *to = n);
        let price = 0.2 * class as f32 + measured.f32s().iter().sum::<f32>() / 2.0;
        let class = Tensor::from_bytes(TensorType::i32([]), &(class as i32).to_le_bytes(), pool)?;
        let price = Tensor::from_bytes(TensorType::f32([1]), &price.to_le_bytes(), pool)?;
        Ok(Example::default().with("image", image).with("measured", measured).with("class", class).with("price", price))
    })
}
