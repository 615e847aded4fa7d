//! Printing and reading back.

use std::collections::BTreeSet;

use memfit_ir::op::*;
use memfit_ir::text::{parse, print, print_node};
use memfit_ir::{Builder, DType, Graph, NodeId, Op, Shape, TensorType, verify};
use proptest::prelude::*;

use crate::generate::{KINDS, graphs, kind, one_of_each};

fn read_back(graph: &Graph) -> Graph {
    let text = print(graph);
    parse(&text).unwrap_or_else(|e| panic!("{e}\nin\n{text}"))
}

#[test]
fn one_of_each_has_every_op() {
    let graph = one_of_each();
    let kinds: BTreeSet<usize> = graph.nodes().iter().map(|n| kind(&n.op)).collect();
    assert_eq!(kinds, (0..KINDS).collect());
    verify(&graph).unwrap();
}

#[test]
fn every_op_reads_back() {
    let graph = one_of_each();
    assert_eq!(read_back(&graph), graph);
}

proptest! {
    #[test]
    fn random_graphs_read_back(graph in graphs()) {
        verify(&graph).unwrap();
        prop_assert_eq!(read_back(&graph), graph);
    }
}

#[test]
fn a_nan_reads_back_as_the_same_bits() {
    for bits in [f32::NAN.to_bits(), 0x7f80_0001, 0xffc0_0000] {
        let mut graph = Graph::new();
        let fill = Fill { value: f32::from_bits(bits), dtype: DType::F32, shape: Shape::scalar() };
        graph.push(Op::Fill(fill), &[], "").unwrap();
        match &read_back(&graph).nodes()[0].op {
            Op::Fill(f) => assert_eq!(f.value.to_bits(), bits, "{}", print(&graph)),
            op => panic!("{op:?}"),
        }
    }
}

fn small_graph() -> Graph {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([2, 8, 8, 3])).unwrap();
    let (y, mean) = b
        .scope("stem", |b| {
            let w = b.param("weight", [3, 3, 3, 16], Init::Normal { std: 0.05 })?;
            let same = Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 1], groups: 1 };
            let y = b.conv(x, w, same)?;
            b.scope("bn", |b| {
                let scale = b.param("scale", [16], Init::Constant(1.0))?;
                let bias = b.param("bias", [16], Init::Constant(0.0))?;
                let [y, mean, var] = b.batch_norm(y, scale, bias, 1e-5)?;
                let running = [
                    b.state("mean", StateClass::Statistic, TensorType::f32([16]), Init::Constant(0.0))?,
                    b.state("var", StateClass::Statistic, TensorType::f32([16]), Init::Constant(1.0))?,
                ];
                let update = Op::BatchUpdate(BatchUpdate { momentum: 0.99 });
                let new = b.op_outputs(update, &[running[0], running[1], mean, var])?;
                b.donate(running[0], new[0]);
                b.donate(running[1], new[1]);
                Ok((y, mean))
            })
        })
        .unwrap();
    let y = b.unary(Unary::LeakyRelu(0.1), y).unwrap();
    let loss = b.mean(y).unwrap();
    b.output("loss", loss);
    b.output("batch \"mean\"", mean);
    b.finish()
}

#[test]
fn a_small_graph_in_text() {
    insta::assert_snapshot!(print(&small_graph()), @r#"
    %0 = input "x" : f32[2,8,8,3]
    %1 = state "stem/weight" {class=param, init=normal(0.05)} : f32[3,3,3,16] @"stem"
    %2 = conv2d(%0, %1) {stride=[1,1], pad=[1,1,1,1], dilation=[1,1], groups=1} : f32[2,8,8,16] @"stem"
    %3 = state "stem/bn/scale" {class=param, init=constant(1.0)} : f32[16] @"stem/bn"
    %4 = state "stem/bn/bias" {class=param, init=constant(0.0)} : f32[16] @"stem/bn"
    %5, %6 = batch_stats(%2) : f32[16], f32[16] @"stem/bn"
    %7 = batch_apply(%2, %5, %6, %3, %4) {eps=1e-5} : f32[2,8,8,16] @"stem/bn"
    %8 = state "stem/bn/mean" {class=statistic, init=constant(0.0)} : f32[16] @"stem/bn"
    %9 = state "stem/bn/var" {class=statistic, init=constant(1.0)} : f32[16] @"stem/bn"
    %10, %11 = batch_update(%8, %9, %5, %6) {momentum=0.99} : f32[16], f32[16] @"stem/bn"
    %12 = leaky_relu(%7) {slope=0.1} : f32[2,8,8,16]
    %13 = reduce_mean(%12) {axes=[0,1,2,3], keep=false} : f32[]
    update %8 -> %10
    update %9 -> %11
    output "loss" %13
    output "batch \"mean\"" %5
    "#);
}

#[test]
fn one_node_is_one_line() {
    let graph = small_graph();
    let lines: Vec<String> = graph.node_ids().map(|id| print_node(&graph, id)).collect();
    assert!(print(&graph).starts_with(&(lines.join("\n") + "\nupdate ")));
    insta::assert_snapshot!(
        print_node(&graph, NodeId(2)),
        @r#"%2 = conv2d(%0, %1) {stride=[1,1], pad=[1,1,1,1], dilation=[1,1], groups=1} : f32[2,8,8,16] @"stem""#
    );
}

#[test]
fn spaces_comments_and_the_order_of_attributes_do_not_matter() {
    let tidy = parse("%0 = input \"x\" : f32[2,3]\n%1 = reduce_sum(%0) {axes=[0], keep=true} : f32[1,3] @\"a\"\n");
    let loose = "
        # a comment, then a blank line

        %0=input\"x\":f32[ 2 , 3 ]   # the image
        %1 = reduce_sum ( %0 ){ keep = true , axes = [ 0 ] }: f32 [1,3]@\"a\"# no space";
    assert_eq!(parse(loose), tidy);
    assert_eq!(parse(&loose.replace('\n', "\r\n")), tidy);
}
