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

#[cfg(test)]
mod tests {
    use memfit_ir::{Builder, Graph, NodeId, Result, TensorType, ValueId};
    use memfit_plan::{Place, Segment};
    use memfit_transform::Group;
    use memfit_transform::group::group;

    use super::fusion;
    use crate::chain::chain;

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

    /// The chains of a group, each with what leaves it.
    fn chains(graph: &Graph, group: &Group) -> Vec<(Vec<NodeId>, Vec<ValueId>)> {
        let root = graph.node(group.root());
        if !root.op.is_contraction() {
            return vec![(group.nodes.clone(), group.writes.clone())];
        }
        let prologues = root.inputs.iter().map(|&v| (group.prologue_of(graph, v), vec![v]));
        let epilogue = (group.epilogue().to_vec(), group.writes.clone());
        prologues.chain([epilogue]).filter(|(nodes, _)| !nodes.is_empty()).collect()
    }

    #[test]
    fn no_chain_of_a_group_has_more_operands_than_a_kernel_is_given() {
        let place = |v: ValueId| Place { segment: Segment::Transient, offset: 64 * u64::from(v.0), size: 64 };
        for terms in 1..12 {
            let graph = sums_around_a_product(terms).expect("a graph");
            for bindings in 3..16 {
                for group in group(&graph, &fusion(bindings)) {
                    for (nodes, writes) in chains(&graph, &group) {
                        let operands = chain(&graph, &nodes, &writes, &place).operands.len();
                        assert!(operands <= bindings, "{operands} operands of {bindings}, {terms} terms: {group:?}");
                    }
                }
            }
        }
    }
}
