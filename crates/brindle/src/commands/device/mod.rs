//! `brindle device`: the devices of a pool.

mod add;
pub(crate) mod change;
mod lease;
mod reads;
mod ready;
mod rejoin;
mod remove;
mod replace;
mod stats;

pub(crate) use replace::{ReplaceCommand, run as replace};

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Manage and show the devices of a pool
#[derive(Subcommand, Debug)]
pub(crate) enum DeviceCommand {
    Add(add::AddCommand),
    Remove(remove::RemoveCommand),
    #[command(subcommand)]
    Replace(ReplaceCommand),
    Rejoin(rejoin::RejoinCommand),
    Lease(lease::LeaseCommand),
    Reads(reads::ReadsCommand),
    Ready(ready::ReadyCommand),
    Stats(stats::StatsCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &DeviceCommand) -> Result<ExitCode> {
    match command {
        DeviceCommand::Add(command) => add::run(command),
        DeviceCommand::Remove(command) => remove::run(command),
        DeviceCommand::Replace(command) => replace(command),
        DeviceCommand::Rejoin(command) => rejoin::run(command),
        DeviceCommand::Lease(command) => lease::run(command),
        DeviceCommand::Reads(command) => reads::run(command),
        DeviceCommand::Ready(command) => ready::run(command),
        DeviceCommand::Stats(command) => stats::run(command),
    }
}
