//! What one kernel does here: the answer to the planner, so that no group is made which a launch would refuse.

use memfit_transform::Fusion;
use memfit_transform::group::Prologues;

/// On a device whose kernels are given at most so many operands.
pub fn fusion(bindings: usize) -> Fusion {
    Fusion {
        // As on the CPU, until it is measured here.
        max_nodes: 16,
        max_operands: bindings,
        // What costs more than reading it again and again is computed once, before the product.
        prologues: Some(Prologues { max_columns: usize::MAX, max_filter: usize::MAX, many_columns: 0 }),
        // No unit sees more of a channel than its tile.
        max_reductions: 0,
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Builder, Graph, Result, TensorType, ValueId};
    use memfit_transform::group::group;

    use super::fusion;
    use crate::lower::{Step, estimate};

    /// A product of two sums, to which more is added: each term is an operand of its own.
    fn sums_around_a_product(terms: usize) -> Result<Graph> {
        let mut b = Builder::new();
        let mut term = 0;
        let mut add_all = |b: &mut Builder, mut sum: ValueId| -> Result<ValueId> {
            for _ in 0..terms {
                term += 1;
                let x = b.input(&format!("x{term}"), TensorType::f32([4, 4]))?;
                sum = b.add(sum, x)?;
            }
            Ok(sum)
        };
        let (left, right) = (b.input("l", TensorType::f32([4, 4]))?, b.input("r", TensorType::f32([4, 4]))?);
        let (left, right) = (add_all(&mut b, left)?, add_all(&mut b, right)?);
        let product = b.matmul(left, right)?;
        let sum = add_all(&mut b, product)?;
        b.output("y", sum);
        Ok(b.finish())
    }

    #[test]
    fn no_kernel_of_a_group_has_more_operands_than_a_device_binds() {
        for terms in 1..12 {
            let graph = sums_around_a_product(terms).expect("a graph");
            for bindings in 3..16 {
                for group in group(&graph, &fusion(bindings)) {
                    for step in estimate(&graph, &group, 256).steps {
                        let Step::Call(call) = step else { panic!("a small product is ours") };
                        let given = call.operands.len();
                        assert!(given <= bindings, "{given} operands of {bindings}, {terms} terms: {group:?}");
                    }
                }
            }
        }
    }
}
