//! Optimizers by name, with the hyperparameters that PyTorch starts from. They only say what the update op is; the
//! op is appended to a graph where the gradients are, in the `transform` crate.

use memfit_ir::op::Update;

use crate::error::{Error, Result};

/// An update rule and the learning rate that goes with it unless the user gives one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    pub update: Update,
    pub learning_rate: f32,
}

type Preset = (&'static str, fn() -> Optimizer);

/// Every optimizer, in the order in which they are listed to a person.
const PRESETS: [Preset; 7] = [
    ("sgd", Optimizer::sgd),
    ("momentum", Optimizer::momentum),
    ("nesterov", Optimizer::nesterov),
    ("adam", Optimizer::adam),
    ("adamw", Optimizer::adamw),
    ("rmsprop", Optimizer::rmsprop),
    ("adagrad", Optimizer::adagrad),
];

impl Optimizer {
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    pub fn from_name(name: &str) -> Result<Optimizer> {
        match PRESETS.iter().find(|(known, _)| *known == name) {
            Some((_, make)) => Ok(make()),
            None => {
                Err(Error::Unknown { what: "optimizer", given: name.to_string(), known: Optimizer::names().collect() })
            }
        }
    }

    pub fn sgd() -> Self {
        Optimizer { update: Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }, learning_rate: 0.01 }
    }

    pub fn momentum() -> Self {
        Optimizer { update: Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 }, learning_rate: 0.01 }
    }

    pub fn nesterov() -> Self {
        Optimizer { update: Update::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.0 }, learning_rate: 0.01 }
    }

    pub fn adam() -> Self {
        let update = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
        Optimizer { update, learning_rate: 1e-3 }
    }

    pub fn adamw() -> Self {
        let update = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decoupled: true };
        Optimizer { update, learning_rate: 1e-3 }
    }

    pub fn rmsprop() -> Self {
        Optimizer { update: Update::RmsProp { alpha: 0.99, eps: 1e-8 }, learning_rate: 0.01 }
    }

    pub fn adagrad() -> Self {
        Optimizer { update: Update::Adagrad { eps: 1e-10 }, learning_rate: 0.01 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_gives_its_update_with_the_slots_it_needs() {
        for (name, update, slots) in [
            ("sgd", "sgd", 0),
            ("momentum", "sgd", 1),
            ("nesterov", "sgd", 1),
            ("adam", "adam", 2),
            ("adamw", "adamw", 2),
            ("rmsprop", "rmsprop", 1),
            ("adagrad", "adagrad", 1),
        ] {
            let optimizer = Optimizer::from_name(name).unwrap();
            assert_eq!((optimizer.update.name(), optimizer.update.slots().len()), (update, slots), "{name}");
        }
        assert_eq!(Optimizer::names().count(), 7);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = Optimizer::from_name("adamW2").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no optimizer \"adamW2\" (did you mean \"adamw\"?); known are sgd, momentum, nesterov, adam, \
             adamw, rmsprop, adagrad"
        );
    }
}
