//! Sets of devices, for what is asked of some of a pool's devices: flushes, and the superblocks of a log.

use brindle_ondisk::DevId;
use std::collections::BTreeSet;

/// Devices of a pool, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSet(Members);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Members {
    /// Also those that join later.
    All,
    These(BTreeSet<DevId>),
}

impl DeviceSet {
    /// Every device that the pool has when the set is used.
    pub const ALL: Self = Self(Members::All);

    /// Returns true if a device is in the set.
    pub fn contains(&self, devid: DevId) -> bool {
        match &self.0 {
            Members::All => true,
            Members::These(devices) => devices.contains(&devid),
        }
    }

    /// Returns true if no device is in the set.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Members::These(devices) if devices.is_empty())
    }

    /// Returns true if another set has each device of this one.
    pub fn is_subset(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (_, Members::All) => true,
            (Members::All, Members::These(_)) => false,
            (Members::These(devices), Members::These(others)) => devices.is_subset(others),
        }
    }

    /// The devices of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (Members::These(devices), Members::These(others)) => devices.union(others).copied().collect(),
            _ => Self::ALL,
        }
    }

    /// The devices of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (Members::All, _) => other.clone(),
            (_, Members::All) => self.clone(),
            (Members::These(devices), Members::These(others)) => {
                devices.intersection(others).copied().collect()
            }
        }
    }
}

impl FromIterator<DevId> for DeviceSet {
    fn from_iter<I: IntoIterator<Item = DevId>>(devices: I) -> Self {
        Self(Members::These(devices.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(devices: &[u64]) -> DeviceSet {
        devices.iter().map(|devid| DevId::new(*devid)).collect()
    }

    #[test]
    fn all_devices_are_more_than_any_that_are_named() {
        let (fast, slow) = (set(&[1, 3]), set(&[2, 3]));
        assert_eq!((fast.union(&slow), fast.intersection(&slow)), (set(&[1, 2, 3]), set(&[3])));
        assert_eq!(
            (fast.union(&DeviceSet::ALL), DeviceSet::ALL.intersection(&fast)),
            (DeviceSet::ALL, fast.clone())
        );
        assert!(set(&[3]).is_subset(&fast) && !slow.is_subset(&fast));
        assert!(fast.is_subset(&DeviceSet::ALL) && !DeviceSet::ALL.is_subset(&fast));
        assert!(DeviceSet::ALL.contains(DevId::new(9)) && !fast.contains(DevId::new(2)));
        assert!(set(&[]).is_empty() && !DeviceSet::ALL.is_empty() && set(&[]).is_subset(&slow));
    }
}
