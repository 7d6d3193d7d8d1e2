//! `filesystem defragment`.

use crate::cli::JsonOption;
use crate::commands::place::administer;
use crate::commands::stop::Stop;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::Mounted;
use brindle_admin::pool::DefragmentProgress;
use brindle_care::job::Control;
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  The metadata of the subvolume of a directory:
    brindle filesystem defragment /mnt/home

  All metadata of a pool that is not mounted:
    brindle filesystem defragment disk1.img disk2.img

  How much there is to gain is said by:
    brindle inspect tree-stats disk.img

EXIT STATUS
  0    success
  1    failure; what was moved stays moved, and the pool is whole
  2    wrong usage
  129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; the same command goes on where it is worth it";

/// Write metadata anew where it lies scattered, so that disks read it without seeking
///
/// Tree leaves that follow each other are laid side by side again, a few hundred at a time, each time in one transaction;
/// files remain usable meanwhile. Leaves shared with a snapshot stay in their places, and so do well placed ones, so that
/// repeated calls do no harm. On flash it gains next to nothing.
///
/// Of a directory, the subvolume that it is in is meant, all of it, whichever directory it is; with --all, and of a pool
/// that is not mounted, every tree. Data of files is not defragmented yet: a file is refused.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DefragmentCommand {
    /// All trees of the pool: subvolumes, extents, checksums, free space, roots
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    json: JsonOption,
    /// A directory of a mount of brindle, or the devices of a pool that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &DefragmentCommand) -> Result<ExitCode> {
    if let [path] = command.paths.as_slice()
        && path.is_file()
        && Mounted::open(path).is_ok()
    {
        bail!("{}: data of files is not defragmented, only metadata: give a directory", path.display());
    }
    let pool = administer(&command.paths)?;
    let stop = Stop::on_signals()?;
    let mut done = DefragmentProgress::default();
    let ended = pool.defragment(command.all, &mut |progress| {
        done = *progress;
        if stop.is_set() { Control::Cancel } else { Control::Continue }
    })?;
    let is_whole = ended == Control::Continue;
    pool.close()?;
    let DefragmentProgress { leaves, moved } = done;
    if command.json.json {
        output::print_json(&json!({ "leaves": leaves, "moved": moved, "is_whole": is_whole }))?;
    } else {
        let mut out = output::stdout();
        let ended = if is_whole { "Done" } else { "Stopped" };
        writeln!(out, "{ended}: {moved} of {leaves} leaves written anew, side by side.")?;
        out.flush()?;
    }
    match stop.name_and_code().filter(|_| !is_whole) {
        Some((_, code)) => Ok(ExitCode::from(code)),
        None => Ok(ExitCode::SUCCESS),
    }
}
