//! What runs on the device, written in cubecl: plain functions over slices, without a word of plans.

pub mod elementwise;
pub mod fill;
pub mod fold;
mod math;
mod philox;
pub mod probe;
pub mod word;
