//! `brindle inspect`: structures on disk.

mod dump_super;
mod dump_tree;
mod tree_choice;
mod tree_stats;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Show structures on disk
#[derive(Subcommand, Debug)]
pub(crate) enum InspectCommand {
    DumpSuper(dump_super::DumpSuperCommand),
    DumpTree(dump_tree::DumpTreeCommand),
    TreeStats(tree_stats::TreeStatsCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: InspectCommand) -> Result<ExitCode> {
    match command {
        InspectCommand::DumpSuper(command) => dump_super::run(&command),
        InspectCommand::DumpTree(command) => dump_tree::run(&command),
        InspectCommand::TreeStats(command) => tree_stats::run(&command),
    }
}
