//! From what a run says about its data to open sources, and what they say about the model. `pipeline.rs` brings each sample
//! into the shape that the model reads.

mod pipeline;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use memfit::Model;
use memfit::data::image::Channels;
use memfit::data::sources::{
    Arrays, Column, Csv, CsvLayout, Feature, FeatureKind, ImageFolder, Label, Masks, SegmentationPairs, TfRecord,
    TokenWidth, Tokens, Windows, hold_out,
};
use memfit::data::{BytePool, DataError, OnBad, Source};
use memfit::exec::Device;
use memfit::nn::zoo::Task;
use serde::{Deserialize, Serialize};

use crate::digits;
use crate::failure::usage;
use crate::run::Facts;
use crate::say::count;
use crate::spec::{DataSpec, Spec};

pub use pipeline::{ROW, datasets, images_alone, test_set};

/// For everything that the pipeline holds, where nothing was said.
const HOST_BUDGET: u64 = 512 << 20;
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

impl Kind {
    const ALL: [Kind; 8] =
        [Kind::Digits, Kind::Images, Kind::Masks, Kind::Csv, Kind::Npz, Kind::TfRecord, Kind::Tokens, Kind::Text];

    /// As a run file says it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Digits => "digits",
            Kind::Images => "images",
            Kind::Masks => "masks",
            Kind::Csv => "csv",
            Kind::Npz => "npz",
            Kind::TfRecord => "tfrecord",
            Kind::Tokens => "tokens",
            Kind::Text => "text",
        }
    }

    /// A model that reads such data.
    pub const fn usual_model(self) -> &'static str {
        match self {
            Kind::Digits => "digits",
            Kind::Images | Kind::TfRecord => "resnet18",
            Kind::Masks => "unet",
            Kind::Csv | Kind::Npz => "mlp",
            Kind::Tokens | Kind::Text => "gpt",
        }
    }

    /// What a model of such data does; arrays may be anything.
    const fn task(self) -> Option<Task> {
        match self {
            Kind::Digits | Kind::Images | Kind::Csv | Kind::TfRecord => Some(Task::Classes),
            Kind::Masks => Some(Task::Masks),
            Kind::Tokens | Kind::Text => Some(Task::Tokens),
            Kind::Npz => None,
        }
    }
}

/// Refuses a model that does something else than the data are for, before anything is planned or made.
fn check_model(kind: Kind, spec: &Spec) -> Result<()> {
    let name = spec.model.name.as_deref().unwrap_or("digits");
    let does = Model::from_name(name).map_err(usage)?.task();
    let what = |task: Task| match task {
        Task::Classes => "tells classes",
        Task::Masks => "draws masks",
        Task::Tokens => "goes on with a text",
    };
    let (data, usual) = (kind.name(), kind.usual_model());
    match kind.task() {
        Some(task) if task != does => Err(usage(format!(
            "{name} {}, but these data are {data}, for a model that {}; give --model {usual}, for one, or other data",
            what(does),
            what(task)
        ))),
        Some(Task::Masks) if spec.model.classes.is_some_and(|classes| classes != 1) => {
            let said = spec.model.classes.unwrap_or(1);
            Err(usage(format!("grey masks are of 1 class, but the model is to have {said}; leave out --classes")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Sources that are open, and what is known of them.
pub struct Opened {
    pub kind: Kind,
    pub train: Arc<dyn Source>,
    pub test: Option<Arc<dyn Source>>,
    pub facts: Facts,
    /// What holds for its test set too, and for what the model is judged by later.
    pub settled: Settled,
}

/// What the training set settles for all other data of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// What the classes are called, where they have names.
    pub classes: Vec<String>,
    /// Of a table that names them.
    pub columns: Option<Columns>,
}

/// The columns of a table, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    pub label: String,
    pub features: Vec<String>,
}

/// What the data says about the model; nothing where no data was named.
pub fn facts(spec: &Spec, pool: &BytePool) -> Result<Facts> {
    if spec.data.train.is_none() {
        return Ok(Facts::default());
    }
    Ok(open(spec, pool)?.facts)
}

/// For everything that the pipeline of a run holds. By themselves all of one device take no more than a quarter of it.
pub fn pool(said: Option<u64>, device: &Device, neighbours: usize) -> BytePool {
    let share = device.limit() / 4 / neighbours.max(1) as u64;
    BytePool::new(said.unwrap_or(HOST_BUDGET.min(share)))
}

pub fn open(spec: &Spec, pool: &BytePool) -> Result<Opened> {
    let kind = kind(spec)?;
    check_model(kind, spec)?;
    if kind == Kind::Digits {
        let DataSpec { train, test, hold_out, .. } = &spec.data;
        let said = [("train", train.is_some()), ("test", test.is_some()), ("hold_out", hold_out.is_some())];
        return match said.iter().find(|(_, said)| *said) {
            Some((key, _)) => Err(usage(format!("the digits are built in; leave out data.{key}, or data.kind"))),
            None => no_idle_keys(kind, &spec.data).and_then(|()| digits::open()),
        };
    }
    no_idle_keys(kind, &spec.data)?;
    let Some(path) = &spec.data.train else {
        let kind = kind.name();
        return Err(usage(format!("data.kind is {kind}, but data.train does not say where it is")));
    };
    let (source, facts, settled) = source(kind, path, spec, None, pool)?;
    let (train, test): (Arc<dyn Source>, Option<Arc<dyn Source>>) = match &spec.data.test {
        Some(path) => {
            let (test, of_test, _) = self::source(kind, path, spec, Some(&settled), pool)?;
            same_facts(&facts, &of_test, path)?;
            (source, Some(test))
        }
        None => match spec.data.hold_out.unwrap_or(HELD_OUT) {
            0.0 => (source, None),
            share => {
                let rows = source.len();
                let (kept, held) = hold_out(source, share.into()).map_err(|_| too_few(path, share, rows))?;
                (Arc::new(kept), Some(Arc::new(held)))
            }
        },
    };
    Ok(Opened { kind, train, test, facts, settled })
}

/// Other data of the kind of a run, all of it for evaluation. Classes and columns are those of the run.
pub fn open_alone(spec: &Spec, path: &Path, settled: Settled, pool: &BytePool) -> Result<Opened> {
    let kind = kind(spec)?;
    // What is bad shows at once, when it is read: whether it is left out is the loader's matter.
    let spec = Spec { data: DataSpec { skip_bad: Some(true), ..spec.data.clone() }, ..spec.clone() };
    let (source, facts, _) = source(kind, path, &spec, Some(&settled), pool)?;
    Ok(Opened { kind, train: Arc::clone(&source), test: Some(source), facts, settled })
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
        let kind = kind.name();
        return Err(usage(format!("data.{key} is for {of}, and these data are {kind}; leave it out")));
    }
    if spec.test.is_some() && spec.hold_out.is_some_and(|share| share > 0.0) {
        return Err(usage("data.hold_out is for runs without data.test; leave out one of them"));
    }
    Ok(())
}

/// As it was said, or as the path looks.
fn kind(spec: &Spec) -> Result<Kind> {
    if let Some(said) = &spec.data.kind {
        let known = Kind::ALL.into_iter().find(|kind| kind.name() == said);
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
    kind_of(path)
}

/// As the path looks.
pub fn kind_of(path: &Path) -> Result<Kind> {
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
    let (held, rows) = (f64::from(share) * rows as f64 >= 1.0, count(rows, "sample"));
    let left = if held { "nothing is left to train on" } else { "not one would be held out" };
    let cure = "give more data, a test set (data.test), or data.hold_out = 0";
    bad_path(path, &format!("of its {rows} a share of {share} is to be held out, and {left}; {cure}"))
}

fn bad_path(path: &Path, problem: &str) -> anyhow::Error {
    DataError::source(path.display(), problem).into()
}

type Known = (Arc<dyn Source>, Facts, Settled);

/// Opens a source, and asks it what it knows. If others have settled which classes, characters or columns there are,
/// those are its own.
fn source(kind: Kind, path: &Path, spec: &Spec, settled: Option<&Settled>, pool: &BytePool) -> Result<Known> {
    let mut facts = Facts::default();
    let mut columns = None;
    let mut classes = Vec::new();
    let known: &[String] = settled.map_or(&[], |settled| &settled.classes);
    let source: Arc<dyn Source> = match kind {
        Kind::Digits => return Err(usage("the digits are built in; leave out data.train")),
        Kind::Images => {
            let folder = match known {
                [] => ImageFolder::open(path, pool)?,
                known => ImageFolder::open_with(path, known, pool)?,
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
            let csv = table(path, spec, settled, &mut facts, pool)?;
            classes = csv.classes().to_vec();
            columns = spec.data.header.unwrap_or(true).then(|| Columns {
                label: csv.label_column().unwrap_or_default().to_string(),
                features: csv.feature_columns().map(str::to_string).collect(),
            });
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
            Arc::new(Tokens::binary(path, width, vocabulary, Windows::non_overlapping(sequence(spec)))?)
        }
        Kind::Text => {
            let windows = Windows::non_overlapping(sequence(spec));
            let alphabet: Vec<char> = known.iter().filter_map(|name| name.chars().next()).collect();
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
    Ok((source, facts, Settled { classes, columns }))
}

/// A table, with the classes and columns of the training set where those are known.
fn table(path: &Path, spec: &Spec, settled: Option<&Settled>, facts: &mut Facts, pool: &BytePool) -> Result<Csv> {
    let columns = settled.and_then(|settled| settled.columns.as_ref());
    let mut csv = Csv::open(path, layout(path, &spec.data, columns), pool)?;
    facts.sample = Some(vec![csv.columns().len() - 1]);
    if let Some(columns) = columns {
        csv.arrange(&columns.features, pool)?;
    }
    match settled {
        Some(settled) => csv.set_classes(&settled.classes, pool)?,
        None => {
            let bad = if spec.data.skip_bad == Some(true) { OnBad::Skip } else { OnBad::Fail };
            let count = csv.find_classes(bad, pool)?;
            // Numbers may well be fewer than the classes that were said.
            let said = spec.model.classes.is_some() && csv.classes().is_empty();
            facts.classes = (!said).then_some(count);
        }
    }
    Ok(csv)
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

/// The label is where it was said to be; of other tables of the run, in the column of the same name.
fn layout(path: &Path, spec: &DataSpec, columns: Option<&Columns>) -> CsvLayout {
    let separator = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv")) { b'\t' } else { b',' };
    let header = spec.header.unwrap_or(true);
    let column = match columns.map(|columns| &columns.label).or(spec.label.as_ref()) {
        Some(name) => Column::Name(name.clone()),
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
