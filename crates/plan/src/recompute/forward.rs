//! The forward pass as the choice of what to keep sees it: units that are recomputed as a whole, the values that the
//! backward pass reads, and the blocks between narrow places.

use memfit_ir::{Family, Graph, NodeId, Op, ValueId};
use memfit_transform::Group;
use memfit_transform::group::views;

use crate::flow::storage;

/// A group of the forward pass.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Values made by other units, views resolved.
    pub reads: Vec<ValueId>,
    /// Every value that it makes, also those that never leave it. The last one is of the unit's own: what sums over
    /// channels make, which is kept when the rest is recomputed, stands before.
    pub makes: Vec<ValueId>,
    pub seconds: f64,
    /// Its time is that of its memory traffic.
    pub is_light: bool,
}

#[derive(Clone, Debug)]
pub struct Forward {
    pub end: NodeId,
    pub units: Vec<Unit>,
    /// By value: the unit that makes it; none for sources and for values of the backward pass.
    pub unit_of: Vec<Option<u32>>,
    /// By value: what it is a view of, or itself.
    pub storage: Vec<ValueId>,
    /// By value: whether the backward pass reads it, itself or a view of it.
    pub is_saved: Vec<bool>,
    pub size: Vec<u64>,
    /// Blocks as ranges of units.
    pub blocks: Vec<std::ops::Range<usize>>,
    /// For each block but the last, the values that cross from it and from blocks before into later ones.
    pub crossing: Vec<Vec<ValueId>>,
    /// By value: over how many ends of blocks it crosses.
    pub crosses: Vec<u32>,
}

impl Forward {
    /// `groups` in the order of the graph.
    pub fn new(graph: &Graph, end: NodeId, groups: &[Group], seconds: &[f64]) -> Forward {
        let storage = storage(graph);
        let (units, unit_of) = units(graph, end, groups, seconds, &storage);
        let is_saved = saved(graph, end, &unit_of, &storage);
        let size: Vec<u64> = graph.values().iter().map(|v| v.ty.bytes()).collect();
        let crosses = vec![0; size.len()];
        let (blocks, crossing) = (Vec::new(), Vec::new());
        let mut forward = Forward { end, units, unit_of, storage, is_saved, size, blocks, crossing, crosses };
        forward.cut();
        for v in forward.crossing.iter().flatten() {
            forward.crosses[v.index()] += 1;
        }
        forward
    }

    /// Seconds for each byte that is saved by making a value again: its unit, and those units that are run again for it
    /// alone.
    pub fn price(&self, v: ValueId) -> f64 {
        let mut seen: Vec<u32> = Vec::new();
        let mut open: Vec<ValueId> = vec![v];
        let mut seconds = 0.0;
        while let Some(v) = open.pop() {
            let Some(u) = self.unit_of[v.index()].filter(|u| !seen.contains(u)) else { continue };
            seen.push(u);
            let unit = &self.units[u as usize];
            seconds += unit.seconds;
            open.extend(unit.reads.iter().filter(|r| !self.is_saved[r.index()] && self.crosses[r.index()] == 0));
        }
        seconds / self.size[v.index()].max(1) as f64
    }

    /// Cuts the units into blocks where few bytes cross: between two heavy units at the narrowest place, and of these
    /// places at those that are no wider than their neighbours.
    fn cut(&mut self) {
        let n = self.units.len();
        let last_reader = self.last_readers();
        let width = self.widths(&last_reader);
        let heavy: Vec<usize> = (0..n).filter(|&u| !self.units[u].is_light).collect();
        let narrowest = |w: &[usize]| (w[0]..w[1]).min_by_key(|&p| (width[p], p));
        let places: Vec<usize> = heavy.windows(2).filter_map(narrowest).collect();
        let local = |i: &usize| {
            let w = |j: Option<&usize>| j.map_or(u64::MAX, |&p| width[p]);
            let before = if *i == 0 { None } else { places.get(i - 1) };
            width[places[*i]] <= w(before) && width[places[*i]] <= w(places.get(i + 1))
        };
        let cuts: Vec<usize> = (0..places.len()).filter(local).map(|i| places[i] + 1).collect();
        let mut start = 0;
        for cut in cuts {
            self.blocks.push(start..cut);
            let crosses = |v: &ValueId| last_reader[v.index()].is_some_and(|r| r >= cut);
            let crossing = self.units[..cut].iter().flat_map(|u| u.makes.clone()).filter(crosses).collect();
            self.crossing.push(crossing);
            start = cut;
        }
        if start < n {
            self.blocks.push(start..n);
        }
    }

    /// By value, the last unit that reads it.
    fn last_readers(&self) -> Vec<Option<usize>> {
        let mut last = vec![None; self.size.len()];
        for (i, unit) in self.units.iter().enumerate() {
            for v in &unit.reads {
                last[v.index()] = Some(i);
            }
        }
        last
    }

    /// For each unit, the bytes that are made up to it and read after it.
    fn widths(&self, last_reader: &[Option<usize>]) -> Vec<u64> {
        let mut change = vec![0i64; self.units.len() + 1];
        for (i, unit) in self.units.iter().enumerate() {
            for v in &unit.makes {
                if let Some(last) = last_reader[v.index()].filter(|&l| l > i) {
                    change[i] += self.size[v.index()] as i64;
                    change[last] -= self.size[v.index()] as i64;
                }
            }
        }
        let mut now = 0;
        let sum = |c: &i64| {
            now += c;
            now as u64
        };
        change[..self.units.len()].iter().map(sum).collect()
    }
}

/// The units of the forward pass, and by value the unit that makes it.
fn units(
    graph: &Graph,
    end: NodeId,
    groups: &[Group],
    seconds: &[f64],
    storage: &[ValueId],
) -> (Vec<Unit>, Vec<Option<u32>>) {
    let mut unit_of = vec![None; graph.values().len()];
    let mut units: Vec<Unit> = Vec::new();
    for (g, &seconds) in groups.iter().zip(seconds).filter(|(g, _)| g.root() <= end) {
        let reductions = g.reductions();
        let nodes = reductions.iter().chain(&g.nodes[..g.nodes.len() - reductions.len()]);
        let makes = nodes.filter(|&&id| id <= end).flat_map(|&id| graph.node(id).outputs.clone());
        let makes: Vec<ValueId> = makes.collect();
        for v in &makes {
            unit_of[v.index()] = Some(units.len() as u32);
        }
        let reads = g.reads.iter().map(|v| storage[v.index()]).collect();
        let is_light = !g.nodes.iter().any(|&id| is_heavy(&graph.node(id).op));
        units.push(Unit { reads, makes, seconds, is_light });
    }
    for unit in &mut units {
        unit.reads.retain(|v| unit_of[v.index()].is_some());
    }
    (units, unit_of)
}

/// By value: whether the backward pass reads it, itself or a view of it, and it could be recomputed.
fn saved(graph: &Graph, end: NodeId, unit_of: &[Option<u32>], storage: &[ValueId]) -> Vec<bool> {
    let mut found = vec![false; storage.len()];
    let views = views(graph);
    for id in graph.node_ids().filter(|&id| id > end && !views[id.index()]) {
        for v in &graph.node(id).inputs {
            let v = storage[v.index()];
            found[v.index()] |= unit_of[v.index()].is_some() && graph.producer_op(v).is_pure();
        }
    }
    found
}

fn is_heavy(op: &Op) -> bool {
    op.is_contraction() || op.family() == Family::Attention
}
