//! The volume: a pool's devices behind one logical address space.

use crate::device::PoolDevice;
use crate::device::absent_since;
use crate::lease::{self, Keeper, Lease, LeaseMode, LeaseOptions, StopReason};
use crate::locks::Locks;
use crate::pool::{MarkContext, Needs, Pool};
use crate::scan::{self, Given, OpenOptions, Scan, UnusedDevice};
use crate::{
    ChunkStatus, DeviceStatus, NotWritable, Rescue, StripeStatus, UnreadableChunk, VolumeError, Warning,
    WritableDeviceStatus, writable,
};
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use brindle_ondisk::item::{Chunk, DevItem, SuperblockAge};
use brindle_ondisk::{DevId, Generation, Logical, Superblock, TreeContext};
use brindle_policy::placement::PlacementClass;
use brindle_sync::{Rank, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// A pool's devices behind one logical address space.
///
/// Opening registers the system chunks of the superblock. The reader of the chunk tree then gives each
/// device item to [`Volume::add_device`], each chunk to [`Volume::add_chunk`], and ends with
/// [`Volume::check_complete`]. If devices [seem to sleep](Volume::has_sleepers), the reader of the device tree has the last
/// word, by [`Volume::judge_sleepers`].
#[derive(Debug)]
pub struct Volume {
    superblock: RwLock<Arc<Superblock>>,
    context: TreeContext,
    degraded: bool,
    is_writable: bool,
    /// Assurances that are given up.
    pub(crate) rescue: Rescue,
    /// True if the pool is written although data can't be read without the missing devices.
    accepts_loss: bool,
    /// True if devices may be shorter than the pool has them.
    allows_short: bool,
    /// The generation that was found.
    pub(crate) opened: Generation,
    pool: RwLock<Arc<Pool>>,
    pub(crate) locks: Locks,
    /// Devices whose failed flush was too much for the pool: nothing is committed any more.
    pub(crate) unflushed: OnceLock<Vec<String>>,
    /// Reason for which the pool is not written any more.
    stop: StopReason,
    leasing: LeaseOptions,
    keeper: OnceLock<Keeper>,
}

impl Volume {
    /// Finds the pool among devices in any order, more than needed: what belongs elsewhere is left alone
    /// and listed by [`Volume::unused_devices`]. Every copy of each superblock is read, and a device's valid
    /// copy of highest generation counts; the pool's superblock is that of highest generation, among equals
    /// of lowest devid.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, VolumeError> {
        let given = devices.into_iter().map(|device| Given { device, writable: None });
        Self::of_scan(scan::scan(given.collect(), options)?, options, false)
    }

    /// Opens the pool as [`Volume::open`] does, to be written too. A pool that may only be read is refused,
    /// and nothing is written. The devices of a seed are never written. A device that was away for long is
    /// taken for missing, and stays stale.
    pub fn open_writable(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
    ) -> Result<Self, VolumeError> {
        let given = devices.into_iter().map(|writable| {
            let device: Arc<dyn Device> = Arc::clone(&writable).share_device();
            Given { device, writable: Some(writable) }
        });
        if options.rescue.is_any() {
            return Err(VolumeError::NotWritable(NotWritable::Rescue));
        }
        let given: Vec<Given> = given.collect();
        if options.lease.mode == LeaseMode::Always {
            // This host may remember contents from before another machine wrote them.
            given.iter().for_each(|given| given.device.forget_cached(0, given.device.size_bytes()));
        }
        let mut scan = scan::scan(given.clone(), options)?;
        if options.lease.mode != LeaseMode::Ignored && lease::admit(&scan.lease_places(), &options.lease)? {
            scan = scan::scan(given, options)?;
        }
        writable::check(&scan).map_err(VolumeError::NotWritable)?;
        Self::of_scan(scan, options, true)
    }

    fn of_scan(scan: Scan, options: &OpenOptions, is_writable: bool) -> Result<Self, VolumeError> {
        scan.check_histories()?;
        let superblock = Arc::clone(&scan.superblock);
        let mut context = TreeContext::new(&superblock);
        let seeds = scan.strangers.iter().filter(|found| found.superblock.is_seeding());
        context.seed_uuids = seeds.map(|found| found.superblock.tree_uuid()).collect();
        let mut pool = Pool::new(scan);
        pool.choosing.settings.devid = superblock.dev_item.devid.get();
        for chunk in superblock.system_chunks() {
            let at = Logical::new(superblock.chunk_root.get());
            let (key, chunk) = chunk.map_err(|defect| VolumeError::Chunk { start: at, defect })?;
            pool.add_chunk(Logical::new(key.offset()), &chunk)?;
        }
        let volume = Self {
            opened: superblock.generation,
            superblock: RwLock::new(Rank::Superblock, superblock),
            context,
            degraded: options.degraded,
            is_writable,
            rescue: options.rescue,
            accepts_loss: options.accepts_loss,
            allows_short: options.allows_short,
            pool: RwLock::new(Rank::VolumePool, Arc::new(pool)),
            locks: Locks::default(),
            unflushed: OnceLock::new(),
            stop: StopReason::default(),
            leasing: options.lease.clone(),
            keeper: OnceLock::new(),
        };
        volume.check_chunk_tree()?;
        Ok(volume)
    }

    /// The generation of the pool when it was opened.
    pub fn opened_generation(&self) -> Generation {
        self.opened
    }

    /// Returns true if it was opened to be written.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Takes the lease of the pool, if its devices or the options ask for one, or if an earlier holder was outlived, which may come
    /// back: after the chunks are known, and before anything is written. One that is not to be taken from such a holder is broken.
    ///
    /// # Errors
    /// [`VolumeError::Held`] if another system takes it at the same time, [`VolumeError::Lease`].
    pub fn take_lease(&self) -> Result<(), VolumeError> {
        if !self.is_writable || self.leasing.mode == LeaseMode::Ignored {
            return Ok(());
        }
        let pool = self.snapshot();
        let places = pool.lease_places(self.superblock().fsid);
        let outlived = lease::held_places(&places);
        let is_wanted = match self.leasing.mode {
            LeaseMode::Always => true,
            LeaseMode::Shared => {
                let is_shared = |device: &Arc<dyn WritableDevice>| device.is_shared();
                !outlived.is_empty()
                    || pool.devices.iter().any(|member| member.writable.as_ref().is_some_and(is_shared))
            }
            LeaseMode::Never | LeaseMode::Ignored => false,
        };
        if !is_wanted {
            return lease::break_held(&outlived).map_err(|source| VolumeError::Lease { source });
        }
        if let Some(lease) = Lease::take(places, &self.leasing, Arc::clone(&self.stop))? {
            let kept = self.keeper.set(Keeper::new(lease)?);
            assert!(kept.is_ok(), "a lease is taken once");
        }
        Ok(())
    }

    /// The lease that it holds.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.keeper.get().map(Keeper::lease)
    }

    /// Returns true if it holds a lease, or has lost one.
    pub fn has_lease(&self) -> bool {
        self.keeper.get().is_some()
    }

    /// Renews the lease, if there is one: for callers with a clock of their own.
    ///
    /// # Errors
    /// [`WriteError::LeaseLost`](crate::WriteError::LeaseLost).
    pub fn renew_lease(&self) -> Result<(), crate::WriteError> {
        self.lease().map_or(Ok(()), Lease::renew)
    }

    /// Gives up the lease, if there is one, after everything else was written: the next system that opens the pool need not
    /// wait. Nothing can be written afterwards.
    pub fn release_lease(&self) {
        if let Some(lease) = self.lease() {
            lease.release();
        }
    }

    /// The reason for which the pool is not written any more, shared by all that end it; empty until there is one.
    pub fn stop_reason(&self) -> StopReason {
        Arc::clone(&self.stop)
    }

    /// The pool's superblock: that of the last commit.
    pub fn superblock(&self) -> Arc<Superblock> {
        Arc::clone(&self.superblock.read())
    }

    /// Another superblock was committed.
    pub(crate) fn set_superblock(&self, superblock: Superblock) {
        self.set_generation(superblock.generation);
        self.replace_superblock(superblock);
    }

    /// Another superblock is the one that the pool is entered by.
    pub(crate) fn replace_superblock(&self, superblock: Superblock) {
        *self.superblock.write() = Arc::new(superblock);
    }

    /// The pool has come to this generation: blocks of the next one may be met from now on.
    pub fn set_generation(&self, generation: Generation) {
        self.context.max_generation.raise(generation.get().saturating_add(1));
    }

    /// Superblock fields that decide how a tree block must look.
    pub fn tree_context(&self) -> &TreeContext {
        &self.context
    }

    /// Faults that opening survived.
    pub fn warnings(&self) -> Vec<Warning> {
        self.snapshot().warnings.clone()
    }

    /// Devices that were given and are not used.
    pub fn unused_devices(&self) -> Vec<UnusedDevice> {
        self.snapshot().unused()
    }

    /// Name of the target of a replacement that the kernel has begun, if it was given.
    pub fn replacement_target(&self) -> Option<String> {
        let unused = self.unused_devices().into_iter();
        unused.filter(|it| matches!(it.reason, crate::UnusedReason::Target)).map(|it| it.device).next()
    }

    /// Adds a chunk of the chunk tree. One that is known already, such as the superblock's, changes nothing;
    /// one that overlaps another is refused, and so is one that can't be read because its devices end
    /// before it.
    pub fn add_chunk(&self, start: Logical, chunk: &Chunk<'_>) -> Result<(), VolumeError> {
        self.change(|pool| pool.add_chunk(start, chunk))
    }

    /// Adds a device of the chunk tree: finds it among the devices given, seeds included, or notes that it is
    /// missing. One that lacks writes, by its item's mark, is as good as missing when the pool is written, and read
    /// last when it is only read.
    pub fn add_device(&self, item: &DevItem) -> Result<(), VolumeError> {
        let context = self.mark_context();
        self.change(|pool| {
            pool.add_device(item, &context);
            Ok(())
        })
    }

    pub(crate) fn mark_context(&self) -> MarkContext {
        let oldest = writable::generation_before(&self.superblock());
        MarkContext {
            generation: self.opened,
            oldest,
            is_writable: self.is_writable,
            is_degraded: self.degraded,
        }
    }

    /// Returns true if devices seem to have been left alone by the last commits. What they hold is read last until the
    /// [ages of superblocks](Self::judge_sleepers) that the pool has recorded are known.
    pub fn has_sleepers(&self) -> bool {
        self.snapshot().has_sleepers()
    }

    /// Tells devices that slept from old copies of them, by the ages of superblocks that the pool has recorded. An old copy
    /// is as a device that lacks writes: see [`Self::add_device`] and [`Self::check_complete`].
    pub fn judge_sleepers(&self, ages: &[SuperblockAge]) -> Result<(), VolumeError> {
        let context = self.mark_context();
        let has_found = self.change(|pool| pool.judge_sleepers(ages, &context));
        if has_found && self.is_writable { self.check_complete() } else { Ok(()) }
    }

    /// A device joins the pool while that is in use: chunks may lie on it from now on. The first superblocks that are
    /// written after this are written to it before they are to any other.
    pub fn join_device(&self, item: &DevItem, device: &Arc<dyn WritableDevice>) {
        self.change(|pool| {
            pool.join_device(item, device);
            pool.find_sides();
        });
    }

    /// Gives a device another id in the running transaction. Superblocks of the commits before it keep the old one;
    /// [`announce_renumbered`](Self::announce_renumbered) writes the first one with the new id.
    pub fn renumber_device(&self, devid: DevId, new: DevId) {
        self.change(|pool| pool.renumber_device(devid, new));
    }

    /// Returns true if a device has another id than its superblocks say.
    pub fn has_renumbered(&self) -> bool {
        self.snapshot().devices.iter().any(|device| device.written_devid.is_some())
    }

    /// The superblocks of a commit are written: all devices have the ids that these say, and the log of before is ended, also for those
    /// that did not take theirs.
    pub fn settle_superblocks(&self) {
        let generation = self.superblock().generation;
        self.change(|pool| {
            for device in &mut pool.devices {
                (device.written_devid, device.names_log, device.may_name_log) = (None, None, None);
                let lacks_something = device.writable.is_none() || !device.lost_writes.is_empty();
                device.has_missed_end |= lacks_something || device.missed_end_of.is_some();
                device.has_missed_end &= device.durability.durable_superblock() != generation;
            }
        });
    }

    /// A device, on which no chunk lies any more, leaves the pool: no superblock is written to it from now on. What it
    /// was written with, if it was there.
    pub fn part_with_device(&self, devid: DevId) -> Option<Arc<dyn WritableDevice>> {
        self.change(|pool| {
            debug_assert!(!pool.lies_on(devid, 0), "a device is left when nothing is on it");
            pool.part_with_device(devid)
        })
    }

    /// Looks how long a device is by now, in bytes; `None` if it is not there, or not written.
    pub fn refresh_size(&self, devid: DevId) -> Result<Option<u64>, DeviceError> {
        let pool = self.snapshot();
        let is_it = |device: &&PoolDevice| device.devid == devid && !device.is_intruder;
        let device = pool.devices.iter().filter(is_it).find_map(|device| device.writable.as_ref());
        device.map(|device| device.refresh_size()).transpose()
    }

    /// Returns true if a chunk has a device extent on a device that reaches beyond this offset of it.
    pub fn lies_on(&self, devid: DevId, beyond: u64) -> bool {
        self.snapshot().lies_on(devid, beyond)
    }

    /// Removes a chunk; returns false if there is none that begins there. Reads and writes of it under way go on.
    pub fn remove_chunk(&self, start: Logical) -> bool {
        self.change(|pool| {
            let length = pool.chunks.find(start).map_or(0, |chunk| chunk.length);
            pool.choosing.prefetched().forget(start.get(), length);
            pool.remove_chunk(start)
        })
    }

    /// A device has another size, or more or less of it belongs to chunks; false if there is no such device.
    pub fn update_device(&self, devid: DevId, total_bytes: u64, bytes_used: u64) -> bool {
        self.change(|pool| {
            let Some(device) = pool.device_mut(devid) else { return false };
            device.item.total_bytes.set(total_bytes);
            device.item.bytes_used.set(bytes_used);
            true
        })
    }

    /// A device item says something else of what the device is for (`type`); false if there is no such device.
    pub fn set_device_type(&self, devid: DevId, stored: u64) -> bool {
        self.change(|pool| {
            let Some(device) = pool.device_mut(devid) else { return false };
            device.item.device_type.set(stored);
            pool.find_sides();
            true
        })
    }

    /// Devices, by their names, that are on these sides while the pool is open, whatever their hints and the host say.
    pub fn tell_sides(&self, told: &BTreeMap<String, PlacementClass>) {
        self.change(|pool| {
            pool.told = Arc::new(told.clone());
            pool.find_sides();
        });
    }

    /// Checks, after the chunk tree has been read, that there is every device. Of a pool that was opened degraded: that
    /// every chunk can be read, or every one of metadata if the loss of data is accepted, unless the pool is only read: then there is
    /// a warning. [Empty chunks](Self::note_empty_chunks) don't count.
    ///
    /// # Errors
    /// [`VolumeError::Apart`], [`VolumeError::MissingDevices`], [`VolumeError::NotWritable`].
    pub fn check_complete(&self) -> Result<(), VolumeError> {
        self.check_histories()?;
        let needs = match (self.degraded, self.is_writable) {
            (false, _) => Needs::Devices,
            (true, true) if self.accepts_loss => Needs::Metadata,
            (true, true) => Needs::Contents,
            (true, false) => Needs::Nothing,
        };
        self.change(|pool| {
            pool.find_sides();
            pool.check_complete(needs)
        })?;
        if self.is_writable {
            if let Some(refusal) = &self.snapshot().refusal {
                return Err(VolumeError::NotWritable(refusal.clone()));
            }
            if !self.allows_short {
                writable::check_sizes(&self.snapshot()).map_err(VolumeError::NotWritable)?;
            }
        }
        Ok(())
    }

    /// Chunks that can't be read whole without the devices that are missing, but for those that are known to be empty.
    pub fn unreadable_chunks(&self) -> Vec<UnreadableChunk> {
        self.snapshot().unreadable_chunks()
    }

    /// Chunks of which nothing is used, by the last commit and its log: where they can't be read, nothing is lost, and they are no
    /// obstacle to [`Self::check_complete`]. They take no writes.
    pub fn note_empty_chunks(&self, starts: &[Logical]) {
        self.change(|pool| pool.empty_chunks.extend(starts));
    }

    /// Chunks that the pool goes on without if their devices fail while it is written, in place of those of before: their owner
    /// has chosen that they have too few copies.
    pub fn set_expendable(&self, starts: BTreeSet<Logical>) {
        if self.snapshot().expendable != starts {
            self.change(|pool| pool.expendable = starts);
        }
    }

    /// The error of a pool of which metadata can't be read for want of devices; `None` if all can be, as far as chunks are known.
    pub fn lost_metadata(&self) -> Option<VolumeError> {
        self.snapshot().lost_metadata()
    }

    /// The chunks known so far, by address.
    pub fn chunks(&self) -> Vec<ChunkStatus> {
        let pool = self.snapshot();
        let status = |chunk: &crate::chunk::Chunk| ChunkStatus {
            start: chunk.start,
            length: chunk.length,
            kind: chunk.kind,
            writable: pool.takes_writes(chunk, |device| self.takes_chunks(device)),
            stripes: chunk
                .stripes
                .iter()
                .map(|stripe| StripeStatus {
                    devid: stripe.devid,
                    physical: stripe.physical,
                    length: chunk.stripe_length(),
                    present: pool.devices[stripe.device].device.is_some(),
                })
                .collect(),
        };
        pool.chunks.iter().map(status).collect()
    }

    /// The pool's devices known so far, by devid.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        let pool = self.snapshot();
        let members = pool.devices.iter().filter(|device| !device.is_intruder);
        let mut devices: Vec<DeviceStatus> = members
            .map(|device| DeviceStatus {
                devid: device.devid,
                uuid: device.uuid,
                name: device.name(),
                total_bytes: device.total_bytes(),
                bytes_used: device.item.bytes_used.get(),
                missing: device.device.is_none(),
                absent_since: absent_since(device.item.generation),
                placed_in: device.item.placed_in(),
                is_seed: device.is_seed,
                is_stale: device.has_missed_transactions(),
                is_asleep: device.is_asleep,
                is_behind: !device.lost_writes.is_empty(),
                is_incomplete: device.is_incomplete,
                is_rotating: device.rotates_by_host(),
                hint: device.hint(),
                generation: device.generation,
                counters: device.counters.snapshot(),
            })
            .collect();
        devices.sort_by_key(|device| device.devid);
        devices
    }

    /// The devices that may be written, by devid.
    pub fn writable_devices(&self) -> Vec<WritableDeviceStatus> {
        if self.is_writable { self.chunk_devices() } else { Vec::new() }
    }

    /// The devices that new chunks may lie on, by devid; of a pool that is only read: where they could.
    pub fn chunk_devices(&self) -> Vec<WritableDeviceStatus> {
        let pool = self.snapshot();
        let status = |device: &PoolDevice| {
            let there = device.device.as_ref().filter(|_| self.takes_chunks(device))?;
            let is_fast = there.class() == DeviceClass::Solid;
            Some(WritableDeviceStatus {
                name: device.name(),
                item: device.item,
                size_bytes: there.size_bytes(),
                class: if is_fast { PlacementClass::Fast } else { PlacementClass::Bulk },
                hint: device.hint(),
            })
        };
        let mut devices: Vec<_> = pool.devices.iter().filter_map(status).collect();
        devices.sort_by_key(|device| device.item.devid);
        devices
    }

    /// Returns true if chunks on it may be written, or could be if the pool were.
    fn takes_chunks(&self, device: &PoolDevice) -> bool {
        match self.is_writable {
            true => device.writable.is_some(),
            false => device.device.is_some() && !device.is_seed && !device.is_intruder,
        }
    }

    /// The pool as it is known now; what is added later doesn't change it.
    pub(crate) fn snapshot(&self) -> Arc<Pool> {
        Arc::clone(&self.pool.read())
    }

    /// Changes the pool in place, or a copy of it while it is being read.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Pool) -> T) -> T {
        let mut pool = self.pool.write();
        change(Arc::make_mut(&mut pool))
    }
}
