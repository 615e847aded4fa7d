//! What all replicas of a run have in common: its model, how that is trained and on what. None of it changes once a run is open.

use std::path::PathBuf;
use std::sync::Arc;

use memfit::data::BytePool;
use memfit::nn::zoo::{Labels, Task};
use memfit::nn::{HeadInfo, Model, Unit};
use memfit::plan::CostModel;
use memfit::{Training, ZooModel};

use super::{DIGITS, Identity, Purpose};
use crate::config::RunConfig;
use crate::cost_model;
use crate::data::{self, DataFacts, DataSources, Kind, same_data};
use crate::device::Placement;
use crate::error::{Result, RunError};
use crate::goal::{Goal, goal, value_loss};
use crate::model;
use crate::process::ProcessMemory;
use crate::replicas::Crew;
use crate::step_config::training;
use crate::text::count;

/// What the replicas of a run share.
pub struct Common {
    /// What the run is called among those of the process.
    pub run_label: String,
    pub config: RunConfig,
    pub is_one_of_several: bool,
    pub(super) purpose: Purpose,
    /// Of the model.
    pub name: String,
    pub model: ZooModel,
    pub training: Training,
    pub optimizer: String,
    pub learning_rate: f32,
    pub seed: u64,
    /// What times are predicted from.
    pub cost_model: CostModel,
    /// Where that is from; none for the device's own.
    pub cost_model_file: Option<PathBuf>,
    /// The limit of the process, where there is one.
    pub process: Option<Arc<ProcessMemory>>,
    /// None where the run is only planned for no data in particular, or only answers.
    pub data: Option<Arc<DataSources>>,
    /// What standardised targets are measured in.
    pub units: Vec<Unit>,
    /// What samples weigh by their classes, in training.
    pub class_weights: Option<Arc<[f32]>>,
    /// The replicas that it is trained by.
    pub crew: Crew,
}

impl Common {
    /// Of a run whose first replica is on this device, and reads its data through this pool.
    pub(super) fn new(
        mut config: RunConfig,
        purpose: Purpose,
        device: &str,
        pool: &BytePool,
        process: Option<Arc<ProcessMemory>>,
        Identity { label, is_one_of_several, crew }: Identity,
    ) -> Result<Common> {
        // One that does not exist needs no data.
        config.model.name.as_deref().map_or(Ok(()), |name| ZooModel::from_name(name).map(|_| ()))?;
        let data = if needs_data(&config, purpose) { Some(data::open(&config, pool)?) } else { None };
        let (name, model) = named_model(&config, data.as_ref(), pool)?;
        let units = match (&data, config.run_folder()) {
            (Some(data), _) => data.schema.units.clone(),
            (None, Some(folder)) => same_data::schema(folder)?.units,
            (None, None) => Vec::new(),
        };
        let class_weights = class_weights(&config, &model, data.as_ref())?;
        let (optimizer, learning_rate, training) = training(&model, &config)?;
        if config.resumed_folder().is_some() && config.is_overridden("memory", "device") {
            // It is of the device that the run had.
            config.unset("memory", "cost_model");
        }
        let (cost_model, cost_model_file) = cost_model_of(&config, purpose, device, &crew)?;
        Ok(Common {
            run_label: label,
            is_one_of_several,
            purpose,
            name,
            model,
            training,
            optimizer,
            learning_rate,
            seed: config.train.seed.unwrap_or(1),
            cost_model,
            cost_model_file,
            process,
            data: data.map(Arc::new),
            units,
            class_weights,
            crew,
            config,
        })
    }

    /// What the model is evaluated by: its outputs in the units of their labels.
    pub fn heads(&self) -> Result<Vec<HeadInfo>> {
        let mut heads = self.model.heads()?;
        heads.iter_mut().for_each(|head| head.units.clone_from(&self.units));
        Ok(heads)
    }
}

/// What samples weigh by their classes, where there are data that say which these are.
fn class_weights(config: &RunConfig, model: &ZooModel, data: Option<&DataSources>) -> Result<Option<Arc<[f32]>>> {
    let (Some(said), Some(data)) = (&config.train.class_weight, data) else { return Ok(None) };
    let weights = data::class_weights(said, model.classes(), &data.schema.classes, data.survey.classes.as_ref())?;
    Ok(Some(weights.into()))
}

/// The numbers that a regression predicts, as it is said and as the data have it; none of what is no regression.
fn outputs(config: &RunConfig, facts: Option<&DataFacts>) -> Result<Option<usize>> {
    let (said, found) = (config.model.outputs, facts.and_then(|facts| facts.values));
    match (said, found) {
        (Some(said), Some(found)) if said != found => Err(RunError::conflict(format!(
            "model.outputs is {said}, and the labels have {}; leave out model.outputs",
            count(found, "number")
        ))),
        (said, found) if goal(config)? == Goal::Values => Ok(found.or(said).or(Some(1))),
        (_, found) => Ok(found),
    }
}

/// Writes down where a run is, so that it is found again when it goes on alone; of replicas that have a GPU each, each finds its own.
pub(super) fn settle_device(config: &mut RunConfig, purpose: Purpose, place: &Placement, crew: &Crew) -> Result<()> {
    let is_usual = place.is_on_host() && config.memory.logical.is_empty();
    if purpose != Purpose::Train || is_usual {
        return Ok(());
    }
    let name = place.device.name();
    let has_own = crew.size > 1 && config.memory.logical.is_empty();
    let kind = name.split(':').next().filter(|_| has_own && !is_named(config));
    config.set("memory", "device", kind.unwrap_or(name))
}

/// Whether a run says which device of a kind it is on.
fn is_named(config: &RunConfig) -> bool {
    config.memory.device.as_ref().is_some_and(|name| name.contains(':'))
}

fn needs_data(config: &RunConfig, purpose: Purpose) -> bool {
    match purpose {
        Purpose::Train => true,
        Purpose::Profile => config.data.train.is_some() || config.model.name.as_deref().is_none_or(|n| n == DIGITS),
        Purpose::Plan => config.data.train.is_some(),
        Purpose::Answer => false,
    }
}

/// The model, as run and data say it, and what it is called.
fn named_model(config: &RunConfig, data: Option<&DataSources>, pool: &BytePool) -> Result<(String, ZooModel)> {
    let name = match data {
        Some(data) => data.model.clone(),
        None => data::model_name(config, pool)?,
    };
    let model = model_of(&name, config, data)?;
    Ok((name, model))
}

/// The model of this name, as run and data say it.
pub(crate) fn model_of(name: &str, config: &RunConfig, data: Option<&DataSources>) -> Result<ZooModel> {
    // A run's folder says what the data said when it began.
    let facts = data.filter(|_| config.resumed_folder().is_none()).map(|data| data.facts.clone());
    let are_masks = match data {
        Some(data) => data.kind == Kind::Masks,
        None => config.data.kind.as_deref() == Some(Kind::Masks.name()),
    };
    let outputs = outputs(config, facts.as_ref())?;
    let model = model::from_config(name, &config.model, &facts.unwrap_or_default(), are_masks)?;
    let model = match outputs {
        Some(outputs) => model.with_values(outputs, value_loss(config))?,
        None => model,
    };
    let (soft, smoothing) = (config.data.mixup.is_some(), config.train.label_smoothing.unwrap_or(0.0));
    let weighted = weights_key(config, &model)?.is_some();
    let labels = Labels { soft, smoothing, weighted, ..model.labels() };
    Ok(model.with_labels(labels))
}

/// The key by which samples have weights; an error where their labels can have none.
fn weights_key(config: &RunConfig, model: &ZooModel) -> Result<Option<&'static str>> {
    let keys = [
        ("train.class_weight", config.train.class_weight.is_some()),
        ("data.sample_weight", config.data.sample_weight.is_some()),
    ];
    let Some((key, _)) = keys.into_iter().find(|(_, is_said)| *is_said) else { return Ok(None) };
    let has_none = match model.task() {
        Task::Masks => Some("of masks of background and foreground"),
        Task::Tokens => Some("of texts"),
        Task::Classes if config.data.mixup.is_some() => Some("that data.mixup mixes"),
        Task::Classes | Task::PixelClasses | Task::Values => None,
    };
    match has_none {
        Some(labels) => {
            Err(RunError::conflict(format!("{key} weighs labels, and those {labels} have no weights; leave it out")))
        }
        None => Ok(Some(key)),
    }
}

/// From which times are predicted, and the file of it.
fn cost_model_of(
    config: &RunConfig,
    purpose: Purpose,
    device: &str,
    crew: &Crew,
) -> Result<(CostModel, Option<PathBuf>)> {
    // Where nothing is planned anew, the file that a run was planned with may be gone.
    let is_planned = purpose != Purpose::Answer && config.resumed_folder().is_none();
    let named = config.memory.cost_model.as_deref().filter(|file| is_planned || file.is_file());
    let threads = crew.threads(crew.all_threads(config)?, 0);
    let (cost_model, file) = cost_model::in_use(named, device, threads)?;
    let cost_model = match config.replicas.link {
        Some(link) => cost_model.with_link(link),
        None => cost_model,
    };
    Ok((cost_model, file))
}
