//! `brindle quota`: quotas of a pool on and off, and how they are.

use crate::commands::reached::Reached;
use crate::commands::refused::explain_admin;
use crate::commands::subvolume::tell;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Error, Result, anyhow};
use brindle_admin::quotas::{QuotaMode, Quotas, quotas};
use brindle_admin::{ControlError, Mounted, QgroupStatusFlags};
use clap::{Args, Subcommand};
use rustix::io::Errno;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle quota enable /mnt
    brindle quota rescan -w /mnt
    brindle quota status /mnt
    brindle quota status a.img b.img

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Turn quotas on and off, and count them anew
///
/// Quotas count the bytes of each subvolume, and of groups of subvolumes, and limit them: `brindle qgroup` shows and limits
/// the groups.
#[derive(Subcommand, Debug)]
pub(crate) enum QuotaCommand {
    Enable(EnableCommand),
    Disable(DisableCommand),
    Rescan(RescanCommand),
    Status(StatusCommand),
}

/// Turn quotas on
///
/// Each subvolume gets a group, and all data that there is is counted; with --simple, all that is written from then on.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct EnableCommand {
    /// Simple quotas: an extent counts for the subvolume that wrote it first, from now on; Linux 6.7 or later
    #[arg(short, long)]
    simple: bool,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// A path of a mounted pool
    path: PathBuf,
}

/// Turn quotas off
///
/// All groups are gone, with their limits.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DisableCommand {
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// A path of a mounted pool
    path: PathBuf,
}

/// Count all groups anew
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RescanCommand {
    /// Only say whether one runs
    #[arg(short, long, conflicts_with_all = ["wait", "wait_norescan"])]
    status: bool,
    /// Return at its end; one that runs already is waited for
    #[arg(short, long)]
    wait: bool,
    /// Wait for the end of one that runs, and begin none
    #[arg(short = 'W', long, conflicts_with = "wait")]
    wait_norescan: bool,
    /// A path of a mounted pool
    path: PathBuf,
}

/// Show whether quotas are on, and whether their numbers are right
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Print nothing; the exit code is 0 if quotas are on, else 1
    #[arg(long)]
    is_enabled: bool,
    /// A path of a mounted pool; or image files and block devices, those of one pool, in any order
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
}

/// Runs one of the commands.
pub(crate) fn run(command: &QuotaCommand, is_quiet: bool) -> Result<ExitCode> {
    match command {
        QuotaCommand::Enable(command) => enable(command, is_quiet)?,
        QuotaCommand::Disable(command) => disable(command, is_quiet)?,
        QuotaCommand::Rescan(command) => rescan(command, is_quiet)?,
        QuotaCommand::Status(command) => return status(command),
    }
    Ok(ExitCode::SUCCESS)
}

fn enable(command: &EnableCommand, is_quiet: bool) -> Result<()> {
    let mounted = Mounted::open(&command.path)?;
    let (mode, name) = match command.simple {
        true => (QuotaMode::Simple, "simple quotas"),
        false => (QuotaMode::Full, "quotas"),
    };
    // The kernel would say nothing, and do nothing.
    let on = quotas(&mounted).map_err(explain_admin)?.filter(|found| found.is_simple() != command.simple);
    if let Some(on) = on {
        let other = if on.is_simple() { "simple" } else { "full" };
        return Err(anyhow!(
            "{}: {other} quotas are on; `brindle quota disable` turns them off, and gives up all groups",
            command.path.display()
        ));
    }
    if command.dry_run {
        return tell(is_quiet, &format!("Dry run: {name} would be turned on"));
    }
    mounted.enable_quotas(mode).map_err(explain)
}

fn disable(command: &DisableCommand, is_quiet: bool) -> Result<()> {
    let mounted = Mounted::open(&command.path)?;
    if command.dry_run {
        let groups = quotas(&mounted).map_err(explain_admin)?.map_or(0, |quotas| quotas.groups.len());
        return tell(is_quiet, &format!("Dry run: quotas would be turned off, and {groups} groups be gone"));
    }
    mounted.disable_quotas().map_err(explain)
}

fn rescan(command: &RescanCommand, is_quiet: bool) -> Result<()> {
    let mounted = Mounted::open(&command.path)?;
    if command.status {
        let mut out = output::stdout();
        match mounted.quota_rescan().map_err(explain)? {
            Some(at) => writeln!(out, "rescan operation running (current key {at})")?,
            None => writeln!(out, "no rescan operation in progress")?,
        }
        return Ok(out.flush()?);
    }
    if !command.wait_norescan {
        match mounted.begin_quota_rescan().map_err(explain_rescan)? {
            true => tell(is_quiet, "quota rescan started")?,
            false if command.wait => {}
            false => return Err(anyhow!("a rescan is under way; -w waits for its end")),
        }
    }
    if command.wait || command.wait_norescan {
        mounted.wait_for_quota_rescan().map_err(explain)?;
    }
    Ok(())
}

fn status(command: &StatusCommand) -> Result<ExitCode> {
    let found = quotas(Reached::of(&command.places)?.trees()).map_err(explain_admin)?;
    if command.is_enabled {
        return Ok(if found.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let state = found.as_ref().map(State::of);
    if command.json.json {
        let Some((State { mode, is_inconsistent, is_counting, levels }, found)) = state.zip(found) else {
            output::print_json(&json!({ "enabled": false }))?;
            return Ok(ExitCode::SUCCESS);
        };
        let levels: BTreeMap<String, usize> =
            levels.into_iter().map(|(level, count)| (level.to_string(), count)).collect();
        output::print_json(&json!({
            "enabled": true,
            "mode": mode,
            "inconsistent": is_inconsistent,
            "rescan": is_counting,
            "rescan_address": is_counting.then_some(found.rescan),
            "generation": found.generation,
            "groups": found.groups.len(),
            "groups_by_level": levels,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    let yes = |is: bool| if is { "yes" } else { "no" };
    writeln!(out, "Quotas on {}:", command.places[0].display())?;
    writeln!(out, "  Enabled:                 {}", yes(state.is_some()))?;
    if let Some(State { mode, is_inconsistent, is_counting, levels }) = state {
        let detail = if mode == "squota" { "simple accounting" } else { "full accounting" };
        writeln!(out, "  Mode:                    {mode} ({detail})")?;
        writeln!(out, "  Inconsistent:            {}", yes(is_inconsistent))?;
        writeln!(out, "  Rescan:                  {}", yes(is_counting))?;
        writeln!(out, "  Total count:             {}", levels.values().sum::<usize>())?;
        for (level, count) in levels {
            writeln!(out, "  Level {level}:                 {count}")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// State of quotas that are on.
struct State {
    mode: &'static str,
    is_inconsistent: bool,
    is_counting: bool,
    /// Number of groups by level.
    levels: BTreeMap<u64, usize>,
}

impl State {
    fn of(quotas: &Quotas) -> Self {
        let mut levels = BTreeMap::new();
        for id in quotas.groups.keys() {
            *levels.entry(id.level()).or_insert(0) += 1;
        }
        Self {
            mode: if quotas.is_simple() { "squota" } else { "qgroup" },
            is_inconsistent: quotas.flags.contains(QgroupStatusFlags::INCONSISTENT),
            is_counting: quotas.flags.contains(QgroupStatusFlags::RESCAN),
            levels,
        }
    }
}

/// Says what an ioctl's number means for quotas.
pub(crate) fn explain(error: ControlError) -> Error {
    match error {
        ControlError::Refused { path, source: Errno::NOTCONN, .. } => {
            anyhow!("{}: quotas are off; `brindle quota enable` turns them on", path.display())
        }
        error => error.into(),
    }
}

/// Says why a rescan is refused.
fn explain_rescan(error: ControlError) -> Error {
    match error {
        ControlError::Refused { path, source: Errno::INVAL, .. } => {
            anyhow!("{}: simple quotas are not counted anew: their numbers are always right", path.display())
        }
        error => explain(error),
    }
}
