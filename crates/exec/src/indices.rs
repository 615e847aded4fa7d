//! Inputs that are indices: classes, and rows of tables. They are looked at on the host, before a device is given them: not every
//! one can stop at what it meets. Indices that are computed on a device are its kernels' concern.

use memfit_ir::{DType, Graph, NodeId, Op, ValueId};

use crate::error::{ExecError, KernelError};

/// An input whose elements some node reads as indices below a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indices {
    pub input: ValueId,
    limit: usize,
    /// The first node that reads them so.
    reader: NodeId,
}

impl Indices {
    /// Those of a graph, each input once for each limit.
    pub fn of(graph: &Graph) -> Vec<Indices> {
        let mut found: Vec<Indices> = Vec::new();
        for reader in graph.node_ids() {
            let Some((ids, limit)) = read_as_indices(graph, reader) else { continue };
            let input = unshaped(graph, ids);
            let is_known = found.iter().any(|i| (i.input, i.limit) == (input, limit));
            if matches!(graph.producer_op(input), Op::Input(_)) && !is_known {
                found.push(Indices { input, limit, reader });
            }
        }
        found
    }

    /// Whether all of them are below the limit.
    pub fn check(&self, graph: &Graph, bytes: &[u8]) -> Result<(), ExecError> {
        let ids = bytes.chunks_exact(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        let is_outside = |id: i32| usize::try_from(id).map_or(true, |id| id >= self.limit);
        match ids.enumerate().find(|&(_, id)| is_outside(id)) {
            Some((position, id)) => {
                let problem = KernelError::Index { index: id.into(), position, limit: self.limit };
                let node = graph.node(self.reader);
                Err(ExecError::Data { op: node.op.name(), layer: node.scope.clone(), problem })
            }
            None => Ok(()),
        }
    }
}

/// What a node reads as indices, and the limit that each is below.
fn read_as_indices(graph: &Graph, id: NodeId) -> Option<(ValueId, usize)> {
    let node = graph.node(id);
    if let Op::Gather = node.op {
        return Some((node.inputs[1], graph.shape(node.inputs[0])[0]));
    }
    if let Op::GatherGrad(g) = node.op {
        return Some((node.inputs[0], g.rows));
    }
    if !matches!(node.op, Op::CrossEntropy(_) | Op::CrossEntropyGrad(_)) {
        return None;
    }
    let [logits, labels] = [node.inputs[0], node.inputs[1]];
    let classes = *graph.shape(logits).last()?;
    (graph.ty(labels).dtype == DType::I32).then_some((labels, classes))
}

/// The value that others are only another shape of.
fn unshaped(graph: &Graph, mut v: ValueId) -> ValueId {
    while let Op::Reshape(_) = graph.producer_op(v) {
        v = graph.node(graph.producer(v)).inputs[0];
    }
    v
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Builder, TensorType};

    use super::*;

    fn i32(shape: &[usize]) -> TensorType {
        TensorType::new(DType::I32, shape)
    }

    #[test]
    fn an_input_is_checked_where_it_is_read_as_indices_whatever_its_shape() {
        let mut b = Builder::new();
        let [table, logits] =
            [("table", [7, 2]), ("logits", [6, 3])].map(|(name, shape)| b.input(name, TensorType::f32(shape)).unwrap());
        let ids = b.input("ids", i32(&[2, 3])).unwrap();
        let flat = b.reshape(ids, [6]).unwrap();
        b.op(Op::Gather, &[table, flat]).unwrap();
        b.scope("loss", |b| b.cross_entropy(logits, flat, 0.0)).unwrap();
        b.op(Op::Gather, &[table, ids]).unwrap();
        let graph = b.finish();
        let found = Indices::of(&graph);
        assert_eq!(found.iter().map(|i| (i.input, i.limit)).collect::<Vec<_>>(), [(ids, 7), (ids, 3)]);

        let bytes = |ids: [i32; 6]| bytemuck::cast_slice(&ids).to_vec();
        assert!(found.iter().all(|i| i.check(&graph, &bytes([0, 1, 2, 2, 1, 0])).is_ok()));
        let outside = |i: usize, ids| found[i].check(&graph, &bytes(ids)).unwrap_err().to_string();
        assert!(found[0].check(&graph, &bytes([0, 1, 6, 2, 1, 0])).is_ok());
        let told = outside(1, [0, 1, 6, 2, 1, 0]);
        assert_eq!(told, "cross_entropy in layer \"loss\": index 6 at position 2 is outside of 0..3");
        assert!(outside(0, [0, 0, 0, 0, 0, -1]).contains("index -1 at position 5 is outside of 0..7"));
    }

    #[test]
    fn what_is_computed_of_an_input_is_not_checked() {
        let mut b = Builder::new();
        let table = b.input("table", TensorType::f32([7, 2])).unwrap();
        let ids = b.input("ids", i32(&[4])).unwrap();
        let some = b.slice(ids, &[0], &[2]).unwrap();
        b.op(Op::Gather, &[table, some]).unwrap();
        assert_eq!(Indices::of(&b.finish()), []);
    }
}
