//! Every key of a run file: how it is read, what it means, and an example of it.

use super::Spec;
use super::read::{Given, Reading};

/// One key of one section.
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
    /// What `memfit init` shows, in TOML.
    pub example: &'static str,
    pub meaning: &'static str,
    pub set: fn(&mut Spec, Given) -> Reading,
}

const fn key(
    section: &'static str,
    name: &'static str,
    example: &'static str,
    meaning: &'static str,
    set: fn(&mut Spec, Given) -> Reading,
) -> Key {
    Key { section, name, example, meaning, set }
}

/// In the order in which a person reads them.
pub const KEYS: [Key; 57] = [
    key("model", "name", "\"resnet18\"", "see `memfit models`", |s, v| v.text().set(&mut s.model.name)),
    key("model", "input", "[224, 224, 3]", "height, width, channels; the data says it where it can", |s, v| {
        v.counts().set(&mut s.model.input)
    }),
    key("model", "classes", "10", "counted in the data where it can be", |s, v| v.count().set(&mut s.model.classes)),
    key("model", "stem", "\"imagenet\"", "of a resnet: imagenet, or cifar for images of 32x32", |s, v| {
        v.one_of(&["imagenet", "cifar"]).set(&mut s.model.stem)
    }),
    key("model", "dropout", "0.2", "share of activations dropped before the last layer", |s, v| {
        v.share().set(&mut s.model.dropout)
    }),
    key("model", "layers", "6", "of a gpt", |s, v| v.count().set(&mut s.model.layers)),
    key("model", "width", "384", "of a gpt", |s, v| v.count().set(&mut s.model.width)),
    key("model", "heads", "6", "of a gpt", |s, v| v.count().set(&mut s.model.heads)),
    key("model", "sequence", "256", "tokens in a sample of a gpt", |s, v| v.count().set(&mut s.model.sequence)),
    key("model", "vocabulary", "4096", "tokens that a gpt knows; a text file says it itself", |s, v| {
        v.count().set(&mut s.model.vocabulary)
    }),
    key(
        "model",
        "weights",
        "\"weights.safetensors\"",
        "start from these; what does not fit by name is left out",
        |s, v| v.path().set(&mut s.model.weights),
    ),
    key("model", "freeze", "[\"conv1\", \"bn1\", \"layer1\"]", "layers that are not trained: names, *, **", |s, v| {
        v.texts().put(&mut s.model.freeze)
    }),
    key("model", "trainable", "[\"fc\"]", "or the other way round: all but these are frozen", |s, v| {
        v.texts().put(&mut s.model.trainable)
    }),
    key(
        "data",
        "kind",
        "\"images\"",
        "digits, images, masks, csv, npz, tfrecord, tokens or text; guessed from train",
        |s, v| {
            v.one_of(&["digits", "images", "masks", "csv", "npz", "tfrecord", "tokens", "text"]).set(&mut s.data.kind)
        },
    ),
    key("data", "train", "\"photos/train\"", "a folder with one folder for each class, or a file", |s, v| {
        v.path().set(&mut s.data.train)
    }),
    key("data", "test", "\"photos/test\"", "the same for evaluation", |s, v| v.path().set(&mut s.data.test)),
    key("data", "hold_out", "0.2", "without test: the share of train that is kept for evaluation", |s, v| {
        v.share().set(&mut s.data.hold_out)
    }),
    key(
        "data",
        "label",
        "\"label\"",
        "column of a csv (its name, or its number from 0), array of an npz, or feature of a tfrecord that is the label",
        |s, v| v.text().set(&mut s.data.label),
    ),
    key("data", "features", "\"image\"", "array of an npz, or feature of a tfrecord, that is the input", |s, v| {
        v.text().set(&mut s.data.features)
    }),
    key("data", "header", "true", "whether the first line of a csv names the columns", |s, v| {
        v.flag().set(&mut s.data.header)
    }),
    key("data", "token", "\"u16\"", "what a token file holds: u8, u16 or u32", |s, v| {
        v.one_of(&["u8", "u16", "u32"]).set(&mut s.data.token)
    }),
    key(
        "data",
        "augment",
        "[\"crop\", \"flip\"]",
        "crop, pad-crop:4, flip, flip-vertical, rotate:15, brightness:0.2, contrast:0.2, cutout:16",
        |s, v| v.texts().put(&mut s.data.augment),
    ),
    key("data", "mixup", "0.2", "mixes samples and their labels, by Beta(a, a)", |s, v| {
        v.positive().set(&mut s.data.mixup)
    }),
    key("data", "mean", "[0.485, 0.456, 0.406]", "taken from each channel, of pixels in 0 to 1", |s, v| {
        v.numbers().set(&mut s.data.mean)
    }),
    key("data", "std", "[0.229, 0.224, 0.225]", "and divided by this", |s, v| v.numbers().set(&mut s.data.std)),
    key(
        "data",
        "shuffle",
        "10000",
        "samples to draw the next one from; all if not given, and 1 is their order",
        |s, v| v.count().set(&mut s.data.shuffle),
    ),
    key("data", "cache", "\"memory\"", "off, memory (spills to disk), or a file that is kept", |s, v| {
        v.text().set(&mut s.data.cache)
    }),
    key("data", "skip_bad", "false", "leave out samples that cannot be read, and say how many", |s, v| {
        v.flag().set(&mut s.data.skip_bad)
    }),
    key("train", "batch", "32", "samples a step", |s, v| v.count().set(&mut s.train.batch)),
    key("train", "micro_batch", "\"auto\"", "auto, off, allow, or a number: samples at a time", |s, v| {
        v.word().set(&mut s.train.micro_batch)
    }),
    key("train", "epochs", "10", "times through the data", |s, v| v.count().set(&mut s.train.epochs)),
    key("train", "steps", "1000", "or so many steps", |s, v| v.count().set(&mut s.train.steps)),
    key("train", "optimizer", "\"adamw\"", "sgd, momentum, nesterov, adam, adamw, rmsprop or adagrad", |s, v| {
        v.text().set(&mut s.train.optimizer)
    }),
    key("train", "lr", "0.001", "learning rate", |s, v| v.positive().set(&mut s.train.lr)),
    key("train", "weight_decay", "0.01", "of sgd, momentum, nesterov, adam and adamw", |s, v| {
        v.not_negative().set(&mut s.train.weight_decay)
    }),
    key("train", "schedule", "\"cosine\"", "constant, step or cosine: how the learning rate goes down", |s, v| {
        v.one_of(&["constant", "step", "cosine"]).set(&mut s.train.schedule)
    }),
    key("train", "warm_up", "100", "steps in which the learning rate goes up", |s, v| {
        v.count_or_zero().set(&mut s.train.warm_up)
    }),
    key("train", "decay_every", "10", "of schedule \"step\": epochs", |s, v| v.count().set(&mut s.train.decay_every)),
    key("train", "decay", "0.1", "of schedule \"step\": the factor; of \"cosine\": the share that stays", |s, v| {
        v.share_or_one().set(&mut s.train.decay)
    }),
    key("train", "clip_norm", "1.0", "the largest norm of all gradients together", |s, v| {
        v.positive().set(&mut s.train.clip_norm)
    }),
    key("train", "clip_value", "1.0", "the largest gradient of any weight", |s, v| {
        v.positive().set(&mut s.train.clip_value)
    }),
    key("train", "label_smoothing", "0.1", "share of a label that is spread over all classes", |s, v| {
        v.share().set(&mut s.train.label_smoothing)
    }),
    key("train", "precision", "\"f32\"", "f32, mixed (bf16 activations) or mixed-f16 (with a scaled loss)", |s, v| {
        v.text().set(&mut s.train.precision)
    }),
    key("train", "monitor", "\"accuracy\"", "what best means: loss, accuracy, top5, mean_iou or perplexity", |s, v| {
        v.text().set(&mut s.train.monitor)
    }),
    key("train", "patience", "5", "stop after so many evaluations without a better one", |s, v| {
        v.count().set(&mut s.train.patience)
    }),
    key("train", "save_every", "500", "steps between checkpoints, besides the one after each epoch", |s, v| {
        v.count().set(&mut s.train.save_every)
    }),
    key("train", "seed", "1", "of everything random", |s, v| v.whole().set(&mut s.train.seed)),
    key("train", "out", "\"runs/photos\"", "the folder of the run", |s, v| v.path().set(&mut s.train.out)),
    key("train", "share", "2.0", "of several runs on one device: this many times the time of one with 1", |s, v| {
        v.positive().set(&mut s.train.share)
    }),
    key(
        "train",
        "priority",
        "1",
        "of several runs on one device: while one of a higher one is ready, no other goes",
        |s, v| v.whole().set(&mut s.train.priority),
    ),
    key("memory", "budget", "\"2GiB\"", "for everything on the device; the plan keeps to it", |s, v| {
        v.size().set(&mut s.memory.budget)
    }),
    key("memory", "host_budget", "\"512MiB\"", "for everything that the data pipeline holds", |s, v| {
        v.size().set(&mut s.memory.host_budget)
    }),
    key(
        "memory",
        "device",
        "\"cpu:0\"",
        "where to compute, see `memfit devices`; cpu:0/1 is the second logical device",
        |s, v| v.text().set(&mut s.memory.device),
    ),
    key(
        "memory",
        "logical",
        "[\"4GiB\", \"2GiB\"]",
        "splits the device: hard limits for all that runs take of each part",
        |s, v| v.sizes().put(&mut s.memory.logical),
    ),
    key(
        "memory",
        "growth",
        "\"commit\"",
        "commit: all memory at the start; lazy: page by page when it is used",
        |s, v| v.one_of(&["commit", "lazy"]).set(&mut s.memory.growth),
    ),
    key("memory", "threads", "2", "all cores if not given", |s, v| v.count().set(&mut s.memory.threads)),
    key(
        "memory",
        "cost_model",
        "\"cost_model.toml\"",
        "constants of this machine, from `memfit devices --calibrate`",
        |s, v| v.path().set(&mut s.memory.cost_model),
    ),
];
