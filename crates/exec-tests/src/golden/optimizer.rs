//! Optimizer cases: a parameter, a gradient for every step, and the parameter after each.

use std::collections::HashMap;

use memfit_ir::op::{CLOCK, Init, LEARNING_RATE, StateClass, Update};
use memfit_ir::{Builder, Graph, Op, TensorType};
use serde_json::{Map, Value, json};

use super::Attrs;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

#[derive(Clone, Debug)]
pub struct OptimizerCase {
    pub name: String,
    pub update: Update,
    pub lr: f64,
    pub start: Tensor,
    /// One for every step.
    pub gradients: Vec<Tensor>,
    /// The parameter after every step.
    pub after: Vec<Tensor>,
}

impl OptimizerCase {
    /// One step: state `p` and its slots, inputs `g`, `lr` and `clock`.
    pub fn graph(&self) -> Result<Graph> {
        self.build().map_err(|source| Error::CaseGraph { case: self.name.clone(), source })
    }

    fn build(&self) -> memfit_ir::Result<Graph> {
        let mut b = Builder::new();
        let ty = &self.start.ty;
        let mut states = vec![b.state("p", StateClass::Param, ty.clone(), Init::Constant(0.0))?];
        for slot in self.update.slots() {
            states.push(b.state(slot, StateClass::Slot, ty.clone(), Init::Constant(0.0))?);
        }
        let g = b.input("g", ty.clone())?;
        let lr = b.input(LEARNING_RATE, TensorType::f32([]))?;
        let clock = b.clock()?;
        let inputs = [&[states[0], g], &states[1..], &[lr, clock]].concat();
        let updated = b.op_outputs(Op::Update(self.update), &inputs)?;
        for (old, new) in states.into_iter().zip(updated) {
            b.donate(old, new);
        }
        Ok(b.finish())
    }

    /// The states before the first step: slots start at zero.
    pub fn states(&self) -> HashMap<String, Tensor> {
        let slots = self.update.slots().iter().map(|s| (s.to_string(), Tensor::zeros(&self.start.ty)));
        slots.chain([("p".to_string(), self.start.clone())]).collect()
    }

    pub fn feeds(&self, step: usize) -> HashMap<String, Tensor> {
        HashMap::from([
            ("g".to_string(), self.gradients[step].clone()),
            (LEARNING_RATE.to_string(), Tensor::filled(&TensorType::f32([]), self.lr)),
            (CLOCK.to_string(), clock(step)),
        ])
    }
}

/// The clock of a step, with seed 0.
pub fn clock(step: usize) -> Tensor {
    let mut clock = Tensor::zeros(&TensorType::i32([4]));
    clock.data[0] = step as f64;
    clock
}

/// The update that an optimizer's name and attributes describe. What stands behind the first underscore of a name is
/// only a label: `sgd_momentum` is sgd, and its momentum is an attribute.
pub fn update(name: &str, attrs: &Attrs) -> Result<Update> {
    let family = name.split('_').next().unwrap_or(name);
    let known: &[&str] = match family {
        "sgd" => &["momentum", "nesterov", "weight_decay"],
        "adam" | "adamw" => &["betas", "eps", "weight_decay"],
        "rmsprop" => &["alpha", "eps"],
        "adagrad" => &["eps"],
        _ => return Err(attrs.wrong("op", format!("is the unknown optimizer \"{name}\""))),
    };
    // An attribute that is not understood would make the comparison fail far from its cause.
    if let Some(other) = attrs.names().find(|n| *n != "lr" && !known.contains(n)) {
        return Err(attrs.wrong(other, format!("is not one of {family}'s: lr, {}", known.join(", "))));
    }
    let number = |name: &str, default: f32| attrs.get(name).map(|v| v.unwrap_or(default));
    let [beta1, beta2] = attrs.get("betas")?.unwrap_or([0.9, 0.999]);
    let decoupled = family == "adamw";
    Ok(match family {
        "sgd" => Update::Sgd {
            momentum: number("momentum", 0.0)?,
            nesterov: attrs.get("nesterov")?.unwrap_or(false),
            weight_decay: number("weight_decay", 0.0)?,
        },
        "rmsprop" => Update::RmsProp { alpha: number("alpha", 0.99)?, eps: number("eps", 1e-8)? },
        "adagrad" => Update::Adagrad { eps: number("eps", 1e-10)? },
        _ => Update::Adam {
            beta1,
            beta2,
            eps: number("eps", 1e-8)?,
            weight_decay: number("weight_decay", if decoupled { 0.01 } else { 0.0 })?,
            decoupled,
        },
    })
}

/// An optimizer in words, as name and attributes: "adamw lr 0.01 betas 0.9 0.99 on every tensor". Each attribute is
/// followed by its numbers; one without numbers is a flag.
pub fn parse(case: &str, text: &str) -> Result<(String, Attrs)> {
    let text = text.trim().trim_end_matches("on every tensor");
    let mut words = text.split_whitespace().peekable();
    let Some(name) = words.next() else {
        return Err(Error::Case { case: case.into(), problem: "the optimizer is empty".into() });
    };
    let mut attrs = Map::new();
    while let Some(attribute) = words.next() {
        let mut numbers = Vec::new();
        while let Some(n) = words.peek().and_then(|w| w.parse::<f64>().ok()) {
            numbers.push(n);
            words.next();
        }
        let value: Value = match numbers[..] {
            [] => json!(true),
            [n] => json!(n),
            _ => json!(numbers),
        };
        attrs.insert(attribute.into(), value);
    }
    Ok((name.into(), Attrs::new(case, attrs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Update, f64)> {
        let (name, attrs) = parse("case", text)?;
        Ok((update(&name, &attrs)?, attrs.required("lr")?))
    }

    #[test]
    fn optimizers_are_read_from_words() {
        let sgd = Update::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.0 };
        assert_eq!(read("sgd lr 0.05 momentum 0.9 nesterov").unwrap(), (sgd, 0.05));
        let adam = Update::Adam { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.1, decoupled: true };
        let text = "adamw lr 0.01 betas 0.9 0.99 eps 1e-8 weight_decay 0.1 on every tensor";
        assert_eq!(read(text).unwrap(), (adam, 0.01));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(message("sgd momentum 0.9"), "golden case case: the attribute \"lr\" is missing");
        assert!(message("lion lr 0.1").contains("unknown optimizer \"lion\""));
        assert!(message("rmsprop lr 0.1 centered").contains("\"centered\" is not one of rmsprop's"));
        assert!(message("adam lr 0.1 betas 0.9").contains("\"betas\" is 0.9"));
        assert!(message("  ").contains("the optimizer is empty"));
    }
}
