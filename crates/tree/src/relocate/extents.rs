//! Some of the data of a block group moves to the other tier, and the rest stays.
//!
//! The group is closed for that long, as one that is emptied: so nothing in it is written in place while it is carried,
//! and nothing new lies where some of it was freed. Extents that do not move are not affected.

use super::Relocator;
use super::data::RoomFor;
use super::{Moved, Observer, Relocation, Tried};
use crate::error::TreeError;
use crate::refs::DataRange;
use crate::space::close::GroupStatus;
use crate::space::data::TierChoice;
use brindle_ondisk::Logical;
use brindle_policy::placement::DataTier;
use std::ops::ControlFlow;

/// Upper bound on extents without room that are passed over.
const REFUSED_MAX: usize = 16;

impl Relocator<'_> {
    /// Moves extents of data, given by their addresses in ascending order, out of a block group to a tier, and
    /// nowhere else. Extents that are not there (any more) are passed over. Commits; not to be called within a
    /// transaction. By the operation of which there is one at a time. [`TreeError::NoSpace`] if
    /// not all of them have room there: those moved stay moved.
    pub(crate) fn move_data(
        &self,
        start: Logical,
        extents: &[DataRange],
        to: DataTier,
        observer: Observer<'_>,
    ) -> Result<Relocation, TreeError> {
        assert!(extents.is_sorted_by_key(|range| range.start), "they are in order");
        let Some(group) = self.space.block_group(start) else {
            return Ok(Relocation::Done(Moved::default()));
        };
        self.space.close_group(
            self.store,
            self.transactions.load(),
            start,
            Some(extents.iter().map(|range| range.length).sum()),
        )?;
        let mut moved = Moved::default();
        let done = self.move_extents(&group, extents, to, &mut moved, observer);
        self.space.reopen_group(start);
        match done? {
            ControlFlow::Continue(()) => Ok(Relocation::Done(moved)),
            ControlFlow::Break(()) => Ok(Relocation::Stopped(moved)),
        }
    }

    fn move_extents(
        &self,
        group: &GroupStatus,
        extents: &[DataRange],
        to: DataTier,
        moved: &mut Moved,
        observer: Observer<'_>,
    ) -> Result<ControlFlow<()>, TreeError> {
        // Writes in place happen within a transaction.
        self.transactions.exclusively(|_| Ok(()))?;
        self.transactions.commit()?;
        let (mut from, mut most) = (group.start, super::BLOCKS_MAX);
        let mut refused = Vec::new();
        loop {
            let batch = self.next_batch(group, from, most, Some(extents))?;
            let Some(behind) = batch.behind else { break };
            let tier = TierChoice::Only(to.into());
            match self.try_batch(&batch, tier, RoomFor::Another, &mut most, moved) {
                Ok(Tried::TooMuch) => continue,
                Ok(Tried::Moved) => most = (most * 2).min(super::BLOCKS_MAX),
                Err(TreeError::NoSpace(why)) => refused.push(why),
                Err(error) => return Err(error),
            }
            self.transactions.commit()?;
            if observer(moved).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if refused.len() > REFUSED_MAX {
                break;
            }
            from = behind;
        }
        if self.space.block_group(group.start).is_some_and(|group| group.used_bytes == 0) {
            // It goes while it is closed.
            self.transactions.commit()?;
        }
        match refused.pop() {
            Some(why) => Err(TreeError::NoSpace(why)),
            None => Ok(ControlFlow::Continue(())),
        }
    }
}
