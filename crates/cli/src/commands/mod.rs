//! One file a command.

pub mod devices;
pub mod models;
pub mod pack;
pub mod plan;
pub mod train;
