//! What a gradient rule sees and builds with: its node, the gradients of the node's outputs, which inputs want one,
//! and short names for the nodes that rules are made of. It never adds up contributions: the walk does.

use memfit_ir::op::{Binary, Compare, Fill, Reduce, ReduceKind, Unary};
use memfit_ir::{DType, Graph, Node, Op, ValueId};

use crate::error::{Error, Result};

/// A gradient for each input of the node; `None` where none flows.
pub(super) type Grads = Result<Vec<Option<ValueId>>>;

pub(super) struct Ctx<'a> {
    pub(super) graph: &'a mut Graph,
    /// The forward node. Everything that is built belongs to its layer.
    pub(super) node: &'a Node,
    /// The gradient of each output.
    pub(super) dys: &'a [Option<ValueId>],
    pub(super) wants: &'a [bool],
    /// Of each forward value: whether the caller asked for its gradient.
    pub(super) asked: &'a [bool],
}

impl Ctx<'_> {
    /// Whether the gradient of input `i` is of use.
    pub(super) fn wants(&self, i: usize) -> bool {
        self.wants[i]
    }

    /// The gradient of input `i` if it is of use: what `build` makes, summed over the axes along which the input was
    /// broadcast. So a rule need not know whether it was.
    pub(super) fn when(
        &mut self,
        i: usize,
        build: impl FnOnce(&mut Self) -> Result<ValueId>,
    ) -> Result<Option<ValueId>> {
        if !self.wants(i) {
            return Ok(None);
        }
        let d = build(self)?;
        self.summed_to_input(i, d).map(Some)
    }

    /// A gradient in the shape of input `i`, summed over the axes along which the input was broadcast. For rules that have
    /// less to compute after the sum; the others leave it to [`Ctx::when`].
    pub(super) fn summed_to_input(&mut self, i: usize, d: ValueId) -> Result<ValueId> {
        let shape = self.shape(self.node.inputs[i]);
        self.unbroadcast(d, &shape)
    }

    /// The gradient of the first output, for ops whose other outputs only serve their own gradient.
    pub(super) fn dy(&self) -> Result<ValueId> {
        if let Some(output) = (1..self.dys.len()).find(|&i| self.dys[i].is_some()) {
            let (op, scope) = (self.node.op.name(), self.node.scope.clone());
            return Err(Error::AuxiliaryOutput { op, scope, output });
        }
        Ok(self.dys[0].expect("a rule runs only where a gradient arrives"))
    }

    pub(super) fn shape(&self, v: ValueId) -> Vec<usize> {
        self.graph.shape(v).to_vec()
    }

    pub(super) fn dtype(&self, v: ValueId) -> DType {
        self.graph.ty(v).dtype
    }

    // ---- nodes -------------------------------------------------------------------------------------------------------

    /// Appends a node and gives its first output.
    pub(super) fn op(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let node = self.graph.push(op, inputs, &self.node.scope)?;
        Ok(self.graph.node(node).outputs[0])
    }

    /// Appends a node and gives all of its outputs.
    pub(super) fn outputs(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let node = self.graph.push(op, inputs, &self.node.scope)?;
        Ok(self.graph.node(node).outputs.clone())
    }

    /// A scalar of the type of `like`, for use by broadcasting.
    pub(super) fn constant(&mut self, value: f32, like: ValueId) -> Result<ValueId> {
        let dtype = self.dtype(like);
        self.op(Op::Fill(Fill { value, dtype, shape: [].into() }), &[])
    }

    pub(super) fn neg(&mut self, x: ValueId) -> Result<ValueId> {
        self.op(Op::Unary(Unary::Neg), &[x])
    }

    pub(super) fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Binary(Binary::Add), &[a, b])
    }

    pub(super) fn sub(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Binary(Binary::Sub), &[a, b])
    }

    pub(super) fn mul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Binary(Binary::Mul), &[a, b])
    }

    pub(super) fn div(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Binary(Binary::Div), &[a, b])
    }

    pub(super) fn compare(&mut self, c: Compare, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Compare(c), &[a, b])
    }

    pub(super) fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Select, &[condition, a, b])
    }

    pub(super) fn cast(&mut self, x: ValueId, to: DType) -> Result<ValueId> {
        if self.dtype(x) == to { Ok(x) } else { self.op(Op::Cast(to), &[x]) }
    }

    pub(super) fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Result<ValueId> {
        if self.graph.shape(x) == shape { Ok(x) } else { self.op(Op::Reshape(shape.into()), &[x]) }
    }

    pub(super) fn broadcast(&mut self, x: ValueId, shape: &[usize]) -> Result<ValueId> {
        if self.graph.shape(x) == shape { Ok(x) } else { self.op(Op::Broadcast(shape.into()), &[x]) }
    }

    /// The gradient of broadcasting: the sum over the axes along which a value of `shape` was stretched.
    fn unbroadcast(&mut self, dy: ValueId, shape: &[usize]) -> Result<ValueId> {
        let wide = self.shape(dy);
        let lead = wide.len() - shape.len();
        let stretched = |i: &usize| wide[*i] != 1 && (*i < lead || shape[*i - lead] == 1);
        let axes: Vec<usize> = (0..wide.len()).filter(stretched).collect();
        if axes.is_empty() {
            return self.reshape(dy, shape);
        }
        // Sums are kept in f32 whatever the storage type.
        let dtype = self.dtype(dy);
        let exact = self.cast(dy, DType::F32)?;
        let sum = self.op(Op::Reduce(Reduce { kind: ReduceKind::Sum, axes, keep: false }), &[exact])?;
        let sum = self.reshape(sum, shape)?;
        self.cast(sum, dtype)
    }
}
