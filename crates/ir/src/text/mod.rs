//! The text form of a graph: printing it, and reading it back to the identical graph. It reads and writes strings only,
//! never files; and it does not replace the verifier: a text whose names clash or whose updates make no sense is read,
//! and [`verify`](crate::verify()) says what is wrong with it.
//!
//! # Grammar
//!
//! One statement a line; blank lines and whatever follows a `#` outside of a string are skipped.
//!
//! ```text
//! statement = node | update | output
//! node      = values "=" op [ string ] [ "(" values ")" ] [ "{" attrs "}" ] ":" types [ "@" string ]
//! update    = "update" value "->" value          the second takes the place of the first, a state
//! output    = "output" string value              what the host may read after a run
//!
//! values    = value { "," value }                value = "%" integer
//! types     = type { "," type }                  type  = dtype "[" [ integer { "," integer } ] "]"
//! dtype     = "f32" | "f16" | "bf16" | "i32" | "u8" | "bit"
//! attrs     = attr { "," attr }                  attr  = word "=" setting
//! setting   = integer | float | "true" | "false" | word | word "(" float ")" | "[" integers "]"
//! string    = '"' characters '"'                 with \" \\ \n \r \t and \u{hex}
//! ```
//!
//! - `op` is [`Op::name`](crate::Op::name). Each attribute of an op is written exactly once, in any order.
//! - `string` after the op is the name of an `input` or a `state`; after `@` it is the layer, left out where empty.
//! - Values are numbered from 0 in the order in which they are made, and are made before they are read.
//! - The types are those of the results. They are part of the statement for `input`, `state`, `fill`, `cast`, `reshape`
//!   and `broadcast`; elsewhere they follow from the op and its inputs, and a text that says otherwise is an error.
//! - Floats are written with as many digits as bring back the same bits; also `inf`, `-inf`, `NaN`, and `nan(bits)` for
//!   any other NaN.
//! - Paddings are before and after for each axis: `pad=[top,bottom,left,right]`.
//!
//! ```text
//! %0 = input "x" : f32[2,8,8,3]
//! %1 = state "stem/weight" {class=param, init=normal(0.05)} : f32[3,3,3,16] @"stem"
//! %2 = conv2d(%0, %1) {stride=[1,1], pad=[1,1,1,1], dilation=[1,1], groups=1} : f32[2,8,8,16] @"stem"
//! %3, %4 = batch_stats(%2) : f32[16], f32[16] @"stem/bn"
//! output "mean" %3
//! ```

mod attrs;
mod build;
mod parse;
mod setting;

use crate::dtype::TensorType;
use crate::graph::{Graph, NodeId, ValueId};

pub use parse::parse;

/// The whole graph: nodes in order, then updates, then outputs.
pub fn print(graph: &Graph) -> String {
    let mut out = String::new();
    for id in graph.node_ids() {
        out.push_str(&print_node(graph, id));
        out.push('\n');
    }
    for d in &graph.donations {
        out.push_str(&format!("update %{} -> %{}\n", d.old.0, d.new.0));
    }
    for (name, v) in &graph.outputs {
        out.push_str(&format!("output {} %{}\n", quote(name), v.0));
    }
    out
}

/// One line for one node, without a line end.
pub fn print_node(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let inputs = if node.inputs.is_empty() { String::new() } else { format!("({})", values(&node.inputs)) };
    let mut line = format!("{} = {}", values(&node.outputs), node_text(graph, id, &inputs));
    if !node.scope.is_empty() {
        line.push_str(&format!(" @{}", quote(&node.scope)));
    }
    line
}

/// What a node does, wherever it stands: its line without the numbers of values and without its layer. Nodes with the same
/// text and the same inputs give the same results.
pub fn print_op(graph: &Graph, id: NodeId) -> String {
    node_text(graph, id, "")
}

fn node_text(graph: &Graph, id: NodeId, inputs: &str) -> String {
    let node = graph.node(id);
    let mut text = node.op.name().to_string();
    if let Some(name) = node.op.label() {
        text.push_str(&format!(" {}", quote(name)));
    }
    text.push_str(inputs);
    let attrs: Vec<String> = attrs::attrs(&node.op).iter().map(|(key, setting)| format!("{key}={setting}")).collect();
    if !attrs.is_empty() {
        text.push_str(&format!(" {{{}}}", attrs.join(", ")));
    }
    text.push_str(&format!(" : {}", types(node.outputs.iter().map(|&v| graph.ty(v)))));
    text
}

fn values(ids: &[ValueId]) -> String {
    ids.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ")
}

fn types<'a>(types: impl IntoIterator<Item = &'a TensorType>) -> String {
    types.into_iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
}

/// Control characters are written by number, so that a name can neither break its line nor hide in it.
fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
