//! What cargo builds for the tests: where each test binary and each program lies, so that they can be run as they are, without
//! cargo deciding to build anything in between.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{output, shown};
use crate::extern_checks::cargo;

/// A test binary of a crate of the workspace.
#[derive(Debug, PartialEq)]
pub struct TestBinary {
    pub package: String,
    /// Of the test file, or of the library or program with unit tests.
    pub target: String,
    pub path: PathBuf,
    /// Of the crate: where its tests run.
    pub folder: PathBuf,
}

/// What the README's test command builds and runs.
#[derive(Debug, Default, PartialEq)]
pub struct Built {
    pub tests: Vec<TestBinary>,
    programs: Vec<(String, PathBuf)>,
    examples: Vec<(String, PathBuf)>,
}

impl Built {
    /// Builds it where it is not built: with the same selection, so that nothing is built twice.
    pub fn new() -> Result<Built> {
        let mut command = cargo("test");
        command.args(["--workspace", "--release", "--no-run", "--message-format", "json-render-diagnostics"]);
        let (messages, ok) = output(&mut command)?;
        if !ok {
            bail!("{} failed", shown(&command));
        }
        Built::parse(&messages)
    }

    fn parse(messages: &str) -> Result<Built> {
        let mut built = Built::default();
        for line in messages.lines() {
            let message: Value = serde_json::from_str(line).with_context(|| format!("cargo says: {line}"))?;
            // Libraries have none.
            let Some(path) = message["executable"].as_str().map(PathBuf::from) else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let (target, manifest) = (text(&message["target"]["name"]), text(&message["manifest_path"]));
            if message["profile"]["test"] == true {
                let folder = Path::new(&manifest).parent().with_context(|| format!("cargo says: {line}"))?;
                let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                built.tests.push(TestBinary { package, target, path, folder: folder.to_path_buf() });
            } else if message["target"]["kind"][0] == "bin" {
                built.programs.push((target, path));
            } else if message["target"]["kind"][0] == "example" {
                built.examples.push((target, path));
            }
        }
        Ok(built)
    }

    /// A program of the workspace, such as `memfit`: cargo builds them for the tests that run them.
    pub fn program(&self, name: &str) -> Result<Command> {
        command(&self.programs, name).with_context(|| format!("cargo built no program \"{name}\""))
    }

    /// An example of a crate of the workspace.
    pub fn example(&self, name: &str) -> Result<Command> {
        command(&self.examples, name).with_context(|| format!("cargo built no example \"{name}\""))
    }
}

fn command(built: &[(String, PathBuf)], name: &str) -> Option<Command> {
    built.iter().find(|(program, _)| program == name).map(|(_, path)| Command::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_and_programs_are_told_apart() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/ir/Cargo.toml","target":{"name":"memfit_ir"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/r/crates/cli/Cargo.toml","target":{"name":"memfit","kind":["bin"]},"profile":{"test":false},"executable":"/t/memfit"}
{"reason":"compiler-artifact","manifest_path":"/r/crates/memfit/Cargo.toml","target":{"name":"together","kind":["example"]},"profile":{"test":false},"executable":"/t/examples/together"}
{"reason":"compiler-artifact","manifest_path":"/r/crates/cli/Cargo.toml","target":{"name":"plan"},"profile":{"test":true},"executable":"/t/deps/plan-1"}
{"reason":"build-finished","success":true}"#;
        let test = TestBinary {
            package: "cli".into(),
            target: "plan".into(),
            path: "/t/deps/plan-1".into(),
            folder: "/r/crates/cli".into(),
        };
        let built = Built::parse(messages).expect("they are cargo's");
        let (program, example) =
            (("memfit".into(), "/t/memfit".into()), ("together".into(), "/t/examples/together".into()));
        assert_eq!(built, Built { tests: vec![test], programs: vec![program], examples: vec![example] });
        assert!(built.program("golden").is_err() && built.program("together").is_err());
        assert!(built.example("together").is_ok() && built.example("memfit").is_err());
        assert!(Built::parse("Compiling").is_err());
    }
}
