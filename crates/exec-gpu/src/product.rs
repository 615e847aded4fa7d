//! Matrix products, by cubek: the shapes and strides of a planned node as it wants them. All arithmetic is plain f32;
//! matrix units would round to fewer bits.

use std::sync::PoisonError;
use std::time::Instant;

use cubecl::ir::AddressType;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::zspace::{Shape, Strides};
use cubek_matmul::definition::{AvailableVectorSizes, MatmulElems, MatmulProblem, MatmulSetupError, MatmulVectorSizes};
use cubek_matmul::launch::launch_ref;
use cubek_matmul::multi_level::routines::batch::simple_unit::SimpleUnitAlgorithm;
use cubek_matmul::multi_level::{BatchMatmulRoutine, Strategy};
use cubek_matmul::routine::BlueprintStrategy;
use cubek_std::InputBinding;
use memfit_exec::Arena;
use memfit_ir::op::MatMul;
use memfit_plan::Place;

use crate::arena::{GpuMemory, WORD, take};
use crate::device::Gpu;
use crate::launch::fill_words;
use crate::lower;

/// A product with its places, tiled as the device can run it.
pub struct Product {
    operands: [Operand; 3],
    matrices: Matrices,
    strategy: cubek_matmul::strategy::Strategy,
    /// What its kernel is compiled from.
    kernel: String,
}

/// A batch of matrices in a place.
#[derive(Clone, Debug, PartialEq)]
struct Operand {
    place: Place,
    layout: Layout,
}

/// How a product reads or writes a batch of matrices: transposed ones have their strides swapped.
#[derive(Clone, Debug, PartialEq)]
struct Layout {
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// The sizes of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Matrices {
    op: MatMul,
    /// 1 where one product does it all.
    batch: usize,
    rows: usize,
    inner: usize,
    columns: usize,
    /// Whether the right side is the same for the whole batch.
    shared: bool,
}

impl Product {
    /// Finds the tiling, or what keeps the device from having one.
    pub fn new(client: &Client, product: lower::Product) -> Result<Product, MatmulSetupError> {
        let matrices = Matrices::new(product.op, product.operands.each_ref().map(|(_, shape)| &shape[..]));
        let [a, b, y] = matrices.layouts();
        let dtypes = MatmulElems::from_single_dtype(f32::elem_type_native());
        let problem = MatmulProblem::from_shapes_and_strides(
            Shape::from(a.shape.clone()),
            Shape::from(b.shape.clone()),
            Shape::from(y.shape.clone()),
            Strides::from(&a.strides[..]),
            Strides::from(&b.strides[..]),
            Strides::from(&y.strides[..]),
            dtypes.as_global_elems(),
            AddressType::U32,
            None,
            None,
        )?;
        let size = size_of::<f32>();
        let vector_sizes = AvailableVectorSizes::from_type_sizes(client, size, size, size)
            .filter_lhs_with_tensor(&problem.lhs_strides, &problem.lhs_shape, problem.lhs_layout)
            .filter_rhs_with_tensor(&problem.rhs_strides, &problem.rhs_shape, problem.rhs_layout)
            .filter_out_with_tensor(&problem.out_strides, &problem.out_shape)
            .pick_max()?;
        let blueprint = blueprint::<SimpleUnitAlgorithm>(client, &problem, vector_sizes)?;
        let kernel = format!("{blueprint:?} {vector_sizes:?} {:?} {:?}", problem.lhs_layout, problem.rhs_layout);
        let strategy = Strategy::SimpleUnit(BlueprintStrategy::Forced(blueprint)).into();
        let layouts = [a, b, y].into_iter().zip(&product.operands);
        let operands: Vec<Operand> = layouts.map(|(layout, &(place, _))| Operand { place, layout }).collect();
        let Ok(operands) = operands.try_into() else { unreachable!("a product has three operands") };
        Ok(Product { operands, matrices, strategy, kernel })
    }

    pub fn launch(&self, client: &Client, arena: &Arena<GpuMemory>) {
        let bindings = self.operands.each_ref().map(|o| o.layout.binding(arena.segment(o.place).slice(o.place)));
        if let Err(e) = self.run(client, bindings) {
            unreachable!("a product that was accepted when it was compiled is refused: {e}");
        }
    }

    fn run(&self, client: &Client, [a, b, y]: [TensorBinding; 3]) -> Result<(), MatmulSetupError> {
        let f32 = f32::elem_type_native();
        let [a, b] = [a, b].map(|binding| InputBinding::new(binding, f32));
        launch_ref(&self.strategy, client, a, b, y, &mut MatmulElems::from_single_dtype(f32))
    }

    /// Computes a small product with the same kernel, unless one was seen to be right before: a device that cannot compile a
    /// kernel may say nothing, and leave results as they were. Says what is wrong.
    pub fn probe(&self, gpu: &Gpu) -> Result<(), String> {
        let mut known = gpu.products.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&self.kernel) {
            return Ok(());
        }
        let start = Instant::now();
        let failed = |problem: String| format!("{} ({}) cannot run cubek's product: {problem}", gpu.id, gpu.name);
        let small = self.matrices.small();
        let layouts = small.layouts();
        let sizes = layouts.each_ref().map(|layout| (layout.elements() * size_of::<f32>()) as u64);
        let align = |bytes: u64| bytes.next_multiple_of(gpu.target.limits.alignment);
        let taken = take(gpu, sizes.map(align).iter().sum()).map_err(|e| failed(e.to_string()))?;
        let Some((canary, _)) = taken else { unreachable!("a product of nothing") };
        let _alone = gpu.alone();
        let slice =
            |from: u64, bytes: u64| canary.clone().offset_start(from).offset_end(canary.size_in_used() - from - bytes);
        let starts = [0, align(sizes[0]), align(sizes[0]) + align(sizes[1])];
        // Ones by ones; what is not a number is no result.
        for (i, value) in [1.0, 1.0, f32::NAN].into_iter().enumerate() {
            fill_words(&gpu.client, slice(starts[i], sizes[i]), sizes[i] / WORD, value.to_bits());
        }
        let bindings = [0, 1, 2].map(|i| layouts[i].binding(slice(starts[i], sizes[i])));
        self.run(&gpu.client, bindings).map_err(|e| failed(e.to_string()))?;
        // A piece of it will do: what is read takes memory of the host.
        let seen = sizes[2].min(gpu.target.limits.alignment);
        let read = gpu.client.read_one(slice(starts[2], seen)).map_err(|e| failed(e.to_string()))?;
        let is_right = |word: &[u8]| word == (small.inner as f32).to_ne_bytes();
        if !read.chunks_exact(size_of::<f32>()).all(is_right) {
            return Err(failed("the driver took it and did not run it".into()));
        }
        known.insert(self.kernel.clone());
        gpu.compiled.lock().unwrap_or_else(PoisonError::into_inner).push(("product", start.elapsed()));
        Ok(())
    }
}

/// The tiling that a routine chooses, once it is known to run.
fn blueprint<R: BatchMatmulRoutine<()>>(
    client: &Client,
    problem: &MatmulProblem,
    vector_sizes: MatmulVectorSizes,
) -> Result<R::Blueprint, MatmulSetupError> {
    let settings = R::device_settings(client, vector_sizes);
    let chosen = R::expand_blueprint(problem, &settings, &BlueprintStrategy::default())?;
    Ok(R::prepare(problem, &settings, chosen)?.blueprint)
}

impl Layout {
    fn new(batch: usize, extents: [usize; 2], transposed: bool, repeated: bool) -> Layout {
        let [m, n] = extents;
        let (mut shape, mut strides) = (vec![m, n], if transposed { vec![1, m] } else { vec![n, 1] });
        if batch > 1 {
            shape.insert(0, batch);
            strides.insert(0, if repeated { 0 } else { m * n });
        }
        Layout { shape, strides }
    }

    fn elements(&self) -> usize {
        self.shape.iter().zip(&self.strides).map(|(n, stride)| if *stride == 0 { 1 } else { *n }).product()
    }

    fn binding(&self, slice: Handle) -> TensorBinding {
        let (shape, strides) = (Shape::from(self.shape.clone()), Strides::from(&self.strides[..]));
        // SAFETY: the slice has as many elements as the shape, and the strides reach no further.
        unsafe { TensorBinding::from_raw_parts(slice, strides, shape) }
    }
}

impl Matrices {
    fn new(op: MatMul, [a, b, y]: [&[usize]; 3]) -> Matrices {
        let rank = y.len();
        let (mut batch, mut rows) = (y[..rank - 2].iter().product::<usize>(), y[rank - 2]);
        let columns = y[rank - 1];
        let inner = if op.transpose_b { b[b.len() - 1] } else { b[b.len() - 2] };
        let shared = b.len() < a.len();
        // The right side is the same for all: the rows of all matrices are those of one.
        if shared && !op.transpose_a {
            (batch, rows) = (1, batch * rows);
        }
        Matrices { op, batch, rows, inner, columns, shared }
    }

    /// Of both sides and of the result.
    fn layouts(&self) -> [Layout; 3] {
        let Matrices { op, batch, rows, inner, columns, shared } = *self;
        [
            Layout::new(batch, [rows, inner], op.transpose_a, false),
            Layout::new(batch, [inner, columns], op.transpose_b, shared),
            Layout::new(batch, [rows, columns], false, false),
        ]
    }

    /// Few elements that the same tiles divide as evenly: tiles and vectors have sides that are powers of two.
    fn small(self) -> Matrices {
        const MOST: usize = 128;
        let side = |n: usize| (1 << n.trailing_zeros()).min(MOST);
        let (rows, inner, columns) = (side(self.rows), side(self.inner), side(self.columns));
        Matrices { batch: self.batch.min(2), rows, inner, columns, ..self }
    }
}
