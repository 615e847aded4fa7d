//! What differs between two plans, for a person who decides which to take. Read off the plans alone.

use std::collections::{BTreeMap, HashMap};

use memfit_ir::{NodeId, ValueId};

use crate::report::{Class, classes_at_peak};
use crate::types::{Plan, Program};

/// A quantity in both plans.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair<T> {
    pub what: T,
    pub before: u64,
    pub after: u64,
}

/// A value of the forward pass that one plan keeps and the other recomputes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MovedValue {
    pub layer: String,
    pub op: &'static str,
    pub ty: String,
    pub bytes: u64,
    /// Recomputed before and kept now; or else the other way round.
    pub kept_now: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Bytes at the peak, by class; those that are in either plan.
    pub classes: Vec<Pair<Class>>,
    /// Ops that are recomputed, by layer; only layers that differ.
    pub recomputed: Vec<Pair<String>>,
    /// Largest first.
    pub moved: Vec<MovedValue>,
}

pub fn compare(before: &Plan, after: &Plan) -> Comparison {
    let (a, b) = (classes_at_peak(before), classes_at_peak(after));
    let bytes = |list: &[(Class, u64)], class: Class| list.iter().find(|c| c.0 == class).map_or(0, |c| c.1);
    let classes = Class::ALL.into_iter().map(|c| Pair { what: c, before: bytes(&a, c), after: bytes(&b, c) });
    let (values_before, values_after) = (forward_values(before), forward_values(after));
    let (a, b) = (by_layer(before), by_layer(after));
    let layers: BTreeMap<&String, ()> = a.keys().chain(b.keys()).map(|l| (l, ())).collect();
    let count = |list: &BTreeMap<String, u64>, layer: &String| list.get(layer).copied().unwrap_or(0);
    let recomputed = layers.into_keys().map(|l| Pair { what: l.clone(), before: count(&a, l), after: count(&b, l) });
    let mut moved: Vec<MovedValue> =
        values_after.iter().filter_map(|(key, now)| moved(key, values_before.get(key)?, now)).collect();
    moved.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.cmp(b)));
    Comparison {
        classes: classes.filter(|p| p.before + p.after > 0).collect(),
        recomputed: recomputed.filter(|p| p.before != p.after).collect(),
        moved,
    }
}

fn by_layer(plan: &Plan) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for program in &plan.programs {
        for id in &program.clones {
            *counts.entry(program.graph.node(*id).scope.clone()).or_default() += 1;
        }
    }
    counts
}

/// A forward node in any plan of a model: its layer and op, and which of those it is.
type Key = (String, &'static str, usize);

struct ForwardValue {
    recomputed: bool,
    ty: String,
    bytes: u64,
}

fn moved(key: &Key, before: &ForwardValue, now: &ForwardValue) -> Option<MovedValue> {
    let changed = before.recomputed != now.recomputed && before.ty == now.ty;
    changed.then(|| MovedValue {
        layer: key.0.clone(),
        op: key.1,
        ty: now.ty.clone(),
        bytes: now.bytes,
        kept_now: !now.recomputed,
    })
}

/// What becomes of the forward values that the backward pass reads.
fn forward_values(plan: &Plan) -> HashMap<Key, ForwardValue> {
    let mut found = HashMap::new();
    for program in plan.programs.iter().filter(|p| p.phase.is_training()) {
        let graph = &program.graph;
        let Some(end) = program.forward_end else { continue };
        let recomputed = origins(program);
        let kept = read_after(program, end);
        let mut counts: HashMap<(&str, &'static str), usize> = HashMap::new();
        for id in graph.node_ids().filter(|id| *id <= end && !program.clones.contains(id)) {
            let node = graph.node(id);
            let count = counts.entry((&node.scope, node.op.name())).or_default();
            let key = (node.scope.clone(), node.op.name(), *count);
            *count += 1;
            let is_recomputed = recomputed[id.index()];
            if !is_recomputed && !node.outputs.iter().any(|v| kept[v.index()]) {
                continue;
            }
            let types: Vec<String> = node.outputs.iter().map(|v| graph.ty(*v).to_string()).collect();
            let bytes = node.outputs.iter().map(|v| graph.ty(*v).bytes()).sum();
            found.insert(key, ForwardValue { recomputed: is_recomputed, ty: types.join(", "), bytes });
        }
    }
    found
}

/// By node: whether some clone makes its values again. A clone has the op of its origin, and its operands are those of
/// its origin or clones of them.
fn origins(program: &Program) -> Vec<bool> {
    let graph = &program.graph;
    let mut is_clone = vec![false; graph.nodes().len()];
    program.clones.iter().for_each(|id| is_clone[id.index()] = true);
    let mut same: Vec<ValueId> = (0..graph.values().len() as u32).map(ValueId).collect();
    let mut first: HashMap<(String, Vec<ValueId>), NodeId> = HashMap::new();
    let mut found = vec![false; graph.nodes().len()];
    for id in graph.node_ids() {
        let node = graph.node(id);
        let key = (format!("{:?} {}", node.op, node.scope), node.inputs.iter().map(|v| same[v.index()]).collect());
        match first.get(&key) {
            Some(&origin) if is_clone[id.index()] => {
                found[origin.index()] = true;
                for (v, o) in node.outputs.iter().zip(&graph.node(origin).outputs) {
                    same[v.index()] = *o;
                }
            }
            _ if is_clone[id.index()] => {}
            _ => drop(first.entry(key).or_insert(id)),
        }
    }
    found
}

/// By value: whether a kernel reads it that runs after the one which ends the forward pass.
fn read_after(program: &Program, end: NodeId) -> Vec<bool> {
    let mut found = vec![false; program.graph.values().len()];
    let forward = program.launches.iter().position(|s| s.group.contains(end)).map_or(0, |i| i + 1);
    for v in program.launches[forward..].iter().flat_map(|s| &s.group.reads) {
        found[v.index()] = true;
    }
    found
}
