//! Choice of the line between two neighbours when one of them is to take something new. Pure.

use crate::habit::Flow;
use brindle_ondisk::Node;

/// Two neighbours, seen as one row of slots.
#[derive(Clone, Copy)]
pub(super) struct Row<'n> {
    pub(super) left: &'n Node,
    pub(super) right: &'n Node,
}

/// Addition to a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addition {
    /// Slot of the row before which it goes.
    pub(super) at: usize,
    /// Bytes that it takes.
    pub(super) space: usize,
}

/// Line between the neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Number of existing slots left of it.
    pub(super) slots: usize,
    /// True if the addition is left of it.
    pub(super) new_is_left: bool,
}

impl Row<'_> {
    fn len(&self) -> usize {
        self.left.len() + self.right.len()
    }

    /// Bytes that the first `slots` of the row take.
    fn space_before(&self, slots: usize) -> usize {
        match slots.checked_sub(self.left.len()) {
            None => self.left.used_space(0..slots),
            Some(rest) => self.left.used_space(0..self.left.len()) + self.right.used_space(0..rest),
        }
    }

    /// Bytes that the whole row takes.
    pub(super) fn space(&self) -> usize {
        self.space_before(self.len())
    }

    /// The best line, if there is one that lets both sides fit and leaves neither empty.
    pub(super) fn cut(&self, new: Addition, flow: Flow) -> Option<Cut> {
        let beside = |new_is_left| Cut { slots: new.at, new_is_left };
        match flow {
            Flow::Ascending => [true, false].map(beside).into_iter().find(|cut| self.is_possible(new, *cut)),
            Flow::Descending => [false, true].map(beside).into_iter().find(|cut| self.is_possible(new, *cut)),
            Flow::Random => None,
        }
        .or_else(|| self.even_cut(new))
    }

    fn even_cut(&self, new: Addition) -> Option<Cut> {
        let before = (0..=new.at).map(|slots| Cut { slots, new_is_left: false });
        let behind = (new.at..=self.len()).map(|slots| Cut { slots, new_is_left: true });
        let imbalance = |cut: &Cut| {
            let (left, right) = self.sides(new, *cut);
            left.abs_diff(right)
        };
        before.chain(behind).filter(|cut| self.is_possible(new, *cut)).min_by_key(imbalance)
    }

    /// Bytes that the left and the right side would take.
    fn sides(&self, new: Addition, cut: Cut) -> (usize, usize) {
        let left = self.space_before(cut.slots);
        let right = self.space() - left;
        if cut.new_is_left { (left + new.space, right) } else { (left, right + new.space) }
    }

    fn is_possible(&self, new: Addition, cut: Cut) -> bool {
        let capacity = self.left.capacity();
        let (left, right) = self.sides(new, cut);
        (1..=capacity).contains(&left) && (1..=capacity).contains(&right)
    }
}
