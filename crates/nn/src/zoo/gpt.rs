//! A GPT: token and position embeddings, transformer blocks with causal attention, a head of its own (not tied to the
//! embedding). Predicts the next token at every position.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::transformer::{TransformerBlock, transformer_block};
use super::{Choice, Labels, Network, Setting, Task, option};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::init::Fans;
use crate::layers::{Activation, Dense, Embedding, SelfAttention, dense, embedding, layer_norm};
use crate::model::{Mode, Model};

const EPS: f32 = 1e-5;
/// GPT-2's spread of initial weights.
const STD: f32 = 0.02;
/// Most transformer blocks, and several times more than known models have: each is some twenty nodes of a step, and a plan
/// takes longer than in proportion to them (16 s for 200 blocks, two minutes for 400, on a core of 2.3 GHz).
const MOST_LAYERS: usize = 256;

/// A decoder-only transformer in the manner of GPT-2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpt {
    /// Transformer blocks.
    pub layers: usize,
    /// Channels of a token.
    pub width: usize,
    /// Attention heads, which divide the width.
    pub heads: usize,
    /// Tokens in a sample.
    pub sequence: usize,
    /// Tokens that it knows.
    pub vocabulary: usize,
}

impl Default for Gpt {
    fn default() -> Self {
        Gpt { layers: 6, width: 384, heads: 6, sequence: 256, vocabulary: 4096 }
    }
}

impl Gpt {
    fn embed(&self, b: &mut Builder, ids: ValueId) -> GraphResult<ValueId> {
        let init = Initializer::Normal { std: STD };
        let x = embedding(b, "tokens", ids, Embedding { rows: self.vocabulary, width: self.width, init })?;
        b.scope("positions", |b| {
            let fans = Fans { fan_in: self.sequence, fan_out: self.width };
            let positions = b.param("weight", [self.sequence, self.width], init.resolve(fans))?;
            b.add(x, positions)
        })
    }

    /// Before anything of so many layers is built.
    fn check_layers(layers: usize) -> Result<(), String> {
        match layers {
            0..=MOST_LAYERS => Ok(()),
            _ => Err(format!("{layers} layers are too many; give at most {MOST_LAYERS}")),
        }
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

impl Model for Gpt {
    fn name(&self) -> &str {
        "gpt"
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for Gpt {
    fn task(&self) -> Task {
        Task::Tokens
    }

    fn input(&self) -> Result<Vec<usize>> {
        Ok(vec![self.sequence])
    }

    fn classes(&self) -> usize {
        self.vocabulary
    }

    fn logits(&self, b: &mut Builder, _mode: Mode, ids: ValueId) -> GraphResult<ValueId> {
        Gpt::check_layers(self.layers).or_else(|problem| b.fail(problem))?;
        let mut x = self.embed(b, ids)?;
        let block = self.block();
        for i in 0..self.layers {
            x = b.scope("blocks", |b| transformer_block(b, i, x, &block))?;
        }
        let x = layer_norm(b, "ln_f", x, EPS)?;
        let head = Dense { units: self.vocabulary, bias: false, init: Initializer::Normal { std: STD } };
        dense(b, "head", x, head)
    }

    fn choices(&self) -> Vec<Choice> {
        vec![
            Choice::new("layers", self.layers, "0 to 256", "transformer blocks"),
            Choice::new("width", self.width, "a multiple of heads", "channels of a token"),
            Choice::new("heads", self.heads, "a divisor of width", "attention heads"),
            Choice::new("sequence", self.sequence, "1 and more", "tokens in a sample; another name of its input"),
            Choice::new(
                "vocabulary",
                self.vocabulary,
                "1 and more",
                "tokens that it knows; a text file says it itself",
            ),
        ]
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => match sample[..] {
                [sequence] => self.sequence = sequence,
                _ => return option("gpt", format!("its input is one sequence length, but {sample:?} was given")),
            },
            Setting::Classes(_) => {
                return option("gpt", "it predicts tokens and has no classes; set its vocabulary".into());
            }
            Setting::Layers(layers) => {
                Gpt::check_layers(layers).or_else(|problem| option("gpt", problem))?;
                self.layers = layers;
            }
            Setting::Width(width) => self.width = width,
            Setting::Heads(heads) => self.heads = heads,
            Setting::Vocabulary(vocabulary) => self.vocabulary = vocabulary,
            other => return Err(other.refuse(self)),
        }
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}
