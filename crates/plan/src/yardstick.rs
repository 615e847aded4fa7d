//! What a plan is held against: what a plain eager framework would hold, and what each free tool saves on the way from
//! there.

use memfit_transform::StepGraph;
use memfit_transform::group::Grouping;

use crate::draft::{Draft, Tools, Workshop};
use crate::error::PlanError;
use crate::order::Effort;
use crate::passes::save_masks;
use crate::types::{Phase, Saving, Tool};

/// The most live bytes where every forward value that the backward pass reads stays until its last reader, nothing runs
/// in place, no cheap form is saved, and all gradients stand together until one update at the end.
pub fn keep_all(graphs: &[(Phase, StepGraph)], shop: &Workshop) -> Result<u64, PlanError> {
    let shop = Workshop { tools: Tools::NONE, grouping: Grouping::Single, ..*shop };
    let draft = |(phase, graph): &(Phase, StepGraph)| Draft::new(*phase, graph.clone(), &shop, Effort::Quick);
    let peaks = graphs.iter().map(|g| Ok(draft(g)?.peak_with_accumulators()));
    Ok(peaks.collect::<Result<Vec<u64>, PlanError>>()?.into_iter().max().unwrap_or(0))
}

/// What each of the free tools saves on top of those before it.
pub fn savings(graphs: &[(Phase, StepGraph)], shop: &Workshop) -> Result<Vec<Saving>, PlanError> {
    let Some((phase, graph)) = graphs.iter().find(|(p, _)| p.is_training()) else { return Ok(Vec::new()) };
    let peak = |tools: Tools, grouping: Grouping| {
        let shop = Workshop { tools, grouping, ..*shop };
        let graph = if tools.masks { save_masks(graph) } else { graph.clone() };
        Draft::new(*phase, graph, &shop, Effort::Quick).map(|d| d.peak())
    };
    let mut before = peak(Tools::NONE, Grouping::Single)?;
    let stages = [
        (Tool::Groups, Tools::NONE),
        (Tool::InPlace, Tools { in_place: true, ..Tools::NONE }),
        (Tool::Masks, Tools { in_place: true, masks: true, ..Tools::NONE }),
        (Tool::Order, Tools::ALL),
    ];
    let mut savings = Vec::new();
    for (tool, tools) in stages {
        let now = peak(tools, shop.grouping)?;
        savings.push(Saving { tool, bytes: before as i64 - now as i64 });
        before = now;
    }
    Ok(savings)
}
