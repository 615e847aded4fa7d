//! Multi-head self-attention with one packed projection to queries, keys and values.

use memfit_ir::{Builder, Result, ValueId};

use super::{Dense, dense};
use crate::Initializer;

/// What a [`self_attention`] is like. `SelfAttention::new(heads)` is not causal, with biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfAttention {
    /// Attention heads; they divide the width of the input among them.
    pub heads: usize,
    /// Whether a position sees only itself and those before it.
    pub causal: bool,
    /// Whether both projections have one.
    pub bias: bool,
    /// How the projection to queries, keys and values starts.
    pub qkv_init: Initializer,
    /// How the projection of the result starts.
    pub proj_init: Initializer,
}

impl SelfAttention {
    /// Not causal, with biases, Glorot uniform.
    pub fn new(heads: usize) -> Self {
        let init = Initializer::GLOROT_UNIFORM;
        SelfAttention { heads, causal: false, bias: true, qkv_init: init, proj_init: init }
    }
}

/// Scaled dot-product attention of each position to all others, from batch, sequence, width to the same. The scores are
/// never stored whole: as in FlashAttention they are computed tile by tile, in the backward pass once more.
///
/// Keras' `MultiHeadAttention(heads, width ÷ heads)(x, x)`, with one projection instead of three. States under `name/qkv` and `name/proj`; the columns of `qkv` are
/// `[q | k | v]`, with the heads side by side within each.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{SelfAttention, self_attention};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 128, 64]))?;
/// let y = self_attention(&mut b, "attn", x, SelfAttention { causal: true, ..SelfAttention::new(4) })?;
/// assert_eq!(b.shape(y), [8, 128, 64]);
/// assert_eq!(b.shape(b.graph().state("attn/qkv/weight").unwrap()), [64, 3 * 64]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
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
