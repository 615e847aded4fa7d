//! The form of a plan, one thing a line.

use memfit_ir::op::State;
use memfit_ir::{Graph, Op, Replica, text};
use memfit_transform::Fusion;
use memfit_transform::group::Prologues;
use serde_json::{Value, json};

use super::Labels;
use crate::types::{Launch, MadeFor, Place, Plan, Program, Segment, StateSlot};

/// All of the file but its head, in one of the formats; the checksum is of this.
pub fn body(plan: &Plan, labels: &Labels, format: u64) -> String {
    let mut numbers = json!({
        "batch": plan.batch,
        "micro_batch": plan.micro_batch,
        "state_bytes": plan.state_bytes,
        "transient_bytes": plan.transient_bytes,
        "peak_bytes": plan.peak_bytes,
        "keep_all_bytes": plan.keep_all_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "recomputed_ops": plan.recomputed_ops,
        "savings": plan.savings.iter().map(|s| json!([s.tool.name(), s.bytes])).collect::<Vec<_>>(),
        "predicted_step_seconds": plan.predicted_step_seconds,
        "fastest_step_seconds": plan.fastest_step_seconds,
        "profile": format!("{:016x}", plan.cost_model_hash),
    });
    if plan.staging_bytes > 0 {
        numbers["staging_bytes"] = plan.staging_bytes.into();
    }
    let mut parts = vec![format!("\"run\":{}", json!(labels))];
    if let Some(MadeFor { device, instruction_set, threads }) = &plan.made_for {
        let made_for = json!({ "device": device, "instruction_set": instruction_set, "threads": threads });
        parts.push(format!("\"made_for\":{made_for}"));
    }
    if plan.replica != Replica::ALONE {
        let Replica { lanes, count, rank } = plan.replica;
        parts.push(format!("\"replica\":{}", json!({ "lanes": lanes, "count": count, "rank": rank })));
    }
    parts.push(format!("\"numbers\":{numbers}"));
    if format >= 2 {
        parts.push(format!("\"fusion\":{}", fusion(&plan.fusion)));
    }
    parts.push(format!("\"states\":{}", list(states(&plan.states).lines().map(|l| json!(l)))));
    parts.push(format!("\"state_places\":{}", list(plan.states.iter().map(|s| place_json(s.place)))));
    let programs: Vec<String> = plan.programs.iter().map(|p| program(p, format)).collect();
    parts.push(format!("\"programs\":[{}]", programs.join(",\n")));
    parts.join(",\n")
}

fn fusion(fusion: &Fusion) -> Value {
    let prologues = |p: Prologues| json!({ "max_columns": p.max_columns, "max_filter": p.max_filter, "many_columns": p.many_columns });
    json!({
        "max_nodes": fusion.max_nodes,
        "max_operands": fusion.max_operands,
        "prologues": fusion.prologues.map(prologues),
        "max_reductions": fusion.max_reductions,
    })
}

fn program(program: &Program, format: u64) -> String {
    let graph = text::print(&program.graph);
    let mut parts = vec![
        format!("\"phase\":\"{}\"", program.phase.name()),
        format!("\"graph\":{}", list(graph.lines().map(|l| json!(l)))),
        format!("\"steps\":{}", list(program.launches.iter().map(launch))),
        format!("\"places\":{}", list(program.places.iter().map(|p| p.map_or(Value::Null, place_json)))),
        format!("\"clones\":{}", json!(program.clones.iter().map(|id| id.0).collect::<Vec<_>>())),
    ];
    if format >= 2 {
        parts.push(format!("\"forward_end\":{}", json!(program.forward_end.map(|id| id.0))));
    }
    format!("{{\n{}\n}}", parts.join(",\n"))
}

fn launch(launch: &Launch) -> Value {
    json!({
        "nodes": launch.group.nodes.iter().map(|id| id.0).collect::<Vec<_>>(),
        "scratch": launch.scratch.map(place_json),
        "dies": launch.dies.iter().map(|v| v.0).collect::<Vec<_>>(),
        "live_bytes": launch.live_bytes,
        "seconds": launch.seconds,
    })
}

/// The states as a graph of their own.
fn states(slots: &[StateSlot]) -> String {
    let mut graph = Graph::new();
    for s in slots {
        let state =
            State { name: s.name.clone(), class: s.class, dtype: s.ty.dtype, shape: s.ty.shape.clone(), init: s.init };
        // Types that stood in a graph stand in this one too.
        let pushed = graph.push(Op::State(state), &[], "");
        debug_assert!(pushed.is_ok(), "{pushed:?}");
    }
    text::print(&graph)
}

fn place_json(place: Place) -> Value {
    let segment = match place.segment {
        Segment::State => "state",
        Segment::Transient => "transient",
    };
    json!([segment, place.offset, place.size])
}

fn list(items: impl Iterator<Item = Value>) -> String {
    let lines: Vec<String> = items.map(|v| v.to_string()).collect();
    if lines.is_empty() { "[]".into() } else { format!("[\n{}\n]", lines.join(",\n")) }
}
