//! The pipeline: programs → candidates → the fastest that fits → places → validated plan, or a refusal.
//!
//! Candidates come first and never look at the budget ([`survey`]). So a larger budget never gives a slower plan, and the
//! whole range of budgets costs no more than one.

use std::collections::HashMap;

use memfit_ir::op::StateClass;
use memfit_ir::{Graph, verify};
use memfit_transform::group::Grouping;
use memfit_transform::samples::mixes_samples;
use memfit_transform::{end_of_forward, save_masks};

use crate::bound::{Bound, lower_bound};
use crate::draft::{Draft, Tools, Workshop};
use crate::error::PlanError;
use crate::limit::{too_large_to_allocate, too_large_to_bind};
use crate::order::Effort;
use crate::pack::{Item, Packing, pack};
use crate::place;
use crate::profile::Profile;
use crate::recompute::{Candidate, Depth, candidates};
use crate::refuse::refuse;
use crate::target::Target;
use crate::types::{Phase, Place, Plan, Saving, Segment, StateSlot};
use crate::validate::validate;

/// Makes the programs for a micro-batch: `[Step]` where it is the whole batch, else `[Accumulate, Apply]`; and `Eval`
/// where it is wanted.
pub type Source<'a> = dyn Fn(usize) -> Result<Vec<(Phase, Graph)>, Box<dyn std::error::Error + Send + Sync>> + 'a;

/// Whether a step may be done in micro-batches whose gradients are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MicroBatch {
    /// Where no sample's result depends on the rest of the batch, so that only the rounding of the sum differs.
    #[default]
    Auto,
    Off,
    /// So many samples at a time; a divisor of the batch.
    Exactly(usize),
    /// Also where batch statistics then come from fewer samples.
    Allow,
}

/// What is asked of the planner besides the model and the device.
#[derive(Clone, Debug)]
pub struct Request {
    pub batch: usize,
    pub micro_batch: MicroBatch,
    /// Bytes for both segments; none for as much as it takes.
    pub budget: Option<u64>,
    pub grouping: Grouping,
    pub profile: Profile,
}

impl Request {
    pub fn new(batch: usize) -> Request {
        Request {
            batch,
            micro_batch: MicroBatch::Auto,
            budget: None,
            grouping: Grouping::Fused,
            profile: Profile::default(),
        }
    }
}

/// Plans a model for a device under a budget. Pure: the same arguments give the same plan.
pub fn plan(source: &Source, target: &dyn Target, request: &Request) -> Result<Plan, PlanError> {
    survey(source, target, request)?.plan(request.budget)
}

/// Looks for candidates of every size and speed.
pub fn survey<'a>(source: &Source, target: &'a dyn Target, request: &Request) -> Result<Survey<'a>, PlanError> {
    let Request { batch, .. } = *request;
    let shop = Workshop { target, grouping: request.grouping, profile: &request.profile, tools: Tools::ALL };
    let first = match request.micro_batch {
        MicroBatch::Exactly(n) if n == 0 || !batch.is_multiple_of(n) => {
            return Err(PlanError::MicroBatch { micro_batch: n, batch });
        }
        MicroBatch::Exactly(n) => n,
        MicroBatch::Auto | MicroBatch::Off | MicroBatch::Allow => batch,
    };
    let whole = programs(source, first)?;
    let others = match request.micro_batch {
        MicroBatch::Allow => divisors(batch),
        MicroBatch::Auto if !mixes(&whole, batch) => divisors(batch),
        MicroBatch::Auto | MicroBatch::Off | MicroBatch::Exactly(_) => Vec::new(),
    };
    let yardstick = keep_all(&whole, &shop)?;
    let savings = savings(&whole, &shop)?;
    let mut batches = vec![Micro::new(first, whole, &shop, Depth::Full)?];
    for n in others {
        let graphs = programs(source, n)?;
        // A source that knows whole steps only has nothing to be cut.
        if !graphs.iter().any(|(phase, _)| *phase == Phase::Step) {
            batches.push(Micro::new(n, graphs, &shop, Depth::Sketch)?);
        }
    }
    let keep_all_bytes = batches[0].state_bytes + yardstick;
    let mut survey = Survey {
        target,
        batch,
        profile_hash: request.profile.hash(),
        keep_all_bytes,
        savings,
        batches,
        options: Vec::new(),
    };
    survey.options = survey.efficient();
    match survey.options.is_empty() {
        true => Err(survey.too_large()),
        false => Ok(survey),
    }
}

fn programs(source: &Source, micro_batch: usize) -> Result<Vec<(Phase, Graph)>, PlanError> {
    let graphs = source(micro_batch).map_err(PlanError::Source)?;
    for (phase, graph) in &graphs {
        verify(graph).map_err(|e| PlanError::Graph { phase: *phase, problem: e.to_string() })?;
    }
    let total: u128 = graphs.iter().flat_map(|(_, g)| g.values()).map(|v| v.ty.bytes() as u128).sum();
    if total > i64::MAX as u128 / 4 {
        return Err(PlanError::TooLarge);
    }
    Ok(graphs)
}

fn mixes(graphs: &[(Phase, Graph)], batch: usize) -> bool {
    graphs.iter().any(|(_, g)| end_of_forward(g).is_some_and(|end| mixes_samples(g, end, batch).is_some()))
}

/// Most sizes of micro-batches that are looked at.
const SIZES: usize = 8;

/// Sizes of micro-batches, largest first: the divisors of the batch, or the largest of them and 1, whose bound is the lowest:
/// without it a refusal could not claim to speak for all sizes.
fn divisors(batch: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (2..=batch).filter(|k| batch.is_multiple_of(*k)).map(|k| batch / k).collect();
    if sizes.len() > SIZES {
        sizes.drain(SIZES - 1..sizes.len() - 1);
    }
    sizes
}

/// The most live bytes where every forward value that the backward pass reads stays until its last reader, nothing runs
/// in place, no cheap form is saved, and all gradients stand together until one update at the end.
fn keep_all(graphs: &[(Phase, Graph)], shop: &Workshop) -> Result<u64, PlanError> {
    let shop = Workshop { tools: Tools::NONE, grouping: Grouping::Single, ..*shop };
    let draft = |(phase, graph): &(Phase, Graph)| Draft::new(*phase, graph.clone(), &shop, Effort::Quick);
    let peaks = graphs.iter().map(|g| Ok(draft(g)?.peak_with_accumulators()));
    Ok(peaks.collect::<Result<Vec<u64>, PlanError>>()?.into_iter().max().unwrap_or(0))
}

/// What each of the free tools saves on top of those before it.
fn savings(graphs: &[(Phase, Graph)], shop: &Workshop) -> Result<Vec<Saving>, PlanError> {
    let Some((phase, graph)) = graphs.iter().find(|(p, _)| p.is_training()) else { return Ok(Vec::new()) };
    let peak = |tools: Tools, grouping: Grouping| {
        let shop = Workshop { tools, grouping, ..*shop };
        let graph = if tools.masks { save_masks(graph) } else { graph.clone() };
        Draft::new(*phase, graph, &shop, Effort::Quick).map(|d| d.peak())
    };
    let mut before = peak(Tools::NONE, Grouping::Single)?;
    let stages = [
        ("groups", Tools::NONE),
        ("in place", Tools { in_place: true, ..Tools::NONE }),
        ("masks", Tools { in_place: true, masks: true, ..Tools::NONE }),
        ("order", Tools::ALL),
    ];
    let mut savings = Vec::new();
    for (tool, tools) in stages {
        let now = peak(tools, shop.grouping)?;
        savings.push(Saving { tool, bytes: before as i64 - now as i64 });
        before = now;
    }
    Ok(savings)
}

/// All that is known about a model on a device, before a budget is given.
pub struct Survey<'a> {
    target: &'a dyn Target,
    batch: usize,
    profile_hash: u64,
    keep_all_bytes: u64,
    savings: Vec<Saving>,
    batches: Vec<Micro>,
    /// The efficient candidates, fastest and largest first.
    options: Vec<Choosable>,
}

/// The programs of one size of micro-batch.
struct Micro {
    size: usize,
    states: Vec<StateSlot>,
    state_bytes: u64,
    /// Of accumulators, at the start of the transient segment.
    pinned_bytes: u64,
    /// Drafts of the program that has a backward pass.
    training: Vec<Candidate>,
    /// The other programs, each in one draft.
    others: Vec<Draft>,
    bound: Bound,
}

/// A candidate that no other one beats in both time and memory.
struct Choosable {
    batch: usize,
    candidate: usize,
    arena: u64,
    transient: u64,
    seconds: f64,
    packing: Packing,
}

/// One point of the frontier of a survey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub arena_bytes: u64,
    pub transient_bytes: u64,
    pub seconds: f64,
    pub micro_batch: usize,
    pub recomputed_ops: usize,
}

impl Micro {
    fn new(size: usize, graphs: Vec<(Phase, Graph)>, shop: &Workshop, depth: Depth) -> Result<Micro, PlanError> {
        let graphs: Vec<(Phase, Graph)> = graphs.into_iter().map(|(phase, g)| (phase, save_masks(&g))).collect();
        let (states, state_bytes, pinned_bytes) = place_states(&graphs, shop.target.alignment())?;
        let bound = lower_bound(&graphs, state_bytes, shop.target);
        let (mut training, mut others) = (Vec::new(), Vec::new());
        for (phase, graph) in graphs {
            match phase.is_training() {
                true => training = candidates(phase, graph, shop, depth)?,
                false => others.push(Draft::new(phase, graph, shop, Effort::Full)?),
            }
        }
        if training.is_empty() && !others.is_empty() {
            training.push(Candidate { draft: others.remove(0), recomputed: 0, clones: Vec::new() });
        }
        Ok(Micro { size, states, state_bytes, pinned_bytes, training, others, bound })
    }

    fn pinned(&self, draft: &Draft) -> u64 {
        if draft.has_accumulators() { self.pinned_bytes } else { 0 }
    }

    /// Seconds of a whole step with a candidate.
    fn seconds(&self, batch: usize, candidate: &Draft) -> f64 {
        let times = |phase: Phase| match phase {
            Phase::Step | Phase::Apply => 1.0,
            Phase::Accumulate => (batch / self.size) as f64,
            Phase::Eval | Phase::Checkpoint => 0.0,
        };
        let of = |d: &Draft| times(d.phase) * d.total_seconds();
        let seconds = of(candidate) + self.others.iter().map(of).sum::<f64>();
        // To the nanosecond: the order of a sum must not make one plan faster than another.
        (seconds * 1e9).round() / 1e9
    }
}

fn items(draft: &Draft) -> Vec<Item> {
    draft.buffers.iter().map(|b| Item { lower: b.lower, upper: b.upper, size: b.size }).collect()
}

impl Survey<'_> {
    /// The efficient candidates: sorted by predicted time, each smaller than all that are faster. Only what could be
    /// among them is packed.
    fn efficient(&self) -> Vec<Choosable> {
        let alignment = self.target.alignment();
        let mut all: Vec<(f64, u64, usize, usize)> = Vec::new();
        for (b, micro) in self.batches.iter().enumerate() {
            if micro.others.iter().any(|d| too_large_to_bind(d, self.target).is_some()) {
                continue;
            }
            let keeping_all = micro.training[0].draft.peak();
            for (c, candidate) in micro.training.iter().enumerate() {
                // Making values again, or reading them from other places, is for saving memory: a gain in time alone would
                // be within the error of prediction.
                let is_vain = c > 0 && candidate.draft.peak() >= keeping_all;
                if is_vain || too_large_to_bind(&candidate.draft, self.target).is_some() {
                    continue;
                }
                let peak = micro.pinned(&candidate.draft) + candidate.draft.peak();
                all.push((micro.seconds(self.batch, &candidate.draft), micro.state_bytes + peak, b, c));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let others: Vec<u64> = self.batches.iter().map(|m| self.others_end(m)).collect();
        let mut found: Vec<Choosable> = Vec::new();
        for (seconds, peak, b, c) in all {
            let best = found.last().map_or(u64::MAX, |f| f.arena);
            // The live bytes are the least that a packing can take.
            if peak >= best {
                continue;
            }
            let (micro, candidate) = (&self.batches[b], &self.batches[b].training[c]);
            let packing = pack(&items(&candidate.draft), alignment);
            let end = micro.pinned(&candidate.draft) + packing.capacity;
            let transient = end.max(others[b]).max(micro.pinned_bytes).next_multiple_of(alignment);
            let arena = micro.state_bytes + transient;
            if arena < best && too_large_to_allocate(micro.state_bytes, transient, self.target).is_none() {
                found.push(Choosable { batch: b, candidate: c, arena, transient, seconds, packing });
            }
        }
        found
    }

    /// The end of the largest of the other programs.
    fn others_end(&self, micro: &Micro) -> u64 {
        let end = |d: &Draft| micro.pinned(d) + pack(&items(d), self.target.alignment()).capacity;
        micro.others.iter().map(end).max().unwrap_or(0)
    }

    /// Why the device can run no candidate, however large the budget: what the smallest asks of it.
    fn too_large(&self) -> PlanError {
        let Some(micro) = self.batches.last() else { return PlanError::TooLarge };
        let unbound = |d: &Draft| too_large_to_bind(d, self.target);
        let drafts = micro.training.iter().map(|c| &c.draft);
        let Some(least) = drafts.min_by_key(|d| micro.pinned(d) + d.peak()) else { return PlanError::TooLarge };
        let end = micro.pinned(least) + pack(&items(least), self.target.alignment()).capacity;
        let bytes = end.max(self.others_end(micro));
        let segment = || too_large_to_allocate(micro.state_bytes, bytes, self.target);
        let limit = self.target.largest_segment();
        let unbound = micro.others.iter().find_map(unbound).or_else(|| unbound(least));
        unbound.or_else(segment).unwrap_or(PlanError::Segment { segment: Segment::Transient, bytes, limit })
    }

    /// Time against memory, fastest and largest first.
    pub fn frontier(&self) -> Vec<Point> {
        let point = |o: &Choosable| Point {
            arena_bytes: o.arena,
            transient_bytes: o.transient,
            seconds: o.seconds,
            micro_batch: self.batches[o.batch].size,
            recomputed_ops: self.batches[o.batch].training[o.candidate].recomputed,
        };
        self.options.iter().map(point).collect()
    }

    /// What a plan takes that keeps all the backward pass reads but uses every tool that costs no time.
    pub fn free_tools_bytes(&self) -> u64 {
        let micro = &self.batches[0];
        let free = &micro.training[0].draft;
        let alignment = self.target.alignment();
        let end = micro.pinned(free) + pack(&items(free), alignment).capacity;
        micro.state_bytes + end.max(self.others_end(micro)).max(micro.pinned_bytes).next_multiple_of(alignment)
    }

    /// No plan of this model can take less.
    pub fn lower_bound_bytes(&self) -> u64 {
        self.batches.iter().map(|m| m.bound.bytes).min().unwrap_or(0)
    }

    /// The fastest plan that fits into the budget, ties to the smaller.
    pub fn plan(&self, budget: Option<u64>) -> Result<Plan, PlanError> {
        let fits = |o: &&Choosable| budget.is_none_or(|b| o.arena <= b);
        match (self.options.iter().find(fits), budget, self.options.last()) {
            (Some(option), ..) => self.finish(option),
            (None, Some(budget), Some(smallest)) => {
                let micro = &self.batches[smallest.batch];
                let bound = self.batches.iter().map(|m| &m.bound).min_by_key(|b| b.bytes);
                let bound = bound.unwrap_or(&micro.bound);
                let plan = self.finish(smallest)?;
                Err(PlanError::Refused(Box::new(refuse(&plan, budget, bound))))
            }
            (None, ..) => unreachable!("a survey without candidates"),
        }
    }

    fn finish(&self, option: &Choosable) -> Result<Plan, PlanError> {
        let micro = &self.batches[option.batch];
        let candidate = &micro.training[option.candidate];
        let by_name: HashMap<&str, Place> = micro.states.iter().map(|s| (s.name.as_str(), s.place)).collect();
        let pinned = micro.pinned(&candidate.draft);
        let mut programs =
            vec![place::program(&candidate.draft, &by_name, pinned, &option.packing, candidate.clones.clone())];
        let mut peak = candidate.draft.peak_with_accumulators();
        for d in &micro.others {
            let packing = pack(&items(d), self.target.alignment());
            peak = peak.max(d.peak_with_accumulators());
            programs.push(place::program(d, &by_name, micro.pinned(d), &packing, Vec::new()));
        }
        programs.sort_by_key(|p| p.phase);
        let plan = Plan {
            batch: self.batch,
            micro_batch: micro.size,
            programs,
            states: micro.states.clone(),
            state_bytes: micro.state_bytes,
            transient_bytes: option.transient,
            peak_bytes: micro.state_bytes + peak,
            keep_all_bytes: self.keep_all_bytes,
            lower_bound_bytes: self.lower_bound_bytes(),
            recomputed_ops: candidate.recomputed,
            savings: self.savings(option),
            predicted_step_seconds: option.seconds,
            fastest_step_seconds: self.options[0].seconds,
            profile_hash: self.profile_hash,
        };
        for program in &plan.programs {
            validate(&plan, program, self.target)
                .map_err(|problem| PlanError::Invalid { phase: program.phase, problem })?;
        }
        Ok(plan)
    }

    /// The free tools, and what recompute and micro-batches save on top of them.
    fn savings(&self, option: &Choosable) -> Vec<Saving> {
        let mut savings = self.savings.clone();
        let peak = |b: usize, c: usize| {
            let micro = &self.batches[b];
            (micro.pinned(&micro.training[c].draft) + micro.training[c].draft.peak()) as i64
        };
        savings.push(Saving { tool: "micro-batches", bytes: peak(0, 0) - peak(option.batch, 0) });
        let bytes = peak(option.batch, 0) - peak(option.batch, option.candidate);
        savings.push(Saving { tool: "recompute", bytes });
        savings.retain(|s| s.bytes != 0);
        savings
    }
}

/// Gives every state of every program one place: kept ones side by side in the state segment, accumulators at the start
/// of the transient segment. Returns the slots and the bytes of both, which are whole multiples of the alignment: so is
/// what a device takes for a segment.
fn place_states(graphs: &[(Phase, Graph)], alignment: u64) -> Result<(Vec<StateSlot>, u64, u64), PlanError> {
    let mut slots: Vec<StateSlot> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let (mut state_end, mut pinned_end) = (0u64, 0u64);
    for (phase, graph) in graphs {
        for (state, v) in graph.states() {
            let ty = graph.ty(v).clone();
            if let Some(&i) = index.get(&state.name) {
                if slots[i].ty != ty {
                    let problem = format!("state \"{}\" is {ty} here and {} elsewhere", state.name, slots[i].ty);
                    return Err(PlanError::Graph { phase: *phase, problem });
                }
                continue;
            }
            let (segment, end) = match state.class {
                StateClass::Accumulator => (Segment::Transient, &mut pinned_end),
                StateClass::Param | StateClass::Slot | StateClass::Statistic => (Segment::State, &mut state_end),
            };
            let offset = end.next_multiple_of(alignment);
            let size = ty.bytes();
            *end = offset + size;
            index.insert(state.name.clone(), slots.len());
            let place = Place { segment, offset, size };
            slots.push(StateSlot { name: state.name.clone(), class: state.class, ty, init: state.init, place });
        }
    }
    Ok((slots, state_end.next_multiple_of(alignment), pinned_end.next_multiple_of(alignment)))
}

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn one_sample_at_a_time_is_always_looked_at() {
        assert!(divisors(1).is_empty());
        assert_eq!(divisors(12), [6, 4, 3, 2, 1]);
        assert_eq!(divisors(240), [120, 80, 60, 48, 40, 30, 24, 1]);
    }
}
