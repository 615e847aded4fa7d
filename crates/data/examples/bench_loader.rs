//! What the loader costs beside the work itself: batches of 128 images of 32×32, made by the loader and by a plain loop
//! on one thread that does the same work, in turns. Prints ratios; 1.00 is a loader that costs nothing and threads that
//! bring nothing, and one over the number of threads the best there is.

use std::time::{Duration, Instant};

use memfit_data::{
    BytePool, Cache, Dataset, Example, LoadOptions, Loader, Prefetch, Remainder, Result, Tensor, Tensors,
};
use memfit_ir::{DType, TensorType};

const IMAGES: usize = 12_800;
const BATCH: usize = 128;
const PIXELS: usize = 32 * 32 * 3;

/// Stands for a decoder: so many passes over the pixels, then to f32.
fn decode(pixels: &[u8], passes: usize, out: &mut [f32]) {
    let mut state = 0u32;
    for _ in 0..passes {
        for &p in pixels {
            state = state.wrapping_mul(31).wrapping_add(p as u32);
        }
    }
    for (x, p) in out.iter_mut().zip(pixels) {
        *x = *p as f32 / 255.0 + (state & 1) as f32;
    }
}

fn images() -> Tensors {
    let pixels: Vec<u8> = (0..IMAGES * PIXELS).map(|i| (i * 7 + i / 255) as u8).collect();
    let labels: Vec<i32> = (0..IMAGES as i32).collect();
    Tensors::new()
        .with("x", TensorType::new(DType::U8, [IMAGES, 32, 32, 3]), pixels)
        .and_then(|t| t.with("y", TensorType::i32([IMAGES]), labels))
        .expect("the sizes are right")
}

fn to_floats(example: Example, passes: usize, pool: &BytePool) -> Result<Example> {
    let mut x = Tensor::zeros(TensorType::f32([32, 32, 3]), pool)?;
    decode(example.get("x")?.bytes(), passes, x.f32s_mut());
    let mut example = example;
    example.fields[0].1 = x;
    Ok(example)
}

fn by_loader(dataset: &Dataset, threads: usize, epochs: usize) -> Duration {
    let options = LoadOptions { threads, ..LoadOptions::new(BytePool::new(256 << 20)) };
    let mut loader = Loader::new(dataset, options).expect("the pipeline is right");
    for _ in 1..epochs {
        while loader.next().expect("nothing is wrong").is_some() {}
    }
    let start = Instant::now();
    while let Some(batch) = loader.next().expect("nothing is wrong") {
        assert_eq!(batch.fields[0].1.ty().shape[0], BATCH);
    }
    start.elapsed()
}

/// The same batches in the simplest way.
fn by_hand(pixels: &[u8], passes: usize) -> Duration {
    let start = Instant::now();
    for batch in pixels.chunks_exact(BATCH * PIXELS) {
        let mut x = vec![0f32; batch.len()];
        for (image, out) in batch.chunks_exact(PIXELS).zip(x.chunks_exact_mut(PIXELS)) {
            decode(image, passes, out);
        }
        std::hint::black_box(&x);
    }
    start.elapsed()
}

fn main() {
    let pixels: Vec<u8> = (0..IMAGES * PIXELS).map(|i| (i * 7 + i / 255) as u8).collect();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    println!("{IMAGES} images in batches of {BATCH}; time of the loader ÷ time of a plain loop on one thread");
    println!("{:>24} {:>14} {:>10} {:>10}", "work on an image", "loop, µs/image", "1 thread", "all cores");
    for (name, passes) in [("none but to f32", 0), ("light", 10), ("as a small PNG", 40)] {
        let dataset = Dataset::from_tensors(images())
            .expect("a table")
            .shuffle(IMAGES)
            .map(move |e, context| to_floats(e, passes, context.pool))
            .batch(BATCH, Remainder::Drop)
            .prefetch(Prefetch::Auto);
        let mut best = [Duration::MAX; 3];
        for _ in 0..5 {
            best[0] = best[0].min(by_hand(&pixels, passes));
            best[1] = best[1].min(by_loader(&dataset, 1, 1));
            best[2] = best[2].min(by_loader(&dataset, cores, 1));
        }
        let ratio = |i: usize| best[i].as_secs_f64() / best[0].as_secs_f64();
        let each = best[0].as_secs_f64() * 1e6 / IMAGES as f64;
        println!("{name:>24} {each:>14.2} {:>10.2} {:>10.2}", ratio(1), ratio(2));
    }
    let made = Dataset::from_tensors(images()).expect("a table").map(|e, c| to_floats(e, 40, c.pool));
    let plain = made.clone().batch(BATCH, Remainder::Drop);
    let cached = made.cache(Cache::memory()).batch(BATCH, Remainder::Drop);
    let ratio = by_loader(&cached, cores, 2).as_secs_f64() / by_loader(&plain, cores, 2).as_secs_f64();
    println!("a second epoch from a cache in memory ÷ one that is made again: {ratio:.2}");
}
