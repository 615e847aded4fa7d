//! What can go wrong in training. Every message names the thing, the place and the cure.

use memfit_exec::ExecError;
use memfit_exec::weights::WeightsError;
use memfit_ir::TensorType;

pub type Result<T, E = TrainError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("input \"{name}\" has {rows} rows, but \"{other}\" has {other_rows}; give both the same")]
    Rows { name: String, rows: usize, other: String, other_rows: usize },
    #[error("there are no rows to evaluate; give every input at least one")]
    NoRows,
    /// What is read row by row must have rows.
    #[error("output \"{name}\" is {ty}, which is not one result for each of {micro_batch} rows")]
    NotByRow { name: String, ty: TensorType, micro_batch: usize },
    #[error("a run has at most {} steps", u32::MAX)]
    TooManySteps,
}
