//! Two models in one memory: their states stand side by side, and their steps take turns in what else a step needs. Each
//! computes the bits that it computes alone.

use memfit::data::{BytePool, LoadOptions, Loader, Remainder};
use memfit::exec::{Device, Executor, Growth, Transient};
use memfit::nn::optim::Optimizer;
use memfit::plan::{Member, plan_together};
use memfit::train::{Session, views};
use memfit::{CpuExecutor, Engine, Options, Request, Training, ZooModel, survey_model};

#[path = "../glyphs.rs"]
mod glyphs;
use glyphs::glyphs;

type Error = Box<dyn std::error::Error>;

/// Hard: for both models together, and for nothing else.
const LIMIT: u64 = 3200 << 10;
const BATCHES: [usize; 2] = [32, 64];
const STEPS: usize = 100;

pub fn main() -> Result<(), Error> {
    let losses = run()?;
    println!("losses {:.4} and {:.4}", losses[0], losses[1]);
    Ok(())
}

/// The last loss of each.
pub fn run() -> Result<Vec<f32>, Error> {
    let device = Device::host().split(&[LIMIT])?.remove(0);
    let cpu = CpuExecutor::new(2)?.on(device.clone());
    let model = ZooModel::from_name("digits")?;
    let training = Training::new(Optimizer::adam().update);

    // What is possible for each, and then the fastest plans that fit in beside one another.
    let requests = BATCHES.map(Request::new);
    let survey = |request| survey_model(&model, &training, cpu.target(), request);
    let surveys = [survey(&requests[0])?, survey(&requests[1])?];
    let members = [("small batches", 0), ("large batches", 1)];
    let members = members.map(|(name, i)| Member { name, survey: &surveys[i], budget: None });
    let together = plan_together(&members, Some(device.free()))?;
    println!("{} of {} bytes, exactly", together.arena_bytes(), device.limit());

    let shared = Transient::new(&cpu, "activations, in turns", together.transient_bytes(), Growth::Commit)?;
    let pool = BytePool::new(16 << 20);
    let mut trainings = Vec::new();
    for (plan, member) in together.plans.into_iter().zip(&members) {
        let data = glyphs().shuffle(1024).batch(plan.batch, Remainder::Drop).repeat(None);
        let options = Options { name: member.name.into(), ..Options::default() };
        let session = Session::start(Engine::sharing(cpu.clone(), plan, options, &shared)?, 1)?;
        trainings.push((session, Loader::new(&data, LoadOptions::new(pool.clone()))?, f32::NAN));
    }
    for holder in device.holders() {
        println!("  {:>8}  {}", holder.bytes, holder.name);
    }
    for _ in 0..STEPS {
        for (session, loader, loss) in &mut trainings {
            if let Some(batch) = loader.next()? {
                *loss = session.step(&views(&batch), 1e-3)?;
            }
        }
    }
    Ok(trainings.into_iter().map(|(_, _, loss)| loss).collect())
}
