//! What must hold of any plan, whoever wrote it, besides what the validator checks: numbers that fit together, states
//! that lie apart and where every program looks for them.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::HashMap;

use memfit_ir::op::StateClass;
use memfit_ir::{Graph, Op, Replica, ValueId};

use crate::flow::in_state;
use crate::sizes::check_cut;
use crate::types::{Place, Plan, Program, Segment, StateSlot};

/// More bytes than any machine has; sums below it cannot overflow.
const LIMIT: u64 = 1 << 60;

pub fn check_plan(plan: &Plan) -> Result<(), String> {
    numbers(plan)?;
    states(plan)?;
    for (i, program) in plan.programs.iter().enumerate() {
        let phase = program.phase;
        if plan.programs[..i].iter().any(|p| p.phase == phase) {
            return Err(format!("there are two {} programs", phase.name()));
        }
        check_program(plan, program).map_err(|e| format!("the {} program: {e}", phase.name()))?;
    }
    Ok(())
}

fn numbers(plan: &Plan) -> Result<(), String> {
    check_cut(plan.batch, plan.micro_batch, plan.replica).map_err(|e| e.to_string())?;
    let sizes =
        [plan.state_bytes, plan.transient_bytes, plan.staging_bytes, plan.keep_all_bytes, plan.lower_bound_bytes];
    if sizes.iter().any(|&n| n > LIMIT) || plan.batch as u64 > LIMIT {
        return Err("it takes more bytes than any machine has".into());
    }
    let live = plan.programs.iter().flat_map(|p| &p.launches).map(|s| s.live_bytes).max().unwrap_or(0);
    if live > plan.transient_bytes || plan.peak_bytes != plan.state_bytes + live {
        return Err(format!(
            "its peak is said to be {}, but is {}",
            plan.peak_bytes,
            plan.state_bytes.saturating_add(live)
        ));
    }
    // The whole batch is addressed in one piece.
    let batch = (plan.batch / plan.micro_batch) as u128 * plan.input_bytes() as u128;
    if batch > LIMIT as u128 {
        return Err("a batch has more bytes than any machine has".into());
    }
    let times = plan.programs.iter().flat_map(|p| &p.launches).map(|s| s.seconds);
    let mut times = times.chain([plan.predicted_step_seconds, plan.fastest_step_seconds]);
    match times.find(|t| !t.is_finite() || *t < 0.0) {
        Some(time) => Err(format!("a predicted time is {time} seconds")),
        None => Ok(()),
    }
}

/// Every state lies in the segment of its class, and no two overlap.
fn states(plan: &Plan) -> Result<(), String> {
    let mut ends: Vec<(Segment, u64, u64)> = Vec::new();
    for s in &plan.states {
        let (segment, limit) = match s.class {
            StateClass::Accumulator => (Segment::Transient, plan.transient_bytes),
            StateClass::Param | StateClass::Slot | StateClass::Statistic => (Segment::State, plan.state_bytes),
        };
        let end = s.place.offset.checked_add(s.place.size);
        if s.place.segment != segment || s.place.size != s.ty.bytes() || end.is_none_or(|end| end > limit) {
            return Err(format!("the state \"{}\" does not lie where it could", s.name));
        }
        ends.push((segment, s.place.offset, s.place.offset + s.place.size));
    }
    ends.sort_unstable();
    let overlap = |w: &[(Segment, u64, u64)]| w[0].0 == w[1].0 && w[1].1 < w[0].2;
    if ends.windows(2).any(overlap) { Err("two states overlap".into()) } else { Ok(()) }
}

fn check_program(plan: &Plan, program: &Program) -> Result<(), String> {
    let graph = &program.graph;
    check_exchanges(plan.replica, graph)?;
    let slots: HashMap<&str, &StateSlot> = plan.states.iter().map(|s| (s.name.as_str(), s)).collect();
    let in_state = in_state(graph);
    let mut pinned: Vec<Place> = Vec::new();
    for (state, v) in graph.states() {
        let known = slots.get(state.name.as_str()).filter(|s| {
            s.class == state.class && s.init == state.init && s.ty == *graph.ty(v) && program.place(v) == Some(s.place)
        });
        let slot = known.ok_or_else(|| format!("it has another idea of the state \"{}\" than the plan", state.name))?;
        if slot.class == StateClass::Accumulator {
            pinned.push(slot.place);
        }
    }
    for v in (0..graph.values().len() as u32).map(ValueId) {
        // Another name for the bytes of a state; whether it is one, the validator knows.
        let view = matches!(graph.producer_op(v), Op::Reshape(_))
            && program.place(v) == program.place(graph.node(graph.producer(v)).inputs[0]);
        if let Some(place) = program.place(v).filter(|_| !in_state[v.index()] && !view) {
            outside(place, &pinned).map_err(|e| format!("%{} {e}", v.0))?;
        }
    }
    program.launches.iter().filter_map(|s| s.scratch).try_for_each(|p| outside(p, &pinned))
}

/// Every exchange is one of the plan's replica.
fn check_exchanges(replica: Replica, graph: &Graph) -> Result<(), String> {
    let is_own = |op: &Op| {
        if let Op::Join(join) = op {
            join.replica == replica
        } else if let Op::Replicate(state) = op {
            (state.rank, state.count) == (replica.rank, replica.count) && state.owner < replica.count
        } else {
            true
        }
    };
    match graph.nodes().iter().find(|node| !is_own(&node.op)) {
        Some(node) => Err(format!("{} is that of another replica", node.op.name())),
        None => Ok(()),
    }
}

/// What lives for a step only must not touch what lives longer.
fn outside(place: Place, pinned: &[Place]) -> Result<(), String> {
    let end = place.offset.saturating_add(place.size);
    let touches = |p: &Place| place.offset < p.offset + p.size && p.offset < end;
    if place.segment == Segment::State || pinned.iter().any(touches) {
        return Err(format!("lies at {} in the memory of a state", place.offset));
    }
    Ok(())
}
