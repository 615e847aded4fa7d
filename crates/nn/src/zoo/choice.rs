//! What can be chosen of a network besides its input and classes: the keys that a person may set, each with what it has,
//! what it may have, and what it does.

use crate::error::{Error, Result};
use crate::layers::Activation;

use super::{Network, Stem, option};

/// A key of a network, with the value that it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// As a run file has it: "hidden".
    pub name: &'static str,
    /// What it is now: "[64, 32]".
    pub value: String,
    /// What it may be.
    pub range: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

impl Choice {
    pub(super) fn new(name: &'static str, value: impl ToString, range: &'static str, meaning: &'static str) -> Choice {
        Choice { name, value: value.to_string(), range, meaning }
    }

    pub(super) fn dropout(rate: f32) -> Choice {
        let meaning = "share of activations that is dropped before the last layers, in training";
        Choice::new("dropout", rate, "0 to less than 1", meaning)
    }

    pub(super) fn width(width: f32, meaning: &'static str) -> Choice {
        Choice::new("width", width, "above 0, at most 8", meaning)
    }

    pub(super) fn kernel(kernel: usize) -> Choice {
        Choice::new(
            "kernel",
            kernel,
            "odd, 1 to 31",
            "height and width of its convolutions, which keep the image's size",
        )
    }
}

/// A kernel that keeps an image's size and has a middle.
pub(super) fn checked_kernel(kernel: usize) -> Result<usize> {
    if kernel % 2 == 1 && kernel <= 31 {
        return Ok(kernel);
    }
    option("kernel", format!("must be odd and at most 31, but is {kernel}"))
}

/// An option of a network, with its value.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// The number of classes: the width of the last layer, or the masks of a U-Net.
    Classes(usize),
    /// Classes of which a pixel has one, instead of masks that know nothing of each other.
    PixelClasses(usize),
    /// The shape of one sample; the features of an MLP may be an image, which is flattened.
    Input(Vec<usize>),
    /// Widths of an MLP's hidden layers; none for a linear model.
    Hidden(Vec<usize>),
    /// What stands between an MLP's layers.
    Activation(Activation),
    /// The share of activations that is dropped in training.
    Dropout(f32),
    /// What the channels of a convnet are multiplied by, but for its last layers.
    Scale(f32),
    /// Height and width of the convolutions of a network that is free to choose them.
    Kernel(usize),
    /// What stands before the first stage of a ResNet.
    Stem(Stem),
    /// Transformer blocks of a GPT.
    Layers(usize),
    /// Channels of a GPT's tokens.
    Width(usize),
    /// Attention heads of a GPT.
    Heads(usize),
    /// Tokens that a GPT knows.
    Vocabulary(usize),
}

impl Setting {
    /// The key that says it.
    pub fn key(&self) -> &'static str {
        match self {
            Setting::Classes(_) | Setting::PixelClasses(_) => "classes",
            Setting::Input(_) => "input",
            Setting::Hidden(_) => "hidden",
            Setting::Activation(_) => "activation",
            Setting::Dropout(_) => "dropout",
            Setting::Scale(_) | Setting::Width(_) => "width",
            Setting::Kernel(_) => "kernel",
            Setting::Stem(_) => "stem",
            Setting::Layers(_) => "layers",
            Setting::Heads(_) => "heads",
            Setting::Vocabulary(_) => "vocabulary",
        }
    }

    /// What a network says that has no such option.
    pub(super) fn refuse(&self, network: &dyn Network) -> Error {
        if let Setting::PixelClasses(_) = self {
            return Error::Option { model: "classes of pixels", problem: "only a unet has them".into() };
        }
        Error::NoOption {
            model: network.name().to_string(),
            option: self.key(),
            known: network.choices().iter().map(|choice| choice.name).collect(),
        }
    }
}
