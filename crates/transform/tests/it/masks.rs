//! Which activations are saved as masks, and how the graph looks then.

use memfit_ir::op::Unary;
use memfit_ir::text::{parse, print};
use memfit_transform::{StepGraph, save_masks, save_masks_before};

/// The graph of a text, with masks, as text; the forward pass ends with the output `loss`.
fn masked(text: &str) -> String {
    let graph = parse(text).unwrap();
    let graph = save_masks_before(&graph, graph.output("loss").unwrap());
    memfit_ir::verify(&graph).unwrap();
    print(&graph)
}

#[test]
fn a_mask_stands_beside_its_activation_and_the_gradient_reads_it() {
    let text = "
        %0 = input \"x\" : f32[3]
        %1 = leaky_relu(%0) {slope=0.5} : f32[3] @\"act\"
        %2 = reduce_sum(%1) {axes=[0], keep=false} : f32[]
        %3 = fill {value=1.0} : f32[3]
        %4 = leaky_relu_grad(%1, %3) {slope=0.5} : f32[3] @\"act\"
        output \"loss\" %2
        output \"dx\" %4";
    let expected = r#"%0 = input "x" : f32[3]
%1 = leaky_relu(%0) {slope=0.5} : f32[3] @"act"
%2 = mask(%1) {of=leaky_relu, slope=0.5} : bit[3] @"act"
%3 = reduce_sum(%1) {axes=[0], keep=false} : f32[]
%4 = fill {value=1.0} : f32[3]
%5 = mask_grad(%2, %4) {of=leaky_relu, slope=0.5} : f32[3] @"act"
output "loss" %3
output "dx" %5
"#;
    assert_eq!(masked(text), expected);
}

/// Whether the activation %1 of a small graph is masked, where `rest` follows its gradient %4.
fn is_masked(activation: &str, gradient: &str, rest: &str) -> bool {
    let text = format!(
        "%0 = input \"x\" : f32[4]
         %1 = {activation}(%0) : f32[4]
         %2 = reduce_sum(%1) {{axes=[0], keep=false}} : f32[]
         %3 = fill {{value=1.0}} : f32[4]
         %4 = {gradient} : f32[4]
         {rest}
         output \"loss\" %2
         output \"dx\" %4"
    );
    masked(&text).contains("mask")
}

#[test]
fn an_activation_that_is_kept_anyway_is_left_alone() {
    let reads = "relu_grad(%1, %3)";
    assert!(is_masked("relu", reads, ""));
    assert!(is_masked("relu6", "relu6_grad(%1, %3)", ""));
    assert!(!is_masked("tanh", "tanh_grad(%1, %3)", ""), "more than a bit is read");
    assert!(!is_masked("relu", "neg(%1)", ""), "nobody asks for a bit");
    assert!(!is_masked("relu", "relu_grad(%1, %1)", ""), "it is its own gradient");
    assert!(!is_masked("relu", "relu_grad(%3, %1)", ""), "it is the gradient of another");
    assert!(!is_masked("relu", "relu6_grad(%1, %3)", ""), "the gradient is of another op");
    assert!(!is_masked("relu", reads, "%5 = mul(%1, %4) : f32[4]\noutput \"y\" %5"), "read in the backward pass");
    assert!(!is_masked("relu", reads, "output \"y\" %1"), "given out");
    let view = "%5 = reshape(%1) : f32[2,2]\n";
    assert!(is_masked("relu", reads, view), "a view that nobody reads");
    assert!(!is_masked("relu", reads, &format!("{view}output \"y\" %5")), "given out in another shape");
    assert!(!is_masked("relu", reads, &format!("{view}%6 = neg(%5) : f32[2,2]\noutput \"y\" %6")), "read as a view");
}

#[test]
fn without_a_backward_pass_nothing_is_after_the_forward_pass() {
    let text = "%0 = input \"x\" : f32[3]\n%1 = relu(%0) : f32[3]\n%2 = relu_grad(%1, %0) : f32[3]\noutput \"dx\" %2";
    let graph = parse(text).unwrap();
    let step = StepGraph::from(graph.clone());
    assert_eq!(save_masks(&step), step);
    let end = graph.node(memfit_ir::NodeId(1)).outputs[0];
    let named = save_masks_before(&graph, end);
    assert!(named.nodes().iter().any(|n| n.op == memfit_ir::Op::MaskGrad(Unary::Relu)));
}
