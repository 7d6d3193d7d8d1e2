//! The items of a quota tree, put together.

use super::{Item, QgroupId, QgroupInfo, QgroupLimit, QgroupStatus};
use crate::Key;
use std::collections::{BTreeMap, BTreeSet};

/// The items of a quota tree, in any order.
#[derive(Clone, Debug, Default)]
pub struct QuotaTable {
    /// State of the tree.
    pub status: Option<QgroupStatus>,
    /// Numbers of each group.
    pub infos: BTreeMap<QgroupId, QgroupInfo>,
    /// Limits of each group.
    pub limits: BTreeMap<QgroupId, QgroupLimit>,
    /// Groups, each before one that it is part of.
    pub relations: BTreeSet<(QgroupId, QgroupId)>,
}

impl QuotaTable {
    /// Adds an item; one of another tree changes nothing.
    pub fn note(&mut self, key: &Key, item: &Item<'_>) {
        let id = QgroupId::new(key.offset());
        match item {
            Item::QgroupStatus(status) => self.status = Some(*status),
            Item::QgroupInfo(info) => drop(self.infos.insert(id, **info)),
            Item::QgroupLimit(limit) => drop(self.limits.insert(id, **limit)),
            Item::QgroupRelation => {
                // Each relation has two items, one from either side.
                let other = QgroupId::new(key.objectid.get());
                if other.level() < id.level() {
                    self.relations.insert((other, id));
                }
            }
            _ => {}
        }
    }

    /// Adds the items of another part of the tree.
    pub fn merge(&mut self, other: Self) {
        self.status = self.status.or(other.status);
        self.infos.extend(other.infos);
        self.limits.extend(other.limits);
        self.relations.extend(other.relations);
    }

    /// A group and all groups that it is part of, directly or not.
    pub fn above(&self, id: QgroupId) -> BTreeSet<QgroupId> {
        let (mut found, mut waiting) = (BTreeSet::new(), vec![id]);
        while let Some(id) = waiting.pop() {
            if found.insert(id) {
                let parents = self.relations.range((id, QgroupId::new(0))..=(id, QgroupId::new(u64::MAX)));
                waiting.extend(parents.map(|(_, parent)| *parent));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, ObjectId};

    #[test]
    fn a_relation_counts_once_and_leads_upwards() {
        let [low, middle, high] = [257, 1 << 48 | 1, 2 << 48 | 1].map(QgroupId::new);
        let mut table = QuotaTable::default();
        for (one, other) in [(low, middle), (middle, low), (high, middle), (middle, high)] {
            let key = Key::new(ObjectId::new(one.get()), KeyType::QGROUP_RELATION, other.get());
            table.note(&key, &Item::QgroupRelation);
        }
        assert_eq!(table.relations.len(), 2);
        assert_eq!(table.above(low), BTreeSet::from([low, middle, high]));
        assert_eq!(table.above(high), BTreeSet::from([high]));
    }
}
