//! A change of a pool's devices carried out: by this process on a pool that is not mounted, by the one that serves a
//! mount, or by the kernel.

use crate::commands::balance::work::{observer, progress_bar};
use crate::commands::place::{Loss, administer_devices, administer_reached};
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::format::UnitMode;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::pool::{Change, Changed, DeviceIdentity, Member};
use brindle_admin::{DevId, PoolAdmin, Reach};
use brindle_care::device::Leaving;
use brindle_care::job::{Control, Progress};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The pool, where it is not a mount.
#[derive(Args, Debug)]
pub(crate) struct UnmountedPool {
    /// The devices of a pool that is not mounted, in place of PATH
    #[arg(long, value_name = "DEVICE", num_args = 1..)]
    pub(crate) pool: Vec<PathBuf>,
    /// For a pool that is not mounted: degraded (go on without missing devices; degraded=named: without all others)
    #[arg(short, long = "options", value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}

impl UnmountedPool {
    /// Values of the operands, and the pool: that of the mount that is the last of them, unless devices are given.
    /// `what` is one of those that belong before it. Operands that `join` the pool are not looked for as devices of it.
    pub(crate) fn with_operands<'o>(
        &self,
        operands: &'o [PathBuf],
        what: &str,
        join: &[PathBuf],
        loss: Loss,
    ) -> Result<(&'o [PathBuf], Box<dyn PoolAdmin>)> {
        match operands.split_last() {
            Some((_, [])) if self.pool.is_empty() => wrong_usage(format!(
                "{what} and a mounted directory are needed, or --pool with the devices of the pool"
            )),
            Some((mount, named)) if self.pool.is_empty() => {
                Ok((named, administer_reached(Reach::of_mount(mount)?)?))
            }
            _ => Ok((operands, administer_devices(&self.pool, &self.options, join, loss)?)),
        }
    }
}

/// The device that a word is for: `missing`, an id, or the path of a device.
pub(crate) fn leaving(pool: &dyn PoolAdmin, word: &Path) -> Result<Leaving> {
    if word.as_os_str() == "missing" {
        return Ok(Leaving::Missing);
    }
    match word.to_str().and_then(|word| word.parse().ok()) {
        Some(0) => return wrong_usage("no device has the id 0".to_owned()),
        Some(devid) => return Ok(Leaving::Id(DevId::new(devid))),
        None => {}
    }
    let fsid = pool.fsid()?;
    let Some(device) = DeviceIdentity::read(word)?.filter(|device| device.fsid == fsid) else {
        bail!("{}: not a device of this pool", word.display());
    };
    // The id may be that of another device by now.
    let member = pool.members()?.into_iter().find(|member| member.uuid == device.uuid);
    match member {
        Some(member) => Ok(Leaving::Id(member.devid)),
        None => bail!(
            "{}: no device of this pool any more: it was devid {} until it was removed or replaced",
            word.display(),
            device.devid
        ),
    }
}

/// Refuses to add a device that the pool has, and is there.
pub(crate) fn refuse_member(pool: &dyn PoolAdmin, path: &Path) -> Result<()> {
    // One that can't be read is refused when it is opened.
    let Ok(Some(device)) = DeviceIdentity::read(path) else { return Ok(()) };
    let is_it = |member: &Member| !member.is_missing && member.uuid == device.uuid;
    if pool.members()?.iter().any(is_it) {
        bail!("{} is a device of this pool, devid {}", path.display(), device.devid);
    }
    Ok(())
}

/// Does one after the other, and says what came of each.
pub(crate) fn run(pool: &dyn PoolAdmin, changes: &[Change], json: JsonOption) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let mut reports = Vec::new();
    let mut ended = ExitCode::SUCCESS;
    for change in changes {
        let bar = progress_bar();
        let begun = Instant::now();
        let done = pool.change_devices(change, &mut observer(&stop, &bar));
        bar.finish_and_clear();
        let outcome = done?;
        if json.json {
            reports.push(report_json(change, &outcome));
        } else {
            let mut out = output::stdout();
            writeln!(out, "{}", report(change, &outcome, begun.elapsed()))?;
            out.flush()?;
        }
        if outcome.control != Control::Continue {
            ended = stop.name_and_code().map_or(ExitCode::FAILURE, |(_, code)| ExitCode::from(code));
            break;
        }
    }
    pool.close()?;
    if json.json {
        output::print_json(&json!({ "changes": reports }))?;
    }
    Ok(ended)
}

/// The verb of a change.
fn word(change: &Change) -> &'static str {
    match change {
        Change::Add { .. } => "add",
        Change::Remove(_) => "remove",
        Change::Resize(..) => "resize",
        Change::Replace { .. } => "replace",
        Change::Rejoin { .. } => "rejoin",
    }
}

/// Result for people.
fn report(change: &Change, outcome: &Changed, time: Duration) -> String {
    let Progress { expected, done, moved_bytes, .. } = outcome.progress;
    let moved = UnitMode::DEFAULT.format(moved_bytes);
    let device = match (change, outcome.devid) {
        (Change::Add { path, .. }, Some(devid)) => format!("{} is devid {devid}", path.display()),
        (Change::Add { path, .. }, None) => path.display().to_string(),
        (_, Some(devid)) => format!("devid {devid}"),
        (_, None) => "the missing device".to_owned(),
    };
    let how_far = match expected {
        0 => String::new(),
        _ if is_copied(change) => format!(", {done} of {expected} device extents, {moved}"),
        _ => format!(", {done} of {expected} block groups emptied, {moved} moved"),
    };
    let seconds = time.as_secs_f64();
    match (change, outcome.control) {
        (Change::Add { .. }, _) => format!("Added: {device}."),
        (Change::Replace { path, .. }, Control::Continue) => {
            let errors = in_words(outcome.progress.left);
            format!("Replaced: {device} is {}{how_far} in {seconds:.1} s{errors}.", path.display())
        }
        (Change::Rejoin { .. }, Control::Continue) => {
            let errors = in_words(outcome.progress.left);
            format!("Rejoined: {device}{how_far} in {seconds:.1} s{errors}.")
        }
        (_, Control::Continue) if matches!(change, Change::Remove(_)) => {
            format!("Removed: {device}{how_far} in {seconds:.1} s.")
        }
        (_, Control::Continue) => format!("Resized: {device}{how_far} in {seconds:.1} s."),
        _ => format!("Stopped: {device} is as it was{how_far}; the same command goes on."),
    }
}

/// Returns true for a change that copies device extents, and empties none.
fn is_copied(change: &Change) -> bool {
    matches!(change, Change::Replace { .. } | Change::Rejoin { .. })
}

/// Number of errors that could not be corrected, if there are any.
fn in_words(uncorrectable: u64) -> String {
    match uncorrectable {
        0 => String::new(),
        number => format!("; {number} errors could not be corrected, the log has them"),
    }
}

/// Result for programs.
fn report_json(change: &Change, outcome: &Changed) -> Value {
    json!({
        "change": word(change),
        "state": if outcome.control == Control::Continue { "done" } else { "stopped" },
        "devid": outcome.devid,
        "block_groups": outcome.progress.expected,
        "done": outcome.progress.done,
        "moved_bytes": outcome.progress.moved_bytes,
        "uncorrectable_errors": if is_copied(change) { outcome.progress.left } else { 0 },
    })
}
