//! Errors in the words of the command line: libraries carry facts, and here a fact becomes a sentence with the option that
//! would mend it.

use std::error::Error;

use memfit::PlanError;
use memfit::data::sources::{ArrayInfo, colour_name};
use memfit::data::{BadSample, CsvProblem, DataError, SampleProblem};
use memfit::exec::process::Limiter;
use memfit::plan::bytes::{Bytes, told_apart};
use memfit::train::TrainError;
use memfit_run::data::{ArrayOf, ArrayRole, HOST_BUDGET};
use memfit_run::planning::{INSTRUCTIONS, NOT_SET};
use memfit_run::room::{Room, larger_process};
use memfit_run::text::count;
use memfit_run::{Difference, RunError, arrays_words, header_words, task_words};

use crate::cure;
use crate::settings::{advised, advised_value, and_list, in_file, is_command, option_name, option_or_key};
use memfit_run::config::{KEYS, Key, find, scope};

/// The error and its causes, each said once: many messages already hold their cause.
pub fn message(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (words, causes_follow) = match error.downcast_ref::<RunError>() {
            // All of it, with its causes.
            Some(error) => (run(error), false),
            None => (library(error), !matches!(error.downcast_ref(), Some(TrainError::Test { .. }))),
        };
        if !text.contains(&words) {
            text = if text.is_empty() { words } else { format!("{text}: {words}") };
        }
        next = error.source().filter(|_| causes_follow);
    }
    text
}

/// What an error of a library says; sizes as people write them, and to the byte, so that they can be typed.
fn library(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = error.downcast_ref::<TrainError>() {
        return training(error);
    }
    match error.downcast_ref::<PlanError>() {
        Some(PlanError::Refused(refusal)) => return cure::refusal(refusal),
        Some(PlanError::TogetherRefused(refusal)) => return cure::refusal_together(refusal),
        Some(error @ (PlanError::Synchronised { .. } | PlanError::Lanes { .. })) => {
            return format!("{error}{}", cure::lanes(error).unwrap_or_default());
        }
        _ => {}
    }
    error.downcast_ref::<DataError>().map_or_else(|| error.to_string(), data)
}

fn training(error: &TrainError) -> String {
    match error {
        TrainError::Test { source, folder, step } => {
            format!("{}; {}", training(source), cure::test_set(folder, *step))
        }
        TrainError::Data(error) => data(error),
        other => cure::training(other).unwrap_or_else(|| other.to_string()),
    }
}

fn data(error: &DataError) -> String {
    match error {
        DataError::PoolTooSmall { limit, needed, what } => format!(
            "the host budget of {} is too small: {what} needs at least {} ({}); raise {}",
            told_apart(*limit, *needed)[0],
            told_apart(*limit, *needed)[1],
            count(*needed, "byte"),
            advised("memory", "host_budget")
        ),
        DataError::Bad(bad) if is_too_large(&bad.problem) => bad_sample(bad),
        DataError::Bad(bad) => format!("{}; or leave it out: {}", bad_sample(bad), advised("data", "skip_bad")),
        DataError::BadLabels { first, bad, rows } => {
            let others = if *bad > 1 { format!("; of {rows} rows, {bad} have no class") } else { String::new() };
            // Where most are none, it is no matter of a few.
            let are_few = bad.saturating_mul(2) <= *rows;
            let cure =
                if are_few { format!("; or leave them out: {}", advised("data", "skip_bad")) } else { String::new() };
            format!("{}{others}{cure}", bad_sample(first))
        }
        DataError::NothingGood { epoch, first } => {
            format!("epoch {epoch}: nothing in it is good; the first that is bad: {}", bad_sample(first))
        }
        DataError::TooManyBad { last, before } => {
            format!("{}; and so are the {before} elements before it: none is good", bad_sample(last))
        }
        DataError::BadLane { first, rows } => {
            let cure = "none of which another can replace: mend the data";
            format!("{}; and so are all {rows} rows of its lane, {cure}", bad_sample(first))
        }
        DataError::Csv { path, problem } => format!("{}: {}", path.display(), csv(problem)),
        DataError::NoRoom(_) | DataError::Io { .. } | DataError::Source { .. } | DataError::Pipeline(_) => {
            error.to_string()
        }
    }
}

/// Whether there is nothing wrong with a sample but that the host budget is small: by itself it would have room.
pub fn is_too_large(problem: &SampleProblem) -> bool {
    match problem {
        SampleProblem::FileTooLarge { bytes: needed, .. } | SampleProblem::ImageTooLarge { needed, .. } => {
            *needed <= HOST_BUDGET
        }
        _ => false,
    }
}

/// Where a sample is, and what is wrong with it.
pub fn bad_sample(bad: &BadSample) -> String {
    format!("{}: {}", bad.location, sample_problem(&bad.problem))
}

pub fn sample_problem(problem: &SampleProblem) -> String {
    match problem {
        SampleProblem::FileTooLarge { bytes, limit } => {
            let raised = advised("memory", "host_budget");
            format!("it has {bytes} bytes, more than the host budget of {limit}; raise {raised}")
        }
        SampleProblem::ImageTooLarge { size: [height, width], needed, limit } => format!(
            "its {height}×{width} pixels take {needed} bytes and more to decode, and the host budget is {limit}; raise {}",
            advised("memory", "host_budget")
        ),
        SampleProblem::UnknownClass { field, label, classes } => {
            let wrong = format!("{field} is {label}, outside of 0..{classes}");
            // A model that is trained has its classes.
            let is_trained = [scope::EVAL, scope::PREDICT, scope::RESUME].into_iter().any(is_command);
            if is_trained {
                format!("{wrong}; mend the data")
            } else {
                format!("{wrong}; give {}, or mend the data", advised("model", "classes"))
            }
        }
        SampleProblem::NotWhole { field, value } => format!(
            "{field} is {value}, a number and no class: mend it, name another array with {}, or predict these numbers with {}",
            advised("data", "label"),
            advised_regression()
        ),
        SampleProblem::NegativeClass { .. } | SampleProblem::NotOneHot { .. } => problem.to_string(),
        SampleProblem::MaskLevel { value, background, foreground } => format!(
            "it has the value {value}, and the masks looked at have {background} and {foreground} alone; mend it, or say \
             what they are: data.masks = \"classes\" (each value is the number of a class) or \"binary\""
        ),
        SampleProblem::MaskClass { class, classes } => format!(
            "class {class} is not one of 0 to {}; give model.classes, or mend the mask",
            classes.saturating_sub(1)
        ),
        SampleProblem::MaskColour { colour } => {
            format!("the colour {} is of no class; give it one in data.colours, or mend the mask", colour_name(*colour))
        }
        SampleProblem::NoPalette | SampleProblem::OtherPalette { .. } => {
            format!("{problem}, or say data.masks = \"colours\" with data.colours")
        }
        SampleProblem::Other(problem) => problem.clone(),
    }
}

fn csv(problem: &CsvProblem) -> String {
    let or = |is: bool, cure: &str| if is { format!(", or {cure}") } else { String::new() };
    let label = advised("data", "label");
    let no_header = match memfit_run::config::find("data", "header") {
        Some(key) => format!("say {}", advised_value(key, "false")),
        None => String::new(),
    };
    match problem {
        CsvProblem::DuplicateColumn { name, numbers_as_names } => {
            format!("two columns are called \"{name}\"; rename one{}", or(*numbers_as_names, &no_header))
        }
        CsvProblem::NoLabelColumn { column, known, numbers_as_names, other_separator } => format!(
            "there is no column {column} for the label; there are {known}; name the one that is the label with {label}{}{}",
            or(*numbers_as_names, &format!("{no_header} if the first line has no names")),
            or(*other_separator, "separate the cells by commas (in a .tsv by tabs)")
        ),
        CsvProblem::NoWeightColumn { column, known } => format!(
            "there is no column {column} for the weights of samples; there are {known}; name one of them with {}",
            advised("data", "sample_weight")
        ),
        CsvProblem::NotClasses { column, words, rows, example } => format!(
            "column \"{column}\" has {words} different words and more in {rows} rows, such as \"{example}\", which are \
             no classes; name the column that has them with {label}"
        ),
        CsvProblem::Words { column, example } => format!(
            "column \"{column}\" has words, such as \"{example}\", and features are numbers; make numbers of them, leave the \
             column out of the table, or, if it is the label, name it with {label}"
        ),
        CsvProblem::NotAClass { column, line, value, is_negative: true } => format!(
            "line {line}: column \"{column}\" is \"{value}\", and classes are 0, 1, …; number them so, leave out what has \
             none, or predict these numbers with {}",
            advised_regression()
        ),
        CsvProblem::NotAClass { column, line, value, is_negative: false } => format!(
            "line {line}: column \"{column}\" is \"{value}\", a number and no class: mend it, name the column that has the \
             classes with {label}, or predict these numbers with {}",
            advised_regression()
        ),
    }
}

/// What has the labels taken for numbers.
fn advised_regression() -> String {
    find("train", "task").map_or_else(String::new, |key| advised_value(key, memfit_run::goal::REGRESSION))
}

/// What is wrong with a run.
fn run(error: &RunError) -> String {
    match error {
        RunError::OfRun { label, source } => format!("{label}: {}", run(source)),
        RunError::OfReplica { rank, source } => format!("replica {rank}: {}", run(source)),
        RunError::HostBudget { source, enough } => {
            format!("{} ({}MiB is enough: it was tried)", run(source), enough.div_ceil(1 << 20))
        }
        RunError::NoRunFile { .. } => format!("{error}; `memfit init` writes a run file"),
        RunError::Key { key, problem } => with_key(&with_options(format!("{} {problem}", option_or_key(key))), key),
        RunError::NoModelKey { model, known, .. } => {
            let text = with_options(error.to_string());
            format!("{text}; `memfit models {model}` explains {}", if known.is_empty() { "it" } else { "them" })
        }
        RunError::NoData { model } => format!(
            "{model} needs data: give --data PATH or a run file (`memfit init`); only digits has its data built in"
        ),
        RunError::WrongModel { model, does, kind, wanted } => format!(
            "{model} {}, but these data are {}, for a model that {}; give --model {}, for one, or other data",
            task_words(*does),
            kind.name(),
            task_words(*wanted),
            kind.usual_model()
        ),
        RunError::ChannelsFirst { array, shape } => {
            let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!(
                "the array \"{array}\" has its channels first ({}), and a model reads height, width, channels: it is turned \
                 while it is read; leave out {}",
                shape.join("x"),
                memfit_run::config::find("model", "input").map_or_else(String::new, option_or_key)
            )
        }
        RunError::HeaderDiffers { path, has_header } => {
            let said =
                find("data", "header").map_or_else(String::new, |key| advised_value(key, &has_header.to_string()));
            // Elsewhere it would be said of both.
            let said = if is_command(scope::EVAL) {
                format!("say {said}")
            } else {
                format!("if both are alike, say {}", advised("data", "header"))
            };
            format!("{}: {}, or {said}", path.display(), header_words(*has_header))
        }
        RunError::LabelNumber { path, label } => format!(
            "{}: its columns have no names, and the run knows its label as \"{label}\"; say the number of its column, from 0, \
             with {}",
            path.display(),
            advised("data", "label")
        ),
        RunError::NoArray { path, array, found, likely } => format!(
            "{}: there is no array \"{}\"; there are {}; {}",
            path.display(),
            array.name,
            arrays_words(found),
            name_array(array, found, likely.as_deref())
        ),
        RunError::MaskClasses { classes } => {
            format!(
                "the masks are background and foreground, which is 1 class, but the model is to have {classes}; leave \
                 out --classes"
            )
        }
        RunError::TooManyClasses { data, model } => {
            let classes = count(*data, "class");
            format!("the data have {classes}, but the model is to have {model}; leave out --classes")
        }
        RunError::BatchTooLarge { batch, samples } => {
            let option = memfit_run::config::find("train", "batch").map_or_else(String::new, option_or_key);
            format!("{option} {batch} is larger than the training set, which has {}", count(*samples, "sample"))
        }
        RunError::SamplesChanged { weights: Some(path), .. } => format!("{error} with --weights {}", path.display()),
        RunError::Exec(source) | RunError::Train(TrainError::Exec(source)) => {
            message(source) + &cure::device(source).unwrap_or_default()
        }
        RunError::Data(_) | RunError::Train(_) | RunError::Weights(_) | RunError::Model(_) => wrapped(error),
        other => of_device(other).or_else(|| of_folder(other)).unwrap_or_else(|| with_options(other.to_string())),
    }
}

/// How to say which array is meant.
fn name_array(array: &ArrayOf, found: &[ArrayInfo], likely: Option<&[String; 2]>) -> String {
    let option = |key: &str, name: &str| find("data", key).map_or_else(String::new, |key| advised_value(key, name));
    // What is evaluated has one set.
    let is_alone = !array.is_test || is_command(scope::EVAL);
    match (likely, array.role, found) {
        (Some([features, label]), _, _) if is_alone => {
            let (features, label) = (option("features", features), option("label", label));
            format!("if the samples and their labels are these: {features} {label}")
        }
        (_, ArrayRole::Label, [_]) => "save the classes beside the samples: np.savez(FILE, x=x, y=y)".into(),
        (_, ArrayRole::Features, _) if is_alone => format!("say which it is: {}", option("features", "NAME")),
        (_, ArrayRole::Label, _) if is_alone => format!("say which it is: {}", option("label", "NAME")),
        _ => format!("say which it is: {}", option(array.key(), "NAME")),
    }
}

/// With the option behind each key that an error names, where it could have been typed: "train.batch (--batch)". A line of a run
/// file is left whole, and its option named at the end.
fn with_options(mut text: String) -> String {
    let mut of_lines = Vec::new();
    for key in KEYS {
        let path = key.path();
        let unnamed = |option: &String| named_at(&text, option, |_| true).is_none();
        let Some(option) = option_name(key).filter(unnamed) else { continue };
        if let Some(at) = named_at(&text, &path, |behind| !behind.starts_with(" =")) {
            text.insert_str(at + path.len(), &format!(" ({option})"));
        } else if named_at(&text, &path, |_| true).is_some() {
            of_lines.push(format!("{option} says the same as {path}"));
        }
    }
    if of_lines.is_empty() { text } else { format!("{text} ({})", and_list(of_lines)) }
}

/// Behind what was typed, the key that a run file says it by.
pub fn with_key(text: &str, key: &Key) -> String {
    if option_name(key).is_some() { format!("{text} ({} in a run file)", key.path()) } else { text.to_string() }
}

/// Where a text first has a name as a whole, with this behind it.
fn named_at(text: &str, name: &str, is_behind: fn(&str) -> bool) -> Option<usize> {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let behind = |at: &usize| &text[at + name.len()..];
    text.match_indices(name).map(|(at, _)| at).find(|at| !behind(at).starts_with(goes_on) && is_behind(behind(at)))
}

/// What another crate says.
fn wrapped(error: &RunError) -> String {
    match error {
        RunError::Data(error) => message(error),
        RunError::Train(error) => message(error),
        RunError::Weights(error) => message(error),
        RunError::Model(error) => message(error),
        other => other.to_string(),
    }
}

/// Of devices, memory and plans.
fn of_device(error: &RunError) -> Option<String> {
    Some(match error {
        RunError::NoLogicalDevice { number, devices } => format!(
            "run {number} has no logical device: there are {devices}; give more --logical sizes, or say memory.device in \
             each run file"
        ),
        RunError::NoDeviceForReplica { number, devices } => format!(
            "replica {number} has no device of its own: there are {devices}; have fewer --replicas, give --logical a size for each, \
             or name one --device that they share"
        ),
        RunError::NotSplit { name } => {
            format!("there is no device \"{name}\": say with --logical how the device is split")
        }
        RunError::ThreadsDiffer { .. } => format!("{error}; say --threads, or go on with each by itself"),
        RunError::BudgetForNone => {
            "--budget is for runs that share a device, and these have devices of their own, each \
                                    with its limit; leave it out"
                .into()
        }
        RunError::GrowthDiffers => format!("{error}, or --growth"),
        RunError::NoPages { device } => {
            format!("{device} gives memory whole and not page by page; leave out {} lazy", advised("memory", "growth"))
        }
        RunError::WithoutGpus { .. } => {
            format!("{error}: `cargo install --path crates/cli --features gpu` builds it with them")
        }
        RunError::DeviceFailed { source, folder, step } => format!(
            "{}; the checkpoint of step {step} is intact: `memfit train --resume {}` goes on from it",
            run(source),
            folder.display()
        ),
        RunError::FolderElsewhere { source, folder } => format!(
            "{}; on the machine of replica 0, `memfit train --resume {}` goes on from the last checkpoint that was made",
            run(source),
            folder.display()
        ),
        RunError::Plan { source, room } => {
            Room::before(room.as_deref()) + &message(source) + &fewer_threads(source, room.as_deref())
        }
        RunError::PlanTooLarge { needed, room: Some(room), .. } => {
            let cure =
                room.cure(*needed).map_or(String::new(), |change| format!("; it fits with {}", cure::option(&change)));
            format!("{error}{cure}")
        }
        RunError::NoRoomForProgram { threads, per_thread, .. } => {
            format!("{error}; {}{}", give_more(error), or_fewer_threads(*threads, *per_thread))
        }
        RunError::NoRoomForRun { limiter, sharers, outside, needed, files, threads, per_thread, .. } => {
            let needed = outside.saturating_add(*needed).saturating_add(*files);
            let enough = larger_process(*limiter, needed.saturating_mul(*sharers as u64));
            let enough =
                enough.map_or_else(|| give_more(error), |change| format!("it fits with {}", cure::option(&change)));
            format!("{error}; {enough}{}", or_fewer_threads(*threads, *per_thread))
        }
        RunError::OtherPlan { file, differences } => {
            let differences: Vec<String> = differences.iter().map(difference).collect();
            format!("the plan {file} is of another run: {}", differences.join("; "))
        }
        RunError::CostModel { path, problem, is_measured } => {
            let cure = if *is_measured {
                "remove it, or measure again with `memfit devices --calibrate`"
            } else {
                "name a file that `memfit devices --calibrate --out FILE` wrote"
            };
            format!("cost model {}: {problem}; {cure}", path.display())
        }
        _ => return None,
    })
}

/// What would also fit: each thread has its stack, and what it touches besides.
fn fewer_threads(error: &PlanError, room: Option<&Room>) -> String {
    let (PlanError::Refused(refusal), Some(room)) = (error, room) else { return String::new() };
    let Some((threads, each)) = room.fewer_threads(refusal.needed) else { return String::new() };
    let option = find("memory", "threads").map_or_else(String::new, |key| advised_value(key, &threads.to_string()));
    format!("\n    {option}  as it is, for each thread takes {} of the process", Bytes(each))
}

/// What would leave more.
fn or_fewer_threads(threads: usize, each: u64) -> String {
    if threads < 2 {
        return String::new();
    }
    let (option, each) = (advised("memory", "threads"), Bytes(each));
    format!(", or compute with fewer threads than {threads}, of which each takes {each}: {option}")
}

fn give_more(error: &RunError) -> String {
    format!("give the process more{}", if is_said(error) { ": --total" } else { "" })
}

/// Whether the limit of the process is one that was given here.
fn is_said(error: &RunError) -> bool {
    let said = Limiter::Said;
    matches!(error, RunError::NoRoomForProgram { limiter, .. } | RunError::NoRoomForRun { limiter, .. } if *limiter == said)
}

fn difference(difference: &Difference) -> String {
    let cure = match difference.key {
        Some(key) if difference.theirs == NOT_SET => format!("leave out {}", in_file(&key.path())),
        // As a run file has it.
        Some(key) if difference.what == key.path() => {
            format!("use {}", in_file(&format!("{} = {}", key.path(), difference.theirs)))
        }
        Some(key) => format!("use {}", advised_value(key, &difference.theirs)),
        None if difference.what == INSTRUCTIONS => {
            format!("MEMFIT_ISA={} takes it, on a machine that has it", difference.theirs)
        }
        None => "plan for this device".into(),
    };
    format!("{} ({cure})", difference.words())
}

/// Of run directories.
fn of_folder(error: &RunError) -> Option<String> {
    Some(match error {
        RunError::NoCheckpoint { .. } if is_command(scope::RESUME) => format!("--resume {error}"),
        RunError::CannotMake { folder, source } => {
            format!("{} cannot be made: {source}; give --out", folder.display())
        }
        RunError::TooShort { unit, wanted, done, is_overridden } => {
            let made = count(*done, unit);
            if *is_overridden {
                format!(
                    "--{unit}s {wanted} is less than the {made} that the run has made; give more to go on, or leave it out"
                )
            } else {
                let said = in_file(&format!("train.{unit}s = {wanted}"));
                format!(
                    "{said} is less than the {made} that the run has made; give more to go on, there or with --{unit}s"
                )
            }
        }
        RunError::PlanThreads { theirs, .. } => format!("{error}: give --threads {theirs}, or fewer than now"),
        _ => return None,
    })
}
