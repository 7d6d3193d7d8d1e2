//! Changes of a transaction to a block group, as far as the free space tree does not have them yet.

use super::ranges::{RangeSet, Span, gaps};

/// Net changes: what is taken and freed again, or freed and taken, is in neither set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    taken: RangeSet,
    freed: RangeSet,
}

impl Delta {
    /// A range is used from now on.
    pub(super) fn take(&mut self, span: Span) {
        let undone = self.freed.remove(span);
        for gap in gaps(span, &undone) {
            self.taken.insert(gap);
        }
    }

    /// A range is free from now on.
    pub(super) fn free(&mut self, span: Span) {
        let undone = self.taken.remove(span);
        for gap in gaps(span, &undone) {
            self.freed.insert(gap);
        }
    }

    /// Returns true if nothing has changed.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.freed.is_empty()
    }

    /// Brings the free ranges of a block group up to date; if they do not agree with what is taken and freed, the
    /// first range about which they don't.
    pub(super) fn apply(&self, free: &mut RangeSet) -> Result<(), Disagreement> {
        for span in self.freed.iter() {
            if !free.within(span).is_empty() {
                return Err(Disagreement { start: span.0, length: span.1, is_free: true });
            }
            free.insert(span);
        }
        for span in self.taken.iter() {
            if !free.contains(span) {
                return Err(Disagreement { start: span.0, length: span.1, is_free: false });
            }
            free.remove(span);
        }
        Ok(())
    }
}

/// A range that the free space tree has wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disagreement {
    pub(super) start: u64,
    pub(super) length: u64,
    /// The tree has it for free (or part of it), and it is not; or the other way round.
    pub(super) is_free: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn undone_changes_leave_no_trace() {
        let mut delta = Delta::default();
        delta.take((0, 10));
        delta.free((2, 3));
        delta.take((2, 3));
        delta.free((0, 10));
        assert!(delta.is_empty());
    }

    #[test]
    fn a_disagreement_is_found() {
        let mut delta = Delta::default();
        delta.take((0, 10));
        let error = delta.apply(&mut [(5, 10)].into_iter().collect());
        assert_eq!(error, Err(Disagreement { start: 0, length: 10, is_free: false }));
        let mut delta = Delta::default();
        delta.free((0, 10));
        let error = delta.apply(&mut [(5, 10)].into_iter().collect());
        assert_eq!(error, Err(Disagreement { start: 0, length: 10, is_free: true }));
    }

    proptest! {
        /// However changes are gathered, applied they give what they would have given one by one.
        #[test]
        fn gathered_changes_are_the_changes(
            steps in prop::collection::vec((0u64..60, 1u64..5, any::<bool>()), 0..60),
        ) {
            let mut model: RangeSet = [(0, 64)].into_iter().collect();
            let mut tree = model.clone();
            let mut delta = Delta::default();
            for (start, length, settle) in steps {
                let span = (start, length);
                if model.contains(span) {
                    model.remove(span);
                    delta.take(span);
                } else if model.within(span).is_empty() {
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
