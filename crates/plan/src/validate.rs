//! The validator: runs a program on paper and remembers, for every byte range, who wrote it last. It knows nothing of
//! lifetimes or packing and shares no code with them: a value that is read must still be there, unharmed.

use memfit_ir::{Graph, Op, ValueId};
use memfit_transform::Group;

use crate::target::Target;
use crate::types::{Place, Plan, Program, Segment};

/// What lies in memory, by its writer.
struct Written {
    place: Place,
    value: ValueId,
}

/// Checks that a program only reads what is there, stays inside its segments, and leaves every state updated.
pub fn validate(plan: &Plan, program: &Program, target: &dyn Target) -> Result<(), String> {
    let graph = &program.graph;
    if plan.state_bytes.max(plan.transient_bytes) > target.largest_segment() {
        return Err(format!("a segment is larger than the {} that the device can give", target.largest_segment()));
    }
    let mut memory: Vec<Written> = Vec::new();
    for v in (0..graph.values().len() as u32).map(ValueId) {
        if let Some(place) = program.place(v) {
            check_place(plan, graph, v, place, target)?;
        }
        if matches!(graph.producer_op(v), Op::Input(_) | Op::State(_)) {
            write(program, &mut memory, v)?;
        }
    }
    let mut done = vec![false; graph.nodes().len()];
    for (number, step) in program.steps.iter().enumerate() {
        let reads = operands(graph, &step.group);
        for &v in &reads {
            read(program, &memory, v).map_err(|e| format!("step {number}: {e}"))?;
        }
        for id in &step.group.nodes {
            if std::mem::replace(&mut done[id.index()], true) {
                return Err(format!("node {} runs twice", id.0));
            }
        }
        if let Some(scratch) = step.scratch {
            let problem = |e| format!("step {number}: the scratch {e}");
            bounds(plan, scratch, target).map_err(problem)?;
            // Scratch and results must not overlap each other or anything that is read in this step.
            for v in reads.iter().chain(&step.group.writes) {
                if program.place(*v).is_some_and(|p| overlap(p, scratch)) {
                    return Err(format!("step {number}: the scratch overlaps %{}", v.0));
                }
            }
            memory.retain(|w| !overlap(w.place, scratch));
        }
        for (i, &v) in step.group.writes.iter().enumerate() {
            let place = program.place(v).ok_or(format!("step {number}: %{} has no place", v.0))?;
            let others = &step.group.writes[..i];
            if others.iter().any(|o| program.place(*o).is_some_and(|p| overlap(p, place))) {
                return Err(format!("step {number}: two results overlap at %{}", v.0));
            }
            check_in_place(program, number, v, place, target)?;
            write(program, &mut memory, v)?;
        }
    }
    for (name, v) in &graph.outputs {
        read(program, &memory, *v).map_err(|e| format!("output \"{name}\": {e}"))?;
    }
    for d in &graph.donations {
        if program.place(d.new) != program.place(d.old) {
            return Err(format!("%{} does not take the place of %{}", d.new.0, d.old.0));
        }
        read(program, &memory, d.new).map_err(|e| format!("new state: {e}"))?;
    }
    Ok(())
}

/// A result may overlap something read by the same kernel only where it lies exactly there and the target can do that.
fn check_in_place(
    program: &Program,
    number: usize,
    v: ValueId,
    place: Place,
    target: &dyn Target,
) -> Result<(), String> {
    let graph = &program.graph;
    let group = &program.steps[number].group;
    for r in operands(graph, group) {
        let Some(read) = program.place(r).filter(|p| overlap(*p, place)) else { continue };
        if read != place || !target.can_run_in_place(graph, group, r, v) {
            return Err(format!("step {number}: %{} overwrites %{}, which it reads", v.0, r.0));
        }
    }
    Ok(())
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

fn write(program: &Program, memory: &mut Vec<Written>, v: ValueId) -> Result<(), String> {
    let Some(place) = program.place(v) else {
        return Ok(());
    };
    memory.retain(|w| !overlap(w.place, place));
    memory.push(Written { place, value: v });
    Ok(())
}

/// A value is there if it was written and nothing was written over it since; a reshape is there if its source is.
fn read(program: &Program, memory: &[Written], v: ValueId) -> Result<(), String> {
    let graph = &program.graph;
    let mut viewed = v;
    loop {
        if memory.iter().any(|w| w.value == viewed) {
            return Ok(());
        }
        let node = graph.node(graph.producer(viewed));
        match &node.op {
            Op::Reshape(_) if program.place(viewed) == program.place(node.inputs[0]) => viewed = node.inputs[0],
            _ => {
                let (op, layer) = (node.op.name(), &node.scope);
                return Err(format!("%{} ({op} in \"{layer}\") is read, but is not there any more", viewed.0));
            }
        }
    }
}

fn check_place(plan: &Plan, graph: &Graph, v: ValueId, place: Place, target: &dyn Target) -> Result<(), String> {
    if place.size != graph.ty(v).bytes() {
        return Err(format!("%{} is {} but has {} bytes", v.0, graph.ty(v), place.size));
    }
    bounds(plan, place, target).map_err(|e| format!("%{} {e}", v.0))
}

fn bounds(plan: &Plan, place: Place, target: &dyn Target) -> Result<(), String> {
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
