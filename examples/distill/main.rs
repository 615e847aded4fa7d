//! Distillation: a small student learns from a trained teacher. Both stand in one program, the teacher frozen, with a loss
//! of our own; the loop is ours too.

use memfit::data::{BytePool, LoadOptions, Loader, Remainder};
use memfit::exec::Executor;
use memfit::ir::{Builder, TensorType};
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Mlp;
use memfit::nn::{Forward, Mode, Model, loss};
use memfit::plan::plan;
use memfit::train::{Session, Task, evaluate, programs, views};
use memfit::{CpuExecutor, Request, SourceError, TensorView, Training, plan_model};

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
    let teacher = Model::from_name("digits")?;
    let student = Model::Mlp(Mlp { sizes: vec![64, 32, CLASSES] });

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
    println!("teacher: {:.1} % right", 100.0 * accuracy(&mut taught, &pool)?);

    // Teacher and student side by side; only the student has gradients.
    let build = |rows: usize, mode: Mode| -> Result<Forward, SourceError> { Ok(both(&teacher, &student, rows, mode)?) };
    let frozen = taught.weights().filter(|s| !s.name.starts_with("optimizer")).map(|s| format!("teacher/{}", s.name));
    let names: Vec<String> = frozen.collect();
    let is_param = |name: &&String| !name.ends_with("/mean") && !name.ends_with("/var");
    let training = Training { frozen: names.iter().filter(is_param).cloned().collect(), ..training };
    let cpu = CpuExecutor::new(2)?;
    let plan = plan(&|rows| programs(&build, &training, BATCH, rows), cpu.target(), &request)?;
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
            println!("step {step:>4}  loss {last:.4}");
        }
    }
    Ok((last, accuracy(&mut session, &pool)?))
}

/// The student's loss: what it says against what the teacher says, both softened. Evaluation gives the student's logits.
fn both(teacher: &Model, student: &Model, rows: usize, mode: Mode) -> memfit::nn::Result<Forward> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([rows, 8, 8, 1]))?;
    let y = b.input("y", TensorType::i32([rows]))?;
    let told = b.scope("teacher", |b| teacher.logits(b, Mode::Eval, x))?;
    let flat = b.reshape(x, [rows, 64])?;
    let logits = b.scope("student", |b| student.logits(b, mode, flat))?;
    let (told, said) = (b.scale(told, 1.0 / TEMPERATURE)?, b.scale(logits, 1.0 / TEMPERATURE)?);
    let told = b.softmax(told, 1, false)?;
    let soft = loss::cross_entropy(&mut b, said, told, 0.0)?;
    let hard = b.scope("hard", |b| loss::sparse_cross_entropy(b, logits, y, 0.0))?;
    let total = b.add(soft, hard)?;
    b.output("loss", total);
    b.output("logits", logits);
    Ok(Forward { graph: b.finish(), logits, loss: total })
}

fn accuracy(session: &mut Session<CpuExecutor>, pool: &BytePool) -> Result<f64, Error> {
    let data = glyphs().take(512).batch(64, Remainder::Keep);
    Ok(evaluate(session, &data, Task::Classes, LoadOptions::new(pool.clone()))?.scores.accuracy)
}
