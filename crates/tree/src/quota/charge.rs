//! Limits: whether a subvolume may grow.

use super::state::{Quotas, State};
use crate::quota_error::QuotaError;
use brindle_ondisk::item::QgroupLimitFlags;
use brindle_ondisk::{QgroupId, RootId};
use std::collections::BTreeSet;

impl Quotas {
    /// Counts `bytes` more bytes of a subvolume as in memory, and returns their number; refuses if a group that it is part of
    /// would have more than it may with these and `beside`.
    pub(crate) fn claim(&self, subvolume: RootId, bytes: u64, beside: u64) -> Result<u64, QuotaError> {
        if !self.are_on() {
            return Ok(0);
        }
        let mut state = self.lock();
        for group in state.ledger.groups_of(subvolume) {
            if let Some(limit) = state.exceeded(group, bytes.saturating_add(beside)) {
                return Err(QuotaError::Exceeded { subvolume, group, limit });
            }
        }
        state.count_in_memory(subvolume, bytes, 0);
        Ok(bytes)
    }

    /// Returns true if a group that a subvolume is part of has a limit, and would exceed it with `bytes` more.
    pub(crate) fn is_near_limit(&self, subvolume: RootId, bytes: u64) -> bool {
        self.are_on() && {
            let state = self.lock();
            let groups = state.ledger.groups_of(subvolume);
            groups.into_iter().any(|group| state.exceeded(group, bytes).is_some())
        }
    }

    /// Bytes of a subvolume that are in memory, and have no extents yet, become more and less.
    pub(crate) fn count_in_memory(&self, subvolume: RootId, more: u64, less: u64) {
        if !self.are_on() {
            return;
        }
        self.lock().count_in_memory(subvolume, more, less);
    }

    /// Returns true if a commit may make the numbers smaller, or what counts on top of them; `waiting`: references to
    /// extents wait to be applied.
    pub(crate) fn may_shrink(&self, waiting: bool) -> bool {
        self.are_on() && {
            let state = self.lock();
            waiting || !state.changes.touched.is_empty() || !state.changes.entered.is_empty()
        }
    }
}

impl State {
    fn count_in_memory(&mut self, subvolume: RootId, more: u64, less: u64) {
        let bytes = self.in_memory.entry(subvolume).or_default();
        *bytes = bytes.saturating_add(more).saturating_sub(less);
        if *bytes == 0 {
            self.in_memory.remove(&subvolume);
        }
    }

    /// The limit of a group that `bytes` more bytes exceed.
    fn exceeded(&self, id: QgroupId, bytes: u64) -> Option<u64> {
        let group = self.ledger.groups.get(&id)?;
        let flags = QgroupLimitFlags::from_bits_truncate(group.limit.flags.get());
        let limits = [
            (QgroupLimitFlags::MAX_RFER, group.limit.max_rfer.get(), group.info.rfer.get()),
            (QgroupLimitFlags::MAX_EXCL, group.limit.max_excl.get(), group.info.excl.get()),
        ];
        let mut set = limits.into_iter().filter(|(flag, _, _)| flags.contains(*flag)).peekable();
        set.peek()?;
        let more = bytes.saturating_add(self.uncounted(id));
        set.find(|(_, limit, used)| used.saturating_add(more) > *limit).map(|(_, limit, _)| limit)
    }

    /// Bytes that members of a group have, and its numbers do not.
    fn uncounted(&self, id: QgroupId) -> u64 {
        let subvolumes: BTreeSet<RootId> =
            self.in_memory.keys().chain(self.changes.entered.keys()).copied().collect();
        let members = subvolumes.into_iter().filter(|root| self.ledger.groups_of(*root).contains(&id));
        let of = |root: &RootId| {
            let in_memory = self.in_memory.get(root).copied().unwrap_or(0);
            in_memory.saturating_add(self.changes.entered.get(root).copied().unwrap_or(0))
        };
        members.fold(0, |sum, root| sum.saturating_add(of(&root)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::ledger::Group;

    const ONE: RootId = RootId::new(256);

    #[test]
    fn room_that_is_claimed_is_no_other_writers() {
        let quotas = Quotas::default();
        let mut group = Group::empty();
        group.limit.flags = QgroupLimitFlags::MAX_RFER.bits().into();
        group.limit.max_rfer = 100.into();
        quotas.lock().ledger.groups.insert(QgroupId::of_subvolume(ONE), group);
        assert_eq!(quotas.claim(ONE, 1000, 0), Ok(0), "quotas are off");
        quotas.turn(true);
        assert!(quotas.is_near_limit(ONE, 101) && !quotas.is_near_limit(ONE, 100));
        assert_eq!(quotas.claim(ONE, 60, 40), Ok(60));
        assert!(quotas.is_near_limit(ONE, 41), "what is claimed counts");
        assert!(!quotas.is_near_limit(RootId::new(257), u64::MAX), "no limit");
        quotas.claim(ONE, 41, 0).expect_err("the other writer has not counted its bytes yet");
        quotas.claim(ONE, 40, 1).expect_err("with what comes beside");
        quotas.count_in_memory(ONE, 50, 60);
        assert_eq!(quotas.claim(ONE, 50, 0), Ok(50));
        quotas.count_in_memory(ONE, 0, 100);
        assert!(quotas.lock().in_memory.is_empty());
    }
}
