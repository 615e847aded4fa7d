//! A program as memory sees it: what each group reads, writes and uses as scratch, with views resolved to what they
//! view and states left out, and which group must run before which. Order and lifetimes are functions of it.

#![deny(clippy::wildcard_enum_match_arm)]

use memfit_ir::{Donation, Graph, Op, ValueId};
use memfit_transform::group::views;
use memfit_transform::{Group, ValueUses};

use crate::draft::PlanContext;
use crate::target::Target;

#[derive(Clone, Debug)]
pub struct Flow {
    pub groups: Vec<Access>,
    /// By value, in bytes.
    pub size: Vec<u64>,
    /// By value: staged before the first group runs.
    pub staged: Vec<ValueId>,
    /// By value: needed when the run ends.
    pub at_end: Vec<bool>,
    /// For each group, those that must run before it.
    pub before: Vec<Vec<u32>>,
}

/// What one group touches in the transient segment.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Each once.
    pub reads: Vec<ValueId>,
    pub writes: Vec<ValueId>,
    /// `(read, write)`: pairs of one size of which the write may lie where the read lay.
    pub in_place: Vec<(ValueId, ValueId)>,
    /// Bytes.
    pub scratch: u64,
}

impl Flow {
    /// `storage` is that of the graph's values.
    pub fn new(graph: &Graph, groups: &[Group], storage: &[ValueId], cx: &PlanContext) -> Flow {
        let needed = ValueUses::new(graph);
        let mut at_end = vec![false; graph.values().len()];
        for v in (0..at_end.len() as u32).map(ValueId).filter(|v| needed.at_end[v.index()]) {
            at_end[storage[v.index()].index()] = true;
        }
        let in_state = in_state(graph);
        let access = |g: &Group| Access::new(graph, g, storage, &in_state, cx);
        Flow {
            groups: groups.iter().map(access).collect(),
            size: graph.values().iter().map(|v| v.ty.bytes()).collect(),
            staged: graph.inputs().map(|(_, v)| v).collect(),
            at_end,
            before: precedence(graph, groups, storage),
        }
    }
}

impl Access {
    fn new(graph: &Graph, group: &Group, storage: &[ValueId], in_state: &[bool], cx: &PlanContext) -> Access {
        let mut reads: Vec<ValueId> = Vec::with_capacity(group.reads.len());
        for &v in &group.reads {
            let s = storage[v.index()];
            if !in_state[s.index()] && !reads.contains(&s) {
                reads.push(s);
            }
        }
        let writes: Vec<ValueId> = group.writes.iter().copied().filter(|v| !in_state[v.index()]).collect();
        let mut in_place = Vec::new();
        for &w in writes.iter().filter(|_| cx.optimizations.in_place) {
            for &r in reads.iter().filter(|r| graph.ty(**r).bytes() == graph.ty(w).bytes()) {
                // Every name by which the group reads these bytes must allow it.
                let mut names = group.reads.iter().filter(|v| storage[v.index()] == r);
                if names.all(|&v| cx.target.can_run_in_place(graph, group, v, w)) {
                    in_place.push((r, w));
                }
            }
        }
        Access { reads, writes, in_place, scratch: cx.target.scratch_bytes(graph, group) }
    }
}

/// By value: whether it is a state or takes the place of one.
pub fn in_state(graph: &Graph) -> Vec<bool> {
    let mut found = vec![false; graph.values().len()];
    for (_, v) in graph.states() {
        found[v.index()] = true;
    }
    for d in &graph.donations {
        found[d.new.index()] = true;
    }
    found
}

/// By value, the value whose bytes it names: itself, or what it is a view of.
pub fn storage(graph: &Graph) -> Vec<ValueId> {
    let views = views(graph);
    let mut found: Vec<ValueId> = Vec::with_capacity(graph.values().len());
    for v in (0..graph.values().len() as u32).map(ValueId) {
        let producer = graph.producer(v);
        found.push(if views[producer.index()] { found[graph.node(producer).inputs[0].index()] } else { v });
    }
    found
}

/// By node, the group it belongs to.
fn groups_of(graph: &Graph, groups: &[Group]) -> Vec<Option<u32>> {
    let mut of = vec![None; graph.nodes().len()];
    for (i, g) in groups.iter().enumerate() {
        for n in &g.nodes {
            of[n.index()] = Some(i as u32);
        }
    }
    of
}

/// Data must be there before it is read, and a state is read for the last time before it is overwritten.
fn precedence(graph: &Graph, groups: &[Group], storage: &[ValueId]) -> Vec<Vec<u32>> {
    let group_of = groups_of(graph, groups);
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); groups.len()];
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); graph.values().len()];
    for (i, g) in groups.iter().enumerate() {
        for &v in &g.reads {
            let s = storage[v.index()];
            readers[s.index()].push(i as u32);
            before[i].extend(group_of[graph.producer(s).index()]);
        }
    }
    for d in &graph.donations {
        if let Some(writer) = group_of[graph.producer(d.new).index()] {
            before[writer as usize].extend(&readers[d.old.index()]);
        }
    }
    for (i, list) in before.iter_mut().enumerate() {
        list.sort_unstable();
        list.dedup();
        list.retain(|&b| b as usize != i);
    }
    before
}

/// A state that no order can overwrite in time, because a reader of it also needs what overwrites it. None where every
/// such reader is a copy, made for this very reason.
pub fn read_too_late(graph: &Graph, groups: &[Group], storage: &[ValueId]) -> Option<ValueId> {
    let group_of = groups_of(graph, groups);
    let before = precedence(graph, groups, storage);
    let late = |d: &&Donation| {
        let Some(writer) = group_of[graph.producer(d.new).index()] else { return false };
        let needs_writer = dependents(&before, writer);
        groups.iter().enumerate().any(|(i, g)| {
            i as u32 != writer
                && needs_writer[i]
                && g.reads.iter().any(|v| storage[v.index()] == d.old)
                && g.nodes.iter().any(|&n| !matches!(graph.node(n).op, Op::Broadcast(_)))
        })
    };
    graph.donations.iter().find(late).map(|d| d.old)
}

/// By group: whether it can only run after this one.
fn dependents(before: &[Vec<u32>], group: u32) -> Vec<bool> {
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); before.len()];
    for (i, list) in before.iter().enumerate() {
        list.iter().for_each(|&b| after[b as usize].push(i as u32));
    }
    let mut found = vec![false; before.len()];
    let mut open = vec![group];
    while let Some(g) = open.pop() {
        for &next in &after[g as usize] {
            if !std::mem::replace(&mut found[next as usize], true) {
                open.push(next);
            }
        }
    }
    found
}

/// A state that the kernel which overwrites it reads too, though it cannot work in place.
pub fn not_in_place(graph: &Graph, groups: &[Group], storage: &[ValueId], target: &dyn Target) -> Option<ValueId> {
    let group_of = groups_of(graph, groups);
    let cannot = |d: &&Donation| {
        let Some(writer) = group_of[graph.producer(d.new).index()] else { return false };
        let group = &groups[writer as usize];
        let mut reads = group.reads.iter().filter(|v| storage[v.index()] == d.old);
        !reads.all(|&v| target.can_run_in_place(graph, group, v, d.new))
    };
    graph.donations.iter().find(cannot).map(|d| d.old)
}
