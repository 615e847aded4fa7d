//! Optimizer updates: a unit reads the element of parameter, gradient and slots before it writes them, so that what is new
//! may lie where the old lay.

use cubecl::prelude::*;

use crate::kernels::math::expm1;
use crate::kernels::probe::answer;
use crate::kernels::word::{Buffers, load_bits, store_word};
use crate::lower::update::{Rule, UpdateKey};

/// The first number is how many elements there are; the constants of the rule follow.
#[cube(launch_unchecked)]
pub fn update(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: UpdateKey) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.new[0]));
        terminate!();
    }
    if ABSOLUTE_POS >= numbers[0] as usize {
        terminate!();
    }
    let mut old = Sequence::<f32>::new();
    #[unroll]
    for i in 0..comptime!(key.old.len()) {
        old.push(read(buffers, ABSOLUTE_POS, comptime!(key.old[i])));
    }
    let gradient = read(buffers, ABSOLUTE_POS, comptime!(key.gradient));
    let rate = read(buffers, 0, comptime!(key.learning_rate));
    let ticks = buffers.index(comptime!(key.clock));
    let step = f32::cast_from(i32::reinterpret(ticks[0]));
    let new = step_of(numbers, &old, gradient, rate, step, comptime!(key.rule));
    let open = is_open(buffers, comptime!(key.gate));
    #[unroll]
    for i in 0..comptime!(key.new.len()) {
        // As bits, so that what is held back stays what it was.
        let word = select(open, u32::reinterpret(new[i]), u32::reinterpret(old[i]));
        store_word(buffers, ABSOLUTE_POS, word, comptime!(key.new[i]));
    }
}

#[cube]
fn read(buffers: &mut Buffers, element: usize, #[comptime] index: usize) -> f32 {
    let words = buffers.index(index);
    f32::reinterpret(words[element])
}

#[cube]
fn is_open(buffers: &mut Buffers, #[comptime] gate: Option<crate::tape::Buffer>) -> bool {
    match gate {
        Some(gate) => load_bits(buffers, 0, gate) != 0,
        None => true.runtime(),
    }
}

/// A constant of the rule.
#[cube]
fn constant(numbers: &Sequence<u32>, #[comptime] which: usize) -> f32 {
    f32::reinterpret(numbers[comptime!(1 + which)])
}

/// Parameter and slots after a step, which is counted from 0.
#[cube]
fn step_of(
    numbers: &Sequence<u32>,
    old: &Sequence<f32>,
    g: f32,
    rate: f32,
    step: f32,
    #[comptime] rule: Rule,
) -> Sequence<f32> {
    let mut new = Sequence::<f32>::new();
    let w = old[0];
    match rule {
        Rule::Sgd => {
            new.push(w - rate * (g + constant(numbers, 0usize) * w));
        }
        Rule::Momentum { nesterov } => {
            let momentum = constant(numbers, 1usize);
            let g = g + constant(numbers, 0usize) * w;
            let v = momentum * old[1] + g;
            let direction = if comptime!(nesterov) { g + momentum * v } else { v };
            new.push(w - rate * direction);
            new.push(v);
        }
        Rule::Adam { decoupled } => {
            let decay = constant(numbers, 0usize);
            let g = if comptime!(decoupled) { g } else { g + decay * w };
            let kept = if comptime!(decoupled) { w - rate * decay * w } else { w };
            let m = constant(numbers, 1usize) * old[1] + constant(numbers, 2usize) * g;
            let v = constant(numbers, 4usize) * old[2] + constant(numbers, 5usize) * (g * g);
            // Of 1 − βᵗ nothing is lost while it is small.
            let m_share = -expm1((step + 1.0) * constant(numbers, 3usize));
            let v_share = -expm1((step + 1.0) * constant(numbers, 6usize));
            new.push(kept - rate / m_share * m / ((v / v_share).sqrt() + constant(numbers, 7usize)));
            new.push(m);
            new.push(v);
        }
        Rule::Squares => {
            let s = constant(numbers, 0usize) * old[1] + constant(numbers, 1usize) * (g * g);
            new.push(w - rate * g / (s.sqrt() + constant(numbers, 2usize)));
            new.push(s);
        }
    }
    new
}
