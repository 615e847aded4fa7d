//! Optimizer updates: one launch, element by element, over parameter and slots.

use memfit_ir::op::Update;
use memfit_ir::{DType, Node, cost};

use super::Lowering;
use crate::call::{Grid, Key, Operands};
use crate::tape::Buffer;

/// The code of an update. Its constants are numbers of the launch, so that one shader serves all parameters, whether they
/// decay or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpdateKey {
    pub rule: Rule,
    pub gradient: usize,
    /// Parameter and slots, as they are and as they become: in a plan these are the same places.
    pub old: Vec<usize>,
    pub new: Vec<usize>,
    pub learning_rate: usize,
    pub clock: usize,
    /// Where this is 0, nothing changes.
    pub gate: Option<Buffer>,
}

/// Which numbers follow the number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// decay
    Sgd,
    /// decay, momentum
    Momentum { nesterov: bool },
    /// decay, β₁, 1 − β₁, log β₁, β₂, 1 − β₂, log β₂, ε
    Adam { decoupled: bool },
    /// What is kept of the slot and what of g² is added, ε. RMSprop; and Adagrad, where both are 1.
    Squares,
}

impl Lowering<'_> {
    pub(super) fn update(&mut self, node: &Node, update: Update) {
        let graph = self.graph;
        let slots = update.slots().len();
        let (rule, constants) = rule(update);
        let elements = graph.ty(node.inputs[0]).elements();
        let mut operands = Operands::default();
        operands.numbers([elements]);
        operands.numbers(constants.iter().map(|&c| (c as f32).to_bits() as usize));
        let mut index = |v| operands.buffer(self.place(v), graph.ty(v).dtype).index;
        let old = [&node.inputs[..1], &node.inputs[2..2 + slots]].concat().into_iter().map(&mut index).collect();
        let new = node.outputs.iter().map(|&v| index(v)).collect();
        let [gradient, learning_rate, clock] = [1, 2 + slots, 3 + slots].map(|i| index(node.inputs[i]));
        let gate = node.inputs.get(4 + slots).map(|&v| Buffer { index: index(v), dtype: DType::U8 });
        let key = UpdateKey { rule, gradient, old, new, learning_rate, clock, gate };
        let flops = cost(graph, self.group.root()).flops;
        self.push(operands.call(Key::Update(key), Grid::each(elements), flops));
    }
}

fn rule(update: Update) -> (Rule, Vec<f64>) {
    // The power of a β of 0 is 0 from the first step on; devices need not know of infinities.
    let log = |beta: f64| beta.ln().max(-100.0);
    match update {
        Update::Sgd { momentum: 0.0, weight_decay, .. } => (Rule::Sgd, vec![weight_decay.into()]),
        Update::Sgd { momentum, nesterov, weight_decay } => {
            (Rule::Momentum { nesterov }, vec![weight_decay.into(), momentum.into()])
        }
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled } => {
            let [b1, b2] = [f64::from(beta1), f64::from(beta2)];
            let constants = vec![weight_decay.into(), b1, 1.0 - b1, log(b1), b2, 1.0 - b2, log(b2), eps.into()];
            (Rule::Adam { decoupled }, constants)
        }
        Update::RmsProp { alpha, eps } => (Rule::Squares, vec![alpha.into(), 1.0 - f64::from(alpha), eps.into()]),
        Update::Adagrad { eps } => (Rule::Squares, vec![1.0, 1.0, eps.into()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_that_are_differences_are_computed_before_they_are_rounded() {
        let adam = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: true };
        let (rule, constants) = rule(adam);
        assert_eq!(rule, Rule::Adam { decoupled: true });
        assert_eq!(constants[5] as f32, (1.0 - f64::from(0.999f32)) as f32);
        assert!((constants[6] - f64::from(0.999f32).ln()).abs() < 1e-12);
    }

    #[test]
    fn a_beta_of_zero_has_a_logarithm_that_a_device_can_hold() {
        let adam = Update::Adam { beta1: 0.0, beta2: 0.0, eps: 1e-8, weight_decay: 0.0, decoupled: false };
        assert!(self::rule(adam).1.iter().all(|c| (*c as f32).is_finite()));
    }
}
