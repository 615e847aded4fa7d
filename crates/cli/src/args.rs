//! What can be typed: commands, and options that are no keys of a run; those are in `settings.rs`. Nothing is checked here
//! beyond its form.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use memfit_run::config::scope;

use crate::overrides;
use crate::settings::{GROUP, Settings};

/// Deep-learning training in the memory you have.
///
/// With no command: trains a small convnet on the built-in handwritten digits.
#[derive(Parser, Debug)]
#[command(name = "memfit", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print JSON lines: one object for each event
    #[arg(long, global = true)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  memfit                                            train the digits convnet
  memfit train --epochs 5 --budget 4MiB             the same, in at most 4 MiB
  memfit plan --model resnet50 --batch 16           where each byte of a training step goes
  memfit plan --model gpt --batch 8 --budget 400MiB
  memfit profile --model gpt --budget 400MiB        measure it: a report with every byte and every kernel
  memfit init photos.toml --data photos/train       write a run file to start from
  memfit train photos.toml                          train it; Ctrl-C saves, --resume continues
  memfit predict runs/photos cat.jpg                class and probability
  memfit models                                     the models that --model can name
  memfit models resnet18                            one of them: what can be chosen of it
  memfit pack buffers.csv --capacity 1MiB           offsets for buffers of any origin
  memfit pack --torch snapshot.pickle               how much of PyTorch's memory is fragmentation
  memfit devices --calibrate                        measure this machine, for better predictions";

const TRAIN_EXAMPLES: &str = "Examples:
  memfit train --epochs 5 --budget 4MiB
  memfit train --batch 64 --micro-batch 16          gradient accumulation over 4 micro-batches
  memfit train photos.toml --budget 2GiB            a run file, and what overrides it
  memfit train --model resnet18 --data photos/train --epochs 10
  memfit train a.toml b.toml --budget 2GiB          two models in one memory, a step at a time
  memfit train a.toml b.toml a.batch=61 b.lr=0.01   what overrides one of them
  memfit train photos.toml --logical 4GiB           a hard limit for all that the run takes
  memfit train photos.toml --replicas 2             two replicas, the same bits as one with --lanes 2
  mpirun -n 4 memfit train photos.toml              four of them, on one machine or several (feature mpi)
  memfit train photos.toml --find-lr                tries learning rates and suggests one
  memfit train --resume runs/digits-1               continues where it was stopped
  memfit train --resume runs/digits-1/best.json     continues from the best checkpoint instead
  memfit train --plan plan.json                     exactly the plan that `memfit plan --save` wrote";

const EVAL_EXAMPLES: &str = "Examples:
  memfit eval runs/digits-1                         on the test set of the run
  memfit eval runs/photos --data more_photos        on other data of the same kind";

const PREDICT_EXAMPLES: &str = "Examples:
  memfit predict runs/photos cat.jpg dog.png        class and probability of each picture
  memfit predict runs/photos new/ --top 3 --out new.csv  all pictures of a folder, the three likeliest classes
  memfit predict runs/cells scan.png --overlay      scan_mask.png, and scan_overlay.png with the mask over the picture
  memfit predict runs/table rows.csv --out said.csv each row with its class behind it
  memfit predict runs/text --prompt 'Once ' --temperature 0.8
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
  memfit plan a.toml b.toml a.batch=61                        the same with another batch of one of them
  memfit plan --model resnet50 --replicas 4 --shard optimizer what each of four replicas takes
  memfit plan --model gpt --replicas 64 --link '100Gbit/s, 10us'  how long a step of 64 would take
  memfit plan --batch 64 --save plan.json                     for `memfit train --batch 64 --plan plan.json`
  memfit plan --model gpt --budget 300MiB --html plan.html    a report to look at and to send
  memfit plan --diff before.json after.json                   what changed, as for a pull request";

const PROFILE_EXAMPLES: &str = "Examples:
  memfit profile --model resnet18 --batch 16 --budget 300MiB   measures steps on made-up data
  memfit profile photos.toml --steps 20 --out profile          on the data of a run file
  memfit profile runs/photos                                   a finished training, with its curves; nothing runs
  memfit profile --compare before after                        two profiles, saved plans or run directories

In the folder: report.html to look at and to send, trace.json for Perfetto, tensorboard/ for TensorBoard, profile.json with all
the data, summary.md to paste into an issue.";

const HISTORY_EXAMPLES: &str = "Examples:
  memfit history runs/digits-1                      loss, test loss, accuracy and speed, in the terminal
  memfit history runs/a runs/b --curve \"test loss\"  two runs in one plot
  memfit history runs/a runs/b --svg curves.svg     everything, as a picture";

const PACK_EXAMPLES: &str = "Examples:
  memfit pack buffers.csv                           the least capacity, and how it was found
  memfit pack buffers.csv --capacity 1MiB --out placed.csv
  memfit pack --torch snapshot.pickle               what PyTorch reserved, and what the same buffers need
  memfit pack --torch snapshot.pickle --device 1 --timeout 10 --out placed.csv

A snapshot of PyTorch's memory is written by
  torch.cuda.memory._record_memory_history()        before the steps that are to be looked at
  torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")
It is read as plain data, and nothing in it is run.";

const MODELS_EXAMPLES: &str = "Examples:
  memfit models                                     every model, with its parameters and input
  memfit models mlp                                 its keys, with their defaults, ranges and options";

const DEVICES_EXAMPLES: &str = "Examples:
  memfit devices                                    processor, memory, who holds it, and the cost model that plans use
  memfit devices --logical 4GiB,2GiB                the parts that `memfit train --logical` would make
  memfit devices --calibrate                        measure, and use it from now on
  memfit devices --calibrate --device gpu:1         the same of a GPU, whose cost model is its own
  memfit devices --calibrate --out quiet.toml       measure into a file, for --cost-model

MEMFIT_VISIBLE_DEVICES, such as cpu:0 or cpu:0/1,gpu:0, hides all others from memfit; numbers stay as they are listed.
MEMFIT_ISA, such as avx2 or portable, takes other instructions than the best that the processor has.";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Train a model
    #[command(after_help = TRAIN_EXAMPLES)]
    Train(TrainArgs),
    /// Evaluate a trained model on its test set, or on other data
    #[command(after_help = EVAL_EXAMPLES)]
    Eval(EvalArgs),
    /// Classify images with a trained model
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(PredictArgs),
    /// Write a run file to start from, with every key explained
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Plan the memory of a training step without running it: its peak, and where each byte goes
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// See every byte and every kernel of a training step: measures some, and writes a report
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(ProfileArgs),
    /// Draw how runs went: losses, scores, speed, memory; several are overlaid
    #[command(after_help = HISTORY_EXAMPLES)]
    History(HistoryArgs),
    /// Pack buffers with lifetimes into the least memory: the planner's packer alone
    #[command(after_help = PACK_EXAMPLES)]
    Pack(PackArgs),
    /// List the models, with their parameters and inputs; of one: its keys, what they do, and an example
    #[command(after_help = MODELS_EXAMPLES)]
    Models(ModelsArgs),
    /// Show the devices of this machine and their memory, or measure their speed
    #[command(after_help = DEVICES_EXAMPLES)]
    Devices(DevicesArgs),
}

#[derive(Args, Debug, Default, Clone)]
pub struct ModelsArgs {
    /// Explain this model
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct PackArgs {
    /// A table with the columns id, lower, upper, size: a buffer lives for the steps lower ≤ t < upper
    #[arg(value_name = "FILE.csv", required_unless_present = "torch")]
    pub file: Option<PathBuf>,
    /// The buffers of a memory snapshot of PyTorch instead: what it reserved, what was live, and what exact packing needs
    #[arg(long, value_name = "SNAPSHOT.pickle", conflicts_with_all = ["file", "capacity"])]
    pub torch: Option<PathBuf>,
    /// The device of the snapshot [default: the one with the most events]
    #[arg(long, value_name = "N", requires = "torch", conflicts_with = "file")]
    pub device: Option<usize>,
    /// Capacity that all buffers must fit into, such as 512MiB, 2GB, 1.5G [default: the least that is found]
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<String>,
    /// Search on for at most this long, in place of a count of nodes that takes tens of milliseconds
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// Search on through at most so many nodes; the answer is the same every time
    #[arg(long, value_name = "N", conflicts_with = "timeout")]
    pub nodes: Option<u64>,
    /// Write the table with the column offset to this file; of a snapshot, the table id, lower, upper, size, offset
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl Command {
    /// Which keys could be given as options beside what was.
    pub fn scope(&self) -> u16 {
        let several = |runs: &[PathBuf]| if overrides::split(runs).0.len() > 1 { scope::SEVERAL } else { 0 };
        match self {
            Command::Train(args) if !args.resume.is_empty() => scope::TRAIN | scope::RESUME | several(&args.resume),
            Command::Train(args) => scope::TRAIN | several(&args.files),
            Command::Plan(args) => scope::PLAN | several(&args.files),
            Command::Profile(_) => scope::PLAN,
            Command::Eval(_) => scope::EVAL,
            Command::Predict(_) => scope::PREDICT,
            Command::Init(_) => scope::INIT,
            Command::History(_) | Command::Pack(_) | Command::Models(_) | Command::Devices(_) => 0,
        }
    }
}

impl Default for Command {
    fn default() -> Self {
        Command::Train(TrainArgs::default())
    }
}

#[derive(Args, Debug, Default, Clone)]
#[command(allow_negative_numbers = true)]
pub struct TrainArgs {
    /// Run files; `memfit init` writes one. Options override what they say. Several runs share the device: their weights and
    /// optimizer states stay side by side, and their steps take turns in one memory. RUN.KEY=VALUE overrides one of them: a.batch=61
    /// is the batch of a.toml
    #[arg(value_name = "RUN.toml|RUN.KEY=VALUE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub settings: Settings<{ scope::TRAIN }>,
    /// Resume the run of this directory from its last checkpoint, to the same bits as if it had never stopped; or from the
    /// checkpoint that is named: RUN_DIR/last.json, RUN_DIR/best.json, or one that was kept. Given several times, these runs share the device
    /// again
    #[arg(long, value_name = "RUN_DIR", conflicts_with_all = ["out", "weights", "plan"])]
    pub resume: Vec<PathBuf>,
    /// Train with exactly the plan of this file, which `memfit plan --save` wrote for the same run
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Look for a learning rate instead: makes --steps (100) at rates that rise, draws their losses and suggests one. Nothing is
    /// kept but, with --out DIR, the curve: lr.csv and lr.svg
    #[arg(long, value_name = "FROM..TO", num_args = 0..=1, require_equals = true, default_missing_value = "1e-6..10",
          conflicts_with_all = ["resume", "plan"])]
    pub find_lr: Option<String>,
}

#[derive(Args, Debug, Default, Clone)]
pub struct EvalArgs {
    /// The directory of a run: its best weights; or RUN_DIR/last.json, RUN_DIR/best.json, or one that was kept
    #[arg(value_name = "RUN_DIR")]
    pub run_dir: PathBuf,
    /// Evaluate on all of this data, of the same kind, instead of the run's test set
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Batch size [default: the micro-batch of training]
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    #[command(flatten)]
    pub settings: Settings<{ scope::EVAL }>,
}

#[derive(Args, Debug, Default, Clone)]
#[command(allow_negative_numbers = true)]
pub struct PredictArgs {
    /// The directory of a run: its best weights; or RUN_DIR/last.json, RUN_DIR/best.json, or one that was kept
    #[arg(value_name = "RUN_DIR")]
    pub run_dir: PathBuf,
    /// What the model is to look at: pictures or folders of them; a table, arrays (.npz, .npy) or TFRecord; nothing for text
    #[arg(value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Tell the N most likely classes
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Write to this file instead: .csv, or .jsonl for one JSON object a line; a table's rows with the answer behind them. Of
    /// masks, the folder for them
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// Write also each picture with its mask over it
    #[arg(long)]
    pub overlay: bool,
    #[command(flatten)]
    pub text: TextArgs,
    #[command(flatten)]
    pub settings: Settings<{ scope::PREDICT }>,
}

#[derive(Args, Debug, Default, Clone)]
#[command(next_help_heading = "Text")]
pub struct TextArgs {
    /// The text to go on from; of a model of tokens, their numbers with spaces between [default: the beginning of a line]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// How many tokens to add [default: 256]
    #[arg(long, value_name = "N")]
    pub tokens: Option<usize>,
    /// Below 1 likely tokens are drawn more often, above 1 less; 0 takes the likeliest each time [default: 1]
    #[arg(long, value_name = "X")]
    pub temperature: Option<f64>,
    /// Draw among the K likeliest tokens alone
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Draw among the fewest tokens that together have this probability
    #[arg(long, value_name = "SHARE")]
    pub top_p: Option<f64>,
    /// The same number gives the same text [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

#[derive(Args, Debug, Clone)]
pub struct InitArgs {
    /// The file to write
    #[arg(value_name = "FILE", default_value = "run.toml")]
    pub file: PathBuf,
    #[command(flatten)]
    pub settings: Settings<{ scope::INIT }>,
}

#[derive(Args, Debug, Default, Clone)]
#[command(allow_negative_numbers = true)]
pub struct PlanArgs {
    /// Run files; `memfit init` writes one. Options override what they say. Several are planned as runs that share the device;
    /// a.batch=61 is the batch of a.toml
    #[arg(value_name = "RUN.toml|RUN.KEY=VALUE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub settings: Settings<{ scope::PLAN }>,
    /// Show the Pareto frontier of step time against memory budget
    #[arg(long)]
    pub frontier: bool,
    /// Draw the frontier into this file, as SVG
    #[arg(long, value_name = "FILE", requires = "frontier")]
    pub svg: Option<PathBuf>,
    /// Find the largest batch size that fits into the budget, without micro-batches
    #[arg(long, requires = "budget", conflicts_with_all = ["batch", "frontier"])]
    pub max_batch: bool,
    /// Write the plan to this file, for `memfit train --plan` and `memfit plan --diff`
    #[arg(long, value_name = "FILE", conflicts_with = "frontier")]
    pub save: Option<PathBuf>,
    /// Write a report of the plan to this file: where every byte lies when, as a page to look at and to send
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frontier", "max_batch"])]
    pub html: Option<PathBuf>,
    /// Show what changed between two saved plans
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"],
          conflicts_with_all = ["files", GROUP, "frontier", "svg", "max_batch", "save", "html"])]
    pub diff: Option<Vec<PathBuf>>,
}

#[derive(Args, Debug, Default, Clone)]
pub struct HistoryArgs {
    /// Directories of runs, which may still go on
    #[arg(value_name = "RUN_DIR", required = true)]
    pub runs: Vec<PathBuf>,
    /// Draw this curve, such as loss or "test accuracy"; may be given several times [default: those that are looked at first]
    #[arg(long, value_name = "NAME")]
    pub curve: Vec<String>,
    /// Draw into this file, as SVG, all curves if none is named
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Args, Debug, Default, Clone)]
#[command(allow_negative_numbers = true)]
pub struct ProfileArgs {
    /// A run file, or the directory of a run. Without it, the model that the options name; without data, on numbers that mean
    /// nothing
    #[arg(value_name = "RUN.toml|RUN_DIR")]
    pub run: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings<{ scope::PLAN }>,
    /// Record so many training steps, after a few that warm up; of the directory of a run, on its data
    /// [default: for a second or two; of a run's directory none]
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// The folder to write to [default: a new one under profiles/]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Name the path of the run in what is written
    #[arg(long)]
    pub with_paths: bool,
    /// Show what changed between two: profiles, saved plans, or directories of profiles or runs; with --out also as
    /// compare.html, compare.md and compare.json
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["run", GROUP, "steps", "with_paths"])]
    pub compare: Option<Vec<PathBuf>>,
}

#[derive(Args, Debug, Default, Clone)]
#[command(allow_negative_numbers = true)]
pub struct DevicesArgs {
    /// The device that is split or measured, such as gpu or gpu:1 [default: cpu]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
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
    /// Number of threads to measure with [default: all cores]
    #[arg(long, value_name = "N", requires = "calibrate")]
    pub threads: Option<usize>,
}
