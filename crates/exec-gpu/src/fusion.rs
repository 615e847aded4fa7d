//! What one kernel does here: the answer to the planner, so that no group is made which a launch would refuse.

use memfit_transform::Fusion;
use memfit_transform::group::Prologues;

/// On a device whose kernels are given at most so many operands.
pub fn fusion(bindings: usize) -> Fusion {
    Fusion {
        // As on the CPU, until it is measured here.
        max_nodes: 16,
        max_operands: bindings,
        // A prologue is a kernel of its own before the product, and runs once whatever the product reads again.
        prologues: Some(Prologues { max_columns: usize::MAX, max_filter: usize::MAX, many_columns: 0 }),
        // No convolution is here whose tiles they could look at.
        max_reductions: 0,
    }
}
