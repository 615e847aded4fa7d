//! Kernels one by one, with criterion: `cargo bench -p memfit-bench -- FILTER`. Rates are multiply-adds counted as two for
//! products, convolutions and attention, and bytes read once and written once for all else. The groups `limit` are what to
//! hold them against. One number of threads for all: `MEMFIT_THREADS`, or 2.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memfit::ir::Op;
use memfit::nn::ZooModel;
use memfit_bench::{Case, Failure, Timed, is_stream, kernels, sgemm, stream};

fn all(c: &mut Criterion) {
    let threads = std::env::var("MEMFIT_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    if let Err(e) = run(c, threads) {
        panic!("{e}");
    }
}

fn run(c: &mut Criterion, threads: usize) -> Result<(), Failure> {
    bench(c, "limit", &[stream()], threads)?;
    bench(c, "sgemm", &[256, 512, 1024, 2048, 4096].map(sgemm), threads)?;
    for (name, batch) in [("resnet50", 16), ("mobilenet_v3_large", 16), ("gpt", 8)] {
        let model = ZooModel::from_name(name)?;
        let products = kernels(&model, batch, |op| !is_stream(op) && !is_free(op))?;
        bench(c, &format!("{name} products"), &most(products, |w| w.flops)?, threads)?;
        bench(c, &format!("{name} streams"), &most(kernels(&model, batch, is_stream)?, |w| w.bytes)?, threads)?;
    }
    Ok(())
}

/// Ops that move nothing, or that no program has without its states.
fn is_free(op: &Op) -> bool {
    matches!(op, Op::Input(_) | Op::State(_) | Op::Fill(_) | Op::Reshape(_) | Op::Update(_) | Op::BatchUpdate(_))
}

/// The eight cases that do most of the work of a step.
fn most(cases: Vec<Case>, of: impl Fn(&memfit_bench::Work) -> f64) -> Result<Vec<Case>, Failure> {
    let mut list = Vec::new();
    for case in cases {
        list.push((of(&case.work()?) * case.count as f64, case));
    }
    list.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(list.into_iter().take(8).map(|(_, case)| case).collect())
}

fn bench(c: &mut Criterion, name: &str, cases: &[Case], threads: usize) -> Result<(), Failure> {
    let mut group = c.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for case in cases {
        let work = case.work()?;
        let mut timed = None;
        group.throughput(match is_stream(&case.op) {
            true => Throughput::Bytes(work.bytes as u64),
            false => Throughput::Elements(work.flops as u64),
        });
        group.bench_function(case.name(), |b| {
            b.iter_custom(|runs| {
                // Made here, so that what a filter leaves out takes no memory.
                let timed = timed.get_or_insert_with(|| Timed::new(case.graph()?, threads));
                let spent: f64 = match timed {
                    Ok(timed) => (0..runs).map(|_| timed.run().unwrap_or(f64::NAN)).sum(),
                    Err(_) => f64::NAN,
                };
                Duration::try_from_secs_f64(spent).expect("the kernel runs")
            });
        });
    }
    group.finish();
    Ok(())
}

criterion_group!(benches, all);
criterion_main!(benches);
