//! Dense and embedding layers, and flatten.

use memfit_ir::{Builder, Result, ValueId};

use super::{add_bias, channels, check_size};
use crate::init::{Fans, Initializer};

/// `Dense::new(10)`, or `Dense { bias: false, ..Dense::new(10) }`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dense {
    /// Channels out.
    pub units: usize,
    pub bias: bool,
    pub init: Initializer,
}

impl Dense {
    pub fn new(units: usize) -> Self {
        Dense { units, bias: true, init: Initializer::GLOROT_UNIFORM }
    }
}

/// x · weight + bias over the last axis. States: `weight [in, out]`, `bias [out]`.
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

/// `Embedding::new(vocabulary, width)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embedding {
    pub rows: usize,
    pub width: usize,
    pub init: Initializer,
}

impl Embedding {
    /// Keras' default: uniform between ∓0.05.
    pub fn new(rows: usize, width: usize) -> Self {
        Embedding { rows, width, init: Initializer::Uniform { limit: 0.05 } }
    }
}

/// The row of each id. States: `weight [rows, width]`.
pub fn embedding(b: &mut Builder, name: impl ToString, ids: ValueId, e: Embedding) -> Result<ValueId> {
    b.scope(name, |b| {
        check_size(b, "the table", &[e.rows, e.width])?;
        check_size(b, "the output", &[b.ty(ids).elements(), e.width])?;
        let fans = Fans { fan_in: e.rows, fan_out: e.width };
        let table = b.param("weight", [e.rows, e.width], e.init.resolve(fans))?;
        b.gather(table, ids)
    })
}

/// All axes but the first become one.
pub fn flatten(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let Some((&samples, rest)) = b.shape(x).split_first() else {
        return b.fail(format!("flatten needs a batch axis, but was given {}", b.ty(x)));
    };
    let features = rest.iter().product();
    b.reshape(x, [samples, features])
}
