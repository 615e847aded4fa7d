//! What can go wrong with data. Every message names the place and, where there is one, the cure.

use std::path::PathBuf;

use crate::memory::NoRoom;

pub type Result<T, E = DataError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// For the moment: the pipeline tries again when bytes have come back.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// For good: this is what was missing when an element was made with nothing beside it; it may be more.
    #[error("the host budget of {limit} bytes is too small: {what} needs at least {needed}; raise --host-budget")]
    Budget { limit: u64, needed: u64, what: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// One sample is not what it should be: what `skip bad` leaves out.
    #[error("{place}: {problem}; or leave it out: --skip-bad")]
    Bad { place: String, problem: String },
    /// The source as a whole cannot be used: an empty folder, a file of another format.
    #[error("{place}: {problem}")]
    Source { place: String, problem: String },
    /// Verbs that do not go together, or a wrong number given to one.
    #[error("{0}")]
    Pipeline(String),
}

/// "1 row", "2 rows".
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl DataError {
    pub fn bad(place: impl ToString, problem: impl ToString) -> DataError {
        DataError::Bad { place: place.to_string(), problem: problem.to_string() }
    }

    /// The same once more, for what a generator gave as an error and may be asked again.
    pub(crate) fn again(&self) -> DataError {
        match self {
            DataError::NoRoom(e) => DataError::NoRoom(*e),
            DataError::Budget { limit, needed, what } => {
                DataError::Budget { limit: *limit, needed: *needed, what: what.clone() }
            }
            DataError::Io { path, source } => {
                DataError::Io { path: path.clone(), source: std::io::Error::new(source.kind(), source.to_string()) }
            }
            DataError::Bad { place, problem } => DataError::bad(place, problem),
            DataError::Source { place, problem } => DataError::source(place, problem),
            DataError::Pipeline(problem) => DataError::Pipeline(problem.clone()),
        }
    }

    pub fn source(place: impl ToString, problem: impl ToString) -> DataError {
        DataError::Source { place: place.to_string(), problem: problem.to_string() }
    }
}
