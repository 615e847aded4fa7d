//! The cost model: a few rounded constants of a device, from which times are predicted. Each target has its own, so that
//! planning is reproducible; a measured one is a small TOML file, which this module reads and writes as text.

use std::fmt::Write;

/// Constants from which step times are predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    pub name: String,
    /// Contractions: 10⁹ floating-point operations a second.
    pub gflops: f64,
    /// Memory: 10⁹ bytes a second.
    pub gbytes: f64,
    /// Starting a kernel, in microseconds.
    pub launch_us: f64,
    pub link: Link,
}

/// What lies between replicas, as each of them sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// 10⁹ bytes a second that a replica sends, while it receives as many.
    pub gbytes: f64,
    /// Of a message, however small, in microseconds.
    pub message_us: f64,
}

impl Link {
    /// Replicas on one machine. The bandwidth is that of 100 MB in a fixed order between two processes over shared memory, which took 103
    /// to 150 ms on two cores, with both of its copies; the message is an estimate of two threads that wake each other.
    pub const SHARED_MEMORY: Link = Link { gbytes: 1.0, message_us: 10.0 };

    /// Seconds of messages that follow each other, with so many bytes in all.
    pub fn seconds(self, messages: u64, bytes: u64) -> f64 {
        messages as f64 * self.message_us * 1e-6 + bytes as f64 / (self.gbytes * 1e9)
    }
}

impl Default for Link {
    fn default() -> Link {
        Link::SHARED_MEMORY
    }
}

/// One constant as the file knows it.
pub struct Constant {
    pub key: &'static str,
    pub meaning: &'static str,
    field: fn(&mut CostModel) -> &mut f64,
}

/// Every constant; reading, writing and hashing follow this table.
pub const CONSTANTS: [Constant; 5] = [
    Constant { key: "gflops", meaning: "10⁹ operations a second in contractions", field: |p| &mut p.gflops },
    Constant { key: "gbytes", meaning: "10⁹ bytes a second from and to memory", field: |p| &mut p.gbytes },
    Constant { key: "launch_us", meaning: "microseconds to start a kernel", field: |p| &mut p.launch_us },
    Constant {
        key: "link_gbytes",
        meaning: "10⁹ bytes a second from a replica to others",
        field: |p| &mut p.link.gbytes,
    },
    Constant {
        key: "link_us",
        meaning: "microseconds of a message between replicas",
        field: |p| &mut p.link.message_us,
    },
];

/// So many of them are of the device alone.
const OF_DEVICE: usize = 3;

impl Constant {
    pub fn value_in(&self, model: &CostModel) -> f64 {
        *(self.field)(&mut model.clone())
    }
}

impl CostModel {
    pub fn new(name: impl Into<String>, gflops: f64, gbytes: f64, launch_us: f64) -> CostModel {
        CostModel { name: name.into(), gflops, gbytes, launch_us, link: Link::SHARED_MEMORY }
    }

    /// The same device, with another link between replicas.
    pub fn with_link(self, link: Link) -> CostModel {
        CostModel { link, ..self }
    }

    /// FNV-1a of the constants; part of the plan. A link that nobody stated is not in it, so that models which know of none keep
    /// theirs.
    pub fn hash(&self) -> u64 {
        let mut text = self.name.clone();
        let stated = if self.link == Link::SHARED_MEMORY { OF_DEVICE } else { CONSTANTS.len() };
        for constant in &CONSTANTS[..stated] {
            // Writing to a string cannot fail.
            let _ = write!(text, " {}", constant.value_in(self));
        }
        memfit_ir::fingerprint(&text)
    }

    /// Constants in two digits, so that measuring again gives the same model more often than not.
    pub fn rounded(mut self) -> CostModel {
        for constant in &CONSTANTS {
            let value = (constant.field)(&mut self);
            *value = format!("{value:.1e}").parse().unwrap_or(*value);
        }
        self
    }

    pub fn to_toml(&self) -> String {
        let mut text = String::from("# Constants of a device, from which memfit predicts how long a step takes.\n");
        text += &format!("name = {}\n", toml::Value::from(self.name.as_str()));
        for constant in &CONSTANTS {
            text += &format!("{} = {:?}  # {}\n", constant.key, constant.value_in(self), constant.meaning);
        }
        text
    }

    /// Reads what [`CostModel::to_toml`] writes. A constant that is left out is that of `defaults`: a file of an older version
    /// stays good.
    pub fn from_toml(text: &str, defaults: &CostModel) -> Result<CostModel, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        let mut model = CostModel { name: "unnamed".into(), ..defaults.clone() };
        for (key, value) in &table {
            if key == "name" {
                let name = value.as_str().ok_or_else(|| format!("name must be a text, but is {value}"))?;
                model.name = name.to_string();
                continue;
            }
            let Some(constant) = CONSTANTS.iter().find(|c| c.key == key) else {
                let known: Vec<&str> = CONSTANTS.iter().map(|c| c.key).collect();
                return Err(format!("there is no constant \"{key}\"; there are name, {}", known.join(", ")));
            };
            let number = value.as_float().or(value.as_integer().map(|n| n as f64));
            match number.filter(|n| n.is_finite() && *n > 0.0) {
                Some(number) => *(constant.field)(&mut model) = number,
                None => return Err(format!("{key} must be a positive number, but is {value}")),
            }
        }
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> CostModel {
        CostModel::new("default", 270.0, 28.0, 3.0)
    }

    #[test]
    fn a_cost_model_is_read_back_as_it_was_written() {
        let odd = CostModel {
            name: "a \"cpu\"\n# not a comment".into(),
            gflops: 1e-7,
            gbytes: 1e19,
            launch_us: 0.3,
            ..defaults()
        }
        .with_link(Link { gbytes: 12.5, message_us: 0.7 });
        for model in [defaults(), odd] {
            assert_eq!(CostModel::from_toml(&model.to_toml(), &defaults()), Ok(model));
        }
    }

    #[test]
    fn every_constant_is_in_the_hash_and_in_the_file() {
        for constant in &CONSTANTS {
            let mut other = defaults();
            *(constant.field)(&mut other) *= 2.0;
            assert_ne!(other.hash(), defaults().hash(), "{}", constant.key);
            assert_eq!(CostModel::from_toml(&other.to_toml(), &defaults()).map(|p| p.hash()), Ok(other.hash()));
        }
    }

    #[test]
    fn a_model_that_knows_of_no_link_keeps_its_hash() {
        let old =
            CostModel::from_toml("name = \"x\"\ngflops = 270.0\ngbytes = 28\nlaunch_us = 3", &defaults()).unwrap();
        assert_eq!(old.link, Link::SHARED_MEMORY);
        assert_eq!(old.hash(), memfit_ir::fingerprint("x 270 28 3"));
        assert_ne!(old.clone().with_link(Link { gbytes: 12.5, message_us: 10.0 }).hash(), old.hash());
        assert_eq!(old.clone().with_link(Link::SHARED_MEMORY), old);
    }

    #[test]
    fn constants_are_rounded_to_two_digits() {
        let model =
            CostModel { name: "x".into(), gflops: 147.3, gbytes: 17.96, launch_us: 0.4449, ..defaults() }.rounded();
        assert_eq!((model.gflops, model.gbytes, model.launch_us), (150.0, 18.0, 0.44));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("gflops = 0", "gflops must be a positive number, but is 0"),
            ("gbytes = \"fast\"", "gbytes must be a positive number, but is \"fast\""),
            ("launch_us = nan", "launch_us"),
            ("gigaflops = 3", "there is no constant \"gigaflops\"; there are name, gflops"),
            ("name = 3", "name must be a text"),
            ("gflops =", "line 1"),
        ] {
            let problem = CostModel::from_toml(text, &defaults()).expect_err(text);
            assert!(problem.contains(expected), "{text}: {problem}");
        }
        assert_eq!(CostModel::from_toml("gbytes = 30", &defaults()).map(|p| (p.gflops, p.gbytes)), Ok((270.0, 30.0)));
    }
}
