//! A device that is replaced by another.
//!
//! The walk: the target is checked, emptied of what it held, and marked ([`TargetMark`]) as one for this device; account is
//! kept of writes from then on, and what was written before is committed. Then the device extents are copied in the order of
//! their addresses, windows of [`WINDOW_BYTES`], by the trees of the last commit as a scrub has them; what was written
//! since is copied in between, and again at the end, each time less. The last of it is done with everything else waiting,
//! and with it the target takes over ([`Replacing::finish`]).
//!
//! The pool holds no record before that. Whatever ends it, the pool is as it was, and a target with the mark of the same
//! device is not emptied by the next attempt: what it has is verified by checksums instead of copied, and only data without
//! checksums is copied again.

use super::add::{check, empty};
use super::{AddOptions, DeviceCareError, Leaving, TargetMark, check_no_balance, mark};
use crate::job::{Control, Ended, Observer, Progress};
use crate::mkfs::signature;
use crate::scrub::joined::{Joined, Joining};
use crate::scrub::{WINDOW_BYTES, names};
use brindle_device::WritableDevice;
use brindle_fs::{ErrorKind, Filesystem, FsError};
use brindle_ondisk::{DevId, Physical};
use brindle_tree::{Committed, Pool, Replacing};
use brindle_volume::{Content, CopyOptions, CopyRead, DeviceStatus, ScrubFault, ScrubStripe};
use std::sync::Arc;

/// Number of windows after which the places written since are copied.
const WINDOWS_BETWEEN: u64 = 64;
/// With less than that left to be copied, the pool is made to wait, in bytes.
const LAST_BYTES: u64 = 8 << 20;
/// Number of times that what was written since is copied before the pool is made to wait.
const ROUNDS_MAX: usize = 16;

/// Options of replacing a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplaceOptions {
    /// Replace by a device even if that holds something.
    pub force: bool,
    /// The target's space is given back first.
    pub discard: bool,
    /// Read the device only where no other copy can be read.
    pub avoid_source: bool,
}

/// Replaces a device of the pool, missing or not, by another, which gets its id. The progress counts its device extents, their
/// bytes, and as left what was copied as wrong as it is everywhere, or could be read nowhere.
pub fn replace(
    filesystem: &Filesystem,
    which: Leaving,
    target: &Arc<dyn WritableDevice>,
    options: &ReplaceOptions,
    observer: Observer<'_>,
) -> Result<(DevId, Ended), DeviceCareError> {
    let pool = filesystem.pool();
    let _alone = pool.begin_exclusive("device replace")?;
    check_no_balance(pool)?;
    let source = which.find(pool)?;
    let verifies_target = prepare(pool, &source, target.as_ref(), options)?;
    let options = CopyOptions { avoids_source: options.avoid_source, verifies_target, is_itself: false };
    Ok((source.devid, carry_out(filesystem, &source, target, options, observer)?))
}

/// Copies everything to a marked target, which then takes the place of the device.
pub(super) fn carry_out(
    filesystem: &Filesystem,
    source: &DeviceStatus,
    target: &Arc<dyn WritableDevice>,
    options: CopyOptions,
    observer: Observer<'_>,
) -> Result<Ended, DeviceCareError> {
    let replacing = filesystem.pool().begin_replacement(source.devid, target)?;
    // What was written before is committed; from here on account is kept of the rest.
    sync_what_fits(filesystem)?;
    let mut copying = Copying::new(filesystem, &replacing, source, options, observer);
    let copied = copying.copy_device();
    if let Some(rest) = copying.untold.end() {
        copying.tell_loss(&rest);
    }
    copied?;
    let Copying { progress, control, lost_unverified, first_lost, .. } = copying;
    if control != Control::Continue {
        return Ok(Ended { progress, control });
    }
    if lost_unverified > 0 {
        return Err(DeviceCareError::LostUnverified { sectors: lost_unverified, first: first_lost });
    }
    for _ in 0..ROUNDS_MAX {
        if replacing.copies.copy_written()? < LAST_BYTES {
            break;
        }
    }
    replacing.finish(progress.left)?;
    if let Err(error) = mark::clear(target.as_ref()) {
        tracing::warn!("{} keeps the mark of a replacement: {error}", target.name());
    }
    Ok(Ended { progress, control })
}

/// Makes everything durable. Contents that found no room are for their writers to hear of.
fn sync_what_fits(filesystem: &Filesystem) -> Result<(), FsError> {
    let synced = filesystem.sync();
    let had_no_room = |error: &FsError| matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::QuotaExceeded);
    // Each loss is told once.
    if synced.as_ref().is_err_and(had_no_room) { filesystem.sync() } else { synced }
}

/// Checks a target, and empties and marks it; returns true if it has the mark already.
fn prepare(
    pool: &Pool,
    source: &DeviceStatus,
    target: &dyn WritableDevice,
    options: &ReplaceOptions,
) -> Result<bool, DeviceCareError> {
    let (device, size_bytes) = (target.name().to_owned(), target.size_bytes());
    let (devid, minimum_bytes) = (source.devid, source.total_bytes);
    if size_bytes < minimum_bytes {
        return Err(DeviceCareError::TargetTooSmall { device, size_bytes, devid, minimum_bytes });
    }
    let mark = TargetMark::of(pool, source);
    if mark.is_on(target.as_device())? && signature::find(target.as_device())?.is_none() {
        return Ok(true);
    }
    let as_added = AddOptions { force: options.force, discard: options.discard };
    check(target, &as_added)?;
    empty(target, &as_added)?;
    mark.write(target)?;
    Ok(false)
}

/// The copying of a device.
struct Copying<'c, 'o> {
    filesystem: &'c Filesystem,
    replacing: &'c Replacing<'c>,
    options: CopyOptions,
    name: String,
    observer: Observer<'o>,
    progress: Progress,
    control: Control,
    /// Bytes of the device extents before the present one.
    passed: u64,
    windows: u64,
    lost_unverified: u64,
    first_lost: String,
    /// Losses that are not in the log yet.
    untold: Joining,
}

/// A window that is being read.
struct UnderWay<'c> {
    // In the order in which they are to be dropped.
    read: CopyRead<'c>,
    view: Committed<'c>,
}

impl<'c, 'o> Copying<'c, 'o> {
    fn new(
        filesystem: &'c Filesystem,
        replacing: &'c Replacing<'c>,
        source: &DeviceStatus,
        options: CopyOptions,
        observer: Observer<'o>,
    ) -> Self {
        let chunks = filesystem.pool().volume().chunks();
        let own = chunks.iter().flat_map(|chunk| &chunk.stripes).filter(|it| it.devid == source.devid);
        let (mut expected, mut expected_bytes) = (0, 0);
        own.for_each(|stripe| (expected, expected_bytes) = (expected + 1, expected_bytes + stripe.length));
        Self {
            filesystem,
            replacing,
            options,
            name: source.name.clone(),
            observer,
            progress: Progress { expected, expected_bytes, ..Progress::default() },
            control: Control::Continue,
            passed: 0,
            windows: 0,
            lost_unverified: 0,
            first_lost: String::new(),
            untold: Joining::default(),
        }
    }

    fn copy_device(&mut self) -> Result<(), DeviceCareError> {
        let volume = self.filesystem.pool().volume();
        let mut at = Physical::new(0);
        self.tell();
        while self.control == Control::Continue {
            let Some(stripe) = volume.next_stripe(self.replacing.copies.devid(), at) else { break };
            self.copy_stripe(&stripe)?;
            at = stripe.end();
            self.passed += stripe.length;
            self.progress.done += 1;
            self.has_passed(0);
        }
        Ok(())
    }

    fn copy_stripe(&mut self, stripe: &ScrubStripe) -> Result<(), DeviceCareError> {
        let mut at = stripe.physical;
        let mut before: Option<UnderWay<'c>> = None;
        loop {
            let next = if self.control == Control::Continue { self.begin(stripe, at)? } else { None };
            self.end(before.take())?;
            let Some((end, under_way)) = next else { return Ok(()) };
            (at, before) = (end, under_way);
            self.windows += 1;
            if self.windows % WINDOWS_BETWEEN == 0 {
                // What was read before a place was written must not reach the target after what was written.
                self.end(before.take())?;
                self.replacing.copies.copy_written()?;
            }
            self.has_passed(end.get() - stripe.physical.get());
        }
    }

    /// Begins the next window of a device extent; returns the address behind it. `None` at the end.
    fn begin(
        &self,
        stripe: &ScrubStripe,
        at: Physical,
    ) -> Result<Option<(Physical, Option<UnderWay<'c>>)>, DeviceCareError> {
        let pool = self.filesystem.pool();
        let volume = pool.volume();
        // Before the window: its chunk is mapped as long as the view lives.
        let view = pool.committed()?;
        let Some(window) = volume.scrub_window(stripe, at, WINDOW_BYTES) else { return Ok(None) };
        let expected = view.expected(&window)?;
        if expected.is_empty() {
            let (from, end) = (window.start + window.logical_length, stripe.chunk + stripe.chunk_length);
            let next = if from < end { view.next_used(from, end)? } else { None };
            let at = next.map_or(stripe.end(), |used| volume.skip_to(stripe, used).max(window.end()));
            return Ok(Some((at, None)));
        }
        let read = self.replacing.copies.begin_copy(&window, expected, self.options);
        Ok(Some((window.end(), read.map(|read| UnderWay { read, view }))))
    }

    fn end(&mut self, window: Option<UnderWay<'c>>) -> Result<(), DeviceCareError> {
        let Some(UnderWay { read, view }) = window else { return Ok(()) };
        let found = read.end()?;
        for fault in &found.scrub.faults {
            if !self.is_loss(fault, &view) {
                continue;
            }
            let files = names::of(self.filesystem, &view, fault);
            let files = files.inspect_err(|error| tracing::debug!("{error}")).unwrap_or_default();
            let loss = Joined::new(fault, files);
            if fault.is_silent && self.lost_unverified == 0 {
                self.first_lost = loss.in_words(&self.name);
            }
            self.lost_unverified += u64::from(fault.is_silent);
            self.progress.left += 1;
            if let Some(before) = self.untold.add(loss) {
                self.tell_loss(&before);
            }
        }
        Ok(())
    }

    /// Returns false if a fault is of data without checksums that no file has: preallocated space, and what was overwritten of an extent.
    fn is_loss(&self, fault: &ScrubFault, view: &Committed<'_>) -> bool {
        if !fault.is_silent || fault.content != Content::Data {
            return true;
        }
        let is_read = names::is_read(self.filesystem, view, fault.logical);
        is_read.inspect_err(|error| tracing::debug!("{error}")).unwrap_or(true)
    }

    fn tell_loss(&self, loss: &Joined) {
        tracing::error!("device replace: {}", loss.in_words(&self.name));
    }

    /// Everything up to an offset in the present device extent is done.
    fn has_passed(&mut self, within: u64) {
        self.progress.moved_bytes = (self.passed + within).min(self.progress.expected_bytes);
        self.tell();
    }

    fn tell(&mut self) {
        if self.control == Control::Continue {
            self.control = (self.observer)(&self.progress);
        }
    }
}
