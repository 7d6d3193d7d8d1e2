//! The commands, a module each.

mod inspect;
mod man;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    #[command(subcommand)]
    Inspect(inspect::InspectCommand),
    Man(man::ManCommand),
}

/// Does it. An error ends with exit code 1.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Inspect(command) => inspect::run(command),
        Command::Man(command) => man::run(&command),
    }
}
