//! A device has taken the place of another.

use super::Space;
use super::device::Device;
use super::load::load_devices;
use super::state::State;
use crate::error::TreeError;
use crate::store::Store;
use brindle_interval::Interval;
use brindle_ondisk::{DevId, Physical};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use std::collections::BTreeMap;

impl Space {
    /// Space on a device that has taken the place of another.
    pub(crate) fn device_replaced(
        &self,
        store: &Store,
        classes: &BTreeMap<String, PlacementClass>,
        devid: DevId,
    ) -> Result<(), TreeError> {
        let known = load_devices(store, classes)?;
        let known =
            known.into_iter().find(|device| device.devid == devid).ok_or(TreeError::NoDevice(devid))?;
        let mut state = self.lock();
        match state.devices.iter_mut().find(|device| device.devid == devid) {
            Some(device) => {
                device.class = known.class;
                device.chosen = known.chosen.or(device.chosen);
            }
            None => state.take_in(known),
        }
        self.update_tiers(&mut state);
        self.announce(&state);
        Ok(())
    }
}

impl State {
    /// A device that was missing is there. What was removed from it and is not durably so is released later.
    fn take_in(&mut self, mut device: Device) {
        let absent = self.absent.remove(&device.devid).unwrap_or_default();
        device.used_bytes = device.used_bytes.saturating_sub(absent.given_up);
        if let Some(stored_type) = absent.hint {
            device.stored_type = stored_type;
            device.hint = AllocationHint::from_disk(stored_type).unwrap_or_default();
        }
        for group in self.to_remove.iter().chain(&self.removed) {
            for (_, start) in group.stripes.iter().filter(|(of, _)| *of == device.devid) {
                device.free.remove(Interval::new(Physical::new(*start), group.stripe_bytes));
            }
        }
        device.is_changed = true;
        self.devices.push(device);
    }
}
