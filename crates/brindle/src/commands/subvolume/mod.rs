//! `brindle subvolume`: subvolumes and snapshots of a mounted pool, asked of the process that serves it.

mod change;
mod list;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Make, show and delete subvolumes and snapshots
#[derive(Subcommand, Debug)]
pub(crate) enum SubvolumeCommand {
    Create(change::CreateCommand),
    Snapshot(change::SnapshotCommand),
    Delete(change::DeleteCommand),
    List(list::ListCommand),
    Show(list::ShowCommand),
    GetDefault(list::GetDefaultCommand),
    SetDefault(change::SetDefaultCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: SubvolumeCommand) -> Result<ExitCode> {
    match command {
        SubvolumeCommand::Create(command) => change::create(&command),
        SubvolumeCommand::Snapshot(command) => change::snapshot(&command),
        SubvolumeCommand::Delete(command) => change::delete(&command),
        SubvolumeCommand::List(command) => list::list(&command),
        SubvolumeCommand::Show(command) => list::show(&command),
        SubvolumeCommand::GetDefault(command) => list::get_default(&command),
        SubvolumeCommand::SetDefault(command) => change::set_default(&command),
    }
}
