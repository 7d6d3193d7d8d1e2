//! `lab cut`, `restore` and `stop`: the power of a disk, and its end.

use super::stats::{cut_json, cut_line};
use crate::commands::shown::explain_end;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result};
use brindle_lab::{Client, Cut, CutMode};
use clap::Args;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const CUT_MANUAL: &str = "\
MODES
  lost       all writes that were not flushed are lost
  kept       none is lost
  torn       they are there up to any of them, in their order; that one may be
             torn, at sectors of 512 bytes
  reordered  each has its own fate: there, lost or torn; a later one may be
             there without an earlier one

  A write was flushed if a flush that was asked for after it has been answered.
  A drive holds no more than its write cache (wcache of the model): of more than
  that, the oldest are durable. Discards are durable at once.

EXAMPLES
    brindle lab cut /run/disk
    brindle lab cut --mode lost /run/disk
    brindle lab cut --mode torn --seed 7 --json /run/disk

EXIT STATUS
  0  the power is off
  1  failure: no disk is mounted there, or its power is off already
  2  wrong usage";

const RESTORE_MANUAL: &str = "\
EXAMPLES
    brindle lab restore /run/disk

EXIT STATUS
  0  the power is on
  1  failure: no disk is mounted there, or its power is on already
  2  wrong usage";

const STOP_MANUAL: &str = "\
EXAMPLES
    brindle lab stop /run/disk

EXIT STATUS
  0  the disk is gone
  1  it is in use, or no disk is mounted there
  2  wrong usage";

/// Cut the power of a modelled disk
///
/// Writes that were not flushed are lost, kept, torn or reordered, as the mode and the seed say: the same writes and the same
/// seed leave the same contents. Requests that are under way fail with EIO, and so do all that come, until `brindle lab
/// restore`. A disk with --file shows the contents after the cut also when it is started anew.
#[derive(Args, Debug)]
#[command(after_long_help = CUT_MANUAL)]
pub(crate) struct CutCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Fate of writes that were not flushed: lost, kept, torn or reordered
    #[arg(short, long, default_value = "reordered")]
    mode: CutMode,
    /// Seed of chance; one that is drawn and shown unless told otherwise
    #[arg(short, long, value_name = "N")]
    seed: Option<u64>,
    /// Directory on which the disk is mounted
    mountpoint: PathBuf,
}

/// Turn on the power of a modelled disk after a cut
///
/// The disk has the contents that the cut left, and its counts begin anew. A filesystem on it has seen errors, and is to be
/// unmounted before.
#[derive(Args, Debug)]
#[command(after_long_help = RESTORE_MANUAL)]
pub(crate) struct RestoreCommand {
    /// Directory on which the disk is mounted
    mountpoint: PathBuf,
}

/// End a modelled disk: detach its loop device, and unmount it
///
/// Contents in memory are lost. A disk that is in use goes on, and its user is to be stopped before: a filesystem that is
/// mounted, a program that has it open.
#[derive(Args, Debug)]
#[command(after_long_help = STOP_MANUAL)]
pub(crate) struct StopCommand {
    /// Directory on which the disk is mounted
    mountpoint: PathBuf,
}

/// Runs `lab cut`.
pub(crate) fn cut(command: &CutCommand) -> Result<ExitCode> {
    let client = Client::at(&command.mountpoint)?;
    let seed = command.seed.map_or_else(any_seed, Ok)?;
    let cut = Cut { mode: command.mode, seed, report: client.cut(command.mode, seed)? };
    if command.json.json {
        output::print_json(&cut_json(&cut))?;
    } else {
        let mut out = output::stdout();
        writeln!(out, "{}", cut_line(&cut))?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn any_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(u64::from(u32::from_ne_bytes(bytes)))
}

/// Runs `lab restore`.
pub(crate) fn restore(command: &RestoreCommand) -> Result<ExitCode> {
    Client::at(&command.mountpoint)?.restore()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `lab stop`.
pub(crate) fn stop(command: &StopCommand) -> Result<ExitCode> {
    Client::at(&command.mountpoint)?.stop().map_err(explain_end)?;
    Ok(ExitCode::SUCCESS)
}
