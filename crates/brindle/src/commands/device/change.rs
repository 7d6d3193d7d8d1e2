//! A change of a pool's devices carried out: by this process on a pool that is not mounted, by the one that serves a
//! mount, or by the kernel.

use crate::cli::JsonOption;
use crate::commands::balance::work::{explain_silence, progress_bar, progress_of, show, wish_at_end};
use crate::commands::device_word::refuse_twice;
use crate::commands::mount_options::MountOptions;
use crate::commands::pool::open_writable;
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::Mounted;
use brindle_care::balance::{Progress, Wish};
use brindle_care::device::{AddOptions, Leaving, NewSize, Newcomer, add, prepare, remove, resize};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, Host, SystemHost};
use brindle_ondisk::{DevId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, Uuid};
use brindle_policy::placement::PlacementClass;
use brindle_uapi::message::{
    DEVICE_ADD, DEVICE_BULK, DEVICE_DISCARD, DEVICE_FAST, DEVICE_FORCE, DEVICE_REMOVE, DEVICE_RESIZE,
    DeviceStart, SIZE_GROW, SIZE_MAX, SIZE_SHRINK, SIZE_TO, field,
};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

/// Interval of polling the progress of a mount.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The pool, where it is not a mount.
#[derive(Args, Debug)]
pub(crate) struct UnmountedPool {
    /// The devices of a pool that is not mounted, in place of PATH
    #[arg(long, value_name = "DEVICE", num_args = 1..)]
    pub(crate) pool: Vec<PathBuf>,
    /// For a pool that is not mounted: degraded (go on without missing devices)
    #[arg(short, long = "options", value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}

impl UnmountedPool {
    /// Values of the operands, and the pool: that of the mount that is the last of them, unless devices are given.
    /// `what` is one of those that belong before it.
    pub(crate) fn with_operands<'o>(
        &self,
        operands: &'o [PathBuf],
        what: &str,
    ) -> Result<(&'o [PathBuf], Place)> {
        match operands.split_last() {
            Some((_, [])) if self.pool.is_empty() => wrong_usage(format!(
                "{what} and a mounted directory are needed, or --pool with the devices of the pool"
            )),
            Some((mount, named)) if self.pool.is_empty() => Ok((named, Place::of_mount(mount)?)),
            _ => Ok((operands, Place::of_devices(&self.pool, &self.options)?)),
        }
    }
}

/// Location of the pool.
pub(crate) enum Place {
    /// Served by the kernel.
    Kernel(Mounted),
    /// Served by another process.
    Brindle(Mounted),
    /// Opened by this one.
    Open(Box<Filesystem>),
}

impl Place {
    /// The pool of a mount point.
    pub(crate) fn of_mount(path: &Path) -> Result<Self> {
        let mounted = Mounted::open(path)?;
        Ok(if mounted.is_of_kernel() { Self::Kernel(mounted) } else { Self::Brindle(mounted) })
    }

    /// The pool on these devices.
    pub(crate) fn of_devices(paths: &[PathBuf], options: &[String]) -> Result<Self> {
        let options = MountOptions::parse(options)?;
        if let Some(option) = options.first_of_mount() {
            return wrong_usage(format!("unknown option '{option}': here -o takes degraded and device=PATH"));
        }
        let open = |path: &PathBuf| -> Result<Arc<dyn WritableDevice>> {
            Ok(Arc::new(FileDevice::open_writable(path)?))
        };
        refuse_twice(paths.iter().chain(&options.devices).map(PathBuf::as_path))?;
        let devices = paths.iter().chain(&options.devices).map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self::Open(Box::new(open_writable(devices, &options)?)))
    }

    /// The device that a word is for: `missing`, an id, or the path of a device.
    pub(crate) fn leaving(&self, word: &Path) -> Result<Leaving> {
        if word.as_os_str() == "missing" {
            return Ok(Leaving::Missing);
        }
        match word.to_str().and_then(|word| word.parse().ok()) {
            Some(0) => return wrong_usage("no device has the id 0".to_owned()),
            Some(devid) => return Ok(Leaving::Id(DevId::new(devid))),
            None => {}
        }
        let device = FileDevice::open(word)?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes)?;
        let superblock = Superblock::from_bytes(&bytes);
        if !superblock.has_magic() || superblock.fsid != self.fsid()? {
            bail!("{}: not a device of this pool", word.display());
        }
        Ok(Leaving::Id(superblock.dev_item.devid))
    }

    /// Refuses to add a device that the pool has, and is there.
    pub(crate) fn refuse_member(&self, path: &Path) -> Result<()> {
        let (Ok(device), mut bytes) = (FileDevice::open(path), [0; SUPERBLOCK_SIZE]) else { return Ok(()) };
        if device.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).is_err() {
            return Ok(());
        }
        let superblock = Superblock::from_bytes(&bytes);
        if superblock.has_magic() && self.uuids()?.contains(&superblock.dev_item.uuid) {
            bail!("{} is a device of this pool, devid {}", path.display(), superblock.dev_item.devid);
        }
        Ok(())
    }

    /// Of the devices that are there.
    fn uuids(&self) -> Result<Vec<Uuid>> {
        Ok(match self {
            Self::Kernel(mounted) | Self::Brindle(mounted) => {
                let devices = mounted.device_infos()?.into_iter();
                devices.filter(|device| device.path[0] != 0).map(|device| Uuid(device.uuid)).collect()
            }
            Self::Open(filesystem) => {
                let devices = filesystem.pool().volume().devices().into_iter();
                devices.filter(|device| !device.missing).map(|device| device.uuid).collect()
            }
        })
    }

    pub(crate) fn fsid(&self) -> Result<Uuid> {
        match self {
            Self::Kernel(mounted) | Self::Brindle(mounted) => Ok(Uuid(mounted.filesystem()?.fsid)),
            Self::Open(filesystem) => Ok(filesystem.pool().superblock().fsid),
        }
    }
}

/// Change of the devices.
pub(crate) enum Change {
    /// A device joins.
    Add { path: PathBuf, class: Option<PlacementClass>, options: AddOptions },
    /// A device leaves.
    Remove(Leaving),
    /// A device gets another size.
    Resize(DevId, NewSize),
}

/// Result of a change.
struct Outcome {
    devid: Option<u64>,
    progress: Progress,
    wish: Wish,
}

/// Does one after the other, and says what came of each.
pub(crate) fn run(place: &Place, changes: &[Change], json: JsonOption) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let mut reports = Vec::new();
    let mut ended = ExitCode::SUCCESS;
    for change in changes {
        let bar = progress_bar();
        let begun = Instant::now();
        let done = match place {
            Place::Kernel(mounted) => by_kernel(mounted, change),
            Place::Brindle(mounted) => on_mount(mounted, change, &stop, &bar),
            Place::Open(filesystem) => on_devices(filesystem, change, &stop, &bar),
        };
        bar.finish_and_clear();
        let outcome = done?;
        if json.json {
            reports.push(change.report_json(&outcome));
        } else {
            let mut out = output::stdout();
            writeln!(out, "{}", change.report(&outcome, begun.elapsed()))?;
            out.flush()?;
        }
        if outcome.wish != Wish::GoOn {
            ended = stop.name_and_code().map_or(ExitCode::FAILURE, |(_, code)| ExitCode::from(code));
            break;
        }
    }
    if let Place::Open(filesystem) = place {
        filesystem.shutdown()?;
    }
    if json.json {
        output::print_json(&json!({ "changes": reports }))?;
    }
    Ok(ended)
}

/// Gives a device a larger size, in bytes, without a word.
pub(crate) fn resize_to(place: &Place, devid: DevId, bytes: u64) -> Result<()> {
    let change = Change::Resize(devid, NewSize::To(bytes));
    let (stop, bar) = (Stop::default(), ProgressBar::hidden());
    let outcome = match place {
        Place::Kernel(mounted) => by_kernel(mounted, &change),
        Place::Brindle(mounted) => on_mount(mounted, &change, &stop, &bar),
        Place::Open(filesystem) => on_devices(filesystem, &change, &stop, &bar),
    };
    match outcome?.wish {
        Wish::GoOn => Ok(()),
        Wish::Pause | Wish::Cancel => bail!("stopped before device {devid} had its size"),
    }
}

fn on_devices(filesystem: &Filesystem, change: &Change, stop: &Stop, bar: &ProgressBar) -> Result<Outcome> {
    let pool = filesystem.pool();
    let mut watcher = |progress: &Progress| {
        show(bar, progress);
        if stop.is_set() { Wish::Cancel } else { Wish::GoOn }
    };
    let (devid, ended) = match change {
        Change::Add { path, class, options } => {
            let new = Newcomer::open(path, SystemHost.new_uuid(), *class)?;
            let devids = add(pool, &[new], options)?;
            let devid = devids.first().map(|devid| devid.get());
            return Ok(Outcome { devid, progress: Progress::default(), wish: Wish::GoOn });
        }
        Change::Remove(which) => (which.devid(), remove(pool, *which, &mut watcher)?),
        Change::Resize(devid, size) => (Some(devid.get()), resize(pool, *devid, *size, &mut watcher)?),
    };
    Ok(Outcome { devid, progress: ended.progress, wish: ended.wish })
}

fn by_kernel(mounted: &Mounted, change: &Change) -> Result<Outcome> {
    let devid = match change {
        Change::Add { class: Some(_), .. } => {
            bail!("the kernel keeps no classes: leave :fast and :bulk away, and see `brindle property`")
        }
        Change::Add { path, options, .. } => {
            let path = path.canonicalize().with_context(|| path.display().to_string())?;
            // It has to be free again when the kernel takes it.
            prepare(&FileDevice::open_writable(&path)?, options)?;
            mounted.add_device(&path)?;
            None
        }
        Change::Remove(which) => {
            mounted.remove_device(which.devid().map(DevId::new))?;
            which.devid()
        }
        Change::Resize(devid, size) => {
            mounted.resize_device_to(*devid, &size.to_string())?;
            Some(devid.get())
        }
    };
    Ok(Outcome { devid, progress: Progress::default(), wish: Wish::GoOn })
}

fn on_mount(mounted: &Mounted, change: &Change, stop: &Stop, bar: &ProgressBar) -> Result<Outcome> {
    if let Err(error) = mounted.start_device_change(change.message()?) {
        let report = mounted.device_report()?;
        let running = match report.change {
            _ if report.is_running == 0 => return Err(error.into()),
            DEVICE_ADD => "device add",
            DEVICE_REMOVE => "device remove",
            _ => "filesystem resize",
        };
        bail!("another operation is under way on this pool, a {running}: wait for its end, or end it");
    }
    let mut is_told = false;
    loop {
        let report = mounted.device_report().map_err(explain_silence)?;
        let progress = progress_of(&report.work);
        show(bar, &progress);
        if report.is_running == 0 {
            let devid = Some(report.devid).filter(|devid| *devid != 0);
            return Ok(Outcome { devid, progress, wish: wish_at_end(&report.work)? });
        }
        if stop.is_set() && !is_told {
            is_told = true;
            mounted.stop_device_change()?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Change {
    /// For the process that serves a mount: it opens a device that joins, by a path that it understands.
    fn message(&self) -> Result<DeviceStart> {
        let mut message = DeviceStart::new_zeroed();
        match self {
            Self::Add { path, class, options } => {
                let path = path.canonicalize().with_context(|| path.display().to_string())?;
                message.change = DEVICE_ADD;
                message.path = field(path.as_os_str().as_bytes()).context("the path is too long")?;
                let flags = [
                    (options.force, DEVICE_FORCE),
                    (options.discard, DEVICE_DISCARD),
                    (*class == Some(PlacementClass::Fast), DEVICE_FAST),
                    (*class == Some(PlacementClass::Bulk), DEVICE_BULK),
                ];
                message.flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
            }
            Self::Remove(which) => {
                (message.change, message.devid) = (DEVICE_REMOVE, which.devid().unwrap_or(0));
            }
            Self::Resize(devid, size) => {
                (message.change, message.devid) = (DEVICE_RESIZE, devid.get());
                (message.size_kind, message.size_bytes) = match *size {
                    NewSize::Max => (SIZE_MAX, 0),
                    NewSize::To(bytes) => (SIZE_TO, bytes),
                    NewSize::Grow(bytes) => (SIZE_GROW, bytes),
                    NewSize::Shrink(bytes) => (SIZE_SHRINK, bytes),
                };
            }
        }
        Ok(message)
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Remove(_) => "remove",
            Self::Resize(..) => "resize",
        }
    }

    fn report(&self, outcome: &Outcome, time: Duration) -> String {
        let Progress { expected, done, moved_bytes, .. } = outcome.progress;
        let moved = UnitMode::DEFAULT.format(moved_bytes);
        let device = match (self, outcome.devid) {
            (Self::Add { path, .. }, Some(devid)) => format!("{} is devid {devid}", path.display()),
            (Self::Add { path, .. }, None) => path.display().to_string(),
            (_, Some(devid)) => format!("devid {devid}"),
            (_, None) => "the missing device".to_owned(),
        };
        let how_far = match expected {
            0 => String::new(),
            _ => format!(", {done} of {expected} block groups emptied, {moved} moved"),
        };
        let seconds = time.as_secs_f64();
        match (self, outcome.wish) {
            (Self::Add { .. }, _) => format!("Added: {device}."),
            (_, Wish::GoOn) if matches!(self, Self::Remove(_)) => {
                format!("Removed: {device}{how_far} in {seconds:.1} s.")
            }
            (_, Wish::GoOn) => format!("Resized: {device}{how_far} in {seconds:.1} s."),
            _ => format!("Stopped: {device} is as it was{how_far}; the same command goes on."),
        }
    }

    fn report_json(&self, outcome: &Outcome) -> Value {
        json!({
            "change": self.word(),
            "state": if outcome.wish == Wish::GoOn { "done" } else { "stopped" },
            "devid": outcome.devid,
            "block_groups": outcome.progress.expected,
            "done": outcome.progress.done,
            "moved_bytes": outcome.progress.moved_bytes,
        })
    }
}
