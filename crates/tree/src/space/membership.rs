//! Devices that join the pool, change their size, or leave, while it is in use.
//!
//! A device leaves, or ends earlier, in steps: first nothing new is taken there ([`Withheld`]), then the caller empties the
//! block groups that lie there ([`Pool::relocate`]), and when no chunk does any more, and that is durable, its item
//! goes or changes. The pool's devices are changed within the running transaction, so that
//! items and superblock say the same.
//!
//! A crash before the commit leaves the device as it was, emptied in part. A device that joins has its superblock before
//! the others speak of it ([`Volume::introduce_devices`](brindle_volume::Volume::introduce_devices)): between these, the pool is the new one if it is given, and
//! the one of before else. A device that left keeps its old superblock until the caller wipes it: the pool
//! does not know it, and leaves it alone.

use super::Space;
use super::load::device_of;
use crate::error::TreeError;
use crate::pool::Pool;
use crate::transaction::Need;
use brindle_device::WritableDevice;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Key, KeyType, ObjectId, Physical, RootId, Uuid};
use brindle_policy::placement::AllocationHint;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Changes of the devices since the last superblock.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    pub(super) added_bytes: u64,
    pub(super) cut_bytes: u64,
    added_devices: u64,
    removed_devices: u64,
}

impl Membership {
    /// The size of all devices, which was this before.
    pub(crate) fn total_bytes(&self, before: u64) -> u64 {
        before.saturating_add(self.added_bytes).saturating_sub(self.cut_bytes)
    }

    /// Number of devices, which was `before` at the last superblock.
    pub(crate) fn count(&self, before: u64) -> u64 {
        before.saturating_add(self.added_devices).saturating_sub(self.removed_devices)
    }
}

/// A device that is to join.
#[derive(Clone, Debug)]
pub struct JoiningDevice {
    /// The device, on which nothing is that could be taken for a filesystem.
    pub device: Arc<dyn WritableDevice>,
    /// The UUID that it is to have: no other device has ever had it.
    pub uuid: Uuid,
    /// Hint that the pool is to store.
    pub hint: AllocationHint,
}

/// Keeps the end of a device, from an offset on, from being allocated as long as this lives.
#[derive(Debug)]
pub struct Withheld<'p> {
    pool: &'p Pool,
    devid: DevId,
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        let Ok(changes) = self.pool.changes() else { return };
        let mut state = changes.space.lock();
        if let Some(device) = state.devices.iter_mut().find(|device| device.devid == self.devid) {
            device.set_end(device.total_bytes);
        }
    }
}

impl Pool {
    /// A device joins the pool; which id it has. Chunks may lie on it at once; durable with the next commit.
    pub fn join_device(&self, new: &JoiningDevice) -> Result<DevId, TreeError> {
        let changes = self.changes()?;
        let superblock = self.superblock();
        let sectorsize = superblock.sectorsize.get();
        let highest = self.volume().devices().iter().map(|device| device.devid.get()).max().unwrap_or(0);
        let devid = DevId::new(highest + 1);
        let size_bytes = new.device.size_bytes();
        let mut item = DevItem::new_zeroed();
        item.devid = devid;
        item.total_bytes.set(size_bytes - size_bytes % u64::from(sectorsize));
        item.io_align.set(sectorsize);
        item.io_width.set(sectorsize);
        item.sector_size.set(sectorsize);
        item.device_type.set(new.hint.number().into());
        item.uuid = new.uuid;
        item.fsid = superblock.dev_item.fsid;
        let transaction = self.join(Need::items(2))?;
        transaction.insert(&*self.tree(RootId::CHUNK_TREE)?, &item_key(devid), item.as_bytes())?;
        self.volume().join_device(&item, &new.device);
        let known = self.volume().writable_devices().into_iter().find(|known| known.item.devid == devid);
        let mut state = changes.space.lock();
        state.devices.push(device_of(&known.expect("it has joined"), &[], None));
        state.membership.added_bytes += item.total_bytes.get();
        state.membership.added_devices += 1;
        changes.space.update_tiers(&mut state);
        changes.space.announce(&state);
        Ok(devid)
    }

    /// Nothing is taken from an offset of a device on (0: from nowhere), until what is answered is dropped.
    pub fn withhold(&self, devid: DevId, end: u64) -> Result<Withheld<'_>, TreeError> {
        let mut state = self.changes()?.space.lock();
        if let Some(device) = state.devices.iter_mut().find(|device| device.devid == devid) {
            device.set_end(end);
        }
        Ok(Withheld { pool: self, devid })
    }

    /// A device has another size as far as the pool is concerned; durable with the next commit. `false`, and nothing has
    /// changed, while a chunk lies behind its new end. A smaller one needs [`withhold`](Self::withhold) before.
    pub fn set_device_size(&self, devid: DevId, total_bytes: u64) -> Result<bool, TreeError> {
        let changes = self.changes()?;
        changes.space.wait_for_readers();
        let transaction = self.join(Need::items(2))?;
        let mut state = changes.space.lock();
        let device = state.devices.iter_mut().find(|device| device.devid == devid);
        let device = device.ok_or(TreeError::NoDevice(devid))?;
        let before = device.total_bytes;
        if self.volume().lies_on(devid, total_bytes) {
            return Ok(false);
        }
        device.set_end(total_bytes.min(before));
        device.withheld = Default::default();
        device.free.insert(Physical::new(before)..Physical::new(total_bytes));
        (device.total_bytes, device.end, device.is_changed) = (total_bytes, total_bytes, true);
        state.membership.added_bytes += total_bytes.saturating_sub(before);
        state.membership.cut_bytes += before.saturating_sub(total_bytes);
        drop(state);
        drop(transaction);
        Ok(true)
    }

    /// A device leaves the pool, durably with the next commit; `None`, and nothing has changed, while a chunk lies on it.
    /// It needs [`withhold`](Self::withhold) before, unless it is missing. What it was written with, if it was there: it is to
    /// be left alone before the commit is durable.
    pub fn part_with_device(&self, devid: DevId) -> Result<Option<Parted>, TreeError> {
        let changes = self.changes()?;
        changes.space.wait_for_readers();
        let transaction = self.join(Need::items(4))?;
        if self.volume().lies_on(devid, 0) {
            return Ok(None);
        }
        let known = self.volume().devices().into_iter().find(|known| known.devid == devid);
        let known = known.filter(|known| !known.is_seed).ok_or(TreeError::NoDevice(devid))?;
        transaction.remove(&*self.tree(RootId::CHUNK_TREE)?, &item_key(devid))?;
        transaction.remove_statistics(devid)?;
        let mut state = changes.space.lock();
        state.devices.retain(|device| device.devid != devid);
        state.to_discard_on_devices.retain(|(device, _)| *device != devid);
        state.membership.cut_bytes += known.total_bytes;
        state.membership.removed_devices += 1;
        changes.space.update_tiers(&mut state);
        let device = self.volume().part_with_device(devid);
        drop(state);
        drop(transaction);
        Ok(Some(Parted { device }))
    }
}

/// A device that has left.
#[derive(Debug)]
pub struct Parted {
    /// Device as it was written, if it was there.
    pub device: Option<Arc<dyn WritableDevice>>,
}

impl Space {
    /// Takes the changes of the devices since the last call.
    pub(crate) fn take_membership(&self) -> Membership {
        std::mem::take(&mut self.lock().membership)
    }
}

fn item_key(devid: DevId) -> Key {
    Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, devid.get())
}
