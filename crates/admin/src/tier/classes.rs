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

/// Devices of an inventory with their classes, and the pool that decisions are made about, which has no missing devices among those
/// that things go to. `chosen` are classes that the user has named, `served` those of a mount of brindle.
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
    let is_missing: Vec<bool> = devices.iter().map(|device| device.is_missing).collect();
    // A hint of a missing device makes those of the others count when it is back, and not before.
    let mut there = classify_there(&facts, &is_missing).into_iter();
    let mut members = Vec::new();
    let device = |(device, whole): (MountedDevice, (PlacementClass, ClassReason))| {
        let class = if device.is_missing { whole } else { there.next().expect("one for each that is there") };
        let told =
            served.get(&device.devid).filter(|told| class.1 != ClassReason::Chosen && **told != class.0);
        let class = told.map_or(class, |told| (*told, ClassReason::Mounted));
        let whole = told.map_or(whole.0, |told| *told);
        members.push(TierDevice {
            devid: device.devid,
            class: whole,
            rank: classes.rank(&device.uuid, whole),
            total_bytes: device.total_bytes,
        });
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
    let is_there = |device: &&ClassifiedDevice| !device.path.as_os_str().is_empty();
    let pool = TierPool {
        devices: devices.iter().filter(is_there).map(tier_device).collect(),
        members: if is_missing.contains(&true) { members } else { Vec::new() },
        chunks,
        classes,
        is_ours: !is_of_kernel,
        is_by_side: false,
    };
    (devices, pool.settled())
}

/// Classes of the devices that are there, by what is known of these alone, as a mount has them.
fn classify_there(facts: &[ClassFacts], is_missing: &[bool]) -> Vec<(PlacementClass, ClassReason)> {
    let there = facts.iter().zip(is_missing).filter(|(_, is_missing)| !**is_missing);
    classify(&there.map(|(facts, _)| *facts).collect::<Vec<_>>())
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

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::Uuid;
    use brindle_policy::class::DeviceClasses;
    use brindle_policy::tier::missing::absence;

    /// An SSD that stores a hint, and two disks that are not known to be fast.
    fn inventory(is_missing: [bool; 3]) -> Inventory {
        let device = |(devid, is_missing): (u64, bool)| MountedDevice {
            devid: DevId::new(devid),
            uuid: Uuid::NIL,
            path: if is_missing { PathBuf::new() } else { PathBuf::from(format!("/nowhere/{devid}")) },
            total_bytes: 1 << 30,
            stored: if devid == 1 { 1 } else { 0 },
            is_missing,
            is_seed: false,
        };
        Inventory {
            fsid: Uuid::NIL,
            devices: (1..).zip(is_missing).map(device).collect(),
            chunks: Vec::new(),
            classes: Ok(DeviceClasses::default()),
        }
    }

    fn classes(inventory: Inventory) -> (Vec<PlacementClass>, TierPool) {
        let (devices, pool) = classified(inventory, false, &HashMap::new(), &HashMap::new());
        (devices.iter().map(|device| device.class.0).collect(), pool)
    }

    #[test]
    fn missing_devices_are_told_apart_from_those_that_things_go_to() {
        use PlacementClass::{Bulk, Fast};
        let (told, pool) = classes(inventory([false; 3]));
        assert_eq!(told, [Fast, Bulk, Bulk]);
        assert_eq!((pool.count(Fast), pool.count(Bulk), pool.members.len()), (1, 2, 0));
        let (told, pool) = classes(inventory([true, false, false]));
        assert_eq!(told, [Fast, Bulk, Bulk], "it is shown as the pool has it");
        assert_eq!((pool.count(Fast), pool.count(Bulk), pool.members.len()), (0, 2, 3));
        assert_eq!(absence(&pool).expect("one is missing").devices[0].class, Fast);
        let (_, pool) = classes(inventory([false, true, false]));
        assert_eq!((pool.count(Fast), pool.count(Bulk)), (1, 1));
    }
}
