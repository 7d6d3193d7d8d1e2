//! Options common to several commands.

use clap::{ArgAction, Args};

/// Verbosity of messages on standard error.
#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct Verbosity {
    /// Say more on standard error; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// Say nothing on standard error but why a command failed; mkfs, as mkfs.btrfs, nothing on standard output either
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub(crate) quiet: bool,
}

/// The choice between text and JSON.
#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct JsonOption {
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
