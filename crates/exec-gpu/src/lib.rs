//! The GPU executor, on cubecl and cubek: plans run on what Vulkan, Metal or DirectX offer. The only crate that names
//! them.
//!
//! Two dedicated allocations are the two segments; every value is a slice of one of them. Nothing is allocated on the
//! device while a step runs, beyond the first step, which compiles shaders and keeps their parameters. What a kernel
//! here cannot do yet is refused by name before anything is planned, never computed elsewhere in silence.
//!
//! Without the feature `gpu` only what is plain data is built ([`adapters`], [`tape`], [`chain`], [`lower`], [`fusion`],
//! [`support`], [`target`]), so that a new op is missed by no build, and nothing of cubecl is downloaded.

// A new op must be placed by whoever adds it: no match falls through.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod adapters;
#[cfg(feature = "gpu")]
mod arena;
pub mod call;
#[cfg(feature = "gpu")]
mod card_memory;
pub mod chain;
#[cfg(feature = "gpu")]
mod device;
#[cfg(feature = "gpu")]
mod executor;
pub mod fusion;
#[cfg(feature = "gpu")]
mod kernels;
#[cfg(feature = "gpu")]
mod launch;
pub mod lower;
#[cfg(feature = "gpu")]
mod product;
mod sizes;
#[cfg(feature = "gpu")]
mod staging;
#[cfg(feature = "gpu")]
mod stamps;
pub mod support;
pub mod tape;
pub mod target;

#[cfg(feature = "gpu")]
pub use arena::GpuMemory;
#[cfg(feature = "gpu")]
pub use card_memory::CardMemory;
#[cfg(feature = "gpu")]
pub use device::{Features, Gpu, count, devices};
#[cfg(feature = "gpu")]
pub use executor::{Captured, GpuExecutor, Reserved};
#[cfg(feature = "gpu")]
pub use launch::Kernel;
pub use target::{GpuTarget, Limits};
