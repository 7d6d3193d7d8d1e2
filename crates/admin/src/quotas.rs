//! Quota groups of a pool: as its quota tree has them, in all guises of the pool, and their changes on mounts.

use crate::call;
use crate::control::{ControlError, Mounted};
use crate::pool::AdminError;
use crate::trees::Trees;
use brindle_ondisk::item::{QgroupInfo, QgroupLimit, QgroupLimitFlags, QgroupStatusFlags, QuotaTable};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, QgroupId, RootId};
use brindle_uapi::message::{
    QGROUP_NO_LIMIT, QUOTA_DISABLE, QUOTA_ENABLE, QUOTA_ENABLE_SIMPLE, QgroupAssign, QgroupCreate,
    QgroupLimits, QuotaControl, QuotaRescan,
};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;
use zerocopy::FromZeros;

/// Quota groups, as of the last commit.
#[derive(Clone, Debug)]
pub struct Quotas {
    /// State.
    pub flags: QgroupStatusFlags,
    /// The transaction in which the numbers were right.
    pub generation: u64,
    /// The address before which a rescan has counted.
    pub rescan: u64,
    /// The groups, by id.
    pub groups: BTreeMap<QgroupId, QuotaGroup>,
}

/// A quota group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaGroup {
    /// Bytes that are referenced.
    pub referenced: u64,
    /// Bytes that nothing outside of the group references.
    pub exclusive: u64,
    /// Most referenced bytes.
    pub max_referenced: Option<u64>,
    /// Most exclusive bytes.
    pub max_exclusive: Option<u64>,
    /// Groups that it is part of.
    pub parents: BTreeSet<QgroupId>,
    /// Groups that are part of it.
    pub children: BTreeSet<QgroupId>,
}

/// Mode of quotas that are turned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaMode {
    /// Shared and exclusive bytes of each group are counted.
    Full,
    /// Extents count for the subvolume that wrote them first.
    Simple,
}

/// New limit of a quota group.
#[derive(Clone, Copy, Debug)]
pub struct NewLimit {
    /// Most bytes; `None` to take the limit away.
    pub bytes: Option<u64>,
    /// The exclusive bytes are limited, not the referenced ones.
    pub is_exclusive: bool,
    /// The bytes count after compression.
    pub is_compressed: bool,
}

/// Time between two looks at a rescan.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The quota groups of a pool; `None` if quotas are off.
///
/// # Errors
/// Trees that can't be read.
pub fn quotas(trees: &dyn Trees) -> Result<Option<Quotas>, AdminError> {
    let mut table = QuotaTable::default();
    trees.each(RootId::QUOTA_TREE, Key::MIN..=Key::MAX, 0, &mut |key, data| {
        if let Ok(item) = Item::parse(&key, data) {
            table.note(&key, &item);
        }
        ControlFlow::Continue(())
    })?;
    let mut groups: BTreeMap<QgroupId, QuotaGroup> = BTreeMap::new();
    for (id, info) in &table.infos {
        groups.entry(*id).or_default().set_numbers(info);
    }
    for (id, limit) in &table.limits {
        groups.entry(*id).or_default().set_limits(limit);
    }
    for (child, parent) in table.relations {
        groups.entry(child).or_default().parents.insert(parent);
        groups.entry(parent).or_default().children.insert(child);
    }
    let on = |flags: &QgroupStatusFlags| flags.contains(QgroupStatusFlags::ON);
    Ok(table.status.and_then(|status| {
        let flags = Some(QgroupStatusFlags::from_bits_retain(status.flags)).filter(on)?;
        Some(Quotas { flags, generation: status.generation, rescan: status.rescan, groups })
    }))
}

/// Returns true if the numbers of quota groups are known to be wrong, and no rescan is setting them right.
///
/// # Errors
/// A quota tree that can't be read.
pub fn are_inconsistent(trees: &dyn Trees) -> Result<bool, AdminError> {
    let items = trees.items(RootId::QUOTA_TREE, ObjectId::new(0), KeyType::QGROUP_STATUS)?;
    let state = items.iter().find_map(|(key, data)| match Item::parse(key, data) {
        Ok(Item::QgroupStatus(status)) => Some(QgroupStatusFlags::from_bits_retain(status.flags)),
        _ => None,
    });
    let wrong = QgroupStatusFlags::ON | QgroupStatusFlags::INCONSISTENT;
    Ok(state.is_some_and(|state| state.contains(wrong) && !state.contains(QgroupStatusFlags::RESCAN)))
}

impl QuotaGroup {
    fn set_numbers(&mut self, info: &QgroupInfo) {
        (self.referenced, self.exclusive) = (info.rfer.get(), info.excl.get());
    }

    fn set_limits(&mut self, limit: &QgroupLimit) {
        let flags = QgroupLimitFlags::from_bits_retain(limit.flags.get());
        let set = |flag, bytes| flags.contains(flag).then_some(bytes);
        self.max_referenced = set(QgroupLimitFlags::MAX_RFER, limit.max_rfer.get());
        self.max_exclusive = set(QgroupLimitFlags::MAX_EXCL, limit.max_excl.get());
    }
}

impl Quotas {
    /// A group and, with `ancestors`, all that it is part of.
    pub fn groups_of(&self, id: QgroupId, ancestors: bool) -> BTreeSet<QgroupId> {
        let (mut found, mut next) = (BTreeSet::new(), vec![id]);
        while let Some(id) = next.pop() {
            if let Some(group) = self.groups.get(&id) {
                if found.insert(id) && ancestors {
                    next.extend(&group.parents);
                }
            }
        }
        found
    }

    /// Returns true if they are simple quotas.
    pub fn is_simple(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::SIMPLE)
    }

    /// Groups of subvolumes that are not among these; of simple quotas, those that have no extents left.
    pub fn stale(&self, subvolumes: &BTreeSet<u64>) -> Vec<QgroupId> {
        let is_gone = |id: &QgroupId| id.level() == 0 && !subvolumes.contains(&id.number());
        let is_stale = |group: &QuotaGroup| !self.is_simple() || group.referenced == 0;
        let stale = self.groups.iter().filter(|(id, group)| is_gone(id) && is_stale(group));
        stale.map(|(id, _)| *id).collect()
    }
}

impl Mounted {
    /// Turns quotas on; the groups are counted from then on.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn enable_quotas(&self, mode: QuotaMode) -> Result<(), ControlError> {
        let command = match mode {
            QuotaMode::Full => QUOTA_ENABLE,
            QuotaMode::Simple => QUOTA_ENABLE_SIMPLE,
        };
        self.control_quotas("turn quotas on", command)
    }

    /// Turns quotas off: all groups and limits are gone.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn disable_quotas(&self) -> Result<(), ControlError> {
        self.control_quotas("turn quotas off", QUOTA_DISABLE)
    }

    fn control_quotas(&self, what: &'static str, command: u64) -> Result<(), ControlError> {
        let answer =
            call::update::<verb::ControlQuotas>(&self.file, &mut QuotaControl { command, status: 0 });
        self.explain(what, answer)
    }

    /// Makes a quota group.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn create_quota_group(&self, id: QgroupId) -> Result<(), ControlError> {
        let request = QgroupCreate { create: 1, id: id.get() };
        self.explain("make a quota group", call::set::<verb::CreateQgroup>(&self.file, request))
    }

    /// Removes a quota group.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn destroy_quota_group(&self, id: QgroupId) -> Result<(), ControlError> {
        let request = QgroupCreate { create: 0, id: id.get() };
        self.explain("remove a quota group", call::set::<verb::CreateQgroup>(&self.file, request))
    }

    /// Makes a quota group part of another one, or takes it out. Returns true if a rescan is needed; a mount of brindle begins
    /// it by itself.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn relate_quota_groups(
        &self,
        child: QgroupId,
        parent: QgroupId,
        is_part: bool,
    ) -> Result<bool, ControlError> {
        let mut request = QgroupAssign { assign: is_part.into(), child: child.get(), parent: parent.get() };
        let what = if is_part { "assign a quota group" } else { "take a quota group out of another" };
        Ok(self.explain(what, call::ask::<verb::AssignQgroup>(&self.file, &mut request))? > 0)
    }

    /// Gives a quota group, or that of the mount's subvolume, another limit.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn limit_quota_group(&self, id: Option<QgroupId>, limit: &NewLimit) -> Result<(), ControlError> {
        let mut flags = match limit.is_exclusive {
            true => QgroupLimitFlags::MAX_EXCL,
            false => QgroupLimitFlags::MAX_RFER,
        };
        if limit.is_compressed {
            flags |= QgroupLimitFlags::RFER_CMPR | QgroupLimitFlags::EXCL_CMPR;
        }
        let bytes = limit.bytes.unwrap_or(QGROUP_NO_LIMIT);
        let mut request = QgroupLimits {
            id: id.map_or(0, QgroupId::get),
            flags: flags.bits(),
            max_rfer: if limit.is_exclusive { 0 } else { bytes },
            max_excl: if limit.is_exclusive { bytes } else { 0 },
            ..QgroupLimits::new_zeroed()
        };
        let answer = match self.is_brindle() {
            true => call::set::<verb::LimitQuotaGroup>(&self.file, request),
            false => call::fill::<verb::LimitQgroup>(&self.file, &mut request),
        };
        self.explain("limit a quota group", answer)
    }

    /// Begins to count all quota groups anew. Returns false if that is being done already.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn begin_quota_rescan(&self) -> Result<bool, ControlError> {
        match call::set::<verb::RescanQuotas>(&self.file, QuotaRescan::new_zeroed()) {
            Err(Errno::INPROGRESS) => Ok(false),
            begun => self.explain("begin a rescan of quota groups", begun).map(|()| true),
        }
    }

    /// The address before which a rescan has counted; `None` if none runs.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn quota_rescan(&self) -> Result<Option<u64>, ControlError> {
        let what = "progress of a rescan of quota groups";
        let status = self.explain(what, call::get::<verb::FollowRescan>(&self.file))?;
        Ok((status.flags != 0).then_some(status.progress))
    }

    /// Waits for the end of a rescan.
    ///
    /// # Errors
    /// A mount that refuses.
    pub fn wait_for_quota_rescan(&self) -> Result<(), ControlError> {
        while self.quota_rescan()?.is_some() {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(word: &str) -> QgroupId {
        word.parse().expect("an id")
    }

    fn nested() -> Quotas {
        let mut groups = BTreeMap::new();
        for (child, parents) in
            [("0/256", vec!["1/1"]), ("1/1", vec!["2/7"]), ("2/7", vec![]), ("0/257", vec![])]
        {
            let parents = parents.into_iter().map(id).collect();
            groups.insert(id(child), QuotaGroup { parents, ..QuotaGroup::default() });
        }
        Quotas { flags: QgroupStatusFlags::ON, generation: 1, rescan: 0, groups }
    }

    #[test]
    fn groups_of_a_subvolume_are_its_own_and_all_above() {
        let all = nested().groups_of(id("256"), true);
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [id("0/256"), id("1/1"), id("2/7")]);
        assert_eq!(nested().groups_of(id("256"), false).len(), 1);
        assert!(nested().groups_of(id("9"), true).is_empty());
    }

    #[test]
    fn groups_without_a_subvolume_are_stale() {
        assert_eq!(nested().stale(&BTreeSet::from([256])), [id("0/257")]);
        let mut simple = Quotas { flags: QgroupStatusFlags::ON | QgroupStatusFlags::SIMPLE, ..nested() };
        assert_eq!(simple.stale(&BTreeSet::from([256])), [id("0/257")]);
        simple.groups.entry(id("0/257")).or_default().referenced = 4096;
        assert!(simple.stale(&BTreeSet::from([256])).is_empty(), "extents of it are left");
    }
}
