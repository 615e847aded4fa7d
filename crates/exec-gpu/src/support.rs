//! What there are kernels for: asked by the planner before anything is planned, and once more when a group is compiled.
//! Plain data: no device is touched.

use memfit_ir::{Family, Graph, NodeId};

/// Whether there is a kernel for a node; else why not, and what one can do about it.
pub fn supports(graph: &Graph, id: NodeId) -> Result<(), String> {
    let node = graph.node(id);
    let is_known = match node.op.family() {
        Family::Elementwise(_) | Family::Contraction(_) => true,
        Family::Source
        | Family::Constant
        | Family::Reduction
        | Family::Layout
        | Family::Attention
        | Family::Window
        | Family::Norm
        | Family::Softmax
        | Family::Loss
        | Family::Gather
        | Family::Update => false,
    };
    if is_known { Ok(()) } else { Err("there is no GPU kernel for it yet; run it on the CPU".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_ir::{Builder, Op, TensorType};

    #[test]
    fn products_and_chains_are_supported_and_the_rest_is_refused_by_name() {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([4, 4])).expect("an input");
        let product = b.matmul(x, x).expect("a product");
        let relu = b.relu(product).expect("a relu");
        let mean = b.mean(relu).expect("a mean");
        b.output("y", mean);
        let graph = b.finish();
        let answer = |v| supports(&graph, graph.producer(v));
        assert_eq!((answer(product), answer(relu)), (Ok(()), Ok(())));
        let reductions = graph.node_ids().filter(|&id| matches!(graph.node(id).op, Op::Reduce(_)));
        for id in reductions {
            assert!(supports(&graph, id).is_err_and(|reason| reason.contains("no GPU kernel")));
        }
    }
}
