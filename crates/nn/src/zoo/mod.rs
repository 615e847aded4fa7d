//! The zoo: known networks by name, each a function of batch size and mode. Gradients and updates are the transforms';
//! weights are never loaded here.
//!
//! Every network is a [`Model`] with the inputs `x` and `y`, one head called `logits`, and the outputs `loss` and
//! `logits`. In [`Mode::Train`] its graph also has the updates of the running statistics, as donations.

mod choice;
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
mod width;

use std::fmt::Debug;

pub use choice::{Choice, Setting};
pub use digits::Digits;
pub use efficientnet::EfficientNetB0;
pub use frame::Labels;
pub use gpt::Gpt;
pub use mlp::Mlp;
pub use mobilenet::{MobileNetV3, Size};
pub use resnet::{Block, Resnet, Stem};
pub use unet::Unet;
pub use vgg::Vgg16;
pub use vit::Vit;

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use crate::error::{Error, Result};
use crate::forward::Forward;
use crate::loss::Loss;
use crate::model::{Mode, Model};

/// What a network of the zoo is for: what its samples and labels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One of several classes for a sample: i32 labels, softmax.
    Classes,
    /// The next token at each position: i32 labels, softmax.
    Tokens,
    /// Yes or no for each pixel and mask: labels in 0…1, sigmoid.
    Masks,
    /// One of several classes for each pixel: i32 labels, softmax.
    PixelClasses,
    /// Numbers that are predicted from a sample: regression. A network of classes does it where it is asked to: see
    /// [`ZooModel::with_values`].
    Values,
}

/// A network of the zoo with its options, which are plain fields of each family's struct: from a batch of samples to
/// logits. Its loss follows from its [`Task`], which makes it a [`Model`].
pub trait Network: Model + Debug + Send + Sync {
    /// What it is for.
    fn task(&self) -> Task;

    /// The shape of one sample: height, width, channels of an image; features of an MLP; tokens of a GPT.
    fn input(&self) -> Result<Vec<usize>>;

    /// Classes, masks, or the tokens of a vocabulary: the width of what it gives.
    fn classes(&self) -> usize;

    /// From a batch of samples to logits, appended to a graph: for models made of several, and for losses of one's own.
    fn logits(&self, b: &mut Builder, mode: Mode, x: ValueId) -> GraphResult<ValueId>;

    /// What can be chosen of it besides input and classes, as it is now.
    fn choices(&self) -> Vec<Choice> {
        Vec::new()
    }

    /// Changes one option, or says that it has no such option.
    fn set(&mut self, setting: Setting) -> Result<()>;

    /// The next smaller network of its family, with the same input and classes; none if it is the smallest.
    fn sibling(&self) -> Option<Box<dyn Network>> {
        None
    }

    /// A copy of it.
    fn boxed(&self) -> Box<dyn Network>;
}

/// Any network of the zoo, by its name, and what its labels are.
///
/// ```
/// use memfit_nn::{Mode, Model, ZooModel, zoo::Stem};
///
/// let model = ZooModel::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(10)?;
/// let forward = model.build(128, Mode::Train)?;
/// assert_eq!(forward.graph.shape(forward.output("logits").unwrap()), [128, 10]);
/// # Ok::<(), memfit_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct ZooModel {
    network: Box<dyn Network>,
    labels: Labels,
}

impl Clone for ZooModel {
    fn clone(&self) -> ZooModel {
        ZooModel { network: self.network.boxed(), labels: self.labels }
    }
}

impl<N: Network + 'static> From<N> for ZooModel {
    fn from(network: N) -> ZooModel {
        ZooModel { network: Box::new(network), labels: Labels::default() }
    }
}

/// Its name, what it is, and how it is made.
type Entry = (&'static str, &'static str, fn() -> ZooModel);

/// Every model, in the order in which they are listed to a person.
const ZOO: [Entry; 13] = [
    ("mlp", "a multi-layer perceptron: dense layers, for tables", || Mlp::default().into()),
    ("digits", "a small convnet for small images: three convolutions and a dense layer", || Digits::default().into()),
    ("vgg16", "VGG-16 as in torchvision: plain convolutions, and dense layers of 4096", || Vgg16::default().into()),
    ("resnet18", "ResNet-18 as in torchvision: residual blocks of two convolutions", || Resnet::resnet18().into()),
    ("resnet34", "ResNet-34 as in torchvision: residual blocks of two convolutions", || Resnet::resnet34().into()),
    ("resnet50", "ResNet-50 v1.5 as in torchvision: residual bottlenecks", || Resnet::resnet50().into()),
    ("resnet101", "ResNet-101 v1.5 as in torchvision: residual bottlenecks", || Resnet::resnet101().into()),
    ("mobilenet_v3_small", "MobileNetV3 as in torchvision: depthwise convolutions, for little memory and time", || {
        MobileNetV3::new(Size::Small).into()
    }),
    ("mobilenet_v3_large", "MobileNetV3 as in torchvision: depthwise convolutions, for little memory and time", || {
        MobileNetV3::new(Size::Large).into()
    }),
    ("efficientnet_b0", "EfficientNet-B0 as in torchvision: depthwise convolutions, for few parameters", || {
        EfficientNetB0::default().into()
    }),
    ("unet", "a U-Net with batch norm: a mask, or a class, for each pixel", || Unet::default().into()),
    ("vit_b16", "ViT-B/16 as in torchvision: a transformer over patches of 16x16", || Vit::b16().into()),
    ("gpt", "a GPT in the manner of GPT-2: predicts the next token", || Gpt::default().into()),
];

impl ZooModel {
    /// Every name that [`ZooModel::from_name`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ZOO.iter().map(|(name, ..)| *name)
    }

    /// The model with its usual options.
    pub fn from_name(name: &str) -> Result<ZooModel> {
        match ZOO.iter().find(|(known, ..)| *known == name) {
            Some((.., make)) => Ok(make()),
            None => Err(Error::Unknown { what: "model", given: name.to_string(), known: ZooModel::names().collect() }),
        }
    }

    /// What a model of this name is, in a few words.
    pub fn about(name: &str) -> Option<&'static str> {
        ZOO.iter().find(|(known, ..)| *known == name).map(|(_, about, _)| *about)
    }

    /// What it is for.
    pub fn task(&self) -> Task {
        frame::task(&*self.network, self.labels)
    }

    /// What its labels are.
    pub fn labels(&self) -> Labels {
        self.labels
    }

    /// The shape of one sample: see [`Network::input`].
    pub fn input(&self) -> Result<Vec<usize>> {
        self.network.input()
    }

    /// The width of what it gives: see [`Network::classes`].
    pub fn classes(&self) -> usize {
        self.network.classes()
    }

    /// What can be chosen of it besides input and classes, as it is now.
    pub fn choices(&self) -> Vec<Choice> {
        self.network.choices()
    }

    /// The network itself.
    pub fn network(&self) -> &dyn Network {
        &*self.network
    }

    /// Changes one option; an error where the network has none such.
    pub fn with(mut self, setting: Setting) -> Result<ZooModel> {
        self.network.set(setting)?;
        Ok(self)
    }

    /// The number of classes: see [`Setting::Classes`].
    pub fn with_classes(self, classes: usize) -> Result<ZooModel> {
        self.with(Setting::Classes(classes))
    }

    /// Another shape of one sample: see [`Setting::Input`].
    pub fn with_input(self, sample: &[usize]) -> Result<ZooModel> {
        self.with(Setting::Input(sample.to_vec()))
    }

    /// The share of activations that is dropped: see [`Setting::Dropout`].
    pub fn with_dropout(self, rate: f32) -> Result<ZooModel> {
        self.with(Setting::Dropout(rate))
    }

    /// What stands before the first stage of a ResNet.
    pub fn with_stem(self, stem: Stem) -> Result<ZooModel> {
        self.with(Setting::Stem(stem))
    }

    /// So many numbers that it is to predict by a loss, instead of classes: regression. An error where it does not classify.
    ///
    /// ```
    /// use memfit_nn::{Loss, Mode, Model, ZooModel};
    ///
    /// let prices = ZooModel::from_name("mlp")?.with_input(&[13])?.with_values(1, Loss::Huber { delta: 1.0 })?;
    /// let forward = prices.build(32, Mode::Train)?;
    /// assert_eq!(forward.graph.shape(forward.graph.input("y").unwrap()), [32, 1]);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    #[doc(alias = "regression")]
    pub fn with_values(self, count: usize, loss: Loss) -> Result<ZooModel> {
        if self.network.task() != Task::Classes || !loss.is_of_values() {
            let problem = format!("{} does not predict numbers by {loss}", self.name());
            return option("values", problem);
        }
        let model = self.with_classes(count)?;
        let labels = Labels { values: Some(loss), ..model.labels };
        Ok(model.with_labels(labels))
    }

    /// What the labels of a training step are. A model that cannot have them says so when it is built.
    pub fn with_labels(self, labels: Labels) -> ZooModel {
        ZooModel { labels, ..self }
    }
}

impl Model for ZooModel {
    fn name(&self) -> &str {
        self.network.name()
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        frame::forward(&*self.network, batch, mode, self.labels)
    }

    fn smaller(&self) -> Option<Box<dyn Model>> {
        let network = self.network.sibling()?;
        Some(Box::new(ZooModel { network, labels: self.labels }))
    }
}

/// Height, width and channels of an image.
fn image(sample: &[usize]) -> Result<[usize; 3]> {
    match *sample {
        [h, w, c] => Ok([h, w, c]),
        _ => option("input", format!("an image is height, width, channels, but {sample:?} was given")),
    }
}

fn option<T>(model: &'static str, problem: String) -> Result<T> {
    Err(Error::Option { model, problem })
}
