//! What differs between two profiles: the peak by class and by layer, the time by kernel. What is said of layers and kernels adds
//! up to what is said of the whole.

use std::collections::BTreeMap;

use memfit_ir::bytes::Bytes;
use serde::Serialize;

use crate::error::ProfileError;
use crate::html::DifferenceTable;
use crate::model::{Class, Part, Profile};
use crate::table::{change, more, table};

/// Lines of a list that a person still reads.
const LINES: usize = 20;

/// A quantity in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Number {
    /// Its name as data.
    pub key: &'static str,
    /// In words.
    #[serde(skip)]
    pub what: &'static str,
    /// What it counts.
    #[serde(skip)]
    pub unit: Unit,
    /// In the first.
    pub before: f64,
    /// In the second.
    pub after: f64,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Memory.
    Bytes,
    /// Time.
    Ms,
    /// Things.
    Count,
}

/// Something that is said of both in words, and differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// What is said.
    pub what: &'static str,
    /// Of the first.
    pub before: String,
    /// Of the second.
    pub after: String,
}

/// Bytes of a class at the peak of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassBytes {
    /// Which.
    pub class: Class,
    /// At the peak of the first.
    pub before: u64,
    /// At the peak of the second.
    pub after: u64,
}

/// Bytes of a layer at the peak of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerBytes {
    /// Its path.
    pub layer: String,
    /// What they are for.
    pub class: Class,
    /// At the peak of the first.
    pub before: u64,
    /// At the peak of the second.
    pub after: u64,
}

/// Time of the kernels of a layer that do the same, in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelMs {
    /// Its path.
    pub layer: String,
    /// What they are named after.
    pub op: String,
    /// What they are a part of.
    pub part: Part,
    /// Of the first.
    pub before: f64,
    /// Of the second.
    pub after: f64,
}

/// What differs between two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What they are of, where that is not the same.
    pub labels: Vec<Label>,
    /// All numbers.
    pub numbers: Vec<Number>,
    /// At the peak; classes that are in either.
    pub classes: Vec<ClassBytes>,
    /// At the peak, by the size of the difference; only those that differ.
    pub layers: Vec<LayerBytes>,
    /// By the size of the difference; only those that differ.
    pub kernels: Vec<KernelMs>,
    /// Whether times are measured, or else predicted: they are of one kind in both.
    pub is_measured: bool,
}

/// Compares two profiles of one model.
///
/// # Errors
/// Where they are of different models: layers of one say nothing about those of the other.
pub fn compare(before: &Profile, after: &Profile) -> Result<Comparison, ProfileError> {
    if before.run.model != after.run.model {
        let models = [before.run.model.clone(), after.run.model.clone()];
        return Err(ProfileError::DifferentModels { models });
    }
    let is_measured = before.measured.is_some() && after.measured.is_some();
    Ok(Comparison {
        labels: labels(before, after),
        numbers: numbers(before, after, is_measured),
        classes: classes(before, after),
        layers: layers(before, after),
        kernels: kernels(before, after, is_measured),
        is_measured,
    })
}

fn labels(a: &Profile, b: &Profile) -> Vec<Label> {
    let of = |p: &Profile| {
        let budget = p.memory.budget_bytes.map_or("none".into(), |bytes| Bytes(bytes).to_string());
        [
            ("input", p.run.input.clone()),
            ("batch", p.run.batch.to_string()),
            ("precision", p.run.precision.clone()),
            ("optimizer", p.run.optimizer.clone()),
            ("device", p.run.device.clone()),
            ("budget", budget),
            ("cost model", p.run.cost_model.clone()),
            ("memfit", p.run.memfit.clone()),
        ]
    };
    let pairs = of(a).into_iter().zip(of(b));
    pairs.map(|((what, before), (_, after))| Label { what, before, after }).filter(|l| l.before != l.after).collect()
}

fn numbers(a: &Profile, b: &Profile, is_measured: bool) -> Vec<Number> {
    let number = |what, key, unit, value: &dyn Fn(&Profile) -> f64| Number {
        key,
        what,
        unit,
        before: value(a),
        after: value(b),
    };
    let mut numbers = vec![
        number("arena", "arena_bytes", Unit::Bytes, &|p| p.memory.arena_bytes as f64),
        number("peak", "peak_bytes", Unit::Bytes, &|p| p.memory.peak_bytes as f64),
        number("state", "state_bytes", Unit::Bytes, &|p| p.memory.state_bytes as f64),
        number("transient", "transient_bytes", Unit::Bytes, &|p| p.memory.transient_bytes as f64),
        number("keep everything", "keep_all_bytes", Unit::Bytes, &|p| p.memory.keep_all_bytes as f64),
        number("lower bound", "lower_bound_bytes", Unit::Bytes, &|p| p.memory.lower_bound_bytes as f64),
        number("step, predicted", "predicted_step_ms", Unit::Ms, &|p| p.memory.predicted_step_ms),
        number("kernels", "kernels", Unit::Count, &|p| p.memory.kernels as f64),
        number("recomputed ops", "recomputed_ops", Unit::Count, &|p| p.memory.recomputed_ops as f64),
        number("micro-batch", "micro_batch", Unit::Count, &|p| p.run.micro_batch as f64),
    ];
    if is_measured {
        numbers.push(number("step, measured", "measured_step_ms", Unit::Ms, &|p| p.median_step_ms().unwrap_or(0.0)));
    }
    numbers
}

fn classes(a: &Profile, b: &Profile) -> Vec<ClassBytes> {
    let bytes = |p: &Profile, class| {
        p.peak.live.iter().filter(|e| e.class == class).map(|e| e.bytes).fold(0, u64::saturating_add)
    };
    let pair = |class| ClassBytes { class, before: bytes(a, class), after: bytes(b, class) };
    Class::ALL.into_iter().map(pair).filter(|p| p.before > 0 || p.after > 0).collect()
}

fn layers(a: &Profile, b: &Profile) -> Vec<LayerBytes> {
    let mut sums: BTreeMap<(&str, Class), [u64; 2]> = BTreeMap::new();
    for (side, profile) in [a, b].into_iter().enumerate() {
        for e in &profile.peak.live {
            // The name of a state is its layer's and its own.
            let layer =
                if e.op == "state" { e.layer.rsplit_once('/').map_or("", |(layer, _)| layer) } else { &e.layer };
            let sum = &mut sums.entry((layer, e.class)).or_default()[side];
            *sum = sum.saturating_add(e.bytes);
        }
    }
    let entry = |((layer, class), [before, after]): ((&str, Class), [u64; 2])| LayerBytes {
        layer: layer.into(),
        class,
        before,
        after,
    };
    let mut layers: Vec<LayerBytes> = sums.into_iter().map(entry).filter(|l| l.before != l.after).collect();
    layers.sort_by_key(|l| std::cmp::Reverse(l.before.abs_diff(l.after)));
    layers
}

fn kernels(a: &Profile, b: &Profile, is_measured: bool) -> Vec<KernelMs> {
    let mut sums: BTreeMap<(&str, &str, &'static str), (Part, [f64; 2])> = BTreeMap::new();
    for (side, profile) in [a, b].into_iter().enumerate() {
        for (p, program) in profile.programs.iter().enumerate() {
            for (n, launch) in program.launches.iter().enumerate() {
                let key = (launch.layer.as_str(), launch.op.as_str(), launch.part.name());
                let times = sums.entry(key).or_insert((launch.part, [0.0; 2]));
                times.1[side] += program.repeats as f64 * profile.launch_us(p, n, is_measured) * 1e-3;
            }
        }
    }
    let entry = |((layer, op, _), (part, [before, after])): ((&str, &str, _), (Part, [f64; 2]))| KernelMs {
        layer: layer.into(),
        op: op.into(),
        part,
        before,
        after,
    };
    let mut kernels: Vec<KernelMs> = sums.into_iter().map(entry).filter(|k| k.before != k.after).collect();
    kernels.sort_by(|x, y| (y.after - y.before).abs().total_cmp(&(x.after - x.before).abs()));
    kernels
}

impl Comparison {
    /// For people, and to paste somewhere.
    pub fn markdown(&self, names: [&str; 2]) -> String {
        let mut out = format!("### {} → {}\n", names[0], names[1]);
        if !self.labels.is_empty() {
            let rows = self.labels.iter().map(|l| [l.what.to_string(), l.before.clone(), l.after.clone()]);
            out += "\nThese are of different runs:\n\n";
            out += &table(["", "before", "after"], &rows.collect::<Vec<_>>());
        }
        if self.is_same() {
            return out + "\nThe plans are the same.\n";
        }
        let numbers = self
            .numbers
            .iter()
            .map(|n| [n.what.to_string(), n.unit.show(n.before), n.unit.show(n.after), change(n.before, n.after)]);
        out += "\n";
        out += &table(["", "before", "after", "change"], &numbers.collect::<Vec<_>>());
        out += "\nBytes at the peak:\n\n";
        let classes = self.classes.iter().map(|c| bytes_row(c.class.name().into(), c.before, c.after));
        out += &table(["", "before", "after", "change"], &classes.collect::<Vec<_>>());
        out + &self.layers_table() + &self.kernels_table()
    }

    /// All of it as tables for a page, of which no line is left out.
    pub fn tables(&self) -> Vec<DifferenceTable> {
        let numbers = self
            .numbers
            .iter()
            .map(|n| vec![n.what.into(), n.unit.show(n.before), n.unit.show(n.after), change(n.before, n.after)]);
        let classes = self.classes.iter().map(|c| bytes_row(c.class.name().into(), c.before, c.after).into());
        let layers = self.layers.iter().map(|l| {
            let [before, after] = [l.before, l.after].map(|n| Bytes(n).to_string());
            vec![shown(&l.layer), l.class.name().into(), before, after, signed_bytes(l.before, l.after)]
        });
        let kernels = self.kernels.iter().map(|k| {
            let [before, after] = [k.before, k.after].map(|ms| format!("{ms:.2} ms"));
            let difference = format!("{:+.2} ms", k.after - k.before);
            vec![shown(&k.layer), k.op.clone(), k.part.name().into(), before, after, difference]
        });
        let how = if self.is_measured { "measured" } else { "predicted" };
        let table = |title: &str, columns: &[&str], rows: Vec<Vec<String>>| DifferenceTable {
            title: title.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows,
        };
        vec![
            table("In numbers", &["", "before", "after", "change"], numbers.collect()),
            table("Bytes at the peak", &["class", "before", "after", "change"], classes.collect()),
            table("The peak, by layer", &["layer", "class", "before", "after", "difference"], layers.collect()),
            table(
                &format!("Time of a step by kernel, {how}"),
                &["layer", "kernel", "part", "before", "after", "difference"],
                kernels.collect(),
            ),
        ]
    }

    fn is_same(&self) -> bool {
        let differs = |n: &Number| n.before != n.after;
        self.layers.is_empty() && self.kernels.is_empty() && !self.numbers.iter().any(differs)
    }

    fn layers_table(&self) -> String {
        if self.layers.is_empty() {
            return String::new();
        }
        let row = |l: &LayerBytes| {
            let [before, after] = [l.before, l.after].map(|n| Bytes(n).to_string());
            let difference = signed_bytes(l.before, l.after);
            [shown(&l.layer), l.class.name().to_string(), before, after, difference]
        };
        let rows: Vec<_> = self.layers.iter().take(LINES).map(row).collect();
        let head = ["layer", "class", "before", "after", "difference"];
        format!("\nThe peak, by layer:\n\n{}{}", table(head, &rows), more(self.layers.len(), LINES))
    }

    fn kernels_table(&self) -> String {
        if self.kernels.is_empty() {
            return String::new();
        }
        let row = |k: &KernelMs| {
            let [before, after] = [k.before, k.after].map(|ms| format!("{ms:.2}"));
            let difference = format!("{:+.2}", k.after - k.before);
            [shown(&k.layer), k.op.clone(), k.part.name().to_string(), before, after, difference]
        };
        let rows: Vec<_> = self.kernels.iter().take(LINES).map(row).collect();
        let head = ["layer", "kernel", "part", "before", "after", "difference"];
        let how = if self.is_measured { "measured" } else { "predicted" };
        let table = table(head, &rows);
        format!("\nTime of a step by kernel, {how}, in ms:\n\n{table}{}", more(self.kernels.len(), LINES))
    }
}

impl Unit {
    fn show(self, x: f64) -> String {
        match self {
            Unit::Bytes => Bytes(x as u64).to_string(),
            Unit::Ms => format!("{x:.1} ms"),
            Unit::Count => format!("{x}"),
        }
    }
}

fn bytes_row(what: String, before: u64, after: u64) -> [String; 4] {
    [what, Bytes(before).to_string(), Bytes(after).to_string(), change(before as f64, after as f64)]
}

fn signed_bytes(before: u64, after: u64) -> String {
    let sign = if after >= before { "+" } else { "-" };
    format!("{sign}{}", Bytes(after.abs_diff(before)))
}

/// Of a layer; what is the model's own has no path.
fn shown(layer: &str) -> String {
    if layer.is_empty() { "(model)".into() } else { layer.into() }
}
