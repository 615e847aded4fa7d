//! The zoo: known models by name, each a function of batch size and mode. A model gives the forward graph with its
//! loss; gradients and updates are the transforms'. Weights are never loaded here.
//!
//! Every graph has the inputs `x` and `y` and the outputs `loss` and `logits`. In [`Mode::Train`] it also has the
//! updates of the running statistics, as donations.

mod digits;
mod efficientnet;
mod frame;
mod gpt;
mod inverted;
mod mlp;
mod mobilenet;
mod resnet;
mod transformer;
mod unet;
mod vgg;
mod vit;

pub use digits::Digits;
pub use efficientnet::EfficientNetB0;
pub use frame::{Labels, Task};
pub use gpt::Gpt;
pub use mlp::Mlp;
pub use mobilenet::{MobileNetV3, Size};
pub use resnet::{Block, Resnet, Stem};
pub use unet::Unet;
pub use vgg::Vgg16;
pub use vit::Vit;

use memfit_ir::{Builder, Graph, Result as GraphResult, ValueId};

use crate::Mode;
use crate::error::{Error, Result};
use crate::layers::elements;

/// A model with its options. The options are plain fields of each family's struct.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    Mlp(Mlp),
    Digits(Digits),
    Vgg16(Vgg16),
    Resnet(Resnet),
    MobileNetV3(MobileNetV3),
    EfficientNetB0(EfficientNetB0),
    Unet(Unet),
    Vit(Vit),
    Gpt(Gpt),
}

/// From input to loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    pub graph: Graph,
    pub logits: ValueId,
    /// A scalar.
    pub loss: ValueId,
}

type Entry = (&'static str, fn() -> Model);

/// Models of one family, smallest first.
const FAMILIES: [&[&str]; 2] =
    [&["resnet18", "resnet34", "resnet50", "resnet101"], &["mobilenet_v3_small", "mobilenet_v3_large"]];

/// Every model, in the order in which they are listed to a person.
const ZOO: [Entry; 13] = [
    ("mlp", || Model::Mlp(Mlp::default())),
    ("digits", || Model::Digits(Digits::default())),
    ("vgg16", || Model::Vgg16(Vgg16::default())),
    ("resnet18", || Model::Resnet(Resnet::resnet18())),
    ("resnet34", || Model::Resnet(Resnet::resnet34())),
    ("resnet50", || Model::Resnet(Resnet::resnet50())),
    ("resnet101", || Model::Resnet(Resnet::resnet101())),
    ("mobilenet_v3_small", || Model::MobileNetV3(MobileNetV3::new(Size::Small))),
    ("mobilenet_v3_large", || Model::MobileNetV3(MobileNetV3::new(Size::Large))),
    ("efficientnet_b0", || Model::EfficientNetB0(EfficientNetB0::default())),
    ("unet", || Model::Unet(Unet::default())),
    ("vit_b16", || Model::Vit(Vit::b16())),
    ("gpt", || Model::Gpt(Gpt::default())),
];

impl Model {
    pub fn names() -> impl Iterator<Item = &'static str> {
        ZOO.iter().map(|(name, _)| *name)
    }

    /// The model with its usual options.
    pub fn from_name(name: &str) -> Result<Model> {
        match ZOO.iter().find(|(known, _)| *known == name) {
            Some((_, make)) => Ok(make()),
            None => Err(Error::Unknown { what: "model", given: name.to_string(), known: Model::names().collect() }),
        }
    }

    /// The next smaller model of the family of `name`, with the same input and classes.
    pub fn smaller(&self, name: &str) -> Option<(&'static str, Model)> {
        let family = FAMILIES.iter().find(|f| f.contains(&name))?;
        let at = family.iter().position(|n| *n == name)?;
        let smaller = family[at.checked_sub(1)?];
        let model = match (self, Model::from_name(smaller).ok()?) {
            (Model::Resnet(m), Model::Resnet(s)) => {
                Model::Resnet(Resnet { stem: m.stem, input: m.input, classes: m.classes, ..s })
            }
            (Model::MobileNetV3(m), Model::MobileNetV3(s)) => {
                Model::MobileNetV3(MobileNetV3 { input: m.input, classes: m.classes, dropout: m.dropout, ..s })
            }
            (_, _) => return None,
        };
        Some((smaller, model))
    }

    /// The forward graph for batches of this size.
    pub fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        self.build_with(batch, mode, Labels::default())
    }

    /// The same, with labels of another kind.
    pub fn build_with(&self, batch: usize, mode: Mode, labels: Labels) -> Result<Forward> {
        frame::forward(self, batch, mode, labels)
    }

    /// From a batch of samples to logits, appended to a graph: for models made of several, and for losses of one's own.
    pub fn logits(&self, b: &mut Builder, mode: Mode, x: ValueId) -> GraphResult<ValueId> {
        match self {
            Model::Mlp(m) => m.logits(b, mode, x),
            Model::Digits(m) => m.logits(b, mode, x),
            Model::Vgg16(m) => m.logits(b, mode, x),
            Model::Resnet(m) => m.logits(b, mode, x),
            Model::MobileNetV3(m) => m.logits(b, mode, x),
            Model::EfficientNetB0(m) => m.logits(b, mode, x),
            Model::Unet(m) => m.logits(b, mode, x),
            Model::Vit(m) => m.logits(b, mode, x),
            Model::Gpt(m) => m.logits(b, mode, x),
        }
    }

    /// What it is trained for.
    pub fn task(&self) -> Task {
        match self {
            Model::Unet(_) => Task::Masks,
            Model::Gpt(_) => Task::Tokens,
            Model::Mlp(_)
            | Model::Digits(_)
            | Model::Vgg16(_)
            | Model::Resnet(_)
            | Model::MobileNetV3(_)
            | Model::EfficientNetB0(_)
            | Model::Vit(_) => Task::Classes,
        }
    }

    /// The shape of one sample: height, width, channels of an image; features of an MLP; tokens of a GPT.
    pub fn input(&self) -> Result<Vec<usize>> {
        Ok(match self {
            Model::Mlp(m) => match m.sizes.first() {
                Some(&features) => vec![features],
                None => {
                    return option(
                        "mlp",
                        "it has no layers; give the sizes of features, hidden layers and classes".into(),
                    );
                }
            },
            Model::Gpt(m) => vec![m.sequence],
            Model::Digits(m) => m.input.to_vec(),
            Model::Vgg16(m) => m.input.to_vec(),
            Model::Resnet(m) => m.input.to_vec(),
            Model::MobileNetV3(m) => m.input.to_vec(),
            Model::EfficientNetB0(m) => m.input.to_vec(),
            Model::Unet(m) => m.input.to_vec(),
            Model::Vit(m) => m.input.to_vec(),
        })
    }

    /// Classes, masks, or the tokens of a vocabulary: the width of what it gives.
    pub fn classes(&self) -> usize {
        match self {
            Model::Mlp(m) => m.sizes.last().copied().unwrap_or(0),
            Model::Digits(m) => m.classes,
            Model::Vgg16(m) => m.classes,
            Model::Resnet(m) => m.classes,
            Model::MobileNetV3(m) => m.classes,
            Model::EfficientNetB0(m) => m.classes,
            Model::Unet(m) => m.outputs,
            Model::Vit(m) => m.classes,
            Model::Gpt(m) => m.vocabulary,
        }
    }

    /// The number of classes: the width of the last layer, or the masks of a U-Net.
    pub fn with_classes(mut self, classes: usize) -> Result<Model> {
        match &mut self {
            Model::Mlp(m) => match m.sizes.last_mut() {
                Some(last) => *last = classes,
                None => return option("mlp", "it has no layers; give its sizes first".into()),
            },
            Model::Digits(m) => m.classes = classes,
            Model::Vgg16(m) => m.classes = classes,
            Model::Resnet(m) => m.classes = classes,
            Model::MobileNetV3(m) => m.classes = classes,
            Model::EfficientNetB0(m) => m.classes = classes,
            Model::Unet(m) => m.outputs = classes,
            Model::Vit(m) => m.classes = classes,
            Model::Gpt(_) => return option("gpt", "it predicts tokens and has no classes; set its vocabulary".into()),
        }
        Ok(self)
    }

    /// What stands before the first stage of a ResNet.
    pub fn with_stem(mut self, stem: Stem) -> Result<Model> {
        match &mut self {
            Model::Resnet(m) => m.stem = stem,
            Model::Mlp(_)
            | Model::Digits(_)
            | Model::Vgg16(_)
            | Model::MobileNetV3(_)
            | Model::EfficientNetB0(_)
            | Model::Unet(_)
            | Model::Vit(_)
            | Model::Gpt(_) => return option("stem", "only resnets have a choice of stem".into()),
        }
        Ok(self)
    }

    /// Another shape of one sample; the features of an MLP may be an image, which is flattened.
    pub fn with_input(mut self, sample: &[usize]) -> Result<Model> {
        let image = || match *sample {
            [h, w, c] => Ok([h, w, c]),
            _ => option("input", format!("an image is height, width, channels, but {sample:?} was given")),
        };
        match &mut self {
            Model::Mlp(m) => match (m.sizes.first_mut(), elements(sample)) {
                (Some(first), Some(features)) => *first = features,
                (None, _) => return option("mlp", "it has no layers; give its sizes first".into()),
                (_, None) => return option("mlp", format!("an input of {sample:?} is empty or too large")),
            },
            Model::Gpt(m) => match *sample {
                [sequence] => m.sequence = sequence,
                _ => return option("gpt", format!("its input is one sequence length, but {sample:?} was given")),
            },
            Model::Digits(m) => m.input = image()?,
            Model::Vgg16(m) => m.input = image()?,
            Model::Resnet(m) => m.input = image()?,
            Model::MobileNetV3(m) => m.input = image()?,
            Model::EfficientNetB0(m) => m.input = image()?,
            Model::Unet(m) => m.input = image()?,
            Model::Vit(m) => m.input = image()?,
        }
        Ok(self)
    }
}

fn option<T>(model: &'static str, problem: String) -> Result<T> {
    Err(Error::Option { model, problem })
}
