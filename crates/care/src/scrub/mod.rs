//! Scrub: what all devices hold of the last commit is read, verified, and written anew where it is wrong and another copy,
//! or parity, is right. How one piece of a device is verified, and why its repair is safe beside writers and crashes, says
//! the module `scrub` of `volume`; which contents are committed, `committed` of `tree`.
//!
//! The walk: first the copies of the superblock, one device after the other, so that disks that sleep are woken one after
//! the other. Then each device has a thread of its own, which goes through its device extents in the order of their
//! addresses ([`walk`]), windows of [`WINDOW_BYTES`] each. Of [`WINDOWS_UNDER_WAY`], the oldest is verified while the others are being read. A chunk
//! that is made or moved meanwhile to a place that was passed is of contents that were just written.
//!
//! **A view of the last commit lives as long as two windows at most.** Freed space waits for it; a thread that has to wait for
//! its turn ([`Scrub::set_limit`]) holds none.
//!
//! **State.** The place and the counts of each device are in memory ([`Scrub::report`]); the caller stores them from time to
//! time ([`record`]). A scrub that was interrupted, by a cancellation or a crash, goes on from there ([`Plan`]): windows
//! that were verified since the last time are verified again. So does one that left devices that were asleep. What was not correct, with the names of its files
//! ([`names`]), is kept up to [`FAULTS_MAX`], a few places of each file ([`kept`]). Faults of a window that are alike are one
//! ([`joined`]), and in the log those of many windows.

mod carry_out;
mod damaged;
pub(crate) mod joined;
mod kept;
pub(crate) mod names;
mod record;
mod walk;

/// Ids of devices, as they are asked for here.
pub use brindle_ondisk::DevId;
pub use carry_out::{ScrubJob, ScrubObserver, carry_out};
pub use damaged::{DamagedFile, damaged_files};
pub use record::{RecordError, ScrubRecord};

use brindle_device::DeviceError;
use brindle_fs::{Filesystem, FsError};
use brindle_tree::TreeError;
use brindle_volume::DeviceTraffic;
pub use brindle_volume::ScrubCounts;
use kept::Kept;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes of a device that are looked at as one.
pub(crate) const WINDOW_BYTES: u64 = 1 << 20;
/// Windows of a device that are under way at once: the device has enough to do while one is verified.
pub(crate) const WINDOWS_UNDER_WAY: usize = 4;
/// Number of faults that are kept; the others are counted. Several that follow each other may be one.
pub const FAULTS_MAX: usize = 1000;

/// Error of a scrub.
#[derive(Debug, Error)]
pub enum ScrubError {
    /// The pool has no such device, or it is missing.
    #[error("there is no device of id {0}")]
    NoDevice(DevId),
    /// Every device was scrubbed to its end.
    #[error("there is nothing to resume")]
    NothingToResume,
    /// A device that is there answers no read.
    #[error("the device does not answer: {0}")]
    NoAnswer(DeviceError),
    /// The pool could not be read or written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Names of files could not be looked up.
    #[error(transparent)]
    Files(#[from] FsError),
}

/// State of the scrub of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceState {
    /// Being scrubbed, or about to be.
    #[default]
    Running,
    /// All of it was looked at.
    Finished,
    /// Cancelled, or interrupted.
    Cancelled,
    /// Left for later, for it was asleep: commits had nothing for it.
    Asleep,
    /// The device is not there.
    Missing,
    /// Ended by an error.
    Failed(String),
}

/// Progress of the scrub of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProgress {
    /// The device.
    pub devid: DevId,
    /// Its name in messages.
    pub name: String,
    /// State.
    pub state: DeviceState,
    /// Findings.
    pub counts: ScrubCounts,
    /// Address on the device up to which it was scrubbed.
    pub last_physical: u64,
    /// Bytes of the device that belong to chunks.
    pub total_bytes: u64,
    /// Bytes of these that were passed.
    pub done_bytes: u64,
    /// Limit in bytes a second; 0 for none.
    pub limit: u64,
    /// Time that it has taken.
    pub duration: Duration,
}

/// Content that was not corrected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The content, in words: addresses, the problem.
    pub text: String,
    /// Files that it belongs to: path and first offset in it.
    pub files: Vec<(Vec<u8>, u64)>,
    /// Number of errors that it is.
    pub errors: u64,
}

/// Devices to be scrubbed, and where to begin.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The devices; all of the pool if there are none.
    pub devices: Vec<DevId>,
    /// Report of an interrupted scrub, to go on from.
    pub resumed: Option<ScrubReport>,
    /// True if nothing is written: errors are only looked for.
    pub read_only: bool,
    /// Limit of each device, in bytes a second; 0 for none.
    pub limit: u64,
    /// True if devices that are asleep are left for later: nothing is read of them but what a repair needs.
    pub leaves_sleeping: bool,
}

/// Progress of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Progress of each device.
    pub devices: Vec<DeviceProgress>,
    /// Content that was not corrected.
    pub faults: Vec<Fault>,
    /// Number of these errors, also of those that are not kept.
    pub fault_count: u64,
    /// Number of those whose files may not be among the ones that `faults` name.
    pub unlisted: u64,
}

impl ScrubReport {
    /// Findings on all devices.
    pub fn counts(&self) -> ScrubCounts {
        let mut sum = ScrubCounts::default();
        self.devices.iter().for_each(|device| sum.add(&device.counts));
        sum
    }

    /// Number of errors that are counted and not kept.
    pub fn left_out(&self) -> u64 {
        self.fault_count.saturating_sub(self.faults.iter().map(|fault| fault.errors).sum())
    }

    /// Returns true while a device is being scrubbed.
    pub fn is_running(&self) -> bool {
        self.devices.iter().any(|device| device.state == DeviceState::Running)
    }

    /// Devices that were left for later, for they were asleep.
    pub fn left(&self) -> impl Iterator<Item = &DeviceProgress> {
        self.devices.iter().filter(|device| device.state == DeviceState::Asleep)
    }

    /// Returns true if a device was not scrubbed to its end, and can be.
    pub fn is_cancelled(&self) -> bool {
        self.devices.iter().any(|device| device.state == DeviceState::Cancelled)
    }
}

/// A scrub, from its beginning on.
#[derive(Debug)]
pub struct Scrub {
    read_only: bool,
    shared: Mutex<Shared>,
    /// Signalled when a device is to stop, or has another limit.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    report: ScrubReport,
    kept: Kept,
    is_stopped: bool,
}

impl Scrub {
    /// Plans the scrub of a pool.
    pub fn new(filesystem: &Filesystem, plan: &Plan) -> Result<Self, ScrubError> {
        let volume = filesystem.pool().volume();
        let all: Vec<_> = volume.devices().into_iter().filter(|device| !device.is_seed).collect();
        if let Some(unknown) = plan.devices.iter().find(|id| all.iter().all(|device| device.devid != **id)) {
            return Err(ScrubError::NoDevice(*unknown));
        }
        let mut sizes: BTreeMap<DevId, u64> = BTreeMap::new();
        for stripe in volume.chunks().iter().flat_map(|chunk| &chunk.stripes) {
            *sizes.entry(stripe.devid).or_default() += stripe.length;
        }
        let is_meant = |devid: &DevId| plan.devices.is_empty() || plan.devices.contains(devid);
        let asleep = if plan.leaves_sleeping { sleeping(filesystem) } else { BTreeSet::new() };
        let mut devices = Vec::new();
        for device in all.into_iter().filter(|device| is_meant(&device.devid)) {
            let before = plan.resumed.as_ref().map(|resumed| &resumed.devices);
            let before = before.map(|devices| devices.iter().find(|before| before.devid == device.devid));
            let mut progress = match before {
                // A device that joined since is for the next scrub.
                Some(None) => continue,
                Some(Some(before)) => before.clone(),
                None => DeviceProgress::default(),
            };
            (progress.devid, progress.name) = (device.devid, device.name);
            progress.total_bytes = sizes.get(&device.devid).copied().unwrap_or(0);
            progress.limit = plan.limit;
            if progress.state != DeviceState::Finished {
                progress.state = match () {
                    () if device.missing => DeviceState::Missing,
                    () if asleep.contains(&device.devid) => DeviceState::Asleep,
                    () => DeviceState::Running,
                };
            }
            devices.push(progress);
        }
        let report = ScrubReport { devices, ..plan.resumed.clone().unwrap_or_default() };
        if plan.resumed.is_some() && !report.is_running() && report.left().next().is_none() {
            return Err(ScrubError::NothingToResume);
        }
        let kept = Kept::of(&report.faults);
        let shared = Mutex::new(Shared { report, kept, is_stopped: false });
        Ok(Self { read_only: plan.read_only, shared, changed: Condvar::new() })
    }

    /// Scrubs; returns at the end.
    pub fn run(&self, filesystem: &Filesystem) -> Result<(), ScrubError> {
        let repairs = !self.read_only && filesystem.is_writable();
        let running: Vec<DeviceProgress> = self.report().devices;
        let running: Vec<_> = running.into_iter().filter(|it| it.state == DeviceState::Running).collect();
        for device in running.iter().filter(|device| device.last_physical == 0) {
            if self.is_stopped() {
                break;
            }
            // Its walk tells of one that does not answer.
            if filesystem.pool().volume().probe(device.devid).is_ok() {
                self.scrub_superblocks(filesystem, device.devid, repairs)?;
            }
        }
        std::thread::scope(|scope| {
            for device in &running {
                scope.spawn(move || self.walk_device(filesystem, device, repairs));
            }
        });
        Ok(())
    }

    /// Ends it, as soon as each device has done with its window.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Limits the bytes of a device that are read in a second; 0 for no limit. Returns false if the device is not scrubbed.
    pub fn set_limit(&self, devid: DevId, bytes: u64) -> bool {
        let mut shared = self.lock();
        let found = shared.report.devices.iter_mut().find(|device| device.devid == devid);
        let is_there = found.map(|device| device.limit = bytes).is_some();
        self.changed.notify_all();
        is_there
    }

    /// Progress.
    pub fn report(&self) -> ScrubReport {
        self.lock().report.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Changes what is said of a device.
    fn update(&self, devid: DevId, change: impl FnOnce(&mut DeviceProgress)) {
        let mut shared = self.lock();
        if let Some(device) = shared.report.devices.iter_mut().find(|device| device.devid == devid) {
            change(device);
        }
    }

    /// Keeps a fault, if there is room.
    fn keep(&self, fault: Fault) {
        let Shared { report, kept, .. } = &mut *self.lock();
        report.fault_count += fault.errors;
        if kept.takes(&fault) {
            report.faults.push(fault);
        } else if !kept.lists(&fault) {
            report.unlisted += fault.errors;
        }
    }

    /// The files of some errors could not be found.
    fn has_unnamed(&self, errors: u64) {
        self.lock().report.unlisted += errors;
    }

    fn scrub_superblocks(
        &self,
        filesystem: &Filesystem,
        devid: DevId,
        repairs: bool,
    ) -> Result<(), ScrubError> {
        let (found, is_right) = filesystem.pool().scrub_superblocks(devid, repairs)?;
        let number = brindle_ondisk::to_u64(found.wrong.len());
        self.update(devid, |device| {
            let counts = &mut device.counts;
            counts.super_errors += number;
            match (is_right, repairs) {
                (true, _) => counts.corrected_errors += number,
                (false, _) => counts.correctable_errors += number,
            }
        });
        if !is_right && repairs {
            for (copy, problem) in found.wrong {
                let text = format!("devid {devid}: copy {copy} of the superblock: {problem}");
                tracing::error!("scrub: {text}");
                self.keep(Fault { text, files: Vec::new(), errors: 1 });
            }
        }
        Ok(())
    }

    /// Waits until a device may go on that has read some bytes since the beginning of its turn, or is to stop.
    fn wait_for_turn(&self, devid: DevId, bytes: u64, since: Instant) {
        let mut shared = self.lock();
        loop {
            let limit = shared.report.devices.iter().find(|device| device.devid == devid);
            let limit = limit.map_or(0, |device| device.limit);
            if shared.is_stopped || limit == 0 {
                return;
            }
            let owed = crate::job::Pace { rate: limit }.owed(bytes, since.elapsed());
            if owed.is_zero() {
                return;
            }
            shared = self.changed.wait_timeout(shared, owed).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Devices that commits leave alone, and of which nothing is asked now.
fn sleeping(filesystem: &Filesystem) -> BTreeSet<DevId> {
    let traffic = filesystem.pool().volume().traffic().into_iter();
    let is_unasked = |device: &DeviceTraffic| device.traffic.is_none_or(|traffic| traffic.in_flight == 0);
    traffic.filter(|device| device.is_asleep && is_unasked(device)).map(|device| device.devid).collect()
}
