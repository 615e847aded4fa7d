//! Optimizer updates, in place and in one pass: weights and slots are read and written once. Constants of a step are
//! computed in f64.

use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use memfit_ir::op::Update;

/// Elements that are worth a thread of their own.
const GRAIN: usize = 4096;

/// What changes from step to step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) learning_rate: f32,
    /// Counted from 0.
    pub(crate) step: i32,
}

/// Moves w against the gradient g. `slots` are those that [`Update::slots`] names, as long as w.
pub(crate) fn update(cpu: &Cpu, rule: Update, step: Step, w: &mut [f32], g: &[f32], slots: &mut [&mut [f32]]) {
    let n = w.len();
    let w = Parts::new(w);
    let (mut first, mut second) = (Parts::new(&mut [][..]), Parts::new(&mut [][..]));
    let mut slots = slots.iter_mut();
    if let Some(slot) = slots.next() {
        first = Parts::new(slot);
    }
    if let Some(slot) = slots.next() {
        second = Parts::new(slot);
    }
    let used = rule.slots().len();
    cpu.pool.split(n, GRAIN, |r| {
        let part = |i: usize| if i < used { r.clone() } else { 0..0 };
        // SAFETY: split gives disjoint ranges, and w and the slots do not overlap.
        let (w, a, b) = unsafe { (w.range(r.clone()), first.range(part(0)), second.range(part(1))) };
        update_range(cpu, rule, step, w, &g[r], a, b);
    });
}

fn update_range(cpu: &Cpu, rule: Update, step: Step, w: &mut [f32], g: &[f32], a: &mut [f32], b: &mut [f32]) {
    let lr = step.learning_rate;
    match rule {
        Update::Sgd { momentum, nesterov, weight_decay } if momentum != 0.0 => {
            momentum_range(cpu.isa, Momentum { lr, momentum, nesterov, decay: weight_decay }, w, g, a)
        }
        Update::Sgd { weight_decay, .. } => sgd_range(cpu.isa, lr, weight_decay, w, g),
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled } => {
            let t = step.step as f64 + 1.0;
            let correction = |beta: f32| 1.0 - (beta as f64).powf(t);
            let adam = Adam {
                step: (lr as f64 / correction(beta1)) as f32,
                correct_v: (1.0 / correction(beta2)) as f32,
                beta: [beta1, beta2],
                rest: [beta1, beta2].map(|b| (1.0 - b as f64) as f32),
                eps,
                decay: if decoupled { 0.0 } else { weight_decay },
                shrink: if decoupled { (1.0 - lr as f64 * weight_decay as f64) as f32 } else { 1.0 },
            };
            adam_range(cpu.isa, adam, w, g, a, b)
        }
        Update::RmsProp { alpha, eps } => rmsprop_range(cpu.isa, lr, alpha, (1.0 - alpha as f64) as f32, eps, w, g, a),
        Update::Adagrad { eps } => rmsprop_range(cpu.isa, lr, 1.0, 1.0, eps, w, g, a),
    }
}

#[derive(Clone, Copy)]
struct Momentum {
    lr: f32,
    momentum: f32,
    nesterov: bool,
    decay: f32,
}

#[derive(Clone, Copy)]
struct Adam {
    /// Learning rate over the first moment's bias correction.
    step: f32,
    /// One over the second moment's bias correction.
    correct_v: f32,
    beta: [f32; 2],
    /// 1 − β.
    rest: [f32; 2],
    eps: f32,
    /// Added to the gradient, times w.
    decay: f32,
    /// What is left of w before the step.
    shrink: f32,
}

simd! {
    fn sgd_range<FMA>(isa, lr: f32, decay: f32, w: &mut [f32], g: &[f32]) {
        for (w, &g) in w.iter_mut().zip(g) {
            *w = fma::<FMA>(-lr, fma::<FMA>(decay, *w, g), *w);
        }
    }
}

simd! {
    fn momentum_range<FMA>(isa, rule: Momentum, w: &mut [f32], g: &[f32], v: &mut [f32]) {
        for ((w, &g), v) in w.iter_mut().zip(g).zip(v) {
            let g = fma::<FMA>(rule.decay, *w, g);
            *v = fma::<FMA>(rule.momentum, *v, g);
            let direction = if rule.nesterov { fma::<FMA>(rule.momentum, *v, g) } else { *v };
            *w = fma::<FMA>(-rule.lr, direction, *w);
        }
    }
}

simd! {
    fn adam_range<FMA>(isa, rule: Adam, w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        for (((w, &g), m), v) in w.iter_mut().zip(g).zip(m).zip(v) {
            let g = fma::<FMA>(rule.decay, *w, g);
            *m = fma::<FMA>(rule.beta[0], *m, rule.rest[0] * g);
            *v = fma::<FMA>(rule.beta[1], *v, rule.rest[1] * (g * g));
            let change = rule.step * *m / ((*v * rule.correct_v).sqrt() + rule.eps);
            *w = fma::<FMA>(rule.shrink, *w, -change);
        }
    }
}

simd! {
    /// RMSprop with weights `keep` and `add`; Adagrad where both are 1.
    fn rmsprop_range<FMA>(isa, lr: f32, keep: f32, add: f32, eps: f32, w: &mut [f32], g: &[f32], s: &mut [f32]) {
        for ((w, &g), s) in w.iter_mut().zip(g).zip(s) {
            *s = fma::<FMA>(keep, *s, add * (g * g));
            *w -= lr * g / (s.sqrt() + eps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, random};

    const RULES: [Update; 9] = [
        Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 },
        Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.1 },
        Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 },
        Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.01 },
        Update::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.01 },
        Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, decoupled: false },
        Update::Adam { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.1, decoupled: true },
        Update::RmsProp { alpha: 0.9, eps: 1e-8 },
        Update::Adagrad { eps: 1e-10 },
    ];

    /// One element, one step, in f64.
    fn naive(rule: Update, lr: f64, t: i32, w: &mut f64, g: f64, s: &mut [f64; 2]) {
        let wide = |x: f32| x as f64;
        match rule {
            Update::Sgd { momentum, nesterov, weight_decay } => {
                let (mu, g) = (wide(momentum), g + wide(weight_decay) * *w);
                s[0] = mu * s[0] + g;
                *w -= lr * if nesterov { g + mu * s[0] } else { s[0] };
            }
            Update::Adam { beta1, beta2, eps, weight_decay, decoupled } => {
                let (b1, b2, wd) = (wide(beta1), wide(beta2), wide(weight_decay));
                let g = if decoupled { g } else { g + wd * *w };
                *w *= if decoupled { 1.0 - lr * wd } else { 1.0 };
                s[0] = b1 * s[0] + (1.0 - b1) * g;
                s[1] = b2 * s[1] + (1.0 - b2) * g * g;
                let (m, v) = (s[0] / (1.0 - b1.powi(t)), s[1] / (1.0 - b2.powi(t)));
                *w -= lr * m / (v.sqrt() + wide(eps));
            }
            Update::RmsProp { alpha, eps } => {
                s[0] = wide(alpha) * s[0] + (1.0 - wide(alpha)) * g * g;
                *w -= lr * g / (s[0].sqrt() + wide(eps));
            }
            Update::Adagrad { eps } => {
                s[0] += g * g;
                *w -= lr * g / (s[0].sqrt() + wide(eps));
            }
        }
    }

    #[test]
    fn five_steps_of_each_rule() {
        for n in [0, 1, 17, 10_007] {
            for rule in RULES {
                let start = random(n, 1);
                let mut want: Vec<f64> = start.iter().map(|&v| v as f64).collect();
                let mut state = vec![[0.0; 2]; n];
                for step in 0..5 {
                    let g = random(n, 10 + step as u64);
                    for i in 0..n {
                        naive(rule, 0.01f32 as f64, step + 1, &mut want[i], g[i] as f64, &mut state[i]);
                    }
                }
                check(rule.name(), 1e-6, &[want], |cpu| {
                    let (mut w, mut a, mut b) = (start.clone(), vec![0.0; n], vec![0.0; n]);
                    for step in 0..5 {
                        let mut slots = [&mut a[..], &mut b[..]];
                        let slots = &mut slots[..rule.slots().len()];
                        let now = Step { learning_rate: 0.01, step };
                        update(cpu, rule, now, &mut w, &random(n, 10 + step as u64), slots);
                    }
                    vec![w]
                });
            }
        }
    }
}
