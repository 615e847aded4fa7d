//! Contractions with prologues, epilogue and reductions: chains that compute the operands while they are packed, the product, an
//! elementwise chain over its output while that is in the cache, and sums over what comes out.

use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use memfit_ir::Graph;
use memfit_plan::{Launch, Place, Program};
use memfit_transform::Group;

use super::contraction::{Contraction, Sizes, depthwise_of, image_of};
use super::prologue::{ChainPrologue, bound_tape_of, tape_of};
use super::reductions::{BoundReductions, Reductions};
use super::{Run, placed, run_chain};
use crate::Cpu;
use crate::conv::{ConvShape, Product};
use crate::elementwise::{BoundTape, Tape};
use crate::gemm::{self, Micro, Operands, Part, Scratch, Source};
use crate::kernels::Image;
use crate::kernels::depthwise::{self, Depthwise, Pass};
use crate::kernels::depthwise_filter::{depthwise_filter_grad, depthwise_filter_grad_scratch};
use crate::memory::Memory;
use crate::pool::part;
use crate::winograd::{self, Geometry};

/// The scratch of a contraction: parts one after the other, in elements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScratchParts {
    /// Of the product itself.
    product: usize,
    epilogue: usize,
    /// Of the prologues of both operands.
    prologues: [usize; 2],
    reductions: usize,
    /// The output before the epilogue, where no result has a place for it.
    raw: usize,
}

/// Where each part starts.
struct PartOffsets {
    epilogue: usize,
    prologues: [usize; 2],
    reductions: usize,
    raw: usize,
}

impl ScratchParts {
    pub(super) fn total(&self) -> usize {
        self.starts().raw + self.raw
    }

    fn starts(&self) -> PartOffsets {
        let epilogue = self.product;
        let left = epilogue + self.epilogue;
        let right = left + self.prologues[0];
        let reductions = right + self.prologues[1];
        PartOffsets { epilogue, prologues: [left, right], reductions, raw: reductions + self.reductions }
    }
}

/// What a contraction takes as scratch with all that its group does.
pub(super) fn scratch(cpu: &Cpu, graph: &Graph, group: &Group, contraction: &Contraction) -> ScratchParts {
    let root = graph.node(group.root());
    let raw = root.outputs[0];
    let threads = cpu.pool.threads();
    let tapes = [0, 1].map(|i| tape_of(graph, group, root.inputs[i]));
    let prologues = tapes.each_ref().map(Option::is_some);
    let mut parts = ScratchParts { product: contraction.scratch_len(cpu, prologues), ..ScratchParts::default() };
    if !group.epilogue().is_empty() {
        parts.epilogue = Tape::new(graph, group.epilogue(), &group.writes).scratch_len(threads);
        if group.product_home(graph).is_none() {
            parts.raw = graph.ty(raw).elements();
        }
    }
    parts.product = parts.product.next_multiple_of(16);
    parts.epilogue = parts.epilogue.next_multiple_of(16);
    parts.prologues = tapes.map(|t| t.map_or(0, |t| t.scratch_len(threads).next_multiple_of(16)));
    parts.reductions = Reductions::scratch_len(cpu, graph, group);
    parts
}

/// The kernel of a step whose root is this contraction.
pub(super) fn compile(cpu: &Cpu, program: &Program, launch: &Launch, contraction: Contraction) -> Run {
    let graph = &program.graph;
    let group = &launch.group;
    let root = graph.node(group.root());
    let parts = scratch(cpu, graph, group, &contraction);
    let starts = parts.starts();
    let scratch = launch.scratch;
    let raw = root.outputs[0];
    let raw_place = match group.product_home(graph) {
        Some(v) => placed(program, v),
        None => part_of(scratch, starts.raw, parts.raw),
    };
    let epilogue = (!group.epilogue().is_empty()).then(|| {
        let tape = Tape::new(graph, group.epilogue(), &group.writes);
        tape.bind(|v| if v == raw { raw_place } else { placed(program, v) })
    });
    let reductions = Reductions::new(cpu, program, group);
    let prologues = [0, 1].map(|i| bound_tape_of(program, group, root.inputs[i]));
    let places = [0, 1].map(|i| prologues[i].is_none().then(|| placed(program, root.inputs[i])));
    Box::new(move |cpu, memory| {
        let base = scratch.map_or(std::ptr::null_mut(), |p| memory.f32_at(p));
        let from = |at: usize| Scratch(base.wrapping_add(at));
        let prologue = |i: usize| {
            // SAFETY: the arena has the group's places, and each prologue its own part of the scratch, of the length that its
            // tape asked for.
            prologues[i].as_ref().map(|b| unsafe { ChainPrologue::new(cpu, memory, b, from(starts.prologues[i])) })
        };
        let chains = [prologue(0), prologue(1)];
        let source = |i: usize| match &chains[i] {
            Some(chain) => Source::Prologue { chain, first: 0 },
            None => Source::Memory(places[i].map_or(std::ptr::null(), |p| memory.f32_at(p))),
        };
        let launch = ContractionRun {
            cpu,
            memory,
            operands: Operands { a: source(0), b: source(1), c: memory.f32_at(raw_place) },
            epilogue: epilogue.as_ref(),
            reductions: reductions.bind(memory, from(starts.reductions)),
            scratch: from(0),
            epilogue_scratch: from(starts.epilogue),
        };
        // SAFETY: the arena has the group's places, which the plan keeps apart; the scratch has the parts that were counted, each
        // of the length that its user asked for. The executor compiles no step of another length.
        unsafe { launch.run(&contraction) };
        Ok(())
    })
}

/// What was done block by block, while the product was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    epilogue: bool,
    reductions: bool,
}

/// A part of the scratch, as elements.
fn part_of(scratch: Option<Place>, at: usize, len: usize) -> Place {
    match scratch {
        Some(p) => Place { segment: p.segment, offset: p.offset + 4 * at as u64, size: 4 * len as u64 },
        None => unreachable!("a contraction always has scratch"),
    }
}

/// One launch of a contraction. Its unsafe methods all ask for this: operands in memory and the result cover the sizes of the
/// contraction, the result overlaps no operand, and nobody else uses the result and the scratch, whose parts are as long as
/// [`scratch`] says.
struct ContractionRun<'a> {
    cpu: &'a Cpu,
    memory: &'a Memory,
    operands: Operands<'a>,
    epilogue: Option<&'a BoundTape>,
    reductions: BoundReductions<'a>,
    scratch: Scratch,
    epilogue_scratch: Scratch,
}

impl ContractionRun<'_> {
    /// The contraction with its epilogue and reductions.
    ///
    /// # Safety
    /// As [`ContractionRun`] says.
    unsafe fn run(&self, contraction: &Contraction) {
        // SAFETY: operands and scratch are as the caller promises. Epilogue and reductions run behind the product what it did not
        // run block by block, and the reductions behind the epilogue.
        unsafe {
            if let Some(bound) = self.epilogue {
                bound.prepare(self.memory, self.epilogue_scratch.0);
            }
            let done = match contraction {
                Contraction::MatMul(sizes) => self.matmul(sizes),
                Contraction::Conv(shape, product) => self.conv(shape, *product),
            };
            if let (false, Some(bound)) = (done.epilogue, self.epilogue) {
                run_chain(self.cpu, self.memory, bound, self.epilogue_scratch);
            }
            self.reductions.finish(self.cpu, done.reductions);
        }
    }

    /// Whether the epilogue may follow block by block over rows of `n` elements: blocks start and end at whole vectors, which
    /// are whole bytes of bits where the rows are.
    fn by_blocks(&self, n: usize) -> bool {
        self.epilogue.is_none_or(|bound| !bound.has_bits() || n.is_multiple_of(8))
    }

    /// Runs the epilogue over a finished block of rows of `n` elements, the first of them at `base`.
    ///
    /// # Safety
    /// As [`ContractionRun`] says; the epilogue is prepared and may follow [by blocks](ContractionRun::by_blocks). The block is complete, nobody
    /// else runs it, and no other thread has the same number.
    unsafe fn finish(&self, thread: usize, base: usize, n: usize, rows: Range<usize>, columns: Range<usize>) {
        let Some(bound) = self.epilogue else { return };
        // SAFETY: elements of the block are this thread's; blocks share no byte of bits.
        let run = |range| unsafe { bound.run(self.cpu.isa, self.memory, self.epilogue_scratch.at(0), thread, range) };
        if columns == (0..n) {
            return run(base + rows.start * n..base + rows.end * n);
        }
        for row in rows {
            run(base + row * n + columns.start..base + row * n + columns.end);
        }
    }

    /// # Safety
    /// As [`ContractionRun`] says.
    unsafe fn matmul(&self, s: &Sizes) -> Done {
        let operands = self.operands;
        let by_blocks = self.by_blocks(s.n);
        let finish = |t: usize, i: usize, rows, columns| {
            if by_blocks {
                // SAFETY: products tell each complete block once, by the thread that made it.
                unsafe { self.finish(t, i * s.m * s.n, s.n, rows, columns) };
            }
        };
        let done = Done { epilogue: by_blocks, reductions: false };
        let threads = self.cpu.pool.threads();
        if !s.one_a_thread(threads) {
            for i in 0..s.batch {
                let finish = |t: usize, rows, columns| finish(t, i, rows, columns);
                // SAFETY: operands and scratch are as the caller promises, and a product's are its part of the batch's.
                unsafe { gemm::run(self.cpu, &s.product(i, operands), 1, self.scratch.at(0), &finish) };
            }
            return done;
        }
        let micro = Micro::new(self.cpu.isa);
        let each = gemm::scratch_len(&micro, &s.product(0, operands), 1);
        let scratch = self.scratch;
        self.cpu.pool.run(&|t| {
            for i in part(s.batch, 1, threads, t) {
                let finish = |rows, columns| finish(t, i, rows, columns);
                let whole = Part { thread: t, rows: 0..s.m, columns: 0..s.n };
                // SAFETY: operands are as the caller promises; each thread has its own products and its own scratch.
                unsafe { gemm::run_part(&micro, &s.product(i, operands), whole, scratch.at(t * each), &finish) };
            }
        });
        done
    }

    /// # Safety
    /// As [`ContractionRun`] says.
    unsafe fn conv(&self, shape: &ConvShape, product: Product) -> Done {
        // SAFETY: the caller's promise is that of each of them.
        unsafe {
            if shape.is_depthwise() {
                return self.depthwise(shape, product);
            }
            match (Geometry::new(shape, product), product) {
                (Some(g), Product::Forward | Product::Transposed) => self.winograd(&g),
                (Some(g), Product::Filter) => self.winograd_filter(&g),
                (None, _) => self.conv_products(shape, product),
            }
        }
    }

    /// A convolution as matrix products.
    ///
    /// # Safety
    /// As [`ContractionRun`] says.
    unsafe fn conv_products(&self, shape: &ConvShape, product: Product) -> Done {
        let n = match product {
            Product::Forward | Product::Filter => shape.channels_out,
            Product::Transposed => shape.channels_in,
        };
        // Rows come out in the order of memory, so that the epilogue can follow block by block.
        let in_order = shape.conv.groups == 1
            && (product != Product::Transposed || shape.conv.stride == [1, 1])
            && self.by_blocks(n);
        let mut reduced = in_order;
        shape.products(product, self.operands, |g| {
            let reductions = in_order && gemm::makes_rows(g.m, g.n);
            reduced &= reductions;
            let finish = |thread: usize, rows: Range<usize>, columns: Range<usize>| {
                // SAFETY: the product tells each complete block once, by the thread that made it; with its last columns rows are
                // complete, and a thread makes them in order from a multiple of `rows_at_once` on.
                unsafe {
                    if in_order {
                        self.finish(thread, 0, n, rows.clone(), columns.clone());
                    }
                    if reductions && columns.end == n {
                        self.reductions.add(self.cpu, rows);
                    }
                }
            };
            // SAFETY: operands and scratch are as the caller promises.
            unsafe { gemm::run(self.cpu, g, self.reductions.rows_at_once(), self.scratch.at(0), &finish) };
        });
        Done { epilogue: in_order, reductions: reduced }
    }

    /// # Safety
    /// As [`ContractionRun`] says.
    unsafe fn winograd(&self, g: &Geometry) -> Done {
        let n = g.columns;
        let epilogue = self.by_blocks(n);
        let rows_at_once = self.reductions.rows_at_once();
        let reductions = epilogue && winograd::fits_rows(self.cpu, g, rows_at_once);
        let finish = |thread: usize, rows: Range<usize>, columns: Range<usize>| {
            // SAFETY: the pass tells each complete block once, by the thread that made it; with its last columns rows are complete,
            // and where they fit a thread makes them in order from a multiple of `rows_at_once` on.
            unsafe {
                if epilogue {
                    self.finish(thread, 0, n, rows.clone(), columns.clone());
                }
                if reductions && columns.end == n {
                    self.reductions.add(self.cpu, rows);
                }
            }
        };
        // SAFETY: operands and scratch are as the caller promises.
        unsafe { winograd::run(self.cpu, g, self.operands, rows_at_once, self.scratch.at(0), &finish) };
        Done { epilogue, reductions }
    }

    /// # Safety
    /// As [`ContractionRun`] says.
    unsafe fn winograd_filter(&self, g: &Geometry) -> Done {
        let epilogue = self.by_blocks(g.columns);
        let finish = |thread: usize, rows: Range<usize>, columns: Range<usize>| {
            if epilogue {
                // SAFETY: the pass tells each complete block once, by the thread that made it.
                unsafe { self.finish(thread, 0, g.columns, rows, columns) };
            }
        };
        // SAFETY: operands and scratch are as the caller promises.
        unsafe { winograd::run_filter(self.cpu, g, self.operands, self.scratch.at(0), &finish) };
        Done { epilogue, reductions: false }
    }

    /// # Safety
    /// As [`ContractionRun`] says.
    unsafe fn depthwise(&self, shape: &ConvShape, product: Product) -> Done {
        let (d, image) = (depthwise_of(shape), image_of(shape));
        let (Source::Memory(a), Source::Memory(b)) = (self.operands.a, self.operands.b) else {
            unreachable!("a depthwise convolution has no prologue")
        };
        let tensors = depthwise::Tensors { from: a, filter: b, to: self.operands.c };
        // SAFETY: operands are as the caller promises, in the order in which the product names them.
        unsafe {
            match product {
                Product::Forward => self.depthwise_pass(image.c, &d.forward(image), tensors),
                Product::Transposed => self.depthwise_pass(image.c, &d.backward(image), tensors),
                Product::Filter => {
                    self.depthwise_filter(&d, image, [a, b]);
                    Done { epilogue: false, reductions: false }
                }
            }
        }
    }

    /// # Safety
    /// As [`ContractionRun`] says, with the tensors of the pass.
    unsafe fn depthwise_pass(&self, channels: usize, pass: &Pass, tensors: depthwise::Tensors) -> Done {
        let in_order = self.by_blocks(channels);
        let finish = |thread: usize, pixels: Range<usize>| {
            if in_order {
                // SAFETY: the pass tells all pixels once, by the thread that made them, in order from a multiple of `rows_at_once`
                // on.
                unsafe {
                    self.finish(thread, 0, channels, pixels.clone(), 0..channels);
                    self.reductions.add(self.cpu, pixels);
                }
            }
        };
        // SAFETY: the tensors are as the caller promises.
        unsafe { pass.run(self.cpu, tensors, self.reductions.rows_at_once(), &finish) };
        Done { epilogue: in_order, reductions: in_order }
    }

    /// # Safety
    /// As [`ContractionRun`] says, with both operands in memory.
    unsafe fn depthwise_filter(&self, d: &Depthwise, image: Image, [x, dy]: [*const f32; 2]) {
        let scratch_len = depthwise_filter_grad_scratch(d, image);
        // SAFETY: operands and result cover the sizes of the convolution, and the scratch is as long as the kernel asks for.
        unsafe {
            let (x, dy) = (from_raw_parts(x, image.len()), from_raw_parts(dy, d.output(image).len()));
            let scratch: &mut [f32] =
                if scratch_len == 0 { &mut [] } else { from_raw_parts_mut(self.scratch.at(0), scratch_len) };
            let dw = from_raw_parts_mut(self.operands.c, d.filter[0] * d.filter[1] * image.c);
            depthwise_filter_grad(self.cpu, d, image, x, dy, dw, scratch);
        }
    }
}
