//! A refusal from the smallest plan that was found: the instant at which it is fullest, and what is there then.

#![deny(clippy::wildcard_enum_match_arm)]

use memfit_ir::{Op, TensorType, ValueId, in_layer};

use crate::bound::Bound;
use crate::error::{LiveTensor, Refusal};
use crate::report::{live_at, peak_launch};
use crate::types::{Plan, Program};

/// Tensors that a refusal names.
const NAMED: usize = 10;

/// `bound` is of the arena, and `staging_bound` of what stands beside it.
pub fn refuse(smallest: &Plan, budget: u64, bound: &Bound, staging_bound: u64) -> Refusal {
    let mut instant = "the start".to_string();
    let mut largest = Vec::new();
    if let Some((program, launch)) = peak_launch(smallest) {
        let root = program.graph.node(program.launches[launch].group.root());
        instant = format!(
            "{}{} (kernel {} of {} of the {} program)",
            root.op.name(),
            in_layer(&root.scope),
            launch + 1,
            program.launches.len(),
            program.phase.name()
        );
        largest = live_at(program, launch)
            .into_iter()
            .map(|b| resident(program, b.value, b.class.name(), b.place.size))
            .collect();
        if let Some(scratch) = program.launches[launch].scratch {
            let ty = TensorType::new(memfit_ir::DType::U8, [scratch.size as usize]);
            let layer = root.scope.clone();
            largest.push(LiveTensor { layer, op: "scratch", ty, bytes: scratch.size, class: "scratch" });
        }
        largest.sort_by_key(|r| std::cmp::Reverse(r.bytes));
        largest.truncate(NAMED);
    }
    Refusal {
        budget,
        needed: smallest.device_bytes(),
        state_bytes: smallest.state_bytes,
        staging_bytes: smallest.staging_bytes,
        lower_bound: bound.bytes + staging_bound,
        bound_reason: bound.reason.clone(),
        instant,
        largest,
        fixes: Vec::new(),
    }
}

fn resident(program: &Program, v: ValueId, class: &'static str, bytes: u64) -> LiveTensor {
    let node = program.graph.node(program.graph.producer(v));
    let op = if let Op::Input(_) = node.op { "input" } else { node.op.name() };
    LiveTensor { layer: node.scope.clone(), op, ty: program.graph.ty(v).clone(), bytes, class }
}
