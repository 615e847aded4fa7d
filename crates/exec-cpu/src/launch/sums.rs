//! Sums over channels that close the group of a convolution: added up block by block while the convolution is made, or
//! all at once behind it where its blocks do not come in order. The bits are the same.

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

/// The sums of a group.
#[derive(Clone, Debug)]
pub struct Sums(Vec<Sum>);

#[derive(Clone, Debug)]
struct Sum {
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

impl Sums {
    /// Elements of scratch of all of them, one after the other.
    pub fn scratch_len(cpu: &Cpu, graph: &Graph, group: &Group) -> usize {
        group.reductions().iter().map(|&id| nodes::scratch_len(cpu, graph, graph.node(id))).sum()
    }

    pub fn new(cpu: &Cpu, program: &Program, group: &Group) -> Sums {
        Sums(group.reductions().iter().map(|&id| Sum::new(cpu, program, program.graph.node(id))).collect())
    }

    /// For one launch.
    ///
    /// # Safety
    /// The scratch has the length that [`Sums::scratch_len`] says, and nobody else uses it.
    pub unsafe fn bind(&self, memory: &Memory, scratch: Scratch) -> BoundSums<'_> {
        BoundSums { sums: &self.0, memory: *memory, scratch }
    }
}

impl Sum {
    fn new(cpu: &Cpu, program: &Program, node: &Node) -> Sum {
        let (rows, channels) = rows_and_last(program.graph.shape(node.inputs[0]));
        let kind = match &node.op {
            Op::BatchStats => Kind::Stats,
            Op::BatchGradReduce(eps) => Kind::Grad { eps: eps.0 },
            op => unreachable!("{} is no sum over channels", op.name()),
        };
        let inputs = node.inputs.iter().map(|&v| placed(program, v)).collect();
        let outputs = [0, 1].map(|i| placed(program, node.outputs[i]));
        Sum { rows, channels, kind, inputs, outputs, scratch_len: nodes::scratch_len(cpu, &program.graph, node) }
    }
}

/// Sums at their places in memory.
pub struct BoundSums<'a> {
    sums: &'a [Sum],
    memory: Memory,
    scratch: Scratch,
}

impl BoundSums<'_> {
    /// Rows that a thread has to make if it is to add them up.
    pub fn rows_at_once(&self) -> usize {
        self.sums.iter().map(|s| rows_at_once(s.rows, s.channels)).next().unwrap_or(1)
    }

    /// Adds up the blocks that were finished with these rows; a thread finishes its rows in order.
    pub fn add(&self, cpu: &Cpu, finished: Range<usize>) {
        for (sum, scratch) in self.with_scratch() {
            let half = sum.scratch_len / 2;
            // SAFETY: the matrix that is being made covers its rows, and the finished ones are written for good.
            let made = |i: usize| unsafe { Finished::new(self.memory.f32_at(sum.inputs[i])) };
            // SAFETY: the group reads the others, and nobody writes them.
            let read = |i: usize| unsafe { self.memory.read::<f32>(sum.inputs[i]) };
            // SAFETY: it is this sum's part of the scratch, of which threads write different chunks.
            let parts = unsafe { [0, half].map(|at| Parts::from_raw(scratch.add(at), half)) };
            match sum.kind {
                Kind::Stats => stat_finished(cpu.isa, sum.rows, sum.channels, made(0), finished.clone(), &parts),
                Kind::Grad { .. } => {
                    grad_finished(cpu.isa, sum.rows, read(1), read(0), made(3), finished.clone(), &parts);
                }
            }
        }
    }

    /// Gives the results, of what was added up or else of everything.
    pub fn close(&self, cpu: &Cpu, added: bool) {
        for (sum, scratch) in self.with_scratch() {
            // SAFETY: the convolution is finished, and the plan keeps what is read, written and used as scratch apart.
            let (read, write, scratch) = unsafe {
                let read = |i: usize| self.memory.read::<f32>(sum.inputs[i]);
                let write = |i: usize| self.memory.write::<f32>(sum.outputs[i]);
                (read, write, std::slice::from_raw_parts_mut(scratch, sum.scratch_len))
            };
            match sum.kind {
                Kind::Stats if added => batch_norm::join_batch_stats(cpu, sum.rows, write(0), write(1), scratch),
                Kind::Stats => batch_norm::batch_stats(cpu, sum.channels, read(0), write(0), write(1), scratch),
                Kind::Grad { eps } => {
                    let stats = Stats { mean: read(1), var: read(2), eps };
                    if added {
                        batch_norm::join_batch_grad(cpu, stats, sum.rows, write(0), write(1), scratch);
                    } else {
                        batch_norm::batch_grad_reduce(cpu, stats, read(0), read(3), write(0), write(1), scratch);
                    }
                }
            }
        }
    }

    fn with_scratch(&self) -> impl Iterator<Item = (&Sum, *mut f32)> {
        self.sums.iter().scan(0, |at, sum| {
            let here = self.scratch.0.wrapping_add(*at);
            *at += sum.scratch_len;
            Some((sum, here))
        })
    }
}
