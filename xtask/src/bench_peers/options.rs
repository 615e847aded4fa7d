//! The options of `bench-peers`: words in, checked values out.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::{PEERS, Peer, WORKLOADS, Workload};

pub struct Options {
    pub only: Vec<&'static Workload>,
    /// Which of the peers' frameworks.
    pub frameworks: Vec<&'static str>,
    pub alternations: usize,
    /// At least so many are timed in each process.
    pub steps: usize,
    pub threads: usize,
    /// Of one process.
    pub timeout: Duration,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options {
            only: WORKLOADS.iter().collect(),
            frameworks: frameworks(),
            alternations: 3,
            steps: 5,
            threads: 2,
            timeout: Duration::from_secs(600),
        };
        for pair in words.chunks(2) {
            let [name, value] = *pair else { bail!("{} needs a value; see --help", pair[0]) };
            match name {
                "--only" => {
                    let known: Vec<&str> = WORKLOADS.iter().map(|w| w.name).collect();
                    let wanted = chosen(name, value, &known)?;
                    options.only = WORKLOADS.iter().filter(|w| wanted.contains(&w.name)).collect();
                }
                "--peers" => options.frameworks = chosen(name, value, &frameworks())?,
                "--alternations" => options.alternations = positive(name, value)?,
                "--steps" => options.steps = positive(name, value)?,
                "--threads" => options.threads = positive(name, value)?,
                "--timeout" => options.timeout = Duration::from_secs(positive(name, value)?),
                _ => bail!("\"{name}\" is not an option; see --help"),
            }
        }
        Ok(options)
    }

    /// Those that say something about a workload.
    pub fn peers(&self, workload: &Workload) -> impl Iterator<Item = &'static Peer> {
        PEERS.iter().filter(|p| self.frameworks.contains(&p.framework) && (workload.images || !p.images_only))
    }
}

fn frameworks() -> Vec<&'static str> {
    let mut names: Vec<&str> = PEERS.iter().map(|p| p.framework).collect();
    names.dedup();
    names
}

/// Those of the known ones that a list names.
fn chosen<'a>(option: &str, list: &str, known: &[&'a str]) -> Result<Vec<&'a str>> {
    list.split(',')
        .map(|name| {
            let found = known.iter().find(|k| **k == name).copied();
            found.ok_or_else(|| anyhow!("{option}: there is no \"{name}\"; there are {}", known.join(", ")))
        })
        .collect()
}

fn positive<T: FromStr + Default + PartialEq>(option: &str, value: &str) -> Result<T> {
    match value.parse() {
        Ok(n) if n != T::default() => Ok(n),
        _ => bail!("{option} {value}: a number of at least 1 is needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn check(words: &[&str], expected: Result<(&[&str], &[&str], usize), &str>) {
        let given = Options::parse(words).map_err(|e| e.to_string());
        let given = given.map(|o| (o.only.iter().map(|w| w.name).collect::<Vec<_>>(), o.frameworks, o.alternations));
        let given = given.as_ref().map(|(only, peers, n)| (&only[..], &peers[..], *n)).map_err(String::as_str);
        assert_eq!(given, expected);
    }

    #[test]
    fn options_are_checked() {
        let peers = ["torch", "tensorflow", "jax"];
        check(&["--only", "gpt,mlp"], Ok((&["mlp", "gpt"], &peers, 3)));
        check(&["--only", "mlp", "--peers", "jax", "--alternations", "1"], Ok((&["mlp"], &["jax"], 1)));
        check(
            &["--only", "gtp"],
            Err("--only: there is no \"gtp\"; there are mlp, resnet18_cifar, resnet50, mobilenet_v3_large, unet, gpt"),
        );
        check(&["--peers", "mxnet"], Err("--peers: there is no \"mxnet\"; there are torch, tensorflow, jax"));
        check(&["--steps", "0"], Err("--steps 0: a number of at least 1 is needed"));
        check(&["--threads"], Err("--threads needs a value; see --help"));
        check(&["--fast", "1"], Err("\"--fast\" is not an option; see --help"));
    }
}
