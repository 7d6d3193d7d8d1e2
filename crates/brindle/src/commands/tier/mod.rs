//! `brindle tier`: metadata on the fast devices, data on the bulk ones; also on a pool that the kernel has mounted.
//!
//! # The walk
//!
//! [`facts`] gathers devices and chunks, by ioctls from a mount of the kernel or by our reader from devices that are
//! not mounted, and has `policy` decide the class of each device. [`status`] and [`plan`] show what `policy` makes
//! of them; [`apply`], [`watch`] and [`recover`] have `admin` act on it, and show what it does.

mod apply;
mod class;
pub(crate) mod facts;
mod locate;
pub(crate) mod log;
mod plan;
mod recover;
mod state;
mod status;
mod watch;
mod write_back;

pub(crate) use state::directory as journals;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Keep metadata on fast devices and data on the others
///
/// A device is fast if the pool stores a hint that says so (`brindle mkfs DEVICE:fast`), or, in a pool without
/// hints, if it does not rotate. --fast and --bulk overrule both, for this command; a mount of brindle has the classes that it was mounted with.
/// Within the fast and the bulk ones there may be classes with names, such as nvme and ssd: see `brindle tier class`.
///
/// All of this works on a pool that the kernel has mounted, by any mkfs: docs/user/tier.md says how.
#[derive(Subcommand, Debug)]
pub(crate) enum TierCommand {
    Status(status::StatusCommand),
    Where(locate::WhereCommand),
    Plan(plan::PlanCommand),
    Apply(apply::ApplyCommand),
    Watch(watch::WatchCommand),
    Recover(recover::RecoverCommand),
    #[command(subcommand)]
    Class(class::ClassCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &TierCommand) -> Result<ExitCode> {
    match command {
        TierCommand::Status(command) => status::run(command),
        TierCommand::Where(command) => locate::run(command),
        TierCommand::Plan(command) => plan::run(command),
        TierCommand::Apply(command) => apply::run(command),
        TierCommand::Watch(command) => watch::run(command),
        TierCommand::Recover(command) => recover::run(command),
        TierCommand::Class(command) => class::run(command),
    }
}
