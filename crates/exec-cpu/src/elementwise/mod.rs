//! Elementwise chains: any number of nodes of one shape, run tile by tile, so that values inside the chain never leave the
//! first-level cache. The same chain is the prologue or the epilogue of a contraction.
//!
//! Every node is computed on its own, in its own type: a chain gives the same bits as its nodes one by one.

mod bits;
mod bound;
mod lanes;
mod narrow;
mod operand;
mod setup;
mod tape;

pub(crate) use bound::BoundTape;
pub(crate) use tape::Tape;

/// Elements of a tile: 4 KiB, so that a few of them fit into the first-level cache.
pub(crate) const TILE: usize = 1024;
