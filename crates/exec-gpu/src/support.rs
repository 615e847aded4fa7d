//! What there are kernels for: asked by the planner before anything is planned, and once more when a group is compiled.
//! Plain data: no device is touched.

use memfit_ir::{Family, Graph, NodeId, Op};

/// Whether there is a kernel for a node; else why not, and what one can do about it.
pub fn supports(graph: &Graph, id: NodeId) -> Result<(), String> {
    let node = graph.node(id);
    let is_known = match node.op.family() {
        Family::Elementwise(_) | Family::Contraction(_) | Family::Attention => true,
        Family::Constant | Family::Layout | Family::Window | Family::Gather => true,
        Family::Reduction => matches!(node.op, Op::Reduce(_)),
        Family::Update => matches!(node.op, Op::Update(_)),
        Family::Source | Family::Norm | Family::Softmax | Family::Loss => false,
    };
    if is_known { Ok(()) } else { Err("there is no GPU kernel for it yet; run it on the CPU".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_ir::{Builder, TensorType};

    #[test]
    fn products_chains_and_reductions_are_supported() {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([4, 4])).expect("an input");
        let product = b.matmul(x, x).expect("a product");
        let relu = b.relu(product).expect("a relu");
        let mean = b.mean(relu).expect("a mean");
        b.output("y", mean);
        let graph = b.finish();
        let answer = |v| supports(&graph, graph.producer(v));
        assert_eq!([product, relu, mean].map(answer), [Ok(()), Ok(()), Ok(())]);
    }
}
