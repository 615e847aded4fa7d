//! Multi-head self-attention with one packed projection to queries, keys and values.

use memfit_ir::{Builder, Result, ValueId};

use super::{Dense, dense};
use crate::Initializer;

/// `SelfAttention::new(heads)` is not causal, with biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfAttention {
    pub heads: usize,
    /// Whether a position sees only itself and those before it.
    pub causal: bool,
    pub bias: bool,
    pub qkv_init: Initializer,
    pub proj_init: Initializer,
}

impl SelfAttention {
    pub fn new(heads: usize) -> Self {
        let init = Initializer::GLOROT_UNIFORM;
        SelfAttention { heads, causal: false, bias: true, qkv_init: init, proj_init: init }
    }
}

/// From batch, sequence, width to the same. States under `name/qkv` and `name/proj`; the columns of `qkv` are
/// `[q | k | v]`, with the heads side by side within each.
pub fn self_attention(b: &mut Builder, name: impl ToString, x: ValueId, a: SelfAttention) -> Result<ValueId> {
    b.scope(name, |b| {
        let [batch, sequence, width] = match *b.shape(x) {
            [n, s, c] => [n, s, c],
            _ => return b.fail(format!("the input must be batch, sequence, width, but is {}", b.ty(x))),
        };
        if a.heads == 0 || !width.is_multiple_of(a.heads) || width == 0 {
            let problem = format!("{} heads do not divide the width {width}", a.heads);
            return b.fail(format!("{problem}; {} do", neighbours(width, a.heads)));
        }
        let dim = width / a.heads;
        let qkv = dense(b, "qkv", x, Dense { units: 3 * width, bias: a.bias, init: a.qkv_init })?;
        let qkv = b.reshape(qkv, [batch, sequence, 3, a.heads, dim])?;
        let y = b.attention(qkv, a.causal)?;
        let y = b.reshape(y, [batch, sequence, width])?;
        dense(b, "proj", y, Dense { units: width, bias: a.bias, init: a.proj_init })
    })
}

/// The numbers of heads nearest to the wished one that work: "4 or 6".
fn neighbours(width: usize, heads: usize) -> String {
    let below = (1..=heads.min(width)).rev().find(|h| width.is_multiple_of(*h));
    let above = (heads.saturating_add(1)..=width).find(|h| width.is_multiple_of(*h));
    match (below, above) {
        (Some(a), Some(b)) => format!("{a} or {b}"),
        (Some(a), None) | (None, Some(a)) => a.to_string(),
        (None, None) => "none".into(),
    }
}
