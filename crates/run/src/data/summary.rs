//! What a run trains on, as its header says it: sets, classes, the size of the input and how it was decided, what was left
//! out, what was assumed, and what looks wrong. Facts only; a front end words them.

use std::path::PathBuf;

use memfit::data::Source;
use memfit::data::image::dimensions;
use memfit::data::sources::{ClassLabels, FirstLine, LeftOut, Masks};
use memfit::nn::Loss;
use memfit::nn::zoo::Task;

use super::{ArrayNames, DataSources, Kind, SeenMasks, SizeRange, TestFrom, Unit, UnusedSet};
use crate::error::Result;
use crate::goal::{Goal, REGRESSION, goal, value_loss};
use crate::resources::RunResources;

/// Pictures that are looked at for their size.
const PICTURES: usize = 32;
/// A class with this share of all pixels, or of all samples, leaves hardly anything to learn from.
const NEARLY_ALL_PIXELS: f64 = 0.99;
const NEARLY_ALL_SAMPLES: f64 = 0.9;
/// So many times as many samples as another class are told.
const UNEQUAL: u64 = 10;

#[derive(Clone, Debug)]
pub struct DataSummary {
    pub kind: Kind,
    /// What the run names; none for data that are built in.
    pub path: Option<PathBuf>,
    pub train: usize,
    pub epoch: EpochBatches,
    pub test: Option<usize>,
    pub test_from: TestFrom,
    /// Of what has classes.
    pub classes: Option<ClassSummary>,
    /// Of a regression.
    pub targets: Option<TargetSummary>,
    /// What samples weigh in training, where they do not weigh the same.
    pub weights: Option<WeightSummary>,
    pub input: InputSummary,
    pub masks: Option<(Masks, Option<SeenMasks>)>,
    pub arrays: Option<ArrayNames>,
    pub test_arrays: Option<ArrayNames>,
    pub left_out: Vec<LeftOut>,
    /// Why the first line of a table was taken for what it was, where nobody said it.
    pub first_line: Option<FirstLine>,
    /// Keys that nobody set, with what holds for them.
    pub assumed: Vec<(&'static str, String)>,
    pub warnings: Vec<Warning>,
}

/// What a pass over the training set is cut into, by however many replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochBatches {
    /// Samples of each.
    pub batch: usize,
    pub batches: usize,
    /// Samples that fill none: others in every pass.
    pub left_out: usize,
}

/// Who decided something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The run says it.
    Said,
    /// The data have it.
    Data,
    /// It is what the model has by itself.
    Model,
}

impl Decided {
    pub const fn name(self) -> &'static str {
        match self {
            Decided::Said => "said",
            Decided::Data => "data",
            Decided::Model => "model",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSummary {
    /// Of the model.
    pub count: usize,
    pub decided: Decided,
    /// In the data, where they were counted.
    pub found: Option<usize>,
    /// In the test set by itself, where that was looked at.
    pub found_in_test: Option<usize>,
    /// Where they have names.
    pub names: Vec<String>,
    /// How many there are of each, in all that the run names as training data.
    pub rows: Option<Vec<u64>>,
    pub unit: Unit,
    /// How the labels of an array are stored.
    pub labels: Option<ClassLabels>,
}

/// Numbers that are to be predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSummary {
    pub count: usize,
    /// Of columns; empty where they have none.
    pub names: Vec<String>,
    pub loss: Loss,
    /// Whether the run asks for a regression, which else its labels look like.
    pub is_said: bool,
    /// What they are measured in, where they are standardised.
    pub units: Vec<memfit::nn::Unit>,
}

/// By what the loss of a sample is multiplied.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightSummary {
    /// The column or array.
    pub of_samples: Option<String>,
    /// By class.
    pub of_classes: Option<Vec<f32>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSummary {
    pub shape: Vec<usize>,
    pub decided: Decided,
    /// What the pictures have, where it is brought to the shape.
    pub pictures: Option<SizeRange>,
    /// What the pictures of an array are stored as, where their channels stand first and are turned.
    pub channels_first: Option<Vec<usize>>,
}

/// What may be no mistake, and mostly is one.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// The test set is the training set.
    TestIsTraining,
    /// Nothing is evaluated on.
    NoTest,
    /// Nearly all is of one class.
    OneClass { class: usize, share: f64 },
    /// One class has so many times as many samples as another.
    Unequal { times: u64 },
    /// Classes up to the largest that the data lack.
    NoneOf { classes: Vec<usize> },
    /// The model has more classes than the data.
    FewerThanSaid { found: usize, said: usize },
    /// Nobody said how many classes there are, and they were not counted.
    NotCounted { model: usize },
    /// Pictures are smaller than the input, and are enlarged.
    Enlarged { largest: [usize; 2], input: [usize; 2] },
    /// What looks like another set of the run, and is not used; with what is evaluated on instead.
    Unused { set: UnusedSet, test: TestFrom },
}

/// Of a run whose data are open.
pub fn summary(run: &RunResources) -> Result<Option<DataSummary>> {
    let Some(data) = &run.data else { return Ok(None) };
    let classes = class_summary(run, data);
    let input = input_summary(run, data)?;
    let mut warnings = Vec::new();
    match data.test_from {
        TestFrom::TrainingSet(_) => warnings.push(Warning::TestIsTraining),
        TestFrom::None => warnings.push(Warning::NoTest),
        _ => {}
    }
    let (samples, batch) = (data.train.len(), run.request.batch.max(1));
    let epoch = EpochBatches { batch, batches: samples / batch, left_out: samples % batch };
    let unused = data.unused.iter().cloned().map(|set| Warning::Unused { set, test: data.test_from.clone() });
    warnings.extend(unused);
    classes.iter().for_each(|classes| class_warnings(classes, &mut warnings));
    warnings.extend(enlarged(&input));
    Ok(Some(DataSummary {
        kind: data.kind,
        path: run.config.data.train.clone(),
        train: samples,
        epoch,
        test: data.test.as_ref().map(|test| test.len()),
        test_from: data.test_from.clone(),
        classes,
        targets: target_summary(run, data),
        weights: weight_summary(run),
        input,
        masks: data.schema.masks.clone().map(|masks| (masks, data.survey.masks)),
        arrays: data.survey.arrays.clone(),
        test_arrays: data.test_arrays.clone(),
        left_out: data.survey.left_out.clone(),
        first_line: data.survey.first_line,
        assumed: assumed(run, data),
        warnings,
    }))
}

fn target_summary(run: &RunResources, data: &DataSources) -> Option<TargetSummary> {
    let loss = run.model.labels().values?;
    let names = data.schema.columns.as_ref().map_or(Vec::new(), |columns| columns.labels.clone());
    let is_said = !matches!(goal(&run.config), Ok(Goal::AsFound));
    Some(TargetSummary { count: run.model.classes(), names, loss, is_said, units: run.units.clone() })
}

fn weight_summary(run: &RunResources) -> Option<WeightSummary> {
    let (of_samples, of_classes) = (run.config.data.sample_weight.clone(), run.class_weights.as_deref());
    let of_classes = of_classes.map(<[f32]>::to_vec);
    (of_samples.is_some() || of_classes.is_some()).then_some(WeightSummary { of_samples, of_classes })
}

fn class_summary(run: &RunResources, data: &DataSources) -> Option<ClassSummary> {
    let said = match run.model.task() {
        Task::Values => return None,
        Task::Classes | Task::Masks | Task::PixelClasses => run.config.model.classes,
        Task::Tokens => run.config.model.vocabulary,
    };
    let decided = match (said, data.facts.classes) {
        (Some(_), _) => Decided::Said,
        (None, Some(_)) => Decided::Data,
        (None, None) => Decided::Model,
    };
    let seen = data.survey.classes.as_ref();
    Some(ClassSummary {
        count: run.model.classes(),
        decided,
        found: seen.map(|seen| seen.count).or(data.facts.classes),
        found_in_test: data.survey.test_classes,
        names: data.schema.classes.clone(),
        rows: seen.and_then(|seen| seen.rows.clone()),
        unit: seen.map_or(Unit::Samples, |seen| seen.unit),
        labels: data.survey.labels,
    })
}

fn class_warnings(classes: &ClassSummary, warnings: &mut Vec<Warning>) {
    match (classes.found, classes.decided) {
        (None, Decided::Model) => warnings.push(Warning::NotCounted { model: classes.count }),
        (Some(found), Decided::Said) if found.max(classes.found_in_test.unwrap_or(0)) < classes.count => {
            warnings.push(Warning::FewerThanSaid { found, said: classes.count });
        }
        _ => {}
    }
    let Some(rows) = &classes.rows else { return };
    let sum = rows.iter().sum::<u64>().max(1);
    let most = rows.iter().max().copied().unwrap_or(0);
    let least = rows.iter().filter(|n| **n > 0).min().copied().unwrap_or(1);
    let nearly_all = if classes.unit == Unit::Pixels { NEARLY_ALL_PIXELS } else { NEARLY_ALL_SAMPLES };
    let empty: Vec<usize> = rows.iter().enumerate().filter(|(_, n)| **n == 0).map(|(class, _)| class).collect();
    let share = most as f64 / sum as f64;
    if share >= nearly_all {
        let class = rows.iter().position(|n| *n == most).unwrap_or(0);
        warnings.push(Warning::OneClass { class, share });
    } else if classes.unit == Unit::Samples && most / least.max(1) >= UNEQUAL {
        warnings.push(Warning::Unequal { times: most / least.max(1) });
    }
    // A binary mask has no classes that could be missing.
    if !empty.is_empty() && classes.found.is_some_and(|found| found > 1) {
        let found = classes.found.unwrap_or(rows.len());
        let empty: Vec<usize> = empty.into_iter().filter(|class| *class < found).collect();
        if !empty.is_empty() {
            warnings.push(Warning::NoneOf { classes: empty });
        }
    }
}

fn input_summary(run: &RunResources, data: &DataSources) -> Result<InputSummary> {
    let shape = run.model.input()?;
    let decided = match (&run.config.model.input, run.config.model.sequence, &data.facts.sample) {
        (Some(_), _, _) | (None, Some(_), _) => Decided::Said,
        (None, None, Some(_)) => Decided::Data,
        (None, None, None) => Decided::Model,
    };
    let pictures = match data.kind {
        Kind::Images | Kind::TfRecord if shape.len() == 3 => picture_sizes(&*data.train, run),
        Kind::Masks => data.survey.pictures,
        _ => None,
    };
    Ok(InputSummary { shape, decided, pictures, channels_first: data.survey.channels_first.clone() })
}

/// Of some pictures, evenly spread, by their headers. What cannot be read is told when it is.
fn picture_sizes(source: &dyn Source, run: &RunResources) -> Option<SizeRange> {
    let (of, looked) = (source.len(), source.len().min(PICTURES));
    let mut range = SizeRange { smallest: [usize::MAX; 2], largest: [0; 2], looked_at: 0, of };
    for row in (0..looked).map(|i| i * of / looked) {
        let Ok(example) = source.read_row(row, &run.pool) else { continue };
        let Some(size) = example.get("x").ok().and_then(|x| dimensions(x.bytes(), &"").ok()) else { continue };
        range.looked_at += 1;
        for (axis, extent) in size.into_iter().enumerate() {
            range.smallest[axis] = range.smallest[axis].min(extent);
            range.largest[axis] = range.largest[axis].max(extent);
        }
    }
    (range.looked_at > 0).then_some(range)
}

/// Where nobody said the size, and no picture has as many pixels in both axes.
fn enlarged(input: &InputSummary) -> Option<Warning> {
    let (SizeRange { largest, .. }, &[height, width, _]) = (input.pictures?, &input.shape[..]) else { return None };
    let is_small = largest[0] < height && largest[1] < width;
    (input.decided == Decided::Model && is_small).then_some(Warning::Enlarged { largest, input: [height, width] })
}

/// What nobody said, of the keys that most people mean to.
fn assumed(run: &RunResources, data: &DataSources) -> Vec<(&'static str, String)> {
    let config = &run.config;
    let mut assumed = Vec::new();
    let mut add = |key, is_said: bool, value: String| {
        if !is_said {
            assumed.push((key, value));
        }
    };
    add("model.name", config.model.name.is_some(), run.name.clone());
    if run.model.task() == Task::Values {
        add("train.task", !matches!(goal(config), Ok(Goal::AsFound)), REGRESSION.into());
        add("train.loss", config.train.loss.is_some(), value_loss(config).to_string());
    }
    add("data.kind", config.data.kind.is_some() || data.kind == Kind::Digits, data.kind.name().into());
    match data.kind {
        Kind::Csv => {
            let columns = data.schema.columns.as_ref();
            let numbers = || data.schema.labels.iter().map(usize::to_string).collect::<Vec<_>>();
            let labels = columns.map_or_else(numbers, |columns| columns.labels.clone());
            add("data.label", !config.data.label.is_empty(), labels.join(", "));
            add("data.header", config.data.header.is_some(), columns.is_some().to_string());
        }
        Kind::Tokens => add("data.token", config.data.token.is_some(), "u16".into()),
        _ => {}
    }
    add("train.batch", config.train.batch.is_some(), run.request.batch.to_string());
    if config.train.steps.is_none() {
        add("train.epochs", config.train.epochs.is_some(), crate::train::EPOCHS.to_string());
    }
    add("train.optimizer", config.train.optimizer.is_some(), run.optimizer.clone());
    add("train.lr", config.train.lr.is_some(), run.learning_rate.to_string());
    assumed.extend(run.assumed());
    assumed
}
