//! The columns of a table, as the folder of a run keeps them.

use serde::{Deserialize, Serialize};

/// The columns of a table, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    #[serde(rename = "label", with = "one_or_several")]
    pub labels: Vec<String>,
    pub features: Vec<String>,
}

/// One name as a text, several as a list.
mod one_or_several {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Names {
        One(String),
        Several(Vec<String>),
    }

    pub fn serialize<S: Serializer>(names: &[String], to: S) -> Result<S::Ok, S::Error> {
        match names {
            [name] => name.serialize(to),
            names => names.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match Names::deserialize(from)? {
            Names::One(name) => vec![name],
            Names::Several(names) => names,
        })
    }
}
