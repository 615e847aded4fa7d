//! The command line: arguments → validated run → one function per command. The only crate that prints.

mod args;
mod bar;
mod buffers_csv;
mod commands;
mod cure;
mod failure;
mod progress;
mod resident;
mod run;
mod runs;
mod say;
mod show;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    resident::set_mmap_threshold();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::misspelt(error),
    };
    let json = cli.json;
    let result = match cli.command.unwrap_or_default() {
        Command::Train(args) => runs::TrainRuns::new(args, json).and_then(|mut r| commands::train::train(&mut r)),
        Command::Eval(args) => commands::eval::eval(&args, json),
        Command::Predict(args) => commands::predict::predict(&args, json),
        Command::Init(args) => commands::init::init(&args, json),
        Command::Plan(args) => runs::PlanRun::new(args, json).and_then(|r| commands::plan::plan(&r)),
        Command::Pack(args) => run::PackRun::new(args, json).and_then(|r| commands::pack::pack(&r)),
        Command::Models => commands::models::models(json),
        Command::Devices(args) => commands::devices::devices(&args, json),
    };
    match result {
        Ok(()) if say::all_printed() => ExitCode::SUCCESS,
        Ok(()) => {
            say::error("not everything could be written to standard output");
            ExitCode::FAILURE
        }
        Err(error) => failure::report(&error, json),
    }
}
