//! From a model to the programs that are planned for it.

use memfit_nn::{Forward, Mode, Model};
use memfit_plan::Phase;
use memfit_transform::{StepGraph, Training, export, forward_in, split_step, step};

/// An error of building or transforming a model, as the planner passes it on.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// The programs of a model for one micro-batch: a whole step where it is the batch, else accumulate and apply; and
/// evaluation of a micro-batch, so that it never needs more memory than training. Training gives the loss and whatever
/// else is a single number, so that nothing large has to be kept until its end; evaluation gives every output. Both
/// round their activations alike. Last comes the export, which hands out the states.
pub fn programs(
    model: &dyn Model,
    training: &Training,
    batch: usize,
    micro_batch: usize,
) -> Result<Vec<(Phase, StepGraph)>, SourceError> {
    let Forward { mut graph, loss, .. } = model.build(micro_batch, Mode::Train)?;
    let numbers: Vec<bool> = graph.outputs.iter().map(|(_, v)| graph.ty(*v).shape.rank() == 0).collect();
    let mut numbers = numbers.into_iter();
    graph.outputs.retain(|_| numbers.next().unwrap_or(false));
    let eval = model.build(micro_batch, Mode::Eval)?;
    let mut programs = if micro_batch == batch {
        vec![(Phase::Step, step(&graph, loss, training)?)]
    } else {
        let split = split_step(&graph, loss, training, micro_batch as f32 / batch as f32)?;
        vec![(Phase::Accumulate, split.accumulate), (Phase::Apply, split.apply.into())]
    };
    programs.push((Phase::Eval, forward_in(&eval.graph, training.precision)?.into()));
    let export = export(programs.iter().map(|(_, step)| &step.graph))?;
    programs.push((Phase::Export, export.into()));
    Ok(programs)
}
