//! Classes of the devices of a pool: chosen by the user, stored in the pool, told by a mount of brindle, or by the hardware.

use super::{Inventory, MountedDevice, TierError};
use crate::control::{ControlError, Mounted};
use brindle_cache::look_at_device;
use brindle_device::DeviceClass;
use brindle_ondisk::DevId;
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::{ClassFacts, ClassReason, TierDevice, TierPool, classify};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A device with its class.
#[derive(Clone, Debug)]
pub struct ClassifiedDevice {
    /// Its id.
    pub devid: DevId,
    /// Its path; empty if it is missing.
    pub path: PathBuf,
    /// Its size, in bytes.
    pub total_bytes: u64,
    /// Hint stored in the pool.
    pub stored: u64,
    /// Its class, and the reason for it.
    pub class: (PlacementClass, ClassReason),
    /// Name of its class, which is that of the side where the owner has listed none.
    pub class_name: String,
    /// Rank of the class, 0 for the fastest.
    pub rank: u8,
}

/// Devices of an inventory with their classes, and the pool that decisions are made about. `chosen` are classes that the user
/// has named, `served` those of a mount of brindle.
pub fn classified(
    inventory: Inventory,
    is_of_kernel: bool,
    chosen: &HashMap<DevId, PlacementClass>,
    served: &HashMap<DevId, PlacementClass>,
) -> (Vec<ClassifiedDevice>, TierPool) {
    let Inventory { devices, chunks, classes, .. } = inventory;
    let classes = classes.unwrap_or_default();
    let facts = |device: &MountedDevice| ClassFacts {
        chosen: chosen.get(&device.devid).copied(),
        stored: device.stored,
        rotates: (!device.is_missing).then(|| rotates(&device.path)).flatten(),
    };
    let facts: Vec<ClassFacts> = devices.iter().map(facts).collect();
    let device = |(device, class): (MountedDevice, (PlacementClass, ClassReason))| {
        let told =
            served.get(&device.devid).filter(|told| class.1 != ClassReason::Chosen && **told != class.0);
        let class = told.map_or(class, |told| (*told, ClassReason::Mounted));
        let rank = classes.rank(&device.uuid, class.0);
        ClassifiedDevice {
            class_name: classes.name(rank),
            rank,
            devid: device.devid,
            path: if device.is_missing { PathBuf::new() } else { device.path },
            total_bytes: device.total_bytes,
            stored: device.stored,
            class,
        }
    };
    let devices: Vec<ClassifiedDevice> = devices.into_iter().zip(classify(&facts)).map(device).collect();
    let tier_device = |device: &ClassifiedDevice| TierDevice {
        devid: device.devid,
        class: device.class.0,
        rank: device.rank,
        total_bytes: device.total_bytes,
    };
    let pool = TierPool {
        devices: devices.iter().map(tier_device).collect(),
        chunks,
        classes,
        is_ours: !is_of_kernel,
        is_by_side: false,
    };
    (devices, pool.settled())
}

/// Classes of devices, as a mount of brindle tells them; none for a mount of the kernel.
pub fn classes_of_mount(mounted: &Mounted) -> Result<HashMap<DevId, PlacementClass>, ControlError> {
    if mounted.is_of_kernel() {
        return Ok(HashMap::new());
    }
    let class = |class| match class {
        1 => Some(PlacementClass::Fast),
        2 => Some(PlacementClass::Bulk),
        _ => None,
    };
    let devices = mounted.space()?.devices;
    Ok(devices.iter().filter_map(|device| Some((DevId::new(device.devid), class(device.class)?))).collect())
}

/// Refuses a pool that has grown from a seed.
pub fn require_no_seed(inventory: &Inventory) -> Result<(), TierError> {
    let seed = inventory.devices.iter().find(|device| device.is_seed);
    seed.map_or(Ok(()), |device| Err(TierError::Seed(device.devid)))
}

/// Rotation of a device, as the host reports it.
fn rotates(path: &Path) -> Option<bool> {
    match look_at_device(path).ok()?.class() {
        DeviceClass::Solid => Some(false),
        DeviceClass::Rotating => Some(true),
        DeviceClass::Unknown => None,
    }
}
