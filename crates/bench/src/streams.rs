//! Kernels that memory bounds, on the shapes of models and by family.

use memfit::ir::op::{Eps, Unary};
use memfit::ir::{Builder, Graph, Op, TensorType};

use crate::case::{is_stream, kernels_of};
use crate::{Failure, Workload};

/// One kernel, or a chain of elementwise ones that run as one.
pub struct Stream {
    pub family: &'static str,
    pub name: String,
    pub graph: Graph,
    /// What it reads and writes, each once.
    pub bytes: f64,
    /// How often a step has it.
    pub count: usize,
}

/// Those of four models, and their updates. Elementwise ops are in chains only, as they are in steps.
pub fn streams() -> Result<Vec<Stream>, Failure> {
    let mut list = chains()?;
    for name in ["resnet50", "mobilenet_v3_large", "unet", "gpt"] {
        let workload = Workload::from_name(name)?;
        for case in kernels_of(&workload.model()?, workload.batch, &workload.training()?, |op| family(op).is_some())? {
            let Some(family) = family(&case.op) else { continue };
            let (name, graph, bytes) = (case.name(), case.graph()?, case.work()?.bytes);
            list.push(Stream { family, name, graph, bytes, count: case.count });
        }
    }
    Ok(list)
}

fn family(op: &Op) -> Option<&'static str> {
    Some(match op {
        Op::BatchStats | Op::BatchApply(_) => "batch norm, forward",
        Op::BatchGradReduce(_) | Op::BatchGradInput(_) => "batch norm, backward",
        Op::LayerNorm(_) => "layer norm, forward",
        Op::LayerNormGrad => "layer norm, backward",
        Op::CrossEntropy(_) => "softmax and cross-entropy, forward",
        Op::CrossEntropyGrad(_) => "softmax and cross-entropy, backward",
        Op::Update(update) => match update.name() {
            "sgd" => "update: SGD with momentum",
            "adam" => "update: Adam",
            "adamw" => "update: AdamW",
            other => other,
        },
        Op::Conv(conv) if conv.groups > 1 => "depthwise convolution, forward",
        Op::ConvTranspose(t) if t.conv.groups > 1 => "depthwise convolution, by the input",
        Op::ConvFilter(f) if f.conv.groups > 1 => "depthwise convolution, by the filter",
        Op::MaxPool(_) => "max pooling, forward",
        Op::MaxPoolGrad(_) => "max pooling, backward",
        Op::Gather => "embedding, forward",
        Op::GatherGrad(_) => "embedding, backward",
        Op::Reduce(_) => "sums and means",
        Op::Slice(_) | Op::Concat(_) | Op::Transpose(_) | Op::Pad(_) | Op::Broadcast(_) => {
            "slices, concatenations, broadcasts"
        }
        other if is_stream(other) && !other.is_elementwise() => other.name(),
        _ => return None,
    })
}

/// The ends of resnet50's blocks, and the middle of gpt's.
fn chains() -> Result<Vec<Stream>, Failure> {
    let mut list = Vec::new();
    for (side, channels, count) in [(56, 256, 3), (28, 512, 4), (14, 1024, 6), (7, 2048, 3)] {
        let graph = block_end(&[16, side, side, channels])?;
        list.push(chain("chain: batch norm, sum, ReLU", graph, count));
    }
    list.push(chain("chain: bias, GELU", biased_gelu(&[8, 256, 1536])?, 6));
    Ok(list)
}

fn chain(family: &'static str, graph: Graph, count: usize) -> Stream {
    let values = graph.inputs().map(|(_, v)| v).chain(graph.outputs.iter().map(|(_, v)| *v));
    let bytes = values.map(|v| graph.ty(v).bytes() as f64).sum();
    let name =
        format!("{family} of {}", graph.outputs.first().map_or(String::new(), |(_, v)| graph.ty(*v).to_string()));
    Stream { family, name, graph, bytes, count }
}

fn block_end(shape: &[usize]) -> Result<Graph, Failure> {
    let mut b = Builder::new();
    let (x, skip) = (b.input("x", TensorType::f32(shape))?, b.input("skip", TensorType::f32(shape))?);
    let mut inputs = vec![x];
    for name in ["mean", "var", "scale", "bias"] {
        inputs.push(b.input(name, TensorType::f32(&shape[shape.len() - 1..]))?);
    }
    let y = b.op(Op::BatchApply(Eps(1e-5)), &inputs)?;
    let y = b.add(y, skip)?;
    let y = b.unary(Unary::Relu, y)?;
    b.output("y", y);
    Ok(b.finish())
}

fn biased_gelu(shape: &[usize]) -> Result<Graph, Failure> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32(shape))?;
    let bias = b.input("bias", TensorType::f32(&shape[shape.len() - 1..]))?;
    let y = b.add(x, bias)?;
    let y = b.unary(Unary::GeluTanh, y)?;
    b.output("y", y);
    Ok(b.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timed;

    #[test]
    fn every_family_has_kernels_that_run_and_move_bytes() {
        let all = streams().unwrap();
        for family in
            ["chain: bias, GELU", "batch norm, backward", "layer norm, forward", "update: AdamW", "update: Adam"]
        {
            let smallest = all.iter().filter(|s| s.family == family).min_by(|a, b| a.bytes.total_cmp(&b.bytes));
            let smallest = smallest.unwrap_or_else(|| panic!("there is no {family}"));
            assert!(smallest.bytes > 0.0 && smallest.count > 0, "{}", smallest.name);
            Timed::new(smallest.graph.clone(), 2).unwrap().run().unwrap();
        }
    }

    #[test]
    fn a_chain_counts_what_crosses_its_border_only() {
        let stream = chain("a chain", biased_gelu(&[2, 3, 5]).unwrap(), 1);
        assert_eq!(stream.bytes, 4.0 * (30.0 + 5.0 + 30.0));
    }
}
