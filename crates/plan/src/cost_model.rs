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
}

/// One constant as the file knows it.
pub struct Constant {
    pub key: &'static str,
    pub meaning: &'static str,
    field: fn(&mut CostModel) -> &mut f64,
}

/// Every constant; reading, writing and hashing follow this table.
pub const CONSTANTS: [Constant; 3] = [
    Constant { key: "gflops", meaning: "10⁹ operations a second in contractions", field: |p| &mut p.gflops },
    Constant { key: "gbytes", meaning: "10⁹ bytes a second from and to memory", field: |p| &mut p.gbytes },
    Constant { key: "launch_us", meaning: "microseconds to start a kernel", field: |p| &mut p.launch_us },
];

impl Constant {
    pub fn value_in(&self, model: &CostModel) -> f64 {
        *(self.field)(&mut model.clone())
    }
}

impl CostModel {
    pub fn new(name: impl Into<String>, gflops: f64, gbytes: f64, launch_us: f64) -> CostModel {
        CostModel { name: name.into(), gflops, gbytes, launch_us }
    }

    /// FNV-1a of the constants; part of the plan.
    pub fn hash(&self) -> u64 {
        let mut text = self.name.clone();
        for constant in &CONSTANTS {
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
        let odd = CostModel { name: "a \"cpu\"\n# not a comment".into(), gflops: 1e-7, gbytes: 1e19, launch_us: 0.3 };
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
    fn constants_are_rounded_to_two_digits() {
        let model = CostModel { name: "x".into(), gflops: 147.3, gbytes: 17.96, launch_us: 0.4449 }.rounded();
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
