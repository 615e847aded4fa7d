//! The optimizers, one element at a time.

use memfit_ir::op::Update;

use crate::tensor::Tensor;

/// `(w, g, slots.., lr, clock) -> (w, slots..)`; all as it was where a gate is given and 0.
pub fn update(u: Update, x: &[&Tensor]) -> Vec<Tensor> {
    let slot_count = u.slots().len();
    let (w, g, slots) = (x[0], x[1], &x[2..2 + slot_count]);
    if x.get(4 + slot_count).is_some_and(|gate| gate.data[0] == 0.0) {
        return [&[w], slots].concat().into_iter().cloned().collect();
    }
    let lr = x[2 + slot_count].data[0];
    // Bias correction counts steps from 1, the clock from 0.
    let t = x[3 + slot_count].data[0] + 1.0;

    let mut new_w = w.clone();
    let mut new_slots: Vec<Tensor> = slots.iter().map(|&s| s.clone()).collect();
    for i in 0..w.data.len() {
        let mut slot: Vec<f64> = slots.iter().map(|s| s.data[i]).collect();
        new_w.data[i] = step(u, w.data[i], g.data[i], &mut slot, lr, t);
        for (tensor, value) in new_slots.iter_mut().zip(slot) {
            tensor.data[i] = value;
        }
    }
    [vec![new_w], new_slots].concat()
}

/// The new w; `slot` is changed in place.
fn step(u: Update, w: f64, g: f64, slot: &mut [f64], lr: f64, t: f64) -> f64 {
    match u {
        Update::Sgd { momentum, nesterov, weight_decay } => {
            let g = g + f64::from(weight_decay) * w;
            if momentum == 0.0 {
                return w - lr * g;
            }
            let momentum = f64::from(momentum);
            slot[0] = momentum * slot[0] + g;
            w - lr * if nesterov { g + momentum * slot[0] } else { slot[0] }
        }
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled } => {
            let [beta1, beta2, eps, decay] = [beta1, beta2, eps, weight_decay].map(f64::from);
            let (w, g) = if decoupled { (w - lr * decay * w, g) } else { (w, g + decay * w) };
            slot[0] = beta1 * slot[0] + (1.0 - beta1) * g;
            slot[1] = beta2 * slot[1] + (1.0 - beta2) * g * g;
            let m = slot[0] / (1.0 - beta1.powf(t));
            let v = slot[1] / (1.0 - beta2.powf(t));
            w - lr * m / (v.sqrt() + eps)
        }
        Update::RmsProp { alpha, eps } => {
            let alpha = f64::from(alpha);
            slot[0] = alpha * slot[0] + (1.0 - alpha) * g * g;
            w - lr * g / (slot[0].sqrt() + f64::from(eps))
        }
        Update::Adagrad { eps } => {
            slot[0] += g * g;
            w - lr * g / (slot[0].sqrt() + f64::from(eps))
        }
    }
}
