//! The casts back to f32, each directly before its reader: between kernels only 16 bits live, and a kernel that reads them
//! can widen what it reads itself. What only moves elements moves them in 16 bits. Nothing here changes a number: to widen
//! is exact, and to round what was widened gives back what it was.

use memfit_ir::{DType, Donation, Graph, Node, Op, ValueId};

use super::points::{Kind, kind};
use crate::error::Result;

/// A graph with a cast for each reader of what is stored in 16 bits.
pub struct WidenedGraph {
    pub graph: Graph,
    /// By value of the old graph: the value that holds its numbers, in 16 bits or not.
    pub stored: Vec<ValueId>,
}

pub fn widened(graph: &Graph) -> Result<WidenedGraph> {
    let mut w = Widening { graph: Graph::new(), of: Vec::with_capacity(graph.values().len()) };
    for node in graph.nodes() {
        w.push(node)?;
    }
    // What is given out is read when the run ends.
    for (name, v) in &graph.outputs {
        let scope = &graph.node(graph.producer(*v)).scope;
        let v = w.plain(*v, scope)?;
        w.graph.outputs.push((name.clone(), v));
    }
    for d in &graph.donations {
        let scope = &graph.node(graph.producer(d.new)).scope;
        let (old, new) = (w.plain(d.old, scope)?, w.plain(d.new, scope)?);
        w.graph.donations.push(Donation { old, new });
    }
    Ok(WidenedGraph { graph: w.graph, stored: w.of.iter().map(|form| form.stored()).collect() })
}

/// What an old value is in the new graph.
#[derive(Clone, Copy)]
enum Form {
    Plain(ValueId),
    /// This value of 16 bits, widened; not made before somebody reads it.
    Wide(ValueId),
}

struct Widening {
    graph: Graph,
    of: Vec<Form>,
}

impl Widening {
    fn push(&mut self, node: &Node) -> Result<()> {
        let forms: Vec<Form> = node.inputs.iter().map(|v| self.of[v.index()]).collect();
        match (&node.op, &forms[..]) {
            (Op::Cast(DType::F32), &[Form::Plain(v)]) if is_half(self.graph.ty(v).dtype) => {
                self.of.push(Form::Wide(v));
            }
            (Op::Cast(to), &[Form::Wide(v)]) if self.graph.ty(v).dtype == *to => self.of.push(Form::Plain(v)),
            _ if kind(&node.op) == Kind::Layout && self.all_narrow(&forms) => {
                let inputs: Vec<ValueId> = forms.iter().map(|f| f.stored()).collect();
                let id = self.graph.push(node.op.clone(), &inputs, &node.scope)?;
                self.of.push(Form::Wide(self.graph.node(id).outputs[0]));
            }
            _ => {
                let mut inputs: Vec<ValueId> = Vec::with_capacity(node.inputs.len());
                for (i, &v) in node.inputs.iter().enumerate() {
                    // A node that reads a value twice widens it once.
                    let before = node.inputs[..i].iter().position(|&other| other == v);
                    inputs.push(match before {
                        Some(same) => inputs[same],
                        None => self.plain(v, &node.scope)?,
                    });
                }
                let id = self.graph.push(node.op.clone(), &inputs, &node.scope)?;
                self.of.extend(self.graph.node(id).outputs.iter().map(|&v| Form::Plain(v)));
            }
        }
        Ok(())
    }

    /// Whether a layout op can work on what is stored: all of its inputs in the same 16 bits.
    fn all_narrow(&self, forms: &[Form]) -> bool {
        let dtype = |f: &Form| match f {
            Form::Wide(v) => Some(self.graph.ty(*v).dtype),
            Form::Plain(_) => None,
        };
        forms.first().and_then(dtype).is_some_and(|first| forms.iter().all(|f| dtype(f) == Some(first)))
    }

    fn plain(&mut self, old: ValueId, scope: &str) -> Result<ValueId> {
        match self.of[old.index()] {
            Form::Plain(v) => Ok(v),
            Form::Wide(v) => {
                let id = self.graph.push(Op::Cast(DType::F32), &[v], scope)?;
                Ok(self.graph.node(id).outputs[0])
            }
        }
    }
}

impl Form {
    fn stored(self) -> ValueId {
        match self {
            Form::Plain(v) | Form::Wide(v) => v,
        }
    }
}

fn is_half(dtype: DType) -> bool {
    dtype.is_float() && dtype != DType::F32
}
