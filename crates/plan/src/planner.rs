//! The pipeline: programs → candidates → the fastest that fits → places → validated plan, or a refusal.
//!
//! Candidates come first and never look at the budget ([`survey`]). So a larger budget never gives a slower plan, and the
//! whole range of budgets costs no more than one.

use std::collections::HashMap;

use memfit_ir::op::StateClass;
use memfit_ir::verify;
use memfit_transform::group::Grouping;
use memfit_transform::{Fusion, StepGraph, batch_dependence};

use crate::bound::{Bound, lower_bound};
use crate::cost_model::CostModel;
use crate::draft::{Draft, Tools, Workshop};
use crate::error::PlanError;
use crate::limit::{too_large_to_allocate, too_large_to_bind};
use crate::order::Effort;
use crate::pack::{Item, Packing, pack, pack_briefly, pack_until};
use crate::passes::save_masks;
use crate::place;
use crate::recompute::{Candidate, Depth, candidates};
use crate::refuse::refuse;
use crate::sizes::micro_batches;
use crate::support::check_supported;
use crate::target::Target;
use crate::types::{MadeFor, Phase, Place, Plan, Saving, Segment, StateSlot, Tool};
use crate::validate::validate;
use crate::yardstick::{keep_all, savings};

/// Makes the programs for a micro-batch: `[Step]` where it is the whole batch, else `[Accumulate, Apply]`; and `Eval`
/// where it is wanted.
pub type Source<'a> = dyn Fn(usize) -> Result<Vec<(Phase, StepGraph)>, Box<dyn std::error::Error + Send + Sync>> + 'a;

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
    /// None for that of the target.
    pub cost_model: Option<CostModel>,
}

impl Request {
    pub fn new(batch: usize) -> Request {
        Request { batch, micro_batch: MicroBatch::Auto, budget: None, grouping: Grouping::Fused, cost_model: None }
    }
}

/// Plans a model for a device under a budget. Pure: the same arguments give the same plan.
pub fn plan(source: &Source, target: &dyn Target, request: &Request) -> Result<Plan, PlanError> {
    survey(source, target, request)?.plan(request.budget)
}

/// Looks for candidates of every size and speed.
pub fn survey<'a>(source: &Source, target: &'a dyn Target, request: &Request) -> Result<Survey<'a>, PlanError> {
    let Request { batch, .. } = *request;
    let cost_model = request.cost_model.clone().unwrap_or_else(|| target.cost_model());
    let shop = Workshop { target, grouping: request.grouping, cost_model: &cost_model, tools: Tools::ALL };
    let first = match request.micro_batch {
        MicroBatch::Exactly(n) if n == 0 || !batch.is_multiple_of(n) => {
            return Err(PlanError::MicroBatch { micro_batch: n, batch });
        }
        MicroBatch::Exactly(n) => n,
        MicroBatch::Auto | MicroBatch::Off | MicroBatch::Allow => batch,
    };
    let graphs = programs(source, first)?;
    let is_cut = match request.micro_batch {
        MicroBatch::Allow => true,
        MicroBatch::Auto => !mixes(&graphs, batch),
        MicroBatch::Off | MicroBatch::Exactly(_) => false,
    };
    // First, for it asks whether the device can run them at all.
    let mut batches = vec![Micro::new(first, graphs.clone(), &shop, Depth::Full)?];
    let keep_all_bytes = keep_all_bytes(source, batch, &graphs, first, &shop)?;
    let savings = savings(&graphs, &shop)?;
    for n in micro_batches(batch).into_iter().filter(|&n| is_cut && n < batch) {
        let graphs = programs(source, n)?;
        // A source that knows whole steps only has nothing to be cut.
        if !graphs.iter().any(|(phase, _)| *phase == Phase::Step) {
            // What does not fit one sample at a time fits with no size, so that one is searched as if it were asked for.
            let depth = if n == 1 { Depth::Full } else { Depth::Sketch };
            batches.push(Micro::new(n, graphs, &shop, depth)?);
        }
    }
    let cost_model_hash = cost_model.hash();
    let fusion = shop.fusion();
    let mut survey =
        Survey { target, fusion, batch, cost_model_hash, keep_all_bytes, savings, batches, options: Vec::new() };
    survey.options = survey.efficient(|_| true);
    match survey.options.is_empty() {
        true => Err(survey.too_large()),
        false => Ok(survey),
    }
}

/// What a plain eager framework would hold for the whole batch, whatever the micro-batch; for the micro-batch where the
/// whole batch is too large to be built. `graphs` are those of a micro-batch of `size`.
fn keep_all_bytes(
    source: &Source,
    batch: usize,
    graphs: &[(Phase, StepGraph)],
    size: usize,
    shop: &Workshop,
) -> Result<u64, PlanError> {
    let whole = if size == batch { None } else { programs(source, batch).ok() };
    let graphs = whole.as_deref().unwrap_or(graphs);
    let (_, state_bytes, _) = place_states(graphs, shop.target.alignment())?;
    Ok(state_bytes + keep_all(graphs, shop)?)
}

fn programs(source: &Source, micro_batch: usize) -> Result<Vec<(Phase, StepGraph)>, PlanError> {
    let graphs = source(micro_batch).map_err(PlanError::Source)?;
    for (phase, step) in &graphs {
        verify(&step.graph).map_err(|e| PlanError::Graph { phase: *phase, problem: e.to_string() })?;
    }
    let total: u128 = graphs.iter().flat_map(|(_, g)| g.graph.values()).map(|v| v.ty.bytes() as u128).sum();
    if total > i64::MAX as u128 / 4 {
        return Err(PlanError::TooLarge);
    }
    Ok(graphs)
}

fn mixes(graphs: &[(Phase, StepGraph)], batch: usize) -> bool {
    graphs.iter().any(|(_, g)| g.forward_end.is_some_and(|end| batch_dependence(&g.graph, end, batch).is_some()))
}

/// All that is known about a model on a device, before a budget is given.
pub struct Survey<'a> {
    target: &'a dyn Target,
    fusion: Fusion,
    batch: usize,
    cost_model_hash: u64,
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
    /// The other programs, each in one draft and packed.
    others: Vec<(Draft, Packing)>,
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
    fn new(size: usize, graphs: Vec<(Phase, StepGraph)>, shop: &Workshop, depth: Depth) -> Result<Micro, PlanError> {
        let graphs: Vec<(Phase, StepGraph)> = graphs.into_iter().map(|(phase, g)| (phase, save_masks(&g))).collect();
        check_supported(&graphs, shop)?;
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
        let packed = |draft: Draft| {
            let packing = pack(&items(&draft), shop.target.alignment());
            (draft, packing)
        };
        let others = others.into_iter().map(packed).collect();
        Ok(Micro { size, states, state_bytes, pinned_bytes, training, others, bound })
    }

    fn pinned(&self, draft: &Draft) -> u64 {
        if draft.has_accumulators() { self.pinned_bytes } else { 0 }
    }

    /// Bytes of the transient segment for all programs, with a draft of the training program that is packed into so many.
    fn transient(&self, draft: &Draft, capacity: u64, alignment: u64) -> u64 {
        (self.pinned(draft) + capacity).max(self.others_end()).next_multiple_of(alignment)
    }

    /// The end of the largest of the other programs.
    fn others_end(&self) -> u64 {
        self.others.iter().map(|(d, p)| self.pinned(d) + p.capacity).max().unwrap_or(0).max(self.pinned_bytes)
    }

    /// The candidates that the device can bind, without those that save nothing: making values again, or reading them from
    /// other places, is for saving memory. A gain in time alone would be within the error of prediction.
    fn worth_packing(&self, target: &dyn Target) -> Vec<usize> {
        let binds = |d: &Draft| too_large_to_bind(d, target).is_none();
        if !self.others.iter().all(|(d, _)| binds(d)) {
            return Vec::new();
        }
        let keeping_all = self.training[0].draft.peak();
        let is_vain = |c: usize| c > 0 && self.training[c].draft.peak() >= keeping_all;
        (0..self.training.len()).filter(|&c| !is_vain(c) && binds(&self.training[c].draft)).collect()
    }

    /// Of some candidates, the fastest and the one with the fewest live bytes.
    fn ends(&self, candidates: &[usize]) -> [usize; 2] {
        let draft = |c: usize| &self.training[c].draft;
        let by_time =
            |a: usize, b: usize| self.seconds(self.size, draft(a)).total_cmp(&self.seconds(self.size, draft(b)));
        let by_peak = |a: usize, b: usize| draft(a).peak().cmp(&draft(b).peak());
        let fastest = candidates.iter().min_by(|a, b| by_time(**a, **b).then(by_peak(**a, **b)));
        let smallest = candidates.iter().min_by(|a, b| by_peak(**a, **b).then(by_time(**a, **b)));
        [fastest, smallest].map(|c| c.copied().unwrap_or(0))
    }

    /// Packs a candidate, and thoroughly those at the ends of the range: the fastest, and the one with the fewest live
    /// bytes. What it takes does not depend on the other sizes of micro-batches that are looked at.
    fn pack(&self, c: usize, ends: [usize; 2], alignment: u64) -> Packing {
        let draft = &self.training[c].draft;
        let enough = self.others_end().saturating_sub(self.pinned(draft));
        match ends.contains(&c) {
            true => pack_until(&items(draft), alignment, enough),
            false => pack_briefly(&items(draft), alignment, enough),
        }
    }

    /// Seconds of a whole step with a candidate.
    fn seconds(&self, batch: usize, candidate: &Draft) -> f64 {
        let times = |phase: Phase| match phase {
            Phase::Step | Phase::Apply => 1.0,
            Phase::Accumulate => (batch / self.size) as f64,
            Phase::Eval | Phase::Checkpoint => 0.0,
        };
        let of = |d: &Draft| times(d.phase) * d.total_seconds();
        let seconds = of(candidate) + self.others.iter().map(|(d, _)| of(d)).sum::<f64>();
        // To the nanosecond: the order of a sum must not make one plan faster than another.
        (seconds * 1e9).round() / 1e9
    }
}

fn items(draft: &Draft) -> Vec<Item> {
    draft.buffers.iter().map(|b| Item { lower: b.lower, upper: b.upper, size: b.size }).collect()
}

impl Survey<'_> {
    /// The efficient candidates of some micro-batches: sorted by predicted time, each smaller than all that are faster. Only
    /// what could be among them is packed.
    fn efficient(&self, is_meant: impl Fn(&Micro) -> bool) -> Vec<Choosable> {
        let alignment = self.target.alignment();
        let mut all: Vec<(f64, u64, usize, usize)> = Vec::new();
        let mut ends: Vec<[usize; 2]> = Vec::new();
        for (b, micro) in self.batches.iter().enumerate() {
            let worth = if is_meant(micro) { micro.worth_packing(self.target) } else { Vec::new() };
            ends.push(micro.ends(&worth));
            for c in worth {
                let draft = &micro.training[c].draft;
                // The live bytes are the least that a packing can take.
                let least = micro.transient(draft, draft.peak(), alignment);
                all.push((micro.seconds(self.batch, draft), micro.state_bytes + least, b, c));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut found: Vec<Choosable> = Vec::new();
        for (seconds, least, b, c) in all {
            let best = found.last().map_or(u64::MAX, |f| f.arena);
            if least >= best {
                continue;
            }
            let micro = &self.batches[b];
            let packing = micro.pack(c, ends[b], alignment);
            let transient = micro.transient(&micro.training[c].draft, packing.capacity, alignment);
            let arena = micro.state_bytes + transient;
            if arena < best && too_large_to_allocate(micro.state_bytes, transient, self.target).is_none() {
                found.push(Choosable { batch: b, candidate: c, arena, transient, seconds, packing });
            }
        }
        found
    }

    /// Why the device can run no candidate, however large the budget: what the smallest asks of it.
    fn too_large(&self) -> PlanError {
        let Some(micro) = self.batches.last() else { return PlanError::TooLarge };
        let unbound = |d: &Draft| too_large_to_bind(d, self.target);
        let drafts = micro.training.iter().map(|c| &c.draft);
        let Some(least) = drafts.min_by_key(|d| micro.pinned(d) + d.peak()) else { return PlanError::TooLarge };
        let alignment = self.target.alignment();
        let bytes = micro.transient(least, pack(&items(least), alignment).capacity, alignment);
        let segment = || too_large_to_allocate(micro.state_bytes, bytes, self.target);
        let limit = self.target.largest_segment();
        let unbound = micro.others.iter().find_map(|(d, _)| unbound(d)).or_else(|| unbound(least));
        unbound.or_else(segment).unwrap_or(PlanError::Segment { segment: Segment::Transient, bytes, limit })
    }

    /// What its plans are made for.
    pub fn made_for(&self) -> MadeFor {
        self.target.describe()
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
        if let Some(option) = self.options.iter().find(|o| (o.batch, o.candidate) == (0, 0)) {
            return option.arena;
        }
        let (micro, alignment) = (&self.batches[0], self.target.alignment());
        let packing = micro.pack(0, [0, 0], alignment);
        micro.state_bytes + micro.transient(&micro.training[0].draft, packing.capacity, alignment)
    }

    /// Of parameters, optimizer and statistics: the same in every plan.
    pub fn state_bytes(&self) -> u64 {
        self.batches.first().map_or(0, |m| m.state_bytes)
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

    /// The same among plans of one micro-batch, which all compute the same bits; none where none of them fits.
    pub(crate) fn plan_of_size(&self, budget: u64, micro_batch: usize) -> Result<Option<Plan>, PlanError> {
        let options = self.efficient(|m| m.size == micro_batch);
        let found = options.iter().find(|o| o.arena <= budget);
        found.map(|option| self.finish(option)).transpose()
    }

    fn finish(&self, option: &Choosable) -> Result<Plan, PlanError> {
        let micro = &self.batches[option.batch];
        let candidate = &micro.training[option.candidate];
        let by_name: HashMap<&str, Place> = micro.states.iter().map(|s| (s.name.as_str(), s.place)).collect();
        let pinned = micro.pinned(&candidate.draft);
        let mut programs =
            vec![place::program(&candidate.draft, &by_name, pinned, &option.packing, candidate.clones.clone())];
        let mut peak = candidate.draft.peak_with_accumulators();
        for (draft, packing) in &micro.others {
            peak = peak.max(draft.peak_with_accumulators());
            programs.push(place::program(draft, &by_name, micro.pinned(draft), packing, Vec::new()));
        }
        programs.sort_by_key(|p| p.phase);
        let plan = Plan {
            batch: self.batch,
            micro_batch: micro.size,
            programs,
            fusion: self.fusion,
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
            cost_model_hash: self.cost_model_hash,
            made_for: Some(self.target.describe()),
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
        savings.push(Saving { tool: Tool::MicroBatches, bytes: peak(0, 0) - peak(option.batch, 0) });
        let bytes = peak(option.batch, 0) - peak(option.batch, option.candidate);
        savings.push(Saving { tool: Tool::Recompute, bytes });
        savings.retain(|s| s.bytes != 0);
        savings
    }
}

/// Gives every state of every program one place: kept ones side by side in the state segment, accumulators at the start
/// of the transient segment. Returns the slots and the bytes of both, which are whole multiples of the alignment: so is
/// what a device takes for a segment.
fn place_states(graphs: &[(Phase, StepGraph)], alignment: u64) -> Result<(Vec<StateSlot>, u64, u64), PlanError> {
    let mut slots: Vec<StateSlot> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let (mut state_end, mut pinned_end) = (0u64, 0u64);
    for (phase, StepGraph { graph, .. }) in graphs {
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
