//! `scrub status`, `cancel` and `limit`.

use super::{NONE, show};
use crate::commands::damaged_list::DamagedFilesOption;
use crate::commands::quantity::parse_size;
use crate::commands::state_directory::state_directory;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::Reach;
use brindle_admin::scrub::{cancel_scrub, last_scrub, limit_scrub};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const CODES: &str = "\
EXIT STATUS
  0  success
  1  failure
  2  no scrub is running, or wrong usage";

/// Show how far a scrub is, or the result of the last one
#[derive(Args, Debug)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    damaged: DamagedFilesOption,
    /// Show each device
    #[arg(short = 'd')]
    by_device: bool,
    /// Show all counters
    #[arg(short = 'R')]
    raw: bool,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// End a scrub for now; `resume` goes on with it
#[derive(Args, Debug)]
#[command(after_long_help = CODES)]
pub(crate) struct CancelCommand {
    /// A directory of a mounted pool
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Limit the bytes that a scrub reads of a device in a second
///
/// On a mount of brindle it is a limit of the scrub that runs; on a mount of the kernel, of all until the pool is unmounted.
#[derive(Args, Debug)]
#[command(after_long_help = CODES)]
pub(crate) struct LimitCommand {
    /// The limit, such as 50M; 0 for none
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    limit: u64,
    /// Id of the device; without it, all have this limit
    #[arg(short, long = "devid", value_name = "ID")]
    devid: Option<u64>,
    /// A directory of a mounted pool
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Shows the last one.
pub(crate) fn status(command: &StatusCommand) -> Result<ExitCode> {
    let reach = Reach::of(&command.paths)?;
    let Some((record, is_running)) = last_scrub(&reach, &state_directory())? else {
        let Some(fsid) = reach.fsid()? else { bail!("{}: no pool", command.paths[0].display()) };
        if command.json.json {
            output::print_json(&json!({ "uuid": fsid.to_string(), "status": "none" }))?;
        } else {
            let mut out = output::stdout();
            writeln!(out, "UUID:             {fsid}\n\tno stats available")?;
            out.flush()?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let lost = record.report.faults.iter().flat_map(|fault| &fault.files);
    command.damaged.write(lost.map(|(path, _)| &path[..]))?;
    if command.json.json {
        output::print_json(&show::json(&record, is_running))?;
    } else {
        show::print(&record, is_running, command.by_device, command.raw)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends one.
pub(crate) fn cancel(command: &CancelCommand) -> Result<ExitCode> {
    if !cancel_scrub(&Reach::of_mount(&command.path)?)? {
        output::complain_line(&format!("{}: no scrub is running", command.path.display()));
        return Ok(ExitCode::from(NONE));
    }
    let mut out = output::stdout();
    writeln!(out, "scrub cancelled")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Limits one.
pub(crate) fn limit(command: &LimitCommand) -> Result<ExitCode> {
    if !limit_scrub(&Reach::of_mount(&command.path)?, command.devid, command.limit)? {
        output::complain_line(&format!("{}: no scrub is running", command.path.display()));
        return Ok(ExitCode::from(NONE));
    }
    Ok(ExitCode::SUCCESS)
}
