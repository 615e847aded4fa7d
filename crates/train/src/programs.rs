//! From a model to the programs that are planned for it.

use memfit_nn::{Forward, Mode, Model};
use memfit_plan::Phase;
use memfit_transform::{Exchange, StepGraph, Training, exchanging_split, exchanging_step, export, forward_in};

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
    replica_programs(model, training, batch, micro_batch, &Exchange::ALONE)
}

/// The same for one of several replicas, which share a batch: a whole step where every replica has one lane, and that is one
/// micro-batch.
pub fn replica_programs(
    model: &dyn Model,
    training: &Training,
    batch: usize,
    micro_batch: usize,
    exchange: &Exchange,
) -> Result<Vec<(Phase, StepGraph)>, SourceError> {
    let Forward { mut graph, loss, .. } = model.build(micro_batch, Mode::Train)?;
    let numbers: Vec<bool> = graph.outputs.iter().map(|(_, v)| graph.ty(*v).shape.rank() == 0).collect();
    let mut numbers = numbers.into_iter();
    graph.outputs.retain(|_| numbers.next().unwrap_or(false));
    let eval = model.build(micro_batch, Mode::Eval)?;
    let (share, replica) = (micro_batch as f32 / batch as f32, exchange.replica);
    let mut programs = if batch / micro_batch == replica.count && replica.lanes == replica.count {
        vec![(Phase::Step, exchanging_step(&graph, loss, training, share, exchange)?)]
    } else {
        let split = exchanging_split(&graph, loss, training, share, exchange)?;
        let folds = split.folds.into_iter().map(|(fold, graph)| (Phase::Fold(fold), graph.into()));
        let apply = [(Phase::Apply, split.apply.into())];
        [(Phase::Accumulate, split.accumulate)].into_iter().chain(folds).chain(apply).collect()
    };
    programs.push((Phase::Eval, forward_in(&eval.graph, training.precision)?.into()));
    let export = export(programs.iter().map(|(_, step)| &step.graph))?;
    programs.push((Phase::Export, export.into()));
    Ok(programs)
}
