//! The passes, in the order they run, with the reason for each. [`crate::step()`] runs these lists and nothing besides.

use crate::error::Result;
use crate::prune::prune;
use crate::step::{Job, accumulate, clip, differentiate, update};

/// One change of the graph on its way from a model to a training step.
pub struct Pass {
    pub name: &'static str,
    /// Why it runs, and why here.
    pub reason: &'static str,
    pub(crate) run: fn(&mut Job) -> Result<()>,
}

/// The whole step, from a forward graph.
pub const STEP: &[Pass] = &[DIFFERENTIATE, CLIP, UPDATE, PRUNE, VERIFY];
/// One micro-batch of a step, from a forward graph.
pub const ACCUMULATE: &[Pass] = &[DIFFERENTIATE, ADD_UP, PRUNE, VERIFY];
/// The end of a step in micro-batches, from the graph of its accumulators.
pub const APPLY: &[Pass] = &[CLIP, UPDATE, PRUNE, VERIFY];

const DIFFERENTIATE: Pass = Pass {
    name: "differentiate",
    reason: "everything below reads the gradients of the trained parameters",
    run: differentiate,
};
const CLIP: Pass = Pass {
    name: "clip",
    reason: "limits the gradients of the whole batch, so it follows their sum and precedes the optimizer",
    run: clip,
};
const UPDATE: Pass = Pass {
    name: "update",
    reason: "one optimizer node for each parameter, each on its own, so that a plan may run it as soon as it can",
    run: update,
};
const ADD_UP: Pass = Pass {
    name: "add up",
    reason: "sums what a micro-batch contributes to its batch and takes out what must run once a batch",
    run: accumulate,
};
const PRUNE: Pass = Pass {
    name: "prune",
    reason: "gradients and cuts leave nodes that nothing reads; a planner should not see them",
    run: |job| {
        job.graph = prune(&job.graph);
        Ok(())
    },
};
const VERIFY: Pass = Pass {
    name: "verify",
    reason: "a name used twice, or a state updated twice, is found here and not by an executor",
    run: |job| Ok(memfit_ir::verify(&job.graph)?),
};

pub(crate) fn run(passes: &[Pass], job: &mut Job) -> Result<()> {
    passes.iter().try_for_each(|pass| (pass.run)(job))
}
