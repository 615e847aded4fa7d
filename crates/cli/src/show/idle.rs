//! Options that were typed and change nothing: a line each, or an event.

use anyhow::Result;
use memfit_run::RunResources;
use memfit_run::idle::{Idle, Why, idle};
use serde_json::{Value, json};

use crate::output::{self, outln};
use crate::settings::{advised, option_or_key};
use crate::show::event::{of_run, prefix};

/// What was said in vain, as events: they are told behind the plans, which machines read first.
pub struct InVain {
    events: Vec<Value>,
}

impl InVain {
    /// Looks for it in runs. People are told at once.
    pub fn told(runs: &[RunResources], json: bool) -> Result<InVain> {
        let mut events = Vec::new();
        for run in runs {
            for idle in idle(run)? {
                let message = words(&idle);
                if json {
                    let option = option_or_key(idle.key);
                    let event =
                        json!({ "event": "warning", "kind": "no_effect", "option": option, "message": message });
                    events.push(of_run(run, event));
                } else {
                    output::warning(&format!("{}{message}", prefix(run)));
                }
            }
        }
        Ok(InVain { events })
    }

    pub fn finish(self) {
        self.events.iter().for_each(|event| outln!("{event}"));
    }
}

fn words(Idle { key, why }: &Idle) -> String {
    let option = option_or_key(key);
    match why {
        Why::OneReplica => {
            format!(
                "{option} changes nothing where there is one replica; {} says how many",
                advised("replicas", "count")
            )
        }
        Why::OneRun => format!("{option} changes nothing where one run is trained alone; leave it out"),
        Why::NoStates { optimizer } => {
            format!("{option} saves nothing: {optimizer} keeps no states that could be dealt out; leave it out")
        }
        Why::NoBatchNorms { model } => format!("{option} changes nothing: {model} has no batch norm; leave it out"),
    }
}
