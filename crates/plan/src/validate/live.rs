//! Counts the bytes that are live at every launch, and what dies when, from what the launches read and write and from nothing
//! else; and holds what a plan says of itself against that.

use std::collections::HashMap;

use memfit_ir::op::StateClass;
use memfit_ir::{Op, ValueId};

use super::context::at_launch;
use super::{operands, viewed};
use crate::types::{Place, Plan, Program};

/// `states` is by value: those that are one, or become one.
pub fn check_numbers(plan: &Plan, program: &Program, states: &[bool]) -> Result<(), String> {
    let lives = lives(program, states);
    let (mut born, mut ends) = (vec![Vec::new(); program.launches.len()], vec![Vec::new(); program.launches.len()]);
    for life in &lives {
        born.get_mut(life.born).into_iter().for_each(|list| list.push(life));
        life.last.and_then(|last| ends.get_mut(last)).into_iter().for_each(|list| list.push(life));
    }
    let accumulators = program.graph.states().filter(|(s, _)| s.class == StateClass::Accumulator);
    let mut bytes: u64 = accumulators.map(|(_, v)| program.graph.ty(v).bytes()).sum();
    // How many of the live values lie in a place: two while one takes over from the other.
    let mut there: HashMap<Place, usize> = HashMap::new();
    for (number, launch) in program.launches.iter().enumerate() {
        for life in &born[number] {
            let values = there.entry(life.place).or_default();
            bytes += if *values == 0 { life.place.size } else { 0 };
            *values += 1;
        }
        let live = bytes + launch.scratch.map_or(0, |scratch| scratch.size);
        if launch.live_bytes != live {
            let problem = format!("{} bytes are said to be live, but {live} are", launch.live_bytes);
            return Err(at_launch(program, number, &problem));
        }
        let mut dead = Vec::new();
        // What was made first was taken over, if anything was.
        for life in &ends[number] {
            let values = there.entry(life.place).or_insert(1);
            *values -= 1;
            if *values == 0 {
                bytes -= life.place.size;
                dead.push(life.value);
            }
        }
        check_deaths(program, number, dead)?;
    }
    check_peak(plan)
}

/// When a value is needed.
struct Life {
    value: ValueId,
    place: Place,
    /// The launch that makes it, or the first for what is staged.
    born: usize,
    /// The last launch that needs it; none where it is needed when the run ends.
    last: Option<usize>,
}

/// Of all values with bytes of their own in the transient segment, in the order in which they are made.
fn lives(program: &Program, states: &[bool]) -> Vec<Life> {
    let graph = &program.graph;
    let mut at: Vec<Option<usize>> = vec![None; states.len()];
    let mut lives: Vec<Life> = Vec::new();
    let mut begin = |v: ValueId, born: usize| {
        let place = program.place(v).filter(|p| p.size > 0 && !states[v.index()]);
        if let Some(place) = place {
            at[v.index()] = Some(lives.len());
            lives.push(Life { value: v, place, born, last: Some(born) });
        }
    };
    for v in (0..states.len() as u32).map(ValueId).filter(|v| matches!(graph.producer_op(*v), Op::Input(_))) {
        begin(v, 0);
    }
    for (number, launch) in program.launches.iter().enumerate() {
        launch.group.writes.iter().for_each(|&v| begin(v, number));
    }
    let mut need = |v: ValueId, until: Option<usize>| {
        if let Some(i) = at[viewed(program, v).index()] {
            lives[i].last = until;
        }
    };
    for (number, launch) in program.launches.iter().enumerate() {
        operands(graph, &launch.group).into_iter().for_each(|v| need(v, Some(number)));
    }
    graph.outputs.iter().for_each(|(_, v)| need(*v, None));
    lives
}

fn check_deaths(program: &Program, number: usize, mut dead: Vec<ValueId>) -> Result<(), String> {
    let has_bytes = |v: &ValueId| program.graph.ty(*v).bytes() > 0;
    let mut said: Vec<ValueId> = program.launches[number].dies.iter().copied().filter(has_bytes).collect();
    said.sort_unstable();
    dead.sort_unstable();
    if said == dead {
        return Ok(());
    }
    let problem = format!("{} are said to die, but {} do", named(&said), named(&dead));
    Err(at_launch(program, number, &problem))
}

fn named(values: &[ValueId]) -> String {
    let names: Vec<String> = values.iter().map(|v| format!("%{}", v.0)).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// The peak of a plan is the most that its launches say to be live.
fn check_peak(plan: &Plan) -> Result<(), String> {
    let most = plan.programs.iter().flat_map(|p| &p.launches).map(|s| s.live_bytes).max().unwrap_or(0);
    let peak = plan.state_bytes.saturating_add(most);
    if plan.peak_bytes != peak {
        return Err(format!("the peak is said to be {} bytes, but is {peak}", plan.peak_bytes));
    }
    Ok(())
}
