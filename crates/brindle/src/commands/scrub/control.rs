//! `scrub status`, `cancel` and `limit`.

use super::{NONE, device_of_mount, reach_mount_of, show};
use crate::commands::damaged_list::DamagedFilesOption;
use crate::commands::quantity::parse_size;
use crate::commands::state_directory::state_directory;
use crate::format::{Align, UnitMode, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::Reach;
use brindle_admin::scrub::{DeviceScrubLimit, cancel_scrub, last_scrub, limit_scrub, scrub_limits};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
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
    /// A directory or a device of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// End a scrub for now; `resume` goes on with it
#[derive(Args, Debug)]
#[command(after_long_help = CODES)]
pub(crate) struct CancelCommand {
    /// A directory or a device of a mounted pool
    #[arg(value_name = "PATH|DEVICE")]
    path: PathBuf,
}

/// Limit the bytes that a scrub reads of a device in a second, or show the limits
///
/// On a mount of brindle it is a limit of the scrub that runs; on a mount of the kernel, of all until the pool is unmounted.
#[derive(Args, Debug)]
#[command(after_long_help = CODES)]
pub(crate) struct LimitCommand {
    /// The limit, such as 50M; 0 for none. Without it the limits are shown
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    limit: Option<u64>,
    /// Id of the device; without it, all have this limit
    #[arg(short, long = "devid", value_name = "ID", requires = "limit")]
    devid: Option<u64>,
    /// All devices, as without an id
    #[arg(short, long, requires = "limit", conflicts_with = "devid")]
    all: bool,
    /// A directory or a device of a mounted pool
    #[arg(value_name = "PATH|DEVICE")]
    path: PathBuf,
}

/// Shows the last one.
pub(crate) fn status(command: &StatusCommand) -> Result<ExitCode> {
    let reach = reach_mount_of(&command.paths)?;
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
    let unlisted = record.report.unlisted;
    if command.damaged.is_wanted() && unlisted > 0 {
        tracing::warn!(
            "the record does not name the files of {unlisted} errors, so that files may be missing in the list: `brindle \
             check --check-data-csum --damaged-files` names all"
        );
    }
    let lost = record.report.faults.iter().flat_map(|fault| &fault.files);
    command.damaged.write(lost.map(|(path, _)| &path[..]))?;
    if command.json.json {
        output::print_json(&show::json(&record, is_running))?;
    } else {
        show::print(&record, is_running, command.by_device, command.raw)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The mount of a directory or of a device.
fn mount_at(path: &Path) -> Result<Reach> {
    match device_of_mount(&[path.to_owned()]) {
        Some((mounted, _)) => Ok(mounted.into()),
        None => Ok(Reach::of_mount(path)?),
    }
}

/// Ends one.
pub(crate) fn cancel(command: &CancelCommand) -> Result<ExitCode> {
    if !cancel_scrub(&mount_at(&command.path)?)? {
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
    let _ = command.all;
    let reach = mount_at(&command.path)?;
    let is_running = match command.limit {
        Some(bytes) => limit_scrub(&reach, command.devid, bytes)?,
        None => scrub_limits(&reach, &state_directory())?
            .map(|limits| print_limits(&limits))
            .transpose()?
            .is_some(),
    };
    if !is_running {
        output::complain_line(&format!("{}: no scrub is running", command.path.display()));
        return Ok(ExitCode::from(NONE));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_limits(limits: &[DeviceScrubLimit]) -> Result<()> {
    let mut rows = vec![["DEVID", "LIMIT", "PATH"].map(str::to_owned).to_vec()];
    for DeviceScrubLimit { devid, path, bytes } in limits {
        let limit = match bytes {
            0 => "none".to_owned(),
            bytes => format!("{}/s", UnitMode::DEFAULT.format(*bytes)),
        };
        rows.push(vec![devid.to_string(), limit, path.clone()]);
    }
    let mut out = output::stdout();
    write_table(&mut out, &[Align::Right, Align::Right, Align::Left], &rows)?;
    Ok(out.flush()?)
}
