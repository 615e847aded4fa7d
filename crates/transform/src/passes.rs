//! The passes, in the order they run, with the reason for each. [`crate::step()`] and [`crate::split_step()`] run these lists
//! and nothing besides. What the planner does to a graph afterwards is a list of its own, in `memfit-plan`.

use crate::error::Result;
use crate::freeze::freeze;
use crate::precision::{self, scale};
use crate::prune::prune_step;
use crate::step::{
    Job, accumulate, clip, differentiate, join, name_loss, replicate, start_from_sums, synchronise, update,
};

/// One change of the graph on its way from a model to a training step.
pub struct Pass {
    pub name: &'static str,
    /// Why it runs, and why here.
    pub reason: &'static str,
    pub(crate) run: fn(&mut Job) -> Result<()>,
}

/// The whole step, from a forward graph.
pub const STEP: &[Pass] = &[
    FREEZE,
    NAME_LOSS,
    SYNCHRONISE,
    ROUND,
    DIFFERENTIATE,
    ROUND_GRADIENTS,
    JOIN,
    UNSCALE,
    CLIP,
    UPDATE,
    RESCALE,
    REPLICATE,
    WIDEN,
    PRUNE,
    VERIFY,
];
/// One micro-batch of a step, from a forward graph.
pub const ACCUMULATE: &[Pass] = &[FREEZE, ROUND, DIFFERENTIATE, ROUND_GRADIENTS, ADD_UP, WIDEN, PRUNE, VERIFY];
/// The end of a step in micro-batches, from the same forward graph.
pub const APPLY: &[Pass] = &[FREEZE, START_FROM_SUMS, UNSCALE, CLIP, UPDATE, RESCALE, REPLICATE, PRUNE, VERIFY];

const FREEZE: Pass = Pass {
    name: "freeze",
    reason: "frozen batch norms use their running statistics; first, so that no pass sees that they were to be updated",
    run: |job| {
        job.graph = freeze(&job.graph, &job.task.training.frozen)?;
        Ok(())
    },
};
const NAME_LOSS: Pass = Pass {
    name: "name loss",
    reason: "who runs the step reads the loss by its name; before anything renumbers values",
    run: name_loss,
};
const SYNCHRONISE: Pass = Pass {
    name: "synchronise",
    reason: "where batch norms are to see the whole batch, replicas join their statistics; before gradients, which flow through \
             these, and behind the outputs' names, which tell whose statistics are read",
    run: synchronise,
};
const ROUND: Pass = Pass {
    name: "round",
    reason: "stores activations in 16 bits; before gradients, so that these are taken of the numbers that are used",
    run: precision::round,
};
const DIFFERENTIATE: Pass = Pass {
    name: "differentiate",
    reason: "everything below reads the gradients of the trained parameters",
    run: differentiate,
};
const ROUND_GRADIENTS: Pass = Pass {
    name: "round gradients",
    reason: "stores what else is an activation's gradient in 16 bits; while it is known which values are",
    run: precision::round_gradients,
};
const JOIN: Pass = Pass {
    name: "join",
    reason: "where replicas train together, all that follows reads the sums over their lanes",
    run: join,
};
const REPLICATE: Pass = Pass {
    name: "replicate",
    reason: "parameters that another replica updates are there when its update is; behind the sums, so that these come first",
    run: replicate,
};
const UNSCALE: Pass = Pass {
    name: "unscale",
    reason: "with f16 the gradients carry the loss's scale, of which neither clip nor optimizer may know",
    run: scale::unscale,
};
const RESCALE: Pass = Pass {
    name: "rescale",
    reason: "the next step's scale follows from whether this one overflowed",
    run: scale::rescale,
};
const WIDEN: Pass = Pass {
    name: "widen",
    reason: "casts back to f32 stand directly before each reader, so it follows everything that adds readers",
    run: precision::widen,
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
const START_FROM_SUMS: Pass = Pass {
    name: "start from sums",
    reason: "the forward and backward passes have run for each micro-batch: what is left reads the sums that they filled, over the \
             lanes of all replicas",
    run: start_from_sums,
};
const PRUNE: Pass = Pass {
    name: "prune",
    reason: "gradients and cuts leave nodes that nothing reads; a planner should not see them",
    run: |job| {
        // Of several losses, each may train a part of the model: the forward pass ends with the last of them.
        let ends = job.losses.iter().map(|&loss| job.graph.producer(loss));
        let forward_end = ends.max().expect("a step has a loss");
        let pruned = prune_step(&job.graph, forward_end);
        (job.graph, job.notes.forward_end) = (pruned.graph, pruned.forward_end);
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
