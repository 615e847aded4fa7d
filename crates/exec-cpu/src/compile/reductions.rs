//! The reductions of a convolution's group: sums over channels of what it makes, added up block by block while the convolution
//! runs, or all at once behind it where its blocks do not come in order. The bits are the same.

use std::ops::Range;

use memfit_ir::{Graph, Node, Op};
use memfit_plan::{Place, Program};
use memfit_transform::Group;

use super::nodes::{self, rows_and_last};
use super::placed;
use crate::Cpu;
use crate::gemm::Scratch;
use crate::kernels::batch_finished::{Finished, grad_finished, rows_at_once, stat_finished};
use crate::kernels::batch_norm::{self, Stats};
use crate::memory::Memory;
use crate::pool::Parts;

/// The reductions of a group.
#[derive(Clone, Debug)]
pub(super) struct Reductions(Vec<Reduction>);

#[derive(Clone, Debug)]
struct Reduction {
    rows: usize,
    channels: usize,
    kind: Kind,
    inputs: Vec<Place>,
    outputs: [Place; 2],
    scratch_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// x -> mean, var
    Stats,
    /// x, mean, var, dy -> dscale, dbias
    Grad { eps: f32 },
}

impl Reductions {
    /// Elements of scratch of all of them, one after the other.
    pub(super) fn scratch_len(cpu: &Cpu, graph: &Graph, group: &Group) -> usize {
        group.reductions().iter().map(|&id| nodes::scratch_len(cpu, graph, graph.node(id))).sum()
    }

    pub(super) fn new(cpu: &Cpu, program: &Program, group: &Group) -> Reductions {
        Reductions(group.reductions().iter().map(|&id| Reduction::new(cpu, program, program.graph.node(id))).collect())
    }

    /// For one launch.
    pub(super) fn bind(&self, memory: &Memory, scratch: Scratch) -> BoundReductions<'_> {
        BoundReductions { reductions: &self.0, memory: *memory, scratch }
    }
}

impl Reduction {
    fn new(cpu: &Cpu, program: &Program, node: &Node) -> Reduction {
        let (rows, channels) = rows_and_last(program.graph.shape(node.inputs[0]));
        let kind = if let Op::BatchGradReduce(eps) = &node.op {
            Kind::Grad { eps: eps.0 }
        } else {
            assert!(matches!(node.op, Op::BatchStats), "{} is no sum over channels", node.op.name());
            Kind::Stats
        };
        let inputs = node.inputs.iter().map(|&v| placed(program, v)).collect();
        let outputs = [0, 1].map(|i| placed(program, node.outputs[i]));
        Reduction { rows, channels, kind, inputs, outputs, scratch_len: nodes::scratch_len(cpu, &program.graph, node) }
    }
}

/// Reductions at their places in memory, with scratch of the length that [`Reductions::scratch_len`] says.
pub(super) struct BoundReductions<'a> {
    reductions: &'a [Reduction],
    memory: Memory,
    scratch: Scratch,
}

impl BoundReductions<'_> {
    /// Rows that a thread has to make if it is to add them up.
    pub(super) fn rows_at_once(&self) -> usize {
        self.reductions.iter().map(|r| rows_at_once(r.rows, r.channels)).next().unwrap_or(1)
    }

    /// Adds up the blocks that were finished with these rows; a thread finishes its rows in order.
    ///
    /// # Safety
    /// The arena has the group's places, and nobody else uses the scratch. These rows are written for good, and the thread has
    /// written all of [`BoundReductions::rows_at_once`] that they belong to, from the first on.
    pub(super) unsafe fn add(&self, cpu: &Cpu, finished: Range<usize>) {
        for (reduction, scratch) in self.with_scratch() {
            let half = reduction.scratch_len / 2;
            let made = |i: usize| Finished::new(self.memory.f32_at(reduction.inputs[i]));
            // SAFETY: the group reads the others, and the plan lets nobody write them meanwhile.
            let read = |i: usize| unsafe { self.memory.read::<f32>(reduction.inputs[i]) };
            // SAFETY: it is this reduction's part of the scratch, of which threads write different chunks. The finished rows are
            // written for good, and their chunk's other rows were added up by this thread.
            unsafe {
                let parts = [0, half].map(|at| Parts::from_raw(scratch.add(at), half));
                match reduction.kind {
                    Kind::Stats => {
                        let (rows, channels) = (reduction.rows, reduction.channels);
                        stat_finished(cpu.isa, rows, channels, made(0), finished.clone(), &parts);
                    }
                    Kind::Grad { .. } => {
                        grad_finished(cpu.isa, reduction.rows, read(1), read(0), made(3), finished.clone(), &parts);
                    }
                }
            }
        }
    }

    /// Gives the results, of what was added up or else of everything.
    ///
    /// # Safety
    /// The arena has the group's places, the convolution is finished, and nobody else uses the scratch.
    pub(super) unsafe fn finish(&self, cpu: &Cpu, added: bool) {
        for (reduction, scratch) in self.with_scratch() {
            let Reduction { rows, channels, kind, ref inputs, outputs, scratch_len } = *reduction;
            // SAFETY: the plan keeps what is read apart from results and scratch, and the convolution writes no more.
            let read = |i: usize| unsafe { self.memory.read::<f32>(inputs[i]) };
            // SAFETY: the plan keeps both results apart from everything else; each is taken once below.
            let write = |i: usize| unsafe { self.memory.write::<f32>(outputs[i]) };
            // SAFETY: it is this reduction's part of the scratch, of this length.
            let scratch = unsafe { std::slice::from_raw_parts_mut(scratch, scratch_len) };
            match kind {
                Kind::Stats if added => batch_norm::join_batch_stats(cpu, rows, write(0), write(1), scratch),
                Kind::Stats => batch_norm::batch_stats(cpu, channels, read(0), write(0), write(1), scratch),
                Kind::Grad { eps } => {
                    let stats = Stats { mean: read(1), var: read(2), eps };
                    if added {
                        batch_norm::join_batch_grad(cpu, stats, rows, write(0), write(1), scratch);
                    } else {
                        batch_norm::batch_grad_reduce(cpu, stats, read(0), read(3), write(0), write(1), scratch);
                    }
                }
            }
        }
    }

    /// The scratch of each, one after the other.
    fn with_scratch(&self) -> impl Iterator<Item = (&Reduction, *mut f32)> {
        self.reductions.iter().scan(0, |at, reduction| {
            let here = self.scratch.0.wrapping_add(*at);
            *at += reduction.scratch_len;
            Some((reduction, here))
        })
    }
}
