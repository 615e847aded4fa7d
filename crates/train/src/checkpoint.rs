//! The small file that a checkpoint is: what to go on from, and which files hold the rest. Plain data and its text
//! form; it never touches a file itself.

use memfit_exec::Checksum;
use serde::{Deserialize, Serialize};

use crate::metrics::Scores;

/// Changes with every change of the form.
pub const FORMAT: u32 = 1;

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The number of the next step.
    pub step: u32,
    /// Of all its randomness.
    pub seed: u64,
    /// What else it goes on from.
    pub progress: Progress,
    /// Every state, optimizer and loss scale included.
    pub tensors: FileSum,
    /// The plan it runs on.
    pub plan: FileSum,
}

/// What a run knows besides its states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Of the next sample: the pass over the data, and its number within it.
    pub epoch: u64,
    /// The number within the epoch.
    pub element: u64,
    /// Of the losses of this epoch so far, where they are finite.
    pub loss_sum: f64,
    /// How many those are.
    pub loss_count: u32,
    /// The best value of the watched metric.
    pub best: Option<f64>,
    /// The value that resets the patience, and the evaluations since.
    pub to_beat: Option<f64>,
    /// Evaluations since it last got better.
    pub stale: u32,
    /// The last one.
    pub evaluation: Option<Evaluation>,
    /// How many there were.
    pub evaluations: u64,
}

/// The scores of the model as it was before a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// The number of its next step.
    pub step: u32,
    /// What was found.
    pub scores: Scores,
}

/// A file in the same folder, and how to know that it is still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// 16 hexadecimal digits.
    pub checksum: String,
}

impl FileSum {
    /// A file with what was summed up while it was written.
    pub fn new(name: impl Into<String>, sum: &Checksum) -> FileSum {
        FileSum { name: name.into(), bytes: sum.bytes(), checksum: format!("{:016x}", sum.finish()) }
    }
}

#[derive(Deserialize)]
struct Head {
    format: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    memfit: String,
    format: u32,
    checksum: String,
    checkpoint: Checkpoint,
}

impl Checkpoint {
    /// Its JSON.
    pub fn to_text(&self) -> String {
        let form = Form {
            memfit: env!("CARGO_PKG_VERSION").into(),
            format: FORMAT,
            checksum: self.checksum(),
            checkpoint: self.clone(),
        };
        json(serde_json::to_string_pretty(&form)) + "\n"
    }

    /// Says what is wrong with a text that is not as it was written.
    pub fn from_text(text: &str) -> Result<Checkpoint, String> {
        let no_checkpoint = |e: serde_json::Error| format!("it is no checkpoint: {e}");
        let head: Head = serde_json::from_str(text).map_err(no_checkpoint)?;
        if head.format != u64::from(FORMAT) {
            return Err(format!("it has format {}, but this memfit reads format {FORMAT}", head.format));
        }
        let form: Form = serde_json::from_str(text).map_err(no_checkpoint)?;
        if form.checksum != form.checkpoint.checksum() {
            return Err("it was changed since it was written".into());
        }
        Ok(form.checkpoint)
    }

    fn checksum(&self) -> String {
        format!("{:016x}", Checksum::of_bytes(json(serde_json::to_string(self)).as_bytes()))
    }
}

fn json(result: serde_json::Result<String>) -> String {
    result.expect("plain data with string keys has a text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LabelKind;

    fn checkpoint() -> Checkpoint {
        let scores = Scores {
            labels: LabelKind::Classes,
            count: 360,
            loss: 0.1 + 0.2,
            accuracy: Some(0.975),
            top5: None,
            mean_iou: Some(0.9),
            root_mean_squared_error: None,
            r2: None,
            mean_absolute_error: None,
            metrics: Default::default(),
            heads: Default::default(),
        };
        Checkpoint {
            step: 1234,
            seed: u64::MAX,
            progress: Progress {
                epoch: 3,
                element: 17,
                loss_sum: 1.0 / 3.0,
                loss_count: 17,
                best: Some(0.975),
                to_beat: None,
                stale: 2,
                evaluation: Some(Evaluation { step: 1200, scores }),
                evaluations: 3,
            },
            tensors: FileSum::new("step-00001234.safetensors", &Checksum::default()),
            plan: FileSum::new("plan.json", &Checksum::default()),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Checkpoint::from_text(&checkpoint().to_text()), Ok(checkpoint()));
    }

    #[test]
    fn a_change_is_told_by_its_kind() {
        let text = checkpoint().to_text();
        let change = |from: &str, to: &str| Checkpoint::from_text(&text.replacen(from, to, 1)).unwrap_err();
        assert!(change("\"step\": 1234", "\"step\": 1235").contains("changed since"));
        assert!(change("\"format\": 1", "\"format\": 2").contains("has format 2"));
        assert!(change("\"stale\"", "\"tale\"").contains("no checkpoint: unknown field `tale`"));
        assert!(Checkpoint::from_text(&text[..text.len() / 2]).unwrap_err().contains("no checkpoint: EOF"));
        assert!(Checkpoint::from_text("").unwrap_err().contains("no checkpoint"));
    }
}
