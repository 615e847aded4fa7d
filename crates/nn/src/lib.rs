//! Layers, initialisers, losses, optimizers and the model zoo: functions that append to a graph.
//!
//! Nothing here runs, allocates tensors or touches a device. Layers take a [`memfit_ir::Builder`] and a name; the name
//! becomes the layer's scope, and with it the name of its states (`layer3/2/conv1/weight`). Layers fail with
//! [`memfit_ir::Error`], which names the layer; what stands above them (the zoo, names given by a person) fails with
//! [`Error`].

pub mod error;
pub mod init;
pub mod layers;
pub mod loss;
pub mod optim;
pub mod zoo;

pub use error::{Error, Result};
pub use init::Initializer;
pub use optim::Optimizer;
pub use zoo::{Forward, Model};

/// What a graph is built for. Only batch norm and dropout differ; names and shapes of the states are the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Statistics of the batch are used and the running ones are updated; dropout is on.
    Train,
    /// Running statistics are used; dropout is the identity. No state changes.
    Eval,
}
