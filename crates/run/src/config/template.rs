//! A run file to start from: every key with what it means, some of them set and the rest commented out.

use super::KEYS;

/// Every key, in sections. What is not among `set`, as `section.key` and a value in TOML, is commented out and shows an
/// example.
pub fn commented(set: &[(String, String)]) -> String {
    let mut text = String::from(
        "# A key that is commented out shows an example; its default is in what it means, or depends on the data.\n",
    );
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            text += &format!("\n[{section}]\n");
        }
        let path = format!("{section}.{}", key.name);
        let value = set.iter().find(|(name, _)| *name == path).map(|(_, value)| value);
        let line = match value {
            Some(value) => format!("{} = {value}", key.name),
            None => format!("# {} = {}", key.name, key.example),
        };
        text += &format!("{line:<44}# {}\n", key.meaning);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use std::path::Path;

    #[test]
    fn every_key_can_be_typed() {
        let none: Vec<String> = KEYS.iter().filter(|key| key.option.is_none()).map(|key| key.path()).collect();
        assert_eq!(none, [""; 0], "a key needs an option: .option(…), or .typed(…) where its meaning is all the help");
    }

    fn read(text: &str, folder: &Path) -> crate::error::Result<RunConfig> {
        RunConfig::parse(text, folder)
    }

    #[test]
    fn what_is_set_is_read_back_and_every_example_may_be_uncommented() {
        let text = commented(&[("train.batch".into(), "7".into()), ("data.train".into(), "\"a\"".into())]);
        let spec = read(&text, Path::new("")).expect("it is right");
        assert_eq!((spec.train.batch, spec.data.train.clone()), (Some(7), Some("a".into())));
        assert_eq!(spec.train.lr, None);
        let uncommented: Vec<&str> =
            text.lines().map(|l| l.strip_prefix("# ").filter(|l| l.contains(" = ")).unwrap_or(l)).collect();
        let all = read(&uncommented.join("\n"), Path::new("")).expect("examples are right");
        assert_eq!(all.train.lr, Some(0.001));
    }
}
