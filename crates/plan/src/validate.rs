//! The validator: runs a program on paper and remembers, for every byte range, who wrote it last. It knows nothing of
//! lifetimes or packing and shares no code with them: a value that is read must still be there, unharmed, and the numbers
//! that a plan gives of itself must be those that are counted on the way (`validate/live.rs`).

#![deny(clippy::wildcard_enum_match_arm)]

mod context;
mod live;

use memfit_ir::{Graph, Op, ValueId};
use memfit_transform::Group;

use crate::target::Target;
use crate::types::{Launch, Place, Plan, Program, Segment};
use context::at_launch;

/// Checks that a program only reads what is there, stays inside its segments, leaves every state as it was or updated, has
/// the scratch that its kernels need, and that its numbers are true.
pub fn validate(plan: &Plan, program: &Program, target: &dyn Target) -> Result<(), String> {
    if plan.state_bytes.max(plan.transient_bytes) > target.largest_segment() {
        return Err(format!("a segment is larger than the {} that the device can give", target.largest_segment()));
    }
    let states = states(&program.graph);
    for v in (0..program.graph.values().len() as u32).map(ValueId) {
        if let Some(place) = program.place(v) {
            check_place(plan, program, v, place, target)?;
            if place.segment == Segment::State && !states[viewed(program, v).index()] {
                return Err(format!("%{} lies in the state segment, but is no state", v.0));
            }
        }
    }
    check_run(plan, program, target)?;
    live::check_numbers(plan, program, &states)
}

/// What lies in memory, by its writer.
struct WriteRecord {
    place: Place,
    value: ValueId,
}

/// Goes through the launches, and looks at what is left when they are done.
fn check_run(plan: &Plan, program: &Program, target: &dyn Target) -> Result<(), String> {
    let graph = &program.graph;
    let mut memory: Vec<WriteRecord> = Vec::new();
    let sources = (0..graph.values().len() as u32).map(ValueId);
    for v in sources.filter(|v| matches!(graph.producer_op(*v), Op::Input(_) | Op::State(_))) {
        record_write(program, &mut memory, v);
    }
    let mut done = vec![false; graph.nodes().len()];
    for (number, launch) in program.launches.iter().enumerate() {
        let at_launch = |problem: String| at_launch(program, number, &problem);
        for id in &launch.group.nodes {
            if std::mem::replace(&mut done[id.index()], true) {
                return Err(at_launch(format!("node {} runs twice", id.0)));
            }
        }
        check_launch(plan, program, launch, &mut memory, target).map_err(at_launch)?;
    }
    for (name, v) in &graph.outputs {
        check_present(program, &memory, *v).map_err(|e| format!("output \"{name}\": {e}"))?;
    }
    for d in &graph.donations {
        if program.place(d.new) != program.place(d.old) {
            return Err(format!("%{} does not take the place of %{}", d.new.0, d.old.0));
        }
        check_present(program, &memory, d.new).map_err(|e| format!("new state: {e}"))?;
    }
    for (state, v) in graph.states().filter(|(_, v)| !graph.donations.iter().any(|d| d.old == *v)) {
        check_present(program, &memory, v).map_err(|e| format!("state \"{}\": {e}", state.name))?;
    }
    Ok(())
}

fn check_launch(
    plan: &Plan,
    program: &Program,
    launch: &Launch,
    memory: &mut Vec<WriteRecord>,
    target: &dyn Target,
) -> Result<(), String> {
    let reads = operands(&program.graph, &launch.group);
    for &v in &reads {
        check_present(program, memory, v)?;
    }
    check_scratch(plan, program, launch, &reads, target)?;
    if let Some(scratch) = launch.scratch {
        memory.retain(|w| !overlap(w.place, scratch));
    }
    for (i, &v) in launch.group.writes.iter().enumerate() {
        let place = program.place(v).ok_or(format!("%{} has no place", v.0))?;
        let others = &launch.group.writes[..i];
        if others.iter().any(|o| program.place(*o).is_some_and(|p| overlap(p, place))) {
            return Err(format!("two results overlap at %{}", v.0));
        }
        check_in_place(program, &launch.group, &reads, v, place, target)?;
        record_write(program, memory, v);
    }
    Ok(())
}

/// Scratch is as large as the kernel needs it, and overlaps neither its results nor what it reads.
fn check_scratch(
    plan: &Plan,
    program: &Program,
    launch: &Launch,
    reads: &[ValueId],
    target: &dyn Target,
) -> Result<(), String> {
    let (needed, given) =
        (target.scratch_bytes(&program.graph, &launch.group), launch.scratch.map_or(0, |scratch| scratch.size));
    if given != needed {
        let root = program.graph.node(launch.group.root());
        let (op, layer) = (root.op.name(), &root.scope);
        return Err(format!(
            "{op} in \"{layer}\" takes {needed} bytes of scratch on this device, but has {given}; plan for this device"
        ));
    }
    let Some(scratch) = launch.scratch else { return Ok(()) };
    check_bounds(plan, scratch, target).map_err(|e| format!("the scratch {e}"))?;
    if scratch.segment == Segment::State {
        return Err("the scratch lies in the state segment".into());
    }
    match reads.iter().chain(&launch.group.writes).find(|v| program.place(**v).is_some_and(|p| overlap(p, scratch))) {
        Some(v) => Err(format!("the scratch overlaps %{}", v.0)),
        None => Ok(()),
    }
}

/// A result may overlap something read by the same kernel only where it lies exactly there and the target can do that.
fn check_in_place(
    program: &Program,
    group: &Group,
    reads: &[ValueId],
    v: ValueId,
    place: Place,
    target: &dyn Target,
) -> Result<(), String> {
    for &r in reads {
        let Some(read) = program.place(r).filter(|p| overlap(*p, place)) else { continue };
        if read != place || !target.can_run_in_place(&program.graph, group, r, v) {
            return Err(format!("%{} overwrites %{}, which it reads", v.0, r.0));
        }
    }
    Ok(())
}

/// By value: whether it is a state, or what a state becomes.
fn states(graph: &Graph) -> Vec<bool> {
    let mut found = vec![false; graph.values().len()];
    graph.states().for_each(|(_, v)| found[v.index()] = true);
    graph.donations.iter().for_each(|d| found[d.new.index()] = true);
    found
}

/// What the nodes of a group read from outside of it. A constant that the group does not ask memory for is held by the
/// kernel itself.
fn operands(graph: &Graph, group: &Group) -> Vec<ValueId> {
    let outside = |v: &ValueId| {
        let held = matches!(graph.producer_op(*v), Op::Fill(_)) && !group.reads.contains(v);
        !held && !group.nodes.contains(&graph.producer(*v))
    };
    group.nodes.iter().flat_map(|id| graph.node(*id).inputs.iter().copied()).filter(outside).collect()
}

fn overlap(a: Place, b: Place) -> bool {
    a.segment == b.segment && a.offset < b.offset + b.size && b.offset < a.offset + a.size
}

fn record_write(program: &Program, memory: &mut Vec<WriteRecord>, v: ValueId) {
    if let Some(place) = program.place(v) {
        memory.retain(|w| !overlap(w.place, place));
        memory.push(WriteRecord { place, value: v });
    }
}

/// What a value is another name for: through reshapes that lie where their source lies.
fn viewed(program: &Program, mut v: ValueId) -> ValueId {
    let graph = &program.graph;
    while let Op::Reshape(_) = graph.producer_op(v) {
        let source = graph.node(graph.producer(v)).inputs[0];
        let donated = graph.donations.iter().any(|d| d.new == v);
        if donated || program.place(source) != program.place(v) {
            break;
        }
        v = source;
    }
    v
}

/// A value is there if it was written and nothing was written over it since; a reshape is there if its source is.
fn check_present(program: &Program, memory: &[WriteRecord], v: ValueId) -> Result<(), String> {
    let there = |v: ValueId| memory.iter().any(|w| w.value == v);
    let source = viewed(program, v);
    if there(v) || there(source) {
        return Ok(());
    }
    let node = program.graph.node(program.graph.producer(source));
    let (op, layer) = (node.op.name(), &node.scope);
    Err(format!("%{} ({op} in \"{layer}\") is read, but is not there any more", source.0))
}

fn check_place(plan: &Plan, program: &Program, v: ValueId, place: Place, target: &dyn Target) -> Result<(), String> {
    let ty = program.graph.ty(v);
    if place.size != ty.bytes() {
        return Err(format!("%{} is {ty} but has {} bytes", v.0, place.size));
    }
    check_bounds(plan, place, target).map_err(|e| format!("%{} {e}", v.0))
}

fn check_bounds(plan: &Plan, place: Place, target: &dyn Target) -> Result<(), String> {
    if place.size > target.largest_binding() {
        return Err(format!(
            "has {} bytes, more than the {} that a kernel can be given",
            place.size,
            target.largest_binding()
        ));
    }
    let limit = match place.segment {
        Segment::State => plan.state_bytes,
        Segment::Transient => plan.transient_bytes,
    };
    match place.offset.checked_add(place.size) {
        Some(end) if end <= limit && place.offset.is_multiple_of(target.alignment()) => Ok(()),
        Some(_) | None => {
            Err(format!("lies at {} with {} bytes, outside of {limit} or unaligned", place.offset, place.size))
        }
    }
}
