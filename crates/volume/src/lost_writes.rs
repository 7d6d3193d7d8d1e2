//! Places of a device: where it failed to take a write that the pool could do without, so that what it holds
//! there is old, and nothing but this tells it from what is right; and where it took one that is not durable yet.
//! The module `mend` says how the first come to an end.

use brindle_interval::{Interval, IntervalSet};
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A device that has lost more places than this is not read at all.
const RANGES_MAX: usize = 1 << 16;

/// Places of one device.
#[derive(Debug, Default)]
pub(crate) struct LostWrites {
    /// True if there are any: nearly always, there are none.
    any: AtomicBool,
    places: Mutex<Places>,
}

/// Places of lost writes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    ranges: IntervalSet<u64>,
    /// They are too many to be told apart.
    everywhere: bool,
}

impl Ranked for Places {
    const RANK: Rank = Rank::LostWrites;
}

impl LostWrites {
    /// A write has failed, or changed something.
    pub(crate) fn remember(&self, offset: u64, length: u64) {
        let mut places = self.lock();
        if places.everywhere {
            return;
        }
        places.ranges.insert(offset..offset.saturating_add(length));
        if places.ranges.len() > RANGES_MAX {
            *places = Places { everywhere: true, ranges: IntervalSet::default() };
        }
        self.any.store(true, Relaxed);
    }

    /// Remembers other places too.
    pub(crate) fn absorb(&self, other: &Places) {
        for range in other.ranges.iter() {
            self.remember(range.start, range.length());
        }
        if other.everywhere {
            self.lock().everywhere = true;
            self.any.store(true, Relaxed);
        }
    }

    /// Forgets everything, and answers with it.
    pub(crate) fn take(&self) -> Places {
        let mut places = self.lock();
        self.any.store(false, Relaxed);
        std::mem::take(&mut places)
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// All of them; `None` if they are too many to be told apart.
    pub(crate) fn ranges(&self) -> Option<Vec<Interval>> {
        let places = self.lock();
        (!places.everywhere).then(|| places.ranges.iter().collect())
    }

    /// A write has succeeded.
    pub(crate) fn forget(&self, offset: u64, length: u64) {
        if !self.any.load(Relaxed) {
            return;
        }
        let mut places = self.lock();
        places.ranges.remove(offset..offset.saturating_add(length));
        self.any.store(places.everywhere || !places.ranges.is_empty(), Relaxed);
    }

    /// Returns true if a range holds something old.
    pub(crate) fn affect(&self, offset: u64, length: u64) -> bool {
        if !self.any.load(Relaxed) {
            return false;
        }
        let places = self.lock();
        places.everywhere || places.ranges.intersects(offset..offset.saturating_add(length))
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock()
    }
}

impl Places {
    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && !self.everywhere
    }

    /// All of them; `None` if they are too many to be told apart.
    pub(crate) fn ranges(&self) -> Option<impl Iterator<Item = Interval>> {
        (!self.everywhere).then(|| self.ranges.iter())
    }

    /// Adds other places.
    pub(crate) fn absorb(&mut self, other: &Self) {
        let sum = LostWrites::default();
        sum.absorb(self);
        sum.absorb(other);
        *self = sum.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::to_usize;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_places_are_those_of_a_plain_table(
            operations in prop::collection::vec((any::<bool>(), 0..60u64, 1..12u64), 1..60),
        ) {
            let (lost, mut model) = (LostWrites::default(), [false; 80]);
            for (is_failure, offset, length) in operations {
                if is_failure { lost.remember(offset, length) } else { lost.forget(offset, length) }
                let range = to_usize(offset)..to_usize(offset + length);
                model[range].fill(is_failure);
                for at in 0..79u64 {
                    prop_assert_eq!(lost.affect(at, 1), model[to_usize(at)], "at {}", at);
                    let either = model[to_usize(at)] || model[to_usize(at + 1)];
                    prop_assert_eq!(lost.affect(at, 2), either, "at {}", at);
                }
            }
        }
    }

    #[test]
    fn too_many_places_are_everywhere() {
        let lost = LostWrites::default();
        for place in 0..=RANGES_MAX as u64 {
            assert!(!lost.affect(u64::MAX / 2, 1));
            lost.remember(place * 3, 1);
        }
        assert!(lost.affect(u64::MAX / 2, 1));
    }
}
