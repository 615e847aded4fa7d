//! Where a product and its operands lie while a group runs: what the planner is told is what a launch uses.

use memfit_ir::{Graph, ValueId};
use memfit_plan::Place;
use memfit_transform::Group;

/// The scratch of a contraction: operands that are computed before it, and its result where that has no place of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Each with its bytes and where they start.
    parts: Vec<(ValueId, u64, u64)>,
    pub bytes: u64,
}

impl Layout {
    /// Of any group; empty for those that are no contraction.
    pub fn new(graph: &Graph, group: &Group, alignment: u64) -> Layout {
        let root = graph.node(group.root());
        let mut layout = Layout::default();
        if !root.op.is_contraction() {
            return layout;
        }
        for &v in root.inputs.iter().filter(|&&v| !group.prologue_of(graph, v).is_empty()) {
            layout.push(v, graph.ty(v).bytes(), alignment);
        }
        if group.product_home(graph).is_none() {
            layout.push(root.outputs[0], graph.ty(root.outputs[0]).bytes(), alignment);
        }
        layout
    }

    fn push(&mut self, v: ValueId, bytes: u64, alignment: u64) {
        let start = self.bytes.next_multiple_of(alignment);
        self.parts.push((v, bytes, start));
        self.bytes = start + bytes;
    }

    /// The place of a value that lies in the scratch.
    pub fn place(&self, scratch: Place, v: ValueId) -> Option<Place> {
        let (_, size, start) = *self.parts.iter().find(|(part, ..)| *part == v)?;
        Some(Place { offset: scratch.offset + start, size, ..scratch })
    }
}
