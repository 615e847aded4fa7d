//! The keys of a run as options of the commands: clap's arguments, and the rules of which may be given together, are made from
//! the one table of keys.

use anyhow::Result;
use clap::error::{Error as ClapError, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, FromArgMatches, value_parser};
use memfit_run::config::{Form, KEYS, Key, KeyOption, scope};
use memfit_run::{RunConfig, RunError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use toml::Value;

use crate::failure::usage;
use crate::wording::with_key;

/// The group of all options of a command that are keys.
pub const GROUP: &str = "settings";

/// The keys that were given as options of a command, in the order of the table.
#[derive(Clone, Debug, Default)]
pub struct Settings<const COMMAND: u16> {
    given: Vec<(&'static Key, Value)>,
}

/// Every key that is an option in a scope.
fn options(scope: u16) -> impl Iterator<Item = (&'static Key, &'static KeyOption)> {
    KEYS.iter().filter_map(|key| Some((key, key.option.as_ref()?))).filter(move |(_, option)| option.is_in(scope))
}

/// What was typed, as a scope: advice names only options that can be added to it.
static COMMAND: AtomicU16 = AtomicU16::new(scope::TRAIN);

/// Says what was typed.
pub fn set_command(scope: u16) {
    COMMAND.store(scope, Ordering::Relaxed);
}

/// Whether what was typed is of this scope.
pub fn is_command(scope: u16) -> bool {
    COMMAND.load(Ordering::Relaxed) & scope == scope
}

/// "--batch", where it could have been typed.
pub fn option_name(key: &Key) -> Option<String> {
    let option = key.option.as_ref().filter(|option| option.is_in(COMMAND.load(Ordering::Relaxed)))?;
    Some(format!("--{}", option.name))
}

/// The option that sets a key, or the key where it is none.
pub fn option_or_key(key: &Key) -> String {
    option_name(key).unwrap_or_else(|| key.path())
}

/// What to give: the option, or the key where only the run file says it.
pub fn advised(section: &str, name: &str) -> String {
    let path = || format!("{section}.{name}");
    memfit_run::config::find(section, name)
        .map_or_else(path, |key| option_name(key).unwrap_or_else(|| in_file(&path())))
}

/// What to give for a key to have this value: "--batch 32", or "train.batch = 32 in the run file".
pub fn advised_value(key: &Key, value: &str) -> String {
    let is_list = key.option.as_ref().is_some_and(|option| matches!(option.form, Form::Counts | Form::Numbers));
    if is_list && value.starts_with('[') {
        let typed: String = value.chars().filter(|c| !"[] ".contains(*c)).collect();
        let typed = if typed.is_empty() { "none" } else { &typed };
        let line = || in_file(&format!("{} = {value}", key.path()));
        return option_name(key).map_or_else(line, |option| format!("{option} {typed}"));
    }
    let in_toml = || match value.parse::<i64>() {
        Ok(number) => Value::from(number),
        Err(_) => value.parse::<bool>().map_or_else(|_| Value::from(value), Value::from),
    };
    option_name(key)
        .map_or_else(|| in_file(&format!("{} = {}", key.path(), in_toml())), |option| format!("{option} {value}"))
}

/// Where only a run file says it.
pub fn in_file(what: &str) -> String {
    let is_there = [scope::EVAL, scope::PREDICT, scope::RESUME].into_iter().any(is_command);
    format!("{what} in {}", if is_there { "the run.toml of its folder" } else { "the run file" })
}

/// "--lr, --device and --growth"
pub fn list(scope: u16) -> String {
    and_list(options(scope).map(|(_, option)| format!("--{}", option.name)).collect())
}

/// "a, b and c"
pub fn and_list(names: Vec<String>) -> String {
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

impl<const COMMAND: u16> Settings<COMMAND> {
    /// Whether all that was given may be given there.
    pub fn are_in(&self, scope: u16) -> bool {
        self.given.iter().all(|(key, _)| key.option.as_ref().is_some_and(|option| option.is_in(scope)))
    }

    /// Those that were given and may not be given there: "--seed and --batch".
    pub fn beyond(&self, scope: u16) -> String {
        let options = self.given.iter().filter_map(|(key, _)| key.option.as_ref());
        and_list(options.filter(|option| !option.is_in(scope)).map(|option| format!("--{}", option.name)).collect())
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// The text of one of them.
    pub fn text(&self, section: &str, name: &str) -> Option<&str> {
        self.given.iter().find(|(key, _)| (key.section, key.name) == (section, name)).and_then(|(_, v)| v.as_str())
    }

    /// All of them, as a run file has them.
    pub fn given(&self) -> impl Iterator<Item = (&'static Key, &Value)> {
        self.given.iter().map(|(key, value)| (*key, value))
    }

    pub fn is_given(&self, section: &str, name: &str) -> bool {
        self.given.iter().any(|(key, _)| (key.section, key.name) == (section, name))
    }

    /// Without one of them.
    pub fn without(mut self, section: &str, name: &str) -> Self {
        self.given.retain(|(key, _)| (key.section, key.name) != (section, name));
        self
    }

    /// Sets them over what a run file says. What is wrong is named by its option.
    pub fn apply(&self, config: &mut RunConfig) -> Result<()> {
        // A path takes the place of data that are built in where a file says that; where it is typed, both are wished for.
        let is_kind = |(key, _): &&(&Key, Value)| key.path() == "data.kind";
        let kind_last = self.given.iter().filter(|given| !is_kind(given)).chain(self.given.iter().filter(is_kind));
        for (key, value) in kind_last {
            set_over(config, key, value, &option_or_key(key))?;
        }
        Ok(())
    }
}

/// Sets a key over what a run file says. What is wrong is named as it was typed.
pub fn set_over(config: &mut RunConfig, key: &'static Key, value: &Value, typed: &str) -> Result<()> {
    let value = match (value, key.option.as_ref().map(|o| o.form)) {
        (Value::String(text), Some(Form::Shape)) => shape(typed, text)?,
        (Value::String(text), Some(Form::Counts)) => counts(typed, text)?,
        (Value::String(text), Some(Form::Numbers)) => numbers(typed, text)?,
        (value, _) => value.clone(),
    };
    config.override_with(key, value).map_err(|e| match e {
        RunError::Value { problem, .. } => usage(with_key(&format!("{typed} {problem}"), key)),
        other => other.into(),
    })
}

/// "224x224x3"
fn shape(option: &str, text: &str) -> Result<Value> {
    let sizes: Option<Vec<i64>> = text.split('x').map(|s| s.trim().parse::<u32>().ok().map(i64::from)).collect();
    let sizes = sizes.ok_or_else(|| usage(format!("{option} \"{text}\" is not a size; write it like 224x224x3")))?;
    Ok(sizes.into())
}

/// "64,32"; "none" is a list of nothing.
fn counts(option: &str, text: &str) -> Result<Value> {
    if text.trim() == "none" {
        return Ok(Value::Array(Vec::new()));
    }
    let counts: Option<Vec<i64>> = text.split(',').map(|n| n.trim().parse::<u32>().ok().map(i64::from)).collect();
    let counts =
        counts.ok_or_else(|| usage(format!("{option} \"{text}\" is not a list; write it like 64,32, or none")))?;
    Ok(counts.into())
}

/// "0.485,0.456,0.406"
fn numbers(option: &str, text: &str) -> Result<Value> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
    let numbers = numbers
        .ok_or_else(|| usage(format!("{option} \"{text}\" is not a list of numbers; write it like 0.5,0.5,0.5")))?;
    Ok(numbers.into())
}

impl<const COMMAND: u16> clap::Args for Settings<COMMAND> {
    fn group_id() -> Option<clap::Id> {
        Some(GROUP.into())
    }

    fn augment_args(command: Command) -> Command {
        let names: Vec<&str> = options(COMMAND).map(|(_, option)| option.name).collect();
        let command = options(COMMAND).fold(command, |command, (key, option)| {
            // The former name is known, so that it can be answered with the new one.
            let former = key.formerly.map(|name| Arg::new(name).long(name).hide(true).num_args(0..=1));
            command.arg(arg(key, option, COMMAND)).args(former)
        });
        command.group(ArgGroup::new(GROUP).multiple(true).args(names))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn arg(key: &Key, option: &KeyOption, command: u16) -> Arg {
    let mut arg = Arg::new(option.name).long(option.name).help(help(key, option, command));
    if command & (scope::TRAIN | scope::PLAN) != 0 {
        arg = arg.help_heading(heading(key.section));
    }
    if option.form != Form::Flag {
        arg = arg.value_name(option.value_name);
    }
    let other = key.instead_of.and_then(|name| memfit_run::config::find(key.section, name)?.option.as_ref());
    if let Some(other) = other.filter(|other| other.is_in(command)) {
        arg = arg.conflicts_with(other.name);
    }
    match option.form {
        Form::Text | Form::Shape => arg,
        Form::Counts => arg,
        Form::Numbers => arg.allow_hyphen_values(true),
        Form::Whole => arg.value_parser(value_parser!(u64).range(..=i64::MAX as u64)),
        Form::Number => arg.value_parser(value_parser!(f64)),
        Form::Path => arg.value_parser(value_parser!(PathBuf)),
        Form::Flag => arg.action(ArgAction::SetTrue),
        Form::Bool => arg.value_parser(value_parser!(bool)).hide_possible_values(true),
        Form::List => arg.value_delimiter(',').allow_hyphen_values(true).action(ArgAction::Append),
        Form::Repeated => arg.action(ArgAction::Append),
    }
}

/// With what holds where it is not given. A trained model has what it was trained with; a new run file suits its data.
fn help(key: &Key, option: &KeyOption, command: u16) -> String {
    let default = match command {
        scope::TRAIN | scope::PLAN => option.default,
        scope::EVAL | scope::PREDICT => "as in training",
        _ => "",
    };
    let help = match option.help {
        // What a key means begins small in a run file.
        help if help == key.meaning => help[..1].to_uppercase() + &help[1..],
        help => help.to_string(),
    };
    if option.form == Form::Flag || default.is_empty() { help } else { format!("{help} [default: {default}]") }
}

fn heading(section: &str) -> &'static str {
    match section {
        "model" => "Model",
        "data" => "Data",
        "train" => "Training",
        "replicas" => "Replicas",
        _ => "Memory and devices",
    }
}

impl<const COMMAND: u16> FromArgMatches for Settings<COMMAND> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, ClapError> {
        let former = |(key, _): &(&'static Key, _)| key.formerly.is_some_and(|n| matches.contains_id(n));
        if let Some((key, _)) = options(COMMAND).find(former) {
            let (old, new) = (key.formerly.unwrap_or_default(), option_or_key(key));
            return Err(ClapError::raw(
                ErrorKind::UnknownArgument,
                format!("--{old} is now {new}: use that instead\n"),
            ));
        }
        let is_given = |o: &KeyOption| matches.value_source(o.name) == Some(ValueSource::CommandLine);
        let given = options(COMMAND).filter(|(_, option)| is_given(option));
        Ok(Settings { given: given.filter_map(|(key, option)| Some((key, value(option, matches)?))).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), ClapError> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// As a run file would say it.
fn value(option: &KeyOption, matches: &ArgMatches) -> Option<Value> {
    let name = option.name;
    Some(match option.form {
        Form::Text | Form::Shape | Form::Counts | Form::Numbers => {
            Value::from(matches.get_one::<String>(name)?.as_str())
        }
        Form::Whole => Value::from(i64::try_from(*matches.get_one::<u64>(name)?).unwrap_or(i64::MAX)),
        Form::Number => Value::from(*matches.get_one::<f64>(name)?),
        Form::Path => Value::from(matches.get_one::<PathBuf>(name)?.to_string_lossy().into_owned()),
        Form::Flag => Value::from(matches.get_flag(name)),
        Form::Bool => Value::from(*matches.get_one::<bool>(name)?),
        Form::List | Form::Repeated => Value::from(matches.get_many::<String>(name)?.cloned().collect::<Vec<_>>()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    const ALL: [u16; 5] = [scope::TRAIN, scope::PLAN, scope::EVAL, scope::PREDICT, scope::INIT];

    #[test]
    fn every_option_is_of_a_command_and_has_a_name_of_its_own() {
        for command in ALL {
            let names: Vec<&str> = options(command).map(|(_, o)| o.name).collect();
            let mut distinct = names.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(names.len(), distinct.len(), "{names:?}");
        }
        for key in KEYS {
            let Some(option) = &key.option else { continue };
            assert!(ALL.iter().any(|command| option.is_in(*command)), "{}", option.name);
            assert!(!option.help.is_empty() && (option.form == Form::Flag) == option.value_name.is_empty());
        }
    }

    #[test]
    fn what_is_typed_is_what_a_run_file_would_say() {
        let command = Settings::<{ scope::TRAIN }>::augment_args(Command::new("train"));
        command.clone().debug_assert();
        let typed = ["train", "--batch", "7", "--input", "8x8x1", "--lr", "0.5", "--freeze", "a", "--freeze", "b"];
        let typed = typed.into_iter().chain(["--logical", "1MiB,2MiB", "--skip-bad", "--steps", "3", "--data", "d"]);
        let matches = command.clone().try_get_matches_from(typed).expect("it is right");
        let settings = Settings::<{ scope::TRAIN }>::from_arg_matches(&matches).expect("it is right");
        let mut config = RunConfig::default();
        settings.apply(&mut config).expect("it is right");
        assert_eq!((config.train.batch, config.train.lr, config.train.steps), (Some(7), Some(0.5), Some(3)));
        assert_eq!(
            (&config.model.input, &config.model.freeze[..]),
            (&Some(vec![8, 8, 1]), &["a".into(), "b".into()][..])
        );
        assert_eq!(config.memory.logical, [1 << 20, 2 << 20]);
        assert_eq!((config.data.skip_bad, config.data.train.clone()), (Some(true), Some("d".into())));
        assert!(command.clone().try_get_matches_from(["train", "--epochs", "1", "--steps", "3"]).is_err());
        assert!(command.clone().try_get_matches_from(["train", "--header", "maybe"]).is_err());
        let typed =
            ["train", "--kind", "digits", "--data", "d", "--header", "false", "--label", "3", "--masks", "grey"];
        let matches = command.try_get_matches_from(typed).expect("it is right");
        let settings = Settings::<{ scope::TRAIN }>::from_arg_matches(&matches).expect("it is right");
        settings.apply(&mut config).expect("it is right");
        assert_eq!((config.data.kind.as_deref(), config.data.header), (Some("digits"), Some(false)));
        assert_eq!((&config.data.label[..], config.data.masks.as_deref()), (&["3".to_string()][..], Some("grey")));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_option() {
        let given = |name: &str, value: Value| {
            let key = options(scope::TRAIN).find(|(_, o)| o.name == name).expect("an option").0;
            Settings::<{ scope::TRAIN }> { given: vec![(key, value)] }
        };
        for (name, value, expected) in [
            ("batch", Value::from(0), "--batch must be a whole number of at least 1, but is 0"),
            ("input", Value::from("axb"), "--input \"axb\" is not a size; write it like 224x224x3"),
            ("budget", Value::from("much"), "--budget must be a size: \"much\" is not a size"),
        ] {
            let error = given(name, value).apply(&mut RunConfig::default()).expect_err(name).to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(given("lr", Value::from(1)).are_in(scope::RESUME));
        assert!(!given("lr", Value::from(1)).are_in(scope::SEVERAL));
        assert!(list(scope::TRAIN | scope::RESUME).ends_with(" and --log-every"));
    }
}
