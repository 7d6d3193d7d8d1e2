//! Changes of a transaction to a block group, as far as the free space tree does not have them yet.

use brindle_interval::{Interval, IntervalSet, gaps};

/// Net changes: what is taken and freed again, or freed and taken, is in neither set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    taken: IntervalSet<u64>,
    freed: IntervalSet<u64>,
}

impl Delta {
    /// A range is used from now on.
    pub(crate) fn take(&mut self, span: Interval) {
        let undone = self.freed.remove(span);
        for gap in gaps(span, undone) {
            self.taken.insert(gap);
        }
    }

    /// A range is free from now on.
    pub(crate) fn free(&mut self, span: Interval) {
        let undone = self.taken.remove(span);
        for gap in gaps(span, undone) {
            self.freed.insert(gap);
        }
    }

    /// Returns true if nothing has changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.freed.is_empty()
    }

    /// Brings the free ranges of a block group up to date; if they do not agree with what is taken and freed, the
    /// first range about which they don't.
    pub(crate) fn apply(&self, free: &mut IntervalSet<u64>) -> Result<(), Disagreement> {
        for span in self.freed.iter() {
            if free.intersects(span) {
                return Err(Disagreement { start: span.start, length: span.length(), is_free: true });
            }
            free.insert(span);
        }
        for span in self.taken.iter() {
            if !free.contains(span) {
                return Err(Disagreement { start: span.start, length: span.length(), is_free: false });
            }
            free.remove(span);
        }
        Ok(())
    }
}

/// A range that the free space tree has wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disagreement {
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// The tree has it for free (or part of it), and it is not; or the other way round.
    pub(crate) is_free: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn undone_changes_leave_no_trace() {
        let mut delta = Delta::default();
        delta.take(Interval::new(0, 10));
        delta.free(Interval::new(2, 3));
        delta.take(Interval::new(2, 3));
        delta.free(Interval::new(0, 10));
        assert!(delta.is_empty());
    }

    #[test]
    fn a_disagreement_is_found() {
        let mut delta = Delta::default();
        delta.take(Interval::new(0, 10));
        let error = delta.apply(&mut IntervalSet::of(5..15));
        assert_eq!(error, Err(Disagreement { start: 0, length: 10, is_free: false }));
        let mut delta = Delta::default();
        delta.free(Interval::new(0, 10));
        let error = delta.apply(&mut IntervalSet::of(5..15));
        assert_eq!(error, Err(Disagreement { start: 0, length: 10, is_free: true }));
    }

    proptest! {
        /// However changes are gathered, applied they give what they would have given one by one.
        #[test]
        fn gathered_changes_are_the_changes(
            steps in prop::collection::vec((0u64..60, 1u64..5, any::<bool>()), 0..60),
        ) {
            let mut model = IntervalSet::of(0..64);
            let mut tree = model.clone();
            let mut delta = Delta::default();
            for (start, length, settle) in steps {
                let span = Interval::new(start, length);
                if model.contains(span) {
                    model.remove(span);
                    delta.take(span);
                } else if !model.intersects(span) {
                    model.insert(span);
                    delta.free(span);
                }
                if settle {
                    std::mem::take(&mut delta).apply(&mut tree).expect("agrees");
                    prop_assert_eq!(&tree, &model);
                }
            }
            delta.apply(&mut tree).expect("agrees");
            prop_assert_eq!(tree, model);
        }
    }
}
