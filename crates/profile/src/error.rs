//! What can be wrong with a profile that somebody gives.

/// Why something is no profile, or none that can be used here.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is not JSON, or not of this form.
    #[error("it is no profile: {0}")]
    Form(#[from] serde_json::Error),
    /// It is a profile of a version that is not known.
    #[error("it is a profile of version {found}, and this program reads version {known}")]
    Version {
        /// Of the file.
        found: u32,
        /// Of this program.
        known: u32,
    },
    /// Two that cannot be compared.
    #[error("one is of {} and the other of {}: only profiles of one model can be compared", models[0], models[1])]
    DifferentModels {
        /// Of each.
        models: [String; 2],
    },
    /// Its numbers contradict each other.
    #[error("it contradicts itself: {0}")]
    Contradiction(String),
}
