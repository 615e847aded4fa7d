//! The errors of building, checking and reading graphs. Each names the op, the layer and the shapes involved.

use crate::op::Op;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A shape, type or attribute rule is broken.
    #[error("{op}{}: {problem}", in_layer(.scope))]
    Invalid { op: &'static str, scope: String, problem: String },
    #[error("{op}{}: reads value %{value}, which does not exist yet", in_layer(.scope))]
    UnknownValue { op: &'static str, scope: String, value: u32 },
    #[error("the name \"{name}\" is used twice; every input and state needs its own")]
    DuplicateName { name: String },
    #[error("{scope}: {problem}")]
    Model { scope: String, problem: String },
    /// The verifier's: what is wrong, and the lines of the text form around it.
    #[error("the graph is not well formed: {problem}\n{excerpt}")]
    Malformed { problem: String, excerpt: String },
    #[error("line {line}: {problem}\n  {text}")]
    Parse { line: usize, problem: String, text: String },
}

/// Where an op is, behind its name; nothing where it is in no layer.
pub fn in_layer(scope: &str) -> String {
    if scope.is_empty() { String::new() } else { format!(" in layer \"{scope}\"") }
}

/// A broken rule before it is known where: [`Rule::broken_by`] adds the op and the layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule(pub String);

impl Rule {
    pub fn broken_by(self, op: &Op, scope: &str) -> Error {
        Error::Invalid { op: op.name(), scope: scope.to_string(), problem: self.0 }
    }
}

/// `rule!("needs {} …", x)`: an `Err` with the broken rule.
#[macro_export]
#[doc(hidden)]
macro_rules! rule {
    ($($arg:tt)*) => { return Err($crate::error::Rule(format!($($arg)*))) };
}
