//! What the verifier finds. A node that breaks a rule cannot be built, so these are the faults that remain: names,
//! outputs and updates.

use memfit_ir::text::parse;
use memfit_ir::{Builder, Donation, Error, Graph, TensorType, ValueId, verify};
use proptest::prelude::*;

use crate::generate::graphs;

const TRAINING: &str = "\
%0 = input \"g\" : f32[3]
%1 = state \"w\" {class=param, init=constant(0.0)} : f32[3]
%2 = input \"lr\" : f32[]
%3 = input \"clock\" : i32[4]
%4 = sgd(%1, %0, %2, %3) {momentum=0.0, nesterov=false, weight_decay=0.0} : f32[3] @\"opt\"
%5 = relu(%1) : f32[3]
%6 = reduce_sum(%1) {axes=[0], keep=false} : f32[]
";

/// The verifier's complaint about [`TRAINING`] with these lines and changes.
fn check(lines: &str, change: impl FnOnce(&mut Graph), expected: &str) {
    let mut graph = parse(&format!("{TRAINING}{lines}")).unwrap();
    change(&mut graph);
    match verify(&graph) {
        Err(Error::Malformed { problem, .. }) => assert_eq!(problem, expected),
        other => panic!("{lines}: {other:?}"),
    }
}

#[test]
fn a_training_step_is_well_formed() {
    verify(&parse(&format!("{TRAINING}update %1 -> %4\noutput \"y\" %5\noutput \"s\" %6")).unwrap()).unwrap();
    verify(&Graph::new()).unwrap();
}

#[test]
fn names() {
    check("%7 = input \"w\" : f32[]\nupdate %1 -> %4", |_| {}, "the name \"w\" is used twice");
    check("update %1 -> %4\noutput \"y\" %5\noutput \"y\" %6", |_| {}, "the output \"y\" is given twice");
}

#[test]
fn values_that_do_not_exist() {
    check("update %1 -> %4", |g| g.outputs.push(("y".into(), ValueId(7))), "output \"y\" is %7, which does not exist");
    check(
        "",
        |g| g.donations.push(Donation { old: ValueId(1), new: ValueId(7) }),
        "the update %1 -> %7 names a value that does not exist",
    );
}

#[test]
fn updates() {
    check("", |_| {}, "result 0 of an update is not given back to %1, which it updates");
    check(
        "update %1 -> %4\noutput \"w\" %1",
        |_| {},
        "output \"w\" is the state %1, which this graph overwrites; copy it first",
    );
    check("update %0 -> %4", |_| {}, "%0 is updated but is not a state");
    check("update %1 -> %0", |_| {}, "%1 becomes %0, which no op of this graph makes");
    check("update %1 -> %6", |_| {}, "%1 changes its type from f32[3] to f32[]");
    check("update %1 -> %4\nupdate %1 -> %5", |_| {}, "%1 -> %5: one of the two is already part of an update");
}

#[test]
fn a_state_twice_updated_is_shown_where_it_happens() {
    let graph = parse(&format!("{TRAINING}update %1 -> %4\nupdate %1 -> %5")).unwrap();
    insta::assert_snapshot!(verify(&graph).unwrap_err(), @r#"
    the graph is not well formed: %1 -> %5: one of the two is already part of an update
      %3 = input "clock" : i32[4]
      %4 = sgd(%1, %0, %2, %3) {momentum=0.0, nesterov=false, weight_decay=0.0} : f32[3] @"opt"
    > %5 = relu(%1) : f32[3]
      %6 = reduce_sum(%1) {axes=[0], keep=false} : f32[]
    "#);
}

#[test]
fn the_builder_refuses_a_name_twice() {
    let mut b = Builder::new();
    b.input("x", TensorType::f32([1])).unwrap();
    let error = b.input("x", TensorType::f32([1])).unwrap_err();
    assert_eq!(error.to_string(), "the name \"x\" is used twice; every input and state needs its own");
}

proptest! {
    // Two donations of one state, whatever else the graph holds.
    #[test]
    fn a_copied_update_is_found(graph in graphs()) {
        let mut copied = graph.clone();
        if let Some(&d) = graph.donations.first() {
            copied.donations.push(d);
            prop_assert!(verify(&copied).is_err());
        }
    }

    #[test]
    fn an_update_left_out_is_found(graph in graphs(), at in any::<prop::sample::Index>()) {
        let mut short = graph.clone();
        if !graph.donations.is_empty() {
            short.donations.remove(at.index(graph.donations.len()));
            prop_assert!(verify(&short).is_err());
        }
    }
}
