//! A device that was away while the pool was written without it, and comes back.
//!
//! It is a replacement of the missing device by itself (`replace.rs`): it loses its superblocks and gets the mark of a target,
//! and is no device of the pool until it has everything. Of what it has, data is kept that has the checksums of now; tree
//! blocks, parity, and data without checksums are written anew, but for what lies on it alone, which was written nowhere else. So
//! nothing depends on what it was written with meanwhile.

use super::replace::carry_out;
use super::{DeviceCareError, TargetMark, check_no_balance};
use crate::job::{Ended, Observer};
use brindle_device::{Device, WritableDevice};
use brindle_fs::Filesystem;
use brindle_ondisk::{DevId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use brindle_tree::Pool;
use brindle_volume::{CopyOptions, DeviceStatus, wipe_superblocks};
use std::sync::Arc;

/// A missing device comes back to a pool that was written without it, or goes on with that.
pub fn rejoin(
    filesystem: &Filesystem,
    device: &Arc<dyn WritableDevice>,
    observer: Observer<'_>,
) -> Result<(DevId, Ended), DeviceCareError> {
    let pool = filesystem.pool();
    let _alone = pool.begin_exclusive("device rejoin")?;
    check_no_balance(pool)?;
    let missing = find(pool, &Arc::clone(device).share_device())?;
    let (size_bytes, minimum_bytes) = (device.size_bytes(), missing.total_bytes);
    if size_bytes < minimum_bytes {
        let (device, devid) = (device.name().to_owned(), missing.devid);
        return Err(DeviceCareError::TargetTooSmall { device, size_bytes, devid, minimum_bytes });
    }
    TargetMark::of(pool, &missing).write(device.as_ref())?;
    wipe_superblocks(device.as_ref())?;
    let options = CopyOptions { avoids_source: false, verifies_target: true, is_itself: true };
    Ok((missing.devid, carry_out(filesystem, &missing, device, options, observer)?))
}

/// Refusal of a device that would rejoin the pool because of what it alone has, or because another one has its place, without writing
/// anything; `None` too if the device is none of the pool's.
pub fn refusal_of_rejoin(pool: &Pool, device: &Arc<dyn Device>) -> Option<DeviceCareError> {
    let is_meant = |error: &DeviceCareError| {
        use DeviceCareError::{Apart, OwnLog, Replaced};
        matches!(error, Apart { .. } | OwnLog { .. } | Replaced { .. })
    };
    find(pool, device).err().filter(is_meant)
}

/// Returns true if a missing device has been written without the pool: nothing else tells that what it has is not in the pool.
fn is_apart(found: &Superblock, pool: &Pool, missing: &DeviceStatus, device: &Arc<dyn Device>) -> bool {
    found.generation > pool.superblock().generation
        || missing.absent_since.is_some_and(|since| found.generation >= since)
        || pool.volume().contradicts(missing.devid, device, found)
}

/// Returns true if a missing device has a log that is not known to be one of the pool's.
fn has_own_log(found: &Superblock, pool: &Pool, missing: &DeviceStatus, device: &Arc<dyn Device>) -> bool {
    pool.volume().lacks_log_of(missing.devid, device, found)
}

/// The missing device that a device is, by its superblock or by its mark.
fn find(pool: &Pool, device: &Arc<dyn Device>) -> Result<DeviceStatus, DeviceCareError> {
    let (offset, expected) = (SUPERBLOCK_OFFSETS[0], pool.superblock());
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(offset, &mut bytes)?;
    let found = Superblock::parse(&bytes, offset).ok().filter(|found| found.fsid == expected.fsid);
    for missing in pool.volume().devices().into_iter().filter(|it| it.missing && !it.is_seed) {
        match &found {
            Some(found) if found.dev_item.uuid != missing.uuid => {}
            Some(found) if is_apart(found, pool, &missing, device) => {
                let (device, generation) = (device.name().to_owned(), found.generation);
                return Err(DeviceCareError::Apart { device, generation, expected: expected.generation });
            }
            Some(found) if found.generation < missing.placed_in => {
                let (devid, since) = (missing.devid, missing.placed_in);
                return Err(DeviceCareError::Replaced { device: device.name().to_owned(), devid, since });
            }
            Some(found) if has_own_log(found, pool, &missing, device) => {
                let devices = pool.volume().devices();
                let other = devices.into_iter().find(|it| !it.missing && !it.is_seed).map(|it| it.name);
                let (device, generation) = (device.name().to_owned(), found.generation);
                return Err(DeviceCareError::OwnLog { device, generation, other: other.unwrap_or_default() });
            }
            Some(_) => return Ok(missing),
            None if TargetMark::of(pool, &missing).is_on(device.as_ref())? => return Ok(missing),
            None => {}
        }
    }
    Err(DeviceCareError::NotAway { device: device.name().to_owned() })
}
