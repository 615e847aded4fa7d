//! Contractions: a product, the chains that compute its operands, and the chain over its result.

use std::collections::HashMap;

use memfit_ir::ValueId;
use memfit_ir::cost;
use memfit_ir::op::Contraction;
use memfit_plan::Place;

use super::{Lowering, Product, Step};
use crate::chain::chain;

impl Lowering<'_> {
    pub(super) fn contraction(&mut self, op: Contraction) {
        let Contraction::MatMul(op) = op else { unreachable!("{op:?} was not supported") };
        let (graph, group) = (self.graph, self.group);
        let root = graph.node(group.root());
        let raw = root.outputs[0];
        let mut own: HashMap<ValueId, Place> = HashMap::new();
        let fed: Vec<_> = root.inputs.iter().map(|&v| (v, group.prologue_of(graph, v))).collect();
        for (v, _) in fed.iter().filter(|(_, nodes)| !nodes.is_empty()) {
            own.insert(*v, self.scratch(graph.ty(*v).bytes()));
        }
        let home = match group.product_home(graph) {
            Some(home) => self.place(home),
            None => self.scratch(graph.ty(raw).bytes()),
        };
        own.insert(raw, home);
        let outside = self.place;
        let place = |v: ValueId| own.get(&v).copied().unwrap_or_else(|| outside(v));
        for (v, nodes) in fed.iter().filter(|(_, nodes)| !nodes.is_empty()) {
            self.push(chain(graph, nodes, &[*v], &place));
        }
        let operand = |v: ValueId| (place(v), graph.shape(v).to_vec());
        let operands = [operand(root.inputs[0]), operand(root.inputs[1]), operand(raw)];
        let flops = cost(graph, group.root()).flops;
        self.lowered.steps.push(Step::Product(Product { op, operands, flops }));
        if !group.epilogue().is_empty() {
            self.push(chain(graph, group.epilogue(), &group.writes, &place));
        }
    }
}
