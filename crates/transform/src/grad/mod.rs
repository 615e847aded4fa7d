//! Reverse-mode gradients: one walk over the nodes, last to first, and one rule for each op.
//!
//! The walk alone decides what is differentiated, sums back what was broadcast (`Ctx::when`) and adds up what flows into a
//! value; a rule knows its op and nothing else. The forward nodes are kept as they are, value ids included: gradients are only appended. Nothing is removed
//! here (see [`crate::prune()`]), and nothing is differentiated twice.

mod ctx;
mod rules;

use memfit_ir::op::{Binary, Fill};
use memfit_ir::{Graph, NodeId, Op, ValueId};

use crate::error::{Error, Result};
use ctx::Ctx;

/// What flows into a value from outside of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cotangent {
    /// A value of the graph, of the same type.
    Value(ValueId),
    /// The same number for every element.
    Constant(f32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// The given graph with the backward nodes appended.
    pub graph: Graph,
    /// One for each value asked for; `None` where no seed depends on it.
    pub of: Vec<Option<ValueId>>,
    /// A value of the given graph and what flowed into it, one by one, with the sums in between.
    pub arrivals: Vec<(ValueId, ValueId)>,
}

/// Appends the gradients of Σ seed · cotangent by each value of `wrt`.
///
/// Nodes from which no value of `wrt` can be reached are skipped. Where several gradients flow into one value they are
/// added in the order of their arrival, last reader first: the order, and with it the rounding, is fixed by the graph.
pub fn gradients(graph: &Graph, seeds: &[(ValueId, Cotangent)], wrt: &[ValueId]) -> Result<Gradients> {
    for &v in wrt.iter().chain(seeds.iter().map(|(v, _)| v)) {
        check_differentiable(graph, v)?;
    }
    let mut walk = Walk::new(graph, wrt);
    for &(value, cotangent) in seeds {
        walk.seed(value, cotangent)?;
    }
    for id in graph.node_ids().rev() {
        walk.visit(id)?;
    }
    let of = wrt.iter().map(|v| walk.gradient[v.index()]).collect();
    Ok(Gradients { graph: walk.graph, of, arrivals: walk.arrivals })
}

fn check_differentiable(graph: &Graph, v: ValueId) -> Result<()> {
    let fail = |problem: String| Err(Error::NotDifferentiable { value: v.0, problem });
    match graph.values().get(v.index()) {
        None => fail("does not exist".into()),
        Some(value) if !value.ty.dtype.is_float() => fail(format!("is {}", value.ty)),
        Some(_) => Ok(()),
    }
}

struct Walk {
    graph: Graph,
    /// Of each forward value: whether it was asked for.
    asked: Vec<bool>,
    /// Of each forward value: whether it depends on a value that was asked for, so that its gradient is of use.
    active: Vec<bool>,
    /// Of each forward value: the sum of what has arrived so far.
    gradient: Vec<Option<ValueId>>,
    arrivals: Vec<(ValueId, ValueId)>,
}

impl Walk {
    fn new(graph: &Graph, wrt: &[ValueId]) -> Walk {
        let mut asked = vec![false; graph.values().len()];
        for v in wrt {
            asked[v.index()] = true;
        }
        let mut active = asked.clone();
        for node in graph.nodes() {
            if node.inputs.iter().any(|v| active[v.index()]) {
                for &v in &node.outputs {
                    // Integers (classes, masks, indices) carry no gradient.
                    active[v.index()] |= graph.ty(v).dtype.is_float();
                }
            }
        }
        Walk { graph: graph.clone(), gradient: vec![None; asked.len()], arrivals: Vec::new(), asked, active }
    }

    fn seed(&mut self, value: ValueId, cotangent: Cotangent) -> Result<()> {
        let ty = self.graph.ty(value).clone();
        match cotangent {
            Cotangent::Value(v) => match self.graph.values().get(v.index()) {
                None => Err(Error::NotDifferentiable { value: v.0, problem: "does not exist".into() }),
                Some(given) if given.ty != ty => {
                    Err(Error::Cotangent { value: value.0, given: given.ty.clone(), expected: ty })
                }
                Some(_) if self.active[value.index()] => self.contribute(value, v),
                Some(_) => Ok(()),
            },
            Cotangent::Constant(c) if self.active[value.index()] => {
                let scope = self.scope_of(value);
                let fill = Op::Fill(Fill { value: c, dtype: ty.dtype, shape: ty.shape });
                let node = self.graph.push(fill, &[], &scope)?;
                self.contribute(value, self.graph.node(node).outputs[0])
            }
            Cotangent::Constant(_) => Ok(()),
        }
    }

    fn visit(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id).clone();
        let wants: Vec<bool> = node.inputs.iter().map(|v| self.active[v.index()]).collect();
        let dys: Vec<Option<ValueId>> = node.outputs.iter().map(|v| self.gradient[v.index()]).collect();
        if !wants.contains(&true) || dys.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut ctx = Ctx { graph: &mut self.graph, node: &node, dys: &dys, wants: &wants, asked: &self.asked };
        let dxs = rules::rule(&mut ctx)?;
        assert_eq!(dxs.len(), node.inputs.len(), "the rule of {} gives one gradient for each input", node.op.name());
        for (i, dx) in dxs.into_iter().enumerate() {
            if let (true, Some(dx)) = (wants[i], dx) {
                self.contribute(node.inputs[i], dx)?;
            }
        }
        Ok(())
    }

    /// Adds at once, so that no more than the sum and one contribution need to live together.
    fn contribute(&mut self, value: ValueId, dx: ValueId) -> Result<()> {
        assert_eq!(self.graph.ty(dx), self.graph.ty(value), "a gradient has the type of its value");
        self.arrivals.push((value, dx));
        let sum = match self.gradient[value.index()] {
            None => dx,
            Some(before) => {
                let scope = self.scope_of(value);
                let node = self.graph.push(Op::Binary(Binary::Add), &[before, dx], &scope)?;
                let sum = self.graph.node(node).outputs[0];
                self.arrivals.push((value, sum));
                sum
            }
        };
        self.gradient[value.index()] = Some(sum);
        Ok(())
    }

    fn scope_of(&self, value: ValueId) -> String {
        self.graph.node(self.graph.producer(value)).scope.clone()
    }
}
