//! A GPT: token and position embeddings, transformer blocks with causal attention, a head of its own (not tied to the
//! embedding). Predicts the next token at every position.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::transformer::{TransformerBlock, transformer_block};
use crate::init::Fans;
use crate::layers::{Activation, Dense, Embedding, SelfAttention, dense, embedding, layer_norm};
use crate::{Initializer, Mode};

const EPS: f32 = 1e-5;
/// GPT-2's spread of initial weights.
const STD: f32 = 0.02;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpt {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    /// Tokens in a sample.
    pub sequence: usize,
    pub vocabulary: usize,
}

impl Default for Gpt {
    fn default() -> Self {
        Gpt { layers: 6, width: 384, heads: 6, sequence: 256, vocabulary: 4096 }
    }
}

impl Gpt {
    /// From samples to logits, appended to a graph.
    pub fn logits(&self, b: &mut Builder, _mode: Mode, ids: ValueId) -> GraphResult<ValueId> {
        let mut x = self.embed(b, ids)?;
        let block = self.block();
        for i in 0..self.layers {
            x = b.scope("blocks", |b| transformer_block(b, i, x, &block))?;
        }
        let x = layer_norm(b, "ln_f", x, EPS)?;
        let head = Dense { units: self.vocabulary, bias: false, init: Initializer::Normal { std: STD } };
        dense(b, "head", x, head)
    }

    fn embed(&self, b: &mut Builder, ids: ValueId) -> GraphResult<ValueId> {
        let init = Initializer::Normal { std: STD };
        let x = embedding(b, "tokens", ids, Embedding { rows: self.vocabulary, width: self.width, init })?;
        b.scope("positions", |b| {
            let fans = Fans { fan_in: self.sequence, fan_out: self.width };
            let positions = b.param("weight", [self.sequence, self.width], init.resolve(fans))?;
            b.add(x, positions)
        })
    }

    fn block(&self) -> TransformerBlock {
        let init = Initializer::Normal { std: STD };
        // Each block adds to the stream twice; smaller last layers keep the sum's size independent of the depth.
        let last = Initializer::Normal { std: STD / (2.0 * self.layers.max(1) as f32).sqrt() };
        TransformerBlock {
            attention: SelfAttention {
                causal: true,
                qkv_init: init,
                proj_init: last,
                ..SelfAttention::new(self.heads)
            },
            hidden: self.width.saturating_mul(4),
            activation: Activation::GeluTanh,
            eps: EPS,
            fc1_init: init,
            fc2_init: last,
        }
    }
}
