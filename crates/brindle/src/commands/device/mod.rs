//! `brindle device`: the devices of a pool.

mod reads;
mod stats;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Show what there is to know of the devices of a pool
#[derive(Subcommand, Debug)]
pub(crate) enum DeviceCommand {
    Reads(reads::ReadsCommand),
    Stats(stats::StatsCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &DeviceCommand) -> Result<ExitCode> {
    match command {
        DeviceCommand::Reads(command) => reads::run(command),
        DeviceCommand::Stats(command) => stats::run(command),
    }
}
