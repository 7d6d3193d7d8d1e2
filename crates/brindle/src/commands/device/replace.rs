//! `device replace`.

use super::interrupted;
use crate::commands::device_change::{self, UnmountedPool, leaving, refuse_member};
use crate::commands::place::{Loss, administer_reached};
use crate::commands::pool::open_pool;
use crate::commands::usage::wrong_usage;
use crate::format::Civil;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::pool::{Change, ReplaceState, ReplaceStatus};
use brindle_admin::{DevId, Reach};
use brindle_care::device::ReplaceOptions;
use clap::{Args, Subcommand};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code: no replacement runs.
const NONE: u8 = 2;

const EXAMPLES: &str = "\
EXAMPLES
  A disk of a mounted pool, by its path or its id:
    brindle device replace start /dev/sdb /dev/sdd /mnt
    brindle device replace start 2 /dev/sdd /mnt

  One that is missing, of a pool that is not mounted:
    brindle device replace start missing new.img -o degraded --pool disk2.img

  The end of one that the kernel was interrupted in:
    brindle device replace cancel /dev/sdb /dev/sdc

  All of a larger device:
    brindle filesystem resize 2:max /mnt

EXIT STATUS
  0    success
  1    failure; the pool is as it was
  2    wrong usage
  129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; the same command goes on";

const CODES: &str = "\
EXIT STATUS
  0  success
  1  failure
  2  no replacement runs, or wrong usage";

/// Replace a device of a pool by another one
#[derive(Subcommand, Debug)]
pub(crate) enum ReplaceCommand {
    Start(StartCommand),
    Status(StatusCommand),
    Cancel(CancelCommand),
}

/// Copy what lies on a device, or should, to another one, which takes its place
///
/// Files can be used meanwhile. Everything is verified by checksums; what is wrong on the device, or can't be read, is taken from
/// other copies or rebuilt. When all is copied, the target has the id and the size of the device, in one commit, and the
/// device loses its superblocks. Whatever ends it before, a crash too, leaves the pool as it was, and the same command
/// goes on: what the target has already is verified and kept.
///
/// What is wrong in all copies is named and copied as it is. Data without checksums that can be read nowhere ends the
/// replacement.
///
/// Where the kernel has mounted the pool, the kernel replaces, in its way: it begins anew after it was ended, and after a crash
/// the next mount goes on.
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle device replace start [OPTIONS] <DEVICE|DEVID> <TARGET> <PATH>\n       \
                      brindle device replace start [OPTIONS] missing <TARGET> <PATH>",
    after_long_help = EXAMPLES
)]
pub(crate) struct StartCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Replace by a target even if that holds something; of a pool that is not mounted, replace a missing device even if data is lost
    /// with it
    #[arg(short, long)]
    force: bool,
    /// Read the device only where no other copy can be read
    #[arg(short = 'r')]
    avoid_source: bool,
    /// Don't discard (TRIM) the space of the target first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    /// Accepted as btrfs-progs has it: the command always waits for the end
    #[arg(short = 'B')]
    foreground: bool,
    #[command(flatten)]
    unmounted: UnmountedPool,
    /// The device by its path or id, or `missing` for the first that is; the target; and last, unless --pool is given, a
    /// directory of the mounted pool
    #[arg(required = true, value_name = "DEVICE|DEVID|missing TARGET PATH")]
    operands: Vec<PathBuf>,
}

/// Show how far a replacement is, or the last one
#[derive(Args, Debug)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Accepted as btrfs-progs has it: the state is shown once
    #[arg(short = '1')]
    once: bool,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// End a replacement; the pool is as it was
///
/// That of a mounted pool, which runs; or, given the devices of a pool that is not mounted, one that the kernel was interrupted in,
/// by a crash or for lack of space. Without its target, or where the target is broken, such a pool can't be mounted. Everything that
/// was written meanwhile is on the replaced device as well. The target loses its superblocks: as long as it has them, the kernel
/// refuses to mount the pool. It is found among DEVICES, or, if one of these is a block device, among those of the machine.
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle device replace cancel <PATH>\n       \
                      brindle device replace cancel [-o OPTIONS] <DEVICE>...",
    after_long_help = CODES
)]
pub(crate) struct CancelCommand {
    /// For a pool that is not mounted: degraded (go on without missing devices; degraded=named: without all others)
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs one of the commands.
pub(crate) fn run(command: &ReplaceCommand) -> Result<ExitCode> {
    match command {
        ReplaceCommand::Start(command) => start(command),
        ReplaceCommand::Status(command) => status(command),
        ReplaceCommand::Cancel(command) => cancel(command),
    }
}

fn start(command: &StartCommand) -> Result<ExitCode> {
    let StartCommand { unmounted, operands, .. } = command;
    let _ = command.foreground;
    let loss = if command.force { Loss::Accepted } else { Loss::Refused };
    let join = operands.get(1..).unwrap_or_default();
    let (words, pool) = unmounted.with_operands(operands, "a device, a TARGET", join, loss)?;
    let [word, target] = words else {
        return wrong_usage("a device and the TARGET that is to replace it are needed".to_owned());
    };
    refuse_member(&*pool, target)?;
    let options = ReplaceOptions {
        force: command.force,
        discard: !command.nodiscard,
        avoid_source: command.avoid_source,
    };
    let change = Change::Replace { which: leaving(&*pool, word)?, path: target.clone(), options };
    device_change::run(&*pool, &[change], command.json)
}

fn status(command: &StatusCommand) -> Result<ExitCode> {
    let _ = command.once;
    let status = Reach::of(&command.paths)?.ask(open_pool)?.replace_status()?;
    if command.json.json {
        output::print_json(&json!({
            "state": word(status.state),
            "devid": status.devid.map(DevId::get),
            "bytes": status.progress.expected_bytes,
            "done_bytes": status.progress.moved_bytes,
            "started": (status.started != 0).then_some(status.started),
            "stopped": (status.stopped != 0).then_some(status.stopped),
            "write_errors": status.write_errors,
            "uncorrectable_read_errors": status.lost_reads + status.progress.left,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    writeln!(out, "{}", in_words(&status))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The state for programs.
fn word(state: ReplaceState) -> &'static str {
    match state {
        ReplaceState::Never => "never started",
        ReplaceState::Started => "running",
        ReplaceState::Finished => "finished",
        ReplaceState::Canceled => "canceled",
        ReplaceState::Suspended => "suspended",
    }
}

/// The state for people, as btrfs-progs has it.
fn in_words(status: &ReplaceStatus) -> String {
    let time = |seconds: u64| Civil::from_epoch(i64::try_from(seconds).unwrap_or(0));
    let (started, stopped) = (time(status.started), time(status.stopped));
    let (writes, reads) = (status.write_errors, status.lost_reads + status.progress.left);
    let errors = format!("{writes} write errs, {reads} uncorr. read errs");
    match status.state {
        ReplaceState::Never => "Never started".to_owned(),
        ReplaceState::Started if status.progress.expected_bytes > 0 => {
            let permille = status.progress.moved_bytes * 1000 / status.progress.expected_bytes;
            format!("{}.{}% done, {errors}", permille / 10, permille % 10)
        }
        ReplaceState::Started => format!("Started on {started}, {errors}"),
        ReplaceState::Finished => format!("Started on {started}, finished on {stopped}, {errors}"),
        ReplaceState::Canceled => format!("Started on {started}, canceled on {stopped}, {errors}"),
        ReplaceState::Suspended => format!("Started on {started}, suspended on {stopped}, {errors}"),
    }
}

fn cancel(command: &CancelCommand) -> Result<ExitCode> {
    let CancelCommand { paths, options } = command;
    let was_there = match Reach::of(paths)? {
        Reach::Devices(devices) => interrupted::cancel(&devices, options)?,
        _ if !options.is_empty() => return wrong_usage("a mounted pool takes no -o".to_owned()),
        reach => administer_reached(reach)?.cancel_replace()?,
    };
    if !was_there {
        let (path, more) = (paths[0].display(), if paths.len() > 1 { " and others" } else { "" });
        output::complain_line(&format!("{path}{more}: no replacement runs"));
        return Ok(ExitCode::from(NONE));
    }
    let mut out = output::stdout();
    writeln!(out, "replacement canceled")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_care::job::Progress;

    #[test]
    fn states_are_told_as_btrfs_progs_has_them() {
        let progress = Progress { expected_bytes: 3000, moved_bytes: 370, left: 2, ..Progress::default() };
        let status = |state| ReplaceStatus {
            state,
            devid: Some(DevId::new(1)),
            progress,
            started: 60,
            stopped: 3600,
            write_errors: 1,
            lost_reads: 0,
        };
        let of = |state| in_words(&status(state));
        assert_eq!(of(ReplaceState::Never), "Never started");
        assert_eq!(of(ReplaceState::Started), "12.3% done, 1 write errs, 2 uncorr. read errs");
        assert_eq!(
            of(ReplaceState::Finished),
            "Started on 1970-01-01 00:01:00, finished on 1970-01-01 01:00:00, 1 write errs, 2 uncorr. read errs"
        );
    }
}
