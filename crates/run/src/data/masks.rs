//! What the masks of a run are: said, or found out by looking at some of them; and how that is written down, so that a run
//! that goes on and data that are evaluated later are read alike.

use std::path::Path;

use memfit::data::sources::{Colour, MaskClasses, MaskSurvey, Masks, SegmentationPairs, colour_name};
use memfit::data::{BytePool, OnBad};
use serde_json::{Value, json};

use super::survey::{DataSurvey, SeenClasses, SeenMasks, SizeRange, Unit};
use super::{DataFacts, KnownSource, Schema, bad_path, channels};
use crate::config::{DataConfig, RunConfig};
use crate::error::{Result, RunError};

/// As a run file says it.
pub const fn name(masks: &Masks) -> &'static str {
    match masks {
        Masks::Grey => "grey",
        Masks::Binary { .. } => "binary",
        Masks::Classes { .. } => "classes",
        Masks::Palette { .. } => "palette",
        Masks::Colours { .. } => "colours",
    }
}

/// Images with their masks, and what these are; those of a run that is settled are what they were.
pub(super) fn pairs(path: &Path, config: &RunConfig, schema: Option<&Schema>, pool: &BytePool) -> Result<KnownSource> {
    let pairs = SegmentationPairs::open(path, Masks::Grey, pool)?.channels(channels(config));
    let table = Table::read(&config.data)?;
    let settled = match (schema, config.run_folder()) {
        (Some(schema), _) => Some(schema.masks.clone().unwrap_or(Masks::Grey)),
        // Runs of older versions knew no others.
        (None, Some(folder)) => Some(super::same_data::schema(folder)?.masks.unwrap_or(Masks::Grey)),
        (None, None) => None,
    };
    let (masks, survey) = match settled {
        Some(masks) => (masks, DataSurvey::default()),
        None => find_out(path, &pairs, config, &table, pool)?,
    };
    let classes = masks.classes();
    let said = config.model.classes.unwrap_or(classes);
    if classes == 1 && said != 1 {
        return Err(RunError::MaskClasses { classes: said });
    }
    let facts = DataFacts { classes: Some(classes), ..DataFacts::default() };
    let survey = DataSurvey { left_out: pairs.left_out().to_vec(), ..survey };
    let schema = Schema { classes: table.names, masks: Some(masks.clone()), ..Schema::default() };
    Ok(KnownSource { source: std::sync::Arc::new(pairs.with_masks(masks)), facts, schema, survey })
}

/// Looks at some of the masks.
fn find_out(
    path: &Path,
    pairs: &SegmentationPairs,
    config: &RunConfig,
    table: &Table,
    pool: &BytePool,
) -> Result<(Masks, DataSurvey)> {
    let bad = if config.data.skip_bad == Some(true) { OnBad::Skip } else { OnBad::Fail };
    let seen: MaskSurvey = pairs.survey_masks(bad, pool)?;
    let said = table.said(&config.data)?;
    let (looked_at, of) = seen.looked_at();
    if looked_at == 0 {
        return Err(bad_path(path, "not one of the masks that were looked at can be read"));
    }
    let masks = seen
        .masks(&said, config.model.classes)
        .map_err(|problem| RunError::Masks { folder: path.join("masks"), problem })?;
    let rows = seen.counts(&masks);
    let seen_classes = SeenClasses { count: masks.classes(), rows: Some(rows), unit: Unit::Pixels };
    let survey = DataSurvey {
        classes: Some(seen_classes),
        masks: Some(SeenMasks { is_said: said != MaskClasses::Unknown, looked_at, of }),
        pictures: seen.sizes().map(|[smallest, largest]| SizeRange { smallest, largest, looked_at, of }),
        ..DataSurvey::default()
    };
    Ok((masks, survey))
}

/// The colours of a run file, with the names of their classes.
struct Table {
    colours: Vec<(Colour, usize)>,
    names: Vec<String>,
}

impl Table {
    /// Colours of the same name are of one class. One without a name is called as it is written.
    fn read(config: &DataConfig) -> Result<Table> {
        let mut table = Table { colours: Vec::new(), names: Vec::new() };
        for text in &config.colours {
            let (name, code) = text.trim().rsplit_once(char::is_whitespace).unwrap_or(("", text.trim()));
            let Some(colour) = colour(code) else {
                let problem = format!("\"{text}\" ends with no colour, such as #ff8000");
                return Err(RunError::of_key("data", "colours", problem));
            };
            if table.colours.iter().any(|(known, _)| *known == colour) {
                return Err(RunError::of_key("data", "colours", format!("has {} twice", colour_name(colour))));
            }
            let name = if name.trim().is_empty() { colour_name(colour) } else { name.trim().to_string() };
            let class = table.names.iter().position(|known| *known == name).unwrap_or_else(|| {
                table.names.push(name);
                table.names.len() - 1
            });
            table.colours.push((colour, class));
        }
        match table.names.len() {
            1 => Err(RunError::of_key("data", "colours", "has one class; give at least two".into())),
            _ => Ok(table),
        }
    }

    /// What the run says of its masks.
    fn said(&self, config: &DataConfig) -> Result<MaskClasses> {
        let colours = || MaskClasses::Colours(self.colours.clone());
        match config.masks.as_deref() {
            Some("colours") => Ok(colours()),
            Some(other) if other != "auto" && !self.colours.is_empty() => Err(RunError::conflict(format!(
                "data.colours is for data.masks = \"colours\", and data.masks is \"{other}\"; leave one of them out"
            ))),
            Some("classes") => Ok(MaskClasses::Numbers),
            Some("binary") => Ok(MaskClasses::Binary),
            Some("palette") => Ok(MaskClasses::Palette),
            Some("grey") => Ok(MaskClasses::Grey),
            _ if self.colours.is_empty() => Ok(MaskClasses::Unknown),
            _ => Ok(colours()),
        }
    }
}

/// From `#rrggbb`.
fn colour(text: &str) -> Option<Colour> {
    let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    let [_, r, g, b] = number.to_be_bytes();
    Some([r, g, b])
}

/// As a run's folder has it.
pub fn to_json(masks: &Masks) -> Value {
    let kind = name(masks);
    match masks {
        Masks::Grey => json!({ "kind": kind }),
        Masks::Binary { above, levels } => json!({ "kind": kind, "above": above, "levels": levels }),
        Masks::Classes { count } => json!({ "kind": kind, "classes": count }),
        Masks::Palette { count, colours } => {
            let used = colours.iter().take(*count).map(|c| c.map(colour_name)).collect::<Vec<_>>();
            json!({ "kind": kind, "classes": count, "colours": used })
        }
        Masks::Colours { table } => {
            let table: Vec<Value> = table.iter().map(|(c, class)| json!([colour_name(*c), class])).collect();
            json!({ "kind": kind, "table": table })
        }
    }
}

/// What [`to_json`] wrote; nothing where it is not that.
pub fn from_json(value: &Value) -> Option<Masks> {
    let byte = |value: &Value| value.as_u64().and_then(|n| u8::try_from(n).ok());
    let count = || value["classes"].as_u64().map(|n| n as usize);
    let hex = |value: &Value| value.as_str().and_then(colour);
    Some(match value["kind"].as_str()? {
        "grey" => Masks::Grey,
        "binary" => {
            let levels = value["levels"].as_array().and_then(|l| Some([byte(l.first()?)?, byte(l.get(1)?)?]));
            Masks::Binary { above: byte(&value["above"])?, levels }
        }
        "classes" => Masks::Classes { count: count()? },
        "palette" => {
            Masks::Palette { count: count()?, colours: value["colours"].as_array()?.iter().map(hex).collect() }
        }
        "colours" => {
            let entry = |entry: &Value| Some((hex(&entry[0])?, entry[1].as_u64()? as usize));
            Masks::Colours { table: value["table"].as_array()?.iter().map(entry).collect::<Option<_>>()? }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_masks_are_is_read_back_as_it_was_written() {
        for masks in [
            Masks::Grey,
            Masks::Binary { above: 127, levels: Some([0, 255]) },
            Masks::Binary { above: 0, levels: None },
            Masks::Classes { count: 7 },
            Masks::Palette { count: 2, colours: vec![Some([1, 2, 3]), None] },
            Masks::Colours { table: vec![([0; 3], 0), ([255, 128, 0], 1)] },
        ] {
            assert_eq!(from_json(&to_json(&masks)), Some(masks));
        }
        assert_eq!(from_json(&Value::Null), None);
    }

    #[test]
    fn colours_of_one_name_are_one_class() {
        let config = DataConfig {
            colours: ["void #000000", "#ff8000", "void #e0e0c0"].map(String::from).to_vec(),
            ..DataConfig::default()
        };
        let table = Table::read(&config).expect("it is right");
        assert_eq!(table.names, ["void", "#ff8000"]);
        assert_eq!(table.colours, [([0; 3], 0), ([255, 128, 0], 1), ([224, 224, 192], 0)]);
    }
}
