//! `brindle inspect-internal`: structures on disk, and names of numbers.

mod chunks;
mod dump_super;
mod dump_tree;
mod resolve;
mod tree_choice;
mod tree_stats;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Show structures on disk, and the names of what has numbers there
#[derive(Subcommand, Debug)]
pub(crate) enum InspectCommand {
    DumpSuper(dump_super::DumpSuperCommand),
    DumpTree(dump_tree::DumpTreeCommand),
    TreeStats(tree_stats::TreeStatsCommand),
    InodeResolve(resolve::InodeResolveCommand),
    LogicalResolve(resolve::LogicalResolveCommand),
    SubvolidResolve(resolve::SubvolidResolveCommand),
    Rootid(resolve::RootidCommand),
    ListChunks(chunks::ListChunksCommand),
    MinDevSize(chunks::MinDevSizeCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: InspectCommand) -> Result<ExitCode> {
    match command {
        InspectCommand::DumpSuper(command) => dump_super::run(&command),
        InspectCommand::DumpTree(command) => dump_tree::run(&command),
        InspectCommand::TreeStats(command) => tree_stats::run(&command),
        InspectCommand::InodeResolve(command) => resolve::inode(&command),
        InspectCommand::LogicalResolve(command) => resolve::logical(&command),
        InspectCommand::SubvolidResolve(command) => resolve::subvolid(&command),
        InspectCommand::Rootid(command) => resolve::rootid(&command),
        InspectCommand::ListChunks(command) => chunks::list(&command),
        InspectCommand::MinDevSize(command) => chunks::min_dev_size(&command),
    }
}
