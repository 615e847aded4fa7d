//! The errors of running and comparing. Each names the tensor, the layer or the golden case that it is about.

use std::path::PathBuf;

use memfit_ir::TensorType;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Graph(#[from] memfit_ir::Error),
    #[error(transparent)]
    Transform(#[from] memfit_transform::Error),
    #[error(transparent)]
    Plan(#[from] memfit_plan::PlanError),
    /// What an executor under test reports.
    #[error(transparent)]
    Exec(#[from] memfit_exec::ExecError),
    #[error("a tensor of {ty} has {} elements, but {given} were given", .ty.elements())]
    ElementCount { ty: TensorType, given: usize },
    #[error("the graph needs the {kind} \"{name}\" of {ty}, but it was not given")]
    NotGiven { kind: &'static str, name: String, ty: TensorType },
    #[error("the {kind} \"{name}\" must be {expected}, but {given} was given")]
    WrongType { kind: &'static str, name: String, expected: TensorType, given: TensorType },
    /// A label or a row number that is negative or not below `limit`.
    #[error("{op}{}: the id {id} is not in 0..{limit}", at(.scope))]
    IdOutOfRange { op: &'static str, scope: String, id: f64, limit: usize },
    #[error("{op} in layer \"{scope}\" needs other replicas, and the reference has none")]
    NeedsOthers { op: &'static str, scope: String },
    #[error("{what}: the shape is {given}, expected {expected}")]
    WrongShape { what: String, expected: String, given: String },
    #[error(
        "{what}: element {index:?} is {given}, expected {expected}; the error is {error:.2e} of the largest magnitude, \
         allowed is {tolerance:.0e}"
    )]
    NotClose { what: String, index: Vec<usize>, expected: f64, given: f64, error: f64, tolerance: f64 },
    #[error("{what}: element {index:?} is {given:e}, but {expected:e} in the other run; they must be the same bits")]
    NotSame { what: String, index: Vec<usize>, expected: f64, given: f64 },
    #[error("{op} of {at:?}: element {index:?} of {output} is {given:e}, expected {expected:e}")]
    Edge { op: &'static str, output: String, index: Vec<usize>, at: Vec<f64>, expected: f64, given: f64 },
    #[error("{what}: element {index:?} is {given}, but {reference} in the reference and {other} elsewhere")]
    NanPlace { what: String, index: Vec<usize>, given: f64, reference: f64, other: f64 },
    #[error("{op} hides a NaN")]
    HiddenNan { op: &'static str },
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a list of golden cases: {source}", .path.display())]
    CaseList { path: PathBuf, source: serde_json::Error },
    #[error("{} does not hold tensors: {source}", .path.display())]
    TensorFile { path: PathBuf, source: safetensors::SafeTensorError },
    #[error("{}: the tensor \"{name}\" is missing", .path.display())]
    NoTensor { path: PathBuf, name: String },
    #[error("{}: the tensor \"{name}\" has elements of type {dtype}, which no golden case uses", .path.display())]
    ElementType { path: PathBuf, name: String, dtype: String },
    #[error("golden case {case}: the attribute \"{attribute}\" {problem}")]
    Attribute { case: String, attribute: String, problem: String },
    #[error("golden case {case}: {problem}")]
    Case { case: String, problem: String },
    #[error("golden case {case}: {source}")]
    CaseGraph { case: String, source: memfit_ir::Error },
}

fn at(scope: &str) -> String {
    if scope.is_empty() { String::new() } else { format!(" in layer \"{scope}\"") }
}
