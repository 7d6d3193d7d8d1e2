//! Contents in memory for which the file has no space yet: `stat` counts them beside what the inode item has, so that a
//! byte counts once, from its write on, wherever it lies.
//!
//! A write over an extent adds nothing, a write into a hole does. A write that looked for itself would cost a search of a
//! tree each; so it only notes its sectors, and the first `stat` after it looks up the extents of those. An extent that a
//! writeback enters takes its sectors out of both sets, in the same step that makes the inode item count them.

use brindle_interval::IntervalSet;
use std::ops::Range;

/// Sectors that are in memory only.
#[derive(Debug, Default)]
pub(crate) struct Unallocated {
    /// No extent covers them.
    known: IntervalSet<u64>,
    /// An extent may cover them.
    unclassified: IntervalSet<u64>,
}

impl Unallocated {
    /// The bytes for which the file has no space, as far as that is known.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.bytes()
    }

    /// Sectors that an extent may cover.
    pub(crate) fn unclassified(&self) -> &IntervalSet<u64> {
        &self.unclassified
    }

    /// Notes sectors that are written in memory.
    pub(crate) fn note(&mut self, range: &Range<u64>) {
        self.unclassified.insert(range);
    }

    /// Forgets sectors that are not in memory any more, or that an extent covers now.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        self.known.remove(range);
        self.unclassified.remove(range);
    }

    /// Takes in what was looked up of a range: the holes in it.
    pub(crate) fn classify(&mut self, range: &Range<u64>, holes: &[Range<u64>]) {
        // Some of the range may have been forgotten since.
        for part in holes.iter().flat_map(|hole| self.unclassified.within(hole)) {
            self.known.insert(part);
        }
        self.unclassified.remove(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_count_once() {
        let mut unallocated = Unallocated::default();
        unallocated.note(&(0..40));
        assert_eq!(unallocated.bytes(), 0, "not known yet");
        unallocated.classify(&(0..40), &[10..20, 30..60]);
        assert_eq!(unallocated.bytes(), 20);
        unallocated.note(&(0..40));
        unallocated.classify(&(0..40), &[10..20, 30..60]);
        assert_eq!(unallocated.bytes(), 20, "written again");
        unallocated.forget(&(15..35));
        assert_eq!(unallocated.bytes(), 10);
    }

    #[test]
    fn a_lookup_that_was_invalidated_meanwhile_does_not_count() {
        let mut unallocated = Unallocated::default();
        unallocated.note(&(0..40));
        let whole = 0..40;
        unallocated.forget(&(20..30));
        unallocated.classify(&whole, std::slice::from_ref(&whole));
        assert_eq!(unallocated.bytes(), 30);
    }
}
