//! The end of a device that another one has replaced.

use crate::device::PoolDevice;
use crate::{Volume, WriteError};
use brindle_device::{DeviceError, WritableDevice};
use brindle_ondisk::{Generation, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64};
use zerocopy::{FromZeros, IntoBytes};

impl Volume {
    /// Devices that have been replaced lose their superblocks, once those in their places have that of a generation, durably. One
    /// that fails at that keeps an old superblock, and the mark in its device item tells that it lacks something.
    ///
    /// # Errors
    /// A device in the place of another did not take its superblock: the other one is left as it is.
    pub fn retire_replaced(&self, generation: Generation) -> Result<(), WriteError> {
        let pool = self.snapshot();
        let replaced = || pool.devices.iter().filter(|member| member.predecessor.is_some());
        let lacks_it = |member: &&PoolDevice| member.durability.durable_superblock() != generation;
        let without: Vec<String> = replaced().filter(lacks_it).map(PoolDevice::name).collect();
        if !without.is_empty() {
            return Err(WriteError::NotReplaced { devices: without });
        }
        for device in replaced().filter_map(|member| member.predecessor.as_deref()) {
            if let Err(error) = wipe_superblocks(device) {
                tracing::warn!("{} was replaced, and keeps its superblocks: {error}", device.name());
            }
        }
        if replaced().next().is_some() {
            self.change(|pool| pool.devices.iter_mut().for_each(|member| member.predecessor = None));
        }
        Ok(())
    }
}

/// Makes the superblocks of a device unrecognisable, as the kernel does it: their magic number is cleared, and the
/// rest stays for recovery.
pub fn wipe_superblocks(device: &dyn WritableDevice) -> Result<(), DeviceError> {
    for offset in SUPERBLOCK_OFFSETS {
        if offset + to_u64(SUPERBLOCK_SIZE) > device.size_bytes() {
            break;
        }
        let mut superblock = Superblock::new_zeroed();
        device.read_at(offset, superblock.as_mut_bytes())?;
        superblock.magic = Default::default();
        device.write_at(offset, superblock.as_bytes())?;
    }
    device.flush()
}
