//! Reading a run file: every section and key must be known, and every value of its kind. What is wrong is named with what
//! would be right.

use std::path::PathBuf;
use std::time::Duration;

use memfit::data::augment::Augmentation;
use memfit::nn::Loss;
use memfit::nn::error::nearest;
use memfit::nn::layers::Activation;
use memfit::plan::{Link, bytes};
use toml::{Table, Value};

use super::{ClassWeights, KEYS, Sections, find};
use crate::error::{Result, RunError};

/// Every key checked, each value of its kind.
pub fn sections(table: &Table) -> Result<Sections> {
    let mut read = Sections::default();
    for (section, keys) in table {
        let known = distinct(KEYS.iter().map(|k| k.section));
        if !known.contains(&section.as_str()) {
            return Err(RunError::unknown("section", section, &known));
        }
        let Value::Table(keys) = keys else {
            return Err(RunError::NoSection { section: section.clone() });
        };
        for (name, value) in keys {
            read_key(section, name, value, &mut read)?;
        }
    }
    Ok(read)
}

fn read_key(section: &str, name: &str, value: &Value, read: &mut Sections) -> Result<()> {
    let Some(key) = find(section, name) else {
        if let Some(key) = KEYS.iter().find(|k| k.section == section && k.formerly == Some(name)) {
            return Err(RunError::Renamed { former: format!("{section}.{name}"), key });
        }
        if let Some(elsewhere) = KEYS.iter().find(|k| k.name == name) {
            let (name, section) = (name.into(), section.into());
            return Err(RunError::Misplaced { name, section, belongs: elsewhere.section });
        }
        let known: Vec<&str> = KEYS.iter().filter(|k| k.section == section).map(|k| k.name).collect();
        return Err(RunError::unknown(&format!("key in [{section}]"), name, &known));
    };
    (key.set)(read, KeyValue { value }).map_err(|problem| RunError::Value { key, problem })
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

/// Whether a value was of its kind, and what kind that is.
pub type Reading = std::result::Result<(), String>;

/// A value as it stands in the file.
#[derive(Clone, Copy)]
pub struct KeyValue<'a> {
    value: &'a Value,
}

/// A value that was read, or what it must be.
pub struct Read<T>(std::result::Result<T, String>);

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

impl KeyValue<'_> {
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

    /// A text, or a list of texts.
    pub fn names(self) -> Read<Vec<String>> {
        let one = self.value.as_str().map(|text| vec![text.to_string()]);
        self.must("a text in quotes, or a list of such", one.or_else(|| self.texts().0.ok()).filter(|n| !n.is_empty()))
    }

    /// The name of a loss.
    pub fn loss(self) -> Read<Loss> {
        match self.value.as_str().map(Loss::from_name) {
            Some(loss) => Read(loss.map_err(|error| format!("must be the name of a loss: {error}"))),
            None => self.must("the name of a loss, such as \"huber\"", None),
        }
    }

    /// "balanced", or a weight for each class: { cat = 2.0, dog = 1.0 }, or "cat=2,dog=1" as it is typed.
    pub fn class_weights(self) -> Read<ClassWeights> {
        let number = |text: &str| text.trim().parse().ok();
        let of_pair = |pair: &str| {
            let (class, weight) = pair.rsplit_once('=')?;
            Some((class.trim().to_string(), number(weight)?))
        };
        let weights: Option<Vec<(String, f32)>> = match self.value {
            Value::String(text) if text == "balanced" => return Read(Ok(ClassWeights::Balanced)),
            Value::String(text) => text.split(',').map(of_pair).collect(),
            Value::Table(table) => table.iter().map(|(class, v)| Some((class.clone(), as_number(v)?))).collect(),
            _ => None,
        };
        let are_right =
            |all: &Vec<(String, f32)>| !all.is_empty() && all.iter().all(|(_, w)| *w >= 0.0 && w.is_finite());
        let weights = weights.filter(are_right).map(ClassWeights::Of);
        self.must("\"balanced\", or a weight of 0 or more for each class, such as { cat = 2.0, dog = 1.0 }", weights)
    }

    /// A list of texts, in each of which several may stand between commas.
    pub fn augmentations(self) -> Read<Vec<Augmentation>> {
        Read(self.texts().0.and_then(|texts| {
            let list = Augmentation::list(texts.iter().map(String::as_str));
            list.map_err(|problem| format!("must be a list of augmentations: {problem}"))
        }))
    }

    /// A number of pixels for height and width, or both: 224, "224", "192x256", [192, 256].
    pub fn image_size(self) -> Read<[usize; 2]> {
        let side = |n: usize| (1..=LARGEST_SIDE).contains(&n).then_some(n);
        let sides = match self.value {
            Value::Integer(n) => usize::try_from(*n).ok().map(|n| vec![n]),
            Value::Array(sides) => sides.iter().map(as_count).collect(),
            Value::String(text) => text.split('x').map(|side| side.trim().parse().ok()).collect(),
            _ => None,
        };
        let size = sides.and_then(|sides| match sides[..] {
            [n] => Some([side(n)?; 2]),
            [height, width] => Some([side(height)?, side(width)?]),
            _ => None,
        });
        self.must(&format!("pixels, such as 224 or \"192x256\" (height x width), at most {LARGEST_SIDE}"), size)
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

    /// A list of whole numbers, which may be empty.
    pub fn widths(self) -> Read<Vec<usize>> {
        let sizes = |a: &Vec<Value>| a.iter().map(|v| as_count(v).filter(|n| *n > 0)).collect::<Option<Vec<_>>>();
        self.must("a list of whole numbers of at least 1", self.value.as_array().and_then(sizes))
    }

    pub fn activation(self) -> Read<Activation> {
        let Some(name) = self.value.as_str() else { return self.must("the name of an activation", None) };
        Read(Activation::from_name(name).map_err(|e| format!("must be the name of an activation: {e}")))
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

    /// A list of [`KeyValue::size`].
    pub fn sizes(self) -> Read<Vec<u64>> {
        let Some(list) = self.value.as_array().filter(|a| !a.is_empty()) else {
            return self.must("a list of sizes", None);
        };
        Read(list.iter().map(|value| KeyValue { value }.size().0).collect())
    }

    /// Bytes as people write them, or a number of them.
    pub fn size(self) -> Read<u64> {
        if let Some(text) = self.value.as_str() {
            return Read(parse_size(text).map_err(|problem| format!("must be a size: {problem}")));
        }
        self.must("a size", self.value.as_integer().and_then(|n| u64::try_from(n).ok()))
    }

    /// The speed of a connection.
    pub fn link(self) -> Read<Link> {
        let read = self.value.as_str().and_then(parse_link);
        self.must("a speed such as \"100Gbit/s\" or \"10GB/s, 5us\"", read)
    }

    /// A time as people write it, or a number of seconds.
    pub fn duration(self) -> Read<Duration> {
        let seconds = self.value.as_integer().and_then(|n| u64::try_from(n).ok()).map(Duration::from_secs);
        let said = seconds.or_else(|| parse_duration(self.value.as_str()?));
        self.must("a time such as \"90s\", \"5min\" or \"1h\"", said.filter(|d| !d.is_zero()))
    }
}

/// "100Gbit/s", "12.5GB/s", and behind a comma what a message takes: "10us".
fn parse_link(text: &str) -> Option<Link> {
    let (speed, message) = text.split_once(',').map_or((text, None), |(speed, message)| (speed, Some(message)));
    let speed = speed.trim().strip_suffix("/s").unwrap_or(speed.trim());
    let unit = speed.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = speed.split_at(unit);
    let gbytes = match unit {
        "Gbit" => 0.125,
        "Mbit" => 0.125e-3,
        "GB" => 1.0,
        "MB" => 1e-3,
        "GiB" => 1.073_741_824,
        "MiB" => 1.048_576e-3,
        _ => return None,
    } * number.trim().parse::<f64>().ok()?;
    let message_us = match message {
        Some(message) => match message.trim().strip_suffix("us") {
            Some(us) => us.trim().parse::<f64>().ok()?,
            None => parse_duration(message)?.as_secs_f64() * 1e6,
        },
        None => Link::SHARED_MEMORY.message_us,
    };
    let is_sane = gbytes.is_finite() && gbytes > 0.0 && message_us.is_finite() && message_us >= 0.0;
    is_sane.then_some(Link { gbytes, message_us })
}

/// "90s", "5min", "1.5h"; a bare number is seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let seconds = match unit {
        "" | "s" | "sec" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * seconds).ok()
}

/// Bytes as people write them; whole numbers exactly.
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    bytes::parse(text).map(|b| b.0)
}

/// Of a picture; no model reads more.
const LARGEST_SIDE: usize = 16384;

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
    use crate::config::{RunConfig, commented};
    use proptest::prelude::*;
    use std::path::Path;

    fn read(text: &str, folder: &Path) -> std::result::Result<Sections, String> {
        RunConfig::parse(text, folder).map(|config| (*config).clone()).map_err(|e| e.to_string())
    }

    #[test]
    fn every_key_reads_its_own_example_and_changes_what_was_said() {
        for key in KEYS {
            let text = format!("[{}]\n{} = {}\n", key.section, key.name, key.example);
            let spec = read(&text, Path::new("")).unwrap_or_else(|e| panic!("{e}"));
            let spoken = spec != Sections::default();
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
            ("[memory]\nprofile = \"p.toml\"", "memory.profile is now memory.cost_model: use that instead"),
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
            ("[replicas]\nstall = \"soon\"", "replicas.stall must be a time such as \"90s\""),
            ("[replicas]\nstall = 0", "replicas.stall must be a time"),
            ("[data]\nhold_out = 1.0", "data.hold_out must be a number from 0 to less than 1"),
            ("[data]\naugment = [\"flip\", 3]", "data.augment must be a list of texts"),
            (
                "[data]\naugment = [\"flip\", \"brightnes:0.2\"]",
                "data.augment must be a list of augmentations: there is no augmentation \"brightnes\" (did you mean \"brightness\"?)",
            ),
            ("[data]\naugment = [\"hue:0.7\"]", "\"hue:0.7\": hue takes share of the circle (from 0 to 0.5)"),
            ("[data]\nimage_size = 0", "data.image_size must be pixels, such as 224 or \"192x256\" (height x width)"),
            ("[data]\nimage_size = \"1x2x3\"", "data.image_size must be pixels"),
            ("[train]\nbatch = 3\nbatch = 4", "duplicate key"),
            ("[train\nbatch = 3", "line 1"),
        ] {
            let problem = read(text, Path::new("")).expect_err(text);
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn sizes_of_pictures_are_read_as_people_write_them() {
        for (value, size) in [("224", [224; 2]), ("\"224\"", [224; 2]), ("\"192x256\"", [192, 256]), ("[3, 4]", [3, 4])]
        {
            let sections = read(&format!("[data]\nimage_size = {value}"), Path::new("")).expect("it is right");
            assert_eq!(sections.data.image_size, Some(size), "{value}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in
            [("90s", 90.0), ("5min", 300.0), ("2 m", 120.0), ("1.5h", 5400.0), ("7", 7.0), ("50ms", 0.05)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "min", "5 parsecs", "-1s", "nan", "1e300h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn links_are_read_as_people_write_them() {
        let link = |gbytes, message_us| Some(Link { gbytes, message_us });
        assert_eq!(parse_link("100Gbit/s"), link(12.5, Link::SHARED_MEMORY.message_us));
        assert_eq!(parse_link("10 GB/s, 5us"), link(10.0, 5.0));
        assert_eq!(parse_link("800 Mbit, 1ms"), link(0.1, 1000.0));
        for text in ["", "fast", "10", "10 parsecs/s", "-1GB/s", "0GB/s", "1GB/s, soon", "nanGB/s"] {
            assert_eq!(parse_link(text), None, "{text}");
        }
    }

    #[test]
    fn the_size_of_pictures_says_the_input_and_what_is_set_over_a_file_goes_first() {
        let settled = |file: &str, over: &[(&str, &str, Value)]| {
            let mut config = RunConfig::parse(file, Path::new("")).expect("it is right");
            for (section, name, value) in over {
                config.override_with(find(section, name).expect("a key"), value.clone()).expect("it is right");
            }
            config.settle_image_size().map_err(|e| e.to_string())?;
            Ok::<_, String>(config.model.input.clone())
        };
        let (size, input) = ("[data]\nimage_size = 64\n", "[model]\ninput = [32, 32, 1]\n");
        let over = |name: &'static str| match name {
            "size" => ("data", "image_size", Value::from("48x40")),
            _ => ("model", "input", Value::from(vec![16, 16, 3])),
        };
        assert_eq!(settled(size, &[]), Ok(Some(vec![64, 64, 3])));
        assert_eq!(settled(&format!("{size}[model]\ninput = [64, 64, 1]"), &[]), Ok(Some(vec![64, 64, 1])));
        assert_eq!(settled(input, &[over("size")]), Ok(Some(vec![48, 40, 1])));
        assert_eq!(settled(size, &[over("input")]), Ok(Some(vec![16, 16, 3])));
        let both = Err("data.image_size is 64x64, and model.input is 32x32x1; leave out one of them".into());
        assert_eq!(settled(&format!("{size}{input}"), &[]), both);
        assert!(settled("", &[over("size"), over("input")]).is_err());
    }

    #[test]
    fn paths_are_taken_from_the_folder_of_the_file() {
        let spec = read("[data]\ntrain = \"photos\"\ntest = \"/x\"", Path::new("a/b")).expect("it is right");
        assert_eq!(spec.data.train, Some("a/b/photos".into()));
        assert_eq!(spec.data.test, Some("/x".into()));
    }

    #[test]
    fn paths_that_do_not_say_where_they_begin_can_be_made_to_begin_elsewhere() {
        let text = "[data]\ntrain = \"photos\"\ntest = \"/x\"\ncache = \"memory\"";
        let mut config = RunConfig::parse(text, Path::new("a")).expect("it is right");
        config.set("train", "out", "runs/b").expect("a path");
        config.take_paths_from(Path::new("/first"));
        assert_eq!(config.data.train, Some("/first/a/photos".into()));
        assert_eq!((config.data.test.clone(), config.data.cache.as_deref()), (Some("/x".into()), Some("memory")));
        assert_eq!(config.train.out, Some("/first/runs/b".into()));
        assert!(config.to_toml().contains("/first/a/photos"));
    }

    #[test]
    fn what_is_set_goes_over_the_file_and_a_wrong_value_changes_nothing() {
        let mut config = RunConfig::parse("[train]\nbatch = 3\nlr = 0.5", Path::new("a")).expect("it is right");
        config.set("train", "batch", 7).expect("it is right");
        assert_eq!((config.train.batch, config.train.lr), (Some(7), Some(0.5)));
        let problem = config.set("train", "batch", 0).expect_err("0").to_string();
        assert_eq!(problem, "train.batch must be a whole number of at least 1, but is 0, such as 32");
        assert_eq!(config.train.batch, Some(7));
        config.unset("train", "lr");
        assert_eq!((config.train.batch, config.train.lr), (Some(7), None));
    }

    #[test]
    fn of_two_keys_that_say_how_long_the_one_that_is_set_holds() {
        let mut config = RunConfig::parse("[train]\nepochs = 3", Path::new("")).expect("it is right");
        let steps = find("train", "steps").expect("a key");
        config.override_with(steps, 7).expect("it is right");
        assert_eq!((config.train.epochs, config.train.steps), (None, Some(7)));
    }

    #[test]
    fn what_is_set_can_be_written_down_and_read_from_elsewhere() {
        let text = "[data]\ntrain = \"photos\"\ncache = \"memory\"";
        let mut config = RunConfig::parse(text, Path::new("a")).expect("it is right");
        config.set("train", "batch", 7).expect("it is right");
        let again = read(&config.to_toml(), Path::new("elsewhere")).expect("it is right");
        assert_eq!(again.data.train, std::path::absolute("a/photos").ok());
        assert_eq!((again.data.cache.as_deref(), again.train.batch), (Some("memory"), Some(7)));
    }

    /// A run file with some of its characters replaced, left out or doubled.
    fn mangled() -> impl Strategy<Value = String> {
        let whole = commented(&[("train.batch".into(), "7".into())]).replace("\n# ", "\n");
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
            if let Ok(config) = RunConfig::parse(&text, Path::new("/a")) {
                prop_assert_eq!(read(&config.to_toml(), Path::new("/b")), Ok((*config).clone()));
            }
        }
    }
}
