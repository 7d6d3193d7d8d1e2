//! The snapshot of what is known of the pool, and how things are added to it.

use crate::chunk::{Chunk, ChunkMap, ChunkStripe};
use crate::device::PoolDevice;
use crate::device::absent_since;
use crate::first_superblock::FirstSuperblock;
use crate::layout::Layout;
use crate::lease::Place;
use crate::read_state::Choosing;
use crate::scan::{Found, Scan, may_be_asleep};
use crate::{MissingDevice, NotWritable, UnreadableChunk, UnusedDevice, UnusedReason, VolumeError, Warning};
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::item::{self, DevItem, SuperblockAge};
use brindle_ondisk::{
    Defect, DevId, Generation, Holders, LEASE_BYTES, LEASE_OFFSET, LeaseDevice, Logical, NodeExpectation,
    SUPERBLOCK_OFFSETS, Uuid, to_u64,
};
use brindle_policy::placement::PlacementClass;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Devices and chunks. Devices are never taken from the table, so that chunks can name them by index; one that has left
/// the pool is like one that claims to belong to it and does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    pub(crate) devices: Vec<PoolDevice>,
    pub(crate) chunks: ChunkMap,
    pub(crate) unused: Vec<UnusedDevice>,
    pub(crate) warnings: Vec<Warning>,
    /// Reason for which it may not be written after all.
    pub(crate) refusal: Option<NotWritable>,
    pub(crate) choosing: Choosing,
    /// Sides of devices, by their names, that were told for as long as the pool is open.
    pub(crate) told: Arc<BTreeMap<String, PlacementClass>>,
    /// Number of times that a device began to take the place of another, or took it.
    pub(crate) replacements: u64,
    /// Root of the log that superblocks on the devices name, while the superblock of a later commit is not written yet.
    pub(crate) ended_log: Option<NodeExpectation>,
    /// Generation of the last commit that ended a log, and the root of that log: while its superblocks are written to one set of
    /// devices after the other, those that are still to come name it.
    pub(crate) ending: Option<(Generation, NodeExpectation)>,
    /// Devices that held a superblock as new as the pool's when it was opened.
    holders: Holders,
    /// UUIDs that items of the pool's own devices may have: other ones are those of seeds.
    own_uuids: [Uuid; 2],
    /// Given, of other pools, and not (yet) found to be a seed.
    strangers: Vec<Found>,
    /// Chunks of which nothing is used: nothing is lost with them.
    pub(crate) empty_chunks: BTreeSet<Logical>,
    /// Chunks that the pool goes on without: their owner knows that they have too few copies.
    pub(crate) expendable: BTreeSet<Logical>,
    /// Stale devices that the pool is written without, by index, until they were compared with the others.
    left_out: Vec<(usize, Arc<dyn Device>)>,
}

/// Facts that decide about a device that lacks writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkContext {
    pub(crate) generation: Generation,
    /// A superblock older than that has missed a commit, unless the device was asleep.
    pub(crate) oldest: Generation,
    pub(crate) is_writable: bool,
    pub(crate) is_degraded: bool,
}

/// Parts of a pool that have to be there when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Every device.
    Devices,
    /// Devices to read every chunk.
    Contents,
    /// Devices to read every chunk of metadata.
    Metadata,
    /// None but those that there are.
    Nothing,
}

impl Pool {
    /// The devices of a scan, and no chunk.
    pub(crate) fn new(scan: Scan) -> Self {
        let generation = scan.superblock.generation;
        let holders = scan.holders;
        let own_uuids = [scan.superblock.fsid, scan.superblock.tree_uuid()];
        let mut pool =
            Self { unused: scan.unused, strangers: scan.strangers, holders, own_uuids, ..Self::default() };
        for found in &scan.members {
            let mut device = present(found);
            let is_older = found.superblock.generation < generation;
            device.is_asleep = is_older && may_be_asleep(&found.superblock, &scan.superblock, holders);
            device.is_stale = is_older && !device.is_asleep;
            let is_first = found.superblock.bytenr.get() == SUPERBLOCK_OFFSETS[0];
            device.has_doubtful_copies = Arc::new((device.is_asleep && is_first).into());
            // Until its mark is known.
            device.is_incomplete = is_older;
            let has_log = !is_older && found.superblock.log_root.get() != 0;
            device.lacks_log = Arc::new((scan.superblock.log_root.get() != 0 && !has_log).into());
            pool.devices.push(device);
        }
        for warning in scan.warnings {
            pool.warn(warning);
        }
        pool
    }

    /// Adds what the chunk tree says of a device.
    pub(crate) fn add_device(&mut self, item: &DevItem, context: &MarkContext) {
        let index = self.resolve(item.devid, item.uuid);
        let device = &mut self.devices[index];
        device.describe(item);
        device.is_confirmed = true;
        self.check_mark(index, context);
        let device = &self.devices[index];
        let Some(given) = &device.device else {
            return;
        };
        let (size_bytes, total_bytes) = (given.size_bytes(), device.total_bytes());
        if size_bytes < total_bytes {
            let (device, devid) = (given.name().to_owned(), device.devid);
            self.warn(Warning::Short { device, devid, size_bytes, total_bytes });
        }
    }

    /// Finds out on which side each device is, as far as that is told or stored.
    pub(crate) fn find_sides(&mut self) {
        let has_hints = self.devices.iter().any(|device| device.hint().counts());
        for device in &mut self.devices {
            let stored = has_hints.then(|| device.hint().class()).flatten();
            device.side = self.told.get(&device.name()).copied().or(stored);
        }
    }

    /// Sees whether the pool expects more of a device than it has.
    fn check_mark(&mut self, index: usize, context: &MarkContext) {
        let device = &mut self.devices[index];
        let Some(generation) = device.generation.filter(|_| device.device.is_some()) else { return };
        let is_old_copy = generation < context.generation && self.holders.contains(device.devid);
        let has_missed_commits = generation < context.oldest && !device.is_asleep;
        let lacks_writes = generation < device.item.generation;
        let is_incomplete = !device.is_seed && (lacks_writes || has_missed_commits || is_old_copy);
        device.is_asleep &= !is_incomplete;
        // One that seems to sleep is read last until its record is known.
        device.is_incomplete = is_incomplete || device.is_asleep;
        // One that was written while the pool was written without it is looked at first.
        if is_incomplete && !self.is_suspect(index) {
            self.find_stale(index, context);
        }
    }

    /// Returns true if a device has a superblock of after the pool was first written without it, by its mark.
    pub(crate) fn is_suspect(&self, index: usize) -> bool {
        let device = &self.devices[index];
        let since =
            absent_since(device.item.generation).filter(|_| device.device.is_some() && !device.is_seed);
        device.generation.zip(since).is_some_and(|(generation, since)| generation >= since)
    }

    /// Returns true if devices seem to sleep.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.devices.iter().any(|device| device.is_asleep)
    }

    /// Sees which devices slept, by the ages of superblocks that the pool has recorded; one without a record does not sleep.
    /// Returns true if one was found to be stale.
    pub(crate) fn judge_sleepers(&mut self, ages: &[SuperblockAge], context: &MarkContext) -> bool {
        let mut has_found = false;
        for index in 0..self.devices.len() {
            let device = &mut self.devices[index];
            let Some(generation) = device.generation.filter(|_| device.is_asleep) else { continue };
            let recorded = ages.iter().find(|age| age.devid == device.devid);
            let oldest = recorded.map_or(context.oldest, |age| age.generation);
            let is_stale = generation < oldest;
            (device.is_asleep, device.is_incomplete) = (!is_stale, is_stale);
            if is_stale {
                has_found = true;
                self.find_stale(index, context);
            }
        }
        has_found
    }

    /// A device is stale that seemed to lack the newest superblock alone.
    pub(crate) fn has_missed_commit(&mut self, index: usize, context: &MarkContext) {
        self.devices[index].is_incomplete = true;
        self.find_stale(index, context);
    }

    /// The pool with the devices that were left out, to be compared with the others.
    pub(crate) fn with_left_out(&self) -> Self {
        let mut pool = self.clone();
        for (index, device) in std::mem::take(&mut pool.left_out) {
            pool.devices[index].device = Some(device);
        }
        pool
    }

    /// Lets go of the devices that were left out.
    pub(crate) fn forget_left_out(&mut self) {
        self.left_out.clear();
    }

    /// A device is stale: leaves it out, or refuses to write the pool, or gives a warning.
    fn find_stale(&mut self, index: usize, context: &MarkContext) {
        let device = &self.devices[index];
        let (Some(generation), Some(given)) = (device.generation, &device.device) else { return };
        let (name, devid, expected) = (given.name().to_owned(), device.devid, context.generation);
        match (context.is_writable, context.is_degraded) {
            (true, true) => {
                let device = &mut self.devices[index];
                device.writable = None;
                self.left_out.extend(device.device.take().map(|device| (index, device)));
                let reason = match device.is_replaced() {
                    true => UnusedReason::Replaced(devid),
                    false => UnusedReason::Stale(devid),
                };
                let unused = UnusedDevice { device: name, reason };
                tracing::warn!("{unused}");
                self.unused.push(unused);
            }
            (true, false) => {
                let refusal = match device.is_replaced() {
                    true => NotWritable::Replaced { device: name, devid, since: device.item.placed_in() },
                    false => NotWritable::Stale { device: name, devid, generation, expected },
                };
                self.refusal.get_or_insert(refusal);
            }
            (false, _) if !device.is_stale => {
                self.devices[index].is_stale = true;
                self.warn(Warning::Stale { device: name, devid, generation, expected });
            }
            (false, _) => {}
        }
    }

    /// Adds a chunk; one that is there already is left as it is.
    pub(crate) fn add_chunk(&mut self, start: Logical, item: &item::Chunk<'_>) -> Result<(), VolumeError> {
        let refuse = |defect| VolumeError::Chunk { start, defect };
        let layout = Layout::new(item).map_err(refuse)?;
        let length = item.header.length.get();
        if start.checked_add(length).is_none() {
            return Err(refuse(Defect::new("chunk passes the end of the logical space, its length", length)));
        }
        let stripe_length = layout.stripe_length(length);
        if let Some(stripe) = item.stripes.iter().find(|s| s.offset.checked_add(stripe_length).is_none()) {
            return Err(refuse(Defect::new(
                "stripe of chunk passes the end of the address space",
                stripe.offset.get(),
            )));
        }
        let stripes = item.stripes.iter().map(|stripe| ChunkStripe {
            devid: stripe.devid,
            uuid: stripe.dev_uuid,
            physical: stripe.offset,
            device: self.resolve(stripe.devid, stripe.dev_uuid),
        });
        let stripes = stripes.collect();
        let chunk = Chunk { start, length, kind: item.block_group_type(), layout, stripes };
        if self.chunks.find(start).is_some_and(|known| **known == chunk) {
            return Ok(());
        }
        self.check_ends(&chunk)?;
        self.chunks.insert(chunk).map_err(|other| VolumeError::ChunkOverlap {
            start,
            length,
            other: other.start,
            other_length: other.length,
        })
    }

    /// Adds a device that has joined the pool.
    pub(crate) fn join_device(&mut self, item: &DevItem, joining: &Arc<dyn WritableDevice>) {
        let mut device = PoolDevice::missing(item.devid, item.uuid);
        let readable: Arc<dyn Device> = Arc::clone(joining).share_device();
        (device.device, device.writable) = (Some(readable), Some(Arc::clone(joining)));
        device.is_confirmed = true;
        device.describe(item);
        self.devices.push(device);
    }

    /// A device, whose contents are as they should be, takes the place of another.
    pub(crate) fn take_over(&mut self, index: usize, target: &Arc<dyn WritableDevice>) {
        let before = &self.devices[index];
        let mut device = PoolDevice::missing(before.devid, before.uuid);
        let readable: Arc<dyn Device> = Arc::clone(target).share_device();
        (device.device, device.writable) = (Some(readable), Some(Arc::clone(target)));
        device.is_confirmed = true;
        device.describe(&before.item);
        device.predecessor = before.writable.clone();
        self.devices[index] = device;
        self.replacements += 1;
    }

    /// Gives a device another id, which its superblocks get with the next commit.
    pub(crate) fn renumber_device(&mut self, devid: DevId, new: DevId) {
        let is_it = |device: &PoolDevice| device.devid == devid && !device.is_intruder && !device.is_seed;
        let Some(index) = self.devices.iter().position(is_it) else { return };
        let device = &mut self.devices[index];
        device.written_devid.get_or_insert(devid);
        (device.devid, device.item.devid) = (new, new);
        self.chunks.renumber(index, new);
    }

    /// Removes a device that no chunk lies on; returns its writable form, if it was there. Its place in the table
    /// stays, unused.
    pub(crate) fn part_with_device(&mut self, devid: DevId) -> Option<Arc<dyn WritableDevice>> {
        let device = self.device_mut(devid)?;
        (device.is_confirmed, device.is_intruder, device.device) = (false, true, None);
        device.lost_writes.take();
        device.writable.take()
    }

    /// Takes a chunk away; false if there is none that begins there.
    pub(crate) fn remove_chunk(&mut self, start: Logical) -> bool {
        self.chunks.remove(start)
    }

    /// Returns true if a chunk has a device extent on a device that reaches beyond this offset of it.
    pub(crate) fn lies_on(&self, devid: DevId, beyond: u64) -> bool {
        self.chunks.iter().any(|chunk| {
            let reaches = |physical: u64| physical.saturating_add(chunk.stripe_length()) > beyond;
            chunk.stripes.iter().any(|stripe| stripe.devid == devid && reaches(stripe.physical.get()))
        })
    }

    /// The places of records of leases on devices that may be written, where no chunk lies there.
    pub(crate) fn lease_places(&self, fsid: Uuid) -> Vec<Place> {
        let place = |(index, member): (usize, &PoolDevice)| {
            let device = member.writable.as_ref().filter(|_| !member.is_seed && !member.is_intruder)?;
            let end = LEASE_OFFSET + to_u64(LEASE_BYTES);
            let is_used = !self.pieces_on(index, LEASE_OFFSET, end).is_empty();
            if is_used {
                tracing::warn!("{}: a chunk uses the place of the lease", device.name());
                return None;
            }
            let identity = LeaseDevice { fsid, devid: member.devid, uuid: member.uuid };
            Some(Place { identity, device: Arc::clone(device) })
        };
        self.devices.iter().enumerate().filter_map(place).collect()
    }

    /// The device of an id; members come before those of a seed.
    pub(crate) fn device_mut(&mut self, devid: DevId) -> Option<&mut PoolDevice> {
        let is_it = |device: &&mut PoolDevice| device.devid == devid && !device.is_intruder;
        let (seeds, members): (Vec<_>, Vec<_>) =
            self.devices.iter_mut().filter(is_it).partition(|device| device.is_seed);
        members.into_iter().chain(seeds).next()
    }

    /// Returns true if a chunk may be written: no seed is, and the missing devices must be tolerable.
    pub(crate) fn is_writable(&self, chunk: &Chunk) -> bool {
        self.takes_writes(chunk, |device| device.writable.is_some())
    }

    /// The same, with these devices.
    pub(crate) fn takes_writes(&self, chunk: &Chunk, is_there: impl Fn(&PoolDevice) -> bool) -> bool {
        let device = |stripe: usize| &self.devices[chunk.stripes[stripe].device];
        (0..chunk.stripes.len()).all(|stripe| !device(stripe).is_seed)
            && chunk.layout.survives(|stripe| !is_there(device(stripe)))
    }

    /// The index of a device, known or missing, or among those given that belong to the seed.
    fn resolve(&mut self, devid: DevId, uuid: Uuid) -> usize {
        let known = |device: &PoolDevice| device.devid == devid && device.uuid == uuid;
        if let Some(index) = self.devices.iter().position(known) {
            return index;
        }
        let is_it = |found: &Found| {
            found.superblock.dev_item.devid == devid && found.superblock.dev_item.uuid == uuid
        };
        let device = match self.strangers.iter().position(is_it) {
            Some(index) => {
                PoolDevice { is_seed: true, writable: None, ..present(&self.strangers.remove(index)) }
            }
            None => PoolDevice::missing(devid, uuid),
        };
        self.devices.push(device);
        self.devices.len() - 1
    }

    /// A stripe beyond the end of its device is as good as missing.
    fn check_ends(&mut self, chunk: &Chunk) -> Result<(), VolumeError> {
        let beyond = |stripe: usize| self.is_beyond_end(chunk, stripe);
        let lost: Vec<usize> = (0..chunk.stripes.len()).filter(|stripe| beyond(*stripe)).collect();
        let survives = chunk.layout.survives(|stripe| lost.contains(&stripe));
        for stripe in lost {
            let stripe = &chunk.stripes[stripe];
            let Some(device) = &self.devices[stripe.device].device else { continue };
            let (name, size_bytes) = (device.name().to_owned(), device.size_bytes());
            let (start, offset, length) = (chunk.start, stripe.physical, chunk.stripe_length());
            if !survives {
                return Err(VolumeError::BeyondEnd { start, device: name, offset, length, size_bytes });
            }
            self.warn(Warning::BeyondEnd { device: name, chunk: start, offset, length, size_bytes });
        }
        Ok(())
    }

    fn is_beyond_end(&self, chunk: &Chunk, stripe: usize) -> bool {
        let stripe = &chunk.stripes[stripe];
        let end = stripe.physical.get() + chunk.stripe_length();
        self.devices[stripe.device].device.as_ref().is_some_and(|device| device.size_bytes() < end)
    }

    /// Chunks that have lost more devices than they can be read whole without, but for those that are known to be empty.
    pub(crate) fn unreadable_chunks(&self) -> Vec<UnreadableChunk> {
        let lost = |chunk: &Chunk, stripe: usize| {
            self.devices[chunk.stripes[stripe].device].device.is_none() || self.is_beyond_end(chunk, stripe)
        };
        let unreadable = self.chunks.iter().filter(|chunk| !chunk.layout.survives(|s| lost(chunk, s)));
        unreadable
            .filter(|chunk| !self.empty_chunks.contains(&chunk.start))
            .map(|chunk| UnreadableChunk { start: chunk.start, length: chunk.length, kind: chunk.kind })
            .collect()
    }

    /// Checks that everything that is needed can be read; devices that the chunk tree doesn't know
    /// are put aside.
    pub(crate) fn check_complete(&mut self, needs: Needs) -> Result<(), VolumeError> {
        self.put_intruders_aside();
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let unreadable = self.unreadable_chunks();
        let degraded_helps = unreadable.iter().all(UnreadableChunk::is_data_alone);
        match needs {
            Needs::Contents if unreadable.is_empty() => return Ok(()),
            Needs::Metadata | Needs::Nothing if needs == Needs::Nothing || degraded_helps => {
                if !unreadable.is_empty() {
                    self.warn(Warning::LostChunks { missing, unreadable });
                }
                return Ok(());
            }
            _ => {}
        }
        let (is_degraded, unused) = (needs != Needs::Devices, self.unused());
        Err(VolumeError::MissingDevices { missing, unreadable, degraded_helps, is_degraded, unused })
    }

    fn missing(&self) -> Vec<MissingDevice> {
        let is_missing = |device: &&PoolDevice| device.device.is_none() && !device.is_intruder;
        let missing = self.devices.iter().filter(is_missing);
        let of_one = |device: &PoolDevice| MissingDevice {
            devid: device.devid,
            uuid: device.uuid,
            seed: Some(device.item.fsid).filter(|fsid| !fsid.is_nil() && !self.own_uuids.contains(fsid)),
        };
        missing.map(of_one).collect()
    }

    /// The error of a pool of which metadata can't be read for want of devices; `None` if all can be.
    pub(crate) fn lost_metadata(&self) -> Option<VolumeError> {
        let (missing, unreadable) = (self.missing(), self.unreadable_chunks());
        let is_lost = !missing.is_empty() && !unreadable.iter().all(UnreadableChunk::is_data_alone);
        is_lost.then(|| {
            let unused = self.unused();
            let (degraded_helps, is_degraded) = (false, false);
            VolumeError::MissingDevices { missing, unreadable, degraded_helps, is_degraded, unused }
        })
    }

    /// Devices whose superblock claims the pool, while the chunk tree knows others: removed, or replaced,
    /// while they were away.
    fn put_intruders_aside(&mut self) {
        if !self.devices.iter().any(|device| device.is_confirmed) {
            return;
        }
        let stripes = || self.chunks.iter().flat_map(|chunk| chunk.stripes.iter());
        let is_intruder = |index: usize| {
            !self.devices[index].is_confirmed && stripes().all(|stripe| stripe.device != index)
        };
        let intruders: Vec<usize> = (0..self.devices.len()).filter(|index| is_intruder(*index)).collect();
        for index in intruders {
            let intruder = &mut self.devices[index];
            intruder.is_intruder = true;
            let (devid, uuid) = (intruder.devid, intruder.uuid);
            intruder.writable = None;
            if let Some(device) = intruder.device.take() {
                let device = device.name().to_owned();
                let reason = UnusedReason::NotInPool(devid);
                self.unused.push(UnusedDevice { device: device.clone(), reason });
                // That it has missed what came after it left is no news.
                self.warnings
                    .retain(|warning| !matches!(warning, Warning::Stale { device: d, .. } if *d == device));
                self.warn(Warning::NotInPool { device, devid, uuid });
            }
        }
    }

    /// The devices given that are of no use.
    pub(crate) fn unused(&self) -> Vec<UnusedDevice> {
        let other = |found: &Found| found.unused(UnusedReason::OtherPool(found.superblock.fsid));
        self.unused.iter().cloned().chain(self.strangers.iter().map(other)).collect()
    }

    fn warn(&mut self, warning: Warning) {
        tracing::warn!("{warning}");
        self.warnings.push(warning);
    }
}

fn present(found: &Found) -> PoolDevice {
    let item = &found.superblock.dev_item;
    let mut device = PoolDevice::missing(item.devid, item.uuid);
    device.device = Some(Arc::clone(&found.device));
    device.writable = found.writable.clone();
    let superblock = &found.superblock;
    device.generation = Some(superblock.generation);
    device.superblock = Some(Arc::clone(superblock));
    device.first_superblock = Arc::new(FirstSuperblock::found(found.first.clone()));
    device.superblock_generation = Arc::new(found.superblock.generation.get().into());
    device.describe(item);
    // A mark is in the chunk tree alone.
    device.item.generation = Generation::new(0);
    device
}
