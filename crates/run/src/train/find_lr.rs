//! A learning rate for a run: a few dozen steps at rates that rise, as its training would make them. Nothing is kept of them.

use memfit::exec::Farewell;
use memfit::train::{Flow, RangeTest, Trial, Tried, find_learning_rate};

use super::run_all::among_replicas;
use super::{OtherReplica, Training};
use crate::error::{Result, RunError};

/// Makes the steps of the test with all replicas of a training, which was [prepared](super::prepare) to
/// [keep nothing](super::Keeps::Nothing). The observer sees each of them, and is asked with nothing while data are waited for;
/// `farewell` is what a replica that fails tells the others.
pub fn find_lr(
    mut training: Training,
    test: &RangeTest,
    farewell: &(dyn Fn(&RunError) -> Farewell + Sync),
    observer: &mut dyn FnMut(Option<&Trial>) -> Flow,
) -> Result<Tried> {
    // Of the replicas of a process one is asked.
    let silent = |other: &mut OtherReplica| {
        let OtherReplica { session, data, options, .. } = other;
        let tried = find_learning_rate(session, &data.train, &options.feed, test, &mut |_| Flow::Continue);
        tried.map(drop).map_err(RunError::from).inspect_err(|error| session.leave(farewell(error)))
    };
    let first = |training: &mut Training| {
        let Training { session, data, options, .. } = training;
        let tried = find_learning_rate(session, &data.train, &options.feed, test, observer);
        tried.map_err(RunError::from).inspect_err(|error| session.leave(farewell(error)))
    };
    among_replicas(&mut training, first, &silent)
}
