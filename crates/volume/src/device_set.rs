//! Sets of devices, for what is asked of some of a pool's devices: flushes, and the superblocks of a log.

use brindle_ondisk::DevId;
use std::collections::BTreeSet;

/// Devices of a pool, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSet {
    named: BTreeSet<DevId>,
    /// True if the set is of all devices but the named ones; also those that join later.
    is_of_others: bool,
}

impl DeviceSet {
    /// Every device that the pool has when the set is used.
    pub const ALL: Self = Self { named: BTreeSet::new(), is_of_others: true };

    /// Every device that the pool has when the set is used, but some.
    pub fn all_but(devices: impl IntoIterator<Item = DevId>) -> Self {
        Self { named: devices.into_iter().collect(), is_of_others: true }
    }

    /// Returns true if a device is in the set.
    pub fn contains(&self, devid: DevId) -> bool {
        self.named.contains(&devid) != self.is_of_others
    }

    /// Returns true if no device is in the set.
    pub fn is_empty(&self) -> bool {
        !self.is_of_others && self.named.is_empty()
    }

    /// Returns true if another set has each device of this one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// The devices of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.complement().intersection(&other.complement()).complement()
    }

    /// The devices of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (named, others) = (&self.named, &other.named);
        let (named, is_of_others) = match (self.is_of_others, other.is_of_others) {
            (false, false) => (named & others, false),
            (false, true) => (named - others, false),
            (true, false) => (others - named, false),
            (true, true) => (named | others, true),
        };
        Self { named, is_of_others }
    }

    /// The devices of this set that are not in another one.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// The devices that are not in the set.
    fn complement(&self) -> Self {
        Self { named: self.named.clone(), is_of_others: !self.is_of_others }
    }
}

impl Default for DeviceSet {
    /// No device.
    fn default() -> Self {
        Self { named: BTreeSet::new(), is_of_others: false }
    }
}

impl FromIterator<DevId> for DeviceSet {
    fn from_iter<I: IntoIterator<Item = DevId>>(devices: I) -> Self {
        Self { named: devices.into_iter().collect(), is_of_others: false }
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
    #[test]
    fn sets_are_those_of_plain_tables() {
        let devices = || (1..6).map(DevId::new);
        let of = |bits: u8| devices().filter(move |devid| bits >> devid.get() & 1 != 0);
        let sets = || {
            let some = (0..64u8).map(|bits| (of(bits).collect::<DeviceSet>(), bits));
            some.chain((0..64).map(|bits| (DeviceSet::all_but(of(bits)), !bits)))
        };
        for (one, of_one) in sets().step_by(3) {
            for (other, of_other) in sets() {
                let has = |set: &DeviceSet, bits: u8| {
                    devices().all(|devid| set.contains(devid) == (bits >> devid.get() & 1 != 0))
                };
                assert!(has(&one.union(&other), of_one | of_other), "{one:?} {other:?}");
                assert!(has(&one.intersection(&other), of_one & of_other), "{one:?} {other:?}");
            }
        }
        assert!(set(&[1]).is_subset(&DeviceSet::all_but([DevId::new(2)])));
        assert!(!set(&[1, 2]).is_subset(&DeviceSet::all_but([DevId::new(2)])));
        assert!(DeviceSet::all_but([DevId::new(2)]).is_subset(&DeviceSet::ALL));
        assert!(!DeviceSet::ALL.is_subset(&DeviceSet::all_but([DevId::new(2)])));
    }
}
