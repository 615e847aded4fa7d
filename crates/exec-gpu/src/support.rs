//! What there are kernels for: asked by the planner before anything is planned, and once more when a group is compiled.
//! Plain data: no device is touched.

use memfit_ir::{Family, Graph, NodeId};

/// Whether there is a kernel for a node; else why not, and what one can do about it.
pub fn supports(graph: &Graph, id: NodeId) -> Result<(), String> {
    match graph.node(id).op.family() {
        Family::Elementwise(_) | Family::Contraction(_) | Family::Attention | Family::Reduction => Ok(()),
        Family::Constant | Family::Layout | Family::Window | Family::Gather => Ok(()),
        Family::Norm | Family::Softmax | Family::Loss | Family::Update => Ok(()),
        // Replicas meet on the host.
        Family::Exchange => Ok(()),
        Family::Source => Err("the host gives it; it has no kernel".into()),
    }
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
