//! Series of commits: what tells a device that slept from one that was away.

use crate::{Generation, Superblock};
use std::fmt;

/// The upper bits of a generation that is a series: "br" in ASCII. No generation of a transaction is as large.
const TAG: u64 = 0x6272 << 48;
/// Bits of the number.
const NUMBER: u64 = (1 << 48) - 1;

/// A series of commits, between two of which no device missed anything.
///
/// It is kept in the generation of a superblock's own device item, where the kernel and btrfs-progs write zero. So
/// superblocks of one series differ in nothing but age: a device with the older one was left alone since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Series(u64);

impl Series {
    /// The series of a number, of which the upper bits are folded into the lower 48.
    pub const fn new(number: u64) -> Self {
        Self((number ^ number >> 48) & NUMBER)
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Series({:#x})", self.0)
    }
}

impl Superblock {
    /// The series that this superblock is of, if any.
    pub fn series(&self) -> Option<Series> {
        let stored = self.dev_item.generation.get();
        (stored & !NUMBER == TAG).then_some(Series(stored & NUMBER))
    }

    /// Makes this superblock one of a series, or of none.
    pub fn set_series(&mut self, series: Option<Series>) {
        self.dev_item.generation = Generation::new(series.map_or(0, |series| TAG | series.0));
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
        one.set_series(Some(Series::new(0x5555_ffff_ffff_0000)));
        assert_eq!(one.dev_item.generation.get(), 0x6272_ffff_ffff_5555);
        assert!(!one.is_of_series(&other) && !other.is_of_series(&one));
        other.set_series(Some(Series::new(0)));
        assert_eq!((other.series(), one.is_of_series(&other)), (Some(Series::new(0)), false));
        other.set_series(one.series());
        assert!(one.is_of_series(&other));
        for generation in [1, 77, 1 << 48, u64::MAX] {
            one.dev_item.generation = Generation::new(generation);
            assert_eq!(one.series(), None);
        }
        other.set_series(None);
        assert_eq!(other.dev_item.generation.get(), 0);
    }
}
