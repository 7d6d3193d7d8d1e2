//! `brindle inspect`: what lies on disk.

mod dump_super;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Show what lies on disk, structure by structure
#[derive(Subcommand, Debug)]
pub(crate) enum InspectCommand {
    DumpSuper(dump_super::DumpSuperCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: InspectCommand) -> Result<ExitCode> {
    match command {
        InspectCommand::DumpSuper(command) => dump_super::run(&command),
    }
}
