//! From what a run says about its data to datasets: the sources are opened, what they say about the model is asked, and
//! then each sample is brought into the shape that the model reads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use memfit::data::augment::{self, Crop, Normalise, Prepare};
use memfit::data::image::Channels;
use memfit::data::sources::{
    Arrays, Column, Csv, CsvLayout, Feature, ImageFolder, Kind as FeatureKind, Label, Masks, SegmentationPairs,
    TfRecord, TokenWidth, Tokens, Windows, hold_out,
};
use memfit::data::{BytePool, Cache, Context, DataError, Dataset, Example, Prefetch, Remainder, Source, Tensor};
use memfit::ir::philox::name_key;
use memfit::ir::{DType, TensorType};
use memfit::nn::zoo::Task;
use memfit::train::Datasets;

use crate::digits;
use crate::failure::usage;
use crate::run::{Facts, Run};
use crate::spec::{DataSpec, Spec};

/// For everything that the pipeline holds, where nothing was said.
pub const HOST_BUDGET: u64 = 512 << 20;
/// The share of the samples that is held out where there is no test set and nothing was said.
const HELD_OUT: f32 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Digits,
    Images,
    Masks,
    Csv,
    Npz,
    TfRecord,
    Tokens,
    Text,
}

/// Sources that are open, and what is known of them.
pub struct Opened {
    pub kind: Kind,
    pub train: Arc<dyn Source>,
    pub test: Option<Arc<dyn Source>>,
    pub facts: Facts,
    /// What the classes are called, where they have names.
    pub classes: Vec<String>,
}

/// What the data says about the model; nothing where no data was named.
pub fn facts(spec: &Spec) -> Result<Facts> {
    if spec.data.train.is_none() {
        return Ok(Facts::default());
    }
    let pool = BytePool::new(spec.memory.host_budget.unwrap_or(HOST_BUDGET));
    Ok(open(spec, &pool)?.facts)
}

pub fn open(spec: &Spec, pool: &BytePool) -> Result<Opened> {
    let kind = kind(spec)?;
    if kind == Kind::Digits {
        let DataSpec { train, test, hold_out, .. } = &spec.data;
        let said = [("train", train.is_some()), ("test", test.is_some()), ("hold_out", hold_out.is_some())];
        return match said.iter().find(|(_, said)| *said) {
            Some((key, _)) => Err(usage(format!("the digits are built in; leave out data.{key}, or data.kind"))),
            None => no_idle_keys(kind, &spec.data).and_then(|()| digits::open()),
        };
    }
    no_idle_keys(kind, &spec.data)?;
    let path = |what: &Option<PathBuf>| what.clone();
    let Some(train) = path(&spec.data.train) else {
        return Err(usage(format!("data.kind is {kind:?}, but data.train does not say where it is").to_lowercase()));
    };
    let (source, facts, classes) = source(kind, &train, spec, &[], pool)?;
    let (train, test): (Arc<dyn Source>, Option<Arc<dyn Source>>) = match &spec.data.test {
        Some(path) => {
            let (test, of_test, _) = self::source(kind, path, spec, &classes, pool)?;
            same_facts(&facts, &of_test, path)?;
            (source, Some(test))
        }
        None => match spec.data.hold_out.unwrap_or(HELD_OUT) {
            0.0 => (source, None),
            share => {
                let rows = source.len();
                let (kept, held) = hold_out(source, share.into()).map_err(|_| too_few(&train, share, rows))?;
                (Arc::new(kept), Some(Arc::new(held)))
            }
        },
    };
    Ok(Opened { kind, train, test, facts, classes })
}

/// A key that does nothing is a mistake, or a wish that is not heard.
fn no_idle_keys(kind: Kind, spec: &DataSpec) -> Result<()> {
    let images = [Kind::Images, Kind::Masks, Kind::TfRecord];
    let arrays = [Kind::Npz, Kind::TfRecord];
    let labelled = [Kind::Csv, Kind::Npz, Kind::TfRecord];
    let keys = [
        ("mean", spec.mean.is_some(), &images[..], "images"),
        ("std", spec.std.is_some(), &images, "images"),
        ("augment", !spec.augment.is_empty(), &images, "images"),
        ("label", spec.label.is_some(), &labelled, "csv, npz and tfrecord"),
        ("features", spec.features.is_some(), &arrays, "npz and tfrecord"),
        ("header", spec.header.is_some(), &[Kind::Csv], "csv"),
        ("token", spec.token.is_some(), &[Kind::Tokens], "tokens"),
    ];
    if let Some((key, _, _, of)) = keys.iter().find(|(_, said, kinds, _)| *said && !kinds.contains(&kind)) {
        let kind = format!("{kind:?}").to_lowercase();
        return Err(usage(format!("data.{key} is for {of}, and these data are {kind}; leave it out")));
    }
    if spec.test.is_some() && spec.hold_out.is_some_and(|share| share > 0.0) {
        return Err(usage("data.hold_out is for runs without data.test; leave out one of them"));
    }
    Ok(())
}

/// As it was said, or as the path looks.
fn kind(spec: &Spec) -> Result<Kind> {
    const KINDS: [(&str, Kind); 8] = [
        ("digits", Kind::Digits),
        ("images", Kind::Images),
        ("masks", Kind::Masks),
        ("csv", Kind::Csv),
        ("npz", Kind::Npz),
        ("tfrecord", Kind::TfRecord),
        ("tokens", Kind::Tokens),
        ("text", Kind::Text),
    ];
    if let Some(said) = &spec.data.kind {
        let known = KINDS.iter().find(|(name, _)| name == said).map(|(_, kind)| *kind);
        return known.ok_or_else(|| usage(format!("there is no kind of data \"{said}\"")));
    }
    let Some(path) = &spec.data.train else {
        let model = spec.model.name.as_deref().unwrap_or("digits");
        return match model {
            "digits" => Ok(Kind::Digits),
            other => Err(usage(format!(
                "{other} needs data: give --data PATH or a run file (`memfit init`); only digits has its data built in"
            ))),
        };
    };
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let ends = |with: &[&str]| with.iter().any(|e| name.ends_with(e));
    Ok(match () {
        () if path.join("images").is_dir() && path.join("masks").is_dir() => Kind::Masks,
        () if path.is_dir() => Kind::Images,
        () if ends(&[".csv", ".tsv"]) => Kind::Csv,
        () if ends(&[".npz"]) => Kind::Npz,
        () if ends(&[".txt"]) => Kind::Text,
        () if ends(&[".bin", ".tokens"]) => Kind::Tokens,
        () if name.contains("tfrecord") => Kind::TfRecord,
        () if !path.exists() => return Err(bad_path(path, "there is no such file or folder")),
        () => return Err(bad_path(path, "cannot tell what this is from its name; say data.kind in a run file")),
    })
}

fn too_few(path: &Path, share: f32, rows: usize) -> anyhow::Error {
    let (held, s) = (f64::from(share) * rows as f64 >= 1.0, if rows == 1 { "" } else { "s" });
    let left = if held { "nothing is left to train on" } else { "not one would be held out" };
    let cure = "give more data, a test set (data.test), or data.hold_out = 0";
    bad_path(path, &format!("of its {rows} sample{s} a share of {share} is to be held out, and {left}; {cure}"))
}

fn bad_path(path: &Path, problem: &str) -> anyhow::Error {
    DataError::source(path.display(), problem).into()
}

type Known = (Arc<dyn Source>, Facts, Vec<String>);

/// Opens a source, and asks it what it knows. If others have settled which classes or characters there are, those are
/// its own.
fn source(kind: Kind, path: &Path, spec: &Spec, settled: &[String], pool: &BytePool) -> Result<Known> {
    let mut facts = Facts::default();
    let mut classes = Vec::new();
    let source: Arc<dyn Source> = match kind {
        Kind::Digits => return Err(usage("the digits are built in; leave out data.train")),
        Kind::Images => {
            let folder = match settled {
                [] => ImageFolder::open(path, pool)?,
                settled => ImageFolder::open_with(path, settled, pool)?,
            };
            let folder = folder.encoded();
            classes = folder.classes().to_vec();
            facts.classes = Some(classes.len());
            Arc::new(folder)
        }
        Kind::Masks => {
            facts.classes = Some(1);
            Arc::new(SegmentationPairs::open(path, Masks::Grey, pool)?.channels(channels(spec)))
        }
        Kind::Csv => {
            let csv = Csv::open(path, layout(path, &spec.data), pool)?;
            facts.sample = Some(vec![csv.columns().len() - 1]);
            if spec.model.classes.is_none() {
                facts.classes = Some(csv.classes(pool)?);
            }
            Arc::new(csv)
        }
        Kind::Npz => {
            let (x, y) = (spec.data.features.as_deref().unwrap_or("x"), spec.data.label.as_deref().unwrap_or("y"));
            let arrays = Arrays::npz(path, &[("x", x), ("y", y)], pool)?;
            facts.sample = arrays.row("x").and_then(|row| sample(&row.shape, spec.model.name.as_deref()));
            Arc::new(arrays)
        }
        Kind::TfRecord => Arc::new(TfRecord::glob(&path.to_string_lossy(), features(spec), pool)?),
        Kind::Tokens => {
            let width = match spec.data.token.as_deref() {
                Some("u8") => TokenWidth::U8,
                Some("u32") => TokenWidth::U32,
                _ => TokenWidth::U16,
            };
            let vocabulary = spec.model.vocabulary.unwrap_or(memfit::nn::zoo::Gpt::default().vocabulary);
            Arc::new(Tokens::binary(path, width, vocabulary, Windows::of(sequence(spec)))?)
        }
        Kind::Text => {
            let windows = Windows::of(sequence(spec));
            let alphabet: Vec<char> = settled.iter().filter_map(|name| name.chars().next()).collect();
            let text = match &alphabet[..] {
                [] => Tokens::characters(path, windows, pool)?,
                alphabet => Tokens::characters_with(path, alphabet, windows, pool)?,
            };
            // Told now rather than when the first epoch is over.
            if spec.data.skip_bad != Some(true) {
                text.check_known()?;
            }
            classes = text.alphabet().iter().map(char::to_string).collect();
            facts.classes = Some(text.vocabulary());
            Arc::new(text)
        }
    };
    Ok((source, facts, classes))
}

/// What a model reads of samples of this shape: all numbers in a row, or an image. None where they are neither.
fn sample(shape: &[usize], model: Option<&str>) -> Option<Vec<usize>> {
    match (model, shape) {
        (Some("mlp"), shape) => Some(vec![shape.iter().product()]),
        (Some("gpt"), _) => None,
        (_, &[height, width]) => Some(vec![height, width, 1]),
        (_, &[height, width, channels @ (1 | 3)]) => Some(vec![height, width, channels]),
        (_, _) => None,
    }
}

fn same_facts(train: &Facts, test: &Facts, path: &Path) -> Result<()> {
    match train.sample == test.sample {
        true => Ok(()),
        false => Err(bad_path(path, "its samples have another size than those of the training set")),
    }
}

fn sequence(spec: &Spec) -> usize {
    let input = spec.model.input.as_ref().and_then(|i| i.first().copied());
    spec.model.sequence.or(input).unwrap_or(memfit::nn::zoo::Gpt::default().sequence)
}

/// Grey for models of one channel.
fn channels(spec: &Spec) -> Channels {
    let one = spec.model.input.as_ref().is_some_and(|i| i.get(2) == Some(&1));
    if one { Channels::Grey } else { Channels::Rgb }
}

fn layout(path: &Path, spec: &DataSpec) -> CsvLayout {
    let separator = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv")) { b'\t' } else { b',' };
    let header = spec.header.unwrap_or(true);
    let column = match spec.label.as_deref() {
        Some(name) => name.parse().map_or(Column::Name(name.to_string()), Column::Number),
        None if header => Column::Name("label".to_string()),
        None => Column::Number(0),
    };
    CsvLayout { header, separator, label: Some(Label::Class(column)) }
}

/// Of a record: an encoded image and a class, or numbers for a model that reads rows of them.
fn features(spec: &Spec) -> Vec<Feature> {
    let input = spec.data.features.as_deref().unwrap_or("image/encoded");
    let label = spec.data.label.as_deref().unwrap_or("image/class/label");
    let kind = match (spec.model.name.as_deref(), &spec.model.input) {
        (Some("mlp"), Some(sizes)) => FeatureKind::Floats(sizes.clone()),
        (_, _) => FeatureKind::Encoded,
    };
    vec![Feature::new(input, "x", kind), Feature::new(label, "y", FeatureKind::Ints(vec![]))]
}

// ---- pipelines -------------------------------------------------------------------------------------------------------

/// Batches for training, and for evaluation in the plan's micro-batches.
pub fn datasets(opened: &Opened, run: &Run, spec: &Spec, micro_batch: usize) -> Result<Datasets> {
    let steps = Steps::new(opened.kind, run, &spec.data)?;
    let train = Dataset::from_source(Shared { source: Arc::clone(&opened.train), key: source_key(opened.kind, spec) });
    let train = match spec.data.cache.as_deref() {
        None | Some("off") => steps.fixed(train),
        Some("memory") => steps.fixed(train).cache(Cache::memory()),
        Some(path) => steps.fixed(train).cache(Cache::disk(path)),
    };
    let rows = opened.train.len();
    let train = train.shuffle(spec.data.shuffle.unwrap_or(rows).min(rows).max(1));
    let mut train = steps.random(train).batch(run.request.batch, Remainder::Drop);
    if let Some(alpha) = spec.data.mixup {
        train = train.map(augment::mixup(alpha, run.model.classes()));
    }
    let test = opened.test.as_ref().map(|source| {
        let samples = Dataset::from_source(Shared { source: Arc::clone(source), key: 0 });
        steps.plain(samples).batch(micro_batch, Remainder::Keep).prefetch(Prefetch::Auto)
    });
    Ok(Datasets { train: train.prefetch(Prefetch::Auto), test })
}

/// Other data of the kind of a run, all of it for evaluation. Classes are those of the run.
pub fn open_alone(spec: &Spec, path: &Path, classes: &[String], pool: &BytePool) -> Result<Opened> {
    let kind = kind(spec)?;
    // What is bad shows at once, when it is read: whether it is left out is the loader's matter.
    let spec = Spec { data: DataSpec { skip_bad: Some(true), ..spec.data.clone() }, ..spec.clone() };
    let (source, facts, _) = source(kind, path, &spec, classes, pool)?;
    Ok(Opened { kind, train: Arc::clone(&source), test: Some(source), facts, classes: classes.to_vec() })
}

/// Batches of images without labels, as evaluation sees them. The model reads a label that means nothing.
pub fn images_alone(source: impl Source + 'static, run: &Run, spec: &DataSpec, batch: usize) -> Result<Dataset> {
    let samples = Dataset::from_source(source).map(|example, context| {
        let label = Tensor::zeros(TensorType::i32([]), context.pool)?;
        Ok(example.with("y", label))
    });
    let steps = Steps::new(Kind::Images, run, spec)?;
    Ok(steps.plain(samples).batch(batch, Remainder::Keep).prefetch(Prefetch::Auto))
}

/// What a run says about how files are read: a cache that was made of them otherwise is made anew.
fn source_key(kind: Kind, spec: &Spec) -> u64 {
    let DataSpec { label, features, header, token, .. } = &spec.data;
    let of_model = match kind {
        Kind::Tokens | Kind::Text => format!("{}", sequence(spec)),
        Kind::Masks => format!("{:?}", channels(spec)),
        Kind::Digits | Kind::Images | Kind::Csv | Kind::Npz | Kind::TfRecord => String::new(),
    };
    name_key(&format!("{kind:?} {label:?} {features:?} {header:?} {token:?} {of_model}"))
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

    fn read(&self, index: usize, pool: &BytePool) -> memfit::data::Result<Example> {
        self.source.read(index, pool)
    }

    fn place(&self, index: usize) -> String {
        self.source.place(index)
    }

    fn fingerprint(&self) -> u64 {
        self.source.fingerprint() ^ self.key
    }
}

type Step = Arc<dyn Fn(Example, &Context) -> memfit::data::Result<Example> + Send + Sync>;

/// What is done to a sample between source and batch: first what is always the same, then what is random, then the rest.
/// Evaluation leaves out what is random.
struct Steps {
    fixed: Vec<Step>,
    /// What the fixed steps were made with: a kept cache is made anew when it changes.
    fixed_key: u64,
    random: Vec<Step>,
    last: Vec<Step>,
    /// What stands in place of the fixed steps in evaluation.
    test: Vec<Step>,
}

impl Steps {
    fn new(kind: Kind, run: &Run, spec: &DataSpec) -> Result<Steps> {
        let input = run.model.input().map_err(usage)?;
        let (fixed, random, last, test) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut steps = Steps { fixed, fixed_key: 0, random, last, test };
        match (kind, &input[..]) {
            (Kind::Images | Kind::Masks | Kind::TfRecord, &[height, width, channels]) => {
                steps.images([height, width], channels, spec)?;
            }
            (_, _) if !spec.augment.is_empty() => {
                return Err(usage("data.augment is for images, which these data are not"));
            }
            (Kind::Images | Kind::Masks, _) => {
                return Err(usage(format!("{} does not read images; its input is {input:?}", run.name)));
            }
            (_, _) => {}
        }
        let wanted = TensorType::new(if run.model.task() == Task::Tokens { DType::I32 } else { DType::F32 }, input);
        steps.last.push(Arc::new(move |example, context| shaped(example, &wanted, context)));
        if run.model.task() == Task::Classes {
            let classes = run.model.classes();
            steps.last.push(Arc::new(move |example, context| labelled(example, classes, context)));
        }
        Ok(steps)
    }

    fn images(&mut self, size: [usize; 2], channels: usize, spec: &DataSpec) -> Result<()> {
        let channels = match channels {
            1 => Channels::Grey,
            3 => Channels::Rgb,
            n => return Err(usage(format!("images have 1 or 3 channels, but the model's input has {n}"))),
        };
        let crops = spec.augment.iter().any(|a| a == "crop");
        let prepare = |crop| -> Step {
            let prepare = Prepare { channels, crop, ..Prepare::to(size) };
            Arc::new(move |example, context| prepare.run(example, context))
        };
        match crops {
            true => self.random.push(prepare(Crop::RANDOM)),
            false => self.fixed.push(prepare(Crop::Whole)),
        }
        self.fixed_key = name_key(&format!("{size:?} {channels:?} {crops}"));
        self.test.push(prepare(if crops { Crop::Centre { part: 0.875 } } else { Crop::Whole }));
        for said in spec.augment.iter().filter(|a| *a != "crop") {
            self.random.push(augmentation(said, size)?);
        }
        let all = |given: &Option<Vec<f32>>, usual: f32| match given {
            Some(numbers) if numbers.len() == 1 => vec![numbers[0]; channels.count()],
            Some(numbers) => numbers.clone(),
            None => vec![usual; channels.count()],
        };
        let (mean, std) = (all(&spec.mean, 0.0), all(&spec.std, 1.0));
        if mean.len() != channels.count() || std.len() != channels.count() {
            return Err(usage(format!(
                "data.mean and data.std need {} numbers, one for each channel",
                channels.count()
            )));
        }
        self.last.push(Arc::new(augment::normalise(Normalise::new(&mean, &std)?)));
        Ok(())
    }

    fn fixed(&self, data: Dataset) -> Dataset {
        mapped(data, self.fixed_key, &self.fixed)
    }

    fn random(&self, data: Dataset) -> Dataset {
        mapped(mapped(data, 0, &self.random), 0, &self.last)
    }

    fn plain(&self, data: Dataset) -> Dataset {
        mapped(mapped(data, 0, &self.test), 0, &self.last)
    }
}

fn mapped(data: Dataset, key: u64, steps: &[Step]) -> Dataset {
    if steps.is_empty() {
        return data;
    }
    let steps = steps.to_vec();
    data.map_keyed(key, move |example, context| steps.iter().try_fold(example, |example, step| step(example, context)))
}

const AUGMENTATIONS: [&str; 8] =
    ["crop", "pad-crop", "flip", "flip-vertical", "rotate", "brightness", "contrast", "cutout"];

/// One augmentation by its name, with its number behind a colon where it has one.
fn augmentation(said: &str, size: [usize; 2]) -> Result<Step> {
    let (name, number) = said.split_once(':').map_or((said, None), |(name, number)| (name, Some(number)));
    let parsed = number.map(|n| n.trim().parse::<f32>().ok().filter(|x| x.is_finite() && *x >= 0.0));
    let amount = |usual: f32| match parsed {
        None => Ok(usual),
        Some(Some(number)) => Ok(number),
        Some(None) => Err(usage(format!("data.augment \"{said}\": what stands behind the colon must be a number"))),
    };
    // Of pixels: a part of the image, or all of it.
    let most = size[0].max(size[1]);
    let pixels = |usual: usize| match number.map(|n| n.trim().parse::<usize>().ok().filter(|n| *n <= most)) {
        None => Ok(usual),
        Some(Some(number)) => Ok(number),
        Some(None) => Err(usage(format!(
            "data.augment \"{said}\": what stands behind the colon must be a whole number of pixels, at most {most}"
        ))),
    };
    if number.is_some() && matches!(name, "crop" | "flip" | "flip-vertical") {
        return Err(usage(format!("data.augment \"{said}\": {name} takes no number; write \"{name}\"")));
    }
    Ok(match name {
        "flip" => Arc::new(augment::flip_horizontal()),
        "flip-vertical" => Arc::new(augment::flip_vertical()),
        "pad-crop" => Arc::new(augment::random_crop_padded(size, pixels(4)?)),
        "rotate" => Arc::new(augment::rotate(amount(15.0)?)),
        "brightness" => Arc::new(augment::brightness(amount(0.2)?)),
        "contrast" => Arc::new(augment::contrast(amount(0.2)?)),
        "cutout" => Arc::new(augment::cutout(pixels(16)?)),
        _ => {
            let meant = memfit::nn::error::nearest(&AUGMENTATIONS, name);
            let meant = meant.map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"));
            let known = AUGMENTATIONS.join(", ");
            return Err(usage(format!("there is no augmentation \"{name}\"{meant}; there are {known}")));
        }
    })
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
        let cure = match given.elements() == wanted.elements() {
            true => "write the data with its axes in that order (height, width, channels), or give model.input",
            false => "give model.input, or other data",
        };
        return Err(DataError::bad(
            context.place(),
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
            return Err(DataError::bad(context.place(), problem));
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
            _ => Err(DataError::bad(
                context.place(),
                format!("its label is {label}, outside of 0..{classes}; give model.classes, or mend the data"),
            )),
        },
        _ => Err(DataError::bad(context.place(), format!("its label is {}, not one class", y.ty()))),
    }
}

#[cfg(test)]
mod tests {
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
    fn an_unknown_augmentation_is_answered_with_the_known_ones() {
        for (said, expected) in [
            ("flop", "there is no augmentation \"flop\" (did you mean \"flip\"?)"),
            ("rotate:much", "\"rotate:much\": what stands behind the colon must be a number"),
            ("rotate:-3", "must be a number"),
            ("flip:3", "flip takes no number"),
            ("crop:0.5", "crop takes no number"),
            (
                "pad-crop:1.5",
                "\"pad-crop:1.5\": what stands behind the colon must be a whole number of pixels, at most 8",
            ),
            ("cutout:9", "at most 8"),
            ("cutout:1e9", "at most 8"),
        ] {
            let error = augmentation(said, [8, 8]).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(expected), "{said}: {error}");
        }
        for said in
            ["flip", "rotate:5", "pad-crop", "cutout:3", "pad-crop:8", "brightness:0.1", "contrast", "flip-vertical"]
        {
            assert!(augmentation(said, [8, 8]).is_ok(), "{said}");
        }
    }
}
