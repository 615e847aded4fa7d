//! Reading a run file: every section and key must be known, and every value of its kind. What is wrong is named with what
//! would be right.

use std::path::{Path, PathBuf};

use memfit::nn::error::nearest;
use toml::{Table, Value};

use super::{KEYS, Spec};
use crate::run::parse_size;

/// Reads the text of a run file. Paths in it are taken from `folder`, where the file lies.
pub fn read(text: &str, folder: &Path) -> Result<Spec, String> {
    let table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string().trim_end().to_string())?;
    let mut spec = Spec::default();
    for (section, keys) in &table {
        let sections = distinct(KEYS.iter().map(|k| k.section));
        if !sections.contains(&section.as_str()) {
            return Err(unknown("section", section, &sections));
        }
        let Value::Table(keys) = keys else {
            return Err(format!("{section} must be a section: write [{section}] on a line of its own"));
        };
        for (name, value) in keys {
            let known: Vec<&str> = KEYS.iter().filter(|k| k.section == section).map(|k| k.name).collect();
            let Some(key) = KEYS.iter().find(|k| k.section == section && k.name == name) else {
                return Err(elsewhere(section, name).unwrap_or_else(|| unknown(&format!("key in [{section}]"), name, &known)));
            };
            (key.set)(&mut spec, Given { value, folder })
                .map_err(|problem| format!("{section}.{name} {problem}, such as {}", key.example))?;
        }
    }
    Ok(spec)
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    names.for_each(|n| {
        if !found.contains(&n) {
            found.push(n);
        }
    });
    found
}

/// A key that belongs to another section.
fn elsewhere(section: &str, name: &str) -> Option<String> {
    let key = KEYS.iter().find(|k| k.name == name)?;
    Some(format!("\"{name}\" belongs into [{}], not into [{section}]", key.section))
}

fn unknown(what: &str, given: &str, known: &[&'static str]) -> String {
    let meant = nearest(known, given).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"));
    format!("there is no {what} \"{given}\"{meant}; there are {}", known.join(", "))
}

/// Whether a value was of its kind, and what kind that is.
pub type Reading = Result<(), String>;

/// A value as it stands in the file.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    value: &'a Value,
    folder: &'a Path,
}

/// A value that was read, or what it must be.
pub struct Read<T>(Result<T, String>);

impl<T> Read<T> {
    pub fn set(self, place: &mut Option<T>) -> Reading {
        *place = Some(self.0?);
        Ok(())
    }

    pub fn put(self, place: &mut T) -> Reading {
        *place = self.0?;
        Ok(())
    }
}

impl<'a> Given<'a> {
    fn must<T>(self, kind: &str, read: Option<T>) -> Read<T> {
        Read(read.ok_or_else(|| format!("must be {kind}, but is {}", self.value)))
    }

    pub fn text(self) -> Read<String> {
        self.must("a text in quotes", self.value.as_str().map(str::to_string))
    }

    /// A text, or a number as a text.
    pub fn word(self) -> Read<String> {
        let number = self.value.as_integer().map(|n| n.to_string());
        self.must("a text or a number", number.or_else(|| self.value.as_str().map(str::to_string)))
    }

    pub fn texts(self) -> Read<Vec<String>> {
        let texts = self.value.as_array().map(|a| a.iter().map(|v| v.as_str().map(str::to_string)).collect());
        self.must("a list of texts", texts.unwrap_or(None))
    }

    pub fn path(self) -> Read<PathBuf> {
        self.must("a path in quotes", self.value.as_str().filter(|s| !s.is_empty()).map(|s| self.folder.join(s)))
    }

    pub fn one_of(self, known: &[&'static str]) -> Read<String> {
        let found = self.value.as_str().filter(|s| known.contains(s)).map(str::to_string);
        let meant = self.value.as_str().and_then(|s| nearest(known, s));
        let meant = meant.map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"));
        Read(found.ok_or_else(|| format!("must be one of {}, but is {}{meant}", known.join(", "), self.value)))
    }

    pub fn flag(self) -> Read<bool> {
        self.must("true or false", self.value.as_bool())
    }

    pub fn whole(self) -> Read<u64> {
        self.must("a whole number, 0 or more", self.value.as_integer().and_then(|n| u64::try_from(n).ok()))
    }

    pub fn count_or_zero(self) -> Read<usize> {
        self.must("a whole number, 0 or more", as_count(self.value))
    }

    pub fn count(self) -> Read<usize> {
        self.must("a whole number of at least 1", as_count(self.value).filter(|n| *n > 0))
    }

    pub fn counts(self) -> Read<Vec<usize>> {
        let sizes = |a: &Vec<Value>| a.iter().map(|v| as_count(v).filter(|n| *n > 0)).collect::<Option<Vec<_>>>();
        self.must("a list of whole numbers", self.value.as_array().and_then(sizes).filter(|a| !a.is_empty()))
    }

    pub fn numbers(self) -> Read<Vec<f32>> {
        let numbers = |a: &Vec<Value>| a.iter().map(as_number).collect::<Option<Vec<_>>>();
        self.must("a list of numbers", self.value.as_array().and_then(numbers).filter(|a| !a.is_empty()))
    }

    pub fn positive(self) -> Read<f32> {
        self.must("a number above 0", as_number(self.value).filter(|x| *x > 0.0))
    }

    pub fn not_negative(self) -> Read<f32> {
        self.must("a number, 0 or more", as_number(self.value).filter(|x| *x >= 0.0))
    }

    pub fn share(self) -> Read<f32> {
        self.must("a number from 0 to less than 1", as_number(self.value).filter(|x| (0.0..1.0).contains(x)))
    }

    pub fn share_or_one(self) -> Read<f32> {
        self.must("a number from 0 to 1", as_number(self.value).filter(|x| (0.0..=1.0).contains(x)))
    }

    /// Bytes as people write them, or a number of them.
    pub fn size(self) -> Read<u64> {
        if let Some(text) = self.value.as_str() {
            return Read(parse_size(text).map_err(|problem| format!("must be a size: {problem}")));
        }
        self.must("a size", self.value.as_integer().and_then(|n| u64::try_from(n).ok()))
    }
}

fn as_count(value: &Value) -> Option<usize> {
    value.as_integer().and_then(|n| usize::try_from(n).ok())
}

fn as_number(value: &Value) -> Option<f32> {
    let number = value.as_float().or(value.as_integer().map(|n| n as f64))? as f32;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_its_own_example_and_changes_what_was_said() {
        for key in &KEYS {
            let text = format!("[{}]\n{} = {}\n", key.section, key.name, key.example);
            let spec = read(&text, Path::new("")).unwrap_or_else(|e| panic!("{e}"));
            let spoken = spec != Spec::default();
            assert!(spoken, "{}.{}", key.section, key.name);
            let wrong = format!("[{}]\n{} = {{}}\n", key.section, key.name);
            let problem = read(&wrong, Path::new("")).expect_err(key.name);
            assert!(problem.starts_with(&format!("{}.{} must be", key.section, key.name)), "{problem}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, expected) in [
            ("[train]\nbacth = 3", "there is no key in [train] \"bacth\" (did you mean \"batch\"?); there are batch, "),
            ("[trian]\nbatch = 3", "there is no section \"trian\" (did you mean \"train\"?)"),
            ("[train]\nbudget = 3", "\"budget\" belongs into [memory], not into [train]"),
            ("batch = 3", "there is no section \"batch\""),
            ("train = 3", "train must be a section: write [train]"),
            ("[train]\nbatch = 0", "train.batch must be a whole number of at least 1, but is 0, such as 32"),
            ("[train]\nbatch = 1.5", "train.batch must be a whole number"),
            ("[train]\nbatch = \"many\"", "train.batch must be a whole number of at least 1, but is \"many\""),
            ("[train]\nlr = -1", "train.lr must be a number above 0"),
            ("[train]\nlr = nan", "train.lr must be a number above 0"),
            ("[train]\nschedule = \"cosin\"", "must be one of constant, step, cosine, but is \"cosin\" (did you mean \"cosine\"?)"),
            ("[memory]\nbudget = \"12 parsecs\"", "memory.budget must be a size: \"12 parsecs\" is not a size"),
            ("[memory]\nbudget = -5", "memory.budget must be a size, but is -5"),
            ("[data]\nhold_out = 1.0", "data.hold_out must be a number from 0 to less than 1"),
            ("[data]\naugment = [\"flip\", 3]", "data.augment must be a list of texts"),
            ("[train]\nbatch = 3\nbatch = 4", "duplicate key"),
            ("[train\nbatch = 3", "line 1"),
        ] {
            let problem = read(text, Path::new("")).expect_err(text);
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn paths_are_taken_from_the_folder_of_the_file() {
        let spec = read("[data]\ntrain = \"photos\"\ntest = \"/x\"", Path::new("a/b")).expect("it is right");
        assert_eq!(spec.data.train, Some("a/b/photos".into()));
        assert_eq!(spec.data.test, Some("/x".into()));
    }
}
