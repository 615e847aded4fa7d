//! What changes states: optimizers and running statistics. They have no gradient.

use memfit_ir::op::{BatchUpdate, CLOCK, LEARNING_RATE, StateClass, Update};
use memfit_ir::{DType, Op, Result as Built, TensorType, ValueId};

use super::maker::{Made, Maker, Numbers, Outputs};
use crate::tensor::Tensor;

pub fn update(m: &mut Maker) -> Made {
    let rule = rule(m);
    let shape = m.shape(0..=4);
    let mut old = vec![m.state("w", StateClass::Param, &shape, Numbers::Normal)?];
    for slot in rule.slots() {
        // Sums of squares are never negative.
        let numbers = if *slot == "m" || *slot == "momentum" { Numbers::Normal } else { Numbers::Positive };
        old.push(m.state(slot, StateClass::Slot, &shape, numbers)?);
    }
    let gradient = m.fixed(DType::F32, &shape, Numbers::Normal)?;
    let rate = f64::from(m.draws.pick(&[0.1f32, 0.5, 1e-3, 0.0]));
    let lr = m.given(LEARNING_RATE, Tensor::filled(&TensorType::f32([]), rate))?;
    let mut clock = Tensor::zeros(&TensorType::i32([4]));
    clock.data[0] = m.draws.pick(&[0.0, 1.0, 999.0, 1e5]);
    let clock = m.given(CLOCK, clock)?;
    let mut inputs = [&[old[0], gradient], &old[1..], &[lr, clock]].concat();
    inputs.extend(gate(m)?);
    let new = m.b.op_outputs(Op::Update(rule), &inputs)?;
    for (old, new) in old.into_iter().zip(new) {
        m.b.donate(old, new);
    }
    Ok(Outputs { all: vec![], seeds: 0 })
}

fn rule(m: &mut Maker) -> Update {
    let weight_decay = m.draws.pick(&[0.1, 0.0]);
    let flag = m.draws.flip();
    match m.draws.draw(4) {
        0 => {
            let momentum = m.draws.pick(&[0.0, 0.9]);
            Update::Sgd { momentum, nesterov: flag && momentum != 0.0, weight_decay }
        }
        1 => Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay, decoupled: flag },
        2 => Update::RmsProp { alpha: m.draws.pick(&[0.99, 0.9]), eps: 1e-8 },
        _ => Update::Adagrad { eps: 1e-10 },
    }
}

pub fn batch_update(m: &mut Maker) -> Made {
    let channels = m.channels();
    let running_mean = m.state("mean", StateClass::Statistic, &[channels], Numbers::Normal)?;
    let running_var = m.state("var", StateClass::Statistic, &[channels], Numbers::Positive)?;
    let mean = m.fixed(DType::F32, &[channels], Numbers::Normal)?;
    let var = m.fixed(DType::F32, &[channels], Numbers::Positive)?;
    let momentum = m.draws.pick(&[0.9, 0.0, 1.0, 0.99]);
    let mut inputs = vec![running_mean, running_var, mean, var];
    inputs.extend(gate(m)?);
    let new = m.b.op_outputs(Op::BatchUpdate(BatchUpdate { momentum }), &inputs)?;
    m.b.donate(running_mean, new[0]);
    m.b.donate(running_var, new[1]);
    Ok(Outputs { all: vec![], seeds: 0 })
}

/// What may hold an update back: open, shut, or not there.
fn gate(m: &mut Maker) -> Built<Option<ValueId>> {
    let given = m.draws.pick(&[None, Some(1.0), Some(0.0)]);
    let tensor = |value| Tensor::filled(&TensorType::new(DType::U8, []), value);
    given.map(|value| m.given("gate", tensor(value))).transpose()
}
