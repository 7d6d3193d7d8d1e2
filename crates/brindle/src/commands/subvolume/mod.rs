//! `brindle subvolume`: subvolumes and snapshots.

mod change;
mod delete;
mod find_new;
mod line;
mod list;
mod refusal;
mod show;
mod sync;

pub(super) use change::tell;
pub(super) use refusal::subvolume_at;

use crate::commands::pool::PoolOptions;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle subvolume list /mnt
    brindle subvolume list -t --sort=-gen a.img b.img
    brindle subvolume show /mnt/home
    brindle subvolume show --rootid 257 /mnt
    brindle subvolume get-default /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

const LISTS_POOL: &str = "Pool";

/// Make, show and delete subvolumes and snapshots
#[derive(Subcommand, Debug)]
pub(crate) enum SubvolumeCommand {
    Create(change::CreateCommand),
    Snapshot(change::SnapshotCommand),
    Delete(delete::DeleteCommand),
    List(Box<list::ListCommand>),
    Show(show::ShowCommand),
    GetDefault(show::GetDefaultCommand),
    SetDefault(change::SetDefaultCommand),
    FindNew(find_new::FindNewCommand),
    Sync(sync::SyncCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: SubvolumeCommand, is_quiet: bool) -> Result<ExitCode> {
    match command {
        SubvolumeCommand::Create(command) => change::create(&command, is_quiet),
        SubvolumeCommand::Snapshot(command) => change::snapshot(&command, is_quiet),
        SubvolumeCommand::Delete(command) => delete::run(&command, is_quiet),
        SubvolumeCommand::List(command) => list::run(&command),
        SubvolumeCommand::Show(command) => show::show(&command),
        SubvolumeCommand::GetDefault(command) => show::get_default(&command),
        SubvolumeCommand::SetDefault(command) => change::set_default(&command),
        SubvolumeCommand::FindNew(command) => find_new::run(&command),
        SubvolumeCommand::Sync(command) => sync::run(&command, is_quiet),
    }
}

/// Part of a pool, and tolerated faults; without the letter that means something else to a list.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ListPool {
    /// Enter by the subvolume at this path from the top level
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid")]
    subvol: Option<PathBuf>,
    /// Enter by the subvolume of this id; 5 is the top level
    #[arg(long, value_name = "ID")]
    subvolid: Option<u64>,
    /// Comma-separated: degraded (go on without missing devices), subvol=PATH, subvolid=ID, device=PATH
    #[arg(long, value_name = "OPTIONS")]
    options: Vec<String>,
}

impl ListPool {
    fn options(&self) -> PoolOptions {
        PoolOptions::new(self.subvol.clone(), self.subvolid, self.options.clone())
    }
}
