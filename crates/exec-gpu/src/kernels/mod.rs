//! What runs on the device, written in cubecl: plain functions over slices, without a word of plans.

mod apply;
pub mod attention;
pub mod depthwise;
pub mod elementwise;
pub mod fill;
pub mod fold;
pub mod gather;
pub mod gemm;
pub mod layout;
mod math;
mod philox;
pub mod probe;
mod terms;
pub mod update;
pub mod window;
pub mod word;
