//! Caches in files, where replicas train: none of them reads every sample, so none of them would ever have the whole. The first
//! process of each machine makes the file before the first step, and all replicas there read it.

use memfit::data::{LoadOptions, Loader};

use super::options::skip_bad;
use super::{RunEvent, Training};
use crate::data;
use crate::error::Result;
use crate::from_first::work_among;
use crate::replicas::Peers;
use crate::resources::RunResources;

/// Makes the files that are missing. All processes have to call it, and none goes on before all have.
pub(super) fn make_all(
    trainings: &[Training],
    peers: Option<&dyn Peers>,
    on_event: &mut dyn FnMut(RunEvent),
) -> Result<()> {
    let mut loaders = Vec::new();
    for Training { run, .. } in trainings.iter().filter(|t| t.run.crew.size > 1 && t.run.crew.neighbours.index == 0) {
        loaders.extend(run.named(unfinished(run, on_event))?);
    }
    let make = move || -> Result<()> {
        for mut loader in loaders {
            while loader.next()?.is_some() {}
        }
        Ok(())
    };
    match peers {
        Some(peers) => work_among(peers, make),
        None => make(),
    }
}

/// What reads every sample once, where there is a file to be made.
fn unfinished(run: &RunResources, on_event: &mut dyn FnMut(RunEvent)) -> Result<Option<Loader>> {
    let Some(sources) = run.data.as_deref() else { return Ok(None) };
    let Some((samples, file)) = data::in_file(sources, run)? else { return Ok(None) };
    let options = LoadOptions {
        threads: run.all_threads()?,
        seed: run.seed,
        bad: skip_bad(&run.config),
        ..LoadOptions::new(run.pool.clone())
    };
    let loader = Loader::new(&samples, options)?;
    if !loader.has_unfinished_file() {
        return Ok(None);
    }
    on_event(RunEvent::Caching { run, file, samples: sources.train.len() });
    Ok(Some(loader))
}
