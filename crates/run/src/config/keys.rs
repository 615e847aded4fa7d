//! Every key of a run: how it is read, what it means, an example of it, and, where it is also an option of a command, its
//! name, its help and its scope. Run files, the file that a new run begins with, the arguments of the command line and the
//! rules of which of them go together are all made from this one table.

use super::key::scope::{EVAL, INIT, PLAN, PREDICT, RESUME, SEVERAL, TRAIN};
use super::key::{Form, Key, key};

/// The key of this name.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.section == section && k.name == name)
}

/// In the order in which a person reads them.
pub static KEYS: &[Key] = &[
    key("model", "name", "\"resnet18\"", "a model of the zoo; by itself the usual one for the data", |s, v| {
        v.text().set(&mut s.model.name)
    })
    .option("model", (Form::Text, "NAME"), TRAIN | PLAN | INIT, "Name of a model; `memfit models` lists them")
    .default("the usual one for the data; without any, digits"),
    key("model", "input", "[224, 224, 3]", "height, width, channels; the data says it where it can", |s, v| {
        v.counts().set(&mut s.model.input)
    })
    .option("input", (Form::Shape, "HxWxC"), TRAIN | PLAN, "Shape of the input, such as 224x224x3")
    .default("the data's, else the model's own"),
    key("model", "classes", "10", "counted in the data where it can be", |s, v| v.count().set(&mut s.model.classes))
        .option("classes", (Form::Whole, "N"), TRAIN | PLAN, "Number of classes")
        .default("counted in the data where it can be"),
    key("model", "outputs", "1", "numbers that a regression predicts; the labels say it", |s, v| {
        v.count().set(&mut s.model.outputs)
    })
    .typed("outputs", (Form::Whole, "N"), TRAIN | PLAN | INIT),
    key("model", "hidden", "[64, 32]", "of an mlp: units of each hidden layer; [] for a linear model", |s, v| {
        v.widths().set(&mut s.model.hidden)
    })
    .option("hidden", (Form::Counts, "N,N"), TRAIN | PLAN | INIT, "Units of an mlp's hidden layers, such as 64,32; none for a linear model")
    .default("two layers as the input is large"),
    key("model", "activation", "\"relu\"", "of an mlp: relu, gelu, silu, tanh, …, after each hidden layer", |s, v| {
        v.activation().set(&mut s.model.activation)
    })
    .option("activation", (Form::Text, "NAME"), TRAIN | PLAN | INIT, "Activation of an mlp's hidden layers: relu, gelu, silu, tanh, …; `memfit models mlp` lists them")
    .default("relu"),
    key("model", "dropout", "0.2", "dropout rate: of an mlp after each hidden layer, else before the last layers", |s, v| {
        v.share().set(&mut s.model.dropout)
    })
    .option("dropout", (Form::Number, "RATE"), TRAIN | PLAN | INIT, "Dropout rate: of an mlp after each hidden layer, of others before their last layers")
    .default("the model's own"),
    key("model", "width", "0.5", "of a convnet: what its channels are multiplied by; of a gpt: channels, such as 384", |s, v| {
        v.positive().set(&mut s.model.width)
    })
    .option("width", (Form::Number, "X"), TRAIN | PLAN | INIT, "Width of a convnet, such as 0.5 for half the channels; of a gpt its channels, such as 384")
    .default("1; of a gpt 384"),
    key("model", "kernel", "5", "of digits and unet: height and width of the convolutions, odd", |s, v| {
        v.count().set(&mut s.model.kernel)
    })
    .option("kernel", (Form::Whole, "N"), TRAIN | PLAN | INIT, "Height and width of the convolutions of digits and unet, odd")
    .default("3"),
    key("model", "stem", "\"imagenet\"", "of a resnet: imagenet, or cifar for images of 32x32", |s, v| {
        v.one_of(&["imagenet", "cifar"]).set(&mut s.model.stem)
    })
    .option("stem", (Form::Text, "imagenet|cifar"), TRAIN | PLAN | INIT, "What a resnet begins with: imagenet, or cifar for images of 32x32")
    .default("imagenet"),
    key("model", "layers", "6", "of a gpt: transformer blocks", |s, v| v.count().set(&mut s.model.layers))
        .option("layers", (Form::Whole, "N"), TRAIN | PLAN | INIT, "Transformer blocks of a gpt")
        .default("6"),
    key("model", "heads", "6", "of a gpt: attention heads, which divide its width", |s, v| v.count().set(&mut s.model.heads))
        .option("heads", (Form::Whole, "N"), TRAIN | PLAN | INIT, "Attention heads of a gpt, which divide its width")
        .default("6"),
    key("model", "sequence", "256", "tokens in a sample of a gpt", |s, v| v.count().set(&mut s.model.sequence))
        .option("sequence", (Form::Whole, "N"), TRAIN | PLAN | INIT, "Tokens in a sample of a gpt")
        .default("256"),
    key("model", "vocabulary", "4096", "tokens that a gpt knows; a text file says it itself", |s, v| {
        v.count().set(&mut s.model.vocabulary)
    })
    .option("vocabulary", (Form::Whole, "N"), TRAIN | PLAN | INIT, "Tokens that a gpt knows")
    .default("a text file's, else 4096"),
    key(
        "model",
        "weights",
        "\"weights.safetensors\"",
        "pretrained weights to start from; what does not fit by name is left out",
        |s, v| v.path().set(&mut s.model.weights),
    )
    .a_path()
    .option(
        "weights",
        (Form::Path, "FILE"),
        TRAIN,
        "Pretrained weights to start from, as far as they fit by name and shape: safetensors, or .pth of PyTorch, with \
         names of memfit, torchvision or timm",
    ),
    key("model", "freeze", "[\"conv1\", \"bn1\", \"layer1\"]", "layers to freeze: names, *, **", |s, v| {
        v.texts().put(&mut s.model.freeze)
    })
    .option(
        "freeze",
        (Form::Repeated, "PATTERN"),
        TRAIN | PLAN,
        "Freeze these layers, such as conv1 or 'layer*/0'; may be given several times",
    ),
    key("model", "trainable", "[\"fc\"]", "or the other way round: layers to train, and all others are frozen", |s, v| {
        v.texts().put(&mut s.model.trainable)
    })
    .typed("trainable", (Form::Repeated, "PATTERN"), TRAIN | PLAN),
    key(
        "data",
        "kind",
        "\"images\"",
        "digits, images, masks, csv, npz, tfrecord, tokens or text; guessed from train",
        |s, v| {
            v.one_of(&["digits", "images", "masks", "csv", "npz", "tfrecord", "tokens", "text"]).set(&mut s.data.kind)
        },
    )
    .option(
        "kind",
        (Form::Text, "KIND"),
        TRAIN | PLAN | INIT,
        "What the data are: images, masks, csv, npz, tfrecord, tokens or text",
    )
    .default("as the path looks"),
    key("data", "train", "\"photos/train\"", "a folder with one folder for each class, or a file", |s, v| {
        v.path().set(&mut s.data.train)
    })
    .a_path()
    .option(
        "data",
        (Form::Path, "PATH"),
        TRAIN | PLAN | INIT,
        "Training data: a folder with one folder for each class, or a file (csv, npz, tfrecord, txt)",
    )
    .default("of the model digits, its own"),
    key("data", "test", "\"photos/test\"", "the same for evaluation", |s, v| v.path().set(&mut s.data.test))
        .a_path()
        .option("test", (Form::Path, "PATH"), TRAIN | PLAN | INIT, "Test data, of the same kind as the training data")
        .default("what lies beside the training data, else a share of them"),
    key("data", "hold_out", "0.2", "without test: validation split, the share of train that is held out", |s, v| {
        v.share().set(&mut s.data.hold_out)
    })
    .typed("hold-out", (Form::Number, "SHARE"), TRAIN | PLAN | INIT),
    key(
        "data",
        "label",
        "\"label\"",
        "column of a csv (its name, or its number from 0), array of an npz, or feature of a tfrecord \
         that is the label; several columns of numbers as [\"a\", \"b\"]",
        |s, v| v.names().put(&mut s.data.label),
    )
    .option(
        "label",
        (Form::Text, "NAME"),
        TRAIN | PLAN | INIT | EVAL,
        "Label: a column of a csv (its name, or its number from 0), or several as a,b; an array of an npz, or a feature of a \
         tfrecord",
    )
    .default("the column called label, the array called y or the like"),
    key("data", "features", "\"image\"", "array of an npz, or feature of a tfrecord, that is the input", |s, v| {
        v.text().set(&mut s.data.features)
    })
    .option(
        "features",
        (Form::Text, "NAME"),
        TRAIN | PLAN | INIT | EVAL,
        "Input: an array of an npz, or a feature of a tfrecord",
    )
    .default("the array called x or the like"),
    key(
        "data",
        "test_features",
        "\"x_test\"",
        "of an npz: the same of the test set, if it is called otherwise",
        |s, v| v.text().set(&mut s.data.test_features),
    )
    .typed("test-features", (Form::Text, "NAME"), TRAIN | PLAN | INIT),
    key("data", "test_label", "\"y_test\"", "of an npz: array of the test set's labels, if it is called otherwise", |s, v| v.text().set(&mut s.data.test_label))
    .typed("test-label", (Form::Text, "NAME"), TRAIN | PLAN | INIT),
    key(
        "data",
        "sample_weight",
        "\"weight\"",
        "column of a csv, or array of an npz, by which the loss of each sample is multiplied in training",
        |s, v| v.text().set(&mut s.data.sample_weight),
    )
    .option(
        "sample-weight",
        (Form::Text, "NAME"),
        TRAIN | PLAN | INIT,
        "Multiply the loss of each sample by its weight: a column of a csv, or an array of an npz",
    ),
    key(
        "data",
        "standardise_targets",
        "true",
        "of a regression: train on (label - mean) / deviation, as the training set has them; answers are in the label's unit",
        |s, v| v.flag().set(&mut s.data.standardise_targets),
    )
    .option(
        "standardise-targets",
        (Form::Flag, ""),
        TRAIN | PLAN | INIT,
        "Train a regression on labels with mean 0 and deviation 1; errors and predictions are in their own unit",
    ),
    key(
        "data",
        "masks",
        "\"auto\"",
        "what the values of masks are: classes (0, 1, 2, …), binary, palette, colours (by data.colours), grey, or auto",
        |s, v| v.one_of(&["auto", "classes", "binary", "palette", "colours", "grey"]).set(&mut s.data.masks),
    )
    .option(
        "masks",
        (Form::Text, "auto|classes|binary|palette|colours|grey"),
        TRAIN | PLAN | INIT,
        "What the values of masks are",
    )
    .default("auto: found out, or refused where they may be several things"),
    key(
        "data",
        "colours",
        "[\"road #804080\", \"sky #4682b4\"]",
        "of coloured masks: a class with its colour; colours of one name are one class",
        |s, v| v.texts().put(&mut s.data.colours),
    )
    .typed("colours", (Form::Repeated, "'NAME #RRGGBB'"), TRAIN | PLAN | INIT),
    key(
        "data",
        "header",
        "true",
        "whether the first line of a csv names the columns; found out if not given",
        |s, v| v.flag().set(&mut s.data.header),
    )
    .option(
        "header",
        (Form::Bool, "true|false"),
        TRAIN | PLAN | INIT | EVAL,
        "Whether the first line of a csv names its columns",
    )
    .default("found out"),
    key("data", "token", "\"u16\"", "what a token file holds: u8, u16 or u32", |s, v| {
        v.one_of(&["u8", "u16", "u32"]).set(&mut s.data.token)
    })
    .typed("token", (Form::Text, "u8|u16|u32"), TRAIN | PLAN | INIT),
    key(
        "data",
        "augment",
        "[\"crop\", \"flip\"]",
        "in this order: crop, pad-crop:4, flip, rotate:15, colour-jitter:0.4, randaugment:2,9, erase:0.25 and others of docs/data.md",
        |s, v| v.augmentations().put(&mut s.data.augment),
    )
    .option(
        "augment",
        (Form::Repeated, "NAME[:NUMBER,…]"),
        TRAIN | PLAN | INIT,
        "Augment pictures: crop, pad-crop:4, flip, flip-vertical, rotate:15, shear:10, translate:0.1, scale:0.8,1.25, \
         brightness:0.2, contrast:0.2, saturation:0.2, hue:0.05, colour-jitter:0.4, grayscale:0.1, blur:2, sharpness:0.5, \
         autocontrast, equalize, posterize:4, solarize:128, invert, cutout:16, erase:0.25, randaugment:2,9; several between \
         commas, or given several times, in this order",
    ),
    key(
        "data",
        "image_size",
        "224",
        "height and width that pictures are resized to, or \"192x256\"; says model.input of them in RGB",
        |s, v| v.image_size().set(&mut s.data.image_size),
    )
    .option(
        "image-size",
        (Form::Text, "N|HxW"),
        TRAIN | PLAN | INIT,
        "Height and width that pictures are resized to, such as 224 or 192x256",
    )
    .default("the model's own"),
    key("data", "mixup", "0.2", "mixes samples and their labels, by Beta(a, a)", |s, v| {
        v.positive().set(&mut s.data.mixup)
    })
    .typed("mixup", (Form::Number, "A"), TRAIN | PLAN | INIT),
    key("data", "mean", "[0.485, 0.456, 0.406]", "subtracted from each channel, of pixels in 0 to 1", |s, v| {
        v.numbers().set(&mut s.data.mean)
    })
    .typed("mean", (Form::Numbers, "X,X,X"), TRAIN | PLAN | INIT),
    key("data", "std", "[0.229, 0.224, 0.225]", "what each channel is divided by, behind the mean", |s, v| v.numbers().set(&mut s.data.std))
    .typed("std", (Form::Numbers, "X,X,X"), TRAIN | PLAN | INIT),
    key(
        "data",
        "shuffle",
        "10000",
        "size of the shuffle buffer, in samples; all if not given, and 1 keeps their order",
        |s, v| v.count().set(&mut s.data.shuffle),
    )
    .typed("shuffle", (Form::Whole, "N"), TRAIN | PLAN | INIT),
    key("data", "cache", "\"memory\"", "off, memory (spills to disk), or a file that is kept: replicas make it before the first step", |s, v| {
        v.text().set(&mut s.data.cache)
    })
    .a_path()
    .typed("cache", (Form::Path, "off|memory|FILE"), TRAIN | PLAN | INIT),
    key("data", "skip_bad", "false", "skip samples that cannot be read, and say how many", |s, v| {
        v.flag().set(&mut s.data.skip_bad)
    })
    .option(
        "skip-bad",
        (Form::Flag, ""),
        TRAIN | EVAL | PREDICT | SEVERAL | RESUME,
        "Skip samples that cannot be read, and say how many",
    ),
    key("train", "batch", "32", "batch size", |s, v| v.count().set(&mut s.train.batch))
        .option("batch", (Form::Whole, "N"), TRAIN | PLAN, "Batch size")
        .default("32"),
    key(
        "train",
        "micro_batch",
        "\"auto\"",
        "auto, off, allow, or a number: micro-batch size for gradient accumulation",
        |s, v| v.word().set(&mut s.train.micro_batch),
    )
    .option(
        "micro-batch",
        (Form::Text, "auto|off|N|allow"),
        TRAIN | PLAN,
        "Micro-batch size for gradient accumulation: auto (where only rounding changes), off, a \
         divisor of the batch size, or allow (also where batch statistics then come from fewer \
         samples)",
    )
    .default("auto"),
    key("train", "epochs", "10", "number of epochs", |s, v| v.count().set(&mut s.train.epochs))
        .instead_of("steps")
        .option("epochs", (Form::Whole, "N"), TRAIN | SEVERAL | RESUME, "Number of epochs")
        .default("20"),
    key("train", "steps", "1000", "or a number of steps", |s, v| v.count().set(&mut s.train.steps))
        .instead_of("epochs")
        .option("steps", (Form::Whole, "N"), TRAIN | SEVERAL | RESUME, "Number of steps, instead of epochs"),
    key("train", "optimizer", "\"adamw\"", "sgd, momentum, nesterov, adam, adamw, rmsprop or adagrad", |s, v| {
        v.text().set(&mut s.train.optimizer)
    })
    .option(
        "optimizer",
        (Form::Text, "NAME"),
        TRAIN | PLAN,
        "Optimizer: sgd, momentum, nesterov, adam, adamw, rmsprop or adagrad",
    )
    .default("adam"),
    key("train", "lr", "0.001", "learning rate", |s, v| v.positive().set(&mut s.train.lr))
        .option("lr", (Form::Number, "RATE"), TRAIN | PLAN | RESUME, "Learning rate")
        .default("the optimizer's usual one"),
    key("train", "weight_decay", "0.01", "weight decay, of sgd, momentum, nesterov, adam and adamw", |s, v| {
        v.not_negative().set(&mut s.train.weight_decay)
    })
    .typed("weight-decay", (Form::Number, "X"), TRAIN | PLAN | INIT),
    key("train", "schedule", "\"cosine\"", "learning rate schedule: constant, step or cosine", |s, v| {
        v.one_of(&["constant", "step", "cosine"]).set(&mut s.train.schedule)
    })
    .typed("schedule", (Form::Text, "constant|step|cosine"), TRAIN | PLAN | INIT),
    key("train", "warm_up", "100", "steps of linear warm-up of the learning rate", |s, v| {
        v.count_or_zero().set(&mut s.train.warm_up)
    })
    .typed("warm-up", (Form::Whole, "STEPS"), TRAIN | PLAN | INIT),
    key("train", "decay_every", "10", "of schedule \"step\": epochs", |s, v| v.count().set(&mut s.train.decay_every))
    .typed("decay-every", (Form::Whole, "EPOCHS"), TRAIN | PLAN | INIT),
    key("train", "decay", "0.1", "of schedule \"step\": the factor; of \"cosine\": the share that stays", |s, v| {
        v.share_or_one().set(&mut s.train.decay)
    })
    .typed("decay", (Form::Number, "X"), TRAIN | PLAN | INIT),
    key("train", "clip_norm", "1.0", "gradient clipping by global norm", |s, v| {
        v.positive().set(&mut s.train.clip_norm)
    })
    .typed("clip-norm", (Form::Number, "X"), TRAIN | PLAN | INIT),
    key("train", "clip_value", "1.0", "gradient clipping by value", |s, v| v.positive().set(&mut s.train.clip_value))
    .typed("clip-value", (Form::Number, "X"), TRAIN | PLAN | INIT),
    key(
        "train",
        "task",
        "\"regression\"",
        "classification, or regression: predict numbers; as the labels of a csv or npz look if not given",
        |s, v| v.one_of(&["classification", "regression"]).set(&mut s.train.task),
    )
    .option(
        "task",
        (Form::Text, "classification|regression"),
        TRAIN | PLAN | INIT,
        "What to predict: classes, or numbers",
    )
    .default("as the labels look"),
    key(
        "train",
        "loss",
        "\"mse\"",
        "of a regression: mse, mae, huber (huber:0.5 with its delta), log-cosh or poisson (of the logarithm of a rate); of \
         classes: cross-entropy",
        |s, v| v.loss().set(&mut s.train.loss),
    )
    .option(
        "loss",
        (Form::Text, "NAME"),
        TRAIN | PLAN | INIT,
        "Loss of a regression: mse, mae, huber, huber:DELTA, log-cosh or poisson; of classes: cross-entropy",
    )
    .default("mse, and cross-entropy of classes"),
    key(
        "train",
        "class_weight",
        "\"balanced\"",
        "balanced, or by name or number { cat = 2.0, dog = 1.0 }: the loss of each sample is multiplied by its class's weight",
        |s, v| v.class_weights().set(&mut s.train.class_weight),
    )
    .option(
        "class-weight",
        (Form::Text, "balanced|CLASS=N,…"),
        TRAIN | PLAN | INIT,
        "Multiply the loss of each sample by the weight of its class: balanced, or such as cat=2,dog=1",
    )
    .default("none"),
    key("train", "label_smoothing", "0.1", "share of a label that is spread over all classes", |s, v| {
        v.share().set(&mut s.train.label_smoothing)
    })
    .typed("label-smoothing", (Form::Number, "SHARE"), TRAIN | PLAN | INIT),
    key("train", "precision", "\"f32\"", "f32, mixed (bf16 activations) or mixed-f16 (with a scaled loss)", |s, v| {
        v.text().set(&mut s.train.precision)
    })
    .option(
        "precision",
        (Form::Text, "f32|mixed|mixed-f16"),
        TRAIN | PLAN,
        "Precision: f32; mixed: activations stored in bf16; mixed-f16: in f16, with loss scaling. Weights and \
         sums stay f32",
    )
    .default("f32"),
    key(
        "train",
        "monitor",
        "\"accuracy\"",
        "what best means: loss, accuracy, top5, mean_iou, perplexity, mae, rmse or r2",
        |s, v| v.text().set(&mut s.train.monitor),
    )
    .typed("monitor", (Form::Text, "SCORE"), TRAIN | PLAN | INIT),
    key("train", "patience", "5", "early stopping: after so many evaluations without a better one", |s, v| {
        v.count().set(&mut s.train.patience)
    })
    .typed("patience", (Form::Whole, "N"), TRAIN | PLAN | INIT),
    key("train", "save_every", "500", "steps between checkpoints, besides the one after each epoch", |s, v| {
        v.count().set(&mut s.train.save_every)
    })
    .option("save-every", (Form::Whole, "N"), TRAIN | RESUME, "Steps between checkpoints, besides the one after each epoch"),
    key(
        "train",
        "keep",
        "3",
        "how many of the checkpoints that save_every asks for, else of those after epochs, stay beside the last and the best",
        |s, v| v.count().set(&mut s.train.keep),
    )
    .option(
        "keep",
        (Form::Whole, "N"),
        TRAIN | RESUME,
        "Keep the last N checkpoints that were saved every so many steps, or else after epochs, beside the last and the best one",
    )
    .default("none"),
    key("train", "seed", "1", "random seed", |s, v| v.whole().set(&mut s.train.seed))
        .option("seed", (Form::Whole, "N"), TRAIN | PLAN, "Random seed")
        .default("1"),
    key("train", "out", "\"runs/photos\"", "run directory", |s, v| v.path().set(&mut s.train.out))
        .a_path()
        .option("out", (Form::Path, "DIR"), TRAIN, "Run directory: plan, checkpoints, weights")
        .default("a new one under runs/"),
    key("train", "share", "2.0", "of several runs on one device: weight of its share of the device's time", |s, v| {
        v.positive().set(&mut s.train.share)
    })
    .typed("share", (Form::Number, "X"), TRAIN),
    key("train", "priority", "1", "of several runs on one device: those of higher priority go first", |s, v| {
        v.whole().set(&mut s.train.priority)
    })
    .typed("priority", (Form::Whole, "N"), TRAIN),
    key(
        "memory",
        "total",
        "\"4GiB\"",
        "for the whole process: program, stacks and planning, and what is left for arena and pipeline",
        |s, v| v.size().set(&mut s.memory.total),
    )
    .option(
        "total",
        (Form::Text, "SIZE"),
        TRAIN | PLAN | EVAL | PREDICT | SEVERAL | RESUME,
        "Memory limit for the whole process, of which arena and data pipeline get what program, stacks, planning and \
         checkpoints leave",
    )
    .default("that of the control group, of ulimit, or of the machine"),
    key("memory", "budget", "\"2GiB\"", "for everything on the device; the plan keeps to it", |s, v| {
        v.size().set(&mut s.memory.budget)
    })
    .option(
        "budget",
        (Form::Text, "SIZE"),
        TRAIN | PLAN | SEVERAL | RESUME,
        "Memory budget for everything on the device, such as 512MiB, 2GB, 1.5G; of each replica; of several runs, for \
         all together and instead of what their files say",
    ),
    key("memory", "host_budget", "\"512MiB\"", "for everything that the data pipeline holds", |s, v| {
        v.size().set(&mut s.memory.host_budget)
    })
    .option(
        "host-budget",
        (Form::Text, "SIZE"),
        TRAIN | PLAN | EVAL | PREDICT | SEVERAL | RESUME,
        "Memory budget for everything that the data pipeline holds, of all replicas in the process",
    )
    .default("512MiB, or a quarter of a smaller device, or less where the arena needs the rest"),
    key("memory", "device", "\"cpu:0\"", "where to compute: cpu, gpu, gpu:1; cpu:0/1 is a logical device", |s, v| {
        v.text().set(&mut s.memory.device)
    })
    .option(
        "device",
        (Form::Text, "NAME"),
        TRAIN | PLAN | EVAL | PREDICT | SEVERAL | RESUME,
        "Device, such as cpu, gpu, gpu:1 or cpu:0/1; `memfit devices` lists them",
    )
    .default("cpu:0"),
    key(
        "memory",
        "logical",
        "[\"4GiB\", \"2GiB\"]",
        "splits the device: hard limits for all that runs take of each part",
        |s, v| v.sizes().put(&mut s.memory.logical),
    )
    .option(
        "logical",
        (Form::List, "SIZE,SIZE"),
        TRAIN | PLAN | SEVERAL | RESUME,
        "Split the device into logical devices with these hard limits, for everything that a run \
         takes there; run N has the Nth, unless a device is named",
    ),
    key(
        "memory",
        "growth",
        "\"commit\"",
        "commit: all memory at the start; lazy: page by page when it is used",
        |s, v| v.one_of(&["commit", "lazy"]).set(&mut s.memory.growth),
    )
    .option(
        "growth",
        (Form::Text, "commit|lazy"),
        TRAIN | PLAN | SEVERAL | RESUME,
        "commit: allocate all memory at the start; lazy: page by page, on first use",
    )
    .default("commit"),
    key("memory", "threads", "2", "all cores if not given", |s, v| v.count().set(&mut s.memory.threads))
        .option("threads", (Form::Whole, "N"), TRAIN | PLAN | EVAL | PREDICT | SEVERAL | RESUME, "Number of threads")
        .default("all cores"),
    key(
        "memory",
        "cost_model",
        "\"cost_model.toml\"",
        "cost model of this machine, from which step times are predicted",
        |s, v| v.path().set(&mut s.memory.cost_model),
    )
    .a_path()
    .formerly("profile")
    .option(
        "cost-model",
        (Form::Path, "FILE"),
        TRAIN | PLAN | SEVERAL,
        "Cost model of this machine, from which step times are predicted; `memfit devices` measures one",
    )
    .default("the measured one, else the device's own"),
    key("replicas", "count", "2", "that train the model together, each on its part of every batch, in this process", |s, v| {
        v.count().set(&mut s.replicas.count)
    })
    .option(
        "replicas",
        (Form::Whole, "N"),
        TRAIN | PLAN | SEVERAL | RESUME,
        "Train with so many replicas in this process, each on its part of every batch and on a device of its own: the Nth \
         GPU, the Nth logical device, or a share of the cores. Any number of them gives the same bits. Under mpirun or srun \
         every process is a replica",
    )
    .default("1"),
    key("replicas", "lanes", "4", "parts that sums over a batch are cut into, at least one for a replica", |s, v| {
        v.count().set(&mut s.replicas.lanes)
    })
    .option(
        "lanes",
        (Form::Whole, "N"),
        TRAIN | PLAN | SEVERAL,
        "Cut every batch into so many lanes, which are added up in an order that depends on nothing else: up to so many \
         replicas give the same bits. Fixed when a run begins",
    )
    .default("as many as replicas, or the next number that divides the batch"),
    key("replicas", "shard", "\"optimizer\"", "none, or what each replica keeps a part of: optimizer", |s, v| {
        v.one_of(&["none", "optimizer"]).set(&mut s.replicas.shard)
    })
    .option(
        "shard",
        (Form::Text, "none|optimizer"),
        TRAIN | PLAN | SEVERAL | RESUME,
        "optimizer: each replica keeps the optimizer's states of some parameters and updates these for all",
    )
    .default("none"),
    key("replicas", "piece", "\"1MiB\"", "that is exchanged at a time; changes no bit", |s, v| {
        v.size().set(&mut s.replicas.piece)
    })
    .option(
        "piece",
        (Form::Text, "SIZE"),
        TRAIN | PLAN | SEVERAL | RESUME,
        "Exchange so much at a time between replicas; changes no bit",
    )
    .default("1MiB, and more for more than 8 replicas"),
    key("replicas", "stall", "\"5min\"", "a replica that the others wait for longer is named, and all leave", |s, v| {
        v.duration().set(&mut s.replicas.stall)
    })
    .option(
        "stall",
        (Form::Text, "TIME"),
        TRAIN | SEVERAL | RESUME,
        "Wait no longer than this for a replica: name it, and leave with exit code 6",
    )
    .default("5min"),
    key(
        "replicas",
        "batch_norm",
        "\"leaf\"",
        "statistics of batch norms: leaf, each micro-batch by itself, or synchronised over all replicas",
        |s, v| v.one_of(&["leaf", "synchronised"]).set(&mut s.replicas.batch_norm),
    )
    .option(
        "batch-norm",
        (Form::Text, "leaf|synchronised"),
        TRAIN | PLAN | SEVERAL,
        "leaf: batch norms take the statistics of each micro-batch; synchronised: those of the whole batch, which replicas \
         exchange in every batch norm, and which fixes their number",
    )
    .default("leaf"),
    key("replicas", "link", "\"100Gbit/s, 10us\"", "speed of a replica's connection and time of a message, for predictions", |s, v| {
        v.link().set(&mut s.replicas.link)
    })
    .option(
        "link",
        (Form::Text, "SPEED[,TIME]"),
        TRAIN | PLAN | SEVERAL,
        "Predict exchanges between replicas from a connection of this speed, such as 100Gbit/s or '10GB/s, 5us'",
    )
    .default("that of the cost model: the memory of one machine"),
    key(
        "report",
        "tensorboard",
        "true",
        "event files for TensorBoard in the run directory: losses, scores, speed, memory",
        |s, v| v.flag().set(&mut s.report.tensorboard),
    )
    .option(
        "tensorboard",
        (Form::Bool, "true|false"),
        TRAIN | SEVERAL | RESUME,
        "Whether to write event files for TensorBoard into the run directory",
    )
    .default("true"),
    key("report", "histograms", "false", "and histograms of the weights, at every checkpoint", |s, v| {
        v.flag().set(&mut s.report.histograms)
    })
    .option(
        "histograms",
        (Form::Bool, "true|false"),
        TRAIN | SEVERAL | RESUME,
        "Whether these have histograms of the weights, at every checkpoint",
    )
    .default("false"),
    key("report", "log_every", "\"10s\"", "between lines of progress, where there is no terminal", |s, v| {
        v.duration().set(&mut s.report.log_every)
    })
    .option(
        "log-every",
        (Form::Text, "TIME"),
        TRAIN | SEVERAL | RESUME,
        "Where errors and progress go to no terminal: a line of progress so often",
    )
    .default("10s"),
];
