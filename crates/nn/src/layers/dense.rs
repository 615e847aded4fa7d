//! Dense and embedding layers, and flatten.

use memfit_ir::{Builder, Result, ValueId};

use super::{add_bias, channels, check_size};
use crate::init::{Fans, Initializer};

/// What a [`dense`] layer is like: `Dense::new(10)`, or `Dense { bias: false, ..Dense::new(10) }`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dense {
    /// Channels out.
    pub units: usize,
    /// Whether a bias is added.
    pub bias: bool,
    /// How the weight starts.
    pub init: Initializer,
}

impl Dense {
    /// With a bias, Glorot uniform: Keras' defaults.
    pub fn new(units: usize) -> Self {
        Dense { units, bias: true, init: Initializer::GLOROT_UNIFORM }
    }
}

/// x · weight + bias over the last axis, as `keras.layers.Dense` without an activation. States: `weight [in, out]`,
/// `bias [out]`; PyTorch's `Linear` stores its weight the other way round.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Dense, dense};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([32, 784]))?;
/// let y = dense(&mut b, "fc", x, Dense::new(10))?;
/// assert_eq!(b.shape(y), [32, 10]);
/// assert_eq!(b.shape(b.graph().state("fc/weight").unwrap()), [784, 10]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn dense(b: &mut Builder, name: impl ToString, x: ValueId, d: Dense) -> Result<ValueId> {
    b.scope(name, |b| {
        let inputs = channels(b, x)?;
        if d.units == 0 {
            return b.fail("a dense layer needs at least 1 unit, but was given 0");
        }
        let rows = b.ty(x).elements() / inputs.max(1);
        check_size(b, "the weight", &[inputs, d.units])?;
        check_size(b, "the output", &[rows, d.units])?;
        let fans = Fans { fan_in: inputs, fan_out: d.units };
        let weight = b.param("weight", [inputs, d.units], d.init.resolve(fans))?;
        let y = b.matmul(x, weight)?;
        add_bias(b, y, d.bias)
    })
}

/// What an [`embedding`] is like: `Embedding::new(vocabulary, width)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embedding {
    /// Ids: 0…rows.
    pub rows: usize,
    /// Channels out.
    pub width: usize,
    /// How the table starts.
    pub init: Initializer,
}

impl Embedding {
    /// Keras' default: uniform between ∓0.05.
    pub fn new(rows: usize, width: usize) -> Self {
        Embedding { rows, width, init: Initializer::Uniform { limit: 0.05 } }
    }
}

/// The row of each i32 id, as `keras.layers.Embedding`. States: `weight [rows, width]`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Embedding, embedding};
///
/// let mut b = Builder::new();
/// let ids = b.input("ids", TensorType::i32([8, 256]))?;
/// let x = embedding(&mut b, "tokens", ids, Embedding::new(4096, 384))?;
/// assert_eq!(b.shape(x), [8, 256, 384]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn embedding(b: &mut Builder, name: impl ToString, ids: ValueId, e: Embedding) -> Result<ValueId> {
    b.scope(name, |b| {
        check_size(b, "the table", &[e.rows, e.width])?;
        check_size(b, "the output", &[b.ty(ids).elements(), e.width])?;
        let fans = Fans { fan_in: e.rows, fan_out: e.width };
        let table = b.param("weight", [e.rows, e.width], e.init.resolve(fans))?;
        b.gather(table, ids)
    })
}

/// All axes but the first become one. A view: it takes no memory.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::flatten;
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 4, 4, 64]))?;
/// let y = flatten(&mut b, x)?;
/// assert_eq!(b.shape(y), [8, 1024]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn flatten(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let Some((&samples, rest)) = b.shape(x).split_first() else {
        return b.fail(format!("flatten needs a batch axis, but was given {}", b.ty(x)));
    };
    let features = rest.iter().product();
    b.reshape(x, [samples, features])
}
