//! The export program: hands out every state that outlives a step. It computes nothing, so that saving takes no memory
//! beside the states; a device whose states must be turned or staged first would add that here, in the plan.

use memfit_ir::op::State;
use memfit_ir::{Graph, Op};

/// A graph whose outputs are the states of the given programs, each once, by name; sums over micro-batches are none of them.
pub fn export<'a>(programs: impl IntoIterator<Item = &'a Graph>) -> memfit_ir::Result<Graph> {
    let mut graph = Graph::new();
    for program in programs {
        let kept = |(state, _): &(&State, _)| state.class.outlives_step();
        for (state, v) in program.states().filter(kept) {
            if graph.state(&state.name).is_none() {
                let scope = &program.node(program.producer(v)).scope;
                let node = graph.push(Op::State(state.clone()), &[], scope)?;
                graph.outputs.push((state.name.clone(), graph.node(node).outputs[0]));
            }
        }
    }
    Ok(graph)
}
