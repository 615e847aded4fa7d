//! `memfit predict`: the class of each image, and how sure the model is.

use anyhow::Result;
use memfit::data::sources::ImageFiles;
use memfit::data::{LoadOptions, Loader, OnBad};
use memfit::nn::zoo::Task;
use memfit::train::views;
use serde_json::json;

use crate::args::PredictArgs;
use crate::data;
use crate::failure::{bad_data, usage};
use crate::run_dir::{Rows, Trained};
use crate::say::say;

/// At a time; more would only take more memory.
const BATCH: usize = 8;

pub fn predict(args: &PredictArgs, json: bool) -> Result<()> {
    if let Some(folder) = args.files.iter().find(|f| f.is_dir()) {
        return Err(usage(format!("{0} is a folder; name the images in it, such as {0}/*", folder.display())));
    }
    let rows = Rows::AtMost(BATCH.min(args.files.len().max(1)));
    let mut trained = Trained::open(&args.run_dir, rows, args.threads, json)?;
    let batch = trained.session.plan().batch;
    if trained.run.model.task() != Task::Classes {
        return Err(usage(format!("{} does not tell classes of images", trained.run.name)));
    }
    let pool = data::pool(&trained.spec);
    let files = ImageFiles::list(&args.files, &pool)?.channels(trained.channels()?).encoded();
    let names: Vec<String> = args.files.iter().map(|f| f.display().to_string()).collect();
    let data = data::images_alone(files, &trained.run, &trained.spec.data, batch)?;
    let options = LoadOptions { threads: trained.run.threads, bad: OnBad::Fail, ..LoadOptions::new(pool) };
    let mut loader = Loader::new(&data, options)?;
    let classes = trained.run.model.classes();
    let mut room = vec![0u8; trained.session.eval_bytes("logits")?];
    let mut next = 0;
    while let Some(batch) = loader.next()? {
        let mut rows = Vec::new();
        trained.session.eval(&views(&batch), "logits", &mut room, |_, bytes| {
            let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            rows.extend(numbers.chunks(classes).map(best));
            Ok(())
        })?;
        for (class, probability) in rows {
            let file = names.get(next).ok_or_else(|| bad_data("there are more images than files"))?;
            next += 1;
            let name = trained.class(class);
            if json {
                say!(
                    "{}",
                    json!({ "event": "prediction", "file": file, "class": name, "index": class, "probability": probability })
                );
            } else {
                say!("{file}  {name}  {:.2} %", probability * 100.0);
            }
        }
    }
    Ok(())
}

/// The most likely class and its probability.
fn best(logits: &[f32]) -> (usize, f64) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - most).exp()).sum();
    let at = logits.iter().position(|l| *l == most).unwrap_or(0);
    (at, 1.0 / sum)
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn the_most_likely_class_is_told_with_its_probability() {
        let (class, probability) = best(&[0.0, (3f32).ln(), 0.0]);
        assert_eq!(class, 1);
        assert!((probability - 0.6).abs() < 1e-6);
        assert_eq!(best(&[1000.0, 0.0]), (0, 1.0));
    }
}
