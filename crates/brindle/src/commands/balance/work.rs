//! A balance carried out: by this process on a pool that is not mounted, or by the one that serves a mount.

use crate::commands::mount_options::MountOptions;
use crate::commands::pool::open_writable;
use crate::commands::stop::Stop;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use brindle_admin::{ControlError, Mounted};
use brindle_care::balance::{self, Pace, Progress, Wish};
use brindle_device::{FileDevice, WritableDevice};
use brindle_fs::{Filesystem, PlacementClass};
use brindle_ondisk::item::BalanceItem;
use brindle_policy::balance::Balance;
use brindle_uapi::message::{
    BALANCE_FORCE, BALANCE_REPORT_PAUSED, BALANCE_REPORT_RUNNING, BALANCE_RESUME, BALANCE_STOP_CANCEL,
    BalanceStart, WORK_ENDED_CANCELLED, WORK_ENDED_FAILED, WORK_ENDED_PAUSED, WorkReport, text,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Interval of polling the progress of a mount.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Location of the pool.
pub(crate) enum Place {
    /// Served by another process.
    Mounted(Mounted),
    /// Opened by this one.
    Open(Box<Filesystem>),
}

/// Request for a balance.
pub(crate) struct Job {
    /// New balance; `None` to resume one.
    pub(crate) balance: Option<Balance>,
    /// Metadata may have fewer copies afterwards.
    pub(crate) force: bool,
    /// No more bytes in a second.
    pub(crate) rate: Option<u64>,
}

impl Place {
    /// The pool of a mount point, or of devices.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Self> {
        Self::open_as(paths, BTreeMap::new())
    }

    /// The same; devices that are not mounted have these classes, by their names.
    pub(crate) fn open_as(paths: &[PathBuf], classes: BTreeMap<String, PlacementClass>) -> Result<Self> {
        match paths {
            [path] if path.is_dir() => Self::of_mount(path),
            paths if paths.iter().any(|path| path.is_dir()) => {
                bail!(
                    "give either one directory of a mounted pool, or the devices of one that is not mounted"
                )
            }
            paths => {
                let open = |path: &PathBuf| -> Result<Arc<dyn WritableDevice>> {
                    Ok(Arc::new(FileDevice::open_writable(path)?))
                };
                let devices = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
                let mut options = MountOptions::default();
                options.write.classes = classes;
                Ok(Self::Open(Box::new(open_writable(devices, &options)?)))
            }
        }
    }

    /// Gives up an interrupted balance of misplaced block groups alone: a new one goes on with it. Returns true if
    /// there was one.
    pub(crate) fn forget_misplaced(&self) -> Result<bool> {
        match self {
            Self::Open(filesystem) => {
                let kept = balance::interrupted(filesystem.pool())?;
                Ok(kept.is_some_and(|kept| kept.is_for_misplaced_alone())
                    && balance::forget(filesystem.pool())?)
            }
            Self::Mounted(mounted) => {
                let report = mounted.balance_report()?;
                let item = BalanceItem::read_from_bytes(&report.item).ok().context("no balance item")?;
                let is_ours = Balance::from_item(&item).is_for_misplaced_alone();
                Ok(report.state == BALANCE_REPORT_PAUSED
                    && is_ours
                    && mounted.stop_balance(BALANCE_STOP_CANCEL)?)
            }
        }
    }

    fn of_mount(path: &Path) -> Result<Self> {
        let mounted = Mounted::open(path)?;
        if mounted.is_of_kernel() {
            bail!("{}: mounted by the kernel, which balances by `btrfs balance`", path.display());
        }
        Ok(Self::Mounted(mounted))
    }
}

/// Does it, and says what came of it.
pub(crate) fn run(place: &Place, job: &Job) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let bar = progress_bar();
    let begun = Instant::now();
    let done = match place {
        Place::Mounted(mounted) => on_mount(mounted, job, &stop, &bar),
        Place::Open(filesystem) => on_devices(filesystem, job, &stop, &bar),
    };
    bar.finish_and_clear();
    let (progress, wish) = done?;
    let mut out = output::stdout();
    let bytes = UnitMode::DEFAULT.format(progress.moved_bytes);
    let (done, expected) = (progress.done, progress.expected);
    let is_for_wrong = job.balance.as_ref().is_some_and(Balance::is_for_misplaced_alone);
    match wish {
        Wish::GoOn if expected == 0 && is_for_wrong => writeln!(out, "Nothing to move.")?,
        Wish::GoOn => {
            let seconds = begun.elapsed().as_secs_f64();
            writeln!(out, "Done: {done} of {expected} block groups, {bytes} moved in {seconds:.1} s.")?;
        }
        Wish::Pause => writeln!(out, "Paused after {done} of {expected} block groups, {bytes} moved.")?,
        Wish::Cancel => writeln!(out, "Cancelled after {done} of {expected} block groups, {bytes} moved.")?,
    }
    out.flush()?;
    match stop.name_and_code().filter(|_| wish != Wish::GoOn) {
        Some((_, code)) => Ok(ExitCode::from(code)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn on_devices(
    filesystem: &Filesystem,
    job: &Job,
    stop: &Stop,
    bar: &ProgressBar,
) -> Result<(Progress, Wish)> {
    let begun = Instant::now();
    let pace = job.rate.map(|rate| Pace { rate });
    let mut watcher = |progress: &Progress| {
        show(bar, progress);
        loop {
            let owed = pace.map(|pace| pace.owed(progress.moved_bytes, begun.elapsed())).unwrap_or_default();
            if stop.is_set() {
                return Wish::Cancel;
            }
            if owed.is_zero() {
                return Wish::GoOn;
            }
            std::thread::sleep(owed.min(LOOK_EVERY));
        }
    };
    let ended = match &job.balance {
        Some(balance) => balance::start(filesystem, balance, job.force, &mut watcher),
        None => balance::resume(filesystem, &mut watcher),
    }?;
    filesystem.shutdown()?;
    Ok((ended.progress, ended.wish))
}

pub(crate) fn on_mount(
    mounted: &Mounted,
    job: &Job,
    stop: &Stop,
    bar: &ProgressBar,
) -> Result<(Progress, Wish)> {
    let mut start = BalanceStart { item: [0; 448], rate: job.rate.unwrap_or(0), flags: 0 };
    match &job.balance {
        Some(balance) => start.item.copy_from_slice(balance.to_item().as_bytes()),
        None => start.flags |= BALANCE_RESUME,
    }
    if job.force {
        start.flags |= BALANCE_FORCE;
    }
    mounted.start_balance(start)?;
    let mut is_told = false;
    loop {
        let report = mounted.balance_report().map_err(explain_silence)?;
        let progress = progress_of(&report.work);
        show(bar, &progress);
        if report.state != BALANCE_REPORT_RUNNING {
            return Ok((progress, wish_at_end(&report.work)?));
        }
        if stop.is_set() && !is_told {
            is_told = true;
            mounted.stop_balance(BALANCE_STOP_CANCEL)?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Progress in a report.
pub(crate) fn progress_of(report: &WorkReport) -> Progress {
    let WorkReport { expected, done, left, expected_bytes, moved_bytes, .. } = *report;
    Progress { expected, done, left, expected_bytes, moved_bytes }
}

/// Last request to work that has ended, or its error.
pub(crate) fn wish_at_end(report: &WorkReport) -> Result<Wish> {
    match report.ended {
        WORK_ENDED_FAILED => bail!("{}", String::from_utf8_lossy(text(&report.error))),
        WORK_ENDED_PAUSED => Ok(Wish::Pause),
        WORK_ENDED_CANCELLED => Ok(Wish::Cancel),
        _ => Ok(Wish::GoOn),
    }
}

/// Shows how far it is, on a terminal.
pub(crate) fn progress_bar() -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8))
    } else {
        ProgressBar::hidden()
    };
    let template = "{bar:24} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} eta {eta} {wide_msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
    bar
}

/// Explanation for a mount that answers no more about its long work.
pub(crate) fn explain_silence(error: ControlError) -> anyhow::Error {
    match &error {
        ControlError::Refused { path, source: Errno::NOTCONN | Errno::CONNABORTED, .. } => anyhow!(
            "{}: the process that served the mount is gone; the pool is whole, and may be as it was: mount it again, and \
             give the same command",
            path.display()
        ),
        _ => anyhow::Error::new(error).context("it may go on"),
    }
}

/// Brings it up to date.
pub(crate) fn show(bar: &ProgressBar, progress: &Progress) {
    if progress.expected_bytes.max(progress.moved_bytes) == 0 {
        // A bar of nothing would be drawn as a full one.
        return;
    }
    bar.set_length(progress.expected_bytes.max(progress.moved_bytes));
    bar.set_position(progress.moved_bytes);
    bar.set_message(format!("{} of {} block groups", progress.done, progress.expected));
}
