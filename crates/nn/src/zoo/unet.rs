//! U-Net with batch norm: convolutions and poolings down to a small image with many channels and up again, with the
//! image of each level handed across. Gives one logit per pixel and mask, or per pixel and class.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::choice::checked_kernel;
use super::frame::forward;
use super::width::{checked, scaled};
use super::{Choice, Labels, Network, Setting, Task, image};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{
    Activation, BatchNorm, Conv2d, Conv2dTranspose, ConvBn, Padding, Pool, conv_bn, conv2d, conv2d_transpose, max_pool,
};
use crate::model::{Mode, Model};

/// A U-Net: down through convolutions and poolings, up through transposed convolutions, with the way down beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unet {
    /// Channels of each level from the top; between two levels height and width are halved.
    pub channels: Vec<usize>,
    /// Height, width, channels.
    pub input: [usize; 3],
    /// Masks out, or classes.
    pub outputs: usize,
    /// Whether a pixel is of one class alone: softmax against class numbers. Otherwise each output is a mask of its own:
    /// yes or no, whatever the others say.
    pub exclusive: bool,
    /// What its channels are multiplied by: [`Setting::Scale`].
    pub width: f32,
    /// Height and width of its convolutions, odd.
    pub kernel: usize,
}

impl Default for Unet {
    fn default() -> Self {
        Unet {
            channels: vec![32, 64, 128, 256, 512],
            input: [256, 256, 3],
            outputs: 1,
            exclusive: false,
            width: 1.0,
            kernel: 3,
        }
    }
}

impl Unet {
    /// An odd image would come back one pixel smaller and not fit its skip.
    fn halve(&self, b: &mut Builder, x: ValueId) -> GraphResult<ValueId> {
        let (height, width) = (b.shape(x)[1], b.shape(x)[2]);
        if !height.is_multiple_of(2) || !width.is_multiple_of(2) {
            let [h, w, _] = self.input;
            // Capped, because a shift by more than the bits of a word is an error of its own.
            let factor = 1usize << (self.channels.len() - 1).min(63);
            let fit = |n: usize| n.div_ceil(factor) * factor;
            return b.fail(format!(
                "the image of {height}x{width} cannot be halved; the input of {h}x{w} must be a multiple of {factor} \
                 in height and width, for example {}x{}",
                fit(h),
                fit(w)
            ));
        }
        max_pool(b, "pool", x, Pool::new(2))
    }
}

impl Model for Unet {
    fn name(&self) -> &str {
        "unet"
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for Unet {
    fn task(&self) -> Task {
        if self.exclusive { Task::PixelClasses } else { Task::Masks }
    }

    fn input(&self) -> Result<Vec<usize>> {
        Ok(self.input.to_vec())
    }

    fn classes(&self) -> usize {
        self.outputs
    }

    fn logits(&self, b: &mut Builder, mode: Mode, x: ValueId) -> GraphResult<ValueId> {
        let channels: Vec<usize> = self.channels.iter().map(|&n| scaled(n, self.width)).collect();
        let Some((&bottom, levels)) = channels.split_last() else {
            return b.fail("a unet needs the channels of at least one level");
        };
        let (mut x, mut skips) = (x, Vec::new());
        for (level, &channels) in (1..).zip(levels) {
            let skip = b.scope(format!("down{level}"), |b| double_conv(b, mode, x, channels, self.kernel))?;
            x = b.scope(format!("down{level}"), |b| self.halve(b, skip))?;
            skips.push((level, channels, skip));
        }
        x = b.scope("bottom", |b| double_conv(b, mode, x, bottom, self.kernel))?;
        for (level, channels, skip) in skips.into_iter().rev() {
            x = b.scope(format!("up{level}"), |b| up(b, mode, x, skip, channels, self.kernel))?;
        }
        conv2d(b, "out", x, Conv2d::new(self.outputs, 1))
    }

    fn choices(&self) -> Vec<Choice> {
        vec![
            Choice::width(self.width, "times the channels of its levels (32, 64, 128, 256, 512), in eights"),
            Choice::kernel(self.kernel),
        ]
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => self.input = image(&sample)?,
            Setting::Classes(outputs) => self.outputs = outputs,
            Setting::PixelClasses(classes) => (self.outputs, self.exclusive) = (classes, true),
            Setting::Scale(width) => self.width = checked(width)?,
            Setting::Kernel(kernel) => self.kernel = checked_kernel(kernel)?,
            other => return Err(other.refuse(self)),
        }
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}

fn up(b: &mut Builder, mode: Mode, x: ValueId, skip: ValueId, channels: usize, kernel: usize) -> GraphResult<ValueId> {
    let transpose =
        Conv2dTranspose { stride: [2; 2], init: Initializer::HE_NORMAL, ..Conv2dTranspose::new(channels, 2) };
    let x = conv2d_transpose(b, "upconv", x, transpose)?;
    let x = b.concat(&[skip, x], 3)?;
    double_conv(b, mode, x, channels, kernel)
}

fn double_conv(b: &mut Builder, mode: Mode, x: ValueId, channels: usize, kernel: usize) -> GraphResult<ValueId> {
    let conv = Conv2d { padding: Padding::Same, init: Initializer::HE_NORMAL, ..Conv2d::new(channels, kernel) };
    let layer = ConvBn { conv, norm: BatchNorm::default(), activation: Activation::Relu };
    let x = conv_bn(b, mode, "1", x, layer)?;
    conv_bn(b, mode, "2", x, layer)
}
