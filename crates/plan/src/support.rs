//! Whether a device has a kernel for every node: asked before anything is planned, so that a refusal names all that is
//! missing and costs nothing.

use memfit_transform::StepGraph;

use crate::draft::PlanContext;
use crate::error::{PlanError, Unsupported};
use crate::passes::group;
use crate::types::Phase;

/// Asks for every node that a kernel would run.
pub fn check_supported(graphs: &[(Phase, StepGraph)], cx: &PlanContext) -> Result<(), PlanError> {
    let mut missing: Vec<Unsupported> = Vec::new();
    for (_, StepGraph { graph, .. }) in graphs {
        for id in group(graph, &cx.fusion()).iter().flat_map(|g| &g.nodes) {
            let Err(reason) = cx.target.supports(graph, *id) else { continue };
            let node = graph.node(*id);
            match missing.iter_mut().find(|u| (u.op, &u.reason) == (node.op.name(), &reason)) {
                Some(known) => known.count += 1,
                None => {
                    missing.push(Unsupported { op: node.op.name(), layer: node.scope.clone(), reason, count: 1 });
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(PlanError::Unsupported { device: cx.target.describe().to_string(), ops: missing })
}
