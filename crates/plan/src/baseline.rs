//! What a plan is held against: what a plain eager framework would hold, and what each free tool saves on the way from
//! there.

use memfit_transform::StepGraph;
use memfit_transform::group::Grouping;

use crate::draft::{Draft, Optimizations, PlanContext};
use crate::error::PlanError;
use crate::order::Effort;
use crate::passes::save_masks;
use crate::types::{Phase, Saving, Tool};

/// The most live bytes where every forward value that the backward pass reads stays until its last reader, nothing runs
/// in place, no cheap form is saved, and all gradients stand together until one update at the end.
pub fn keep_all(graphs: &[(Phase, StepGraph)], cx: &PlanContext) -> Result<u64, PlanError> {
    let cx = PlanContext { optimizations: Optimizations::NONE, grouping: Grouping::Single, ..*cx };
    let draft = |(phase, graph): &(Phase, StepGraph)| Draft::new(*phase, graph.clone(), &cx, Effort::Quick);
    let peaks = graphs.iter().map(|g| Ok(draft(g)?.peak_with_accumulators()));
    Ok(peaks.collect::<Result<Vec<u64>, PlanError>>()?.into_iter().max().unwrap_or(0))
}

/// What each of the free tools saves on top of those before it.
pub fn savings(graphs: &[(Phase, StepGraph)], cx: &PlanContext) -> Result<Vec<Saving>, PlanError> {
    let Some((phase, graph)) = graphs.iter().find(|(p, _)| p.is_training()) else { return Ok(Vec::new()) };
    let peak = |optimizations: Optimizations, grouping: Grouping| {
        let cx = PlanContext { optimizations, grouping, ..*cx };
        let graph = if optimizations.masks { save_masks(graph) } else { graph.clone() };
        Draft::new(*phase, graph, &cx, Effort::Quick).map(|d| d.peak())
    };
    let mut before = peak(Optimizations::NONE, Grouping::Single)?;
    let stages = [
        (Tool::Groups, Optimizations::NONE),
        (Tool::InPlace, Optimizations { in_place: true, ..Optimizations::NONE }),
        (Tool::Masks, Optimizations { in_place: true, masks: true, ..Optimizations::NONE }),
        (Tool::Order, Optimizations::ALL),
    ];
    let mut savings = Vec::new();
    for (tool, optimizations) in stages {
        let now = peak(optimizations, cx.grouping)?;
        savings.push(Saving { tool, bytes: before as i64 - now as i64 });
        before = now;
    }
    Ok(savings)
}
