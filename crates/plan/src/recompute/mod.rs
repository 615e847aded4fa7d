//! What to keep after the forward pass and what to recompute: candidates for every amount of memory, found without
//! looking at a budget.
//!
//! The forward pass is cut into blocks at its narrow places. For a block, or a run of blocks, there are a few choices
//! (see [`Choice`]). Each choice is first tried on all blocks at once and measured: what a block then keeps, how much it
//! works with in the backward pass, and how long its clones take. From that, `combine.rs` puts together the fastest
//! mixture for each of a range of peaks, and every mixture is drafted and measured for what it really takes.

#![deny(clippy::wildcard_enum_match_arm)]

mod combine;
mod forward;
mod policies;

use memfit_ir::{Graph, NodeId};
use memfit_transform::{Policy, RecomputedStep, StepGraph};

pub use policies::{Choice, Recompute};

use crate::draft::{Draft, PlanContext};
use crate::error::PlanError;
use crate::order::Effort;
use crate::outline::{Order, Outline};
use crate::passes::{group, recompute};
use crate::types::Phase;
use combine::{Measure, combine};
use forward::Forward;
use policies::policies;

/// The outline of a draft, and how to make that draft anew.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub outline: Outline,
    /// What is saved and what recomputed; none where the program is as it was given.
    policy: Option<Box<[Policy]>>,
    /// Clones among the nodes.
    pub recomputed: usize,
}

impl Candidate {
    /// A program as it was given.
    pub fn as_given(outline: Outline) -> Candidate {
        Candidate { outline, policy: None, recomputed: 0 }
    }

    /// Its draft, of the program that it is a candidate of, and the clones among the nodes of that.
    pub fn draft(&self, step: StepGraph, cx: &PlanContext) -> Result<(Draft, Vec<NodeId>), PlanError> {
        let phase = self.outline.phase;
        let (Some(policy), Some(end)) = (&self.policy, step.forward_end) else {
            return Ok((Draft::again(step, &self.outline, cx)?, Vec::new()));
        };
        let problem = |e: memfit_ir::Error| PlanError::Graph { phase, problem: e.to_string() };
        let mut made = recompute(&step.graph, end, policy).map_err(problem)?;
        drop(step);
        let draft = Draft::again(std::mem::take(&mut made.step), &self.outline, cx)?;
        let clones = clones(&draft, &made);
        Ok((draft, clones))
    }
}

/// How many candidates to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    Full,
    /// A few: enough where another size of micro-batch is the main tool.
    Sketch,
}

/// Peaks for which a mixture is put together.
const LEVELS: usize = 40;
/// And once more below the smallest of them.
const LOW_LEVELS: usize = 12;
/// Shares of the saved bytes that are recomputed, cheapest first.
const SHARES: [f64; 7] = [0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.995];
/// Runs of blocks that are recomputed as one.
const RUNS: [usize; 8] = [2, 3, 4, 6, 8, 12, 16, 24];

/// Candidates of a program, from keeping all that the backward pass reads to keeping next to nothing. The first keeps all.
pub fn candidates(phase: Phase, step: &StepGraph, cx: &PlanContext, depth: Depth) -> Result<Vec<Candidate>, PlanError> {
    let graph = &step.graph;
    let groups = group(graph, &cx.fusion());
    // What is recomputed lies in memory that was just used.
    let seconds: Vec<f64> = groups.iter().map(|g| cx.target.seconds(graph, g, 0, cx.cost_model)).collect();
    let all = Draft::new(phase, step.clone(), cx, Effort::Full)?;
    let free = Candidate::as_given(Outline::new(&all, Order::Searched, cx.target));
    drop(all);
    let Some(end) = step.forward_end else { return Ok(vec![free]) };
    let forward = Forward::new(graph, end, &groups, &seconds);
    let mut search = Search { phase, graph, forward: &forward, cx, found: vec![free] };
    search.run(depth)?;
    Ok(search.found)
}

struct Search<'a> {
    phase: Phase,
    graph: &'a Graph,
    forward: &'a Forward,
    cx: &'a PlanContext<'a>,
    found: Vec<Candidate>,
}

impl Search<'_> {
    fn run(&mut self, depth: Depth) -> Result<(), PlanError> {
        let blocks = self.forward.blocks.len();
        if blocks == 0 {
            return Ok(());
        }
        let mut measures = Vec::new();
        for choice in self.choices(depth) {
            let uniform = vec![choice; blocks.div_ceil(choice.blocks)];
            measures.extend(self.try_choices(&uniform)?.into_iter().flatten());
        }
        if depth == Depth::Sketch {
            return Ok(());
        }
        let top = self.found[0].outline.peak;
        self.mix(&mut measures, top, LEVELS)?;
        // What was learned from mixtures makes smaller ones.
        let low = self.smallest();
        self.mix(&mut measures, low, LOW_LEVELS)
    }

    fn smallest(&self) -> u64 {
        self.found.iter().map(|c| c.outline.peak).min().unwrap_or(0)
    }

    /// Tries the best mixtures for so many peaks below `top`; and adds what is learned from them to the measures.
    fn mix(&mut self, measures: &mut Vec<Measure>, top: u64, levels: usize) -> Result<(), PlanError> {
        let blocks = self.forward.blocks.len();
        // Below the smallest draft so far too: a mixture may be smaller than each of its parts.
        let low = 0.7 * self.smallest() as f64;
        let mut learned = Vec::new();
        for level in 0..levels {
            let share = (level as f64 + 0.5) / levels as f64;
            let limit = low + share * (top as f64 - low);
            if let Some(choices) = combine(measures, blocks, limit as u64) {
                learned.extend(self.try_choices(&choices)?.into_iter().flatten());
            }
        }
        measures.extend(learned);
        Ok(())
    }

    /// The choices worth trying on every block.
    fn choices(&self, depth: Depth) -> Vec<Choice> {
        let prices = self.prices();
        let mut choices = vec![Choice::KEEP];
        for &price in &prices {
            for how in [Recompute::Once, Recompute::PerUse] {
                choices.push(Choice { blocks: 1, price, recompute: how });
            }
        }
        let blocks = self.forward.blocks.len();
        for run in RUNS.into_iter().filter(|&r| r < blocks) {
            for how in [Recompute::Once, Recompute::PerUse, Recompute::Nested] {
                choices.push(Choice { blocks: run, price: prices[SHARES.len() - 1], recompute: how });
            }
        }
        if depth == Depth::Sketch {
            choices.retain(|c| c.recompute == Recompute::PerUse || c.blocks == 1);
        }
        choices
    }

    /// The highest price at which each of [`SHARES`] of the saved bytes is recomputed.
    fn prices(&self) -> Vec<f64> {
        let forward = self.forward;
        let saved = (0..forward.size.len() as u32).map(memfit_ir::ValueId).filter(|v| forward.is_saved[v.index()]);
        let mut saved: Vec<(f64, u64)> = saved.map(|v| (forward.price(v), forward.size[v.index()])).collect();
        saved.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: u64 = saved.iter().map(|s| s.1).sum();
        let price = |share: f64| {
            let mut sum = 0;
            let reached = |s: &&(f64, u64)| {
                sum += s.1;
                sum as f64 >= share * total as f64
            };
            saved.iter().find(reached).map_or(0.0, |s| s.0)
        };
        SHARES.into_iter().map(price).collect()
    }

    /// Drafts what the choices say; none if that draft exists already. Returns what each choice takes.
    fn try_choices(&mut self, choices: &[Choice]) -> Result<Option<Vec<Measure>>, PlanError> {
        let policy = policies(self.forward, choices).into_boxed_slice();
        if self.found.iter().any(|c| c.policy.as_ref() == Some(&policy)) {
            return Ok(None);
        }
        let problem = |e: memfit_ir::Error| PlanError::Graph { phase: self.phase, problem: e.to_string() };
        let mut made = recompute(self.graph, self.forward.end, &policy).map_err(problem)?;
        let recomputed = made.is_clone.iter().filter(|c| **c).count();
        let draft = Draft::new(self.phase, std::mem::take(&mut made.step), self.cx, Effort::Quick)?;
        let measures = self.measure(&draft, &made, &policy, choices);
        let outline = Outline::new(&draft, Order::Quick, self.cx.target);
        self.found.push(Candidate { outline, policy: Some(policy), recomputed });
        Ok(Some(measures))
    }

    /// What each choice takes in a draft. A copied state shifts the nodes of a draft; then there is nothing to learn.
    fn measure(&self, draft: &Draft, made: &RecomputedStep, policy: &[Policy], choices: &[Choice]) -> Vec<Measure> {
        if draft.graph.nodes().len() != made.origin.len() {
            return Vec::new();
        }
        let forward = self.forward;
        let mut measures: Vec<Measure> = Vec::new();
        let mut of_block = Vec::new();
        for (i, choice) in choices.iter().enumerate() {
            let first = of_block.len();
            let blocks = choice.blocks.min(forward.blocks.len() - first);
            of_block.extend(std::iter::repeat_n(i, blocks));
            measures.push(Measure { first, choice: Choice { blocks, ..*choice }, kept: 0, work: 0, seconds: 0.0 });
        }
        for (block, units) in forward.blocks.iter().enumerate() {
            let made = forward.units[units.clone()].iter().flat_map(|u| &u.makes);
            let kept = made.filter(|v| policy[v.index()] == Policy::Save && forward.is_saved[v.index()]);
            measures[of_block[block]].kept += kept.map(|v| forward.size[v.index()]).sum::<u64>();
        }
        let before: Vec<u64> = measures
            .iter()
            .scan(0, |sum, m| {
                *sum += m.kept;
                Some(*sum - m.kept)
            })
            .collect();
        for (launch, block) in self.blocks_of_launches(draft, made).into_iter().enumerate() {
            let Some(block) = block else { continue };
            let i = of_block[block];
            measures[i].work = measures[i].work.max(draft.live[launch].saturating_sub(before[i]));
        }
        self.share_seconds(draft, made, &of_block, &mut measures);
        measures
    }

    /// The block whose backward pass each launch belongs to: that of the latest forward value it reads; one that reads
    /// none goes with the one after it. None in the forward pass.
    fn blocks_of_launches(&self, draft: &Draft, made: &RecomputedStep) -> Vec<Option<usize>> {
        let block_of = self.block_of_unit();
        let latest = |id: &NodeId| {
            let origin = made.origin[id.index()];
            let inputs = &self.graph.node(origin).inputs;
            let units = inputs.iter().filter_map(|v| self.forward.unit_of[self.forward.storage[v.index()].index()]);
            units.map(|u| block_of[u as usize]).max()
        };
        let is_backward = |id: &&NodeId| made.origin[id.index()] > self.forward.end;
        let mut blocks = vec![None; draft.groups.len()];
        let mut next = Some(0);
        for (launch, g) in draft.groups.iter().enumerate().rev() {
            let backward = g.nodes.iter().any(|id| is_backward(&id));
            let clone = g.nodes.iter().any(|id| made.is_clone[id.index()]);
            if backward {
                next = g.nodes.iter().filter(is_backward).filter_map(latest).max().or(next);
            }
            blocks[launch] = next.filter(|_| backward || clone);
        }
        blocks
    }

    fn block_of_unit(&self) -> Vec<usize> {
        let blocks = self.forward.blocks.iter().enumerate();
        blocks.flat_map(|(b, units)| std::iter::repeat_n(b, units.len())).collect()
    }

    /// The time that the clones add, shared out by what their units took the first time.
    fn share_seconds(&self, draft: &Draft, made: &RecomputedStep, of_block: &[usize], measures: &mut [Measure]) {
        let block_of = self.block_of_unit();
        let mut weight = vec![0.0; measures.len()];
        let clones = made.origin.iter().zip(&made.is_clone).filter(|(_, is_clone)| **is_clone);
        for (origin, _) in clones {
            let v = self.graph.node(*origin).outputs[0];
            if let Some(u) = self.forward.unit_of[v.index()] {
                let unit = &self.forward.units[u as usize];
                // Of the nodes of a unit, the last stands for all.
                if unit.makes.last().is_some_and(|&last| self.graph.producer(last) == *origin) {
                    weight[of_block[block_of[u as usize]]] += unit.seconds;
                }
            }
        }
        let total: f64 = weight.iter().sum();
        let extra = (draft.total_seconds() - self.found[0].outline.seconds).max(0.0);
        for (m, w) in measures.iter_mut().zip(weight) {
            m.seconds = if total > 0.0 { extra * w / total } else { 0.0 };
        }
    }
}

/// The clones among the nodes of a draft; unknown where copied states shift its nodes.
fn clones(draft: &Draft, made: &RecomputedStep) -> Vec<NodeId> {
    if draft.graph.nodes().len() != made.is_clone.len() {
        return Vec::new();
    }
    draft.graph.node_ids().filter(|id| made.is_clone[id.index()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost_model::CostModel;
    use crate::draft::Optimizations;
    use crate::target::Target;
    use crate::types::MadeFor;
    use memfit_ir::op::{Init, Update};
    use memfit_ir::{Builder, Op, TensorType, ValueId};
    use memfit_transform::group::Grouping;
    use memfit_transform::{Fusion, Group, Training, step};

    /// Batch statistics take a second, all else no time.
    struct Statistician;

    impl Target for Statistician {
        fn fusion(&self) -> Fusion {
            Fusion::FULL
        }
        fn describe(&self) -> MadeFor {
            MadeFor::new("paper", "none")
        }
        fn cost_model(&self) -> CostModel {
            CostModel::new("paper", 1.0, 1.0, 1.0)
        }
        fn supports(&self, _: &Graph, _: NodeId) -> Result<(), String> {
            Ok(())
        }
        fn scratch_bytes(&self, _: &Graph, _: &Group) -> u64 {
            0
        }
        fn seconds(&self, graph: &Graph, group: &Group, _: u64, _: &CostModel) -> f64 {
            group.nodes.iter().filter(|&&n| graph.node(n).op == Op::BatchStats).count() as f64
        }
        fn alignment(&self) -> u64 {
            4
        }
        fn largest_binding(&self) -> u64 {
            1 << 40
        }
        fn largest_segment(&self) -> u64 {
            1 << 40
        }
        fn can_run_in_place(&self, graph: &Graph, group: &Group, _: ValueId, _: ValueId) -> bool {
            !graph.node(group.root()).op.is_pure()
        }
    }

    /// Layers, each with a batch norm.
    fn normed(layers: usize) -> StepGraph {
        let mut b = Builder::new();
        let mut h = b.input("x", TensorType::f32([64, 8])).unwrap();
        for i in 0..layers {
            let layer = |b: &mut Builder| {
                let w = b.param("weight", [8, 8], Init::Normal { std: 0.1 })?;
                let (scale, bias) =
                    (b.param("scale", [8], Init::Constant(1.0))?, b.param("bias", [8], Init::Constant(0.0))?);
                let h = b.matmul(h, w)?;
                let [h, ..] = b.batch_norm(h, scale, bias, 1e-5)?;
                b.relu(h)
            };
            h = b.scope(i, layer).unwrap();
        }
        let loss = b.mean(h).unwrap();
        b.output("loss", loss);
        let update = Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
        step(&b.finish(), loss, &Training::new(update)).unwrap()
    }

    #[test]
    fn a_unit_with_several_results_has_its_share_of_the_time() {
        let step = normed(4);
        let graph = &step.graph;
        let cost_model = Statistician.cost_model();
        let cx = PlanContext {
            target: &Statistician,
            grouping: Grouping::Fused,
            cost_model: &cost_model,
            optimizations: Optimizations::ALL,
        };
        let groups = group(graph, &cx.fusion());
        let seconds: Vec<f64> = groups.iter().map(|g| cx.target.seconds(graph, g, 0, &cost_model)).collect();
        let end = step.forward_end.unwrap();
        let forward = Forward::new(graph, end, &groups, &seconds);
        let all = Draft::new(Phase::Step, step.clone(), &cx, Effort::Full).unwrap();
        let found = vec![Candidate::as_given(Outline::new(&all, Order::Searched, cx.target))];
        let mut search = Search { phase: Phase::Step, graph, forward: &forward, cx: &cx, found };
        let again = Choice { blocks: 1, price: f64::INFINITY, recompute: Recompute::Once };
        let measures = search.try_choices(&vec![again; forward.blocks.len()]).unwrap().unwrap();
        let added = search.found[1].outline.seconds - search.found[0].outline.seconds;
        assert!(added >= 1.0, "statistics are recomputed");
        assert_eq!(measures.iter().map(|m| m.seconds).sum::<f64>(), added);
    }
}
