//! `memfit history`: how runs went, drawn in the terminal or as SVG, several overlaid. They may still go on.

use std::io::IsTerminal;
use std::path::Path;

use anyhow::Result;
use memfit::profile::Curve;
use memfit_run::{RunConfig, RunError, file, history};
use serde_json::{Map, json};

use crate::args::HistoryArgs;
use crate::commands::check_replaceable;
use crate::failure::{bad_data, usage};
use crate::output::outln;
use crate::show::columns;
use crate::show::curves::{self, plots};

/// What is drawn where nobody says it: what a run is judged by first.
const SHOWN: [&str; 4] = ["loss", "test loss", "test accuracy", "samples/s"];

pub fn history(args: &HistoryArgs, json: bool) -> Result<()> {
    args.svg.as_deref().map_or(Ok(()), |p| check_replaceable("--svg", p, "svg"))?;
    let mut runs: Vec<Vec<Curve>> = Vec::new();
    for folder in &args.runs {
        runs.push(read(folder)?);
    }
    let names: Vec<String> = args.runs.iter().map(|r| r.display().to_string()).collect();
    if json {
        for (name, curves) in names.iter().zip(&runs) {
            let curves: Map<_, _> = curves.iter().map(|c| (c.name.clone(), json!(c.points))).collect();
            outln!("{}", json!({ "event": "history", "run_dir": name, "curves": curves }));
        }
        return Ok(());
    }
    let all = plots(&runs);
    let known: Vec<&str> = all.iter().map(|p| p.name).collect();
    if let Some(unknown) = args.curve.iter().find(|c| !known.contains(&c.as_str())) {
        return Err(usage(format!("there is no curve \"{unknown}\"; there are {}", known.join(", "))));
    }
    let is_wanted = |name: &str| match &args.curve[..] {
        [] => args.svg.is_some() || SHOWN.contains(&name) || !known.iter().any(|k| SHOWN.contains(k)),
        wanted => wanted.iter().any(|w| w == name),
    };
    let wanted: Vec<_> = all.into_iter().filter(|p| is_wanted(p.name)).collect();
    if let Some(path) = &args.svg {
        file::write(path, &curves::svg(&wanted, &names))?;
        outln!("{} drawn into {}", wanted.iter().map(|p| p.name).collect::<Vec<_>>().join(", "), path.display());
        return Ok(());
    }
    let is_coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    for (i, name) in names.iter().enumerate().filter(|_| names.len() > 1) {
        outln!("{} {name}", curves::mark(i, is_coloured));
    }
    for plot in wanted {
        plot.lines(columns(), is_coloured).iter().for_each(|line| outln!("{line}"));
    }
    Ok(())
}

fn read(folder: &Path) -> Result<Vec<Curve>> {
    if !folder.is_dir() {
        return Err(RunError::NotARun { folder: folder.into() }.into());
    }
    // A folder that is no run's is told so.
    RunConfig::resume(folder)?;
    let curves = history::curves(folder)?;
    if curves.is_empty() {
        let problem = "has no history yet: it made no step, or was trained by a version that kept none";
        return Err(bad_data(format!("{} {problem}", folder.display())));
    }
    Ok(curves)
}
