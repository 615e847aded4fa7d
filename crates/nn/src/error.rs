//! The errors of this crate, and the suggestion that an unknown name gets. Errors of single layers are those of the
//! graph builder, carried unchanged.

pub use memfit_ir::nearest;

/// What this crate gives, or why not.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model cannot be named, set up or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A layer cannot be built; the message names it.
    #[error(transparent)]
    Graph(#[from] memfit_ir::Error),
    /// A name that nothing has.
    #[error("there is no {what} \"{given}\"{}; known are {}", suggestion(.known, .given), .known.join(", "))]
    Unknown {
        /// The kind of thing that was asked for: "model", "optimizer".
        what: &'static str,
        /// The name that was given.
        given: String,
        /// Every name that there is.
        known: Vec<&'static str>,
    },
    /// An option that the model does not have, or a value that it cannot take.
    #[error("{model}: {problem}")]
    Option {
        /// The model, or the option where several models are meant.
        model: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// An option that the model does not have, with those that it has.
    #[error("{model} has no {option}; {}", match known[..] {
        [] => "it has nothing to choose but its input and classes".to_string(),
        _ => format!("it has {}", .known.join(", ")),
    })]
    NoOption {
        /// The model.
        model: String,
        /// What it has not.
        option: &'static str,
        /// What can be chosen of it, besides input and classes.
        known: Vec<&'static str>,
    },
    /// Whatever a model of one's own fails with.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Of the known names, the one that was probably meant; for [`Error::Unknown`] only.
    pub fn nearest(&self) -> Option<&'static str> {
        match self {
            Error::Unknown { given, known, .. } => nearest(known, given),
            Error::Graph(_) | Error::Option { .. } | Error::NoOption { .. } | Error::Other(_) => None,
        }
    }
}

fn suggestion(known: &[&'static str], given: &str) -> String {
    nearest(known, given).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"))
}
