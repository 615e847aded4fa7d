//! The vision transformer, as in torchvision: patches by a strided convolution, a class token in front, learned
//! positions, and the class token's last state to the head. Another input size changes the number of positions.

use memfit_ir::op::Init;
use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::transformer::{TransformerBlock, transformer_block};
use super::{Labels, Network, Setting, Task, image};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{Activation, Conv2d, Dense, SelfAttention, conv2d, dense, layer_norm};
use crate::model::{Mode, Model};

const EPS: f32 = 1e-6;

/// A vision transformer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vit {
    /// Height and width of a patch.
    pub patch: usize,
    /// Transformer blocks.
    pub layers: usize,
    /// Channels of a patch.
    pub width: usize,
    /// Attention heads, which divide the width.
    pub heads: usize,
    /// Width between the two dense layers of a block.
    pub hidden: usize,
    /// Height, width, channels.
    pub input: [usize; 3],
    /// The width of the last layer.
    pub classes: usize,
}

impl Vit {
    /// ViT-B/16 for ImageNet: 86.6 million parameters.
    pub fn b16() -> Self {
        Vit { patch: 16, layers: 12, width: 768, heads: 12, hidden: 3072, input: [224, 224, 3], classes: 1000 }
    }

    /// Batch, patches, width.
    fn patches(&self, b: &mut Builder, x: ValueId) -> GraphResult<ValueId> {
        let ([height, width, _], p) = (self.input, self.patch);
        b.scope("conv_proj", |b| {
            if p == 0 || !height.is_multiple_of(p) || !width.is_multiple_of(p) {
                let fit = |n: usize| n.div_ceil(p.max(1)) * p;
                return b.fail(format!(
                    "patches of {p}x{p} do not divide the input of {height}x{width}; {}x{} would fit",
                    fit(height),
                    fit(width)
                ));
            }
            Ok(())
        })?;
        let proj = Conv2d { stride: [p; 2], init: Initializer::LECUN_NORMAL, ..Conv2d::new(self.width, p) };
        let x = conv2d(b, "conv_proj", x, proj)?;
        let [batch, h, w, _] = [b.shape(x)[0], b.shape(x)[1], b.shape(x)[2], b.shape(x)[3]];
        b.reshape(x, [batch, h * w, self.width])
    }

    /// The class token in front, positions added.
    fn tokens(&self, b: &mut Builder, patches: ValueId) -> GraphResult<ValueId> {
        let (batch, count) = (b.shape(patches)[0], b.shape(patches)[1]);
        let class = b.param("class_token", [1, 1, self.width], Init::Constant(0.0))?;
        let class = b.broadcast(class, [batch, 1, self.width])?;
        let x = b.concat(&[class, patches], 1)?;
        let positions = b.param("pos_embedding", [1, count + 1, self.width], Init::Normal { std: 0.02 })?;
        b.add(x, positions)
    }

    /// Batch, width: the normed state of the class token.
    fn encoder(&self, b: &mut Builder, mut x: ValueId) -> GraphResult<ValueId> {
        let attention = SelfAttention { proj_init: Initializer::TORCH_UNIFORM, ..SelfAttention::new(self.heads) };
        let block = TransformerBlock {
            attention,
            hidden: self.hidden,
            activation: Activation::GeluErf,
            eps: EPS,
            fc1_init: Initializer::GLOROT_UNIFORM,
            fc2_init: Initializer::GLOROT_UNIFORM,
        };
        for i in 0..self.layers {
            x = b.scope("layers", |b| transformer_block(b, i, x, &block))?;
        }
        // Norms work row by row, so the other rows, which nobody reads, need none.
        let batch = b.shape(x)[0];
        let x = b.slice(x, &[0, 0, 0], &[batch, 1, self.width])?;
        let x = b.reshape(x, [batch, self.width])?;
        layer_norm(b, "ln", x, EPS)
    }
}

impl Model for Vit {
    fn name(&self) -> &str {
        match (self.patch, self.layers, self.width) {
            (16, 12, 768) => "vit_b16",
            _ => "vit",
        }
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for Vit {
    fn task(&self) -> Task {
        Task::Classes
    }

    fn input(&self) -> Result<Vec<usize>> {
        Ok(self.input.to_vec())
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn logits(&self, b: &mut Builder, _mode: Mode, x: ValueId) -> GraphResult<ValueId> {
        let patches = self.patches(b, x)?;
        let x = self.tokens(b, patches)?;
        let x = b.scope("encoder", |b| self.encoder(b, x))?;
        // Zeros, so that every class starts equally likely.
        dense(b, "head", x, Dense { init: Initializer::Zeros, ..Dense::new(self.classes) })
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => self.input = image(&sample)?,
            Setting::Classes(classes) => self.classes = classes,
            other => return Err(other.refuse(self)),
        }
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}
