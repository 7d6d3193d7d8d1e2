//! Identity of a device, by its superblock.

use super::AdminError;
use brindle_cache::open_device;
use brindle_ondisk::{DevId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, Uuid};
use std::path::Path;

/// Words of a device about itself, which is not opened as part of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// UUID of its pool.
    pub fsid: Uuid,
    /// Its id.
    pub devid: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Hint that the pool stores.
    pub stored: u64,
    /// Number of devices of its pool.
    pub devices: u64,
}

impl DeviceIdentity {
    /// Reads the first superblock of a device; `None` if it has none.
    pub fn read(path: &Path) -> Result<Option<Self>, AdminError> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        open_device(path)?.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes)?;
        let superblock = Superblock::from_bytes(&bytes);
        let item = &superblock.dev_item;
        let (devid, uuid, stored) = (item.devid, item.uuid, item.device_type.get());
        let (fsid, devices) = (superblock.fsid, superblock.num_devices.get());
        Ok(superblock.has_magic().then_some(Self { fsid, devid, uuid, stored, devices }))
    }
}
