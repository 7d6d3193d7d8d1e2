//! Groups and their numbers: what a change of the subvolumes that reach an extent means for each group. Pure.

use brindle_ondisk::item::{QgroupInfo, QgroupLimit};
use brindle_ondisk::{QgroupId, RootId};
use std::collections::{BTreeMap, BTreeSet};

/// The subvolumes that reach an extent, in order.
pub(crate) type Reaching = Vec<RootId>;

/// A quota group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Its numbers.
    pub(crate) info: QgroupInfo,
    /// Its limits.
    pub(crate) limit: QgroupLimit,
    /// Groups that it is part of.
    pub(crate) parents: BTreeSet<QgroupId>,
    /// True if the quota tree does not have its numbers.
    pub(crate) is_changed: bool,
}

/// The groups of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) groups: BTreeMap<QgroupId, Group>,
}

/// The numbers did not add up: more was to be taken from a group than it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Underflow(pub(crate) QgroupId);

impl Group {
    /// A group of nothing, without limits.
    pub(crate) fn empty() -> Self {
        let zero = zerocopy::FromZeros::new_zeroed;
        Self {
            info: zero(),
            limit: zerocopy::FromZeros::new_zeroed(),
            parents: BTreeSet::new(),
            is_changed: true,
        }
    }
}

impl Ledger {
    /// The group of a subvolume and all groups that it is part of, directly or not.
    pub(crate) fn groups_of(&self, subvolume: RootId) -> BTreeSet<QgroupId> {
        self.above(QgroupId::of_subvolume(subvolume))
    }

    /// Groups that are directly part of a group.
    pub(crate) fn children(&self, of: QgroupId) -> Vec<QgroupId> {
        self.groups.iter().filter(|(_, group)| group.parents.contains(&of)).map(|(id, _)| *id).collect()
    }

    /// Bytes that `before` reached are reached by `after` now. All groups are changed, whatever the answer.
    pub(crate) fn account(
        &mut self,
        bytes: u64,
        before: &[RootId],
        after: &[RootId],
    ) -> Result<(), Underflow> {
        let (old, new) = (self.counts(before), self.counts(after));
        let mut outcome = Ok(());
        for id in old.keys().chain(new.keys()).copied().collect::<BTreeSet<_>>() {
            let of = |counts: &BTreeMap<QgroupId, usize>, all: &[RootId]| {
                let count = counts.get(&id).copied().unwrap_or(0);
                (count > 0, count > 0 && count == all.len())
            };
            let ((had, had_alone), (has, has_alone)) = (of(&old, before), of(&new, after));
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let referenced = shift(group.info.rfer.get(), bytes, had, has);
            let exclusive = shift(group.info.excl.get(), bytes, had_alone, has_alone);
            if referenced.is_none() || exclusive.is_none() {
                outcome = Err(Underflow(id));
            }
            set_numbers(group, referenced.unwrap_or(0), exclusive.unwrap_or(0));
        }
        outcome
    }

    /// An extent that a subvolume wrote first comes or goes (simple quotas). All groups are changed, whatever the answer.
    pub(crate) fn count(&mut self, owner: RootId, bytes: u64, comes: bool) -> Result<(), Underflow> {
        let mut outcome = Ok(());
        for id in self.groups_of(owner) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let number = shift(group.info.rfer.get(), bytes, !comes, comes);
            if number.is_none() {
                outcome = Err(Underflow(id));
            }
            let number = number.unwrap_or(0);
            set_numbers(group, number, number);
        }
        outcome
    }

    /// A snapshot has been made: it has all that its source had. Numbers only; what the two have of their own is accounted
    /// for afterwards. Returns true if the numbers of groups above can't be told from that.
    pub(crate) fn inherit(&mut self, source: RootId, copy: RootId) -> bool {
        let (from, to) = (QgroupId::of_subvolume(source), QgroupId::of_subvolume(copy));
        let Some(origin) = self.groups.get_mut(&from) else { return true };
        let (referenced, parents) = (origin.info.rfer.get(), origin.parents.clone());
        set_numbers(origin, referenced, 0);
        let Some(group) = self.groups.get_mut(&to) else { return true };
        set_numbers(group, referenced, 0);
        group.parents != parents
    }

    /// All numbers are to be counted anew.
    pub(crate) fn clear(&mut self) {
        self.groups.values_mut().for_each(|group| set_numbers(group, 0, 0));
    }

    /// A group joins or leaves another one. Returns true if the numbers of the groups above can't be told from those that
    /// there are: what it has may be reached from outside too.
    pub(crate) fn relate(&mut self, child: QgroupId, parent: QgroupId, joins: bool) -> bool {
        let before = self.above(child);
        let Some(group) = self.groups.get_mut(&child) else { return true };
        if joins {
            group.parents.insert(parent);
        } else {
            group.parents.remove(&parent);
        }
        let (referenced, exclusive) = (group.info.rfer.get(), group.info.excl.get());
        if referenced != exclusive {
            return true;
        }
        // A group that holds the child by another way too has its bytes already, or keeps them.
        let after = self.above(child);
        let mut is_unknown = false;
        for id in before.symmetric_difference(&after) {
            let Some(group) = self.groups.get_mut(id) else { continue };
            let moved = |number: u64| shift(number, exclusive, !joins, joins);
            match (moved(group.info.rfer.get()), moved(group.info.excl.get())) {
                (Some(referenced), Some(alone)) => set_numbers(group, referenced, alone),
                _ => is_unknown = true,
            }
        }
        is_unknown
    }

    /// A group and all groups that it is part of, directly or not; those that are there.
    fn above(&self, id: QgroupId) -> BTreeSet<QgroupId> {
        let (mut found, mut waiting) = (BTreeSet::new(), vec![id]);
        while let Some(id) = waiting.pop() {
            if let Some(group) = self.groups.get(&id) {
                if found.insert(id) {
                    waiting.extend(&group.parents);
                }
            }
        }
        found
    }

    /// Of which groups the subvolumes are part, and how many of them.
    fn counts(&self, subvolumes: &[RootId]) -> BTreeMap<QgroupId, usize> {
        let mut counts = BTreeMap::new();
        for subvolume in subvolumes {
            for id in self.groups_of(*subvolume) {
                *counts.entry(id).or_default() += 1;
            }
        }
        counts
    }
}

/// A number that bytes leave or join.
fn shift(number: u64, bytes: u64, had: bool, has: bool) -> Option<u64> {
    match (had, has) {
        (false, true) => number.checked_add(bytes),
        (true, false) => number.checked_sub(bytes),
        _ => Some(number),
    }
}

fn set_numbers(group: &mut Group, referenced: u64, exclusive: u64) {
    if (group.info.rfer.get(), group.info.excl.get()) == (referenced, exclusive) {
        return;
    }
    group.is_changed = true;
    let info = &mut group.info;
    // The format has numbers after compression as well, and they are always the same.
    (info.rfer, info.rfer_cmpr) = (referenced.into(), referenced.into());
    (info.excl, info.excl_cmpr) = (exclusive.into(), exclusive.into());
}

#[cfg(test)]
mod tests;
