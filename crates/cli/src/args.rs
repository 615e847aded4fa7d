//! What can be typed. Nothing is checked here beyond its form: see `run.rs`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Deep-learning training in the memory you have.
///
/// With no command: trains a small convnet on the built-in handwritten digits.
#[derive(Parser, Debug)]
#[command(name = "memfit", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print one JSON object a line, for machines
    #[arg(long, global = true)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  memfit                                            train the digits convnet
  memfit train --epochs 5 --budget 4MiB             the same, in at most 4 MiB
  memfit plan --model resnet50 --batch 16           where each byte of a training step goes
  memfit plan --model gpt --batch 8 --budget 400MiB
  memfit init photos.toml --data photos/train       a run file to start from
  memfit train photos.toml                          train it; Ctrl-C saves, --resume goes on
  memfit predict runs/photos cat.jpg                class and probability
  memfit models                                     what can be named
  memfit pack buffers.csv --capacity 1MiB           offsets for buffers of any origin
  memfit devices --calibrate                        measure this machine, for better predictions";

const TRAIN_EXAMPLES: &str = "Examples:
  memfit train --epochs 5 --budget 4MiB
  memfit train --batch 64 --micro-batch 16          gradients summed over micro-batches
  memfit train photos.toml --budget 2GiB            a run file, and what overrides it
  memfit train --model resnet18 --data photos/train --epochs 10
  memfit train a.toml b.toml --budget 2GiB          two models in one memory, a step at a time
  memfit train photos.toml --logical 4GiB           a hard limit for all that the run takes
  memfit train --resume runs/digits-1               goes on where it was stopped
  memfit train --resume runs/digits-1/best.json     goes on from the best checkpoint instead
  memfit train --plan plan.json                     exactly the plan that `memfit plan --save` wrote";

const EVAL_EXAMPLES: &str = "Examples:
  memfit eval runs/digits-1                         on the test set of the run
  memfit eval runs/photos --data more_photos        on other data of the same kind";

const PREDICT_EXAMPLES: &str = "Examples:
  memfit predict runs/photos cat.jpg dog.png        class and probability of each image
  memfit predict runs/photos *.jpg --json           one object a line
  memfit predict runs/photos *.jpg --skip-bad       files that cannot be read are listed at the end";

const INIT_EXAMPLES: &str = "Examples:
  memfit init                                       run.toml for the built-in digits
  memfit init photos.toml --data photos/train --model resnet18";

const PLAN_EXAMPLES: &str = "Examples:
  memfit plan --model resnet50 --batch 16                     where each byte of a training step goes
  memfit plan --model resnet50 --batch 16 --budget 700MiB     the fastest plan that fits, or what would
  memfit plan --model resnet50 --frontier --svg frontier.svg  step time against budget
  memfit plan --model resnet50 --max-batch --budget 2GiB      the largest batch that fits
  memfit plan a.toml b.toml --budget 2GiB                     what two models take that share a device
  memfit plan --batch 64 --save plan.json                     for `memfit train --batch 64 --plan plan.json`
  memfit plan --diff before.json after.json                   what changed, as for a pull request";

const DEVICES_EXAMPLES: &str = "Examples:
  memfit devices                                    processor, memory, who holds it, and the cost model that plans use
  memfit devices --logical 4GiB,2GiB                the parts that `memfit train --logical` would make
  memfit devices --calibrate                        measure, and use it from now on
  memfit devices --calibrate --out quiet.toml       measure into a file, for --cost-model

MEMFIT_VISIBLE_DEVICES, such as cpu:0 or cpu:0/1,gpu:0, hides all others from memfit.";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Train a model
    #[command(after_help = TRAIN_EXAMPLES)]
    Train(TrainArgs),
    /// Judge a trained model on its test set, or on other data
    #[command(after_help = EVAL_EXAMPLES)]
    Eval(EvalArgs),
    /// Tell the classes of images with a trained model
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(PredictArgs),
    /// Write a run file to start from, with every key explained
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Plan a model without running it: the peak, and where each byte goes
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Give offsets to buffers with lifetimes, so that they take least memory
    Pack(Pack),
    /// List the models
    Models,
    /// Show what this machine computes on, or measure it
    #[command(after_help = DEVICES_EXAMPLES)]
    Devices(DevicesArgs),
}

#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct Pack {
    /// A table with the columns id, lower, upper, size: a buffer lives for the steps lower ≤ t < upper
    #[arg(value_name = "FILE.csv")]
    pub file: PathBuf,
    /// Bytes that all must fit into, such as 512MiB, 2GB, 1.5G; without it, as few as can be found
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<String>,
    /// Search for at most this long
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub timeout: f64,
    /// Write the table with the column offset to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl Default for Command {
    fn default() -> Self {
        Command::Train(TrainArgs::default())
    }
}

/// What a plan depends on: a run file, and what is said besides it.
#[derive(Args, Debug, Default, Clone, PartialEq)]
#[command(allow_negative_numbers = true)]
pub struct Overrides {
    /// A run file; see `memfit init`. What is given here overrides it. Several run files share the device: their states
    /// stand side by side, and their steps take turns in one memory; what is said of one stands in its file
    #[arg(value_name = "RUN.toml")]
    pub files: Vec<PathBuf>,
    /// Train on this: a folder with one folder for each class, or a file (csv, npz, tfrecord, txt)
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Name of a model; see `memfit models`
    #[arg(long)]
    pub model: Option<String>,
    /// Size of the input, such as 224x224x3
    #[arg(long, value_name = "HxWxC")]
    pub input: Option<String>,
    /// Number of classes
    #[arg(long)]
    pub classes: Option<usize>,
    /// Samples a step
    #[arg(long)]
    pub batch: Option<usize>,
    /// Samples at a time, gradients being summed over the batch: auto (where it changes no more than rounding), off, a
    /// divisor of the batch, or allow (also where batch statistics then come from fewer samples)
    #[arg(long, value_name = "auto|off|N|allow")]
    pub micro_batch: Option<String>,
    /// sgd, momentum, nesterov, adam, adamw, rmsprop or adagrad
    #[arg(long)]
    pub optimizer: Option<String>,
    /// Learning rate
    #[arg(long)]
    pub lr: Option<f32>,
    /// f32; mixed: activations stored in bf16; mixed-f16: in f16, with a scaled loss. Weights and sums stay f32
    #[arg(long)]
    pub precision: Option<String>,
    /// Bytes for everything on the device, such as 512MiB, 2GB, 1.5G; of several runs, for all together and instead of what
    /// their files say
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<String>,
    /// Bytes for everything that the data pipeline holds; if not given, 512MiB, or a quarter of a smaller device
    #[arg(long, value_name = "SIZE")]
    pub host_budget: Option<String>,
    /// Where to compute, such as cpu or cpu:0/1; see `memfit devices`
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Split the device into logical ones with these hard limits, for everything that a run takes there; the first run has
    /// the first, unless --device or memory.device says another
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',', allow_hyphen_values = true)]
    pub logical: Vec<String>,
    /// commit: take all memory at the start; lazy: page by page, when it is first used
    #[arg(long, value_name = "commit|lazy")]
    pub growth: Option<String>,
    /// Layers that are not trained, such as conv1 or 'layer*/0'; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub freeze: Vec<String>,
    /// Threads; all cores if not given
    #[arg(long)]
    pub threads: Option<usize>,
    /// Constants of this machine, from which times are predicted; see `memfit devices --calibrate`
    #[arg(long, value_name = "FILE")]
    pub cost_model: Option<PathBuf>,
    /// The former name of --cost-model
    #[arg(long, value_name = "FILE", hide = true)]
    pub profile: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long)]
    pub seed: Option<u64>,
}

#[derive(Args, Debug, Default, Clone)]
pub struct TrainArgs {
    #[command(flatten)]
    pub overrides: Overrides,
    /// Times through the data
    #[arg(long, conflicts_with = "steps")]
    pub epochs: Option<usize>,
    /// Stop after this many steps instead
    #[arg(long)]
    pub steps: Option<usize>,
    /// The folder of the run: plan, checkpoints, weights; a new one under runs/ if not given
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the run of this folder, from its last checkpoint, to the same bits as if it had never stopped; or
    /// from the checkpoint that is named, RUN_DIR/last.json or RUN_DIR/best.json. Given several times, these runs share
    /// the device again
    #[arg(long, value_name = "RUN_DIR", conflicts_with_all = ["out", "weights", "plan"])]
    pub resume: Vec<PathBuf>,
    /// Start from the weights of this file (safetensors), as far as they fit by name
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Train with exactly the plan of this file, which `memfit plan --save` wrote for the same run
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Leave out samples that cannot be read, and say how many
    #[arg(long)]
    pub skip_bad: bool,
}

#[derive(Args, Debug, Default, Clone)]
pub struct EvalArgs {
    /// The folder of a run
    #[arg(value_name = "RUN_DIR")]
    pub run_dir: PathBuf,
    /// Other data of the same kind, all of it
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Samples at a time
    #[arg(long)]
    pub batch: Option<usize>,
    /// Threads; as many as in training if not given
    #[arg(long)]
    pub threads: Option<usize>,
    /// Leave out samples that cannot be read
    #[arg(long)]
    pub skip_bad: bool,
}

#[derive(Args, Debug, Default, Clone)]
pub struct PredictArgs {
    /// The folder of a run
    #[arg(value_name = "RUN_DIR")]
    pub run_dir: PathBuf,
    /// Images, JPEG or PNG
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Threads; as many as in training if not given
    #[arg(long)]
    pub threads: Option<usize>,
    /// Leave out files that cannot be read, and list them at the end
    #[arg(long)]
    pub skip_bad: bool,
}

#[derive(Args, Debug, Clone)]
pub struct InitArgs {
    /// The file to write
    #[arg(value_name = "FILE", default_value = "run.toml")]
    pub file: PathBuf,
    /// Name of a model; see `memfit models`
    #[arg(long)]
    pub model: Option<String>,
    /// Train on this: a folder with one folder for each class, or a file
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
}

#[derive(Args, Debug, Default, Clone)]
pub struct PlanArgs {
    #[command(flatten)]
    pub overrides: Overrides,
    /// Step time against budget: every plan that no other beats in both
    #[arg(long)]
    pub frontier: bool,
    /// Draw the frontier into this file
    #[arg(long, value_name = "FILE", requires = "frontier")]
    pub svg: Option<PathBuf>,
    /// Find the largest batch that fits into the budget, in one piece
    #[arg(long, requires = "budget", conflicts_with_all = ["batch", "frontier"])]
    pub max_batch: bool,
    /// Write the plan to this file, for `memfit train --plan` and `memfit plan --diff`
    #[arg(long, value_name = "FILE", conflicts_with = "frontier")]
    pub save: Option<PathBuf>,
    /// Say what changed between two saved plans
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"],
          conflicts_with_all = ["Overrides", "frontier", "svg", "max_batch", "save"])]
    pub diff: Option<Vec<PathBuf>>,
}

#[derive(Args, Debug, Default, Clone)]
#[command(allow_negative_numbers = true)]
pub struct DevicesArgs {
    /// Show how these limits would split the device; see `memfit train --logical`
    #[arg(
        long,
        value_name = "SIZE,SIZE",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "calibrate"
    )]
    pub logical: Vec<String>,
    /// Measure this machine, and write a cost model that plans use from then on
    #[arg(long)]
    pub calibrate: bool,
    /// Write the cost model to this file instead, for --cost-model
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    pub out: Option<PathBuf>,
    /// Threads to measure with; all cores if not given
    #[arg(long, requires = "calibrate")]
    pub threads: Option<usize>,
}
