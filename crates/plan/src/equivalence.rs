//! Whether a plan computes what its source says: by numbering values, so that the same op on the same values has one number
//! in both graphs. What the planner may choose (order, clones, copies of states, groups, masks or none, places) changes no
//! number; whatever else is different does. Shares no code with the passes that it sees through, but for the masks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use memfit_ir::{Graph, NodeId, Op, ValueId, text};
use memfit_transform::StepGraph;

use crate::passes::save_masks;
use crate::types::{Phase, Plan, Program};

/// The first thing in which a plan is not one of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The program.
    pub phase: Phase,
    /// What the plan has there.
    pub planned: Option<String>,
    /// What the source has.
    pub source: Option<String>,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let words = |side: &Option<String>| side.clone().unwrap_or_else(|| "nothing".into());
        write!(f, "its {} program has {}", self.phase.name(), words(&self.planned))?;
        write!(f, " where the model has {}", words(&self.source))
    }
}

/// Whether a plan has the programs of its source, made for the plan's micro-batch, and each of them computes the same.
pub fn check_source(plan: &Plan, source: &[(Phase, StepGraph)]) -> Result<(), Departure> {
    let whole = |phase: Phase| Some(format!("a program \"{}\"", phase.name()));
    for program in &plan.programs {
        let Some((_, step)) = source.iter().find(|(phase, _)| *phase == program.phase) else {
            return Err(Departure { phase: program.phase, planned: whole(program.phase), source: None });
        };
        check_program(program, step)?;
    }
    match source.iter().find(|(phase, _)| plan.program(*phase).is_none()) {
        Some((phase, _)) => Err(Departure { phase: *phase, planned: None, source: whole(*phase) }),
        None => Ok(()),
    }
}

fn check_program(program: &Program, source: &StepGraph) -> Result<(), Departure> {
    let graph = &program.graph;
    let has_masks = graph.nodes().iter().any(|node| matches!(node.op, Op::Mask(_)));
    let masked = if has_masks { save_masks(source) } else { source.clone() };
    let source = &masked.graph;
    let departs = |planned, source| Err(Departure { phase: program.phase, planned, source });
    let mut numbers = Numbers::default();
    let of_source = numbers.give(source);
    let of_plan = match numbers.find(graph) {
        Ok(of_plan) => of_plan,
        Err(id) => return departs(Some(line(graph, id)), counterpart(graph, id, source).map(|id| line(source, id))),
    };
    let (planned, asked) = (results(graph, &of_plan), results(source, &of_source));
    if let Some((name, _)) = planned.iter().find(|(name, number)| asked.get(*name) != Some(*number)) {
        let other = asked.contains_key(name).then(|| format!("another value as {name}"));
        return departs(Some(name.clone()), other);
    }
    match asked.keys().find(|name| !planned.contains_key(*name)) {
        Some(name) => departs(None, Some(name.clone())),
        None => Ok(()),
    }
}

/// Numbers of values: the same number, the same value.
#[derive(Default)]
struct Numbers {
    /// The number of a node's first result, by what it does to which values.
    first: HashMap<(String, Vec<u32>), u32>,
    next: u32,
}

impl Numbers {
    /// By value, giving new numbers to what has none.
    fn give(&mut self, graph: &Graph) -> Vec<u32> {
        let mut by_value = Vec::with_capacity(graph.values().len());
        for id in graph.node_ids() {
            let key = key(graph, id, &by_value);
            let (count, next) = (graph.node(id).outputs.len() as u32, self.next);
            let first = match copied(graph, id) {
                Some(original) => by_value[original.index()],
                None => *self.first.entry(key).or_insert(next),
            };
            self.next = next.max(first + count);
            by_value.extend(first..first + count);
        }
        by_value
    }

    /// By value; or the first node that has no number.
    fn find(&self, graph: &Graph) -> Result<Vec<u32>, NodeId> {
        let mut by_value = Vec::with_capacity(graph.values().len());
        for id in graph.node_ids() {
            let first = match copied(graph, id) {
                Some(original) => by_value[original.index()],
                None => *self.first.get(&key(graph, id, &by_value)).ok_or(id)?,
            };
            by_value.extend(first..first + graph.node(id).outputs.len() as u32);
        }
        Ok(by_value)
    }
}

fn key(graph: &Graph, id: NodeId, by_value: &[u32]) -> (String, Vec<u32>) {
    (text::print_op(graph, id), graph.node(id).inputs.iter().map(|v| by_value[v.index()]).collect())
}

/// What a node is a mere copy of: a broadcast to the shape that its input has already.
fn copied(graph: &Graph, id: NodeId) -> Option<ValueId> {
    let node = graph.node(id);
    let is_copy = matches!(node.op, Op::Broadcast(_)) && graph.ty(node.inputs[0]) == graph.ty(node.outputs[0]);
    is_copy.then(|| node.inputs[0])
}

/// What a program leaves behind, by name: its outputs, and what its states become. Of values with their numbers.
fn results(graph: &Graph, numbers: &[u32]) -> BTreeMap<String, u32> {
    let outputs = graph.outputs.iter().map(|(name, v)| (format!("the output \"{name}\""), numbers[v.index()]));
    let updates = graph.donations.iter().map(|d| {
        let state = graph.states().find(|(_, v)| *v == d.old).map_or("", |(state, _)| &state.name);
        (format!("an update of \"{state}\""), numbers[d.new.index()])
    });
    outputs.chain(updates).collect()
}

/// The node of the source that stands where a node of the plan does: of the same kind and layer, and rather one that the
/// plan has not.
fn counterpart(graph: &Graph, id: NodeId, source: &Graph) -> Option<NodeId> {
    let node = graph.node(id);
    let is_like = |other: &NodeId| {
        let other = source.node(*other);
        (&other.scope, other.op.name(), other.op.label()) == (&node.scope, node.op.name(), node.op.label())
    };
    let planned: HashSet<String> = graph.node_ids().map(|id| text::print_op(graph, id)).collect();
    let mut alike = source.node_ids().filter(is_like).peekable();
    let first = alike.peek().copied();
    alike.find(|other| !planned.contains(&text::print_op(source, *other))).or(first)
}

/// A node as a person reads it.
fn line(graph: &Graph, id: NodeId) -> String {
    let op = text::print_op(graph, id);
    match graph.node(id).scope.as_str() {
        "" => format!("`{op}`"),
        layer => format!("`{op}` in \"{layer}\""),
    }
}
