//! Which nodes one kernel runs: the chains around a contraction.

use memfit_ir::Graph;
use memfit_ir::text::parse;
use memfit_transform::Fusion;
use memfit_transform::group::{Prologues, group};

/// A machine with caches.
const FUSED: Fusion = Fusion {
    max_nodes: 16,
    max_operands: usize::MAX,
    prologues: Some(Prologues { max_columns: 2048, max_filter: 1 << 20, many_columns: 512 }),
    max_reductions: 2,
};

/// The groups by the names of their ops; the root of a contraction stands in brackets.
fn groups(graph: &Graph, fusion: &Fusion) -> Vec<String> {
    let name = |id: memfit_ir::NodeId| graph.node(id).op.name();
    let line = |g: &memfit_transform::Group| {
        let names = g
            .nodes
            .iter()
            .map(|&n| if g.prologue_len > 0 && n == g.root() { format!("[{}]", name(n)) } else { name(n).into() });
        names.collect::<Vec<_>>().join(" ")
    };
    group(graph, fusion).iter().map(line).collect()
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let graph = parse(text).unwrap();
    assert_eq!(groups(&graph, &FUSED), expected, "{text}");
    let single = groups(&graph, &Fusion::NONE);
    assert!(single.iter().all(|g| !g.contains(' ')), "{single:?}");
}

const GEOMETRY: &str = "stride=[1,1], pad=[1,1,1,1], dilation=[1,1], groups=1";
const NORMED: &str = "
    %0 = input \"x\" : f32[2,8,8,4]
    %1 = input \"w\" : f32[3,3,4,4]
    %2, %3 = batch_stats(%0) : f32[4], f32[4]
    %4 = input \"scale\" : f32[4]
    %5 = batch_apply(%0, %2, %3, %4, %4) {eps=0.1} : f32[2,8,8,4]
    %6 = relu(%5) : f32[2,8,8,4]
    ";

#[test]
fn a_norm_that_only_a_convolution_reads_is_part_of_it() {
    let conv = format!("{NORMED}%7 = conv2d(%6, %1) {{{GEOMETRY}}} : f32[2,8,8,4]\n");
    check(&format!("{conv}output \"y\" %7"), &["batch_stats", "batch_apply relu [conv2d]"]);
    let ends = format!("{conv}%8 = add(%7, %0) : f32[2,8,8,4]\noutput \"y\" %8");
    check(&ends, &["batch_stats", "batch_apply relu [conv2d] add"]);
    let graph = parse(&ends).unwrap();
    let found = group(&graph, &FUSED).pop().unwrap();
    assert_eq!(found.epilogue().len(), 1);
    assert_eq!(found.prologue_of(&graph, graph.node(found.root()).inputs[0]).len(), 2);
    assert!(found.prologue_of(&graph, graph.node(found.root()).inputs[1]).is_empty());
    let values = |ids: &[u32]| ids.iter().map(|&v| memfit_ir::ValueId(v)).collect::<Vec<_>>();
    assert_eq!((found.reads, found.writes), (values(&[0, 2, 3, 4, 1]), values(&[8])));
}

#[test]
fn a_value_that_is_needed_elsewhere_has_memory() {
    let conv = format!("{NORMED}%7 = conv2d(%6, %1) {{{GEOMETRY}}} : f32[2,8,8,4]\n");
    let apart = ["batch_stats", "batch_apply relu", "conv2d"];
    check(&format!("{conv}output \"y\" %7\noutput \"x\" %6"), &apart);
    check(
        &format!("{conv}%8 = conv2d(%6, %1) {{{GEOMETRY}}} : f32[2,8,8,4]\noutput \"y\" %7\noutput \"z\" %8"),
        &["batch_stats", "batch_apply relu", "conv2d", "conv2d"],
    );
    // Only the end of the chain is the convolution's own.
    check(&format!("{conv}output \"y\" %7\noutput \"x\" %5"), &["batch_stats", "batch_apply", "relu [conv2d]"]);
    let twice = "%0 = input \"x\" : f32[4,4]\n%1 = relu(%0) : f32[4,4]
        %2 = matmul(%1, %1) {transpose_a=false, transpose_b=false} : f32[4,4]\noutput \"y\" %2";
    check(twice, &["relu", "matmul"]);
}

#[test]
fn a_chain_stays_with_its_maker_where_nothing_is_spared() {
    let (first, second) = ("%2 = conv2d(%0, %1)", "conv2d(%3, %1)");
    let convs = |between: &str, last: &str| {
        format!(
            "%0 = input \"x\" : f32[2,8,8,4]\n%1 = input \"w\" : f32[3,3,4,4]
             {first} {{{GEOMETRY}}} : f32[2,8,8,4]\n{between}\n{last} {{{GEOMETRY}}} : f32[2,8,8,4]\n"
        )
    };
    let relu = convs("%3 = relu(%2) : f32[2,8,8,4]", &format!("%4 = {second}"));
    check(&format!("{relu}output \"y\" %4"), &["conv2d relu", "conv2d"]);
    // The product is kept for another reader: the chain costs no memory where it is read.
    check(&format!("{relu}output \"y\" %4\noutput \"z\" %2"), &["conv2d", "relu [conv2d]"]);
    // What lies between two kernels is the smaller one.
    let casts = convs("%3 = cast(%2) : bf16[2,8,8,4]\n%4 = cast(%3) : f32[2,8,8,4]", "%5 = conv2d(%4, %1)");
    check(&format!("{casts}output \"y\" %5"), &["conv2d cast", "cast [conv2d]"]);
}

#[test]
fn what_would_be_computed_too_often_is_not() {
    let relu = |op: &str, x: &str, w: &str, y: &str, settings: &str| {
        format!(
            "%0 = input \"x\" : {x}\n%1 = input \"w\" : {w}\n%2 = relu(%0) : {x}\n%3 = {op}(%2, %1) {{{settings}}} : {y}\noutput \"y\" %3"
        )
    };
    let plain = "transpose_a=false, transpose_b=false";
    check(&relu("matmul", "f32[4,8]", "f32[8,2048]", "f32[4,2048]", plain), &["relu [matmul]"]);
    check(&relu("matmul", "f32[4,8]", "f32[8,3000]", "f32[4,3000]", plain), &["relu", "matmul"]);
    let grouped = "stride=[1,1], pad=[1,1,1,1], dilation=[1,1], groups=2";
    check(&relu("conv2d", "f32[2,8,8,4]", "f32[3,3,2,4]", "f32[2,8,8,4]", grouped), &["relu", "conv2d"]);
    let strided = "stride=[2,2], pad=[1,1,1,1], dilation=[1,1], groups=1, size=[8,8]";
    check(
        &relu("conv2d_transpose", "f32[2,4,4,4]", "f32[3,3,4,4]", "f32[2,8,8,4]", strided),
        &["relu", "conv2d_transpose"],
    );
    let wide =
        |n: usize| relu("conv2d", "f32[1,8,8,512]", &format!("f32[3,3,512,{n}]"), &format!("f32[1,8,8,{n}]"), GEOMETRY);
    check(&wide(128), &["relu [conv2d]"]);
    check(&wide(256), &["relu", "conv2d"]);
    check(&wide(512), &["relu [conv2d]"]);
    let mask = "%0 = input \"x\" : f32[4,8]\n%1 = input \"w\" : f32[8,8]\n%2 = mask(%0) {of=relu} : bit[4,8]
        %3 = mask_grad(%2, %0) {of=relu} : f32[4,8]
        %4 = matmul(%3, %1) {transpose_a=false, transpose_b=false} : f32[4,8]\noutput \"y\" %4\noutput \"m\" %2";
    check(mask, &["mask mask_grad", "matmul"]);
}

#[test]
fn sums_over_channels_close_the_group_that_makes_what_they_sum_up() {
    let x = "
    %0 = input \"x\" : f32[2,8,8,4]
    %1 = input \"w\" : f32[3,3,4,4]
    %2 = input \"mean\" : f32[4]
    ";
    let conv = |inputs: &str| format!("conv2d({inputs}) {{{GEOMETRY}}} : f32[2,8,8,4]");
    let norm = format!(
        "{x}%3 = {}\n%4, %5 = batch_stats(%3) : f32[4], f32[4]\n\
         %6 = batch_apply(%3, %4, %5, %2, %2) {{eps=0.1}} : f32[2,8,8,4]\noutput \"y\" %6",
        conv("%0, %1")
    );
    check(&norm, &["conv2d batch_stats", "batch_apply"]);
    let found = group(&parse(&norm).unwrap(), &FUSED);
    let values = |ids: &[u32]| ids.iter().map(|&v| memfit_ir::ValueId(v)).collect::<Vec<_>>();
    assert_eq!((found[0].reductions().len(), found[0].epilogue().len()), (1, 0));
    assert_eq!(found[0].writes, values(&[3, 4, 5]), "what is summed up has memory");
    // A chain behind the convolution stands before the sum, wherever it stands in the graph.
    let grad = format!(
        "{x}%3 = {}\n%4 = relu(%3) : f32[2,8,8,4]\n\
         %5, %6 = batch_grad_reduce(%0, %2, %2, %4) {{eps=0.1}} : f32[4], f32[4]\n\
         %7 = add(%4, %0) : f32[2,8,8,4]\noutput \"y\" %7\noutput \"a\" %5\noutput \"b\" %6",
        conv("%0, %1")
    );
    check(&grad, &["conv2d relu add batch_grad_reduce"]);
    let found = group(&parse(&grad).unwrap(), &FUSED);
    assert_eq!(found[0].writes, values(&[4, 7, 5, 6]), "what only a sum reads has memory too");
    // What is made behind the convolution comes too late.
    let late = format!(
        "{x}%3 = {}\n%4 = {}\n%5, %6 = batch_grad_reduce(%4, %2, %2, %3) {{eps=0.1}} : f32[4], f32[4]\n\
         output \"a\" %5\noutput \"b\" %6",
        conv("%0, %1"),
        conv("%0, %1")
    );
    check(&late, &["conv2d", "conv2d", "batch_grad_reduce"]);
    // And what the convolution does not read would have to be there for it.
    let other = format!(
        "{x}%3 = {}\n%4 = input \"z\" : f32[2,8,8,4]\n\
         %5, %6 = batch_grad_reduce(%4, %2, %2, %3) {{eps=0.1}} : f32[4], f32[4]\noutput \"a\" %5\noutput \"b\" %6",
        conv("%0, %1")
    );
    check(&other, &["conv2d", "batch_grad_reduce"]);
}

/// Sums of many tensors, each of which is an operand of its own.
fn long_sum(terms: usize) -> String {
    let mut text = String::from("%0 = input \"x0\" : f32[8]\n");
    for i in 1..=terms {
        let before = if i == 1 { 0 } else { 2 * i - 2 };
        text += &format!("%{} = input \"x{i}\" : f32[8]\n%{} = add(%{before}, %{0}) : f32[8]\n", 2 * i - 1, 2 * i);
    }
    text + &format!("output \"y\" %{}", 2 * terms)
}

#[test]
fn no_chain_has_more_operands_than_a_kernel_takes() {
    let cut = |max_operands: usize| {
        let graph = parse(&long_sum(9)).unwrap();
        let found = group(&graph, &Fusion { max_operands, ..FUSED });
        assert!(found.iter().all(|g| g.reads.len() + g.writes.len() <= max_operands), "{found:?}");
        found.iter().map(|g| g.nodes.len()).collect::<Vec<_>>()
    };
    assert_eq!(cut(11), [9], "ten terms and the sum");
    assert_eq!(cut(10), [8, 1]);
    assert_eq!(cut(4), [2, 2, 2, 2, 1]);
    assert_eq!(cut(3), [1; 9]);
}

#[test]
fn chains_around_a_product_have_no_more_operands_than_a_kernel_takes() {
    // Two terms are added to the left operand, and two to the product.
    let text = "
        %0 = input \"x\" : f32[4,4]
        %1 = input \"w\" : f32[4,4]
        %2 = input \"a\" : f32[4,4]
        %3 = input \"b\" : f32[4,4]
        %4 = add(%0, %2) : f32[4,4]
        %5 = add(%4, %3) : f32[4,4]
        %6 = matmul(%5, %1) {transpose_a=false, transpose_b=false} : f32[4,4]
        %7 = add(%6, %2) : f32[4,4]
        %8 = add(%7, %3) : f32[4,4]
        output \"y\" %8";
    let graph = parse(text).unwrap();
    let cut = |max_operands: usize| groups(&graph, &Fusion { max_operands, ..FUSED });
    assert_eq!(cut(5), ["add add [matmul] add add"], "x, a, b and w, and the result");
    // One term alone would read what is otherwise never in memory.
    assert_eq!(cut(4), ["add add", "matmul add", "add"]);
    assert_eq!(cut(3), ["add", "add", "matmul", "add", "add"]);
}

/// What waits for its reader may wait in vain.
#[test]
fn nodes_that_wait_together_are_placed_apart_where_one_kernel_cannot_take_them() {
    let text = "
        %0 = input \"x\" : f32[4,4]
        %1 = input \"a\" : f32[4]
        %2 = input \"b\" : f32[4]
        %3 = input \"z\" : f32[4,4]
        %4 = add(%0, %1) : f32[4,4]
        %5 = mul(%3, %2) : f32[4,4]
        %6 = sub(%4, %5) : f32[4,4]
        output \"y\" %6";
    let graph = parse(text).unwrap();
    let cut = |max_operands: usize| groups(&graph, &Fusion { max_operands, ..FUSED });
    assert_eq!(cut(5), ["add mul sub"]);
    assert_eq!(cut(4), ["add", "mul sub"]);
    assert_eq!(cut(3), ["add", "mul", "sub"]);
}
