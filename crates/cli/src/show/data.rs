//! What a run trains on, before anything else is said: a few lines, or one event.

use memfit::data::sources::{ClassLabels, FirstLine, LeftOut, Masks};
use memfit_run::RunResources;
use memfit_run::data::{
    ArrayNames, ClassSummary, DataSummary, Decided, EpochBatches, InputSummary, Kind, SeenMasks, SizeRange,
    TargetSummary, TestFrom, Unit, UnusedSet, Warning, WeightSummary, masks,
};
use memfit_run::text::{count, first_few};
use serde_json::{Value, json};

use crate::output::outln;
use crate::settings::{advised_value, in_file};
use crate::show::event;
use crate::show::scores::significant;

/// Classes that are listed with how many there are of each.
const LISTED: usize = 6;

pub fn print(run: &RunResources, summary: &DataSummary) {
    let label = if run.is_one_of_several { format!("{}: ", run.label) } else { String::new() };
    let path = summary.path.as_ref().map_or("built in".into(), |path| path.display().to_string());
    outln!("{label}data: {}, {path}", summary.kind.name());
    let row = |what: &str, value: &dyn ToString, note: &str| {
        outln!("{}", format!("  {what:<11}{:>10}  {note}", value.to_string()).trim_end());
    };
    let of = summary.arrays.as_ref().map_or(String::new(), |arrays| format!(" in the arrays {}", guessed(arrays)));
    row("train", &summary.train, &format!("samples{of}, {}", epoch_words(summary.epoch)));
    match summary.test {
        Some(samples) => row("test", &samples, &format!("samples {}", test_words(&summary.test_from, summary))),
        None => row("test", &"none", ""),
    }
    if let Some((masks, seen)) = &summary.masks {
        row("masks", &masks::name(masks), &mask_words(masks, *seen));
    }
    if let Some(classes) = &summary.classes {
        row("classes", &classes.count, &(class_words(classes, summary) + label_words(classes)));
    }
    if let Some(targets) = &summary.targets {
        row("targets", &targets.count, &target_words(targets));
    }
    if let Some(weights) = &summary.weights {
        row("weights", &"", &weights_words(weights, summary.classes.as_ref()));
    }
    row("input", &shape(&summary.input.shape), &input_words(&summary.input, run));
    if !summary.left_out.is_empty() {
        let files: usize = summary.left_out.iter().map(|one| one.count).sum();
        row("left out", &files, &left_out_words(&summary.left_out, summary.kind));
    }
    if !summary.assumed.is_empty() {
        let why = |key: &str| summary.first_line.filter(|_| key == "data.header").map_or("", first_line_words);
        let assumed: Vec<String> =
            summary.assumed.iter().map(|(key, value)| format!("{key} {value}{}", why(key))).collect();
        row("assumed", &"", &assumed.join(", "));
    }
    for warning in &summary.warnings {
        row("warning", &"", &warning_words(warning, summary.classes.as_ref()));
    }
}

/// As one event.
pub fn event(run: &RunResources, summary: &DataSummary) -> Value {
    let classes = summary.classes.as_ref().map(|c| {
        json!({ "count": c.count, "from": c.decided.name(), "found": c.found, "names": c.names, "counts": c.rows,
                "of": c.unit.name(), "labels": c.labels.map(label_name) })
    });
    let targets = summary.targets.as_ref().map(|t| {
        let units = t.units.iter().map(|unit| json!({ "mean": unit.mean, "std": unit.std }));
        json!({ "count": t.count, "names": t.names, "loss": t.loss.to_string(), "from": if t.is_said { "said" } else { "data" },
                "standardised": units.collect::<Vec<_>>() })
    });
    let weights = summary.weights.as_ref().map(|w| json!({ "of_samples": w.of_samples, "of_classes": w.of_classes }));
    let InputSummary { shape, decided, pictures, channels_first } = &summary.input;
    let pictures =
        pictures.map(|p| json!({ "smallest": p.smallest, "largest": p.largest, "looked_at": p.looked_at, "of": p.of }));
    let masks = summary.masks.as_ref().map(|(masks, seen)| {
        json!({ "kind": masks::name(masks), "said": seen.map(|s| s.is_said), "looked_at": seen.map(|s| s.looked_at),
                "of": seen.map(|s| s.of) })
    });
    let names = |arrays: &ArrayNames| json!({ "features": arrays.features, "label": arrays.label });
    let left_out: Vec<Value> = summary
        .left_out
        .iter()
        .map(|one| json!({ "ending": one.ending, "count": one.count, "example": one.example.display().to_string() }))
        .collect();
    let assumed: serde_json::Map<String, Value> =
        summary.assumed.iter().map(|(key, value)| (key.to_string(), value.as_str().into())).collect();
    let warnings: Vec<Value> = summary.warnings.iter().map(|warning| {
        json!({ "kind": warning_kind(warning), "message": warning_words(warning, summary.classes.as_ref()) })
    }).collect();
    let (from, is_training) = match &summary.test_from {
        TestFrom::TrainingSet(from) => (&**from, true),
        from => (from, false),
    };
    let share = if let TestFrom::HeldOut { share, .. } = from { Some(*share) } else { None };
    let mut event = json!({
            "event": "data", "kind": summary.kind.name(), "path": summary.path.as_ref().map(|p| p.display().to_string()),
            "train_samples": summary.train, "batch": summary.epoch.batch, "train_batches": summary.epoch.batches,
            "train_left_out": summary.epoch.left_out, "test_samples": summary.test, "test_from": test_name(from),
            "hold_out": share, "test_is_training_data": is_training, "classes": classes,
            "input": { "shape": shape, "from": decided.name(), "pictures": pictures, "channels_first": channels_first }, "masks": masks,
            "arrays": summary.arrays.as_ref().map(names),
            "test_arrays": summary.test_arrays.as_ref().map(names),
            "left_out": left_out, "assumed": assumed, "warnings": warnings,
    });
    for (name, value) in [("targets", targets), ("weights", weights)] {
        value.into_iter().for_each(|value| event[name] = value);
    }
    event::of_run(run, event)
}

/// What is predicted, and by which loss.
fn target_words(targets: &TargetSummary) -> String {
    let names = if targets.names.is_empty() { String::new() } else { format!("{}: ", first_few(&targets.names)) };
    let why = if targets.is_said { "" } else { ", since the labels are numbers and no classes" };
    let units = targets
        .units
        .iter()
        .map(|unit| format!("mean {}, deviation {}", significant(unit.mean), significant(unit.std)));
    let units: Vec<String> = units.take(LISTED).collect();
    let standardised = if units.is_empty() { String::new() } else { format!("; standardised: {}", units.join("; ")) };
    format!("{names}regression by {}{why}{standardised}", targets.loss)
}

/// By what losses are multiplied.
fn weights_words(weights: &WeightSummary, classes: Option<&ClassSummary>) -> String {
    let of_samples = weights.of_samples.as_ref().map(|name| format!("of samples: {name}"));
    let of_class = |(class, weight): (usize, &f32)| {
        format!(
            "{} {}",
            classes.map_or(class.to_string(), |classes| name(classes, class)),
            significant((*weight).into())
        )
    };
    let of_classes = weights.of_classes.as_ref().map(|all| {
        let each: Vec<String> = all.iter().enumerate().map(of_class).take(LISTED).collect();
        format!("of classes: {}{}", each.join(", "), if all.len() > LISTED { ", …" } else { "" })
    });
    let all: Vec<String> = of_samples.into_iter().chain(of_classes).collect();
    format!("{}; in training alone", all.join("; "))
}

fn epoch_words(EpochBatches { batch, batches, left_out }: EpochBatches) -> String {
    let rest = if left_out == 0 { String::new() } else { format!("; {left_out} left out an epoch") };
    format!("{} of {batch}{rest}", count(batches, "batch"))
}

fn label_name(labels: ClassLabels) -> &'static str {
    match labels {
        ClassLabels::Integers => "integers",
        ClassLabels::WholeFloats => "whole_floats",
        ClassLabels::OneHot => "one_hot",
    }
}

fn test_name(from: &TestFrom) -> &'static str {
    match from {
        TestFrom::None => "none",
        TestFrom::HeldOut { .. } => "held_out",
        TestFrom::Path(_) => "path",
        TestFrom::Folder(_) => "folder",
        TestFrom::Arrays => "arrays",
        TestFrom::TrainingSet(from) => test_name(from),
    }
}

fn test_words(from: &TestFrom, summary: &DataSummary) -> String {
    let arrays = summary.test_arrays.as_ref().map_or(String::new(), |arrays| format!("the arrays {}", guessed(arrays)));
    match from {
        TestFrom::None => String::new(),
        TestFrom::HeldOut { share, is_said } => {
            let why = if *is_said || summary.kind == Kind::Digits { "" } else { ", since no test set is named" };
            format!("held out, a share of {share}{why}")
        }
        TestFrom::Path(path) if arrays.is_empty() => format!("in {}", path.display()),
        TestFrom::Path(path) => format!("in {}, {arrays}", path.display()),
        TestFrom::Folder(path) => format!("in {}, found beside the training set", path.display()),
        TestFrom::Arrays => format!("in {arrays}"),
        TestFrom::TrainingSet(from) => format!("{}: the training set itself", test_words(from, summary)),
    }
}

fn guessed(arrays: &ArrayNames) -> String {
    let how = if arrays.is_guessed { ", by their names" } else { "" };
    format!("{}{how}", arrays.words())
}

fn mask_words(masks: &Masks, seen: Option<SeenMasks>) -> String {
    let what = match masks {
        Masks::Grey => "0 to 255 is a share of foreground".into(),
        Masks::Binary { levels: Some([background, foreground]), .. } => {
            format!("{background} is background, {foreground} foreground")
        }
        Masks::Binary { above, levels: None } => format!("above {above} is foreground"),
        Masks::Classes { .. } => "each value is the number of a class".into(),
        Masks::Palette { .. } => "each index of the palette is a class".into(),
        Masks::Colours { .. } => "each colour of data.colours is of a class".into(),
    };
    match seen {
        Some(seen) => {
            let how = if seen.is_said { "as said" } else { "found" };
            format!("{what}; {how}, {} looked at", some_of(seen.looked_at, seen.of))
        }
        None => what,
    }
}

fn some_of(looked_at: usize, of: usize) -> String {
    if looked_at == of { format!("all {of}") } else { format!("{looked_at} of {of}") }
}

fn class_words(classes: &ClassSummary, summary: &DataSummary) -> String {
    let decided = match classes.decided {
        Decided::Said | Decided::Data => "",
        Decided::Model => "the model's own; ",
    };
    if matches!(summary.kind, Kind::Text | Kind::Tokens) {
        return format!("{decided}tokens of the vocabulary");
    }
    let Some(rows) = &classes.rows else {
        return format!("{decided}{}", first_few(&classes.names)).trim_end_matches("; ").into();
    };
    let sum = rows.iter().sum::<u64>().max(1) as f64;
    let share = |n: u64| match classes.unit {
        Unit::Samples => n.to_string(),
        Unit::Pixels => format!("{:.1} %", n as f64 / sum * 100.0),
    };
    let unit = classes.unit.name();
    if rows.len() <= LISTED {
        let each: Vec<String> =
            rows.iter().enumerate().map(|(class, n)| format!("{} {}", name(classes, class), share(*n))).collect();
        return format!("{decided}{} of the {unit}", each.join(", "));
    }
    let (least, most) = (rows.iter().min().copied().unwrap_or(0), rows.iter().max().copied().unwrap_or(0));
    let names = if classes.names.is_empty() || summary.kind == Kind::Digits {
        String::new()
    } else {
        format!(": {}", first_few(&classes.names))
    };
    format!("{decided}{} to {} of the {unit} each{names}", share(least), share(most))
}

/// How labels are stored, where that is not the usual.
fn label_words(classes: &ClassSummary) -> &'static str {
    match classes.labels {
        Some(ClassLabels::WholeFloats) => "; the labels are floats, all of them whole",
        Some(ClassLabels::OneHot) => "; the labels are one-hot rows",
        Some(ClassLabels::Integers) | None => "",
    }
}

/// Of a class; of a binary mask, which has one, of either.
fn name(classes: &ClassSummary, class: usize) -> String {
    match classes.names.get(class) {
        Some(name) => name.clone(),
        None if classes.count == 1 && classes.unit == Unit::Pixels => {
            ["background", "foreground"].get(class).unwrap_or(&"").to_string()
        }
        None if classes.unit == Unit::Pixels || classes.names.is_empty() => format!("{class}:"),
        None => class.to_string(),
    }
}

fn shape(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

fn input_words(input: &InputSummary, run: &RunResources) -> String {
    let mut how = match input.decided {
        Decided::Said => "as said".into(),
        Decided::Data => "as the data have it".into(),
        Decided::Model => format!("{}'s own", run.name),
    };
    if let Some(stored) = &input.channels_first {
        how += &format!("; the array is channels first ({}), and turned while it is read", shape(stored));
    }
    let Some(SizeRange { smallest, largest, looked_at, of }) = input.pictures else { return how };
    let sizes =
        if smallest == largest { shape(&smallest) } else { format!("{} to {}", shape(&smallest), shape(&largest)) };
    format!("{how}; the pictures have {sizes} ({} looked at)", some_of(looked_at, of))
}

/// Why the first line of a table was taken for what it was.
fn first_line_words(first: FirstLine) -> &'static str {
    match first {
        FirstLine::Named => " (the first line has the label's name)",
        FirstLine::WordsAboveNumbers => " (the first line has words above numbers)",
        FirstLine::Words => " (the first line has no number)",
        FirstLine::Numbers => " (the first line is all numbers)",
        FirstLine::LikeOthers => " (the first line has words and numbers where the others have)",
    }
}

fn left_out_words(left_out: &[LeftOut], kind: Kind) -> String {
    let each: Vec<String> = left_out
        .iter()
        .map(|one| match one.ending.as_deref() {
            Some("") => format!("{} without an ending", one.count),
            Some(ending) => format!("{} .{ending}", one.count),
            None => format!("{} others", one.count),
        })
        .collect();
    let example = left_out.first().map_or(String::new(), |one| one.example.display().to_string());
    let place = if kind == Kind::Images { " in the folder of a class" } else { "" };
    format!("{} (such as {example}): only .jpg, .jpeg and .png{place} are read", each.join(", "))
}

fn warning_kind(warning: &Warning) -> &'static str {
    match warning {
        Warning::TestIsTraining => "test_is_training_data",
        Warning::NoTest => "no_test_set",
        Warning::OneClass { .. } => "one_class",
        Warning::Unequal { .. } => "unequal_classes",
        Warning::NoneOf { .. } => "empty_classes",
        Warning::FewerThanSaid { .. } => "fewer_classes_than_said",
        Warning::NotCounted { .. } => "classes_not_counted",
        Warning::Enlarged { .. } => "enlarged_pictures",
        Warning::Unused { set: UnusedSet::Arrays(_), .. } => "unused_arrays",
        Warning::Unused { set: UnusedSet::Folder(_) | UnusedSet::Other(_), .. } => "unused_folder",
    }
}

fn warning_words(warning: &Warning, classes: Option<&ClassSummary>) -> String {
    let class = |n: usize| classes.map_or(n.to_string(), |classes| name(classes, n).trim_end_matches(':').to_string());
    match warning {
        Warning::TestIsTraining => {
            "the test set is the training set: its scores say nothing of other data; name another data.test".into()
        }
        Warning::NoTest => "nothing is evaluated on: best means the last; data.test or data.hold_out would".into(),
        Warning::OneClass { class: n, share } => {
            let unit = classes.map_or("samples", |classes| classes.unit.name());
            let share = if *share >= 1.0 { "all".into() } else { format!("{:.1} % of the", share * 100.0) };
            format!("{share} {unit} are {}: who always says that is nearly always right", class_of(&class(*n), classes))
        }
        Warning::Unequal { times } => format!("the largest class has {times} times as many samples as the smallest"),
        Warning::NoneOf { classes: empty } => {
            let names: Vec<String> = empty.iter().map(|n| class(*n)).collect();
            let from_one = if empty[..] == [0] { ": are they numbered from 1?" } else { "" };
            format!("nothing is of class {}{from_one}", first_few(&names))
        }
        Warning::FewerThanSaid { found, said } => {
            format!("the model is to have {}, and the data have {found}; leave out --classes", count(*said, "class"))
        }
        Warning::NotCounted { model } => {
            format!("the classes of these data are not counted, and the model has {model}; give --classes")
        }
        Warning::Enlarged { largest: [height, width], input } => format!(
            "no picture is larger than {height}x{width}, and all are enlarged to {}x{}, which only costs; give --input",
            input[0], input[1]
        ),
        Warning::Unused { set, test } => unused_words(set, test),
    }
}

/// That data are not used, and what would use them.
fn unused_words(set: &UnusedSet, test: &TestFrom) -> String {
    let (what, cure) = match set {
        UnusedSet::Other(path) => {
            let path = path.display();
            return format!(
                "the folder {path} beside train is not used; a test set is called test, val, valid or validation"
            );
        }
        UnusedSet::Folder(path) => {
            let key = memfit_run::config::find("data", "test");
            let value = path.display().to_string();
            let cure = key.map_or(String::new(), |key| advised_value(key, &value));
            (format!("the folder {value} is"), format!("{cure} takes it as the test set"))
        }
        UnusedSet::Arrays(arrays) => {
            let (features, label) = (&arrays.features, &arrays.label);
            let keys = in_file(&format!("data.test_features = \"{features}\" and data.test_label = \"{label}\""));
            (format!("the arrays {} are", arrays.words()), format!("{keys} take them as the test set"))
        }
    };
    match test {
        TestFrom::HeldOut { is_said: true, .. } | TestFrom::None => {
            format!("{what} not used, since data.hold_out is said")
        }
        TestFrom::HeldOut { is_said: false, .. } => {
            format!("{what} not used, and a share of the training set is held out in its place; {cure}")
        }
        _ => format!("{what} not used, for there is another test set; {cure}"),
    }
}

/// A class as a sentence has it.
fn class_of(name: &str, classes: Option<&ClassSummary>) -> String {
    if classes.is_some_and(|classes| classes.count == 1 && classes.unit == Unit::Pixels) {
        name.into()
    } else {
        format!("of class {name}")
    }
}
