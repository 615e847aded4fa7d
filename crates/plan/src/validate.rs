//! The validator: runs a program on paper and remembers, for every byte range, who wrote it last. It knows nothing of
//! lifetimes or packing and shares no code with them: a value that is read must still be there, unharmed.

use memfit_ir::{Graph, Op, ValueId};

use crate::types::{Place, Plan, Program, Segment};

/// What lies in memory, by its writer.
struct Written {
    place: Place,
    value: ValueId,
}

/// Checks that a program only reads what is there, stays inside its segments, and leaves every state updated.
pub fn validate(plan: &Plan, program: &Program, alignment: u64) -> Result<(), String> {
    let graph = &program.graph;
    let mut memory: Vec<Written> = Vec::new();
    for v in (0..graph.values().len() as u32).map(ValueId) {
        if let Some(place) = program.place(v) {
            check_place(plan, graph, v, place, alignment)?;
        }
        if matches!(graph.producer_op(v), Op::Input(_) | Op::State(_)) {
            write(program, &mut memory, v)?;
        }
    }
    let mut done = vec![false; graph.nodes().len()];
    for (number, step) in program.steps.iter().enumerate() {
        let inside = |v: ValueId| step.group.nodes.contains(&graph.producer(v));
        for id in &step.group.nodes {
            for &v in &graph.node(*id).inputs {
                if !inside(v) {
                    read(program, &memory, v).map_err(|e| format!("step {number}: {e}"))?;
                }
            }
            if std::mem::replace(&mut done[id.index()], true) {
                return Err(format!("node {} runs twice", id.0));
            }
        }
        if let Some(scratch) = step.scratch {
            let problem = |e| format!("step {number}: the scratch {e}");
            bounds(plan, scratch, alignment).map_err(problem)?;
            // Scratch and results must not overlap each other or anything that is read in this step.
            let reads = step.group.nodes.iter().flat_map(|id| &graph.node(*id).inputs);
            for v in reads.chain(&step.group.writes) {
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
            in_place_is_a_donation(program, number, v, place)?;
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

/// A result may overlap something read by the same kernel only where it takes over that very state.
fn in_place_is_a_donation(program: &Program, number: usize, v: ValueId, place: Place) -> Result<(), String> {
    let graph = &program.graph;
    for id in &program.steps[number].group.nodes {
        for &r in &graph.node(*id).inputs {
            let inside = program.steps[number].group.nodes.contains(&graph.producer(r));
            let mut source = r;
            while let Op::Reshape(_) = graph.producer_op(source) {
                source = graph.node(graph.producer(source)).inputs[0];
            }
            let donated = graph.donations.iter().any(|d| d.old == source && d.new == v);
            if !inside && !donated && program.place(r).is_some_and(|p| overlap(p, place)) {
                return Err(format!("step {number}: %{} overwrites %{}, which it reads", v.0, r.0));
            }
        }
    }
    Ok(())
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
    if memory.iter().any(|w| w.value == v) {
        return Ok(());
    }
    let node = graph.node(graph.producer(v));
    match &node.op {
        Op::Reshape(_) if program.place(v) == program.place(node.inputs[0]) => read(program, memory, node.inputs[0]),
        // A constant without a place is held by the kernel itself.
        Op::Fill(_) if program.place(v).is_none() => Ok(()),
        _ => Err(format!("%{} ({} in \"{}\") is read, but is not there any more", v.0, node.op.name(), node.scope)),
    }
}

fn check_place(plan: &Plan, graph: &Graph, v: ValueId, place: Place, alignment: u64) -> Result<(), String> {
    if place.size != graph.ty(v).bytes() {
        return Err(format!("%{} is {} but has {} bytes", v.0, graph.ty(v), place.size));
    }
    bounds(plan, place, alignment).map_err(|e| format!("%{} {e}", v.0))
}

fn bounds(plan: &Plan, place: Place, alignment: u64) -> Result<(), String> {
    let limit = match place.segment {
        Segment::State => plan.state_bytes,
        Segment::Transient => plan.transient_bytes,
    };
    match place.offset.checked_add(place.size) {
        Some(end) if end <= limit && place.offset.is_multiple_of(alignment) => Ok(()),
        Some(_) | None => {
            Err(format!("lies at {} with {} bytes, outside of {limit} or unaligned", place.offset, place.size))
        }
    }
}
