//! Distillation: a small student learns from a trained teacher. Both stand in one program, the teacher frozen, with a loss
//! of our own; the loop is ours too.

use memfit::data::{BytePool, LoadOptions, Loader, Remainder};
use memfit::exec::Executor;
use memfit::ir::{Builder, TensorType};
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::{Digits, Mlp, Network};
use memfit::nn::{Forward, Head, HeadInfo, Loss, Mode, Model, from_fn};
use memfit::train::{Session, evaluate, views};
use memfit::{CpuExecutor, Request, TensorView, Training, plan_model};

#[path = "../glyphs.rs"]
mod glyphs;
use glyphs::{CLASSES, glyphs};

type Error = Box<dyn std::error::Error>;

const BATCH: usize = 32;
/// Softens what the teacher says, so that the student also learns which mistakes are small ones.
const TEMPERATURE: f32 = 3.0;
const BUDGET: u64 = 8 << 20;

pub fn main() -> Result<(), Error> {
    let (loss, right) = run()?;
    println!("loss {loss:.4}; student: {:.1} % right", 100.0 * right);
    Ok(())
}

/// The student's last loss, and the share of samples on which it is right.
pub fn run() -> Result<(f32, f64), Error> {
    let pool = BytePool::new(16 << 20);
    let data = glyphs().shuffle(1024).batch(BATCH, Remainder::Drop);
    let teacher = Digits::default();
    let student = Mlp::new(64, &[32], CLASSES);

    let cpu = CpuExecutor::new(2)?;
    let training = Training::new(Optimizer::adam().update);
    let request = Request { budget: Some(BUDGET), ..Request::new(BATCH) };
    let mut taught = Session::new(cpu, plan_model(&teacher, &training, CpuExecutor::new(2)?.target(), &request)?, 1)?;
    let mut loader = Loader::new(&data, LoadOptions::new(pool.clone()))?;
    for _ in 0..120 {
        if let Some(batch) = loader.next()? {
            taught.step(&views(&batch), 2e-3)?;
        }
    }
    println!("teacher: {:.1} % right", 100.0 * accuracy(&mut taught, &teacher.heads()?, &pool)?);

    // Teacher and student side by side; only the student has gradients.
    let model = from_fn("distillation", |rows, mode| both(&teacher, &student, rows, mode));
    let frozen = taught.weights().filter(|s| !s.name.starts_with("optimizer")).map(|s| format!("teacher/{}", s.name));
    let names: Vec<String> = frozen.collect();
    let is_param = |name: &&String| !name.ends_with("/mean") && !name.ends_with("/var");
    let training = Training { frozen: names.iter().filter(is_param).cloned().collect(), ..training };
    let cpu = CpuExecutor::new(2)?;
    let plan = plan_model(&model, &training, cpu.target(), &request)?;
    println!("both in {} bytes, exactly", plan.arena_bytes());
    let mut session = Session::new(cpu, plan, 2)?;
    for name in &names {
        let own = name.trim_start_matches("teacher/");
        let ty = taught.engine().state(own)?.ty.clone();
        let bytes = taught.weight(own)?;
        session.set_weight(name, TensorView { dtype: ty.dtype, shape: &ty.shape, bytes: &bytes })?;
    }
    let mut last = f32::NAN;
    for step in 0..400 {
        let Some(batch) = loader.next()? else { continue };
        last = session.step(&views(&batch), 2e-3)?;
        if step % 100 == 0 {
            let [hard, soft] = [session.output("logits/loss")?, session.output("softened/loss")?];
            println!("step {step:>4}  loss {last:.4} = {hard:.4} from the labels + {soft:.4} from the teacher");
        }
    }
    Ok((last, accuracy(&mut session, &model.heads()?, &pool)?))
}

/// The student has two losses: against the labels, and what it says against what the teacher says, both softened.
fn both(teacher: &dyn Network, student: &dyn Network, rows: usize, mode: Mode) -> memfit::nn::Result<Forward> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([rows, 8, 8, 1]))?;
    let y = b.input("y", TensorType::i32([rows]))?;
    let taught = b.scope("teacher", |b| teacher.logits(b, Mode::Eval, x))?;
    let flat = b.reshape(x, [rows, 64])?;
    let logits = b.scope("student", |b| student.logits(b, mode, flat))?;
    let (taught, softened) = (b.scale(taught, 1.0 / TEMPERATURE)?, b.scale(logits, 1.0 / TEMPERATURE)?);
    let taught = b.softmax(taught, 1, false)?;
    let by_row = b.cross_entropy(softened, taught, 0.0)?;
    let heads = [
        Head::new("logits", logits, Loss::SparseCrossEntropy { smoothing: 0.0 }, y),
        Head::custom("softened", softened, by_row),
    ];
    Forward::new(b, mode, &heads)
}

/// Of the head that gives the classes.
fn accuracy(session: &mut Session<CpuExecutor>, heads: &[HeadInfo], pool: &BytePool) -> Result<f64, Error> {
    let data = glyphs().take(512).batch(64, Remainder::Keep);
    let scores = evaluate(session, &data, &heads[..1], LoadOptions::new(pool.clone()))?.scores;
    scores.accuracy.ok_or_else(|| "classes have an accuracy".into())
}
