//! `brindle scrub`: all copies read, verified and corrected, in the words of btrfs-progs.

mod control;
mod show;
mod start;

use crate::commands::silent::answering;
use anyhow::Result;
use brindle_admin::{DevId, Mounted, Reach};
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

/// Verify all data and metadata on all devices, and correct what is wrong
#[derive(Subcommand, Debug)]
pub(crate) enum ScrubCommand {
    Start(Box<start::StartCommand>),
    Status(control::StatusCommand),
    Cancel(control::CancelCommand),
    Resume(Box<start::ResumeCommand>),
    Limit(control::LimitCommand),
}

/// Exit code: there is none to resume or to cancel, as in btrfs-progs.
const NONE: u8 = 2;
/// Exit code: errors were found that could not be corrected, as in btrfs-progs.
const UNCORRECTABLE: u8 = 3;

/// The mount that a single operand is a device of, and the id of the device.
fn device_of_mount(paths: &[PathBuf]) -> Option<(Mounted, DevId)> {
    let [path] = paths else { return None };
    if path.is_dir() { None } else { Mounted::with_device(&answering(), path) }
}

/// The way to a pool; a device of a mounted one stands for the mount.
fn reach_mount_of(paths: &[PathBuf]) -> Result<Reach> {
    match device_of_mount(paths) {
        Some((mounted, _)) => Ok(mounted.into()),
        None => Ok(Reach::of(paths)?),
    }
}

/// Runs one of the commands.
pub(crate) fn run(command: &ScrubCommand) -> Result<ExitCode> {
    match command {
        ScrubCommand::Start(command) => start::run(command),
        ScrubCommand::Status(command) => control::status(command),
        ScrubCommand::Cancel(command) => control::cancel(command),
        ScrubCommand::Resume(command) => start::resume(command),
        ScrubCommand::Limit(command) => control::limit(command),
    }
}
