//! What is known of replicas before any of them is planned, held against their plans.

use memfit::exec::Executor;
use memfit::ir::{Replica, philox};
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Gpt;
use memfit::plan::{Link, MicroBatch, Plan, Segment, Tool};
use memfit::replicas::{ReplicaBytes, largest_replica};
use memfit::simulate::simulate;
use memfit::transform::{BatchNorm, Clip, Exchange, Shard};
use memfit::{CpuExecutor, Model, Request, Subject, Training, ZooModel};

fn request(lanes: usize, count: usize, shard: Shard, micro_batch: MicroBatch) -> Request {
    let exchange = Exchange { replica: Replica { lanes, count, rank: 0 }, shard, ..Exchange::ALONE };
    Request { exchange, micro_batch, ..Request::new(4 * lanes) }
}

/// What replicas are said to hold, and the plan of each.
fn replicas(request: &Request) -> (Vec<ReplicaBytes>, Vec<Plan>) {
    let (cpu, training) = (CpuExecutor::new(1).expect("one thread"), Training::new(Optimizer::adam().update));
    let model = ZooModel::from_name("digits").expect("a name of the zoo");
    let subject = Subject { model: &model, training: &training, target: cpu.target(), request };
    let plan = |rank: usize| {
        let mut request = request.clone();
        request.exchange.replica.rank = rank;
        Subject { request: &request, ..subject }.survey().expect("a survey").plan(None).expect("a plan")
    };
    (subject.replicas().expect("replicas"), (0..request.exchange.replica.count).map(plan).collect())
}

#[test]
fn what_replicas_hold_is_what_they_are_planned_to_hold() {
    for (lanes, count, micro_batch) in [
        (3, 3, MicroBatch::Auto),
        (4, 3, MicroBatch::Auto),
        (7, 2, MicroBatch::Exactly(2)),
        (2, 2, MicroBatch::Exactly(1)),
    ] {
        for shard in [Shard::None, Shard::Optimizer] {
            let (said, plans) = replicas(&request(lanes, count, shard, micro_batch));
            assert_eq!(said.len(), count);
            for (said, plan) in said.iter().zip(&plans) {
                let pinned = plan.states.iter().filter(|s| s.place.segment == Segment::Transient);
                let pinned = pinned.map(|s| s.place.offset + s.place.size).max().unwrap_or(0);
                let lanes = plan.replica.own_lanes().len();
                assert_eq!((said.state_bytes, said.lanes), (plan.state_bytes, lanes), "{said:?}");
                assert!(said.accumulator_bytes.abs_diff(pinned) < 64, "{said:?}, {pinned}");
                let saved = plan.savings.iter().find(|s| s.tool == Tool::Shard).map_or(0, |s| s.bytes);
                let all = replicas_state_bytes(&plans, shard);
                assert_eq!(saved, all - plan.state_bytes as i64, "{said:?}");
                assert!(plan.keep_all_bytes >= plan.peak_bytes + saved as u64);
            }
            let most = plans.iter().map(|p| p.state_bytes).max().expect("plans");
            let largest = largest_replica(&said).expect("replicas");
            assert!(lanes > count || largest.state_bytes == most);
        }
    }
}

/// Of one that shares nothing, put together from those that do.
fn replicas_state_bytes(plans: &[Plan], shard: Shard) -> i64 {
    let slot = |s: &&memfit::plan::StateSlot| s.name.starts_with("optimizer/");
    let slots = |plan: &Plan| plan.states.iter().filter(slot).map(|s| s.place.size.next_multiple_of(64)).sum::<u64>();
    let own = plans[0].state_bytes - slots(&plans[0]);
    let all: u64 = match shard {
        Shard::None => slots(&plans[0]),
        Shard::Optimizer => plans.iter().map(slots).sum(),
    };
    (own + all) as i64
}

#[test]
fn more_replicas_than_parameters_leave_some_with_nothing_to_update() {
    let (cpu, training) = (CpuExecutor::new(1).expect("one thread"), Training::new(Optimizer::adam().update));
    let model = ZooModel::from_name("digits").expect("a name of the zoo");
    let request = request(512, 512, Shard::Optimizer, MicroBatch::Auto);
    let subject = Subject { model: &model, training: &training, target: cpu.target(), request: &request };
    let replicas = subject.replicas().expect("replicas");
    let (first, last) = (replicas[0], replicas[511]);
    assert!(first.state_bytes > last.state_bytes && largest_replica(&replicas) == Some(&first));
    let mut request = request.clone();
    request.exchange.replica.rank = 511;
    let plan = Subject { request: &request, ..subject }.survey().expect("a survey").plan(None).expect("a plan");
    assert_eq!(plan.state_bytes, last.state_bytes);
    assert!(plan.savings.iter().any(|s| s.tool == Tool::Shard && s.bytes > 0), "{:?}", plan.savings);
}

/// Of a choice of run, the order of the exchanges of random replicas with random budgets and threads, each against another; and
/// how many of their plans recompute something.
fn compare_orders(model: &dyn Model, request: &Request, pairs: usize, seed: u64) -> (u64, usize) {
    let training = Training { clip: Clip::GlobalNorm(1.0), ..Training::new(Optimizer::adam().update) };
    let count = request.exchange.replica.count;
    let mut draws = philox::uniform(seed, "replicas", 1 << 12);
    let mut draw = |below: usize| (draws.next().expect("enough draws") * below as f32) as usize % below;
    let cpus = [1, 2, 3].map(|threads| CpuExecutor::new(threads).expect("threads"));
    let mut hashes = Vec::new();
    let mut recompute = 0;
    for _ in 0..3 {
        let (mut request, cpu) = (request.clone(), &cpus[draw(cpus.len())]);
        request.exchange.replica.rank = draw(count);
        let survey = Subject { model, training: &training, target: cpu.target(), request: &request }.survey();
        let survey = survey.expect("a survey");
        let points = survey.frontier();
        for _ in 0..(2 * pairs).div_ceil(3) {
            let plan = survey.plan(Some(points[draw(points.len())].device_bytes())).expect("a plan of the frontier");
            recompute += plan.recomputed_ops.min(1);
            hashes.push(plan.exchange_hash());
        }
    }
    let other = hashes.chunks_exact(2).position(|pair| pair[0] != pair[1]);
    assert!(other.is_none() && hashes.iter().all(|h| *h == hashes[0]), "{:?}: {other:?}", request.exchange);
    (hashes[0], recompute)
}

#[test]
fn replicas_exchange_in_one_order_whatever_their_plans() {
    let digits = ZooModel::from_name("digits").expect("a name of the zoo");
    let gpt = Gpt { layers: 3, width: 32, heads: 2, sequence: 16, vocabulary: 64 };
    let piece = 1 << 12;
    let of = |lanes, count, shard, batch_norm, micro_batch| {
        let exchange = Exchange { replica: Replica { lanes, count, rank: 0 }, piece, shard, batch_norm };
        Request { exchange, micro_batch, ..Request::new(16 * lanes) }
    };
    let (leaf, one_by_one) = (BatchNorm::Leaf, MicroBatch::Exactly(1));
    let runs = [
        of(4, 4, Shard::None, leaf, MicroBatch::Auto),
        of(4, 3, Shard::Optimizer, leaf, MicroBatch::Auto),
        of(7, 3, Shard::Optimizer, leaf, one_by_one),
        of(5, 5, Shard::Optimizer, leaf, MicroBatch::Auto),
        of(3, 3, Shard::Optimizer, BatchNorm::Synchronised, MicroBatch::Auto),
    ];
    let (mut found, mut recompute) = (Vec::new(), 0);
    for (number, run) in runs.iter().enumerate() {
        for model in [&digits as &dyn Model, &gpt] {
            let (hash, some) = compare_orders(model, run, 20, number as u64);
            (recompute, found) = (recompute + some, [found, vec![hash]].concat());
        }
    }
    assert!((50..350).contains(&recompute), "some of 400 recompute, and some do not: {recompute}");
    // What replicas must agree on is in it.
    let other = Request { exchange: Exchange { piece: 2 * piece, ..runs[0].exchange }, ..runs[0].clone() };
    found.push(compare_orders(&digits, &other, 3, 9).0);
    let count = found.len();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), count, "other runs have other orders");
}

#[test]
fn many_replicas_are_simulated_without_any() {
    let (cpu, training) = (CpuExecutor::new(1).expect("one thread"), Training::new(Optimizer::adam().update));
    let gpt = Gpt { layers: 3, width: 64, heads: 2, sequence: 16, vocabulary: 512 };
    for shard in [Shard::None, Shard::Optimizer] {
        let exchange = Exchange { shard, piece: 1 << 14, ..Exchange::ALONE };
        let request = Request { exchange, ..Request::new(2) };
        let subject = Subject { model: &gpt, training: &training, target: cpu.target(), request: &request };
        let slow = Link { gbytes: 0.125, message_us: 10.0 };
        let ranks = [1, 2, 8, 64, 512];
        let [fast, slow] = [Link { gbytes: 12.5, ..slow }, slow].map(|l| simulate(&subject, l, &ranks).expect("plans"));
        for (fast, slow) in fast.iter().zip(&slow) {
            assert_eq!(slow.batch, 2 * slow.ranks);
            assert!(slow.exchange_seconds < slow.step_seconds && slow.state_bytes < slow.arena_bytes, "{slow:?}");
            let (more, others) = (slow.exchange_seconds > 2.0 * fast.exchange_seconds, slow.ranks > 1);
            assert!(!others || more || slow.ranks > 8, "{slow:?}, {fast:?}");
            assert_eq!(
                (slow.exchange_room_bytes > 0, slow.exchanges > 0, slow.exchange_seconds > 0.0),
                (others, others, others)
            );
        }
        assert!(slow.is_sorted_by(|a, b| a.step_seconds < b.step_seconds), "{slow:?}");
        assert!(slow.is_sorted_by(|a, b| a.state_bytes >= b.state_bytes), "{slow:?}");
        assert_eq!(slow[1].state_bytes < slow[0].state_bytes, shard == Shard::Optimizer);
        // Gradients go as they come: one that exchanges them needs the room of that, and not all of them at once.
        let gradients = 4 * 100_000;
        for s in &slow[1..] {
            let most = s.state_bytes + (slow[0].arena_bytes - slow[0].state_bytes) + s.exchange_room_bytes;
            assert!(s.arena_bytes < most + gradients / 10, "{s:?}, {:?}", slow[0]);
        }
        // Room is that of pieces, however many replicas there are.
        assert!(slow[4].exchange_room_bytes < 2 * slow[1].exchange_room_bytes, "{slow:?}");
    }
}
