//! Series of commits: what tells a device that slept from one that was away.

use crate::{DevId, Generation, Superblock};
use std::fmt;

/// The upper bits of a generation that is a series: "br" in ASCII. No generation of a transaction is as large.
const TAG: u64 = 0x6272 << TAG_SHIFT;
const TAG_SHIFT: u32 = 48;
/// Bits of the number.
const NUMBER: u64 = (1 << HOLDERS_SHIFT) - 1;
const HOLDERS_SHIFT: u32 = 24;
/// Number of bits for holders.
const HOLDERS: u64 = 24;

/// A series of commits, between two of which no device missed anything.
///
/// It is kept in the generation of a superblock's own device item, where the kernel and btrfs-progs write zero, with the
/// [`Holders`] above it. So superblocks of one series differ in age: a device with an older one was left alone since, if
/// the pool's records do not say otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Series(u64);

impl Series {
    /// The series of a number, of which the upper bits are folded into the lower 24.
    pub const fn new(number: u64) -> Self {
        Self((number ^ number >> 24 ^ number >> 48) & NUMBER)
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Series({:#x})", self.0)
    }
}

/// Devices that hold a superblock of the generation of this one, by what it says: they held it, durably, when this one was
/// written. One with an older superblock is an old copy of itself.
///
/// Each of the bits stands for all devices whose ids are the same modulo 24, and is set if all of these hold it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Holders(u64);

impl Holders {
    /// Devices that hold a superblock, from all devices of the pool and whether they do.
    pub fn of(devices: impl IntoIterator<Item = (DevId, bool)>) -> Self {
        let (mut holding, mut lacking) = (0, 0);
        for (devid, holds) in devices {
            let bits = if holds { &mut holding } else { &mut lacking };
            *bits |= Self::bit(devid);
        }
        Self(holding & !lacking)
    }

    /// Returns true if a device is known to hold the superblock.
    pub fn contains(self, devid: DevId) -> bool {
        self.0 & Self::bit(devid) != 0
    }

    /// The devices of either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn bit(devid: DevId) -> u64 {
        1 << (devid.get() % HOLDERS)
    }
}

impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holders({:#x})", self.0)
    }
}

impl Superblock {
    /// The series that this superblock is of, if any.
    pub fn series(&self) -> Option<Series> {
        let stored = self.dev_item.generation.get();
        (stored >> TAG_SHIFT == TAG >> TAG_SHIFT).then_some(Series(stored & NUMBER))
    }

    /// Makes this superblock one of a series, or of none; no device is known to hold it.
    pub fn set_series(&mut self, series: Option<Series>) {
        self.dev_item.generation = Generation::new(series.map_or(0, |series| TAG | series.0));
    }

    /// The devices that are known to hold a superblock of this generation.
    pub fn holders(&self) -> Holders {
        match self.series() {
            Some(_) => Holders((self.dev_item.generation.get() & !TAG) >> HOLDERS_SHIFT),
            None => Holders::default(),
        }
    }

    /// Says of further devices that they hold a superblock of this generation, if it is of a series.
    pub fn add_holders(&mut self, holders: Holders) {
        if self.series().is_some() {
            let stored = self.dev_item.generation.get() | holders.0 << HOLDERS_SHIFT;
            self.dev_item.generation = Generation::new(stored);
        }
    }

    /// Returns true if both are of one series.
    pub fn is_of_series(&self, other: &Self) -> bool {
        self.series().is_some_and(|series| other.series() == Some(series))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_series_is_told_from_a_generation_and_none_is_the_same_as_another() {
        let mut one = Superblock::new_zeroed();
        let mut other = Superblock::new_zeroed();
        assert_eq!(one.series(), None);
        assert!(!one.is_of_series(&other), "neither is of any");
        one.set_series(Some(Series::new(0x5555_ffff_ff00_0000)));
        assert_eq!(one.dev_item.generation.get(), 0x6272_0000_00ff_aaaa);
        assert!(!one.is_of_series(&other) && !other.is_of_series(&one));
        other.set_series(Some(Series::new(0)));
        assert_eq!((other.series(), one.is_of_series(&other)), (Some(Series::new(0)), false));
        other.set_series(one.series());
        assert!(one.is_of_series(&other));
        for generation in [1, 77, 1 << 48, u64::MAX] {
            one.dev_item.generation = Generation::new(generation);
            assert_eq!((one.series(), one.holders()), (None, Holders::default()));
        }
        other.set_series(None);
        assert_eq!(other.dev_item.generation.get(), 0);
    }

    #[test]
    fn holders_are_named_only_where_no_other_device_is_meant() {
        let of = |devices: &[(u64, bool)]| {
            Holders::of(devices.iter().map(|(devid, holds)| (DevId::new(*devid), *holds)))
        };
        let some = of(&[(1, false), (2, true), (3, true), (27, false), (47, true)]);
        let named: Vec<u64> = (0..50).filter(|devid| some.contains(DevId::new(*devid))).collect();
        assert_eq!(named, [2, 23, 26, 47], "27 stands for 3 as well");
        let mut superblock = Superblock::new_zeroed();
        superblock.add_holders(some);
        assert_eq!(superblock.dev_item.generation.get(), 0, "it is of no series");
        superblock.set_series(Some(Series::new(7)));
        superblock.add_holders(some);
        assert_eq!((superblock.series(), superblock.holders()), (Some(Series::new(7)), some));
        let all = of(&[(23, true), (24, true)]);
        superblock.add_holders(all);
        assert_eq!(superblock.holders(), some.union(all));
        superblock.set_series(superblock.series());
        assert_eq!((superblock.series(), superblock.holders()), (Some(Series::new(7)), Holders::default()));
    }
}
