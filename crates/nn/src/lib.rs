//! Layers, initialisers, losses, optimizers and the model zoo: functions that append to a graph.
//!
//! Nothing here runs, allocates tensors or touches a device. Layers take a [`memfit_ir::Builder`] and a name; the name
//! becomes the layer's scope, and with it the name of its states (`layer3/2/conv1/weight`). Layers fail with
//! [`memfit_ir::Error`], which names the layer; what stands above them (models, names given by a person) fails with
//! [`Error`].
//!
//! | in Keras | here |
//! |---|---|
//! | `keras.layers.Dense(10, name="fc")(x)` | [`layers::dense`]`(b, "fc", x, Dense::new(10))` |
//! | `keras.Input(shape, name="x")` | `b.input("x", TensorType::f32([batch, …]))` |
//! | `keras.Model`, `compile(loss=…, loss_weights=…)` | [`Model`], [`Forward::new`] with a [`Head`] for each output |
//! | `keras.losses.Huber()`, `fit(sample_weight=…)` | [`Loss::Huber`], [`Head::sample_weights`] |
//! | `keras.initializers.HeNormal()` | [`Initializer::HE_NORMAL`] |
//! | `keras.optimizers.Adam()` | [`Optimizer::adam`] |
//! | `keras.applications.ResNet50(classes=10)` | [`zoo::ZooModel::from_name`], or [`zoo::Resnet::resnet50`] |
//!
//! A model is a function of the batch size: see [`Model`] for one of one's own, with several inputs and outputs.

#![warn(missing_docs)]

pub mod error;
mod forward;
pub mod init;
pub mod layers;
pub mod loss;
mod model;
pub mod optim;
pub mod zoo;

pub use error::{Error, Result};
pub use forward::{Forward, Head, HeadInfo, TOTAL_LOSS, Unit};
pub use init::Initializer;
pub use loss::Loss;
pub use model::{FromFn, Mode, Model, from_fn};
pub use optim::Optimizer;
pub use zoo::ZooModel;
