//! The sections of a run's configuration, as they are read: a value for each key that is set.

use std::path::PathBuf;
use std::time::Duration;

use memfit::data::augment::Augmentation;
use memfit::nn::Loss;
use memfit::nn::layers::Activation;
use memfit::plan::Link;

/// `None`, or empty, where a key is not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections {
    pub model: ModelConfig,
    pub data: DataConfig,
    pub train: TrainConfig,
    pub memory: MemoryConfig,
    pub replicas: ReplicasConfig,
    pub report: ReportConfig,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelConfig {
    pub name: Option<String>,
    pub input: Option<Vec<usize>>,
    pub classes: Option<usize>,
    /// Numbers that a regression predicts.
    pub outputs: Option<usize>,
    pub hidden: Option<Vec<usize>>,
    pub activation: Option<Activation>,
    pub stem: Option<String>,
    pub dropout: Option<f32>,
    pub kernel: Option<usize>,
    pub layers: Option<usize>,
    /// Of a convnet what its channels are multiplied by, else channels.
    pub width: Option<f32>,
    pub heads: Option<usize>,
    pub sequence: Option<usize>,
    pub vocabulary: Option<usize>,
    pub weights: Option<PathBuf>,
    pub freeze: Vec<String>,
    pub trainable: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataConfig {
    pub kind: Option<String>,
    pub train: Option<PathBuf>,
    pub test: Option<PathBuf>,
    pub hold_out: Option<f32>,
    /// One, or several columns of numbers.
    pub label: Vec<String>,
    pub features: Option<String>,
    pub test_label: Option<String>,
    pub test_features: Option<String>,
    pub sample_weight: Option<String>,
    pub standardise_targets: Option<bool>,
    pub masks: Option<String>,
    pub colours: Vec<String>,
    pub header: Option<bool>,
    pub token: Option<String>,
    pub augment: Vec<Augmentation>,
    /// Height and width.
    pub image_size: Option<[usize; 2]>,
    pub mixup: Option<f32>,
    pub mean: Option<Vec<f32>>,
    pub std: Option<Vec<f32>>,
    pub shuffle: Option<usize>,
    pub cache: Option<String>,
    pub skip_bad: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainConfig {
    pub batch: Option<usize>,
    pub micro_batch: Option<String>,
    pub epochs: Option<usize>,
    pub steps: Option<usize>,
    pub optimizer: Option<String>,
    pub lr: Option<f32>,
    pub weight_decay: Option<f32>,
    pub schedule: Option<String>,
    pub warm_up: Option<usize>,
    pub decay_every: Option<usize>,
    pub decay: Option<f32>,
    pub clip_norm: Option<f32>,
    pub clip_value: Option<f32>,
    pub label_smoothing: Option<f32>,
    pub task: Option<String>,
    pub loss: Option<Loss>,
    pub class_weight: Option<ClassWeights>,
    pub precision: Option<String>,
    pub monitor: Option<String>,
    pub patience: Option<usize>,
    pub save_every: Option<usize>,
    pub keep: Option<usize>,
    pub seed: Option<u64>,
    pub out: Option<PathBuf>,
    pub share: Option<f32>,
    pub priority: Option<u64>,
}

/// What samples weigh by their classes.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// Each class as much as any other, however many samples it has.
    Balanced,
    /// By name or number; the others weigh 1.
    Of(Vec<(String, f32)>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryConfig {
    /// Sizes in bytes.
    pub total: Option<u64>,
    pub budget: Option<u64>,
    pub host_budget: Option<u64>,
    pub device: Option<String>,
    /// Limits of logical devices.
    pub logical: Vec<u64>,
    pub growth: Option<String>,
    pub threads: Option<usize>,
    pub cost_model: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicasConfig {
    /// In a process.
    pub count: Option<usize>,
    pub lanes: Option<usize>,
    pub shard: Option<String>,
    /// In bytes.
    pub piece: Option<u64>,
    pub stall: Option<Duration>,
    pub batch_norm: Option<String>,
    pub link: Option<Link>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportConfig {
    pub tensorboard: Option<bool>,
    pub histograms: Option<bool>,
    pub log_every: Option<Duration>,
}
