//! What is known of a key of a run, and of the option that it is.

use std::fmt;

use super::Sections;
use super::read::{KeyValue, Reading};

/// One key of one section.
pub struct Key {
    pub section: &'static str,
    pub name: &'static str,
    /// What a new run file shows, in TOML.
    pub example: &'static str,
    pub meaning: &'static str,
    pub set: fn(&mut Sections, KeyValue) -> Reading,
    /// Whether its text is a path, which is taken from where the run file lies.
    pub is_path: bool,
    /// A key of the same section that says the same in another way: whoever sets one of them besides a file means it instead
    /// of the other.
    pub instead_of: Option<&'static str>,
    /// What it was once called. The folders of old runs may still say it; whoever does so now is told the new name.
    pub formerly: Option<&'static str>,
    pub option: Option<KeyOption>,
}

/// A key as an option of commands.
pub struct KeyOption {
    pub name: &'static str,
    /// What stands for the value in help; empty for a flag.
    pub value_name: &'static str,
    pub form: Form,
    pub help: &'static str,
    /// What holds where it is not given; empty if that goes without saying.
    pub default: &'static str,
    /// The commands that take it, and where else it may be given: [`scope`].
    pub scope: u16,
}

impl KeyOption {
    pub fn is_in(&self, scope: u16) -> bool {
        self.scope & scope == scope
    }
}

/// How the text of an option is read, before its key checks the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Whole,
    Number,
    Path,
    /// Given or not.
    Flag,
    /// "true" or "false".
    Bool,
    /// "224x224x3"
    Shape,
    /// Whole numbers between commas, or "none".
    Counts,
    /// Numbers between commas.
    Numbers,
    /// Texts between commas.
    List,
    /// Texts, the option being given once for each.
    Repeated,
}

/// Where an option may be given.
pub mod scope {
    pub const TRAIN: u16 = 1;
    pub const PLAN: u16 = 1 << 1;
    pub const EVAL: u16 = 1 << 2;
    pub const PREDICT: u16 = 1 << 3;
    pub const INIT: u16 = 1 << 4;
    /// For several runs at once, of which each is the same.
    pub const SEVERAL: u16 = 1 << 5;
    /// Besides a run that is resumed.
    pub const RESUME: u16 = 1 << 6;
}

impl Key {
    /// As it is written in sentences.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    pub(super) const fn a_path(mut self) -> Key {
        self.is_path = true;
        self
    }

    pub(super) const fn instead_of(mut self, other: &'static str) -> Key {
        self.instead_of = Some(other);
        self
    }

    pub(super) const fn formerly(mut self, name: &'static str) -> Key {
        self.formerly = Some(name);
        self
    }

    pub(super) const fn option(
        mut self,
        name: &'static str,
        (form, value_name): (Form, &'static str),
        scope: u16,
        help: &'static str,
    ) -> Key {
        self.option = Some(KeyOption { name, value_name, form, help, default: "", scope });
        self
    }

    /// An option whose help is what the key means.
    pub(super) const fn typed(self, name: &'static str, form: (Form, &'static str), scope: u16) -> Key {
        let meaning = self.meaning;
        self.option(name, form, scope, meaning)
    }

    pub(super) const fn default(mut self, default: &'static str) -> Key {
        if let Some(option) = &mut self.option {
            option.default = default;
        }
        self
    }
}

pub(super) const fn key(
    section: &'static str,
    name: &'static str,
    example: &'static str,
    meaning: &'static str,
    set: fn(&mut Sections, KeyValue) -> Reading,
) -> Key {
    Key { section, name, example, meaning, set, is_path: false, instead_of: None, formerly: None, option: None }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        (self.section, self.name) == (other.section, other.name)
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}
