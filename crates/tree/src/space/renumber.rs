//! A device has another id: the block groups and system chunks that lie on it.

use super::Space;
use super::state::State;
use crate::error::TreeError;
use brindle_ondisk::DevId;
use brindle_ondisk::item::{ChunkHeader, Stripe};
use zerocopy::FromBytes;

impl Space {
    /// A device has another id.
    pub(crate) fn renumber_device(&self, devid: DevId, new: DevId) -> Result<(), TreeError> {
        let mut state = self.lock();
        state.renumber(devid, new)?;
        self.update_tiers(&mut state);
        Ok(())
    }
}

impl State {
    /// A device has another id.
    fn renumber(&mut self, devid: DevId, new: DevId) -> Result<(), TreeError> {
        let device = self.devices.iter_mut().find(|device| device.devid == devid);
        device.ok_or(TreeError::NoDevice(devid))?.devid = new;
        self.devices.sort_by_key(|device| device.devid);
        let starts: Vec<u64> = self.groups().map(|group| group.start).collect();
        for start in starts {
            self.change(start, |group| {
                for (of, _) in group.stripes.iter_mut().filter(|(of, _)| *of == devid) {
                    *of = new;
                }
            });
        }
        let mut is_changed = false;
        for item in self.system_chunks.values_mut() {
            is_changed |= rename_stripes(item, devid, new);
        }
        self.system_chunks_changed |= is_changed;
        for (of, _) in self.to_discard_on_devices.iter_mut().filter(|(of, _)| *of == devid) {
            *of = new;
        }
        Ok(())
    }
}

/// Puts the new id into the stripes of a chunk item; whether one names the device.
pub(crate) fn rename_stripes(data: &mut [u8], devid: DevId, new: DevId) -> bool {
    let stripes = data.get_mut(size_of::<ChunkHeader>()..).unwrap_or_default();
    let Ok(stripes) = <[Stripe]>::mut_from_bytes(stripes) else { return false };
    let mut has_one = false;
    for stripe in stripes.iter_mut().filter(|stripe| stripe.devid == devid) {
        stripe.devid = new;
        has_one = true;
    }
    has_one
}
