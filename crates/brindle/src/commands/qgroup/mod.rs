//! `brindle qgroup`: quota groups.

mod change;
mod show;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle qgroup show -pcre /mnt
    brindle qgroup limit 10G /mnt/home
    brindle qgroup create 1/100 /mnt
    brindle qgroup assign 0/257 1/100 /mnt
    brindle qgroup limit -e 2G 1/100 /mnt
    brindle qgroup limit none 1/100 /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show, make and limit quota groups
///
/// Each subvolume has the group 0/ID. Groups of higher levels hold groups of lower ones.
#[derive(Subcommand, Debug)]
pub(crate) enum QgroupCommand {
    Show(show::ShowCommand),
    Create(change::CreateCommand),
    Destroy(change::DestroyCommand),
    Assign(change::AssignCommand),
    Remove(change::RemoveCommand),
    Limit(change::LimitCommand),
    ClearStale(change::ClearStaleCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &QgroupCommand, is_quiet: bool) -> Result<ExitCode> {
    match command {
        QgroupCommand::Show(command) => show::run(command)?,
        QgroupCommand::Create(command) => change::create(command)?,
        QgroupCommand::Destroy(command) => change::destroy(command)?,
        QgroupCommand::Assign(command) => change::assign(command, is_quiet)?,
        QgroupCommand::Remove(command) => change::remove(command, is_quiet)?,
        QgroupCommand::Limit(command) => change::limit(command)?,
        QgroupCommand::ClearStale(command) => change::clear_stale(command, is_quiet)?,
    }
    Ok(ExitCode::SUCCESS)
}
