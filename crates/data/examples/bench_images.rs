//! Images a second from a folder of JPEGs on two threads: read, decode, random-crop-resize to 224, flip, as batches of 32
//! f32 in 0..1. `cargo run --release -p memfit-data --example bench_images -- FOLDER [decode|fused]`; the peer is tf.data in
//! its modes `decode_full` and `fused`, in alternating runs on the same machine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use memfit_data::augment::{Crop, Normalise, Prepare};
use memfit_data::sources::ImageFiles;
use memfit_data::{BytePool, Context, DataError, Source};

const BATCH: usize = 32;
const SIDE: usize = 224;
const THREADS: usize = 2;

fn main() -> Result<(), DataError> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or_else(|| DataError::Pipeline("give a folder of images".to_string()))?;
    let fused = args.next().is_some_and(|mode| mode == "fused");
    let pool = BytePool::new(64 << 20);
    let files = ImageFiles::open(folder, &pool)?;
    let files = if fused { files.encoded() } else { files };
    let unit = Normalise::new(&[0.0; 3], &[1.0; 3])?;
    let prepare = Prepare { crop: Crop::RANDOM, flip: true, normalise: Some(unit), ..Prepare::to([SIDE, SIDE]) };
    let best = (0..3).map(|epoch| images_per_second(&files, &prepare, &pool, epoch)).collect::<Result<Vec<_>, _>>()?;
    println!(
        "{{\"mode\": \"{}\", \"images_per_s\": {best:.1?}, \"pool_high_water\": {}}}",
        if fused { "fused" } else { "decode" },
        pool.high_water()
    );
    Ok(())
}

/// Each thread takes the next batch and fills it.
fn images_per_second(files: &ImageFiles, prepare: &Prepare, pool: &BytePool, epoch: u64) -> Result<f64, DataError> {
    let (next, start) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        let work = || {
            let mut batch = vec![0f32; BATCH * SIDE * SIDE * 3];
            loop {
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                if first >= files.len() {
                    return Ok::<(), DataError>(());
                }
                for (index, out) in (first..files.len()).zip(batch.chunks_exact_mut(SIDE * SIDE * 3)) {
                    let context = Context::new(pool, 1, epoch, index as u64);
                    let example = prepare.run(files.read(index, pool)?, &context)?;
                    out.copy_from_slice(example.get("x")?.f32s());
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a worker does not panic"))
    })?;
    Ok(files.len() as f64 / start.elapsed().as_secs_f64())
}
