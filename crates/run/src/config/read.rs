//! Reading a run file: every section and key must be known, and every value of its kind. What is wrong is named with what
//! would be right.

use std::path::{Path, PathBuf};

use memfit::nn::error::nearest;
use toml::{Table, Value};

use super::{KEYS, Spec};
use crate::resources::parse_size;

/// What was said about a run: the tables of a run file, with what was typed besides it on top.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    table: Table,
    /// Section, key and option of what was typed: an error names the option.
    typed: Vec<(&'static str, &'static str, &'static str)>,
}

/// Keys whose texts are paths, and those that may be one.
const PATHS: [(&str, &str); 6] = [
    ("model", "weights"),
    ("data", "train"),
    ("data", "test"),
    ("data", "cache"),
    ("train", "out"),
    ("memory", "cost_model"),
];
/// Keys that once had another name: section, then, now. Only folders of runs may still say it.
const RENAMED: [(&str, &str, &str); 1] = [("memory", "profile", "cost_model")];
/// What is no path where a path may stand.
const WORDS: [&str; 2] = ["off", "memory"];

impl Said {
    /// Reads the text of a run file. Paths in it are taken from `folder`, where the file lies.
    pub fn read(text: &str, folder: &Path) -> Result<Said, String> {
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string().trim_end().to_string())?;
        for (section, key) in PATHS {
            let value = table.get_mut(section).and_then(|s| s.get_mut(key));
            if let Some(Value::String(path)) = value
                && !path.is_empty()
                && !WORDS.contains(&path.as_str())
            {
                // A path that is no text cannot be: it was one.
                *path = folder.join(&*path).to_string_lossy().into_owned();
            }
        }
        Ok(Said { table, typed: Vec::new() })
    }

    /// Says something besides the file, or instead of it.
    pub fn say(&mut self, option: &'static str, section: &'static str, key: &'static str, value: impl Into<Value>) {
        self.typed.push((section, key, option));
        self.set(section, key, value);
    }

    /// Says what became known.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let entry = self.table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(keys) = entry {
            keys.insert(key.to_string(), value.into());
        }
    }

    /// Takes back what the file said.
    pub fn forget(&mut self, section: &str, key: &str) {
        if let Some(Value::Table(keys)) = self.table.get_mut(section) {
            keys.remove(key);
        }
    }

    /// Takes back what the file said, if it is this.
    pub fn unsay(&mut self, section: &str, key: &str, text: &str) {
        let said = self.table.get(section).and_then(|keys| keys.get(key)).and_then(Value::as_str);
        if said == Some(text) {
            self.forget(section, key);
        }
    }

    /// As a run file that says the same from anywhere.
    pub fn to_toml(&self) -> String {
        let mut table = self.table.clone();
        for (section, key) in PATHS {
            let value = table.get_mut(section).and_then(|s| s.get_mut(key));
            if let Some(Value::String(path)) = value
                && !WORDS.contains(&path.as_str())
                && let Ok(absolute) = std::path::absolute(&*path)
            {
                *path = absolute.to_string_lossy().into_owned();
            }
        }
        table.to_string()
    }

    /// Takes over what a run file of an older version says under a name that is no longer one.
    pub fn modernized(mut self) -> Said {
        for (section, old, new) in RENAMED {
            if let Some(Value::Table(keys)) = self.table.get_mut(section)
                && let Some(value) = keys.remove(old)
            {
                keys.entry(new).or_insert(value);
            }
        }
        self
    }

    /// Every key checked, each value of its kind.
    pub fn spec(&self) -> Result<Spec, String> {
        let mut spec = Spec::default();
        for (section, keys) in &self.table {
            let sections = distinct(KEYS.iter().map(|k| k.section));
            if !sections.contains(&section.as_str()) {
                return Err(unknown("section", section, &sections));
            }
            let Value::Table(keys) = keys else {
                return Err(format!("{section} must be a section: write [{section}] on a line of its own"));
            };
            for (name, value) in keys {
                self.read_key(section, name, value, &mut spec)?;
            }
        }
        Ok(spec)
    }

    fn read_key(&self, section: &str, name: &str, value: &Value, spec: &mut Spec) -> Result<(), String> {
        let known: Vec<&str> = KEYS.iter().filter(|k| k.section == section).map(|k| k.name).collect();
        let Some(key) = KEYS.iter().find(|k| k.section == section && k.name == name) else {
            let moved = renamed(section, name).or_else(|| elsewhere(section, name));
            return Err(moved.unwrap_or_else(|| unknown(&format!("key in [{section}]"), name, &known)));
        };
        let option = self.typed.iter().find(|(s, k, _)| *s == section && *k == name).map(|(_, _, option)| *option);
        (key.set)(spec, Given { value }).map_err(|problem| match option {
            Some(option) => format!("{option} {problem}"),
            None => format!("{section}.{name} {problem}, such as {}", key.example),
        })
    }
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

/// A key that has another name now.
fn renamed(section: &str, name: &str) -> Option<String> {
    let (_, _, new) = RENAMED.iter().find(|(s, old, _)| (*s, *old) == (section, name))?;
    Some(format!("{section}.{name} is now {section}.{new}: say that"))
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

impl Given<'_> {
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
        self.must("a path in quotes", self.value.as_str().filter(|s| !s.is_empty()).map(PathBuf::from))
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

    /// A list of [`Given::size`].
    pub fn sizes(self) -> Read<Vec<u64>> {
        let Some(list) = self.value.as_array().filter(|a| !a.is_empty()) else {
            return self.must("a list of sizes", None);
        };
        Read(list.iter().map(|value| Given { value }.size().0).collect())
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
    use crate::config::{Purpose, commented};
    use proptest::prelude::*;

    fn read(text: &str, folder: &Path) -> Result<Spec, String> {
        Said::read(text, folder)?.spec()
    }

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
            ("[memory]\nprofile = \"p.toml\"", "memory.profile is now memory.cost_model: say that"),
            ("batch = 3", "there is no section \"batch\""),
            ("train = 3", "train must be a section: write [train]"),
            ("[train]\nbatch = 0", "train.batch must be a whole number of at least 1, but is 0, such as 32"),
            ("[train]\nbatch = 1.5", "train.batch must be a whole number"),
            ("[train]\nbatch = \"many\"", "train.batch must be a whole number of at least 1, but is \"many\""),
            ("[train]\nlr = -1", "train.lr must be a number above 0"),
            ("[train]\nlr = nan", "train.lr must be a number above 0"),
            (
                "[train]\nschedule = \"cosin\"",
                "must be one of constant, step, cosine, but is \"cosin\" (did you mean \"cosine\"?)",
            ),
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

    #[test]
    fn what_was_typed_goes_over_the_file_and_is_named_by_its_option() {
        let mut said = Said::read("[train]\nbatch = 3\nlr = 0.5", Path::new("a")).expect("it is right");
        said.say("--batch", "train", "batch", 7);
        let spec = said.spec().expect("it is right");
        assert_eq!((spec.train.batch, spec.train.lr), (Some(7), Some(0.5)));
        said.say("--batch", "train", "batch", 0);
        assert_eq!(said.spec().expect_err("0"), "--batch must be a whole number of at least 1, but is 0");
    }

    #[test]
    fn what_was_said_can_be_written_down_and_read_from_elsewhere() {
        let mut said =
            Said::read("[data]\ntrain = \"photos\"\ncache = \"memory\"", Path::new("a")).expect("it is right");
        said.say("--batch", "train", "batch", 7);
        let again = Said::read(&said.to_toml(), Path::new("elsewhere")).and_then(|s| s.spec()).expect("it is right");
        assert_eq!(again.data.train, std::path::absolute("a/photos").ok());
        assert_eq!((again.data.cache.as_deref(), again.train.batch), (Some("memory"), Some(7)));
    }

    /// A run file with some of its characters replaced, left out or doubled.
    fn mangled() -> impl Strategy<Value = String> {
        let whole = commented(&Purpose { set: vec![("train.batch", "7".into())] }).replace("\n# ", "\n");
        let edits = proptest::collection::vec((any::<proptest::sample::Index>(), 0..4u8, any::<char>()), 0..6);
        let lines = proptest::collection::vec(any::<proptest::sample::Index>(), 0..8);
        (lines, edits).prop_map(move |(lines, edits)| {
            let all: Vec<&str> = whole.lines().collect();
            let mut text: Vec<char> =
                lines.iter().map(|i| *i.get(&all)).collect::<Vec<_>>().join("\n").chars().collect();
            for (at, how, with) in edits.iter().filter(|_| !whole.is_empty()) {
                if text.is_empty() {
                    break;
                }
                let at = at.index(text.len());
                match how {
                    0 => text[at] = *with,
                    1 => drop(text.remove(at)),
                    2 => text.insert(at, *with),
                    _ => text.insert(at, text[at]),
                }
            }
            text.into_iter().collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever stands in a run file, it is read or refused; and what was read means the same when it is written down.
        #[test]
        fn any_text_is_read_or_refused(text in prop_oneof![3 => mangled(), 1 => any::<String>()]) {
            if let Ok(said) = Said::read(&text, Path::new("/a")) && let Ok(spec) = said.spec() {
                let again = Said::read(&said.to_toml(), Path::new("/b")).and_then(|s| s.spec());
                prop_assert_eq!(again, Ok(spec));
            }
        }
    }
}
