//! Images a second from a folder of JPEGs on two threads: read, decode, random-crop-resize to 224, flip, as batches of
//! 32 f32 in 0..1. `cargo run --release -p memfit-data --example bench_images -- FOLDER [decode|fused]`: decode whole
//! images first, or only what is cut out. The peer is tf.data in its modes `decode_full` and `fused`; compare in
//! alternating runs on the same machine.

use std::time::Instant;

use memfit_data::augment::{Crop, Normalise, Prepare, normalise};
use memfit_data::sources::ImageFiles;
use memfit_data::{BytePool, DataError, Dataset, LoadOptions, Loader, Prefetch, Remainder};

const POOL: u64 = 96 << 20;

fn main() -> Result<(), DataError> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or_else(|| DataError::Pipeline("give a folder of images".to_string()))?;
    let fused = args.next().is_some_and(|mode| mode == "fused");
    let pool = BytePool::new(POOL);
    let files = ImageFiles::open(folder, &pool)?;
    let files = if fused { files.encoded() } else { files };
    let unit = Normalise::new(&[0.0; 3], &[1.0; 3])?;
    let prepare = Prepare { crop: Crop::RANDOM, flip: true, ..Prepare::to([224, 224]) };
    let images = Dataset::from_source(files).shuffle(2000).map(prepare.map());
    let dataset = images.batch(32, Remainder::Keep).map(normalise(unit)).prefetch(Prefetch::Auto);
    let mut loader = Loader::new(&dataset, LoadOptions { threads: 2, seed: 1, ..LoadOptions::new(pool) })?;
    let mut speeds = Vec::new();
    for _ in 0..3 {
        let (start, mut count) = (Instant::now(), 0);
        while let Some(batch) = loader.next()? {
            count += batch.get("x")?.ty().shape[0];
        }
        speeds.push(count as f64 / start.elapsed().as_secs_f64());
    }
    let (mode, most) = (if fused { "fused" } else { "decode" }, loader.pool().high_water());
    println!("{{\"mode\": \"{mode}\", \"images_per_s\": {speeds:.1?}, \"pool_high_water\": {most}}}");
    Ok(())
}
