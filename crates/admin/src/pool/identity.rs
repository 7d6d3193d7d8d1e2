//! Identity of a device, by its superblock.

use super::AdminError;
use brindle_cache::look_at_device;
use brindle_care::device::TargetMark;
use brindle_ondisk::{DevId, Generation, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, Uuid};
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
    /// Generation of its superblock.
    pub generation: Generation,
    /// True if its pool is a seed, which pools with another UUID have as a part.
    pub is_seed: bool,
}

impl DeviceIdentity {
    /// Reads the first superblock of a device; `None` if it has none.
    pub fn read(path: &Path) -> Result<Option<Self>, AdminError> {
        Ok(Self::superblock(path)?.map(|superblock| Self::of(&superblock)))
    }

    /// The same by any good copy of the superblock, the first one before the others: of a device that was named. One that was only
    /// found may have been wiped, which leaves the later copies.
    pub fn read_any_copy(path: &Path) -> Result<Option<Self>, AdminError> {
        let device = look_at_device(path)?;
        let copy = |offset: &u64| {
            let mut bytes = [0; SUPERBLOCK_SIZE];
            device.read_at(*offset, &mut bytes).ok()?;
            Superblock::parse(&bytes, *offset).ok()
        };
        let [first, later @ ..] = &SUPERBLOCK_OFFSETS;
        let newest = || later.iter().filter_map(copy).max_by_key(|copy| copy.generation);
        match copy(first).or_else(newest) {
            Some(superblock) => Ok(Some(Self::of(&superblock))),
            // One that asks for what brindle does not have, say.
            None => Self::read(path),
        }
    }

    /// The first superblock of a device; `None` if it has none.
    pub fn superblock(path: &Path) -> Result<Option<Box<Superblock>>, AdminError> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        look_at_device(path)?.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes)?;
        let superblock = Superblock::from_bytes(&bytes);
        Ok(superblock.has_magic().then_some(superblock))
    }

    /// Returns true for the target of a replacement that the kernel has begun: it is no device of the pool yet.
    pub fn is_target(&self) -> bool {
        self.devid == DevId::new(0)
    }

    pub(crate) fn of(superblock: &Superblock) -> Self {
        let item = &superblock.dev_item;
        let (devid, uuid, stored) = (item.devid, item.uuid, item.device_type.get());
        let (fsid, devices) = (superblock.fsid, superblock.num_devices.get());
        let (generation, is_seed) = (superblock.generation, superblock.is_seeding());
        Self { fsid, devid, uuid, stored, devices, generation, is_seed }
    }
}

/// The mark of a device that is to take the place of one of a pool, and has no superblock yet.
pub(crate) fn target_mark(path: &Path) -> Option<TargetMark> {
    let device = look_at_device(path).ok()?;
    let mark = TargetMark::read(&*device).ok()??;
    let identity = DeviceIdentity::read_any_copy(path).ok()?;
    identity.is_none().then_some(mark)
}
