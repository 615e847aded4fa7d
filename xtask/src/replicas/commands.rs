//! What else is asked of several processes: what one can do is done once, and what the machine has is shared out.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::refusals::codes;
use super::{Bench, Rank, Seen, text};

/// Commands that do not train, each by four processes.
pub fn one_output(bench: &Bench) -> Seen {
    let folder = bench.folder("commands")?;
    let run = text(&folder.join("run"));
    bench.run_alone(&folder, &["train", "--steps", "12", "--out", &run])?.check_passed()?;
    let profile = text(&folder.join("profile"));
    let commands: [(&[&str], &str); 5] = [
        (&["eval", &run], "accuracy"),
        (&["plan", "--model", "digits", "--replicas", "4"], "arena"),
        (&["models"], "digits "),
        (&["history", &run], "loss"),
        (&["profile", "--model", "digits", "--steps", "2", "--out", &profile], "written to"),
    ];
    // The last one measures for a while.
    let commands = if bench.is_long() { &commands[..] } else { &commands[..4] };
    for &(command, part) in commands {
        let count = |output: &str| output.matches(part).count();
        let alone = bench.run_alone(&bench.folder("alone")?, command)?;
        if fs::exists(&profile)? {
            fs::remove_dir_all(&profile)?;
        }
        let ended = bench.run(&bench.folder("several")?, &vec![Rank::new(command); 4])?;
        ended.check_passed().with_context(|| command.join(" "))?;
        if count(&ended.stdout) == 0 || count(&ended.stdout) != count(&alone.stdout) {
            bail!("{}: alone\n{}\nby four\n{}", command.join(" "), alone.stdout, ended.stdout);
        }
    }
    let wrong: [(&[&str], i32, &str); 3] = [
        (&["eval", "nowhere"], 2, "nowhere"),
        (&["plan", "--model", "digits", "--budget", "100KiB"], 3, "no plan"),
        (&["history", "--nonsense"], 2, "--nonsense"),
    ];
    for (command, code, part) in wrong {
        let ended = bench.run(&bench.folder("wrong")?, &vec![Rank::new(command); 4])?;
        ended.check_failed(&codes(bench, code), &[part]).with_context(|| command.join(" "))?;
    }
    Ok(format!("{} commands and {} refusals told once; every rank left alike", commands.len(), wrong.len()))
}

/// Processes have their share of the cores, unless somebody says otherwise.
pub fn shared_machine(bench: &Bench) -> Seen {
    let cores = std::thread::available_parallelism()?.get();
    let plan = |options: &[&str]| -> Result<Value> {
        let folder = bench.folder("shared")?;
        let rank = Rank::new(&["train", "--json", "--steps", "4", "--out", &text(&folder.join("run"))]).and(options);
        let ended = bench.run(&folder, &vec![rank; 3])?;
        ended.check_passed()?;
        let plan = ended.stdout.lines().find(|line| line.contains("\"event\":\"plan\"")).context("no plan is told")?;
        Ok(serde_json::from_str(plan)?)
    };
    let (shared, said) = (plan(&[])?, plan(&["--threads", "3"])?);
    let first = cores / 3 + usize::from(!cores.is_multiple_of(3));
    for (plan, threads) in [(&shared, first), (&said, 3)] {
        let found = (plan["threads"].as_u64(), plan["replicas"]["on_machine"].as_u64());
        if found != (Some(threads as u64), Some(3)) {
            bail!("of {cores} cores the first of three has {found:?} and not {threads}");
        }
    }
    // What the machine or its group has is shared too; what is said is not.
    let limit = |plan: &Value| plan["process_limit_bytes"].as_u64().context("no limit is told");
    let (third, total) = (limit(&shared)?, limit(&plan(&["--total", "96MiB"])?)?);
    if total != 96 << 20 || limit(&plan(&["--budget", "4MiB"])?)?.abs_diff(3 * third) > 3 {
        bail!("{third} bytes are no third of what the machine has, or {total} no total of 96 MiB");
    }
    Ok(format!("{first} of {cores} cores and {} MiB for the first of three", third >> 20))
}
