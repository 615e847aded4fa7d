//! From what a run says about its data to open sources, and what they say about the model. `pipeline.rs` brings each sample
//! into the shape that the model reads.

mod arrays;
mod columns;
mod digits;
mod kind;
pub mod masks;
mod npz;
mod overlap;
mod pipeline;
mod place;
pub mod same_data;
mod summary;
mod survey;
mod table;
mod targets;
mod unlabelled;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memfit::ZooModel;
use memfit::data::image::Channels;
use memfit::data::sources::{
    Feature, FeatureKind, ImageFolder, Masks, TfRecord, TokenWidth, Tokens, Windows, hold_out,
};
use memfit::data::{BytePool, DataError, Source};
use memfit::exec::Device;
use memfit::nn::Unit as TargetUnit;

use crate::config::{DataConfig, RunConfig};
use crate::error::{Result, RunError};
use crate::goal::REGRESSION;
use crate::text::count;
use crate::train::skip_bad;

pub use arrays::{ArrayNames, ArrayOf, ArrayRole};
pub use columns::Columns;
pub use kind::{Kind, kind_of, model_name};
pub use overlap::{Overlap, overlap};
pub(crate) use pipeline::in_file;
pub use pipeline::{Part, ROW, datasets, images_alone, rows_alone, test_set};
pub use summary::{
    ClassSummary, DataSummary, Decided, EpochBatches, InputSummary, TargetSummary, Warning, WeightSummary, summary,
};
pub use survey::{DataSurvey, SeenClasses, SeenMasks, SizeRange, Unit};
pub use unlabelled::{Unlabelled, open_unlabelled};

use place::Places;
pub(crate) use targets::class_weights;

/// For everything that the pipeline holds, where nothing was said.
pub const HOST_BUDGET: u64 = 512 << 20;
/// The share of the samples that is held out where there is no test set and nothing was said.
const HELD_OUT: f32 = 0.2;

/// Refuses a model that does something else than the data are for, before anything is planned or made.
fn check_model(kind: Kind, model: &str) -> Result<()> {
    let does = ZooModel::from_name(model)?.task();
    match kind.task() {
        Some(wanted) if wanted != does => Err(RunError::WrongModel { model: model.into(), does, kind, wanted }),
        Some(_) | None => Ok(()),
    }
}

/// What the data says about the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataFacts {
    /// The shape of a sample, where all have one.
    pub sample: Option<Vec<usize>>,
    pub classes: Option<usize>,
    /// Numbers of a label that is to be predicted, where it is no class.
    pub values: Option<usize>,
}

/// Sources that are open, and what is known of them.
pub struct DataSources {
    pub kind: Kind,
    /// The name of the model that they are read for.
    pub model: String,
    pub train: Arc<dyn Source>,
    pub test: Option<Arc<dyn Source>>,
    pub test_from: TestFrom,
    /// Of an NPZ file.
    pub test_arrays: Option<ArrayNames>,
    pub facts: DataFacts,
    pub schema: Schema,
    pub survey: DataSurvey,
    /// What looks like another set of the run, and is not used.
    pub unused: Vec<UnusedSet>,
}

/// Data beside the training set of which nothing is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnusedSet {
    Folder(PathBuf),
    /// A folder beside those of the sets that is called like none.
    Other(PathBuf),
    /// In the file of the training set.
    Arrays(ArrayNames),
}

/// Where a test set is from.
#[derive(Clone, Debug, PartialEq)]
pub enum TestFrom {
    /// There is none.
    None,
    /// Of the training data, a share.
    HeldOut { share: f32, is_said: bool },
    /// The run names it.
    Path(PathBuf),
    /// It lies beside the training set, in the folder that the run names.
    Folder(PathBuf),
    /// Other arrays of the file of the training set.
    Arrays,
    /// From there, and the same as the training set.
    TrainingSet(Box<TestFrom>),
}

/// What the training set fixes for all other data of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// What the classes are called, where they have names.
    pub classes: Vec<String>,
    /// Of a table that names them.
    pub columns: Option<Columns>,
    /// Of a table that does not: the numbers of the label's columns; not written down.
    pub labels: Vec<usize>,
    /// What standardised targets are measured in.
    pub units: Vec<TargetUnit>,
    /// What masks are.
    pub masks: Option<Masks>,
    /// Of an NPZ file; not written down.
    pub arrays: Option<ArrayNames>,
}

/// What the data says about the model; nothing where no data was named.
pub fn facts(config: &RunConfig, pool: &BytePool) -> Result<DataFacts> {
    if config.data.train.is_none() {
        return Ok(DataFacts::default());
    }
    Ok(open(config, pool)?.facts)
}

/// For everything that the pipeline of a run holds. By themselves all of one device take no more than a quarter of what the
/// program itself leaves there, which needs `outside` bytes.
pub fn pool(said: Option<u64>, device: &Device, outside: u64, neighbours: usize) -> BytePool {
    let share = device.limit().saturating_sub(outside) / 4 / neighbours.max(1) as u64;
    BytePool::new(said.unwrap_or(HOST_BUDGET.min(share)))
}

pub fn open(config: &RunConfig, pool: &BytePool) -> Result<DataSources> {
    let kind = kind::of_run(config)?;
    let model = kind::model_name(config, pool)?;
    check_model(kind, &model)?;
    reject_unused_keys(kind, &config.data)?;
    targets::check_goal(kind, config)?;
    if kind == Kind::Digits {
        return open_digits(&config.data, model);
    }
    // How data are read may depend on who reads them.
    let config = &config.with_model(&model)?;
    let Some(path) = &config.data.train else {
        let kind = kind.name();
        return Err(RunError::conflict(format!("data.kind is {kind}, but data.train does not say where it is")));
    };
    let places = Places::of(path, &config.data)?;
    let known = source(kind, &places.train, config, None, pool)?;
    // What the labels of one set are, those of the others are too.
    let config = &match known.facts.values {
        Some(_) => config.with("train", "task", REGRESSION)?,
        None => config.clone(),
    };
    let (test, from) = match &places.test {
        Some(path) => {
            let test = source(kind, path, config, Some(&known.schema), pool)?;
            same_facts(&known.facts, &test.facts, path)?;
            let from = if places.is_split { TestFrom::Folder(path.clone()) } else { TestFrom::Path(path.clone()) };
            (Some(test), from)
        }
        None => beside(kind, &places.train, config, &known, pool)?,
    };
    let left_out = test.as_ref().map_or(Vec::new(), |test| test.survey.left_out.clone());
    let test_classes = test.as_ref().and_then(|test| test.survey.classes.as_ref()).map(|seen| seen.count);
    let test_arrays = test.as_ref().and_then(|test| test.schema.arrays.clone());
    let unused = unused(&places, &known, test.as_ref(), pool)?;
    let DataParts { train, test, from } = match test {
        Some(test) => {
            let is_training_set = is_same(&known, &test, pool);
            let from = if is_training_set { TestFrom::TrainingSet(Box::new(from)) } else { from };
            DataParts { train: known.source, test: Some(test.source), from }
        }
        None => held_out(known.source, &places.train, config.data.hold_out)?,
    };
    let KnownSource { facts, mut schema, mut survey, .. } = known;
    if let Some(targets) = facts.values.filter(|_| config.data.standardise_targets == Some(true)) {
        schema.units = match config.run_folder() {
            Some(folder) => same_data::schema(folder)?.units,
            None => targets::units(&*train, targets, skip_bad(config), pool)?,
        };
    }
    survey.also_left_out(left_out);
    survey.test_classes = test_classes;
    Ok(DataSources { kind, model, train, test, test_from: from, test_arrays, facts, schema, survey, unused })
}

/// Sets beside the training set that are not the test set.
fn unused(places: &Places, train: &KnownSource, test: Option<&KnownSource>, pool: &BytePool) -> Result<Vec<UnusedSet>> {
    let set = |path: &PathBuf| if place::is_set(path) { UnusedSet::Folder } else { UnusedSet::Other };
    let folders = places.unused.iter().map(|path| set(path)(path.clone()));
    let Some(arrays) = &train.schema.arrays else { return Ok(folders.collect()) };
    // A file that is named for them has other arrays.
    let is_elsewhere = places.test.as_ref().is_some_and(|path| *path != places.train);
    let used = test.and_then(|test| test.schema.arrays.as_ref()).filter(|_| !is_elsewhere).map(ArrayNames::words);
    let beside = arrays.sets_beside(&places.train, pool)?.into_iter();
    let unused = beside.filter(|set| Some(set.words()) != used).map(UnusedSet::Arrays);
    Ok(folders.chain(unused).collect())
}

fn open_digits(config: &DataConfig, model: String) -> Result<DataSources> {
    let DataConfig { train, test, hold_out, .. } = config;
    let said = [("train", train.is_some()), ("test", test.is_some()), ("hold_out", hold_out.is_some())];
    match said.iter().find(|(_, said)| *said) {
        Some((key, _)) => {
            Err(RunError::conflict(format!("the digits are built in; leave out data.{key}, or data.kind")))
        }
        None => Ok(digits::open(model)?),
    }
}

/// A training set, a test set, and where that is from.
struct DataParts {
    train: Arc<dyn Source>,
    test: Option<Arc<dyn Source>>,
    from: TestFrom,
}

/// A share of the training set, or nothing, as the test set.
fn held_out(source: Arc<dyn Source>, path: &Path, said: Option<f32>) -> Result<DataParts> {
    let share = said.unwrap_or(HELD_OUT);
    if share == 0.0 {
        return Ok(DataParts { train: source, test: None, from: TestFrom::None });
    }
    let rows = source.len();
    let (kept, held) = hold_out(source, share.into()).map_err(|_| too_few(path, share, rows))?;
    let from = TestFrom::HeldOut { share, is_said: said.is_some() };
    Ok(DataParts { train: Arc::new(kept), test: Some(Arc::new(held)), from })
}

/// The test set that lies in the file of the training set, unless the run says how much of that is to be held out.
fn beside(
    kind: Kind,
    path: &Path,
    config: &RunConfig,
    train: &KnownSource,
    pool: &BytePool,
) -> Result<(Option<KnownSource>, TestFrom)> {
    let Some(arrays) = train.schema.arrays.as_ref().filter(|_| kind == Kind::Npz) else {
        return Ok((None, TestFrom::None));
    };
    let is_named = config.data.test_features.is_some() || config.data.test_label.is_some();
    if config.data.hold_out.is_some() && !is_named {
        return Ok((None, TestFrom::None));
    }
    if config.data.hold_out.is_some_and(|share| share > 0.0) {
        return Err(RunError::conflict("data.hold_out is for runs without test arrays; leave out one of them"));
    }
    let Some(names) = arrays.test_beside(path, &config.data, pool)? else {
        return match is_named {
            true => Err(RunError::conflict("name both data.test_features and data.test_label, or data.test")),
            false => Ok((None, TestFrom::None)),
        };
    };
    let test = npz::open(path, names, config, pool)?;
    same_facts(&train.facts, &test.facts, path)?;
    Ok((Some(test), TestFrom::Arrays))
}

/// Whether both are the same rows, as far as names, sizes and times of files tell, or else some of the rows.
fn is_same(train: &KnownSource, test: &KnownSource, pool: &BytePool) -> bool {
    let alike = (train.source.len(), train.source.fingerprint()) == (test.source.len(), test.source.fingerprint());
    let names = |known: &KnownSource| known.schema.arrays.as_ref().map(ArrayNames::words);
    (alike && names(train) == names(test)) || overlap::have_same_rows(&*train.source, &*test.source, pool)
}

/// Other data of the kind of a run, all of it for evaluation. Classes and columns are those of the run.
pub fn open_alone(config: &RunConfig, path: &Path, schema: Schema, pool: &BytePool) -> Result<DataSources> {
    let kind = kind::of_run(config)?;
    let model = kind::model_name(config, pool)?;
    // What is bad shows at once, when it is read: whether it is left out is the loader's matter.
    let mut config = config.clone();
    config.set("data", "skip_bad", true)?;
    reject_unused_keys(kind, &config.data)?;
    // What is said of these data goes before what the run says of its test set.
    for (said, of_test) in [("features", "test_features"), ("label", "test_label")] {
        if kind == Kind::Npz && config.is_overridden("data", said) {
            let name = config.value("data", said).cloned();
            name.map_or(Ok(()), |name| config.set("data", of_test, name))?;
        }
    }
    // Of a folder that has one for each set, the one that is for this.
    let path = place::test_path(path);
    let known = source(kind, &path, &config, Some(&schema), pool)?;
    let KnownSource { source, facts, survey, schema: Schema { arrays: test_arrays, .. } } = known;
    let (train, test_from) = (Arc::clone(&source), TestFrom::Path(path));
    let (test, unused) = (Some(source), Vec::new());
    Ok(DataSources { kind, model, train, test, test_from, test_arrays, facts, schema, survey, unused })
}

/// A key that does nothing is a mistake, or a wish that is not heard.
fn reject_unused_keys(kind: Kind, config: &DataConfig) -> Result<()> {
    let images = [Kind::Images, Kind::Masks, Kind::TfRecord];
    let arrays = [Kind::Npz, Kind::TfRecord];
    let labelled = [Kind::Csv, Kind::Npz, Kind::TfRecord];
    let keys = [
        ("mean", config.mean.is_some(), &images[..], "images"),
        ("std", config.std.is_some(), &images, "images"),
        ("augment", !config.augment.is_empty(), &images, "images"),
        ("image_size", config.image_size.is_some(), &images, "images"),
        ("label", !config.label.is_empty(), &labelled, "csv, npz and tfrecord"),
        ("features", config.features.is_some(), &arrays, "npz and tfrecord"),
        ("sample_weight", config.sample_weight.is_some(), &[Kind::Csv, Kind::Npz], "csv and npz"),
        ("standardise_targets", config.standardise_targets.is_some(), &[Kind::Csv, Kind::Npz], "csv and npz"),
        ("header", config.header.is_some(), &[Kind::Csv], "csv"),
        ("token", config.token.is_some(), &[Kind::Tokens], "tokens"),
        ("masks", config.masks.is_some(), &[Kind::Masks], "images with masks"),
        ("colours", !config.colours.is_empty(), &[Kind::Masks], "images with masks"),
        ("test_features", config.test_features.is_some(), &[Kind::Npz], "npz"),
        ("test_label", config.test_label.is_some(), &[Kind::Npz], "npz"),
    ];
    if let Some((key, _, _, of)) = keys.iter().find(|(_, said, kinds, _)| *said && !kinds.contains(&kind)) {
        let kind = kind.name();
        return Err(RunError::conflict(format!("data.{key} is for {of}, and these data are {kind}; leave it out")));
    }
    if config.test.is_some() && config.hold_out.is_some_and(|share| share > 0.0) {
        return Err(RunError::conflict("data.hold_out is for runs without data.test; leave out one of them"));
    }
    Ok(())
}

fn too_few(path: &Path, share: f32, rows: usize) -> RunError {
    let (held, rows) = (f64::from(share) * rows as f64 >= 1.0, count(rows, "sample"));
    let left = if held { "nothing is left to train on" } else { "not one would be held out" };
    let cure = "give more data, a test set (data.test), or data.hold_out = 0";
    bad_path(path, &format!("of its {rows} a share of {share} is to be held out, and {left}; {cure}"))
}

fn bad_path(path: &Path, problem: &str) -> RunError {
    DataError::source(path.display(), problem).into()
}

/// A source, and what it knows.
struct KnownSource {
    source: Arc<dyn Source>,
    facts: DataFacts,
    schema: Schema,
    survey: DataSurvey,
}

impl KnownSource {
    /// Of which neither classes nor columns have names.
    fn unnamed(source: impl Source + 'static, facts: DataFacts) -> KnownSource {
        KnownSource { source: Arc::new(source), facts, schema: Schema::default(), survey: DataSurvey::default() }
    }

    /// Of which the classes have names.
    fn with_classes(source: impl Source + 'static, classes: Vec<String>, count: usize) -> KnownSource {
        let facts = DataFacts { classes: Some(count), ..DataFacts::default() };
        let schema = Schema { classes, ..Schema::default() };
        KnownSource { schema, ..KnownSource::unnamed(source, facts) }
    }
}

/// Opens a source, and asks it what it knows. If others have settled which classes, characters or columns there are,
/// those are its own.
fn source(
    kind: Kind,
    path: &Path,
    config: &RunConfig,
    schema: Option<&Schema>,
    pool: &BytePool,
) -> Result<KnownSource> {
    let classes: &[String] = schema.map_or(&[], |schema| &schema.classes);
    match kind {
        Kind::Digits => Err(RunError::conflict("the digits are built in; leave out data.train")),
        Kind::Images => image_folder(path, classes, pool),
        Kind::Masks => masks::pairs(path, config, schema, pool),
        Kind::Csv => table::open(path, config, schema, pool),
        Kind::Npz => {
            let names = match schema {
                None => ArrayNames::of_training(path, &config.data, pool)?,
                Some(Schema { arrays: Some(train), .. }) => train.of_test(path, &config.data, pool)?,
                // What the arrays of the training set are called is not known without its file, or said.
                Some(_) => ArrayNames::usual(&config.data).of_test(path, &config.data, pool)?,
            };
            npz::open(path, names, config, pool)
        }
        Kind::TfRecord => {
            let records = TfRecord::glob(&path.to_string_lossy(), features(config), pool)?;
            Ok(KnownSource::unnamed(records, DataFacts::default()))
        }
        Kind::Tokens => tokens(path, config),
        Kind::Text => text(path, config, classes, pool),
    }
}

fn image_folder(path: &Path, classes: &[String], pool: &BytePool) -> Result<KnownSource> {
    let folder = match classes {
        [] => ImageFolder::open(path, pool)?,
        classes => ImageFolder::open_with(path, classes, pool)?,
    };
    let classes = folder.classes().to_vec();
    let count = classes.len();
    let survey = DataSurvey {
        classes: Some(SeenClasses::of_samples(&folder.class_counts(pool))),
        left_out: folder.left_out(),
        ..DataSurvey::default()
    };
    Ok(KnownSource { survey, ..KnownSource::with_classes(folder.encoded(), classes, count) })
}

fn tokens(path: &Path, config: &RunConfig) -> Result<KnownSource> {
    let width = match config.data.token.as_deref() {
        Some("u8") => TokenWidth::U8,
        Some("u32") => TokenWidth::U32,
        _ => TokenWidth::U16,
    };
    let vocabulary = config.model.vocabulary.unwrap_or(memfit::nn::zoo::Gpt::default().vocabulary);
    let tokens = Tokens::binary(path, width, vocabulary, Windows::non_overlapping(sequence(config)))?;
    Ok(KnownSource::unnamed(tokens, DataFacts::default()))
}

/// A text, of whose characters each is a class.
fn text(path: &Path, config: &RunConfig, classes: &[String], pool: &BytePool) -> Result<KnownSource> {
    let windows = Windows::non_overlapping(sequence(config));
    let alphabet: Vec<char> = classes.iter().filter_map(|name| name.chars().next()).collect();
    let text = match &alphabet[..] {
        [] => Tokens::characters(path, windows, pool)?,
        alphabet => Tokens::characters_with(path, alphabet, windows, pool)?,
    };
    // Found now rather than when the first epoch is over.
    if config.data.skip_bad != Some(true) {
        text.check_known()?;
    }
    let (classes, vocabulary) = (text.alphabet().iter().map(char::to_string).collect(), text.vocabulary());
    Ok(KnownSource::with_classes(text, classes, vocabulary))
}

fn same_facts(train: &DataFacts, test: &DataFacts, path: &Path) -> Result<()> {
    if train.values != test.values {
        return Err(bad_path(path, "its labels have another number of values than those of the training set"));
    }
    if train.sample == test.sample {
        return Ok(());
    }
    Err(bad_path(path, "its samples have another size than those of the training set"))
}

fn sequence(config: &RunConfig) -> usize {
    let input = config.model.input.as_ref().and_then(|i| i.first().copied());
    config.model.sequence.or(input).unwrap_or(memfit::nn::zoo::Gpt::default().sequence)
}

/// Grey for models of one channel.
fn channels(config: &RunConfig) -> Channels {
    let one = config.model.input.as_ref().is_some_and(|i| i.get(2) == Some(&1));
    if one { Channels::Grey } else { Channels::Rgb }
}

/// Of a record: the input, and a class.
fn features(config: &RunConfig) -> Vec<Feature> {
    let label = config.data.label.first().map_or("image/class/label", String::as_str);
    vec![input_feature(config), Feature::new(label, "y", FeatureKind::Ints(vec![]))]
}

/// Of a record: an encoded image, or numbers for a model that reads rows of them.
fn input_feature(config: &RunConfig) -> Feature {
    let input = config.data.features.as_deref().unwrap_or("image/encoded");
    let kind = match (config.model.name.as_deref(), &config.model.input) {
        (Some("mlp"), Some(sizes)) => FeatureKind::Floats(sizes.clone()),
        (_, _) => FeatureKind::Encoded,
    };
    Feature::new(input, "x", kind)
}
