//! `memfit profile`: every byte and every kernel of a training step, as planned and as measured; or what changed between two.

use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::profile::export::scalars::write_scalars;
use memfit::profile::export::tensorboard::{At, EventFile};
use memfit::profile::export::trace::trace_json;
use memfit::profile::export::xplane::create_xplane;
use memfit::profile::html::{HtmlOptions, html};
use memfit::profile::{Profile, markdown};
use memfit_run::profiling::{self, MOST_STEPS, PROFILE, ProfileEvent};
use memfit_run::{Purpose, RunConfig, file, open};
use serde_json::json;

use crate::args::ProfileArgs;
use crate::commands::make_folder;
use crate::commands::plan::compare;
use crate::configs::split_args;
use crate::cure;
use crate::failure::{bad_data, usage};
use crate::output::outln;
use crate::progress::Progress;
use crate::show;
use crate::show::idle::InVain;

pub fn profile(args: ProfileArgs, json: bool) -> Result<()> {
    if let Some(files) = &args.compare {
        let [before, after] = &files[..] else { return Err(usage("--compare takes two: before and after")) };
        args.out.as_deref().map_or(Ok(()), check_folder)?;
        return compare([before, after], args.out.as_deref(), json);
    }
    if args.steps == Some(0) {
        return Err(usage(
            "--steps 0 would measure nothing; `memfit plan --html FILE` is a report without running anything",
        ));
    }
    if let Some(steps) = args.steps.filter(|steps| *steps > MOST_STEPS) {
        return Err(usage(format!("--steps {steps} is more than a profile has room for; give at most {MOST_STEPS}")));
    }
    if let Some(out) = &args.out {
        check_folder(out)?;
        if out.join(PROFILE).exists() {
            return Err(usage(format!("--out {} holds a profile already; name another folder", out.display())));
        }
    }
    let Looked { mut profile, no_limits, in_vain } = look(&args, json)?;
    if args.with_paths {
        profile.run.path = args.run.as_ref().map(|run| run.display().to_string());
    }
    let folder = match args.out {
        Some(folder) => folder,
        None => free_folder(&profile.run.model)?,
    };
    write(&folder, &profile)?;
    if json {
        outln!("{}", event(&profile, &folder, no_limits.as_deref()));
    } else {
        show::profile::print(&profile, &folder, no_limits.as_deref());
    }
    in_vain.into_iter().for_each(InVain::finish);
    Ok(())
}

struct Looked {
    profile: Profile,
    /// Why it was not measured what the machine can do at most.
    no_limits: Option<String>,
    in_vain: Option<InVain>,
}

/// A fresh measurement; or a run's folder as it is.
fn look(args: &ProfileArgs, json: bool) -> Result<Looked> {
    let run_dir = args.run.as_ref().filter(|path| path.is_dir());
    if let Some(folder) = run_dir.filter(|_| args.steps.is_none()) {
        if !args.settings.is_empty() {
            return Err(usage("the run is looked at as it is; with --steps N some of it is measured"));
        }
        return Ok(Looked { profile: profiling::of_run_dir(folder)?.profile, no_limits: None, in_vain: None });
    }
    let config = match run_dir {
        Some(folder) => {
            let mut config = RunConfig::resume(folder)?;
            args.settings.apply(&mut config)?;
            config
        }
        None => {
            let files: Vec<PathBuf> = args.run.iter().cloned().collect();
            split_args(&files, &[], &args.settings, None)?.configs.remove(0)
        }
    };
    let mut runs = open(vec![config], Purpose::Profile, false)?;
    let in_vain = InVain::told(&runs, json)?;
    let run = runs.remove(0);
    let (mut progress, mut no_limits) = (Progress::new("profiling"), None);
    let on_event = &mut |event: ProfileEvent| match event {
        ProfileEvent::Planning(at) => progress.show(&cure::progress(at)),
        ProfileEvent::Limits => progress.show("what the machine can do at most"),
        ProfileEvent::NoLimits(error) => {
            no_limits = Some(error.map_or("the device has too little memory for it".into(), |error| error.to_string()));
        }
        ProfileEvent::Step { done } => progress.show(&format!("step {done}")),
    };
    let (profile, _) = profiling::measure(run, args.steps, on_event)?;
    Ok(Looked { profile, no_limits, in_vain: Some(in_vain) })
}

/// Everything that a profile is written as.
fn write(folder: &Path, profile: &Profile) -> Result<()> {
    make_folder(folder)?;
    let texts = [
        (PROFILE, profile.to_json()),
        ("report.html", html(profile, &HtmlOptions::default())),
        ("trace.json", trace_json(profile)),
        ("summary.md", markdown(profile)),
    ];
    for (name, text) in texts {
        file::write(&folder.join(name), &text)?;
    }
    let logs = folder.join("tensorboard");
    write_tensorboard(&logs, profile).map_err(|e| bad_data(format!("{} cannot be written: {e}", logs.display())))
}

/// Scalars and the plan's text, and the step for the Profile tab; beside what is there of earlier profiles.
fn write_tensorboard(logs: &Path, profile: &Profile) -> std::io::Result<()> {
    write_scalars(profile, &mut EventFile::create(logs, At::now(0))?)?;
    for n in 1.. {
        match create_xplane(logs, &format!("{}-{n}", folder_name(&profile.run.model)), profile) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            written => return written.map(drop),
        }
    }
    Ok(())
}

/// Files are written there one by one; what is no folder cannot become one.
fn check_folder(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if (path.exists() && !path.is_dir()) || !parent.is_dir() {
        let problem = format!("--out {} cannot be made: name a folder in one that exists", path.display());
        return Err(usage(problem));
    }
    Ok(())
}

/// One that is not there yet.
fn free_folder(model: &str) -> Result<PathBuf> {
    let profiles = Path::new("profiles");
    let name = |n: u32| profiles.join(format!("{}-{n}", folder_name(model)));
    let cannot = |e: std::io::Error| usage(format!("{} cannot be made: {e}; give --out DIR", profiles.display()));
    std::fs::create_dir_all(profiles).map_err(cannot)?;
    Ok((1..).map(name).find(|folder| !folder.exists()).unwrap_or_else(|| name(0)))
}

/// The name of a model as that of a folder: a plan that somebody gives may call it anything.
fn folder_name(model: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = model.chars().take(64).map(|c| if is_safe(c) { c } else { '_' }).collect();
    if name.is_empty() { "model".into() } else { name }
}

fn event(profile: &Profile, folder: &Path, no_limits: Option<&str>) -> serde_json::Value {
    let measured = profile.measured.as_ref();
    json!({
        "event": "profile", "out": folder.display().to_string(), "run": profile.run, "memory": profile.memory,
        "steps": measured.map_or(0, |m| m.steps.len()), "measured_step_ms": profile.median_step_ms(),
        "kernel_clock": measured.map(|m| m.clock),
        "arena_resident_bytes": measured.and_then(|m| m.steps.last()).and_then(|s| s.arena_resident_bytes),
        "limits": profile.limits, "limits_missing": no_limits, "pipeline": profile.pipeline,
        "peak": profile.peak.live.iter().take(10).collect::<Vec<_>>(),
        "slowest_layers": show::profile::layers(profile).into_iter().take(10).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_model_leads_out_of_no_folder() {
        for (model, name) in [("resnet18", "resnet18"), ("../../a b", "______a_b"), ("..", "__"), ("", "model")] {
            assert_eq!(folder_name(model), name);
        }
    }
}
