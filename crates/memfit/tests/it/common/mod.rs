//! Batches of numbers for any model.

#![allow(dead_code)] // Each test file uses its part.

use memfit::ir::op::{CLOCK, LEARNING_RATE};
use memfit::ir::{DType, Graph, TensorType, philox};
use memfit::{Plan, TensorView, ZooModel};

/// What a step reads, by name.
pub struct Batch(Vec<(String, TensorType, Vec<u8>)>);

impl Batch {
    pub fn of(plan: &Plan, model: &ZooModel, seed: u64) -> Batch {
        let graph = &plan.programs[0].graph;
        let data = graph.inputs().filter(|(n, _)| *n != CLOCK && *n != LEARNING_RATE);
        Batch(data.map(|(n, v)| (n.to_string(), graph.ty(v).clone(), numbers(graph, n, v, model, seed))).collect())
    }

    pub fn views(&self) -> Vec<(&str, TensorView<'_>)> {
        self.0.iter().map(|(n, t, b)| (n.as_str(), TensorView { dtype: t.dtype, shape: &t.shape, bytes: b })).collect()
    }
}

fn numbers(graph: &Graph, name: &str, v: memfit::ir::ValueId, model: &ZooModel, seed: u64) -> Vec<u8> {
    let ty = graph.ty(v);
    let n = ty.elements();
    match (ty.dtype, name) {
        // Masks.
        (DType::F32, "y") => philox::uniform(seed, name, n).flat_map(|x| f32::from(x > 0.0).to_ne_bytes()).collect(),
        (DType::F32, _) => philox::normal(seed, name, n).flat_map(f32::to_ne_bytes).collect(),
        _ => {
            let classes = model.classes() as f32;
            let id = |x: f32| ((x + 1.0) / 2.0 * classes).min(classes - 1.0) as i32;
            philox::uniform(seed, name, n).flat_map(|x| id(x).to_ne_bytes()).collect()
        }
    }
}

/// Bytes of this process that are in memory, where the system says it.
pub fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
