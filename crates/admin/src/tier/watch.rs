//! Keeping metadata on the fast devices as it grows.

use super::apply::apply_locked;
use super::fence::refuse_if_busy;
use super::{ApplyOptions, Fences, Inventory, Observer, StateDirectory, TierError, recover};
use crate::control::{ControlError, Mounted};
use crate::sysfs;
use brindle_care::tier::keep::{Kept, Looked, Retry, keep};
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::plan::{devices_needed, fences_for};
use brindle_policy::tier::watch::{Fullness, Marks, is_fence_due};
use brindle_policy::tier::{Content, TierPool};
use std::thread;
use std::time::{Duration, Instant};

/// Options of watching a pool.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Interval between two looks.
    pub interval: Duration,
    /// When a fence is due.
    pub marks: Marks,
    /// Options of putting right what has gone wrong.
    pub apply: ApplyOptions,
}

/// Interval at which a keeper is asked to stop.
const TICK: Duration = Duration::from_millis(50);

/// Watches until the observer says to stop; then no fence stands.
pub fn watch(
    mounted: &Mounted,
    directory: &StateDirectory,
    classify: &dyn Fn(&Inventory) -> TierPool,
    options: &WatchOptions,
    observer: &mut dyn Observer,
) -> Result<(), TierError> {
    let fsid = Uuid(mounted.filesystem()?.fsid);
    let _lock = directory.lock(&fsid, options.apply.patience)?;
    if !recover(mounted, directory, &fsid)?.is_empty() {
        observer.recovered();
    }
    let devices = devids(&mounted.inventory()?);
    let fences = Fences::new(mounted, directory, &fsid);
    let mut guard = Guard {
        mounted,
        directory,
        classify,
        options,
        observer,
        fsid,
        devices,
        fences,
        seen: None,
        retry: Retry::default(),
    };
    let ended = keep(&mut guard, options.interval);
    guard.fences.open_after(ended.map(|_| ()))
}

/// Waits, unless it is told to stop. Returns false then.
pub(crate) fn pause(time: Duration, is_stopped: &dyn Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !is_stopped() {
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return true;
        }
        thread::sleep(TICK.min(left));
    }
    false
}

struct Guard<'a> {
    mounted: &'a Mounted,
    directory: &'a StateDirectory,
    classify: &'a dyn Fn(&Inventory) -> TierPool,
    options: &'a WatchOptions,
    observer: &'a mut dyn Observer,
    fsid: Uuid,
    devices: Vec<DevId>,
    fences: Fences<'a>,
    /// Length of the metadata chunks when they were last looked at one by one.
    seen: Option<u64>,
    /// The rule of trying again to put things right.
    retry: Retry,
}

impl Kept for Guard<'_> {
    type Error = TierError;

    fn look(&mut self) -> Result<Looked, TierError> {
        match self.look_closely() {
            Ok(()) => Ok(Looked::There),
            Err(TierError::Busy(operation)) => Ok(Looked::Busy(format!("the pool is busy: {operation}"))),
            Err(TierError::Control(error @ ControlError::Busy { .. })) => Ok(Looked::Busy(error.to_string())),
            Err(error) => Err(error),
        }
    }

    fn pause(&mut self, time: Duration) -> bool {
        pause(time, &|| self.observer.is_stopped())
    }
}

impl Guard<'_> {
    fn look_closely(&mut self) -> Result<(), TierError> {
        let fullness = |content| sysfs::fullness(&self.fsid, content).unwrap_or_default();
        let (metadata, data) = (fullness("metadata"), fullness("data"));
        let stands = self.fences.is_closed();
        let is_due = self.seen != Some(metadata.total_bytes) || self.retry.is_due(Instant::now());
        match (stands, is_fence_due(metadata, data, self.options.marks, stands)) {
            // What lies wrong moves first: the fence may stand for long.
            (false, true) if !is_due => self.close(metadata)?,
            (true, false) => {
                self.fences.open()?;
                tracing::info!("fence down: {} bytes of metadata chunks", metadata.total_bytes);
            }
            _ => {}
        }
        if is_due && !self.fences.is_closed() { self.put_right(metadata) } else { Ok(()) }
    }

    /// Puts the fence up, if that can do any good.
    fn close(&mut self, metadata: Fullness) -> Result<(), TierError> {
        refuse_if_busy(&self.fsid)?;
        let inventory = self.mounted.inventory()?;
        if devids(&inventory) != self.devices {
            return Err(TierError::OtherDevices);
        }
        let pool = (self.classify)(&inventory);
        let trees = pool.chunks.iter().filter(|chunk| chunk.content() == Content::Metadata);
        // A new one will be as the last one is.
        let Some(kind) = trees.max_by_key(|chunk| chunk.logical).map(|chunk| chunk.kind) else {
            return Ok(());
        };
        let Some(needed) = devices_needed(&pool, kind) else { return Ok(()) };
        let fast = pool.devices_for(kind, PlacementClass::Fast).into_iter();
        let roomy = fast.filter(|device| !pool.gaps(device.devid, device.total_bytes).is_empty()).count();
        if roomy < needed {
            tracing::debug!("the fast devices have no room for a metadata chunk");
            return Ok(());
        }
        self.fences.close(&fences_for(&pool, kind), &inventory.devices)?;
        tracing::info!(
            "fence up: {} of {} bytes of metadata chunks are taken",
            metadata.taken_bytes,
            metadata.total_bytes
        );
        Ok(())
    }

    /// Moves metadata that lies wrong all the same. A failure is told, and is no reason to stop.
    fn put_right(&mut self, metadata: Fullness) -> Result<(), TierError> {
        if devids(&self.mounted.inventory()?) != self.devices {
            return Err(TierError::OtherDevices);
        }
        match apply_locked(self.mounted, self.directory, self.classify, &self.options.apply, self.observer) {
            Ok(_) => self.retry.succeed(),
            Err(error @ (TierError::Refused(_) | TierError::Stuck { .. })) => {
                tracing::warn!("{error}");
                self.retry.fail(Instant::now());
            }
            Err(error) => return Err(error),
        }
        self.seen = Some(sysfs::fullness(&self.fsid, "metadata").unwrap_or(metadata).total_bytes);
        Ok(())
    }
}

fn devids(inventory: &Inventory) -> Vec<DevId> {
    inventory.devices.iter().map(|device| device.devid).collect()
}
