//! Kernels of single nodes: everything that is neither an elementwise chain nor a contraction.

use memfit_exec::KernelError;
use memfit_ir::op::Op;
use memfit_ir::{DType, Graph, Node};

use super::{Io, Launch};
use crate::Cpu;
use crate::kernels::attention::{self, AttentionShape};
use crate::kernels::attention_grad::{self, AttentionSaved};
use crate::kernels::batch_norm::{self, Stats};
use crate::kernels::cross_entropy::{self, Labels};
use crate::kernels::layer_norm::{self, LayerNormSaved, RmsNormSaved};
use crate::kernels::{BadIndex, Image, gather, layout, reduce, softmax, transpose, update, upsample, window};

impl From<BadIndex> for KernelError {
    fn from(e: BadIndex) -> KernelError {
        KernelError::Index { index: e.index, position: e.position, limit: e.limit }
    }
}

/// Rows and the extent of the last axis.
fn rows_and_last(shape: &[usize]) -> (usize, usize) {
    let last = shape.last().copied().unwrap_or(1);
    (shape.iter().product::<usize>() / last.max(1), last)
}

fn image(shape: &[usize]) -> Image {
    Image::new(shape[0], shape[1], shape[2], shape[3])
}

/// Elements of scratch of a node's kernel.
pub fn scratch_len(cpu: &Cpu, graph: &Graph, node: &Node) -> usize {
    let shape = |i: usize| graph.shape(node.inputs[i]);
    let by_rows = |f: fn(usize, usize) -> usize| {
        let (rows, last) = rows_and_last(shape(0));
        f(rows, last)
    };
    match &node.op {
        Op::Reduce(r) => reduce::reduce_scratch(shape(0), &r.axes),
        Op::BatchStats => by_rows(batch_norm::batch_stats_scratch),
        Op::BatchGradReduce(_) => by_rows(batch_norm::batch_grad_reduce_scratch),
        Op::LayerNormGrad => by_rows(layer_norm::layer_norm_grad_scratch),
        Op::RmsNormGrad => by_rows(layer_norm::rms_norm_grad_scratch),
        Op::GroupNorm(_) | Op::GroupNormGrad(_) => 0,
        Op::Attention(_) => attention::attention_scratch(cpu.pool.threads(), &attention_shape(graph, node)),
        Op::AttentionGrad(_) => {
            attention_grad::attention_grad_scratch(cpu.pool.threads(), &attention_shape(graph, node))
        }
        Op::Input(_)
        | Op::State(_)
        | Op::Fill(_)
        | Op::Unary(_)
        | Op::UnaryGrad(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Dropout(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Slice(_)
        | Op::Concat(_)
        | Op::Pad(_)
        | Op::Broadcast(_)
        | Op::MatMul(_)
        | Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::ConvFilter(_)
        | Op::MaxPool(_)
        | Op::MaxPoolGrad(_)
        | Op::AvgPool(_)
        | Op::AvgPoolGrad(_)
        | Op::Upsample(_)
        | Op::UpsampleGrad(_)
        | Op::BatchApply(_)
        | Op::BatchGradInput(_)
        | Op::BatchUpdate(_)
        | Op::LayerNorm(_)
        | Op::RmsNorm(_)
        | Op::Softmax(_)
        | Op::SoftmaxGrad(_)
        | Op::CrossEntropy(_)
        | Op::CrossEntropyGrad(_)
        | Op::Gather
        | Op::GatherGrad(_)
        | Op::Update(_) => 0,
    }
}

fn attention_shape(graph: &Graph, node: &Node) -> AttentionShape {
    let (q, k, v) = (graph.shape(node.inputs[0]), graph.shape(node.inputs[1]), graph.shape(node.inputs[2]));
    AttentionShape { units: q[0] * q[1], queries: q[2], keys: k[2], dim: q[3], value_dim: v[3] }
}

/// The launch of a single node.
pub fn compile(io: &Io) -> Launch {
    match io.op() {
        Op::Fill(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Slice(_)
        | Op::Concat(_)
        | Op::Pad(_)
        | Op::Broadcast(_) => layouts(io),
        Op::Reduce(r) => {
            let (kind, axes, shape) = (r.kind, r.axes.clone(), io.shape(0).to_vec());
            let [x, y, s] = [io.input(0), io.output(0), io.scratch()];
            kernel(move |cpu, m| {
                // SAFETY: the plan keeps what this kernel reads, writes and uses as scratch apart.
                unsafe { reduce::reduce(cpu, kind, &shape, &axes, m.read(x), m.write(y), m.write(s)) };
                Ok(())
            })
        }
        Op::MaxPool(_)
        | Op::MaxPoolGrad(_)
        | Op::AvgPool(_)
        | Op::AvgPoolGrad(_)
        | Op::Upsample(_)
        | Op::UpsampleGrad(_) => windows(io),
        Op::BatchStats | Op::BatchGradReduce(_) | Op::BatchUpdate(_) => batch_norms(io),
        Op::LayerNorm(_) | Op::LayerNormGrad | Op::RmsNorm(_) | Op::RmsNormGrad => row_norms(io),
        Op::GroupNorm(_) | Op::GroupNormGrad(_) => unreachable!("group norm is being built"),
        Op::Softmax(_) | Op::SoftmaxGrad(_) | Op::CrossEntropy(_) | Op::CrossEntropyGrad(_) => losses(io),
        Op::Gather | Op::GatherGrad(_) => gathers(io),
        Op::Attention(_) | Op::AttentionGrad(_) => attentions(io),
        Op::Update(_) => updates(io),
        op @ (Op::Input(_)
        | Op::State(_)
        | Op::Unary(_)
        | Op::UnaryGrad(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Dropout(_)
        | Op::BatchApply(_)
        | Op::BatchGradInput(_)
        | Op::MatMul(_)
        | Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::ConvFilter(_)) => unreachable!("{} has no kernel of its own", op.name()),
    }
}

fn kernel(f: impl Fn(&Cpu, &crate::memory::Memory) -> Result<(), KernelError> + Send + Sync + 'static) -> Launch {
    Box::new(f)
}

/// Calls a layout kernel with elements of the tensor's width.
macro_rules! by_width {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $t = u8;
                kernel($body)
            }
            2 => {
                type $t = u16;
                kernel($body)
            }
            _ => {
                type $t = u32;
                kernel($body)
            }
        }
    };
}

fn layouts(io: &Io) -> Launch {
    let graph = &io.program.graph;
    let node = graph.node(io.node);
    let dtype = graph.ty(node.outputs[0]).dtype;
    let y = io.output(0);
    let inputs: Vec<_> = (0..node.inputs.len()).map(|i| io.input(i)).collect();
    let shape = node.inputs.first().map_or(Vec::new(), |&v| graph.shape(v).to_vec());
    let to = io.output_shape(0).to_vec();
    let x = inputs.first().copied();
    // SAFETY (of every block below): the plan keeps what a kernel reads and writes apart.
    match (io.op(), x) {
        (Op::Fill(f), _) => fill(f.value, dtype, y),
        (Op::Reshape(_), Some(x)) => by_width!(dtype, T => move |cpu, m| {
            // SAFETY: as above.
            unsafe { layout::copy::<T>(cpu, m.read(x), m.write(y)) };
            Ok(())
        }),
        (Op::Transpose(perm), Some(x)) => {
            let perm = perm.clone();
            by_width!(dtype, T => move |cpu, m| {
                // SAFETY: as above.
                unsafe { transpose::transpose::<T>(cpu, &shape, &perm, m.read(x), m.write(y)) };
                Ok(())
            })
        }
        (Op::Slice(s), Some(x)) => {
            let s = s.clone();
            by_width!(dtype, T => move |cpu, m| {
                // SAFETY: as above.
                unsafe { layout::slice::<T>(cpu, &shape, (&s.start, &s.stop), m.read(x), m.write(y)) };
                Ok(())
            })
        }
        (Op::Pad(pads), Some(x)) => {
            let pads = pads.clone();
            by_width!(dtype, T => move |cpu, m| {
                // SAFETY: as above.
                unsafe { layout::pad::<T>(cpu, &shape, &pads, m.read(x), m.write(y)) };
                Ok(())
            })
        }
        (Op::Broadcast(_), Some(x)) => by_width!(dtype, T => move |cpu, m| {
            // SAFETY: as above.
            unsafe { layout::broadcast::<T>(cpu, &shape, &to, m.read(x), m.write(y)) };
            Ok(())
        }),
        (Op::Concat(axis), Some(_)) => {
            let outer: usize = to[..*axis].iter().product();
            by_width!(dtype, T => move |cpu, m| {
                let mut offset = 0;
                for &x in &inputs {
                    // SAFETY: as above; parts are written one after the other.
                    let (x, y) = unsafe { (m.read::<T>(x), m.write::<T>(y)) };
                    layout::concat_part(cpu, outer, offset, x, y);
                    offset += x.len() / outer.max(1);
                }
                Ok(())
            })
        }
        (op, _) => unreachable!("{} is no layout op", op.name()),
    }
}

fn fill(value: f32, dtype: DType, y: memfit_plan::Place) -> Launch {
    let bits: u32 = match dtype {
        DType::F32 => value.to_bits(),
        DType::F16 => half::f16::from_f32(value).to_bits() as u32,
        DType::BF16 => half::bf16::from_f32(value).to_bits() as u32,
        DType::I32 => value as i32 as u32,
        DType::U8 => value as u8 as u32,
    };
    by_width!(dtype, T => move |cpu, m| {
        // SAFETY: nothing else uses the result.
        unsafe { layout::fill::<T>(cpu, bits as T, m.write(y)) };
        Ok(())
    })
}

fn windows(io: &Io) -> Launch {
    let (x, y) = (io.input(0), io.output(0));
    match *io.op() {
        Op::MaxPool(w) => {
            let (shape, index) = (image(io.shape(0)), io.output(1));
            kernel(move |cpu, m| {
                // SAFETY: the plan keeps what a kernel reads and writes apart.
                unsafe { window::max_pool(cpu, &w, shape, m.read(x), m.write(y), m.write(index)) };
                Ok(())
            })
        }
        Op::MaxPoolGrad(w) => {
            let (shape, dy) = (image(io.output_shape(0)), io.input(1));
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe { window::max_pool_grad(cpu, &w.window, shape, m.read(x), m.read(dy), m.write(y)) };
                Ok(())
            })
        }
        Op::AvgPool(w) => {
            let shape = image(io.shape(0));
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe { window::avg_pool(cpu, &w, shape, m.read(x), m.write(y)) };
                Ok(())
            })
        }
        Op::AvgPoolGrad(w) => {
            let shape = image(io.output_shape(0));
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe { window::avg_pool_grad(cpu, &w.window, shape, m.read(x), m.write(y)) };
                Ok(())
            })
        }
        Op::Upsample(u) => {
            let shape = image(io.shape(0));
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe { upsample::upsample(cpu, &u, shape, m.read(x), m.write(y)) };
                Ok(())
            })
        }
        Op::UpsampleGrad(u) => {
            let shape = image(io.output_shape(0));
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe { upsample::upsample_grad(cpu, &u, shape, m.read(x), m.write(y)) };
                Ok(())
            })
        }
        ref op => unreachable!("{} is no window op", op.name()),
    }
}

fn batch_norms(io: &Io) -> Launch {
    let (x, s) = (io.input(0), io.scratch());
    let (_, channels) = rows_and_last(io.shape(0));
    match *io.op() {
        Op::BatchStats => {
            let [mean, var] = [0, 1].map(|i| io.output(i));
            kernel(move |cpu, m| {
                // SAFETY: the plan keeps what a kernel reads, writes and uses as scratch apart.
                unsafe { batch_norm::batch_stats(cpu, channels, m.read(x), m.write(mean), m.write(var), m.write(s)) };
                Ok(())
            })
        }
        Op::BatchGradReduce(e) => {
            let [mean, var, dy] = [1, 2, 3].map(|i| io.input(i));
            let [dscale, dbias] = [0, 1].map(|i| io.output(i));
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe {
                    let stats = Stats { mean: m.read(mean), var: m.read(var), eps: e.0 };
                    let (x, dy) = (m.read(x), m.read(dy));
                    batch_norm::batch_grad_reduce(cpu, stats, x, dy, m.write(dscale), m.write(dbias), m.write(s));
                }
                Ok(())
            })
        }
        Op::BatchUpdate(u) => {
            // The new statistics lie where the old ones lay.
            let [mean, var] = [2, 3].map(|i| io.input(i));
            let [new_mean, new_var] = [0, 1].map(|i| io.output(i));
            kernel(move |cpu, m| {
                // SAFETY: as above; old and new are the same places, seen once.
                unsafe {
                    let running = [m.write(new_mean), m.write(new_var)];
                    batch_norm::batch_update(cpu, u.momentum, running, [m.read(mean), m.read(var)]);
                }
                Ok(())
            })
        }
        ref op => unreachable!("{} is no batch norm", op.name()),
    }
}

fn row_norms(io: &Io) -> Launch {
    let (x, s) = (io.input(0), io.scratch());
    let inputs: Vec<_> = (1..io.program.graph.node(io.node).inputs.len()).map(|i| io.input(i)).collect();
    let outputs: Vec<_> = (0..io.program.graph.node(io.node).outputs.len()).map(|i| io.output(i)).collect();
    match *io.op() {
        Op::LayerNorm(e) => kernel(move |cpu, m| {
            // SAFETY: the plan keeps what a kernel reads, writes and uses as scratch apart.
            unsafe {
                let affine = (m.read(inputs[0]), m.read(inputs[1]));
                let stats = (m.write(outputs[1]), m.write(outputs[2]));
                layer_norm::layer_norm(cpu, e.0, m.read(x), affine, m.write(outputs[0]), stats);
            }
            Ok(())
        }),
        Op::LayerNormGrad => kernel(move |cpu, m| {
            // SAFETY: as above.
            unsafe {
                let [mean, rstd, scale] = [0, 1, 2].map(|i| m.read(inputs[i]));
                let saved = LayerNormSaved { x: m.read(x), mean, rstd, scale };
                let affine = (m.write(outputs[1]), m.write(outputs[2]));
                layer_norm::layer_norm_grad(cpu, saved, m.read(inputs[3]), m.write(outputs[0]), affine, m.write(s));
            }
            Ok(())
        }),
        Op::RmsNorm(e) => kernel(move |cpu, m| {
            // SAFETY: as above.
            unsafe {
                let scale = m.read(inputs[0]);
                layer_norm::rms_norm(cpu, e.0, m.read(x), scale, m.write(outputs[0]), m.write(outputs[1]));
            }
            Ok(())
        }),
        Op::RmsNormGrad => kernel(move |cpu, m| {
            // SAFETY: as above.
            unsafe {
                let saved = RmsNormSaved { x: m.read(x), rstd: m.read(inputs[0]), scale: m.read(inputs[1]) };
                let (dx, dscale) = (m.write(outputs[0]), m.write(outputs[1]));
                layer_norm::rms_norm_grad(cpu, saved, m.read(inputs[2]), dx, dscale, m.write(s));
            }
            Ok(())
        }),
        ref op => unreachable!("{} is no norm over rows", op.name()),
    }
}

fn losses(io: &Io) -> Launch {
    let (x, y) = (io.input(0), io.output(0));
    let (_, dim) = rows_and_last(io.shape(0));
    match *io.op() {
        Op::Softmax(o) => kernel(move |cpu, m| {
            // SAFETY: the plan keeps what a kernel reads and writes apart.
            unsafe { softmax::softmax(cpu, o.log, dim, m.read(x), m.write(y)) };
            Ok(())
        }),
        Op::SoftmaxGrad(o) => {
            let dy = io.input(1);
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe { softmax::softmax_grad(cpu, o.log, dim, m.read(x), m.read(dy), m.write(y)) };
                Ok(())
            })
        }
        Op::CrossEntropy(c) => {
            let (labels, lse) = (io.input(1), io.output(1));
            let sparse = is_sparse(io);
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe {
                    let labels =
                        if sparse { Labels::Classes(m.read(labels)) } else { Labels::Distributions(m.read(labels)) };
                    cross_entropy::cross_entropy(cpu, c.smoothing, m.read(x), labels, m.write(y), m.write(lse))?;
                }
                Ok(())
            })
        }
        Op::CrossEntropyGrad(c) => {
            let [labels, lse, dloss] = [1, 2, 3].map(|i| io.input(i));
            let sparse = is_sparse(io);
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe {
                    let labels =
                        if sparse { Labels::Classes(m.read(labels)) } else { Labels::Distributions(m.read(labels)) };
                    let rows = (m.read(lse), m.read(dloss));
                    cross_entropy::cross_entropy_grad(cpu, c.smoothing, m.read(x), labels, rows, m.write(y))?;
                }
                Ok(())
            })
        }
        ref op => unreachable!("{} is no softmax", op.name()),
    }
}

fn is_sparse(io: &Io) -> bool {
    io.program.graph.ty(io.program.graph.node(io.node).inputs[1]).dtype == DType::I32
}

fn gathers(io: &Io) -> Launch {
    let (a, b, y) = (io.input(0), io.input(1), io.output(0));
    let (_, dim) = rows_and_last(io.output_shape(0));
    match *io.op() {
        Op::Gather => kernel(move |cpu, m| {
            // SAFETY: the plan keeps what a kernel reads and writes apart.
            Ok(unsafe { gather::gather(cpu, dim, m.read(a), m.read(b), m.write(y)) }?)
        }),
        Op::GatherGrad(_) => kernel(move |cpu, m| {
            // SAFETY: as above.
            Ok(unsafe { gather::gather_grad(cpu, dim, m.read(a), m.read(b), m.write(y)) }?)
        }),
        ref op => unreachable!("{} is no gather", op.name()),
    }
}

fn attentions(io: &Io) -> Launch {
    let shape = attention_shape(&io.program.graph, io.program.graph.node(io.node));
    let [q, k, v, s] = [io.input(0), io.input(1), io.input(2), io.scratch()];
    match *io.op() {
        Op::Attention(a) => {
            let [y, lse] = [0, 1].map(|i| io.output(i));
            kernel(move |cpu, m| {
                // SAFETY: the plan keeps what a kernel reads, writes and uses as scratch apart.
                unsafe {
                    let qkv = [q, k, v].map(|p| m.read(p));
                    attention::attention(cpu, a, &shape, qkv, m.write(y), m.write(lse), m.write(s));
                }
                Ok(())
            })
        }
        Op::AttentionGrad(a) => {
            let [y, lse, dy] = [3, 4, 5].map(|i| io.input(i));
            let grads = [0, 1, 2].map(|i| io.output(i));
            kernel(move |cpu, m| {
                // SAFETY: as above.
                unsafe {
                    let [q, k, v] = [q, k, v].map(|p| m.read(p));
                    let saved = AttentionSaved { q, k, v, y: m.read(y), lse: m.read(lse) };
                    let grads = grads.map(|p| m.write(p));
                    attention_grad::attention_grad(cpu, a, &shape, saved, m.read(dy), grads, m.write(s));
                }
                Ok(())
            })
        }
        ref op => unreachable!("{} is no attention", op.name()),
    }
}

fn updates(io: &Io) -> Launch {
    let Op::Update(rule) = *io.op() else { unreachable!("{} is no update", io.op().name()) };
    let slots = rule.slots().len();
    let (g, lr, clock) = (io.input(1), io.input(2 + slots), io.input(3 + slots));
    let w = io.output(0);
    let slot_places: Vec<_> = (0..slots).map(|i| io.output(1 + i)).collect();
    kernel(move |cpu, m| {
        // SAFETY: parameter and slots are updated where they lie and are seen once; the gradient lies elsewhere.
        unsafe {
            let step = update::Step { learning_rate: m.read::<f32>(lr)[0], step: m.read::<i32>(clock)[0] };
            let mut views: [&mut [f32]; 2] = [&mut [], &mut []];
            for (view, &place) in views.iter_mut().zip(&slot_places) {
                *view = m.write(place);
            }
            update::update(cpu, rule, step, m.write(w), m.read(g), &mut views[..slot_places.len()]);
        }
        Ok(())
    })
}
