//! `brindle balance`: block groups emptied, so that what lay in them lies elsewhere.

mod control;
mod start;
pub(crate) mod work;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Move the contents of block groups to other places
#[derive(Subcommand, Debug)]
pub(crate) enum BalanceCommand {
    Start(Box<start::StartCommand>),
    Status(control::StatusCommand),
    Pause(control::PauseCommand),
    Cancel(control::CancelCommand),
    Resume(control::ResumeCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &BalanceCommand) -> Result<ExitCode> {
    match command {
        BalanceCommand::Start(command) => start::run(command),
        BalanceCommand::Status(command) => control::status(command),
        BalanceCommand::Pause(command) => control::pause(command),
        BalanceCommand::Cancel(command) => control::cancel(command),
        BalanceCommand::Resume(command) => control::resume(command),
    }
}
