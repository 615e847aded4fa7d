//! Optimizers by name, with the hyperparameters that PyTorch starts from. They only say what the update op is; the
//! op is appended to a graph where the gradients are, in the `transform` crate.

use memfit_ir::op::Update;

use crate::error::{Error, Result};

/// An update rule and the learning rate that goes with it unless the user gives one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    /// The rule: what `Training::new` takes.
    pub update: Update,
    /// The usual learning rate.
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
    /// Every name that [`Optimizer::from_name`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// The optimizer of this name, with its usual hyperparameters.
    pub fn from_name(name: &str) -> Result<Optimizer> {
        match PRESETS.iter().find(|(known, _)| *known == name) {
            Some((_, make)) => Ok(make()),
            None => {
                Err(Error::Unknown { what: "optimizer", given: name.to_string(), known: Optimizer::names().collect() })
            }
        }
    }

    /// Plain stochastic gradient descent: w ← w − lr · g. No slots, so it takes no memory besides the weights.
    ///
    /// ```
    /// use memfit_nn::Optimizer;
    ///
    /// let optimizer = Optimizer::sgd();
    /// assert_eq!((optimizer.update.name(), optimizer.learning_rate), ("sgd", 0.01));
    /// assert_eq!(optimizer, Optimizer::from_name("sgd")?);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn sgd() -> Self {
        Optimizer { update: Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }, learning_rate: 0.01 }
    }

    /// v ← 0.9 · v + g; w ← w − lr · v: PyTorch's `SGD(momentum=0.9)`. Keras has the learning rate inside,
    /// v ← 0.9 · v − lr · g, which differs only where the rate changes. One slot a weight.
    ///
    /// ```
    /// use memfit_nn::Optimizer;
    ///
    /// let optimizer = Optimizer::momentum();
    /// assert_eq!((optimizer.update.name(), optimizer.learning_rate), ("sgd", 0.01));
    /// assert_eq!(optimizer, Optimizer::from_name("momentum")?);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn momentum() -> Self {
        Optimizer { update: Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 }, learning_rate: 0.01 }
    }

    /// v ← 0.9 · v + g; w ← w − lr · (g + 0.9 · v): PyTorch's `SGD(momentum=0.9, nesterov=True)`. One slot a weight.
    ///
    /// ```
    /// use memfit_nn::Optimizer;
    ///
    /// let optimizer = Optimizer::nesterov();
    /// assert_eq!((optimizer.update.name(), optimizer.learning_rate), ("sgd", 0.01));
    /// assert_eq!(optimizer, Optimizer::from_name("nesterov")?);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn nesterov() -> Self {
        Optimizer { update: Update::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.0 }, learning_rate: 0.01 }
    }

    /// m ← 0.9 · m + 0.1 · g; v ← 0.999 · v + 0.001 · g²; w ← w − lr · m̂ ÷ (√v̂ + 1e-8), with m̂ and v̂ corrected for
    /// their start at zero. PyTorch's defaults; Keras has an eps of 1e-7. A weight decay would be added to g, as in
    /// PyTorch's `Adam`. Two slots a weight.
    ///
    /// ```
    /// use memfit_nn::Optimizer;
    ///
    /// let optimizer = Optimizer::adam();
    /// assert_eq!((optimizer.update.name(), optimizer.learning_rate), ("adam", 1e-3));
    /// assert_eq!(optimizer, Optimizer::from_name("adam")?);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn adam() -> Self {
        let update = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
        Optimizer { update, learning_rate: 1e-3 }
    }

    /// [`Optimizer::adam`] whose weight decay of 0.01 goes to the weight itself: w ← w − lr · 0.01 · w besides. PyTorch's
    /// defaults; Keras decays by 0.004. Two slots a weight.
    ///
    /// ```
    /// use memfit_nn::Optimizer;
    ///
    /// let optimizer = Optimizer::adamw();
    /// assert_eq!((optimizer.update.name(), optimizer.learning_rate), ("adamw", 1e-3));
    /// assert_eq!(optimizer, Optimizer::from_name("adamw")?);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn adamw() -> Self {
        let update = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decoupled: true };
        Optimizer { update, learning_rate: 1e-3 }
    }

    /// v ← 0.99 · v + 0.01 · g²; w ← w − lr · g ÷ (√v + 1e-8): PyTorch's defaults. Keras has a rho of 0.9, an eps of
    /// 1e-7 and a rate of 1e-3. One slot a weight.
    ///
    /// ```
    /// use memfit_nn::Optimizer;
    ///
    /// let optimizer = Optimizer::rmsprop();
    /// assert_eq!((optimizer.update.name(), optimizer.learning_rate), ("rmsprop", 0.01));
    /// assert_eq!(optimizer, Optimizer::from_name("rmsprop")?);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn rmsprop() -> Self {
        Optimizer { update: Update::RmsProp { alpha: 0.99, eps: 1e-8 }, learning_rate: 0.01 }
    }

    /// v ← v + g²; w ← w − lr · g ÷ (√v + 1e-10): PyTorch's defaults. Keras starts v at 0.1 and has an eps of 1e-7 and a
    /// rate of 1e-3. One slot a weight.
    ///
    /// ```
    /// use memfit_nn::Optimizer;
    ///
    /// let optimizer = Optimizer::adagrad();
    /// assert_eq!((optimizer.update.name(), optimizer.learning_rate), ("adagrad", 0.01));
    /// assert_eq!(optimizer, Optimizer::from_name("adagrad")?);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
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
