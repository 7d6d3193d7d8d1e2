//! `subvolume sync`: waits until deleted subvolumes are gone.

use super::change::tell;
use crate::commands::refused::explain_admin;
use anyhow::{Context, Result};
use brindle_admin::Mounted;
use brindle_admin::subvolumes::subvolumes;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

const EXAMPLES: &str = "\
EXAMPLES
    brindle subvolume sync /mnt
    brindle subvolume sync /mnt 257 258

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Wait until deleted subvolumes are gone, and their space is free
///
/// Without ids, those that are deleted at this moment. One that exists is waited for until it is deleted and gone.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SyncCommand {
    /// Seconds between two looks
    #[arg(short, value_name = "SECONDS", default_value_t = 1)]
    sleep: u64,
    /// A path of a mounted pool
    path: PathBuf,
    /// Ids of subvolumes
    #[arg(value_name = "ID")]
    ids: Vec<u64>,
}

/// Runs it.
pub(crate) fn run(command: &SyncCommand, is_quiet: bool) -> Result<ExitCode> {
    let mounted = Mounted::open(&command.path).with_context(|| command.path.display().to_string())?;
    let there = |mounted: &Mounted| subvolumes(mounted).map(|(all, _)| all).map_err(explain_admin);
    let mut waited: Vec<u64> = match command.ids.as_slice() {
        [] => there(&mounted)?.iter().filter(|one| one.is_deleted).map(|one| one.id).collect(),
        ids => ids.to_vec(),
    };
    let count = waited.len();
    if count > 0 {
        let s = if count == 1 { "" } else { "s" };
        tell(is_quiet, &format!("Waiting for {count} subvolume{s}"))?;
    }
    let mut gone = 0;
    let mut synced = Vec::new();
    loop {
        let left = there(&mounted)?;
        let (waits, ended): (Vec<u64>, Vec<u64>) =
            waited.into_iter().partition(|id| left.iter().any(|one| one.id == *id));
        waited = waits;
        for id in ended {
            gone += 1;
            tell(is_quiet, &format!("Subvolume id {id} is gone ({gone}/{count})"))?;
        }
        if waited.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        // What has changed in one since the last commit goes with the next, which may be far away.
        let is_new =
            |id: &u64| left.iter().any(|one| one.id == *id && one.is_deleted) && !synced.contains(id);
        let new: Vec<u64> = waited.iter().copied().filter(is_new).collect();
        if !new.is_empty() && !mounted.is_of_kernel() {
            mounted.sync()?;
            synced.extend(new);
            continue;
        }
        sleep(Duration::from_secs(command.sleep.max(1)));
    }
}
