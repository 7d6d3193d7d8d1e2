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
use super::device::device_of;
use super::state::Membership;
use crate::error::TreeError;
use crate::store::Store;
use brindle_device::WritableDevice;
use brindle_ondisk::{DevId, Physical};
use brindle_volume::WritableDeviceStatus;
use std::sync::Arc;

/// Keeps the end of a device, from an offset on, from being allocated as long as this lives.
#[derive(Debug)]
pub struct Withheld<'p> {
    space: &'p Space,
    devid: DevId,
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        let mut state = self.space.lock();
        if let Some(device) = state.devices.iter_mut().find(|device| device.devid == self.devid) {
            device.set_end(device.total_bytes);
        }
    }
}

impl Space {
    /// A device has joined.
    pub(crate) fn device_joined(&self, known: &WritableDeviceStatus) {
        let mut state = self.lock();
        state.devices.push(device_of(known, &[], None));
        state.membership.added_bytes += known.item.total_bytes.get();
        state.membership.added_devices += 1;
        self.update_tiers(&mut state);
        self.announce(&state);
    }

    /// Nothing is taken from an offset of a device on (0: from nowhere), until what is answered is dropped.
    pub(crate) fn withhold(&self, devid: DevId, end: u64) -> Withheld<'_> {
        let mut state = self.lock();
        if let Some(device) = state.devices.iter_mut().find(|device| device.devid == devid) {
            device.set_end(end);
        }
        Withheld { space: self, devid }
    }

    /// A device has another size. `false`, and nothing has changed, while a chunk lies behind its new end.
    pub(crate) fn resize_device(
        &self,
        store: &Store,
        devid: DevId,
        total_bytes: u64,
    ) -> Result<bool, TreeError> {
        let mut state = self.lock();
        let device = state.devices.iter_mut().find(|device| device.devid == devid);
        let device = device.ok_or(TreeError::NoDevice(devid))?;
        let before = device.total_bytes;
        if store.volume().lies_on(devid, total_bytes) {
            return Ok(false);
        }
        device.set_end(total_bytes.min(before));
        device.withheld = Default::default();
        device.free.insert(Physical::new(before)..Physical::new(total_bytes));
        (device.total_bytes, device.end, device.is_changed) = (total_bytes, total_bytes, true);
        state.membership.added_bytes += total_bytes.saturating_sub(before);
        state.membership.cut_bytes += before.saturating_sub(total_bytes);
        Ok(true)
    }

    /// A device of some size leaves; the device as it was written, if it was there.
    pub(crate) fn device_left(
        &self,
        store: &Store,
        devid: DevId,
        total_bytes: u64,
    ) -> Option<Arc<dyn WritableDevice>> {
        let mut state = self.lock();
        state.devices.retain(|device| device.devid != devid);
        state.to_discard_on_devices.retain(|(device, _)| *device != devid);
        state.membership.cut_bytes += total_bytes;
        state.membership.removed_devices += 1;
        self.update_tiers(&mut state);
        store.volume().part_with_device(devid)
    }

    /// Takes the changes of the devices since the last call.
    pub(crate) fn take_membership(&self) -> Membership {
        std::mem::take(&mut self.lock().membership)
    }
}
