//! The command line: arguments → validated run → one function per command. The only crate that prints.

mod allocator;
mod args;
mod bar;
mod buffers_csv;
mod commands;
mod configs;
mod cure;
mod failure;
mod launch;
mod output;
mod overrides;
mod progress;
mod settings;
mod show;
mod signals;
mod wording;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

#[global_allocator]
static ALLOCATOR: allocator::LastWord = allocator::LastWord;

fn main() -> ExitCode {
    memfit_run::resident::set_mmap_threshold();
    memfit_run::resident::set_arenas();
    signals::survive_file_limit();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return launch::misspelt(error),
    };
    let json = cli.json;
    if json {
        allocator::speak_json();
    }
    let command = cli.command.unwrap_or_default();
    settings::set_command(command.scope());
    let result = match command {
        Command::Train(args) => commands::train::train(args, json),
        alone => launch::by_first(json, || run(alone, json)),
    };
    match result {
        Ok(()) if output::all_printed() => ExitCode::SUCCESS,
        Ok(()) => {
            output::error(output::NOT_ALL);
            ExitCode::FAILURE
        }
        Err(error) => failure::report(&error, json),
    }
}

/// What one process does.
fn run(command: Command, json: bool) -> anyhow::Result<()> {
    match command {
        Command::Train(args) => commands::train::train(args, json),
        Command::Eval(args) => commands::eval::eval(&args, json),
        Command::Predict(args) => commands::predict::predict(&args, json),
        Command::Init(args) => commands::init::init(&args, json),
        Command::Plan(args) => commands::plan::plan(args, json),
        Command::Profile(args) => commands::profile::profile(args, json),
        Command::History(args) => commands::history::history(&args, json),
        Command::Pack(args) => commands::pack::pack(args, json),
        Command::Models(args) => commands::models::models(&args, json),
        Command::Devices(args) => commands::devices::devices(&args, json),
    }
}
