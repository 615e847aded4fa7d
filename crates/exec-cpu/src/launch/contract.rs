//! Contractions with their ends: a product, an elementwise chain over its output while that is in the cache, and chains that
//! compute its operands while they are packed.

use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use memfit_ir::{Graph, Node, Op, ValueId};
use memfit_plan::{Place, Program, Step};
use memfit_transform::Group;

use super::feed::{ChainFeed, bound_of, tape_of};
use super::sums::{BoundSums, Sums};
use super::{Launch, placed, run_chain};
use crate::Cpu;
use crate::conv::{ConvShape, Product, Tensors};
use crate::elementwise::{Bound, Tape};
use crate::gemm::{self, A, B, Fed, Feed, Feeds, Gemm, Micro, Part, Rows, Scratch, Taps};
use crate::kernels::Image;
use crate::kernels::depthwise::{self, Depthwise, Pass};
use crate::kernels::depthwise_filter::{depthwise_filter_grad, depthwise_filter_grad_scratch};
use crate::memory::Memory;
use crate::pool::part;
use crate::winograd::{self, Geometry};

/// The scratch of a contraction: parts one after the other, in elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Of the product itself.
    product: usize,
    /// Of the chain behind it.
    chain: usize,
    /// Of the chains that compute its operands.
    feeds: [usize; 2],
    /// The output before the chain, where no result has a place for it.
    raw: usize,
    /// Of the sums that close the group.
    sums: usize,
}

impl Parts {
    pub fn total(&self) -> usize {
        self.product + self.chain + self.feeds[0] + self.feeds[1] + self.raw + self.sums
    }

    /// Where the scratch of the chain, of the feeds, of the sums and of the raw output start.
    fn starts(&self) -> [usize; 5] {
        let chain = self.product;
        let left = chain + self.chain;
        let right = left + self.feeds[0];
        let sums = right + self.feeds[1];
        [chain, left, right, sums, sums + self.sums]
    }
}

pub fn scratch(cpu: &Cpu, graph: &Graph, group: &Group) -> Parts {
    let root = graph.node(group.root());
    let raw = root.outputs[0];
    let threads = cpu.pool.threads();
    let tapes = [0, 1].map(|i| tape_of(graph, group, root.inputs[i]));
    let fed = Fed { a: tapes[0].is_some(), b: tapes[1].is_some() };
    let mut parts = Parts { product: product_scratch(cpu, graph, root, fed), ..Parts::default() };
    if !group.epilogue().is_empty() {
        parts.chain = Tape::new(graph, group.epilogue(), &group.writes).scratch_len(threads);
        if group.product_home(graph).is_none() {
            parts.raw = graph.ty(raw).elements();
        }
    }
    parts.product = parts.product.next_multiple_of(16);
    parts.chain = parts.chain.next_multiple_of(16);
    parts.feeds = tapes.map(|t| t.map_or(0, |t| t.scratch_len(threads).next_multiple_of(16)));
    parts.sums = Sums::scratch_len(cpu, graph, group);
    parts
}

/// Whether a contraction has one filter a channel.
pub fn is_depthwise(graph: &Graph, node: &Node) -> bool {
    matches!(Contraction::new(graph, node), Contraction::Conv(shape, _) if shape.is_depthwise())
}

/// How many times fewer multiplications a contraction takes here than its definition has.
pub fn gain(graph: &Graph, node: &Node) -> f64 {
    match Contraction::new(graph, node) {
        Contraction::Conv(shape, product) => Geometry::new(&shape, product).map_or(1.0, |g| g.gain()),
        Contraction::MatMul(_) => 1.0,
    }
}

/// How often a contraction reads an operand, one part of its columns after the other.
pub fn times_read(cpu: &Cpu, graph: &Graph, node: &Node) -> usize {
    let Contraction::Conv(shape, product) = Contraction::new(graph, node) else { return 1 };
    let (micro, threads) = (Micro::new(cpu.isa), cpu.pool.threads());
    Geometry::new(&shape, product).map_or(1, |g| match product {
        Product::Forward | Product::Transposed => winograd::times_read(&micro, &g, threads),
        Product::Filter => winograd::filter_times_read(&micro, &g),
    })
}

fn product_scratch(cpu: &Cpu, graph: &Graph, node: &Node, fed: Fed) -> usize {
    let micro = Micro::new(cpu.isa);
    let threads = cpu.pool.threads();
    match Contraction::new(graph, node) {
        Contraction::MatMul(s) => {
            let product = s.product(0, [std::ptr::null_mut(); 3]);
            // Threads that have products of their own share nothing of them.
            if s.one_a_thread(threads) {
                threads * gemm::scratch_len(&micro, &product, fed, 1)
            } else {
                gemm::scratch_len(&micro, &product, fed, threads)
            }
        }
        Contraction::Conv(shape, Product::Filter) if shape.is_depthwise() => {
            depthwise_filter_grad_scratch(&depthwise_of(&shape), image_of(&shape))
        }
        Contraction::Conv(shape, _) if shape.is_depthwise() => 0,
        Contraction::Conv(shape, product) => shape.scratch_len(&micro, product, fed, threads),
    }
}

/// What is contracted, with its sizes.
#[derive(Clone, Copy, Debug)]
enum Contraction {
    MatMul(Sizes),
    Conv(ConvShape, Product),
}

/// A batch of products.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    transpose_a: bool,
    transpose_b: bool,
}

impl Sizes {
    /// Whether each thread makes whole products, or all of them make one after the other together.
    fn one_a_thread(&self, threads: usize) -> bool {
        self.batch >= 2 * threads
    }

    /// One product of the batch, of operands and result that start here.
    fn product(&self, i: usize, [a, b, c]: [*mut f32; 3]) -> Gemm {
        let s = self;
        let (a, b) = (a.wrapping_add(i * s.m * s.k), b.wrapping_add(i * s.k * s.n));
        Gemm {
            m: s.m,
            n: s.n,
            k: s.k,
            a: if s.transpose_a { A::Columns { start: a, stride: s.m } } else { A::Rows { start: a, stride: s.k } },
            b: if s.transpose_b {
                B::Taps { start: b, stride: s.k, per_tap: s.k.max(1), taps: Taps::ONE }
            } else {
                B::Rows { start: b, stride: s.n }
            },
            c: c.wrapping_add(i * s.m * s.n),
            rows: Rows::plain(s.n),
        }
    }
}

impl Contraction {
    fn new(graph: &Graph, node: &Node) -> Contraction {
        let shape = |v: ValueId| graph.shape(v);
        let (a, b, y) = (shape(node.inputs[0]), shape(node.inputs[1]), shape(node.outputs[0]));
        match &node.op {
            Op::MatMul(m) => {
                let rank = y.len();
                let (rows, n) = (y[rank - 2], y[rank - 1]);
                let k = if m.transpose_b { b[b.len() - 1] } else { b[b.len() - 2] };
                let batch: usize = y[..rank - 2].iter().product();
                // A right side without a batch is one product with all the rows of the left side.
                let (batch, rows) = if b.len() < a.len() { (1, batch * rows) } else { (batch, rows) };
                let (transpose_a, transpose_b) = (m.transpose_a, m.transpose_b);
                Contraction::MatMul(Sizes { batch, m: rows, n, k, transpose_a, transpose_b })
            }
            Op::Conv(c) => Contraction::Conv(conv_shape(*c, a, [b[0], b[1]], y), Product::Forward),
            Op::ConvTranspose(c) => Contraction::Conv(conv_shape(c.conv, y, [b[0], b[1]], a), Product::Transposed),
            Op::ConvFilter(c) => Contraction::Conv(conv_shape(c.conv, a, c.size, b), Product::Filter),
            op => unreachable!("{} is no contraction", op.name()),
        }
    }
}

fn conv_shape(conv: memfit_ir::op::Conv, x: &[usize], filter: [usize; 2], y: &[usize]) -> ConvShape {
    ConvShape {
        batch: x[0],
        image: [x[1], x[2]],
        channels_in: x[3],
        channels_out: y[3],
        filter,
        out: [y[1], y[2]],
        conv,
    }
}

pub fn compile(cpu: &Cpu, program: &Program, step: &Step) -> Launch {
    let graph = &program.graph;
    let group = &step.group;
    let root = graph.node(group.root());
    let contraction = Contraction::new(graph, root);
    let parts = scratch(cpu, graph, group);
    let scratch = step.scratch;
    let raw = root.outputs[0];
    let raw_place = match group.product_home(graph) {
        Some(v) => placed(program, v),
        None => part_of(scratch, parts.starts()[4], parts.raw),
    };
    let ends = (!group.epilogue().is_empty()).then(|| {
        let tape = Tape::new(graph, group.epilogue(), &group.writes);
        tape.bind(|v| if v == raw { raw_place } else { placed(program, v) })
    });
    let sums = Sums::new(cpu, program, group);
    let fed = [0, 1].map(|i| bound_of(program, group, root.inputs[i]));
    let operands = [0, 1].map(|i| fed[i].is_none().then(|| placed(program, root.inputs[i])));
    Box::new(move |cpu, memory| {
        let base = scratch.map_or(std::ptr::null_mut(), |p| memory.f32_at(p));
        let [chain, left, right, for_sums, _] = parts.starts().map(|at| Scratch(base.wrapping_add(at)));
        if let Some(bound) = &ends {
            // SAFETY: the chain's part of the scratch has the length that the tape asked for.
            unsafe { bound.prepare(memory, chain.0) };
        }
        // SAFETY: as above, each feed with its own part.
        let fed = unsafe {
            [ChainFeed::new(cpu, memory, fed[0].as_ref(), left), ChainFeed::new(cpu, memory, fed[1].as_ref(), right)]
        };
        let [a_feed, b_feed] = fed.each_ref().map(|f| f.as_ref().map(|f| f as &dyn Feed));
        let feeds = Feeds { a: a_feed, b: b_feed };
        // SAFETY: as above, and the plan placed what is summed up and the sums.
        let sums = unsafe { sums.bind(memory, for_sums) };
        let run = Running { cpu, memory, ends: ends.as_ref(), sums: &sums, feeds, scratch: base, chain_scratch: chain };
        // A fed operand starts at null.
        let [a, b] = operands.map(|p| p.map_or(std::ptr::null_mut(), |p| memory.f32_at(p)));
        let c = memory.f32_at(raw_place);
        let finished = match contraction {
            Contraction::MatMul(sizes) => run.matmul(&sizes, [a, b, c]),
            Contraction::Conv(shape, product) => {
                let t = match product {
                    Product::Forward => Tensors { x: a, w: b, y: c },
                    Product::Transposed => Tensors { x: c, w: b, y: a },
                    Product::Filter => Tensors { x: a, w: c, y: b },
                };
                run.conv(&shape, product, t)
            }
        };
        if let (false, Some(bound)) = (finished.chain, &ends) {
            run_chain(cpu, memory, bound, chain);
        }
        sums.close(cpu, finished.sums);
        Ok(())
    })
}

/// What was done block by block, while the product was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    chain: bool,
    sums: bool,
}

/// A part of the scratch, as elements.
fn part_of(scratch: Option<Place>, at: usize, len: usize) -> Place {
    match scratch {
        Some(p) => Place { segment: p.segment, offset: p.offset + 4 * at as u64, size: 4 * len as u64 },
        None => unreachable!("a contraction always has scratch"),
    }
}

/// One launch of a contraction.
struct Running<'a> {
    cpu: &'a Cpu,
    memory: &'a Memory,
    ends: Option<&'a Bound>,
    sums: &'a BoundSums<'a>,
    feeds: Feeds<'a>,
    scratch: *mut f32,
    chain_scratch: Scratch,
}

// SAFETY: the pointers name scratch of which each thread takes its own part.
unsafe impl Sync for Running<'_> {}

impl Running<'_> {
    /// Whether the chain may follow block by block over rows of `n` elements: blocks start and end at whole vectors, which
    /// are whole bytes of bits where the rows are.
    fn by_blocks(&self, n: usize) -> bool {
        self.ends.is_none_or(|bound| !bound.has_bits() || n.is_multiple_of(8))
    }

    /// Runs the chain over a finished block of rows of `n` elements, the first of them at `base`.
    fn finish(&self, thread: usize, base: usize, n: usize, rows: Range<usize>, columns: Range<usize>) {
        let Some(bound) = self.ends else { return };
        // SAFETY: blocks are disjoint, and each thread has slots of its own.
        let run = |range| unsafe { bound.run(self.cpu.isa, self.memory, self.chain_scratch.at(0), thread, range) };
        if columns == (0..n) {
            return run(base + rows.start * n..base + rows.end * n);
        }
        for row in rows {
            run(base + row * n + columns.start..base + row * n + columns.end);
        }
    }

    fn matmul(&self, s: &Sizes, tensors: [*mut f32; 3]) -> Done {
        let product = |i: usize| s.product(i, tensors);
        let by_blocks = self.by_blocks(s.n);
        let finish = |t: usize, i: usize, rows, columns| {
            if by_blocks {
                self.finish(t, i * s.m * s.n, s.n, rows, columns);
            }
        };
        let threads = self.cpu.pool.threads();
        if !s.one_a_thread(threads) {
            for i in 0..s.batch {
                let finish = |t: usize, rows, columns| finish(t, i, rows, columns);
                // SAFETY: the plan placed the operands apart and the scratch with its length.
                unsafe { gemm::run(self.cpu, &product(i), self.feeds, 1, self.scratch, &finish) };
            }
            return Done { chain: by_blocks, sums: false };
        }
        let products = Products { at: &product };
        let micro = Micro::new(self.cpu.isa);
        let each = gemm::scratch_len(&micro, &product(0), self.feeds.fed(), 1);
        let scratch = Scratch(self.scratch);
        self.cpu.pool.run(&|t| {
            for i in part(s.batch, 1, threads, t) {
                let finish = |rows, columns| finish(t, i, rows, columns);
                let g = products.get(i);
                let whole = Part { thread: t, rows: 0..s.m, columns: 0..s.n };
                // SAFETY: as above; each thread has its own products and its own scratch.
                unsafe { gemm::run_part(&micro, &g, self.feeds, whole, scratch.at(t * each), &finish) };
            }
        });
        Done { chain: by_blocks, sums: false }
    }

    fn conv(&self, shape: &ConvShape, product: Product, t: Tensors) -> Done {
        if shape.is_depthwise() {
            return self.depthwise(shape, product, t);
        }
        let n = match product {
            Product::Forward | Product::Filter => shape.channels_out,
            Product::Transposed => shape.channels_in,
        };
        if let Some(g) = Geometry::new(shape, product) {
            return match product {
                Product::Forward | Product::Transposed => self.winograd(&g, t),
                Product::Filter => self.winograd_filter(&g, t),
            };
        }
        // Rows come out in the order of memory, so that the chain can follow block by block.
        let in_order = shape.conv.groups == 1
            && (product != Product::Transposed || shape.conv.stride == [1, 1])
            && self.by_blocks(n);
        let mut summed = in_order;
        shape.products(product, t, |g| {
            let sums = in_order && gemm::makes_rows(g.m, g.n);
            summed &= sums;
            let finish = |thread: usize, rows: Range<usize>, columns: Range<usize>| {
                if in_order {
                    self.finish(thread, 0, n, rows.clone(), columns.clone());
                }
                if sums && columns.end == n {
                    self.sums.add(self.cpu, rows);
                }
            };
            // SAFETY: as above.
            unsafe { gemm::run(self.cpu, g, self.feeds, self.sums.rows_at_once(), self.scratch, &finish) };
        });
        Done { chain: in_order, sums: summed }
    }

    fn winograd(&self, g: &Geometry, t: Tensors) -> Done {
        let n = g.columns;
        let (from, to) = if g.turned { (t.y, t.x) } else { (t.x, t.y) };
        let chain = self.by_blocks(n);
        let sums = chain && winograd::fits_rows(self.cpu, g, self.sums.rows_at_once());
        let finish = |thread: usize, rows: Range<usize>, columns: Range<usize>| {
            if chain {
                self.finish(thread, 0, n, rows.clone(), columns.clone());
            }
            if sums && columns.end == n {
                self.sums.add(self.cpu, rows);
            }
        };
        let images = winograd::Images { from, filter: t.w, to };
        // SAFETY: as above.
        unsafe {
            winograd::run(self.cpu, g, images, self.feeds, self.sums.rows_at_once(), self.scratch, &finish);
        }
        Done { chain, sums }
    }

    fn winograd_filter(&self, g: &Geometry, t: Tensors) -> Done {
        let chain = self.by_blocks(g.columns);
        let finish = |thread: usize, rows: Range<usize>, columns: Range<usize>| {
            if chain {
                self.finish(thread, 0, g.columns, rows, columns);
            }
        };
        let tensors = winograd::Gradients { image: t.x, gradient: t.y, filter: t.w };
        // SAFETY: as above.
        unsafe { winograd::run_filter(self.cpu, g, tensors, self.feeds, self.scratch, &finish) };
        Done { chain, sums: false }
    }
}

impl Running<'_> {
    fn depthwise(&self, shape: &ConvShape, product: Product, t: Tensors) -> Done {
        let (d, image) = (depthwise_of(shape), image_of(shape));
        match product {
            Product::Forward => self.depthwise_pass(image.c, &d.forward(image), [t.x, t.w, t.y]),
            Product::Transposed => self.depthwise_pass(image.c, &d.backward(image), [t.y, t.w, t.x]),
            Product::Filter => {
                self.depthwise_filter(&d, image, t);
                Done { chain: false, sums: false }
            }
        }
    }

    fn depthwise_pass(&self, channels: usize, pass: &Pass, [from, filter, to]: [*mut f32; 3]) -> Done {
        let in_order = self.by_blocks(channels);
        let finish = |thread: usize, pixels: Range<usize>| {
            if in_order {
                self.finish(thread, 0, channels, pixels.clone(), 0..channels);
                self.sums.add(self.cpu, pixels);
            }
        };
        let tensors = depthwise::Tensors { from, filter, to };
        // SAFETY: the plan placed the operands apart, each with the length that its shape says.
        unsafe { pass.run(self.cpu, tensors, self.sums.rows_at_once(), &finish) };
        Done { chain: in_order, sums: in_order }
    }

    fn depthwise_filter(&self, d: &Depthwise, image: Image, t: Tensors) {
        let scratch_len = depthwise_filter_grad_scratch(d, image);
        // SAFETY: as above, and the scratch has its length too.
        unsafe {
            let (x, dy) = (from_raw_parts(t.x, image.len()), from_raw_parts(t.y, d.output(image).len()));
            let scratch: &mut [f32] =
                if scratch_len == 0 { &mut [] } else { from_raw_parts_mut(self.scratch, scratch_len) };
            let dw = from_raw_parts_mut(t.w, d.filter[0] * d.filter[1] * image.c);
            depthwise_filter_grad(self.cpu, d, image, x, dy, dw, scratch);
        }
    }
}

fn depthwise_of(shape: &ConvShape) -> Depthwise {
    Depthwise { conv: shape.conv, filter: shape.filter }
}

fn image_of(shape: &ConvShape) -> Image {
    Image::new(shape.batch, shape.image[0], shape.image[1], shape.channels_in)
}

/// The products of a batch, shared between threads.
struct Products<'a> {
    at: &'a dyn Fn(usize) -> Gemm,
}

// SAFETY: the function only computes pointers.
unsafe impl Sync for Products<'_> {}

impl Products<'_> {
    fn get(&self, i: usize) -> Gemm {
        (self.at)(i)
    }
}
