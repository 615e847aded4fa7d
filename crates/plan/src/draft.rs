//! A program on its way to a plan: grouped, ordered, its lifetimes and its time known, nothing placed yet.

use memfit_ir::op::StateClass;
use memfit_ir::{Graph, NodeId};
use memfit_transform::group::Grouping;
use memfit_transform::{Fusion, Group, StepGraph};

use crate::cost_model::CostModel;
use crate::error::PlanError;
use crate::flow::{Flow, not_in_place, read_too_late, storage};
use crate::lifetime::{Buffer, Owner, buffers, live_bytes};
use crate::order::{Effort, order};
use crate::outline::Outline;
use crate::passes::{copy_state, group};
use crate::target::Target;
use crate::types::Phase;

/// What every draft of a plan is made with.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    pub target: &'a dyn Target,
    pub grouping: Grouping,
    pub cost_model: &'a CostModel,
    pub optimizations: Optimizations,
}

impl PlanContext<'_> {
    pub fn fusion(&self) -> Fusion {
        match self.grouping {
            Grouping::Fused => self.target.fusion(),
            Grouping::Single => Fusion::NONE,
        }
    }
}

/// The tools that cost no time, or next to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimizations {
    /// Kernels write over what they read for the last time.
    pub in_place: bool,
    /// Bits instead of activations where only their sign is wanted.
    pub masks: bool,
    /// Another order than that of the graph.
    pub order: bool,
}

impl Optimizations {
    pub const ALL: Optimizations = Optimizations { in_place: true, masks: true, order: true };
    pub const NONE: Optimizations = Optimizations { in_place: false, masks: false, order: false };
}

#[derive(Clone, Debug)]
pub struct Draft {
    pub phase: Phase,
    pub graph: Graph,
    /// As in [`StepGraph`].
    pub forward_end: Option<NodeId>,
    /// In the order they run.
    pub groups: Vec<Group>,
    /// That order: which of the groups, as grouping numbers them, runs when.
    pub order: Vec<u32>,
    pub buffers: Vec<Buffer>,
    /// Live bytes of the transient segment at every launch, without accumulators.
    pub live: Vec<u64>,
    /// Predicted, of every launch.
    pub seconds: Vec<f64>,
}

impl Draft {
    /// Where a state would be overwritten while somebody needs it, it is copied first.
    pub fn new(phase: Phase, step: StepGraph, cx: &PlanContext, effort: Effort) -> Result<Draft, PlanError> {
        let effort = if cx.optimizations.order { effort } else { Effort::None };
        Draft::with_order(phase, step, cx, |flow| order(flow, effort))
    }

    /// The draft that an outline is of, made anew of the same program.
    pub fn again(step: StepGraph, outline: &Outline, cx: &PlanContext) -> Result<Draft, PlanError> {
        // Which states are copied shows with any order; what was searched for was kept.
        let known = |flow: &Flow| {
            let found = order(flow, Effort::Quick)?;
            let is_known = outline.order.len() == found.len();
            Some(if is_known { outline.order.to_vec() } else { found })
        };
        Draft::with_order(outline.phase, step, cx, known)
    }

    fn with_order(
        phase: Phase,
        mut step: StepGraph,
        cx: &PlanContext,
        order: impl Fn(&Flow) -> Option<Vec<u32>>,
    ) -> Result<Draft, PlanError> {
        let mut copies = step.graph.donations.len();
        loop {
            let graph = &step.graph;
            let groups = group(graph, &cx.fusion());
            let storage = storage(graph);
            let flow = Flow::new(graph, &groups, &storage, cx);
            let found = order(&flow);
            let state = match &found {
                None => read_too_late(graph, &groups, &storage),
                Some(_) => not_in_place(graph, &groups, &storage, cx.target),
            };
            match (found, state) {
                (Some(order), None) => return Ok(Draft::finish(phase, step, groups, &flow, order, cx)),
                (_, Some(state)) if copies > 0 => {
                    let problem = |e: memfit_ir::Error| PlanError::Graph { phase, problem: e.to_string() };
                    step = copy_state(&step, state).map_err(problem)?;
                    copies -= 1;
                }
                (_, state) => {
                    let state = state.map_or("a state".into(), |s| format!("the state %{}", s.0));
                    let problem = format!("{state} is overwritten while it is still needed");
                    return Err(PlanError::Graph { phase, problem });
                }
            }
        }
    }

    fn finish(
        phase: Phase,
        step: StepGraph,
        groups: Vec<Group>,
        flow: &Flow,
        order: Vec<u32>,
        cx: &PlanContext,
    ) -> Draft {
        let StepGraph { graph, forward_end } = step;
        let buffers = buffers(flow, &order);
        let live = live_bytes(&buffers, order.len());
        let groups: Vec<Group> = order.iter().map(|&i| groups[i as usize].clone()).collect();
        let fresh = fresh_bytes(&buffers, &groups);
        let seconds =
            groups.iter().zip(fresh).map(|(g, fresh)| cx.target.seconds(&graph, g, fresh, cx.cost_model)).collect();
        Draft { phase, graph, forward_end, groups, order, buffers, live, seconds }
    }

    /// The most live bytes of the transient segment, without accumulators.
    pub fn peak(&self) -> u64 {
        self.live.iter().copied().max().unwrap_or(0)
    }

    pub fn total_seconds(&self) -> f64 {
        self.seconds.iter().sum()
    }

    pub fn has_accumulators(&self) -> bool {
        self.graph.states().any(|(s, _)| s.class == StateClass::Accumulator)
    }

    pub fn accumulator_bytes(&self) -> u64 {
        accumulator_bytes(&self.graph)
    }

    /// The most live bytes of the transient segment.
    pub fn peak_with_accumulators(&self) -> u64 {
        self.peak() + self.accumulator_bytes()
    }
}

/// Bytes that each launch writes into buffers which begin with it.
fn fresh_bytes(buffers: &[Buffer], groups: &[Group]) -> Vec<u64> {
    let mut fresh = vec![0; groups.len()];
    for buffer in buffers {
        if let Owner::Values(values) = &buffer.owner
            && groups.get(buffer.lower).is_some_and(|g| values.first().is_some_and(|v| g.writes.contains(v)))
        {
            fresh[buffer.lower] += buffer.size;
        }
    }
    fresh
}

pub fn accumulator_bytes(graph: &Graph) -> u64 {
    let accumulators = graph.states().filter(|(s, _)| s.class == StateClass::Accumulator);
    accumulators.map(|(_, v)| graph.ty(v).bytes()).sum()
}
