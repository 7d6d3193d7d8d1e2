//! `brindle filesystem`: the pool as a whole.

mod commits;
mod defragment;
mod du;
mod mounted;
mod resize;
mod show;
mod space;

pub(crate) use mounted::{set_label, sync_what_fits};
pub(crate) use space::{DeviceUsageCommand, device_usage, mode_name};

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Show and manage a pool as a whole
#[derive(Subcommand, Debug)]
pub(crate) enum FilesystemCommand {
    Show(show::ShowCommand),
    Sync(mounted::SyncCommand),
    Label(mounted::LabelCommand),
    Resize(resize::ResizeCommand),
    Defragment(defragment::DefragmentCommand),
    Df(space::DfCommand),
    Usage(space::UsageCommand),
    Du(du::DuCommand),
    CommitStats(commits::CommitStatsCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: FilesystemCommand) -> Result<ExitCode> {
    match command {
        FilesystemCommand::Show(command) => show::run(&command),
        FilesystemCommand::Sync(command) => mounted::sync(&command),
        FilesystemCommand::Label(command) => mounted::label(&command),
        FilesystemCommand::Resize(command) => resize::run(&command),
        FilesystemCommand::Defragment(command) => defragment::run(&command),
        FilesystemCommand::Df(command) => space::df(&command),
        FilesystemCommand::Usage(command) => space::usage(&command),
        FilesystemCommand::Du(command) => du::run(&command),
        FilesystemCommand::CommitStats(command) => commits::run(&command),
    }
}
