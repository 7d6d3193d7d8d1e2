//! `brindle man`: the man pages.

use anyhow::{Context, Result};
use clap::{Args, Command};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the man pages of all commands into a directory.
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct ManCommand {
    /// Directory to write them to; made if it is missing
    directory: PathBuf,
}

/// Runs the command, for a tree of commands.
pub(crate) fn run(command: &ManCommand, tree: &Command) -> Result<ExitCode> {
    let directory = &command.directory;
    let failed = || format!("cannot write man pages to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(failed)?;
    clap_mangen::generate_to(tree.clone(), directory).with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}
