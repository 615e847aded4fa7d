//! From open sources to batches: what is done to a sample before it is shuffled, after, and to a batch of them.

use std::path::Path;
use std::sync::Arc;

use memfit::data::augment::{self, AugmentProblem, Augmentation, Crop, Normalise, Prepare, Step};
use memfit::data::image::Channels;
use memfit::data::{BytePool, Cache, Context, DataError, Dataset, Example, Prefetch, Remainder, Source, Tensor};
use memfit::ir::fingerprint;
use memfit::ir::{DType, TensorType};
use memfit::nn::Unit;
use memfit::nn::zoo::Task;
use memfit::train::Datasets;

use super::{DataSources, Kind, Schema, channels, sequence};
use crate::config::{DataConfig, RunConfig};
use crate::error::{Result, RunError};
use crate::resources::RunResources;
use crate::text::count;

/// Batches for training, and for evaluation in the plan's micro-batches.
pub fn datasets(sources: &DataSources, run: &RunResources, micro_batch: usize) -> Result<Datasets> {
    let steps = Steps::new(sources.kind, run)?;
    let train = samples(sources, run, &steps);
    let rows = sources.train.len();
    let train = train.shuffle(run.config.data.shuffle.unwrap_or(rows).min(rows).max(1));
    let (batch, replica) = (run.request.batch, run.request.exchange.replica);
    let (lanes, of_lane) = (replica.own_lanes(), batch / replica.lanes);
    let rows = lanes.start * of_lane..lanes.end * of_lane;
    let first_row = rows.start;
    let mut train = steps.normalised(steps.random(train).batch_rows(batch, rows, of_lane));
    if let Some(alpha) = run.config.data.mixup {
        train = train.map(augment::mixup_lanes(alpha, run.model.classes(), of_lane, first_row));
    }
    let test = sources.test.as_ref().map(|source| test_batches(sources.kind, source, run, micro_batch)).transpose()?;
    let test = test.map(|test| if replica.has_others() { test.shard(replica.count, replica.rank) } else { test });
    Ok(Datasets { train: train.prefetch(Prefetch::Auto), test: test.map(|test| test.prefetch(Prefetch::Auto)) })
}

/// The training set as it is before it is shuffled.
fn samples(sources: &DataSources, run: &RunResources, steps: &Steps) -> Dataset {
    let key = source_key(sources.kind, &sources.schema, &sources.survey.turned(), sources.facts.values, &run.config);
    let train = steps.fixed(Dataset::from_source(Shared { source: Arc::clone(&sources.train), key }));
    match run.config.data.cache.as_deref() {
        None | Some("off") => train,
        Some("memory") => train.cache(Cache::memory()),
        Some(path) => train.cache(Cache::disk(path)),
    }
}

/// What a cache in a file is of, and that file.
pub(crate) fn in_file<'a>(sources: &DataSources, run: &'a RunResources) -> Result<Option<(Dataset, &'a Path)>> {
    match run.config.data.cache.as_deref() {
        None | Some("off" | "memory") => Ok(None),
        Some(path) => Ok(Some((samples(sources, run, &Steps::new(sources.kind, run)?), Path::new(path)))),
    }
}

/// Batches for evaluation.
pub fn test_set(kind: Kind, source: &Arc<dyn Source>, run: &RunResources, batch: usize) -> Result<Dataset> {
    Ok(test_batches(kind, source, run, batch)?.prefetch(Prefetch::Auto))
}

fn test_batches(kind: Kind, source: &Arc<dyn Source>, run: &RunResources, batch: usize) -> Result<Dataset> {
    let steps = Steps::new(kind, run)?;
    let samples = Dataset::from_source(Shared { source: Arc::clone(source), key: 0 });
    Ok(steps.batch(steps.plain(samples), batch, Remainder::Keep))
}

/// Which row of its source a sample is, as a field of [`images_alone`] and [`rows_alone`]: some may be left out.
pub const ROW: &str = "row";

/// Of a picture, what the model sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What it sees of it in evaluation: the middle, where it was trained on parts.
    Evaluated,
    Whole,
}

/// Batches of images without labels.
pub fn images_alone(source: impl Source + 'static, part: Part, run: &RunResources, batch: usize) -> Result<Dataset> {
    let steps = Steps::new(Kind::Images, run)?;
    let samples = numbered(source);
    let samples = match part {
        Part::Evaluated => mapped(samples, 0, &steps.test),
        Part::Whole => mapped(samples, 0, &steps.whole),
    };
    Ok(steps.batch(samples, batch, Remainder::Keep).prefetch(Prefetch::Auto))
}

/// Batches of rows without labels, of arrays, a table or records.
pub fn rows_alone(kind: Kind, source: Arc<dyn Source>, run: &RunResources, batch: usize) -> Result<Dataset> {
    let steps = Steps::new(kind, run)?;
    let samples = mapped(mapped(numbered(source), 0, &steps.test), 0, &steps.input);
    Ok(steps.batch(samples, batch, Remainder::Keep).prefetch(Prefetch::Auto))
}

fn numbered(source: impl Source + 'static) -> Dataset {
    Dataset::from_source(source).map(|example, context| {
        let row = (context.element() as i32).to_le_bytes();
        Ok(example.with(ROW, Tensor::from_bytes(TensorType::i32([]), &row, context.pool)?))
    })
}

/// Of a table, what was found out or said of its header and its label, where they are not the usual: the folder of a run says
/// what its run file did not.
fn table_key(schema: &Schema) -> (Option<bool>, Option<String>) {
    let (header, usual, labels) = match &schema.columns {
        Some(columns) => (None, "label", columns.labels.clone()),
        None => (Some(false), "0", schema.labels.iter().map(usize::to_string).collect()),
    };
    (header, Some(labels.join("\n")).filter(|label| !label.is_empty() && label != usual))
}

/// What a run says about how files are read: a cache that was made of them otherwise is made anew.
fn source_key(kind: Kind, schema: &Schema, turned: &str, values: Option<usize>, config: &RunConfig) -> u64 {
    let masks = schema.masks.as_ref().map_or(String::new(), |masks| super::masks::to_json(masks).to_string());
    let DataConfig { features, token, .. } = &config.data;
    let (header, label) = match kind {
        Kind::Csv => table_key(schema),
        _ => (config.data.header, config.data.label.first().cloned()),
    };
    let of_model = match kind {
        Kind::Tokens | Kind::Text => format!("{}", sequence(config)),
        Kind::Masks => format!("{:?} {masks}", channels(config)),
        // What a record is read as depends on what reads it.
        Kind::TfRecord => format!("{:?}", super::features(config)),
        Kind::Npz => turned.into(),
        Kind::Digits | Kind::Images | Kind::Csv => String::new(),
    };
    // Where neither is said, this is what it was before there were any.
    let goal = match (&config.data.sample_weight, values) {
        (None, None) => String::new(),
        said => format!(" {said:?}"),
    };
    fingerprint(&format!("{kind:?} {label:?} {features:?} {header:?} {token:?} {of_model}{goal}"))
}

/// A source that several datasets have.
struct Shared {
    source: Arc<dyn Source>,
    key: u64,
}

impl Source for Shared {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> memfit::data::Result<Example> {
        self.source.read_row(index, pool)
    }

    fn location(&self, index: usize) -> String {
        self.source.location(index)
    }

    fn fingerprint(&self) -> u64 {
        self.source.fingerprint() ^ self.key
    }
}

/// What is done to a sample between source and batch: first what is always the same, then what is random, then the rest.
/// Evaluation leaves out what is random.
#[derive(Default)]
struct Steps {
    fixed: Vec<Step>,
    /// What the fixed steps were made with: a kept cache is made anew when it changes.
    fixed_key: u64,
    random: Vec<Step>,
    /// To what the model reads.
    input: Vec<Step>,
    label: Vec<Step>,
    /// Behind all others, in training alone.
    weigh: Vec<Step>,
    /// What stands in place of the fixed steps in evaluation.
    test: Vec<Step>,
    /// And where nothing of a picture may be cut off.
    whole: Vec<Step>,
    /// Of images, for a whole batch: until then pixels are bytes, which are quicker to copy.
    normalise: Option<Normalise>,
}

impl Steps {
    fn new(kind: Kind, run: &RunResources) -> Result<Steps> {
        let input = run.model.input()?;
        let mut steps = Steps::default();
        match (kind, &input[..]) {
            (Kind::Images | Kind::Masks | Kind::TfRecord, &[height, width, channels]) => {
                steps.images([height, width], channels, &run.config.data)?;
            }
            (_, _) if !run.config.data.augment.is_empty() => {
                return Err(RunError::conflict("data.augment is for images, which these data are not"));
            }
            (Kind::Images | Kind::Masks, _) => {
                return Err(RunError::conflict(format!("{} does not read images; its input is {input:?}", run.name)));
            }
            (_, _) => {}
        }
        if steps.normalise.is_none() {
            let dtype = if run.model.task() == Task::Tokens { DType::I32 } else { DType::F32 };
            let wanted = TensorType::new(dtype, input);
            steps.input.push(Arc::new(move |example, context| shaped(example, &wanted, context)));
        }
        if run.model.task() == Task::Classes {
            let classes = run.model.classes();
            steps.label.push(Arc::new(move |example, context| labelled(example, classes, context)));
        }
        if run.model.task() == Task::Values {
            let count = run.model.classes();
            steps.label.push(Arc::new(move |example, context| valued(example, count, context)));
        }
        steps.weigh(run);
        Ok(steps)
    }

    /// What is of training alone: targets in their units, and weights.
    fn weigh(&mut self, run: &RunResources) {
        if !run.units.is_empty() {
            let units = run.units.clone();
            self.weigh.push(Arc::new(move |example, _| standardised(example, &units)));
        }
        if let Some(weights) = &run.class_weights {
            let weights = Arc::clone(weights);
            self.weigh.push(Arc::new(move |example, context| weighted(example, &weights, context)));
        }
        if run.config.data.sample_weight.is_some() {
            self.test.push(Arc::new(|example, _| Ok(without_weight(example))));
            self.weigh.push(Arc::new(checked_weight));
        }
    }

    fn images(&mut self, size: [usize; 2], channels: usize, config: &DataConfig) -> Result<()> {
        let channels = match channels {
            1 => Channels::Grey,
            3 => Channels::Rgb,
            n => return Err(RunError::conflict(format!("images have 1 or 3 channels, but the model's input has {n}"))),
        };
        let random_crop = config.augment.iter().find_map(Augmentation::crop);
        let crops = random_crop.is_some();
        let prepare = |crop| -> Step {
            let prepare = Prepare { channels, crop, ..Prepare::to(size) };
            Arc::new(move |example, context| prepare.run(example, context))
        };
        match random_crop {
            Some(crop) => self.random.push(prepare(crop)),
            None => self.fixed.push(prepare(Crop::Whole)),
        }
        self.fixed_key = fingerprint(&format!("{size:?} {channels:?} {crops}"));
        self.whole.push(prepare(Crop::Whole));
        self.test.push(prepare(if crops { Crop::Centre { fraction: 0.875 } } else { Crop::Whole }));
        let all = |given: &Option<Vec<f32>>, usual: f32| match given {
            Some(numbers) if numbers.len() == 1 => vec![numbers[0]; channels.count()],
            Some(numbers) => numbers.clone(),
            None => vec![usual; channels.count()],
        };
        let (mean, std) = (all(&config.mean, 0.0), all(&config.std, 1.0));
        if mean.len() != channels.count() || std.len() != channels.count() {
            return Err(RunError::conflict(format!(
                "data.mean and data.std need {}, one for each channel",
                count(channels.count(), "number")
            )));
        }
        // What becomes zero when it is normalised.
        let fill = std::array::from_fn(|channel| (255.0 * mean.get(channel).unwrap_or(&mean[0])).round() as u8);
        for said in config.augment.iter().filter(|said| said.crop().is_none()) {
            let problem = |problem: AugmentProblem| RunError::of_key("data", "augment", format!("has {problem}"));
            self.random.push(said.step(size, fill).map_err(problem)?);
        }
        self.normalise = Some(Normalise::new(&mean, &std)?);
        Ok(())
    }

    fn fixed(&self, data: Dataset) -> Dataset {
        mapped(data, self.fixed_key, &self.fixed)
    }

    fn random(&self, data: Dataset) -> Dataset {
        mapped(self.read(mapped(data, 0, &self.random)), 0, &self.weigh)
    }

    fn plain(&self, data: Dataset) -> Dataset {
        self.read(mapped(data, 0, &self.test))
    }

    fn read(&self, data: Dataset) -> Dataset {
        mapped(data, 0, &[&self.input[..], &self.label[..]].concat())
    }

    fn batch(&self, data: Dataset, size: usize, remainder: Remainder) -> Dataset {
        self.normalised(data.batch(size, remainder))
    }

    /// Batches, with their pixels as numbers.
    fn normalised(&self, data: Dataset) -> Dataset {
        match &self.normalise {
            Some(normalise) => data.map(augment::normalise(normalise.clone())),
            None => data,
        }
    }
}

fn mapped(data: Dataset, key: u64, steps: &[Step]) -> Dataset {
    if steps.is_empty() {
        return data;
    }
    let steps = steps.to_vec();
    data.map_keyed(key, move |example, context| steps.iter().try_fold(example, |example, step| step(example, context)))
}

/// The sample as the model reads it: extents of 1 may come and go, a model of rows reads any sample as one, and pixels
/// become 0 to 1. Any other shape of as many numbers would only look right.
fn shaped(mut example: Example, wanted: &TensorType, context: &Context) -> memfit::data::Result<Example> {
    let x = example.get_mut("x")?;
    if x.ty() == wanted {
        return Ok(example);
    }
    if !same_numbers(&x.ty().shape, &wanted.shape) {
        let given = x.ty();
        let cure = if given.elements() == wanted.elements() {
            "bring its axes into that order (height, width, channels) before they are saved, in NumPy with np.transpose"
        } else {
            "give model.input, or other data"
        };
        return Err(DataError::bad(
            context.location(),
            format!("a sample is {given}, but the model reads {wanted}; {cure}"),
        ));
    }
    let mut shaped = Tensor::zeros(wanted.clone(), context.pool)?;
    match (x.ty().dtype, wanted.dtype) {
        (given, wanted) if given == wanted => shaped.bytes_mut().copy_from_slice(x.bytes()),
        (DType::U8, DType::F32) => {
            shaped.f32s_mut().iter_mut().zip(x.bytes()).for_each(|(to, from)| *to = f32::from(*from) / 255.0);
        }
        (given, wanted) => {
            let problem = format!("a sample has {given} numbers, but the model reads {wanted}");
            return Err(DataError::bad(context.location(), problem));
        }
    }
    *x = shaped;
    Ok(example)
}

/// Whether numbers in one shape mean the same in the other.
fn same_numbers(given: &[usize], wanted: &[usize]) -> bool {
    let without_ones = |shape: &[usize]| -> Vec<usize> { shape.iter().copied().filter(|n| *n != 1).collect() };
    let flat = wanted.len() == 1 && given.iter().product::<usize>() == wanted[0];
    flat || without_ones(given) == without_ones(wanted)
}

/// A class that the model does not have would only show in the middle of a step. Small integers become i32.
fn labelled(mut example: Example, classes: usize, context: &Context) -> memfit::data::Result<Example> {
    let y = example.get_mut("y")?;
    if let (DType::U8, [label]) = (y.ty().dtype, y.bytes()) {
        *y = Tensor::from_bytes(TensorType::i32([]), &i32::from(*label).to_le_bytes(), context.pool)?;
    } else if y.ty() == &TensorType::i32([1]) {
        *y = Tensor::from_bytes(TensorType::i32([]), y.bytes(), context.pool)?;
    }
    let y = example.get("y")?;
    let label: Option<&i32> = bytemuck::try_cast_slice(y.bytes()).ok().and_then(|labels: &[i32]| labels.first());
    match label {
        Some(&label) if y.ty() == &TensorType::i32([]) => match usize::try_from(label) {
            Ok(n) if n < classes => Ok(example),
            Ok(_) => Err(DataError::bad(
                context.location(),
                format!("its label is {label}, outside of 0..{classes}; give model.classes, or mend the data"),
            )),
            Err(_) => Err(DataError::bad(
                context.location(),
                format!("its label is {label}, and classes are 0, 1, …; number them so, or leave it out"),
            )),
        },
        _ => Err(DataError::bad(context.location(), format!("its label is {}, not one class", y.ty()))),
    }
}

/// Numbers that are to be predicted, as the model has them side by side.
fn valued(mut example: Example, count: usize, context: &Context) -> memfit::data::Result<Example> {
    let y = example.get_mut("y")?;
    let wanted = TensorType::f32([count]);
    if y.ty().dtype != DType::F32 || y.ty().elements() != count {
        let problem = format!("its label is {}, and the model predicts {count}", y.ty());
        return Err(DataError::bad(context.location(), problem));
    }
    if let Some(value) = y.f32s().iter().find(|value| !value.is_finite()) {
        return Err(DataError::bad(context.location(), format!("its label is {value}, not a finite number")));
    }
    if *y.ty() != wanted {
        *y = Tensor::from_bytes(wanted, y.bytes(), context.pool)?;
    }
    Ok(example)
}

/// Targets as the model gives them.
fn standardised(mut example: Example, units: &[Unit]) -> memfit::data::Result<Example> {
    for (value, unit) in example.get_mut("y")?.f32s_mut().iter_mut().zip(units) {
        *value = unit.standardised(f64::from(*value)) as f32;
    }
    Ok(example)
}

/// With the weights of its classes, one for each label; times the sample's own.
fn weighted(mut example: Example, weights: &[f32], context: &Context) -> memfit::data::Result<Example> {
    let own = match example.get("w") {
        Ok(own) => own.f32s().first().copied().unwrap_or(1.0),
        Err(_) => 1.0,
    };
    let labels = example.get("y")?;
    let mut all = Tensor::zeros(TensorType::f32(labels.ty().shape.to_vec()), context.pool)?;
    for (weight, label) in all.f32s_mut().iter_mut().zip(labels.bytes().as_chunks().0) {
        let class = usize::try_from(i32::from_le_bytes(*label)).unwrap_or(usize::MAX);
        *weight = own * weights.get(class).copied().unwrap_or(1.0);
    }
    example = without_weight(example);
    Ok(example.with("w", all))
}

/// Evaluation counts all samples alike.
fn without_weight(mut example: Example) -> Example {
    example.fields.retain(|(name, _)| name != "w");
    example
}

/// A weight that is none would only show as a loss that is no number.
fn checked_weight(mut example: Example, context: &Context) -> memfit::data::Result<Example> {
    let w = example.get_mut("w")?;
    if let Some(weight) = w.f32s().iter().find(|weight| !(weight.is_finite() && **weight >= 0.0)) {
        return Err(DataError::bad(context.location(), format!("its weight is {weight}, and weights are 0 or more")));
    }
    if w.ty().shape.to_vec() == [1] {
        *w = Tensor::from_bytes(TensorType::f32([]), w.bytes(), context.pool)?;
    }
    Ok(example)
}

#[cfg(test)]
mod tests {
    use super::super::Columns;
    use super::*;

    #[test]
    fn a_sample_is_never_read_in_another_order_of_its_axes() {
        for (given, wanted, same) in [
            (&[28, 28][..], &[28, 28, 1][..], true),
            (&[1, 28, 28], &[28, 28, 1], true),
            (&[28, 28, 1], &[784], true),
            (&[8], &[8, 1], true),
            (&[3, 32, 32], &[32, 32, 3], false),
            (&[784], &[28, 28, 1], false),
            (&[2, 8], &[4, 4], false),
            (&[9], &[8], false),
        ] {
            assert_eq!(same_numbers(given, wanted), same, "{given:?} {wanted:?}");
        }
    }

    #[test]
    fn records_that_are_read_as_something_else_are_other_data() {
        let of = |name: &str, input: Option<Vec<usize>>| {
            let mut config = RunConfig::default();
            config.set("model", "name", name).expect("a text");
            if let Some(sizes) = input {
                let sizes: Vec<i64> = sizes.into_iter().map(|n| n as i64).collect();
                config.set("model", "input", sizes).expect("sizes");
            }
            source_key(Kind::TfRecord, &Schema::default(), "", None, &config)
        };
        assert_eq!(of("resnet18", None), of("resnet34", Some(vec![32, 32, 3])), "pictures are scaled later");
        assert_ne!(of("mlp", Some(vec![8])), of("resnet18", None));
        assert_ne!(of("mlp", Some(vec![8])), of("mlp", Some(vec![9])));
    }

    #[test]
    fn a_table_is_the_same_data_whether_its_label_was_said_or_found_out() {
        let found = Schema { labels: vec![2], ..Schema::default() };
        let mut said = RunConfig::default();
        said.set("data", "header", false).expect("a flag");
        said.set("data", "label", "2").expect("a text");
        let key = |schema: &Schema, config: &RunConfig| source_key(Kind::Csv, schema, "", None, config);
        assert_eq!(key(&found, &RunConfig::default()), key(&found, &said));
        let named = |label: &str| {
            let columns = Columns { labels: vec![label.into()], features: Vec::new() };
            key(&Schema { columns: Some(columns), ..Schema::default() }, &RunConfig::default())
        };
        assert_ne!(key(&found, &said), key(&Schema { labels: vec![0], ..Schema::default() }, &said));
        assert_ne!(named("label"), named("2"));
        assert_ne!(named("2"), key(&found, &said));
    }
}
