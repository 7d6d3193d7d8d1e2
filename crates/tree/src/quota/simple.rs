//! Simple quotas: an extent counts for the subvolume that wrote it first.

use super::ledger::{Group, Underflow};
use super::state::{Quotas, State};
use brindle_ondisk::{Generation, QgroupId, RootId};
use brindle_sync::atomic::Ordering;

/// Fate of an extent whose references have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The extent tree has it from now on.
    Comes,
    /// All its references are gone before the extent tree had it.
    GivenUp,
    /// The extent tree loses it.
    Goes,
}

/// An extent that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The tree that wrote it first.
    pub(crate) owner: RootId,
    /// The transaction that its item names.
    pub(crate) generation: Generation,
    /// Its length.
    pub(crate) bytes: u64,
    pub(crate) act: Act,
    /// Bytes of it that limits have counted as entered.
    pub(crate) entered: u64,
}

impl Quotas {
    /// Returns true if the pool has simple quotas.
    pub(crate) fn are_simple(&self) -> bool {
        self.is_simple.load(Ordering::Acquire) && self.are_on()
    }

    /// Returns true if numbers are not in the quota tree yet.
    pub(crate) fn has_unwritten_numbers(&self) -> bool {
        self.are_simple() && self.lock().ledger.groups.values().any(|group| group.is_changed)
    }

    /// Returns true if an extent that a transaction wrote counts.
    pub(crate) fn counts_extents_of(&self, generation: Generation) -> bool {
        self.are_simple() && self.lock().counted_from.is_some_and(|from| generation >= from)
    }

    /// The last one of the subvolumes that have extents which count, there or gone.
    pub(crate) fn last_owner(&self) -> Option<RootId> {
        if !self.are_simple() {
            return None;
        }
        let state = self.lock();
        let owners =
            state.ledger.groups.iter().filter(|(id, group)| id.level() == 0 && group.info.rfer.get() > 0);
        owners.map(|(id, _)| RootId::new(id.get())).next_back()
    }

    /// Extents came and went.
    pub(crate) fn count(&self, counted: &[Counted]) {
        if counted.is_empty() || !self.are_simple() {
            return;
        }
        let mut state = self.lock();
        for one in counted {
            state.count(one);
        }
    }
}

impl State {
    fn count(&mut self, counted: &Counted) {
        let Some(from) = self.counted_from else { return };
        let Counted { owner, generation, bytes, act, entered } = *counted;
        if let Some(more) = self.changes.entered.get_mut(&owner) {
            *more = more.saturating_sub(entered);
            if *more == 0 {
                self.changes.entered.remove(&owner);
            }
        }
        let is_of_subvolume = owner == RootId::FS_TREE || owner.is_subvolume();
        if !is_of_subvolume || generation < from || act == Act::GivenUp {
            return;
        }
        let group = QgroupId::of_subvolume(owner);
        if act == Act::Comes && !self.ledger.groups.contains_key(&group) {
            // A block of a subvolume that is gone has moved. Without a group Linux ends all writing when the block goes.
            self.ledger.groups.insert(group, Group::empty());
            self.changes.found.push(group);
        }
        if let Err(Underflow(group)) = self.ledger.count(owner, bytes, act == Act::Comes) {
            tracing::warn!("quota group {group} was to lose more bytes than it had: {counted:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RootId = RootId::new(256);
    const COMES: Counted =
        Counted { owner: ONE, generation: Generation::new(7), bytes: 4096, act: Act::Comes, entered: 4096 };

    fn quotas() -> Quotas {
        let quotas = Quotas::default();
        let above = QgroupId::new(1 << 48 | 1);
        {
            let mut state = quotas.lock();
            state.counted_from = Some(Generation::new(7));
            for id in [QgroupId::of_subvolume(ONE), QgroupId::of_subvolume(RootId::FS_TREE), above] {
                state.ledger.groups.insert(id, Group::empty());
            }
            assert!(!state.ledger.relate(QgroupId::of_subvolume(ONE), above, true), "nothing is in it");
        }
        quotas.turn(true);
        quotas
    }

    fn numbers(quotas: &Quotas) -> Vec<(u64, u64)> {
        let state = quotas.lock();
        state.ledger.groups.values().map(|group| (group.info.rfer.get(), group.info.excl.get())).collect()
    }

    #[test]
    fn an_extent_counts_for_its_owner_and_the_groups_above_until_it_goes() {
        let quotas = quotas();
        quotas.enter(ONE, 8192);
        quotas.count(&[COMES]);
        assert_eq!(numbers(&quotas), [(0, 0), (4096, 4096), (4096, 4096)]);
        assert_eq!(quotas.lock().changes.entered.get(&ONE), Some(&4096));
        quotas.count(&[
            Counted { act: Act::GivenUp, ..COMES },
            Counted { act: Act::Goes, entered: 0, ..COMES },
        ]);
        assert_eq!(numbers(&quotas), [(0, 0); 3]);
        assert!(quotas.lock().changes.entered.is_empty());
    }

    #[test]
    fn extents_from_before_and_those_of_other_trees_count_for_none() {
        let quotas = quotas();
        quotas.count(&[
            Counted { generation: Generation::new(6), ..COMES },
            Counted { owner: RootId::EXTENT_TREE, ..COMES },
            Counted { owner: RootId::DATA_RELOC_TREE, ..COMES },
        ]);
        assert_eq!(numbers(&quotas), [(0, 0); 3]);
    }

    #[test]
    fn an_extent_of_a_subvolume_without_a_group_makes_one_when_it_comes() {
        let (quotas, gone) = (quotas(), QgroupId::new(999));
        let counted = Counted { owner: RootId::new(999), ..COMES };
        quotas.count(&[Counted { act: Act::Goes, ..counted }, Counted { act: Act::GivenUp, ..counted }]);
        assert!(!quotas.has_group(gone), "nothing of it is left");
        assert_eq!(quotas.last_owner(), None);
        quotas.count(&[counted, counted]);
        assert_eq!(quotas.lock().ledger.groups[&gone].info.rfer.get(), 8192);
        assert_eq!(quotas.lock().changes.found, [gone]);
        assert_eq!(quotas.last_owner(), Some(RootId::new(999)));
    }
}
