//! Random valid graphs. A graph is a function of a list of kinds and a list of draws, so that a failing one shrinks to
//! few nodes and small numbers.

use memfit_ir::op::*;
use memfit_ir::{DType, Donation, Graph, Replica, TensorType, ValueId};
use proptest::prelude::*;

/// Random graphs of all kinds of nodes. Each keeps the verifier's rules.
pub fn graphs() -> impl Strategy<Value = Graph> {
    let kinds = prop::collection::vec(0..KINDS, 1..30);
    (kinds, prop::collection::vec(any::<u32>(), 1..200)).prop_map(|(kinds, draws)| graph(&kinds, draws))
}

/// A graph in which every variant of [`Op`] appears, and every member of the families that have names.
pub fn one_of_each() -> Graph {
    let kinds: Vec<usize> = (0..KINDS).collect();
    let mut g = Generator::new((0..1000_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect());
    kinds.iter().for_each(|&k| g.node(k));
    let x = g.fresh(f32s(&[2, 3]));
    Unary::ALL.iter().for_each(|&u| g.add(Op::Unary(u), &[x]));
    Unary::ALL.iter().for_each(|&u| g.add(Op::UnaryGrad(u), &[x, x]));
    Binary::ALL.iter().for_each(|&b| g.add(Op::Binary(b), &[x, x]));
    Compare::ALL.iter().for_each(|&c| g.add(Op::Compare(c), &[x, x]));
    ReduceKind::ALL.iter().for_each(|&kind| g.add(Op::Reduce(Reduce { kind, axes: vec![1], keep: false }), &[x]));
    [false, true].iter().for_each(|&log| g.add(Op::Softmax(Softmax { log }), &[x]));
    [false, true].iter().for_each(|&log| g.add(Op::SoftmaxGrad(Softmax { log }), &[x, x]));
    updates(0.9).into_iter().chain(updates(0.0)).for_each(|u| g.update(u));
    g.finish()
}

macro_rules! kinds {
    ($($variant:pat => $number:literal,)*) => {
        /// Where a variant stands among the kinds. Without a `_` arm: a new op must be given a number, and
        /// [`one_of_each`] panics until [`Generator::node`] makes it.
        pub fn kind(op: &Op) -> usize {
            match op { $($variant => $number,)* }
        }

        /// Number of variants of [`Op`].
        pub const KINDS: usize = [$($number),*].len();
    };
}

#[rustfmt::skip]
kinds! {
    Op::Input(_) => 0, Op::State(_) => 1, Op::Fill(_) => 2, Op::Unary(_) => 3, Op::UnaryGrad(_) => 4,
    Op::Binary(_) => 5, Op::Compare(_) => 6, Op::Select => 7, Op::Cast(_) => 8, Op::Dropout(_) => 9,
    Op::Reduce(_) => 10, Op::Reshape(_) => 11, Op::Transpose(_) => 12, Op::Slice(_) => 13, Op::Concat(_) => 14,
    Op::Pad(_) => 15, Op::Broadcast(_) => 16, Op::MatMul(_) => 17, Op::Conv(_) => 18, Op::ConvTranspose(_) => 19,
    Op::ConvFilter(_) => 20, Op::Attention(_) => 21, Op::AttentionGrad(_) => 22, Op::MaxPool(_) => 23,
    Op::MaxPoolGrad(_) => 24, Op::AvgPool(_) => 25, Op::AvgPoolGrad(_) => 26, Op::Upsample(_) => 27,
    Op::UpsampleGrad(_) => 28, Op::BatchStats => 29, Op::BatchApply(_) => 30, Op::BatchGradReduce(_) => 31,
    Op::BatchGradInput(_) => 32, Op::BatchUpdate(_) => 33, Op::LayerNorm(_) => 34, Op::LayerNormGrad => 35,
    Op::RmsNorm(_) => 36, Op::RmsNormGrad => 37, Op::GroupNorm(_) => 38, Op::GroupNormGrad(_) => 39,
    Op::Softmax(_) => 40, Op::SoftmaxGrad(_) => 41, Op::CrossEntropy(_) => 42, Op::CrossEntropyGrad(_) => 43,
    Op::Gather => 44, Op::GatherGrad(_) => 45, Op::Update(_) => 46, Op::Mask(_) => 47, Op::MaskGrad(_) => 48,
    Op::Join(_) => 49, Op::Replicate(_) => 50,
}

fn graph(kinds: &[usize], draws: Vec<u32>) -> Graph {
    let mut g = Generator::new(draws);
    kinds.iter().for_each(|&k| g.node(k));
    g.finish()
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::f32(shape)
}

fn updates(momentum: f32) -> [Update; 5] {
    let adam = |decoupled| Update::Adam { beta1: momentum, beta2: 0.999, eps: 1e-8, weight_decay: 1e-4, decoupled };
    [
        Update::Sgd { momentum, nesterov: momentum > 0.5, weight_decay: 1e-4 },
        adam(false),
        adam(true),
        Update::RmsProp { alpha: 0.99, eps: 1e-8 },
        Update::Adagrad { eps: 1e-10 },
    ]
}

/// What a name or a layer may contain besides letters.
const ODD: [&str; 8] =
    ["", "layer1/conv", "a \"quoted\" one", "back\\slash", "two\nlines\r\t", "# no comment", "Ω/\u{7f}", "@{=}"];
const FLOATS: [f32; 8] = [0.5, 0.1, 1e-5, 1.0 / 3.0, 0.0, f32::MIN_POSITIVE, 1e-45, 0.999_999_94];

struct Generator {
    graph: Graph,
    draws: Vec<u32>,
    at: usize,
    names: usize,
}

impl Generator {
    fn new(draws: Vec<u32>) -> Self {
        Generator { graph: Graph::new(), draws, at: 0, names: 0 }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.at += 1;
        // The draws are used again with a shift, so that a short list does not repeat the same nodes.
        (self.draws[self.at % self.draws.len()] as usize).wrapping_add(self.at / self.draws.len()) % below
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.draw(from.len())]
    }

    fn flip(&mut self) -> bool {
        self.draw(2) == 1
    }

    /// An extent from 1 to 4.
    fn extent(&mut self) -> usize {
        1 + self.draw(4)
    }

    /// A number that every attribute between 0 and 1, 1 excluded, takes.
    fn fraction(&mut self) -> f32 {
        self.pick(&FLOATS)
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("{}{}", self.pick(&ODD), self.names)
    }

    /// Appends a node and gives its outputs. The generator makes only valid ones.
    fn push(&mut self, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let scope = self.pick(&ODD);
        let id = self.graph.push(op, inputs, scope).expect("the generator gives fitting inputs");
        self.graph.node(id).outputs.clone()
    }

    fn add(&mut self, op: Op, inputs: &[ValueId]) {
        self.push(op, inputs);
    }

    /// A new source of a type.
    fn fresh(&mut self, ty: TensorType) -> ValueId {
        let TensorType { dtype, shape } = ty;
        let op = match self.draw(3) {
            0 => Op::Input(Input { name: self.name(), dtype, shape }),
            1 => Op::Fill(Fill { value: self.fill_value(), dtype, shape }),
            _ => return self.state(TensorType { dtype, shape }),
        };
        self.push(op, &[])[0]
    }

    fn fill_value(&mut self) -> f32 {
        let bits =
            f32::from_bits(self.pick(&[0, 1, 0x7f80_0000, 0xff80_0000, 0x8000_0000]) ^ self.draw(1 << 20) as u32);
        // A NaN is not equal to itself, so a graph with one cannot be compared; it has its own test.
        if bits.is_nan() { f32::INFINITY } else { bits }
    }

    fn state(&mut self, ty: TensorType) -> ValueId {
        let x = self.fraction();
        let init = self.pick(&[Init::Constant(-x), Init::Normal { std: x }, Init::Uniform { limit: x }]);
        let (name, class) = (self.name(), self.pick(&StateClass::ALL));
        self.push(Op::State(State { name, class, dtype: ty.dtype, shape: ty.shape, init }), &[])[0]
    }

    /// A value of a type: one that is there, or a new source.
    fn of(&mut self, ty: TensorType) -> ValueId {
        let there: Vec<u32> =
            (0..self.graph.values().len() as u32).filter(|&v| *self.graph.ty(ValueId(v)) == ty).collect();
        if there.is_empty() || self.draw(4) == 0 { self.fresh(ty) } else { ValueId(self.pick(&there)) }
    }

    /// An f32 value of a rank, with its shape: one that is there, or a new source.
    fn rank(&mut self, rank: usize) -> (ValueId, Vec<usize>) {
        let fits =
            |t: &TensorType| t.dtype == DType::F32 && t.shape.rank() == rank && t.elements() > 0 && t.elements() < 500;
        let there: Vec<u32> =
            (0..self.graph.values().len() as u32).filter(|&v| fits(self.graph.ty(ValueId(v)))).collect();
        let v = if there.is_empty() || self.draw(4) == 0 {
            let dims: Vec<usize> = (0..rank).map(|_| self.extent()).collect();
            self.fresh(f32s(&dims))
        } else {
            ValueId(self.pick(&there))
        };
        (v, self.graph.shape(v).to_vec())
    }

    /// An f32 value of 1 to 4 axes.
    fn any(&mut self) -> (ValueId, Vec<usize>) {
        let rank = self.extent();
        self.rank(rank)
    }

    fn clock(&mut self) -> ValueId {
        self.of(TensorType::i32([4]))
    }

    fn finish(mut self) -> Graph {
        let values = self.graph.values().len();
        for i in 0..self.draw(4) {
            let v = ValueId(self.draw(values) as u32);
            // A state that is overwritten cannot be given out.
            if self.graph.donations.iter().any(|d| d.old == v) {
                continue;
            }
            let name = format!("{}{i}", self.pick(&ODD));
            self.graph.outputs.push((name, v));
        }
        self.graph
    }

    fn node(&mut self, kind: usize) {
        match kind {
            0..3 => self.source(kind),
            3..10 => self.elementwise(kind),
            10..17 => self.layout(kind),
            17..23 => self.contraction(kind),
            23..29 => self.window(kind),
            29..34 => self.batch_norm(kind),
            34..40 => self.row_norm(kind),
            40..46 => self.loss(kind),
            46 => {
                let momentum = self.fraction();
                let u = self.pick(&updates(momentum));
                self.update(u);
            }
            47 | 48 => self.mask(kind),
            49 | 50 => self.exchange(kind),
            _ => panic!("kind {kind} has no generator"),
        }
    }

    /// With the token of the exchange before, or as the first.
    fn exchange(&mut self, kind: usize) {
        let lanes = 1 + self.draw(9);
        let count = 1 + self.draw(lanes);
        let replica = Replica { lanes, count, rank: self.draw(count) };
        let token = self.flip().then(|| self.fresh(token()));
        let tensors = if kind == 50 { 1 } else { 1 + self.draw(3) };
        let join = Join { replica, piece: 4 * count + self.draw(1000) };
        let sums = if kind == 50 { 1 } else { join.sums() };
        let mut inputs = Vec::new();
        for _ in 0..tensors {
            let ty = f32s(&[self.extent(), self.extent()]);
            inputs.extend((0..sums).map(|_| self.fresh(ty.clone())));
        }
        let inputs: Vec<ValueId> = inputs.into_iter().chain(token).collect();
        let owner = self.draw(count);
        let replicate = Replicate { rank: replica.rank, count, owner };
        self.add(if kind == 50 { Op::Replicate(replicate) } else { Op::Join(join) }, &inputs);
    }

    fn source(&mut self, kind: usize) {
        let dtype = self.pick(&DType::NUMBERS);
        let dims: Vec<usize> = (0..self.draw(5)).map(|_| self.draw(4)).collect();
        let shape = memfit_ir::Shape::new(dims);
        let op = match kind {
            0 => Op::Input(Input { name: self.name(), dtype, shape }),
            1 => {
                self.state(TensorType { dtype, shape });
                return;
            }
            _ => Op::Fill(Fill { value: self.fill_value(), dtype, shape }),
        };
        self.push(op, &[]);
    }

    fn elementwise(&mut self, kind: usize) {
        let (x, shape) = self.any();
        let alike = self.of(f32s(&shape));
        // The other side of a binary op is broadcast from its last axes.
        let tail = self.draw(shape.len() + 1);
        let other = self.of(f32s(&shape[tail..]));
        let slope = self.fraction();
        let unary = self.pick(&[&Unary::ALL[..], &[Unary::LeakyRelu(slope), Unary::Elu(slope + 1e-3)]].concat());
        match kind {
            3 => self.push(Op::Unary(unary), &[x]),
            4 => self.push(Op::UnaryGrad(unary), &[x, alike]),
            5 => {
                let b = self.pick(&Binary::ALL);
                self.push(Op::Binary(b), &[x, other])
            }
            6 => {
                let c = self.pick(&Compare::ALL);
                self.push(Op::Compare(c), &[other, x])
            }
            7 => {
                let condition = self.of(TensorType::new(DType::U8, &shape[tail..]));
                self.push(Op::Select, &[condition, x, alike])
            }
            8 => {
                let to = self.pick(&DType::NUMBERS);
                self.push(Op::Cast(to), &[x])
            }
            _ => {
                let (rate, stream, clock) = (self.fraction(), self.pick(&[0, 7, u32::MAX]), self.clock());
                self.push(Op::Dropout(Dropout { rate, stream }), &[x, clock])
            }
        };
    }

    /// A mask, and the gradient that reads it, maybe in another shape.
    fn mask(&mut self, kind: usize) {
        let (y, shape) = self.any();
        let slope = self.fraction();
        let u = self.pick(&[Unary::Relu, Unary::Relu6, Unary::LeakyRelu(slope), Unary::HardSigmoid]);
        let mut bits = self.push(Op::Mask(u), &[y])[0];
        if kind == 48 {
            let flat = memfit_ir::Shape::new([shape.iter().product()]);
            let dy = self.of(f32s(&flat));
            bits = self.push(Op::Reshape(flat), &[bits])[0];
            self.push(Op::MaskGrad(u), &[bits, dy]);
        }
    }

    fn layout(&mut self, kind: usize) {
        let (x, shape) = self.any();
        let rank = shape.len();
        let op = match kind {
            10 => {
                let axes = (0..rank).filter(|_| self.flip()).collect();
                Op::Reduce(Reduce { kind: self.pick(&ReduceKind::ALL), axes, keep: self.flip() })
            }
            11 => Op::Reshape([&shape[1..], &[1, shape[0]]].concat().into()),
            12 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                perm.rotate_left(self.draw(rank));
                Op::Transpose(perm)
            }
            13 => {
                let stop: Vec<usize> = shape.iter().map(|&d| self.draw(d + 1)).collect();
                let start = stop.iter().map(|&d| self.draw(d + 1)).collect();
                Op::Slice(Slice { start, stop })
            }
            14 => {
                let axis = self.draw(rank);
                let mut dims = shape.clone();
                dims[axis] = self.extent();
                let inputs = [x, self.of(f32s(&dims)), x];
                let n = 1 + self.draw(3);
                return self.add(Op::Concat(axis), &inputs[..n]);
            }
            15 => Op::Pad((0..rank).map(|_| (self.draw(3), self.draw(3))).collect()),
            _ => {
                let x = self.of(f32s(&shape[1..]));
                return self.add(Op::Broadcast(shape.into()), &[x]);
            }
        };
        self.push(op, &[x]);
    }

    fn conv(&mut self, groups: usize) -> Conv {
        let pad = Pad2 { top: self.draw(3), bottom: self.draw(3), left: self.draw(3), right: self.draw(3) };
        let (stride, dilation) = ([self.extent(), self.extent()], [1 + self.draw(2), 1 + self.draw(2)]);
        Conv { stride, pad, dilation, groups }
    }

    fn contraction(&mut self, kind: usize) {
        match kind {
            17 => return self.matmul(),
            21 | 22 => return self.attention(kind),
            _ => {}
        }
        let (groups, per_group) = (1 + self.draw(2), self.extent());
        let conv = self.conv(groups);
        let (x, image) = self.image(groups * per_group);
        let filter = [1 + self.draw(2), 1 + self.draw(2), per_group, groups * self.extent()];
        let w = self.of(f32s(&filter));
        let y = self.push(Op::Conv(conv), &[x, w])[0];
        match kind {
            19 => self.add(Op::ConvTranspose(ConvTranspose { conv, size: [image[1], image[2]] }), &[y, w]),
            20 => self.add(Op::ConvFilter(ConvFilter { conv, size: [filter[0], filter[1]] }), &[x, y]),
            _ => {}
        }
    }

    /// An image that the windows of up to 3 pixels fit into.
    fn image(&mut self, channels: usize) -> (ValueId, [usize; 4]) {
        let shape = [self.extent(), 3 + self.draw(3), 3 + self.draw(3), channels];
        (self.of(f32s(&shape)), shape)
    }

    fn matmul(&mut self) {
        let rank = 2 + self.draw(3);
        let (a, shape) = self.rank(rank);
        let (batch, last) = shape.split_at(shape.len() - 2);
        let m = MatMul { transpose_a: self.flip(), transpose_b: self.flip() };
        let inner = if m.transpose_a { last[0] } else { last[1] };
        let mut b = if m.transpose_a || self.flip() { batch.to_vec() } else { vec![] };
        let cols = self.extent();
        b.extend(if m.transpose_b { [cols, inner] } else { [inner, cols] });
        let b = self.of(f32s(&b));
        self.push(Op::MatMul(m), &[a, b]);
    }

    fn attention(&mut self, kind: usize) {
        let attention = Attention { causal: self.flip(), scale: self.fraction() };
        let [batch, sequence, heads, dim] = [0; 4].map(|_| self.extent());
        let qkv = self.of(f32s(&[batch, sequence, 3, heads, dim]));
        let made = self.push(Op::Attention(attention), &[qkv]);
        if kind == 22 {
            let dy = self.of(self.graph.ty(made[0]).clone());
            self.push(Op::AttentionGrad(attention), &[qkv, made[0], made[1], dy]);
        }
    }

    fn window(&mut self, kind: usize) {
        let channels = self.extent();
        let (x, image) = self.image(channels);
        let size = [1 + self.draw(3), 1 + self.draw(3)];
        let mut pad = |n: usize| self.draw(n);
        let pad = Pad2 { top: pad(size[0]), bottom: pad(size[0]), left: pad(size[1]), right: pad(size[1]) };
        let window = Window { size, stride: [self.extent(), self.extent()], pad };
        let grad = WindowGrad { window, size: [image[1], image[2]] };
        let up = Upsample { mode: self.pick(&UpsampleMode::ALL), factor: [self.extent(), self.extent()] };
        match kind {
            23 | 24 => {
                let made = self.push(Op::MaxPool(window), &[x]);
                if kind == 24 {
                    self.push(Op::MaxPoolGrad(grad), &[made[1], made[0]]);
                }
            }
            25 | 26 => {
                let y = self.push(Op::AvgPool(window), &[x])[0];
                if kind == 26 {
                    self.push(Op::AvgPoolGrad(grad), &[y]);
                }
            }
            _ => {
                let y = self.push(Op::Upsample(up), &[x])[0];
                if kind == 28 {
                    self.push(Op::UpsampleGrad(up), &[y]);
                }
            }
        }
    }

    fn batch_norm(&mut self, kind: usize) {
        let (x, shape) = self.any();
        let vector = f32s(&shape[shape.len() - 1..]);
        let (scale, bias, dy) = (self.of(vector.clone()), self.of(vector.clone()), self.of(f32s(&shape)));
        let [mean, var] = self.push(Op::BatchStats, &[x])[..] else { unreachable!() };
        let eps = self.fraction();
        match kind {
            30 => self.add(Op::BatchApply(Eps(eps)), &[x, mean, var, scale, bias]),
            31 | 32 => {
                let made = self.push(Op::BatchGradReduce(Eps(eps)), &[x, mean, var, dy]);
                if kind == 32 {
                    let op = Op::BatchGradInput(BatchGradInput { eps, batch_stats: self.flip() });
                    self.push(op, &[x, mean, var, scale, dy, made[0], made[1]]);
                }
            }
            33 => {
                let running = [self.state(vector.clone()), self.state(vector)];
                let op = Op::BatchUpdate(BatchUpdate { momentum: self.fraction() });
                let mut inputs = vec![running[0], running[1], mean, var];
                inputs.extend(self.gate());
                let made = self.push(op, &inputs);
                self.donate(&running, &made);
            }
            _ => {}
        }
    }

    fn row_norm(&mut self, kind: usize) {
        let rank = 2 + self.draw(3);
        let (x, shape) = self.rank(rank);
        let vector = f32s(&shape[rank - 1..]);
        let (scale, bias, dy) = (self.of(vector.clone()), self.of(vector), self.of(f32s(&shape)));
        let eps = self.fraction();
        match kind {
            34 | 35 => {
                let made = self.push(Op::LayerNorm(Eps(eps)), &[x, scale, bias]);
                if kind == 35 {
                    self.push(Op::LayerNormGrad, &[x, made[1], made[2], scale, dy]);
                }
            }
            36 | 37 => {
                let made = self.push(Op::RmsNorm(Eps(eps)), &[x, scale]);
                if kind == 37 {
                    self.push(Op::RmsNormGrad, &[x, made[1], scale, dy]);
                }
            }
            _ => {
                let divisors: Vec<usize> =
                    (1..=shape[rank - 1]).filter(|d| shape[rank - 1].is_multiple_of(*d)).collect();
                let groups = self.pick(&divisors);
                let made = self.push(Op::GroupNorm(GroupNorm { groups, eps }), &[x, scale, bias]);
                if kind == 39 {
                    self.push(Op::GroupNormGrad(groups), &[x, made[1], made[2], scale, dy]);
                }
            }
        }
    }

    fn loss(&mut self, kind: usize) {
        let rank = 1 + self.draw(3);
        let (x, shape) = self.rank(rank);
        let dy = self.of(f32s(&shape));
        let softmax = Softmax { log: self.flip() };
        match kind {
            40 => self.add(Op::Softmax(softmax), &[x]),
            41 => self.add(Op::SoftmaxGrad(softmax), &[x, dy]),
            42 | 43 => {
                let classes = TensorType::i32(&shape[..rank - 1]);
                let labels = if self.flip() { self.of(classes) } else { dy };
                let op = CrossEntropy { smoothing: self.fraction() };
                let made = self.push(Op::CrossEntropy(op), &[x, labels]);
                if kind == 43 {
                    self.push(Op::CrossEntropyGrad(op), &[x, labels, made[1], made[0]]);
                }
            }
            _ => {
                let (table, rows) = self.rank(2);
                let ids = self.of(TensorType::i32(&shape[..]));
                let made = self.push(Op::Gather, &[table, ids]);
                if kind == 45 {
                    self.push(Op::GatherGrad(GatherGrad { rows: rows[0] }), &[ids, made[0]]);
                }
            }
        }
    }

    fn update(&mut self, u: Update) {
        let dims: Vec<usize> = (0..self.draw(3)).map(|_| self.extent()).collect();
        let ty = f32s(&dims);
        let mut inputs = vec![self.state(ty.clone()), self.of(ty.clone())];
        inputs.extend(u.slots().iter().map(|_| self.state(ty.clone())));
        inputs.extend([self.of(f32s(&[])), self.clock()]);
        inputs.extend(self.gate());
        let made = self.push(Op::Update(u), &inputs);
        inputs.remove(1);
        self.donate(&inputs, &made);
    }

    /// What may hold an update back.
    fn gate(&mut self) -> Option<ValueId> {
        self.flip().then(|| self.of(TensorType::new(DType::U8, [])))
    }

    fn donate(&mut self, old: &[ValueId], new: &[ValueId]) {
        self.graph.donations.extend(old.iter().zip(new).map(|(&old, &new)| Donation { old, new }));
    }
}
