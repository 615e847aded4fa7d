//! The launches around one that is wrong, in text form, so that an error can be understood without the plan at hand.

use memfit_ir::ValueId;

use crate::types::{Launch, Program};

/// Launches shown before and behind.
const AROUND: usize = 2;

/// The problem of a launch, with the launches around it.
pub fn at_launch(program: &Program, number: usize, problem: &str) -> String {
    let last = program.launches.len().min(number + AROUND + 1);
    let mut text = format!("launch {number}: {problem}");
    for (i, launch) in program.launches[..last].iter().enumerate().skip(number.saturating_sub(AROUND)) {
        let mark = if i == number { '>' } else { ' ' };
        text += &format!("\n  {mark} {i:>4}  {}", line(program, launch));
    }
    text
}

/// What a launch writes, runs and reads, each value with its bytes, and in which layer.
fn line(program: &Program, launch: &Launch) -> String {
    let ops: Vec<&str> = launch.group.nodes.iter().map(|&id| program.graph.node(id).op.name()).collect();
    let list = |values: &[ValueId]| values.iter().map(|&v| value(program, v)).collect::<Vec<_>>().join(", ");
    let (writes, reads) = (list(&launch.group.writes), list(&launch.group.reads));
    let scratch = launch.scratch.map_or(String::new(), |p| format!(" with scratch [{}..{}]", p.offset, end(p)));
    let layer = launch.group.nodes.first().map_or("", |&id| &program.graph.node(id).scope);
    format!("{writes} = {}({reads}){scratch} in \"{layer}\"", ops.join("+"))
}

fn value(program: &Program, v: ValueId) -> String {
    match program.place(v) {
        Some(place) => format!("%{} {}[{}..{}]", v.0, place.segment.name(), place.offset, end(place)),
        None => format!("%{}", v.0),
    }
}

/// What is looked at here may be anything.
fn end(place: crate::types::Place) -> u64 {
    place.offset.saturating_add(place.size)
}
