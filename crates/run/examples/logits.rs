//! The logits that a network of the zoo gives with weights from a file: what `cargo xtask ci-extern` holds against the framework
//! that the weights are of.
//!
//!     logits MODEL CLASSES WEIGHTS IMAGES LOGITS
//!
//! IMAGES has f32 numbers of the machine, of any number of 224×224×3 images; LOGITS gets as many rows of CLASSES.

use std::error::Error;

use memfit::data::BytePool;
use memfit::exec::Executor;
use memfit::nn::optim::Optimizer;
use memfit::plan::Request;
use memfit::{AnyExecutor, Session, TensorView, Training, ZooModel, plan_model};
use memfit_run::weights;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, classes, file, images, logits] = &arguments[..] else {
        return Err("logits MODEL CLASSES WEIGHTS IMAGES LOGITS".into());
    };
    let model = ZooModel::from_name(model)?.with_classes(classes.parse()?)?;
    let executor = AnyExecutor::open("cpu", 2)?;
    let training = Training::new(Optimizer::sgd().update);
    let plan = plan_model(&model, &training, executor.target(), &Request::new(2))?;
    let mut session = Session::new(executor, plan, 1)?;
    let loaded = weights::load(&mut session, file.as_ref(), &model, &BytePool::new(64 << 20))?;
    println!("{} of {}, missing {:?}", loaded.taken, loaded.of, loaded.missing);
    for left_out in loaded.foreign.iter().flat_map(|foreign| &foreign.left_out) {
        println!("left out {}: {}", left_out.names.join(", "), left_out.reason);
    }
    let bytes = std::fs::read(images)?;
    let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
    let rows = numbers.len() / (224 * 224 * 3);
    let given = session.predict(&[("x", TensorView::f32(&[rows, 224, 224, 3], &numbers))], "logits")?;
    std::fs::write(logits, given.numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>())?;
    Ok(())
}
