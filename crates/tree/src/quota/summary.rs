//! Quota groups as the quota tree has them.

use crate::error::TreeError;
use crate::store::Store;
use crate::store::cursor::Readahead;
use brindle_ondisk::item::{QgroupInfo, QgroupLimit, QgroupStatusFlags, QuotaTable};
use brindle_ondisk::{Generation, Item, Key, QgroupId, RootId};
use std::collections::BTreeMap;
use zerocopy::FromZeros;

/// Quota groups of a pool, as of the last commit.
#[derive(Clone, Debug)]
pub struct QuotaSummary {
    /// State.
    pub flags: QgroupStatusFlags,
    /// The transaction in which the numbers were right.
    pub generation: u64,
    /// With simple quotas: the first transaction whose extents count.
    pub enable_gen: Option<Generation>,
    /// The address before which a rescan has counted, if one is under way.
    pub rescan: Option<u64>,
    /// The groups, by id.
    pub groups: Vec<QuotaGroup>,
}

/// A quota group.
#[derive(Clone, Debug)]
pub struct QuotaGroup {
    /// Its id.
    pub id: QgroupId,
    /// Its numbers, in bytes.
    pub info: QgroupInfo,
    /// Its limits, in bytes.
    pub limit: QgroupLimit,
    /// Groups that it is part of.
    pub parents: Vec<QgroupId>,
    /// Groups that are part of it.
    pub children: Vec<QgroupId>,
}

impl QuotaSummary {
    /// Returns true if quotas are on.
    pub fn is_on(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::ON)
    }

    /// Returns true if the numbers are known to be wrong.
    pub fn is_inconsistent(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::INCONSISTENT)
    }

    /// Returns true if they are simple quotas: extents count for the subvolume that wrote them first.
    pub fn is_simple(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::SIMPLE)
    }
}

impl Store {
    /// The quota groups, as of the last commit; `None` if the pool has none.
    ///
    /// # Errors
    /// A quota tree that can't be read.
    pub fn quotas(&self) -> Result<Option<QuotaSummary>, TreeError> {
        read(self)
    }
}

/// The quota groups of a pool; `None` if it has none.
pub(crate) fn read(store: &Store) -> Result<Option<QuotaSummary>, TreeError> {
    let tree = match store.tree(RootId::QUOTA_TREE) {
        Ok(tree) => tree,
        Err(TreeError::NoTree(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut table = QuotaTable::default();
    let mut cursor = store.cursor(&tree, Readahead::Forward);
    cursor.seek(&Key::MIN)?;
    while let Some((key, data)) = cursor.item() {
        let item =
            Item::parse(&key, data).map_err(|defect| TreeError::item(RootId::QUOTA_TREE, key, defect))?;
        table.note(&key, &item);
        cursor.next()?;
    }
    let mut groups: BTreeMap<QgroupId, QuotaGroup> = BTreeMap::new();
    for (id, info) in table.infos {
        group(&mut groups, id).info = info;
    }
    for (id, limit) in table.limits {
        group(&mut groups, id).limit = limit;
    }
    for (one, other) in table.relations {
        if let Some(child) = groups.get_mut(&one) {
            child.parents.push(other);
        }
        if let Some(parent) = groups.get_mut(&other) {
            parent.children.push(one);
        }
    }
    Ok(table.status.map(|status| {
        let flags = QgroupStatusFlags::from_bits_retain(status.flags);
        QuotaSummary {
            flags,
            generation: status.generation,
            enable_gen: status.enable_gen.map(Generation::new),
            rescan: flags.contains(QgroupStatusFlags::RESCAN).then_some(status.rescan),
            groups: groups.into_values().collect(),
        }
    }))
}

fn group(groups: &mut BTreeMap<QgroupId, QuotaGroup>, id: QgroupId) -> &mut QuotaGroup {
    groups.entry(id).or_insert_with(|| QuotaGroup {
        id,
        info: QgroupInfo::new_zeroed(),
        limit: QgroupLimit::new_zeroed(),
        parents: Vec::new(),
        children: Vec::new(),
    })
}
