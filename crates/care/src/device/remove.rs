//! A device that leaves a pool.

use super::vacate::vacate;
use super::{DeviceCareError, check_no_balance, member, when_vacant};
use crate::job::{Control, Ended, Observer};
use brindle_ondisk::{DevId, Profile};
use brindle_tree::Pool;
use brindle_volume::{DeviceStatus, wipe_superblocks};

/// Device that is to leave, or to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The one of this id, there or not.
    Id(DevId),
    /// The first of those that are missing.
    Missing,
}

impl Leaving {
    /// The id, if it is known.
    pub fn devid(self) -> Option<u64> {
        match self {
            Self::Id(devid) => Some(devid.get()),
            Self::Missing => None,
        }
    }

    /// The device in a pool.
    pub(super) fn find(self, pool: &Pool) -> Result<DeviceStatus, DeviceCareError> {
        match self {
            Self::Id(devid) => member(pool, devid),
            Self::Missing => {
                let is_meant = |device: &DeviceStatus| device.missing && !device.is_seed;
                pool.volume().devices().into_iter().find(is_meant).ok_or(DeviceCareError::NoneMissing)
            }
        }
    }
}

/// A device leaves a pool, once what lies on it lies elsewhere.
pub fn remove(pool: &Pool, which: Leaving, observer: Observer<'_>) -> Result<Ended, DeviceCareError> {
    let alone = pool.begin_exclusive("device remove")?;
    check_no_balance(pool)?;
    let device = which.find(pool)?;
    check_enough_are_left(pool, &device)?;
    let _withheld = pool.withhold(device.devid, 0)?;
    let ended = vacate(pool, &alone, device.devid, 0, observer)?;
    if ended.control != Control::Continue {
        return Ok(ended);
    }
    let parted = when_vacant(pool, || pool.part_with_device(device.devid))?;
    if let Some(device) = parted.device {
        if let Err(error) = wipe_superblocks(device.as_ref()) {
            // The pool does not know the device any more; opening it later gives an error.
            tracing::warn!("{} keeps its superblocks: {error}", device.name());
        }
    }
    Ok(ended)
}

/// Checks that every profile in use has as many devices as it needs, present and in all.
fn check_enough_are_left(pool: &Pool, leaving: &DeviceStatus) -> Result<(), DeviceCareError> {
    let is_left = |device: &&DeviceStatus| device.devid != leaving.devid && !device.is_seed;
    let devices = pool.volume().devices();
    let left = devices.iter().filter(is_left).filter(|device| !device.missing).count();
    if left == 0 {
        return Err(DeviceCareError::Last);
    }
    let too_few = |profile: Profile| {
        let needed = profile.attributes().devs_min;
        (usize::from(needed) > left).then_some(DeviceCareError::TooFew { profile, needed, left })
    };
    let mut profiles = pool.volume().chunks().into_iter().filter_map(|chunk| chunk.kind.profile());
    profiles.find_map(too_few).map_or(Ok(()), Err)
}
