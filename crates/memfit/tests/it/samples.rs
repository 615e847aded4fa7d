//! Only batch statistics keep a model of the zoo from being cut into micro-batches.

use memfit::ir::Op;
use memfit::nn::Mode;
use memfit::transform::batch_dependence;
use memfit::{Model, Precision, ZooModel};

#[test]
fn models_without_batch_statistics_may_be_cut() {
    for name in ZooModel::names() {
        for precision in Precision::ALL {
            let forward = ZooModel::from_name(name).unwrap().build(4, Mode::Train).unwrap();
            let graph = memfit::transform::forward_in(&forward.graph, precision).unwrap();
            let loss = graph.output("loss").expect("a model gives its loss");
            let statistics = graph.nodes().iter().any(|n| n.op == Op::BatchStats);
            let found = batch_dependence(&graph, graph.producer(loss), 4);
            assert_eq!(found.is_some(), statistics, "{name} in {}: {found:?}", precision.name());
        }
    }
}
