//! The transformer block that ViT and GPT share: norm before attention and before the two dense layers, with a sum
//! around each.

use memfit_ir::{Builder, Result, ValueId};

use crate::Initializer;
use crate::layers::{Activation, Dense, SelfAttention, activation, dense, layer_norm, self_attention};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerBlock {
    pub attention: SelfAttention,
    /// Width between the two dense layers.
    pub hidden: usize,
    pub activation: Activation,
    pub eps: f32,
    pub fc1_init: Initializer,
    pub fc2_init: Initializer,
}

/// x + attn(ln1(x)), then x + fc2(act(fc1(ln2(x)))).
pub fn transformer_block(b: &mut Builder, name: impl ToString, x: ValueId, t: &TransformerBlock) -> Result<ValueId> {
    b.scope(name, |b| {
        let y = layer_norm(b, "ln1", x, t.eps)?;
        let y = self_attention(b, "attn", y, t.attention)?;
        let x = b.add(x, y)?;
        let y = layer_norm(b, "ln2", x, t.eps)?;
        let y = b.scope("mlp", |b| {
            let width = b.shape(x)[2];
            let y = dense(b, "fc1", y, Dense { init: t.fc1_init, ..Dense::new(t.hidden) })?;
            let y = activation(b, y, t.activation)?;
            dense(b, "fc2", y, Dense { init: t.fc2_init, ..Dense::new(width) })
        })?;
        b.add(x, y)
    })
}
