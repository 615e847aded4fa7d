//! The intermediate representation: ops, tensor types, graphs; how to build, check, cost and print them.
//!
//! Everything here is plain data and pure functions. This crate does no IO and knows no device.

// A new op must be placed by whoever adds it: no match falls through.
#![deny(clippy::wildcard_enum_match_arm)]

mod builder;
pub mod bytes;
mod cost;
mod dtype;
pub mod error;
mod graph;
mod hash;
pub mod infer;
mod lanes;
mod nearest;
pub mod op;
pub mod philox;
pub mod text;
mod verify;

pub use builder::Builder;
pub use cost::{Cost, cost, graph_cost};
pub use dtype::{DType, Shape, TensorType};
pub use error::{Error, Result, in_layer};
pub use graph::{Donation, Graph, Node, NodeId, Value, ValueId};
pub use hash::fingerprint;
pub use lanes::{Fold, Replica};
pub use nearest::nearest;
pub use op::{Family, Op};
pub use verify::verify;
