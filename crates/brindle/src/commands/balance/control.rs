//! `balance status`, `pause`, `cancel` and `resume`.

use super::work;
use crate::commands::place::{administer, administer_reached};
use crate::commands::pool::open_pool;
use crate::commands::quantity::parse_rate;
use crate::format::UnitMode;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::balance::BalanceState;
use brindle_admin::pool::{BalanceJob, BalanceStatus};
use brindle_admin::{PoolFacts, Reach};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit codes in the help: those of btrfs-balance(8).
const STATUS_CODES: &str = "\
EXIT STATUS
  0  there is no balance
  1  one is running, or paused
  2  failure, or wrong usage";
const CODES: &str = "\
EXIT STATUS
  0  success
  1  failure
  2  there is none to do that with, or wrong usage";
/// Exit code: there is no such balance, or its state is unknown.
const NONE_OR_UNKNOWN: u8 = 2;

/// Show whether there is a balance, and how far it is
#[derive(Args, Debug)]
#[command(after_long_help = STATUS_CODES)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    json: JsonOption,
    /// A directory of a mount of brindle, or the devices of a pool that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// End a balance for now; `resume` goes on with it
///
/// Returns when it has ended, which may take as long as it takes to move 32 MiB.
#[derive(Args, Debug)]
#[command(after_long_help = CODES)]
pub(crate) struct PauseCommand {
    /// A directory of a mount of brindle
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// End a balance that runs, is paused, or was interrupted
///
/// Returns when it has ended, which may take as long as it takes to move 32 MiB. What was moved stays moved.
#[derive(Args, Debug)]
#[command(after_long_help = CODES)]
pub(crate) struct CancelCommand {
    /// A directory of a mount of brindle, or the devices of a pool that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Go on with a balance that is paused, or was interrupted
#[derive(Args, Debug)]
#[command(after_long_help = CODES)]
pub(crate) struct ResumeCommand {
    /// Move no more than this in a second on the average, such as 20M
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// A directory of a mount of brindle, or the devices of a pool that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Shows how far it is, and says by the exit code whether there is one.
pub(crate) fn status(command: &StatusCommand) -> Result<ExitCode> {
    match show_status(command) {
        Err(error) if !output::is_broken_pipe(&error) => {
            output::complain(&error);
            Ok(ExitCode::from(NONE_OR_UNKNOWN))
        }
        shown => shown,
    }
}

fn show_status(command: &StatusCommand) -> Result<ExitCode> {
    let facts: Box<dyn PoolFacts> = match Reach::of(&command.paths)? {
        Reach::Kernel(mount) => Box::new(mount),
        Reach::Brindle(mount) => Box::new(mount),
        Reach::Devices(paths) => Box::new(open_pool(&paths)?),
    };
    let BalanceStatus { state, progress, .. } = facts.balance_status()?;
    let state = match state {
        BalanceState::Running => "running",
        BalanceState::Paused => "paused",
        BalanceState::None => "none",
    };
    let code = if state == "none" { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if command.json.json {
        output::print_json(&json!({
            "state": state,
            "block_groups": progress.expected,
            "done": progress.done,
            "left": progress.left,
            "bytes": progress.expected_bytes,
            "moved_bytes": progress.moved_bytes,
        }))?;
        return Ok(code);
    }
    let mut out = output::stdout();
    let (done, expected) = (progress.done, progress.expected);
    let moved = UnitMode::DEFAULT.format(progress.moved_bytes);
    match state {
        "running" => writeln!(out, "Running: {done} of {expected} block groups, {moved} moved.")?,
        "paused" => writeln!(out, "Paused, or interrupted: `brindle balance resume` goes on with it.")?,
        _ => writeln!(out, "There is no balance.")?,
    }
    out.flush()?;
    Ok(code)
}

/// Error for a missing balance that could be ended or resumed.
fn none_there(what: &str) -> Result<ExitCode> {
    output::complain_line(what);
    Ok(ExitCode::from(NONE_OR_UNKNOWN))
}

/// Pauses it.
pub(crate) fn pause(command: &PauseCommand) -> Result<ExitCode> {
    let pool = administer_reached(Reach::of_mount(&command.path)?)?;
    if !pool.pause_balance()? {
        return none_there(&format!("{}: no balance is running", command.path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Cancels it.
pub(crate) fn cancel(command: &CancelCommand) -> Result<ExitCode> {
    let pool = administer(&command.paths)?;
    let was_there = pool.cancel_balance()?;
    pool.close()?;
    if !was_there {
        return none_there("there is no balance");
    }
    Ok(ExitCode::SUCCESS)
}

/// Goes on with it.
pub(crate) fn resume(command: &ResumeCommand) -> Result<ExitCode> {
    let pool = administer(&command.paths)?;
    let is_there = pool.balance_status()?.state != BalanceState::None;
    if !is_there {
        return none_there("there is no balance");
    }
    work::run(&*pool, &BalanceJob { balance: None, force: true, rate: command.rate })
}
