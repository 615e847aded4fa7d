//! What feeding costs: training steps of resnet18 (32×32, batch 128) from a folder of images through `fit`, against the same
//! steps on one batch that lies in memory, in turns. `fit [STEPS] [ROUNDS]`.

use std::path::Path;
use std::time::Instant;

use memfit::data::augment::{Normalise, Prepare};
use memfit::data::sources::ImageFolder;
use memfit::data::{BytePool, Dataset, LoadOptions, Loader, OnBad, Prefetch, Remainder};
use memfit::exec::Executor;
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Stem;
use memfit::train::{Datasets, Feed, FitOptions, Flow, Metric, Period, Progress, SaveEvery, Schedule, fit, views};
use memfit::{CpuExecutor, Model, Request, Session, Training, ZooModel, plan_model};

#[path = "../../../../examples/pictures/draw.rs"]
#[allow(dead_code)]
mod draw;

type Error = Box<dyn std::error::Error>;

const BATCH: usize = 128;
const CLASSES: [&str; 5] = ["disc", "square", "cross", "ring", "bar"];

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u32>());
    let steps = args.next().transpose()?.unwrap_or(8);
    let rounds = args.next().transpose()?.unwrap_or(3);
    let folder = std::env::temp_dir().join(format!("memfit-bench-fit-{}", std::process::id()));
    draw_pictures(&folder)?;
    let result = measure(&folder, steps, rounds);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure(folder: &Path, steps: u32, rounds: u32) -> Result<(), Error> {
    let model = ZooModel::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(5)?;
    let training = Training::new(Optimizer::momentum().update);
    let pool = BytePool::new(64 << 20);
    let normalise = Normalise::new(&[0.5; 3], &[0.25; 3])?;
    let prepare = Prepare { normalise: Some(normalise), flip: true, ..Prepare::to([32, 32]) };
    let train = Dataset::from_source(ImageFolder::open(folder, &pool)?.encoded()).shuffle(1024).map(prepare.map());
    let data = Datasets { train: train.batch(BATCH, Remainder::Drop).prefetch(Prefetch::Auto), test: None };
    let cpu = CpuExecutor::new(2)?;
    let plan = plan_model(&model, &training, cpu.target(), &Request::new(BATCH))?;
    let mut session = Session::new(cpu, plan, 1)?;
    let mut loader = Loader::new(&data.train, LoadOptions::new(pool.clone()))?;
    let batch = loader.next()?.ok_or("there is no batch")?;
    drop(loader);
    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        for _ in 0..steps {
            session.step(&views(&batch), 0.01)?;
        }
        let bare = start.elapsed().as_secs_f64();
        let options = FitOptions {
            length: Period::Steps(session.steps() + steps),
            schedule: Schedule::constant(0.01),
            heads: model.heads()?,
            evaluate: Period::Epochs(1),
            monitor: Metric::Loss.into(),
            early_stop: None,
            run: None,
            save: SaveEvery::default(),
            progress: Progress::default(),
            feed: Feed { pool: pool.clone(), test_pool: pool.clone(), threads: 2, bad: OnBad::Fail },
        };
        let start = Instant::now();
        fit(&mut session, &data, &options, &mut |_| Flow::Continue)?;
        let fed = start.elapsed().as_secs_f64();
        // The first round warms up.
        if round > 0 {
            println!(
                "bare {:.3} s a step, fit {:.3} s: {:.3} of its throughput",
                bare / steps as f64,
                fed / steps as f64,
                bare / fed
            );
            ratios.push(bare / fed);
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("median: fit has {:.3} of the throughput of the bare loop", ratios[ratios.len() / 2]);
    Ok(())
}

fn draw_pictures(folder: &Path) -> Result<(), Error> {
    for class in CLASSES {
        std::fs::create_dir_all(folder.join(class))?;
        let shape = draw::Shape::from_name(class).ok_or("no such shape")?;
        for n in 0..300 {
            let (image, _) = draw::picture(shape, 32, &format!("{class}/{n}"));
            draw::write_png(&folder.join(class).join(format!("{n}.png")), &image, 32, 3)?;
        }
    }
    Ok(())
}
