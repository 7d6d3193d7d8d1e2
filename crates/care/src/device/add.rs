//! Devices that join a pool.

use super::DeviceCareError;
use crate::mkfs::{signature, write};
use brindle_cache::open_device_to_write;
use brindle_device::WritableDevice;
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::placement::{AllocationHint, PlacementClass};
use brindle_tree::{DeviceSpace, JoiningDevice, Pool};
use std::path::Path;
use std::sync::Arc;

/// Less can't hold anything worth the trouble, in bytes.
const MINIMUM_BYTES: u64 = 8 << 20;

/// A device that is to join.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// The device.
    pub device: Arc<dyn WritableDevice>,
    /// A UUID that nothing else has.
    pub uuid: Uuid,
    /// Class given by its owner; the pool stores that as a hint.
    pub class: Option<PlacementClass>,
}

impl Newcomer {
    /// Opens a block device that is not in use, an image file, or an export of an NBD server.
    pub fn open(path: &Path, uuid: Uuid, class: Option<PlacementClass>) -> Result<Self, DeviceCareError> {
        Ok(Self { device: open_device(path)?, uuid, class })
    }
}

/// Opens a block device that is not in use, an image file, or an export of an NBD server.
pub fn open_device(path: &Path) -> Result<Arc<dyn WritableDevice>, DeviceCareError> {
    Ok(open_device_to_write(path)?)
}

/// Options of adding devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddOptions {
    /// Add them even if they hold something.
    pub force: bool,
    /// Their space is given back first.
    pub discard: bool,
}

/// Devices join a pool; whatever they held is lost. Which ids they have.
pub fn add(pool: &Pool, newcomers: &[Newcomer], options: &AddOptions) -> Result<Vec<DevId>, DeviceCareError> {
    let _alone = pool.begin_exclusive("device add")?;
    for new in newcomers {
        check(new.device.as_ref(), options)?;
    }
    for new in newcomers {
        empty(new.device.as_ref(), options)?;
    }
    if newcomers.iter().any(|new| new.class.is_some()) {
        keep_classes(pool)?;
    }
    let join = |new: &Newcomer| {
        let hint = match new.class {
            Some(PlacementClass::Fast) => AllocationHint::MetadataPreferred,
            Some(PlacementClass::Bulk) | None => AllocationHint::default(),
        };
        pool.join_device(&JoiningDevice { device: Arc::clone(&new.device), uuid: new.uuid, hint })
    };
    let devids = newcomers.iter().map(join).collect::<Result<_, _>>()?;
    pool.commit()?;
    Ok(devids)
}

/// Makes a device ready that the kernel is to add: whatever it held is lost.
pub fn prepare(device: &dyn WritableDevice, options: &AddOptions) -> Result<(), DeviceCareError> {
    check(device, options)?;
    empty(device, options)
}

pub(super) fn check(device: &dyn WritableDevice, options: &AddOptions) -> Result<(), DeviceCareError> {
    let (name, size_bytes) = (device.name().to_owned(), device.size_bytes());
    if size_bytes < MINIMUM_BYTES {
        return Err(DeviceCareError::TooSmall { device: name, size_bytes, minimum_bytes: MINIMUM_BYTES });
    }
    match signature::find(device.as_device())?.filter(|_| !options.force) {
        Some(found) => Err(DeviceCareError::InUse { device: name, found }),
        None => Ok(()),
    }
}

pub(super) fn empty(device: &dyn WritableDevice, options: &AddOptions) -> Result<(), DeviceCareError> {
    write::wipe(device, options.discard)?;
    Ok(device.flush()?)
}

/// Stores hints for devices that are fast by themselves. As soon as one device has a hint, hints alone count, so
/// without this a pool without any would lose its classes.
fn keep_classes(pool: &Pool) -> Result<(), DeviceCareError> {
    let devices = pool.space_summary()?.devices;
    if devices.iter().any(|device| device.stored_type != 0) {
        return Ok(());
    }
    let is_fast = |device: &&DeviceSpace| device.class == PlacementClass::Fast;
    for device in devices.iter().filter(is_fast) {
        pool.set_allocation_hint(device.devid, AllocationHint::MetadataPreferred)?;
    }
    Ok(())
}
