//! The verifier: whether a graph, wherever it came from, keeps the rules that every pass relies on. It recomputes what
//! it can and shows the lines around a fault.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::graph::{Donation, Graph, NodeId};
use crate::infer::infer;
use crate::op::Op;

/// Checks order, types, names, outputs and donations.
pub fn verify(graph: &Graph) -> Result<()> {
    let fault = |node: Option<NodeId>, problem: String| Error::Malformed { problem, excerpt: excerpt(graph, node) };
    let mut defined = 0;
    let mut names = HashSet::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        if let Some(v) = node.inputs.iter().find(|v| v.index() >= defined) {
            return Err(fault(Some(id), format!("%{} is read before it is made", v.0)));
        }
        let types: Vec<_> = node.inputs.iter().map(|&v| graph.ty(v)).collect();
        let expected = infer(&node.op, &types).map_err(|e| fault(Some(id), e.0))?;
        let given: Vec<_> = node.outputs.iter().map(|&v| graph.ty(v).clone()).collect();
        if expected != given {
            return Err(fault(Some(id), format!("the outputs are {given:?}, but the op gives {expected:?}")));
        }
        for (i, &v) in node.outputs.iter().enumerate() {
            let value = &graph.values()[v.index()];
            if v.index() != defined || value.node != id || value.output != i {
                return Err(fault(Some(id), format!("output {i} is numbered %{}, expected %{defined}", v.0)));
            }
            defined += 1;
        }
        if let Some(name) = node.op.label()
            && !names.insert(name)
        {
            return Err(fault(Some(id), format!("the name \"{name}\" is used twice")));
        }
    }
    let mut output_names = HashSet::new();
    for (name, v) in &graph.outputs {
        if v.index() >= defined {
            return Err(fault(None, format!("output \"{name}\" is %{}, which does not exist", v.0)));
        }
        if !output_names.insert(name) {
            return Err(fault(None, format!("the output \"{name}\" is given twice")));
        }
    }
    verify_donations(graph, defined).map_err(|(node, problem)| fault(node, problem))
}

fn verify_donations(graph: &Graph, defined: usize) -> Result<(), (Option<NodeId>, String)> {
    let mut given = HashSet::new();
    for d in &graph.donations {
        if d.old.index() >= defined || d.new.index() >= defined {
            return Err((None, format!("the update %{} -> %{} names a value that does not exist", d.old.0, d.new.0)));
        }
        let node = graph.producer(d.new);
        if !matches!(graph.producer_op(d.old), Op::State(_)) {
            return Err((Some(node), format!("%{} is updated but is not a state", d.old.0)));
        }
        if matches!(graph.producer_op(d.new), Op::State(_) | Op::Input(_)) {
            return Err((Some(node), format!("%{} becomes %{}, which no op of this graph makes", d.old.0, d.new.0)));
        }
        if graph.ty(d.old) != graph.ty(d.new) {
            return Err((
                Some(node),
                format!("%{} changes its type from {} to {}", d.old.0, graph.ty(d.old), graph.ty(d.new)),
            ));
        }
        if !given.insert(d.old) || !given.insert(d.new) {
            return Err((
                Some(node),
                format!("%{} -> %{}: one of the two is already part of an update", d.old.0, d.new.0),
            ));
        }
    }
    // An impure op whose result is dropped would be lost work, or worse, a state that silently stands still.
    for id in graph.node_ids() {
        let node = graph.node(id);
        // Parameter and slots stand in the order of the results; an update's gradient stands between them.
        let first_slot = if matches!(node.op, Op::Update(_)) { 2 } else { 1 };
        for (i, &new) in node.outputs.iter().enumerate().filter(|_| node.op.is_update()) {
            let old = if i == 0 { node.inputs[0] } else { node.inputs[first_slot + i - 1] };
            if !graph.donations.contains(&Donation { old, new }) {
                let problem = format!("result {i} of an update is not given back to %{}, which it updates", old.0);
                return Err((Some(id), problem));
            }
        }
    }
    for (name, v) in &graph.outputs {
        if graph.donations.iter().any(|d| d.old == *v) {
            let problem =
                format!("output \"{name}\" is the state %{}, which this graph overwrites; copy it first", v.0);
            return Err((None, problem));
        }
    }
    Ok(())
}

fn excerpt(graph: &Graph, node: Option<NodeId>) -> String {
    let n = graph.nodes().len();
    let center = node.map_or(n, |id| id.index());
    let lines = center.saturating_sub(2)..(center + 3).min(n);
    let mut out = String::new();
    for i in lines {
        let mark = if node.map(NodeId::index) == Some(i) { "> " } else { "  " };
        out.push_str(mark);
        out.push_str(&crate::text::print_node(graph, NodeId(i as u32)));
        out.push('\n');
    }
    out
}
