//! Flops and bytes of ops whose counts can be done by hand.

use memfit_ir::text::parse;
use memfit_ir::{Cost, NodeId, Op, ValueId, cost, graph_cost};
use proptest::prelude::*;

use crate::generate::{graphs, one_of_each};

/// The cost of the last line.
fn check(text: &str, flops: u64, bytes_read: u64, bytes_written: u64) {
    let graph = parse(text).unwrap();
    let last = NodeId(graph.nodes().len() as u32 - 1);
    assert_eq!(cost(&graph, last), Cost { flops, bytes_read, bytes_written }, "{text}");
}

const IMAGE_AND_FILTER: &str = "%0 = input \"x\" : f32[2,8,8,6]\n%1 = input \"w\" : f32[3,3,2,9]\n";
const GEOMETRY: &str = "stride=[1,1], pad=[1,1,1,1], dilation=[1,1], groups=3";

#[test]
fn a_convolution_and_its_gradients_do_the_same_work() {
    let (x, w, y) = (4 * 2 * 8 * 8 * 6, 4 * 3 * 3 * 2 * 9, 4 * 2 * 8 * 8 * 9);
    let flops = 2 * (2 * 8 * 8) * (3 * 3) * (6 / 3) * 9;
    let conv = format!("{IMAGE_AND_FILTER}%2 = conv2d(%0, %1) {{{GEOMETRY}}} : f32[2,8,8,9]\n");
    check(&conv, flops, x + w, y);
    check(&format!("{conv}%3 = conv2d_transpose(%2, %1) {{{GEOMETRY}, size=[8,8]}} : f32[2,8,8,6]"), flops, y + w, x);
    check(&format!("{conv}%3 = conv2d_filter(%0, %2) {{{GEOMETRY}, size=[3,3]}} : f32[3,3,2,9]"), flops, x + y, w);
}

#[test]
fn a_matmul_counts_rows_times_columns_times_the_inner_extent() {
    let flops = 5 * 2 * 2 * 3 * 4;
    let (a, b, y) = (4 * 5 * 2 * 3, 4 * 5 * 3 * 4, 4 * 5 * 2 * 4);
    check(
        "%0 = input \"a\" : f32[5,2,3]\n%1 = input \"b\" : f32[5,3,4]
         %2 = matmul(%0, %1) {transpose_a=false, transpose_b=false} : f32[5,2,4]",
        flops,
        a + b,
        y,
    );
    check(
        "%0 = input \"a\" : f32[5,3,2]\n%1 = input \"b\" : f32[5,4,3]
         %2 = matmul(%0, %1) {transpose_a=true, transpose_b=true} : f32[5,2,4]",
        flops,
        a + b,
        y,
    );
}

#[test]
fn attention_counts_pairs_of_positions() {
    let forward = |causal: bool| {
        format!(
            "%0 = input \"qkv\" : f32[1,5,3,3,7]\n%1, %2 = attention(%0) {{causal={causal}, scale=1.0}} : f32[1,5,3,7], f32[1,3,5]\n"
        )
    };
    let backward = |causal: bool| {
        format!(
            "{}%3 = attention_grad(%0, %1, %2, %1) {{causal={causal}, scale=1.0}} : f32[1,5,3,3,7]",
            forward(causal)
        )
    };
    let (y, lse) = (4 * 3 * 5 * 7, 4 * 3 * 5);
    let full = 4 * 3 * 5 * 5 * 7;
    check(&forward(false), full, 3 * y, y + lse);
    check(&forward(true), full / 2, 3 * y, y + lse);
    // Five products where the forward has two; exact for odd extents too. y and dy are one value here: it is read once.
    check(&backward(false), full / 2 * 5, 4 * y + lse, 3 * y);
    check(&backward(true), full / 4 * 5, 4 * y + lse, 3 * y);
}

#[test]
fn elementwise_ops_have_a_number_for_each_element() {
    let x = "%0 = input \"x\" : f32[2,3]\n";
    check(&format!("{x}%1 = relu(%0) : f32[2,3]"), 6, 24, 24);
    let mask = format!("{x}%1 = mask(%0) {{of=relu}} : bit[2,3]");
    check(&mask, 6, 24, 1);
    check(&format!("{mask}\n%2 = mask_grad(%1, %0) {{of=relu}} : f32[2,3]"), 6, 25, 24);
    check(&format!("{x}%1 = exp(%0) : f32[2,3]"), 8 * 6, 24, 24);
    check(&format!("{x}%1 = mul(%0, %0) : f32[2,3]"), 6, 24, 24);
    check(&format!("{x}%1 = cast(%0) : f16[2,3]"), 6, 24, 12);
    check(&format!("{x}%1 = input \"b\" : f32[3]\n%2 = add(%0, %1) : f32[2,3]"), 6, 24 + 12, 24);
    check(&format!("{x}%1 = reduce_sum_squares(%0) {{axes=[1], keep=false}} : f32[2]"), 12, 24, 8);
}

#[test]
fn what_only_moves_or_only_looks() {
    let x = "%0 = input \"x\" : f32[2,3]\n";
    check(x, 0, 0, 0);
    check("%0 = state \"w\" {class=param, init=constant(0)} : f32[2,3]", 0, 0, 0);
    check("%0 = fill {value=1} : f32[2,3]", 0, 0, 24);
    check(&format!("{x}%1 = reshape(%0) : f32[6]"), 0, 0, 0);
    check(&format!("{x}%1 = transpose(%0) {{perm=[1,0]}} : f32[3,2]"), 0, 24, 24);
    check(&format!("{x}%1 = slice(%0) {{start=[0,0], stop=[1,3]}} : f32[1,3]"), 0, 12, 12);
    check("%0 = input \"t\" : f32[100,3]\n%1 = input \"i\" : i32[2]\n%2 = gather(%0, %1) : f32[2,3]", 0, 8 + 24, 24);
}

#[test]
fn a_count_that_does_not_fit_is_the_largest() {
    check(
        "%0 = input \"a\" : f32[1099511627776,1048576]\n%1 = input \"b\" : f32[1048576,1048576]
         %2 = matmul(%0, %1) {transpose_a=false, transpose_b=false} : f32[1099511627776,1048576]",
        u64::MAX,
        4 << 60 | 4 << 40,
        4 << 60,
    );
}

#[test]
fn the_cost_of_a_graph_is_the_sum() {
    let graph = one_of_each();
    let mut sum = Cost::default();
    for id in graph.node_ids() {
        sum += cost(&graph, id);
    }
    assert_eq!(graph_cost(&graph), sum);
    assert!(sum.flops > 0 && sum.bytes_read > 0 && sum.bytes_written > 0);
}

proptest! {
    #[test]
    fn no_node_moves_more_than_its_values(graph in graphs()) {
        let bytes = |vs: &[ValueId]| vs.iter().map(|&v| graph.ty(v).bytes()).sum::<u64>();
        for id in graph.node_ids() {
            let (node, c) = (graph.node(id), cost(&graph, id));
            prop_assert!(c.bytes_written == bytes(&node.outputs) || c.bytes_written == 0);
            // A gather may read one row many times.
            prop_assert!(c.bytes_read <= bytes(&node.inputs) || node.op == Op::Gather);
        }
    }
}
