//! A run of memfit: [`RunConfig`] → [`RunResources`] → [`train::Training`]. What a run file says; its model, data sets, device
//! and plan; and the folder that it leaves. What a front end needs to train by run files; the command line is one.
//!
//! It never prints, reads arguments, or listens to signals: what happens is handed to callbacks, and what is wrong is a
//! [`RunError`] that carries facts.

pub mod announce;
pub mod config;
pub mod cost_model;
pub mod data;
pub mod device;
mod error;
pub mod file;
mod from_first;
pub mod goal;
pub mod history;
mod host_budget;
pub mod idle;
mod model;
pub mod neighbours;
pub mod planning;
pub mod process;
pub mod profiling;
pub mod replicas;
pub mod resident;
mod resources;
pub mod room;
pub mod run_dir;
mod step_config;
pub mod text;
pub mod together;
pub mod train;
pub mod weights;

pub use config::RunConfig;
pub use error::{Difference, LikelyWeights, Result, RunError, arrays_words, header_words, task_words};
pub use from_first::{StartedRuns, by_first, wait_for_all};
pub use resources::{DIGITS, Purpose, RunResources, by_replica, open, open_among, open_to_answer, threads};
