//! Attention and its gradient over strided views: queries, keys and values of any layout whose rows are whole, and as many
//! keys as one likes. What one projection packs is one case of it. The matrix of scores is never stored: a cube has one tile
//! of it at a time.
//!
//! The gradient of the queries is made apart and moved in the end, so that dqkv may take the place of qkv: until both kernels
//! have run, all queries are still read.

use memfit_ir::op::{self, Attention};
use memfit_ir::{DType, Node};
use memfit_plan::Place;

use super::Lowering;
use crate::call::{Call, Grid, Key, Operands, Takes};
use crate::tape::Buffer;

/// Rows and columns of a tile of scores, which one cube computes.
pub const TILE: usize = 64;
/// Units along a side of a tile; each has every sixteenth row and column of it.
pub const SIDE: usize = 16;
/// Rows and columns of a tile that one unit has.
pub const EACH: usize = TILE / SIDE;
/// Elements of the head dim, or rows, that are in shared memory at a time.
pub const DEPTH: usize = 16;
/// Elements from one row in shared memory to the next: one more than there are, so that neighbouring rows lie in other banks.
pub const PITCH: usize = DEPTH + 1;
/// As in a tile of scores.
pub const SCORE_PITCH: usize = TILE + 1;
/// Elements of shared memory for two sides of a product.
pub const STAGE: usize = 2 * TILE * PITCH;
/// Columns of a result that a unit sums up at most: what is wider is the work of several cubes.
const MOST_COLUMNS: usize = 8;

/// Where the rows of each head lie, in elements. Those of a row lie side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    pub place: Place,
    pub dtype: DType,
    pub offset: usize,
    /// From one sample, head or position to the next.
    pub batch: usize,
    pub head: usize,
    pub position: usize,
}

/// Which keys a query may look at: where bits or bytes are not 0. Floats are added to the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskView {
    pub place: Place,
    pub dtype: DType,
    pub offset: usize,
    pub batch: usize,
    pub head: usize,
    pub query: usize,
    pub key: usize,
}

/// What attends to what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    pub sizes: Sizes,
    pub q: View,
    pub k: View,
    pub v: View,
    pub mask: Option<MaskView>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub dim: usize,
    /// Query i sees the keys below i + reach: 1 where causal, all keys where not.
    pub reach: usize,
    pub scale: f32,
}

/// A kernel, with what is known when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    Forward(Forward),
    QueryGrad(QueryGrad),
    KeyGrad(KeyGrad),
    Move { from: Rows, to: Rows },
}

/// A view as a kernel knows it: offset and strides are four numbers of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    pub buffer: Buffer,
    pub first: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scores {
    pub q: Rows,
    pub k: Rows,
    pub v: Rows,
    /// With five numbers.
    pub mask: Option<Rows>,
    /// Of a result, by unit.
    pub columns: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    pub scores: Scores,
    pub y: Rows,
    pub lse: Rows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryGrad {
    pub scores: Scores,
    pub y: Rows,
    pub dy: Rows,
    pub lse: Rows,
    /// Σ dy·y of each query: made here, and read by the gradients of keys and values.
    pub delta: Rows,
    pub dq: Rows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyGrad {
    pub scores: Scores,
    pub dy: Rows,
    pub lse: Rows,
    pub delta: Rows,
    pub dk: Rows,
    pub dv: Rows,
}

impl Kernel {
    /// See [`Key::takes`].
    pub fn takes(&self) -> Takes {
        let (columns, sums, tiles) = match self {
            Kernel::Forward(f) => (f.scores.columns, 2, 1),
            Kernel::QueryGrad(g) => (g.scores.columns, 2, 2),
            Kernel::KeyGrad(g) => (g.scores.columns, 4, 2),
            Kernel::Move { .. } => return Takes::default(),
        };
        Takes { words: EACH * (columns * sums + EACH * tiles), shared_bytes: 4 * (TILE * SCORE_PITCH + STAGE) }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Kernel::Forward(_) => "attention",
            Kernel::QueryGrad(_) => "attention_query_grad",
            Kernel::KeyGrad(_) => "attention_key_grad",
            Kernel::Move { .. } => "attention_move",
        }
    }
}

/// Where the sizes stand among the numbers of a launch; views follow.
pub const HEADS: usize = 0;
pub const QUERIES: usize = 1;
pub const KEYS: usize = 2;
pub const DIM: usize = 3;
pub const REACH: usize = 4;
/// As the bits of an f32.
pub const SCALE: usize = 5;
pub const BATCH: usize = 6;

impl Sizes {
    fn numbers(&self) -> [usize; 7] {
        let scale = self.scale.to_bits() as usize;
        [self.heads, self.queries, self.keys, self.dim, self.reach, scale, self.batch]
    }

    /// Columns of a unit: few kernels for all dims, none with much to spare.
    pub fn columns(&self) -> usize {
        self.dim.div_ceil(SIDE).next_power_of_two().min(MOST_COLUMNS)
    }

    /// Cubes that share the columns of a result.
    pub fn slices(&self) -> usize {
        self.dim.div_ceil(self.columns() * SIDE)
    }

    /// A cube for each tile of rows.
    fn grid(&self, rows: usize) -> Grid {
        Grid::cubes(self.batch * self.heads * rows.div_ceil(TILE) * self.slices())
    }

    /// Of so many products over the pairs that see each other.
    fn flops(&self, products: u64) -> u64 {
        let pairs: u64 = (0..self.queries).map(|i| (i + self.reach).min(self.keys) as u64).sum();
        2 * products * pairs * (self.batch * self.heads * self.dim) as u64
    }
}

/// softmax(scale·q·kᵀ + mask)·v and the log-sum-exp of each query's scores.
pub fn forward(heads: &Heads, y: View, lse: View) -> Call {
    let mut operands = Operands::default();
    operands.numbers(heads.sizes.numbers());
    let scores = heads.bind(&mut operands);
    let [y, lse] = [y, lse].map(|view| view.bind(&mut operands));
    let kernel = Kernel::Forward(Forward { scores, y, lse });
    operands.call(Key::Attention(Box::new(kernel)), heads.sizes.grid(heads.sizes.queries), heads.sizes.flops(2))
}

/// What the gradient has beside the forward pass's inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    pub y: View,
    pub lse: View,
    pub dy: View,
    /// Scratch of the shape of lse.
    pub delta: View,
}

/// dq, which must lie where nothing is read, and delta.
pub fn query_grad(heads: &Heads, saved: &Saved, dq: View) -> Call {
    let mut operands = Operands::default();
    operands.numbers(heads.sizes.numbers());
    let scores = heads.bind(&mut operands);
    let [y, dy, lse, delta, dq] = [saved.y, saved.dy, saved.lse, saved.delta, dq].map(|view| view.bind(&mut operands));
    let kernel = Kernel::QueryGrad(QueryGrad { scores, y, dy, lse, delta, dq });
    operands.call(Key::Attention(Box::new(kernel)), heads.sizes.grid(heads.sizes.queries), heads.sizes.flops(3))
}

/// dk and dv, once delta is known. They may lie where k and v do, see [`may_overwrite`].
pub fn key_grad(heads: &Heads, saved: &Saved, dk: View, dv: View) -> Call {
    let mut operands = Operands::default();
    operands.numbers(heads.sizes.numbers());
    let scores = heads.bind(&mut operands);
    let [dy, lse, delta, dk, dv] = [saved.dy, saved.lse, saved.delta, dk, dv].map(|view| view.bind(&mut operands));
    let kernel = Kernel::KeyGrad(KeyGrad { scores, dy, lse, delta, dk, dv });
    operands.call(Key::Attention(Box::new(kernel)), heads.sizes.grid(heads.sizes.keys), heads.sizes.flops(4))
}

/// Copies the rows of the queries.
fn move_rows(sizes: &Sizes, from: View, to: View) -> Call {
    let mut operands = Operands::default();
    operands.numbers(sizes.numbers());
    let [from, to] = [from, to].map(|view| view.bind(&mut operands));
    let elements = sizes.batch * sizes.heads * sizes.queries * sizes.dim;
    operands.call(Key::Attention(Box::new(Kernel::Move { from, to })), Grid::each(elements), 0)
}

/// Whether gradients may lie where keys and values did: one cube reads a row of them, and writes it in the end.
pub fn may_overwrite(dim: usize) -> bool {
    dim <= MOST_COLUMNS * SIDE
}

impl View {
    /// Of one of several tensors side by side: (batch, position, part, head, dim).
    fn packed(place: Place, dtype: DType, sizes: &Sizes, positions: usize, [part, parts]: [usize; 2]) -> View {
        let width = sizes.heads * sizes.dim;
        let position = parts * width;
        View { place, dtype, offset: part * width, batch: positions * position, head: sizes.dim, position }
    }

    /// Of a number for each query: (batch, head, query).
    fn by_query(place: Place, dtype: DType, sizes: &Sizes) -> View {
        View { place, dtype, offset: 0, batch: sizes.heads * sizes.queries, head: sizes.queries, position: 1 }
    }

    fn bind(&self, operands: &mut Operands) -> Rows {
        let buffer = operands.buffer(self.place, self.dtype);
        Rows { buffer, first: operands.numbers([self.offset, self.batch, self.head, self.position]) }
    }
}

impl MaskView {
    fn bind(&self, operands: &mut Operands) -> Rows {
        let buffer = operands.buffer(self.place, self.dtype);
        Rows { buffer, first: operands.numbers([self.offset, self.batch, self.head, self.query, self.key]) }
    }
}

impl Heads {
    fn bind(&self, operands: &mut Operands) -> Scores {
        let [q, k, v] = [self.q, self.k, self.v].map(|view| view.bind(operands));
        let mask = self.mask.map(|view| view.bind(operands));
        Scores { q, k, v, mask, columns: self.sizes.columns() }
    }

    /// As one projection makes them.
    fn packed(op: Attention, shape: &[usize], place: Place, dtype: DType) -> Heads {
        let [batch, sequence, _, heads, dim] = *shape else { unreachable!("qkv of shape {shape:?} was inferred") };
        let reach = if op.causal { 1 } else { sequence };
        let sizes = Sizes { batch, heads, queries: sequence, keys: sequence, dim, reach, scale: op.scale };
        let [q, k, v] = [0, 1, 2].map(|part| View::packed(place, dtype, &sizes, sequence, [part, 3]));
        Heads { sizes, q, k, v, mask: None }
    }
}

impl Lowering<'_> {
    pub(super) fn attention_forward(&mut self, op: op::Attention, root: &Node) {
        let heads = self.packed_heads(op, root);
        let sizes = &heads.sizes;
        let [y, lse] = [root.outputs[0], root.outputs[1]].map(|v| (self.place(v), self.graph.ty(v).dtype));
        let y = View::packed(y.0, y.1, sizes, sizes.queries, [0, 1]);
        self.push(forward(&heads, y, View::by_query(lse.0, lse.1, sizes)));
    }

    pub(super) fn attention_grad(&mut self, op: op::Attention, root: &Node) {
        let heads = self.packed_heads(op, root);
        let sizes = &heads.sizes;
        let of = |v| (self.place(v), self.graph.ty(v).dtype);
        let [y, lse, dy, dqkv] = [root.inputs[1], root.inputs[2], root.inputs[3], root.outputs[0]].map(of);
        let rows = (sizes.batch * sizes.heads * sizes.queries) as u64;
        let [delta, made] = [rows, rows * sizes.dim as u64].map(|n| self.scratch(n * DType::F32.bits() as u64 / 8));
        let whole = |(place, dtype)| View::packed(place, dtype, sizes, sizes.queries, [0, 1]);
        let part = |part| View::packed(dqkv.0, dqkv.1, sizes, sizes.keys, [part, 3]);
        let by_query = |(place, dtype)| View::by_query(place, dtype, sizes);
        let saved = Saved { y: whole(y), lse: by_query(lse), dy: whole(dy), delta: by_query((delta, DType::F32)) };
        let made = whole((made, DType::F32));
        self.push(query_grad(&heads, &saved, made));
        self.push(key_grad(&heads, &saved, part(1), part(2)));
        self.push(move_rows(sizes, made, part(0)));
    }

    fn packed_heads(&self, op: op::Attention, root: &Node) -> Heads {
        let (qkv, ty) = (root.inputs[0], self.graph.ty(root.inputs[0]));
        Heads::packed(op, &ty.shape, self.place(qkv), ty.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::{Lowered, Step, estimate};
    use memfit_ir::{Builder, Graph, Op, TensorType};
    use memfit_plan::Segment;
    use memfit_transform::Group;

    fn at(offset: u64) -> Place {
        Place { segment: Segment::Transient, offset, size: 1 << 20 }
    }

    fn view(offset: u64, [skip, batch, head, position]: [usize; 4]) -> View {
        View { place: at(offset), dtype: DType::F32, offset: skip, batch, head, position }
    }

    fn lowered(shape: [usize; 5], grad: bool) -> (Graph, Lowered) {
        let mut b = Builder::new();
        let qkv = b.input("qkv", TensorType::f32(shape)).expect("an input");
        let op = Attention { causal: true, scale: 0.5 };
        let y = b.op_outputs(Op::Attention(op), &[qkv]).expect("attention");
        let last = if grad { b.op(Op::AttentionGrad(op), &[qkv, y[0], y[1], y[0]]).expect("a gradient") } else { y[0] };
        b.output("y", last);
        let graph = b.finish();
        let group = Group { nodes: vec![graph.producer(last)], ..Group::default() };
        let lowered = estimate(&graph, &group, 32);
        (graph, lowered)
    }

    fn kernel(call: &Call) -> Kernel {
        let Key::Attention(kernel) = &call.key else { panic!("{call:?}") };
        **kernel
    }

    fn calls(lowered: &Lowered) -> Vec<&Call> {
        let mut calls = Vec::new();
        for step in &lowered.steps {
            match step {
                Step::Call(call) => calls.push(call),
                Step::Product(_) => unreachable!("a product in attention"),
            }
        }
        calls
    }

    #[test]
    fn packed_queries_keys_and_values_are_three_views_of_one_operand() {
        let (_, lowered) = lowered([2, 70, 3, 4, 5], false);
        let [call] = calls(&lowered)[..] else { panic!("{lowered:?}") };
        let Kernel::Forward(Forward { scores, y, lse }) = kernel(call) else { panic!("{call:?}") };
        assert_eq!(call.operands.len(), 3);
        assert_eq!([scores.q, scores.k, scores.v, y, lse].map(|rows| rows.buffer.index), [0, 0, 0, 1, 2]);
        let numbers = |rows: Rows| &call.numbers[rows.first..rows.first + 4];
        assert_eq!(numbers(scores.q), [0, 70 * 60, 5, 60]);
        assert_eq!(numbers(scores.k), [20, 70 * 60, 5, 60]);
        assert_eq!(numbers(scores.v), [40, 70 * 60, 5, 60]);
        assert_eq!(numbers(y), [0, 70 * 20, 5, 20]);
        assert_eq!(numbers(lse), [0, 4 * 70, 70, 1]);
        assert_eq!(call.grid, Grid::cubes(2 * 4 * 2));
        assert_eq!(lowered.scratch, 0);
    }

    #[test]
    fn views_apart_with_a_mask_are_operands_of_their_own() {
        let sizes = Sizes { batch: 1, heads: 2, queries: 3, keys: 130, dim: 8, reach: 130, scale: 1.0 };
        let strides = [7, 0, 8, 16];
        let mask = MaskView { place: at(9 << 20), dtype: DType::Bit, offset: 0, batch: 0, head: 0, query: 130, key: 1 };
        let [q, k, v, y] = [1, 2, 3, 4].map(|place| view(place << 20, strides));
        let lse = view(5 << 20, [0, 6, 3, 1]);
        let call = forward(&Heads { sizes, q, k, v, mask: Some(mask) }, y, lse);
        assert_eq!(call.operands, [1, 2, 3, 9, 4, 5].map(|place| at(place << 20)));
        let Kernel::Forward(key) = kernel(&call) else { panic!("{call:?}") };
        let rows = key.scores.mask.expect("a mask");
        assert_eq!(rows.buffer, Buffer { index: 3, dtype: DType::Bit });
        assert_eq!(call.numbers[rows.first..rows.first + 5], [0, 0, 0, 130, 1]);
        assert_eq!(call.numbers[key.scores.k.first..key.scores.k.first + 4], [7, 0, 8, 16]);
        assert_eq!([call.numbers[QUERIES], call.numbers[KEYS], call.numbers[REACH]], [3, 130, 130]);
        assert_eq!(call.flops, 2 * 2 * 3 * 130 * 2 * 8);
    }

    #[test]
    fn the_gradient_reads_all_queries_before_it_writes_any() {
        let (graph, lowered) = lowered([2, 70, 3, 4, 5], true);
        let [queries, keys, moved] = calls(&lowered)[..] else { panic!("{lowered:?}") };
        let Kernel::QueryGrad(first) = kernel(queries) else { panic!("{queries:?}") };
        let Kernel::KeyGrad(second) = kernel(keys) else { panic!("{keys:?}") };
        let Kernel::Move { from, to } = kernel(moved) else { panic!("{moved:?}") };
        let (made, dqkv) = (queries.operands[first.dq.buffer.index], moved.operands[to.buffer.index]);
        assert_eq!((made.segment, dqkv.segment), (Segment::Transient, Segment::State));
        assert_eq!(moved.operands[from.buffer.index], made);
        assert!([second.dk, second.dv].iter().all(|rows| keys.operands[rows.buffer.index] == dqkv));
        assert!(queries.operands.iter().all(|&place| place != dqkv));
        let y = graph.node_ids().find(|&id| matches!(graph.node(id).op, Op::Attention(_))).expect("attention");
        let [y, lse] = [0, 1].map(|i| graph.ty(graph.node(y).outputs[i]).bytes());
        assert_eq!(lowered.scratch, lse.next_multiple_of(32) + y);
    }

    #[test]
    fn few_kernels_serve_all_dims_and_wide_results_are_cut() {
        let sizes = |dim| Sizes { batch: 1, heads: 1, queries: 1, keys: 1, dim, reach: 1, scale: 1.0 };
        let cut = [1, 16, 17, 33, 64, 80, 128, 129, 300].map(|dim| (sizes(dim).columns(), sizes(dim).slices()));
        assert_eq!(cut, [(1, 1), (1, 1), (2, 1), (4, 1), (4, 1), (8, 1), (8, 1), (8, 2), (8, 3)]);
        assert!(may_overwrite(128) && !may_overwrite(129));
    }
}
