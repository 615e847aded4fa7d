//! The attributes of a case. An absent one is `None`, a malformed one an error that names case and attribute.

use memfit_ir::op::{Conv, Pad2};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct Attrs {
    case: String,
    values: Map<String, Value>,
}

/// One number for both image axes, or one for each.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Both(usize),
    Each([usize; 2]),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Axes {
    One(i64),
    Many(Vec<i64>),
}

impl Attrs {
    pub fn new(case: &str, values: Map<String, Value>) -> Attrs {
        Attrs { case: case.into(), values }
    }

    /// The attributes inside of an attribute; none where it is absent.
    pub fn nested(&self, name: &str) -> Result<Attrs> {
        Ok(Attrs { case: self.case.clone(), values: self.get(name)?.unwrap_or_default() })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(v) => {
                let read =
                    T::deserialize(v).map_err(|e| self.wrong(name, format!("is {v}, which cannot be read: {e}")));
                Ok(Some(read?))
            }
        }
    }

    pub fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        self.present(name, self.get(name)?)
    }

    /// The value that was read for an attribute, or the error that there is none.
    pub fn present<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.wrong(name, "is missing".into()))
    }

    /// The first of several names that is there: frameworks call one thing differently.
    pub fn any<T: DeserializeOwned>(&self, names: &[&str]) -> Result<Option<T>> {
        for name in names {
            if let Some(v) = self.get(name)? {
                return Ok(Some(v));
            }
        }
        Ok(None)
    }

    pub fn pair(&self, name: &str) -> Result<Option<[usize; 2]>> {
        Ok(self.get(name)?.map(|p| match p {
            Pair::Both(n) => [n, n],
            Pair::Each(pair) => pair,
        }))
    }

    /// Axes of a tensor of this rank, counted from the end where negative.
    pub fn axes(&self, name: &str, rank: usize) -> Result<Option<Vec<usize>>> {
        let Some(axes) = self.get(name)? else { return Ok(None) };
        let axes = match axes {
            Axes::One(a) => vec![a],
            Axes::Many(all) => all,
        };
        axes.into_iter().map(|a| self.axis_of(name, a, rank)).collect::<Result<_>>().map(Some)
    }

    pub fn axis(&self, name: &str, rank: usize) -> Result<Option<usize>> {
        self.get(name)?.map(|a| self.axis_of(name, a, rank)).transpose()
    }

    fn axis_of(&self, name: &str, axis: i64, rank: usize) -> Result<usize> {
        let from_start = if axis < 0 { axis + rank as i64 } else { axis };
        match usize::try_from(from_start) {
            Ok(a) if a < rank => Ok(a),
            Ok(_) | Err(_) => Err(self.wrong(name, format!("is {axis}, but there are {rank} axes"))),
        }
    }

    /// Top, bottom, left, right; none where absent.
    pub fn pad(&self) -> Result<Pad2> {
        let [top, bottom, left, right] = self.get("pad_tblr")?.unwrap_or([0; 4]);
        Ok(Pad2 { top, bottom, left, right })
    }

    pub fn conv(&self, usual_groups: usize) -> Result<Conv> {
        Ok(Conv {
            stride: self.pair("stride")?.unwrap_or([1, 1]),
            pad: self.pad()?,
            dilation: self.pair("dilation")?.unwrap_or([1, 1]),
            groups: self.get("groups")?.unwrap_or(usual_groups),
        })
    }

    pub fn wrong(&self, name: &str, problem: String) -> Error {
        Error::Attribute { case: self.case.clone(), attribute: name.into(), problem }
    }
}
