//! Running statistics: m·running + (1 − m)·batch, as a chain over both.

use memfit_ir::op::{BatchUpdate, Binary};
use memfit_ir::{DType, Node, ValueId};

use super::Lowering;
use crate::call::{Grid, Key, Operands};
use crate::tape::{Read, Store, Tape, Value};

impl Lowering<'_> {
    pub(super) fn batch_update(&mut self, node: &Node, BatchUpdate { momentum }: BatchUpdate) {
        let (values, elements) = (self.values(), self.ty(node.inputs[0]).elements());
        let mut operands = Operands::default();
        operands.numbers([elements]);
        let factors = [momentum, 1.0 - momentum].map(|m| operands.numbers([m.to_bits() as usize]));
        let mut tape = Tape::default();
        let mut push = |value: Value| {
            tape.values.push(value);
            tape.values.len() - 1
        };
        let load = |o: &mut Operands, v: ValueId, read| Value::Load { buffer: values.operand(o, v), read };
        let [kept, taken] = factors.map(|number| push(Value::Number(number)));
        let gate = node.inputs.get(4).map(|&v| push(load(&mut operands, v, Read::Scalar)));
        let mut stores = Vec::new();
        for i in 0..2 {
            let running = push(load(&mut operands, node.inputs[i], Read::Same));
            let batch = push(load(&mut operands, node.inputs[i + 2], Read::Same));
            let old = push(Value::Binary { op: Binary::Mul, a: running, b: kept });
            let new = push(Value::Binary { op: Binary::Mul, a: batch, b: taken });
            let mixed = push(Value::Binary { op: Binary::Add, a: old, b: new });
            let register = match gate {
                Some(condition) => push(Value::Select { condition, a: mixed, b: running }),
                None => mixed,
            };
            stores.push(Store { register, buffer: operands.buffer(values.place(node.outputs[i]), DType::F32) });
        }
        tape.stores = stores;
        self.push(operands.call(Key::Chain(tape), Grid::each(elements), 6 * elements as u64));
    }
}
