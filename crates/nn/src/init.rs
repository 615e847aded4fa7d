//! Initialisers: how a weight starts, said in terms of its fans and resolved to the plain distribution that the graph
//! stores. Nothing is drawn here.

use memfit_ir::op::Init;

/// The rule for a weight's first values.
///
/// ```
/// use memfit_ir::op::Init;
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::Initializer;
/// use memfit_nn::init::Fans;
/// use memfit_nn::layers::{Dense, dense};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 50]))?;
/// dense(&mut b, "fc", x, Dense { init: Initializer::HE_NORMAL, ..Dense::new(10) })?;
///
/// // A variance of 2 ÷ fan_in.
/// let fans = Fans { fan_in: 50, fan_out: 10 };
/// assert_eq!(Initializer::HE_NORMAL.resolve(fans), Init::Normal { std: 0.2 });
/// assert_eq!(Initializer::Uniform { limit: 0.05 }.resolve(fans), Init::Uniform { limit: 0.05 });
/// assert_eq!(Initializer::Ones.resolve(fans), Init::Constant(1.0));
/// # Ok::<(), memfit_ir::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All this.
    Constant(f32),
    /// Mean 0, not truncated.
    Normal {
        /// The standard deviation.
        std: f32,
    },
    /// Between −limit and limit.
    Uniform {
        /// The largest value.
        limit: f32,
    },
    /// Mean 0 and variance `scale ÷ fan`: Glorot, He and their kin.
    Scaled {
        /// The variance, times the fan.
        scale: f32,
        /// What it is divided by.
        fan: Fan,
        /// The shape of the distribution.
        draw: Draw,
    },
}

/// Which of a weight's fans sets the variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fan {
    /// The inputs of one output: keeps the size of the activations.
    In,
    /// The outputs of one input: keeps the size of the gradients.
    Out,
    /// The mean of both.
    Mean,
}

/// The shape of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// Not truncated, as in PyTorch; Keras' are, at two standard deviations.
    Normal,
    /// The same density everywhere.
    Uniform,
}

/// How many inputs one output of a layer reads, and how many outputs one input feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fans {
    /// Inputs of one output.
    pub fan_in: usize,
    /// Outputs that one input feeds.
    pub fan_out: usize,
}

impl Initializer {
    /// Uniform with a variance of 2 ÷ (fan_in + fan_out): Keras' default for dense and convolution layers.
    pub const GLOROT_UNIFORM: Self = scaled(1.0, Fan::Mean, Draw::Uniform);
    /// Normal with a variance of 2 ÷ (fan_in + fan_out); Xavier in PyTorch.
    pub const GLOROT_NORMAL: Self = scaled(1.0, Fan::Mean, Draw::Normal);
    /// Uniform with a variance of 2 ÷ fan_in; `kaiming_uniform_` in PyTorch.
    pub const HE_UNIFORM: Self = scaled(2.0, Fan::In, Draw::Uniform);
    /// Normal with a variance of 2 ÷ fan_in; `kaiming_normal_` in PyTorch.
    pub const HE_NORMAL: Self = scaled(2.0, Fan::In, Draw::Normal);
    /// Normal with a variance of 2 ÷ fan_out: keeps the size of the gradients instead of the activations; what torchvision's convnets use.
    pub const HE_NORMAL_OUT: Self = scaled(2.0, Fan::Out, Draw::Normal);
    /// Uniform with a variance of 2 ÷ fan_out.
    pub const HE_UNIFORM_OUT: Self = scaled(2.0, Fan::Out, Draw::Uniform);
    /// Normal with a variance of 1 ÷ fan_in.
    pub const LECUN_NORMAL: Self = scaled(1.0, Fan::In, Draw::Normal);
    /// Between ∓1/√fan_in: PyTorch's default for linear and convolution layers.
    pub const TORCH_UNIFORM: Self = scaled(1.0 / 3.0, Fan::In, Draw::Uniform);

    /// The distribution for a weight with these fans.
    pub fn resolve(self, fans: Fans) -> Init {
        match self {
            Initializer::Zeros => Init::Constant(0.0),
            Initializer::Ones => Init::Constant(1.0),
            Initializer::Constant(value) => Init::Constant(value),
            Initializer::Normal { std } => Init::Normal { std },
            Initializer::Uniform { limit } => Init::Uniform { limit },
            Initializer::Scaled { scale, fan, draw } => {
                let variance = f64::from(scale) / fan.of(fans);
                match draw {
                    Draw::Normal => Init::Normal { std: variance.sqrt() as f32 },
                    // A uniform distribution between ∓l has the variance l²/3.
                    Draw::Uniform => Init::Uniform { limit: (3.0 * variance).sqrt() as f32 },
                }
            }
        }
    }
}

impl Fan {
    fn of(self, fans: Fans) -> f64 {
        let fan = match self {
            Fan::In => fans.fan_in as f64,
            Fan::Out => fans.fan_out as f64,
            Fan::Mean => (fans.fan_in as f64 + fans.fan_out as f64) / 2.0,
        };
        fan.max(1.0)
    }
}

const fn scaled(scale: f32, fan: Fan, draw: Draw) -> Initializer {
    Initializer::Scaled { scale, fan, draw }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_resolve_to_their_textbook_distributions() {
        let fans = Fans { fan_in: 100, fan_out: 300 };
        let normal = |std: f32| Init::Normal { std };
        let uniform = |limit: f32| Init::Uniform { limit };
        for (rule, expected) in [
            (Initializer::Zeros, Init::Constant(0.0)),
            (Initializer::Ones, Init::Constant(1.0)),
            (Initializer::Normal { std: 0.02 }, normal(0.02)),
            (Initializer::Uniform { limit: 0.05 }, uniform(0.05)),
            (Initializer::GLOROT_UNIFORM, uniform((6.0f32 / 400.0).sqrt())),
            (Initializer::GLOROT_NORMAL, normal((2.0f32 / 400.0).sqrt())),
            (Initializer::HE_UNIFORM, uniform((6.0f32 / 100.0).sqrt())),
            (Initializer::HE_NORMAL, normal((2.0f32 / 100.0).sqrt())),
            (Initializer::HE_NORMAL_OUT, normal((2.0f32 / 300.0).sqrt())),
            (Initializer::HE_UNIFORM_OUT, uniform((6.0f32 / 300.0).sqrt())),
            (Initializer::LECUN_NORMAL, normal(0.1)),
            (Initializer::TORCH_UNIFORM, uniform(0.1)),
        ] {
            let close = match (rule.resolve(fans), expected) {
                (Init::Constant(a), Init::Constant(b)) => a == b,
                (Init::Normal { std: a }, Init::Normal { std: b })
                | (Init::Uniform { limit: a }, Init::Uniform { limit: b }) => (a - b).abs() < 1e-6,
                _ => false,
            };
            assert!(close, "{rule:?} gives {:?}, expected {expected:?}", rule.resolve(fans));
        }
    }

    #[test]
    fn an_empty_fan_gives_a_finite_distribution() {
        let Init::Normal { std } = Initializer::HE_NORMAL.resolve(Fans { fan_in: 0, fan_out: 0 }) else {
            panic!("not normal")
        };
        assert!(std.is_finite());
    }
}
