//! Scores that are counted on the host against the loss that the eval program computes itself, for every task of the
//! zoo.

use crate::common;

use common::{cpu, plan, training};
use memfit_data::{BytePool, Dataset, LoadOptions, Remainder, Tensors};
use memfit_ir::{DType, TensorType, philox};
use memfit_nn::Model;
use memfit_nn::zoo::{Gpt, Unet};
use memfit_plan::Phase;
use memfit_train::{Metric, Scores, Session, Task, evaluate};

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
fn check(model: &Model, task: Task) -> Scores {
    let plan = plan(&|rows, mode| Ok(model.build(rows, mode)?), &training(), ROWS, None);
    assert_eq!(Task::of(&plan), Some(task));
    let mut session = Session::new(cpu(), plan, 1).unwrap();
    let graph = &session.plan().program(Phase::Eval).unwrap().graph;
    let classes = *graph.ty(graph.output("logits").unwrap()).shape.last().unwrap();
    let tensors = graph.inputs().fold(Tensors::new(), |t, (name, v)| random(t, name, graph.ty(v), classes));
    let data = Dataset::from_tensors(tensors).unwrap().batch(ROWS, Remainder::Drop);
    let load = LoadOptions { threads: 1, ..LoadOptions::new(BytePool::new(1 << 22)) };
    let scores = evaluate(&mut session, &data, task, load).unwrap().scores;
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
    let digits = check(&Model::from_name("digits").unwrap(), Task::Classes);
    assert_eq!(digits.count, ROWS as u64);
    let gpt = check(&Model::Gpt(Gpt { layers: 1, width: 16, heads: 2, sequence: 12, vocabulary: 30 }), Task::Classes);
    assert_eq!(gpt.count, 12 * ROWS as u64, "position by position");
    let perplexity = gpt.perplexity().unwrap();
    assert!((20.0..40.0).contains(&perplexity), "it knows nothing yet of 30 tokens: {perplexity}");
    let unet = check(&Model::Unet(Unet { channels: vec![4, 8], input: [8, 8, 3], outputs: 2 }), Task::Masks);
    assert_eq!((unet.count, unet.perplexity()), (8 * 8 * 2 * ROWS as u64, None), "pixel by pixel and mask by mask");
}
