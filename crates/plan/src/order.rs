//! The order of execution: groups in a valid order in which every state is read for the last time before it is overwritten.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use memfit_ir::{Donation, Graph, Op, ValueId};
use memfit_transform::Group;
use memfit_transform::group::is_view;

/// The positions of the groups, kept as they stand where the states allow it. The error is a state that is overwritten
/// while somebody still needs it.
pub fn order(graph: &Graph, groups: &[Group]) -> Result<Vec<usize>, ValueId> {
    let mut group_of = vec![None; graph.nodes().len()];
    for (i, g) in groups.iter().enumerate() {
        for n in &g.nodes {
            group_of[n.index()] = Some(i);
        }
    }
    let mut edges: Vec<(usize, usize)> = Vec::new();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values().len()];
    for (i, g) in groups.iter().enumerate() {
        for &v in &g.reads {
            let storage = storage(graph, v);
            readers[storage.index()].push(i);
            if let Some(p) = group_of[graph.producer(storage).index()] {
                edges.push((p, i));
            }
        }
    }
    for d in &graph.donations {
        if let Some(writer) = group_of[graph.producer(d.new).index()] {
            edges.extend(readers[d.old.index()].iter().filter(|&&r| r != writer).map(|&r| (r, writer)));
        }
    }
    let conflict = || {
        let read_elsewhere = |d: &&Donation| {
            let writer = group_of[graph.producer(d.new).index()];
            let mut others = readers[d.old.index()].iter().filter(|&&r| Some(r) != writer);
            others.any(|&r| groups[r].nodes.iter().any(|&n| !matches!(graph.node(n).op, Op::Broadcast(_))))
        };
        graph.donations.iter().find(read_elsewhere).map_or(ValueId(0), |d| d.old)
    };
    sort(groups.len(), &edges).ok_or_else(conflict)
}

/// The value whose bytes a value names: itself, or what it is a view of.
pub fn storage(graph: &Graph, mut v: ValueId) -> ValueId {
    while is_view(graph, graph.producer(v)) {
        v = graph.node(graph.producer(v)).inputs[0];
    }
    v
}

/// A topological order that takes the lowest number first.
fn sort(n: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut waits = vec![0usize; n];
    for &(a, b) in edges {
        if a != b {
            next[a].push(b);
            waits[b] += 1;
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..n).filter(|&i| waits[i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        for &j in &next[i] {
            waits[j] -= 1;
            if waits[j] == 0 {
                ready.push(Reverse(j));
            }
        }
    }
    (order.len() == n).then_some(order)
}
