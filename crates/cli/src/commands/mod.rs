//! One file a command.

pub mod devices;
pub mod eval;
pub mod init;
pub mod models;
pub mod pack;
pub mod plan;
pub mod predict;
pub mod train;
