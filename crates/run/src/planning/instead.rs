//! Smaller models that a run could train instead where it does not fit: narrower, with smaller kernels, of smaller inputs, and
//! efficient ones of other families. Each is the run with keys of its file set otherwise, so that whoever sets these gets it.

use memfit::instead::{Instead, Ladder};
use memfit::ir::graph_cost;
use memfit::nn::zoo::Task;
use memfit::nn::{Mode, Model};
use memfit::plan::{Change, Effect};
use toml::Value;

use crate::data::Kind;
use crate::error::Result;
use crate::resources::{DIGITS, RunResources, model_of};
use crate::step_config::training;

/// Models made for little memory and time, from the largest to the smallest.
const EFFICIENT: [&str; 3] = ["efficientnet_b0", "mobilenet_v3_large", "mobilenet_v3_small"];

/// What sizes are multiplied by, in the order in which they are offered.
const SHARES: [f32; 3] = [0.75, 0.5, 0.25];

/// What could be trained instead, from the largest to the smallest of each kind.
pub(crate) fn ladders(run: &RunResources) -> Vec<Ladder> {
    // One that goes on is what it is.
    if run.config.resumed_folder().is_some() {
        return Vec::new();
    }
    let mut ladders = vec![input(run)];
    // Weights that it is to start from are of its sizes.
    if run.config.model.weights.is_none() {
        ladders.extend([width(run), kernel(run), others(run)]);
    }
    ladders.retain(|ladder| !ladder.models.is_empty());
    ladders
}

/// The run with one key set otherwise; none where it cannot be built so.
fn with(
    run: &RunResources,
    section: &str,
    key: &str,
    value: impl Into<Value>,
    change: Change,
    effect: Effect,
) -> Option<Instead> {
    let set = || -> Result<Instead> {
        let mut config = run.config.clone();
        config.set(section, key, value.into())?;
        if let Change::ImageSize(size) = change {
            // It says the input too.
            let channels = run.model.input()?.get(2).copied().unwrap_or(3);
            config.set("model", "input", [size[0], size[1], channels].map(|n| n as i64).to_vec())?;
        }
        let name = config.model.name.clone().filter(|_| key == "name").unwrap_or_else(|| run.name.clone());
        let model = model_of(&name, &config, run.data.as_deref())?;
        // What cannot be built is found out here and not while it is planned.
        model.build(1, Mode::Train)?;
        let (_, _, training) = training(&model, &config)?;
        Ok(Instead { change, effect, model: Box::new(model), training })
    };
    set().ok()
}

fn ladder(models: impl Iterator<Item = Option<Instead>>) -> Ladder {
    Ladder { models: models.flatten().collect(), is_each_offered: false }
}

/// Fewer channels, or fewer units.
fn width(run: &RunResources) -> Ladder {
    let choice = |name: &str| run.model.choices().into_iter().find(|choice| choice.name == name);
    if let Some(hidden) = choice("hidden") {
        let units: Vec<f32> =
            hidden.value.trim_matches(['[', ']']).split(", ").filter_map(|n| n.parse().ok()).collect();
        let narrower = |share: f32| -> Vec<usize> { units.iter().map(|n| ((n * share) as usize).max(1)).collect() };
        return ladder(SHARES.into_iter().map(narrower).filter(|units| !units.is_empty()).map(|units| {
            let value: Vec<i64> = units.iter().map(|n| *n as i64).collect();
            with(run, "model", "hidden", value, Change::Hidden(units), Effect::NarrowerModel)
        }));
    }
    let Some(width) = choice("width").and_then(|choice| choice.value.parse::<f32>().ok()) else {
        return ladder(std::iter::empty());
    };
    let heads = choice("heads").and_then(|choice| choice.value.parse::<f32>().ok());
    let narrower = |share: f32| match heads {
        // Of a transformer it is a number of channels, which its heads divide.
        Some(heads) => (width * share / heads).floor() * heads,
        None => width * share,
    };
    let widths = SHARES.into_iter().map(narrower).filter(|width| *width > 0.0);
    ladder(
        widths.map(|width| with(run, "model", "width", f64::from(width), Change::Width(width), Effect::NarrowerModel)),
    )
}

/// From what it has down to 3: an even number of pixels has no middle, and 1 sees no neighbours.
fn kernel(run: &RunResources) -> Ladder {
    let own = run.model.choices().into_iter().find(|choice| choice.name == "kernel");
    let size = own.and_then(|choice| choice.value.parse::<usize>().ok()).unwrap_or(0);
    let mut smaller = vec![size.saturating_sub(2), size.midpoint(3) | 1, 3];
    smaller.retain(|n| (3..size).contains(n));
    smaller.dedup();
    ladder(
        smaller.into_iter().map(|n| with(run, "model", "kernel", n as i64, Change::Kernel(n), Effect::SmallerKernels)),
    )
}

/// Less of each sample, where the data do not say how much it is.
fn input(run: &RunResources) -> Ladder {
    let shape = run.model.input().unwrap_or_default();
    let is_free = match run.data.as_deref() {
        Some(data) => match data.kind {
            Kind::Images | Kind::Masks | Kind::TfRecord => shape.len() == 3,
            Kind::Tokens | Kind::Text => true,
            Kind::Digits | Kind::Csv | Kind::Npz => false,
        },
        // Those of this model are built in.
        None => run.name != DIGITS,
    };
    match shape[..] {
        [height, width, channels] if is_free => {
            let mut sizes: Vec<[usize; 2]> =
                SHARES.iter().map(|share| [height, width].map(|n| pixels(n, *share))).collect();
            sizes.retain(|size| *size != [height, width]);
            sizes.dedup();
            ladder(sizes.into_iter().map(|size @ [height, width]| {
                let value = |sizes: &[usize]| sizes.iter().map(|n| *n as i64).collect::<Vec<_>>();
                if run.config.data.image_size.is_some() {
                    with(run, "data", "image_size", value(&size), Change::ImageSize(size), Effect::SmallerInput)
                } else {
                    let shape = vec![height, width, channels];
                    with(run, "model", "input", value(&shape), Change::Input(shape), Effect::SmallerInput)
                }
            }))
        }
        [tokens] if is_free && run.model.task() == Task::Tokens => {
            let fewer = SHARES.into_iter().map(|share| (tokens as f32 * share) as usize).filter(|n| *n > 0);
            ladder(fewer.map(|n| with(run, "model", "sequence", n as i64, Change::Sequence(n), Effect::SmallerInput)))
        }
        _ => ladder(std::iter::empty()),
    }
}

/// A share of so many pixels, in 32s, which networks halve five times and patches divide; of small pictures in 4s.
fn pixels(n: usize, share: f32) -> usize {
    let unit = if n >= 64 { 32 } else { 4 };
    ((n as f32 * share) as usize / unit * unit).max(unit.min(n))
}

/// Of other families, with the same input and classes, and with fewer parameters and operations.
fn others(run: &RunResources) -> Ladder {
    let is_picture = run.model.input().is_ok_and(|input| input.len() == 3);
    let own = size_of(&run.model);
    let is_smaller = |instead: &Instead| match (own, size_of(&*instead.model)) {
        (Some(own), Some(other)) => other.0 < own.0 && other.1 < own.1,
        _ => false,
    };
    let names = EFFICIENT.into_iter().filter(|_| is_picture && run.model.task() == Task::Classes);
    // Of its own family there is a smaller one already.
    let names = names.filter(|name| family(name) != family(&run.name));
    let others = names.map(|name| with(run, "model", "name", name, Change::Model(name.into()), Effect::OtherModel));
    Ladder { models: others.flatten().filter(is_smaller).collect(), is_each_offered: true }
}

/// "mobilenet_v3" of "mobilenet_v3_small".
fn family(name: &str) -> &str {
    name.rsplit_once('_').map_or(name, |(family, _)| family)
}

/// Parameters, and operations on a sample.
fn size_of(model: &dyn Model) -> Option<(usize, u64)> {
    let graph = model.build(1, Mode::Eval).ok()?.graph;
    Some((graph.param_count(), graph_cost(&graph).flops))
}

#[cfg(test)]
mod tests {
    use super::pixels;

    #[test]
    fn smaller_pictures_are_halved_as_often() {
        for (n, share, expected) in [
            (224, 0.75, 160),
            (224, 0.5, 96),
            (224, 0.25, 32),
            (64, 0.25, 32),
            (32, 0.75, 24),
            (8, 0.5, 4),
            (2, 0.5, 2),
        ] {
            assert_eq!(pixels(n, share), expected, "{n} · {share}");
        }
    }
}
