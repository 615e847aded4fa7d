//! What runs on the device, written in cubecl: plain functions over slices, without a word of plans.

pub mod depthwise;
pub mod elementwise;
pub mod fill;
pub mod fold;
pub mod gemm;
mod math;
mod philox;
pub mod probe;
pub mod word;
