//! ResNets as in torchvision: v1.5, where the stride of a bottleneck stands on its 3×3 convolution.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::width::{checked, scaled};
use super::{Choice, Labels, Network, Setting, Task, image};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{BatchNorm, Conv2d, Dense, Padding, Pool, batch_norm, conv2d, dense, max_pool};
use crate::model::{Mode, Model};

/// A ResNet of any depth.
///
/// ```
/// use memfit_nn::{Mode, Model, zoo::Resnet};
///
/// let resnet = Resnet { classes: 100, ..Resnet::resnet18().cifar() };
/// let forward = resnet.build(8, Mode::Eval)?;
/// assert_eq!(forward.graph.shape(forward.output("logits").unwrap()), [8, 100]);
/// # Ok::<(), memfit_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Resnet {
    /// What a stage is made of.
    pub block: Block,
    /// Blocks in each of the four stages.
    pub depths: [usize; 4],
    /// What stands before the first stage.
    pub stem: Stem,
    /// Height, width, channels.
    pub input: [usize; 3],
    /// The width of the last layer.
    pub classes: usize,
    /// What its channels are multiplied by: [`Setting::Scale`].
    pub width: f32,
}

/// What a stage is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Two 3×3 convolutions.
    Basic,
    /// 1×1, 3×3, 1×1 to four times the channels.
    Bottleneck,
}

/// What stands before the first stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stem {
    /// 7×7 with stride 2 and a max-pool: a quarter of the image's height and width.
    Imagenet,
    /// 3×3 with stride 1 and no pooling, for images of 32×32.
    Cifar,
}

impl Resnet {
    /// Basic blocks, 11.7 million parameters.
    pub fn resnet18() -> Self {
        Resnet::new(Block::Basic, [2, 2, 2, 2])
    }

    /// Basic blocks, 21.8 million parameters.
    pub fn resnet34() -> Self {
        Resnet::new(Block::Basic, [3, 4, 6, 3])
    }

    /// Bottlenecks, 25.6 million parameters.
    pub fn resnet50() -> Self {
        Resnet::new(Block::Bottleneck, [3, 4, 6, 3])
    }

    /// Bottlenecks, 44.5 million parameters.
    pub fn resnet101() -> Self {
        Resnet::new(Block::Bottleneck, [3, 4, 23, 3])
    }

    /// For images of 32×32×3 in 10 classes.
    pub fn cifar(self) -> Self {
        Resnet { stem: Stem::Cifar, input: [32, 32, 3], classes: 10, ..self }
    }

    fn new(block: Block, depths: [usize; 4]) -> Self {
        Resnet { block, depths, stem: Stem::Imagenet, input: [224, 224, 3], classes: 1000, width: 1.0 }
    }

    fn stem(&self, b: &mut Builder, mode: Mode, x: ValueId) -> GraphResult<ValueId> {
        let (size, stride) = match self.stem {
            Stem::Imagenet => (7, 2),
            Stem::Cifar => (3, 1),
        };
        let x = conv2d(b, "conv1", x, conv(scaled(64, self.width), size, stride))?;
        let x = norm(b, mode, "bn1", x)?;
        let x = b.relu(x)?;
        match self.stem {
            Stem::Imagenet => {
                max_pool(b, "maxpool", x, Pool { stride: [2; 2], padding: Padding::half(3), ..Pool::new(3) })
            }
            Stem::Cifar => Ok(x),
        }
    }

    /// Blocks of 64 · 2^stage channels times the width; all stages but the first halve height and width.
    fn stage(&self, b: &mut Builder, mode: Mode, mut x: ValueId, stage: usize, depth: usize) -> GraphResult<ValueId> {
        for i in 0..depth {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            x = b.scope(i, |b| self.block(b, mode, x, scaled(64 << stage, self.width), stride))?;
        }
        Ok(x)
    }

    fn block(&self, b: &mut Builder, mode: Mode, x: ValueId, width: usize, stride: usize) -> GraphResult<ValueId> {
        let (convs, out) = match self.block {
            Block::Basic => (vec![conv(width, 3, stride), conv(width, 3, 1)], width),
            Block::Bottleneck => (vec![conv(width, 1, 1), conv(width, 3, stride), conv(4 * width, 1, 1)], 4 * width),
        };
        let mut y = x;
        for (i, &c) in convs.iter().enumerate() {
            y = conv2d(b, format!("conv{}", i + 1), y, c)?;
            y = norm(b, mode, &format!("bn{}", i + 1), y)?;
            if i + 1 < convs.len() {
                y = b.relu(y)?;
            }
        }
        let shortcut = if stride == 1 && b.shape(x)[3] == out {
            x
        } else {
            b.scope("downsample", |b| {
                let x = conv2d(b, "conv", x, conv(out, 1, stride))?;
                norm(b, mode, "bn", x)
            })?
        };
        let sum = b.add(y, shortcut)?;
        b.relu(sum)
    }
}

impl Model for Resnet {
    fn name(&self) -> &str {
        match (self.block, self.depths) {
            (Block::Basic, [2, 2, 2, 2]) => "resnet18",
            (Block::Basic, [3, 4, 6, 3]) => "resnet34",
            (Block::Bottleneck, [3, 4, 6, 3]) => "resnet50",
            (Block::Bottleneck, [3, 4, 23, 3]) => "resnet101",
            _ => "resnet",
        }
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }

    fn smaller(&self) -> Option<Box<dyn Model>> {
        Some(self.sibling()?)
    }
}

impl Network for Resnet {
    fn task(&self) -> Task {
        Task::Classes
    }

    fn input(&self) -> Result<Vec<usize>> {
        Ok(self.input.to_vec())
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn logits(&self, b: &mut Builder, mode: Mode, x: ValueId) -> GraphResult<ValueId> {
        let mut x = self.stem(b, mode, x)?;
        for (stage, &depth) in self.depths.iter().enumerate() {
            x = b.scope(format!("layer{}", stage + 1), |b| self.stage(b, mode, x, stage, depth))?;
        }
        let x = b.global_avg_pool(x)?;
        dense(b, "fc", x, Dense { init: Initializer::TORCH_UNIFORM, ..Dense::new(self.classes) })
    }

    fn choices(&self) -> Vec<Choice> {
        let stem = match self.stem {
            Stem::Imagenet => "imagenet",
            Stem::Cifar => "cifar",
        };
        vec![
            Choice::width(self.width, "times the channels of all its convolutions, in eights"),
            Choice::new(
                "stem",
                stem,
                "imagenet, cifar",
                "what stands first: 7x7 and a pooling, or 3x3 for images of 32x32",
            ),
        ]
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => self.input = image(&sample)?,
            Setting::Classes(classes) => self.classes = classes,
            Setting::Stem(stem) => self.stem = stem,
            Setting::Scale(width) => self.width = checked(width)?,
            other => return Err(other.refuse(self)),
        }
        Ok(())
    }

    fn sibling(&self) -> Option<Box<dyn Network>> {
        let family = [Resnet::resnet18(), Resnet::resnet34(), Resnet::resnet50(), Resnet::resnet101()];
        let at = family.iter().position(|r| (r.block, r.depths) == (self.block, self.depths))?;
        let smaller = &family[at.checked_sub(1)?];
        Some(Box::new(Resnet { block: smaller.block, depths: smaller.depths, ..self.clone() }))
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}

fn conv(filters: usize, size: usize, stride: usize) -> Conv2d {
    Conv2d {
        stride: [stride; 2],
        padding: Padding::half(size),
        bias: false,
        init: Initializer::HE_NORMAL_OUT,
        ..Conv2d::new(filters, size)
    }
}

fn norm(b: &mut Builder, mode: Mode, name: &str, x: ValueId) -> GraphResult<ValueId> {
    batch_norm(b, mode, name, x, BatchNorm::default())
}
