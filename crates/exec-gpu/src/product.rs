//! Matrix products, by cubek: the shapes and strides of a planned node as it wants them. All arithmetic is plain f32;
//! matrix units would round to fewer bits.

use cubecl::ir::AddressType;
use cubecl::prelude::*;
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

use crate::arena::GpuMemory;
use crate::lower;

/// A product with its places, tiled as the device can run it.
pub struct Product {
    a: Operand,
    b: Operand,
    y: Operand,
    strategy: cubek_matmul::strategy::Strategy,
}

/// A batch of matrices in a place, as the product reads it: transposed ones have their strides swapped.
#[derive(Clone, Debug, PartialEq)]
struct Operand {
    place: Place,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Product {
    /// Finds the tiling, or what keeps the device from having one.
    pub fn new(client: &Client, product: lower::Product) -> Result<Product, MatmulSetupError> {
        let [a, b, y] = operands(product.op, product.operands.each_ref().map(|(place, shape)| (*place, &shape[..])));
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
        let strategy = Strategy::SimpleUnit(BlueprintStrategy::Forced(blueprint)).into();
        Ok(Product { a, b, y, strategy })
    }

    pub fn launch(&self, client: &Client, arena: &Arena<GpuMemory>) {
        let f32 = f32::elem_type_native();
        let input = |o: &Operand| InputBinding::new(o.binding(arena), f32);
        let mut dtypes = MatmulElems::from_single_dtype(f32);
        let y = self.y.binding(arena);
        if let Err(e) = launch_ref(&self.strategy, client, input(&self.a), input(&self.b), y, &mut dtypes) {
            unreachable!("a product that was accepted when it was compiled is refused: {e}");
        }
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

impl Operand {
    fn binding(&self, arena: &Arena<GpuMemory>) -> TensorBinding {
        let (shape, strides) = (Shape::from(self.shape.clone()), Strides::from(&self.strides[..]));
        // SAFETY: the slice has as many elements as the shape, and the strides reach no further.
        unsafe { TensorBinding::from_raw_parts(arena.segment(self.place).slice(self.place), strides, shape) }
    }
}

/// The three operands with one batch axis, or none where one product does it all.
fn operands(op: MatMul, [a, b, y]: [(Place, &[usize]); 3]) -> [Operand; 3] {
    let rank = y.1.len();
    let (mut batch, mut rows) = (y.1[..rank - 2].iter().product::<usize>(), y.1[rank - 2]);
    let columns = y.1[rank - 1];
    let inner = if op.transpose_b { b.1[b.1.len() - 1] } else { b.1[b.1.len() - 2] };
    let shared = b.1.len() < a.1.len();
    // The right side is the same for all: the rows of all matrices are those of one.
    if shared && !op.transpose_a {
        (batch, rows) = (1, batch * rows);
    }
    let operand = |place, extents: [usize; 2], transposed: bool, repeated: bool| {
        let [m, n] = extents;
        let (shape, strides) = if transposed { ([m, n], [1, m]) } else { ([m, n], [n, 1]) };
        let (mut shape, mut strides) = (shape.to_vec(), strides.to_vec());
        if batch > 1 {
            shape.insert(0, batch);
            strides.insert(0, if repeated { 0 } else { m * n });
        }
        Operand { place, shape, strides }
    };
    [
        operand(a.0, [rows, inner], op.transpose_a, false),
        operand(b.0, [inner, columns], op.transpose_b, shared),
        operand(y.0, [rows, columns], false, false),
    ]
}
