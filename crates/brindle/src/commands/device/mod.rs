//! `brindle device`: the devices of a pool.

mod add;
mod interrupted;
mod lease;
mod reads;
mod ready;
mod rejoin;
mod remove;
mod replace;
mod scan;
mod stats;

pub(crate) use replace::{ReplaceCommand, run as replace};

use crate::commands::filesystem::{DeviceUsageCommand, device_usage};
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
    Scan(scan::ScanCommand),
    Stats(stats::StatsCommand),
    Usage(DeviceUsageCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &DeviceCommand, is_quiet: bool) -> Result<ExitCode> {
    match command {
        DeviceCommand::Add(command) => add::run(command),
        DeviceCommand::Remove(command) => remove::run(command),
        DeviceCommand::Replace(command) => replace(command),
        DeviceCommand::Rejoin(command) => rejoin::run(command),
        DeviceCommand::Lease(command) => lease::run(command),
        DeviceCommand::Reads(command) => reads::run(command),
        DeviceCommand::Ready(command) => ready::run(command),
        DeviceCommand::Scan(command) => scan::scan(command, is_quiet),
        DeviceCommand::Stats(command) => stats::run(command),
        DeviceCommand::Usage(command) => device_usage(command),
    }
}
