//! Items of quota groups, as subvolumes come and go.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::quota::ledger::Group;
use brindle_ondisk::item::{QgroupInfo, QgroupLimit};
use brindle_ondisk::{Key, KeyType, ObjectId, QgroupId, RootId};
use zerocopy::{FromZeros, IntoBytes};

/// A new subvolume gets its group, if the pool has groups.
pub(crate) fn add_subvolume_group(editor: &Editor<'_>, subvolume: RootId) -> Result<(), TreeError> {
    let (quotas, id) = (&editor.changes.quotas, QgroupId::of_subvolume(subvolume));
    if !quotas.are_on() || !subvolume.is_subvolume() || quotas.has_group(id) {
        return Ok(());
    }
    quotas.add_group(id)?;
    insert_group(editor, id)
}

/// Enters a group of nothing, without limits.
pub(crate) fn insert_group(editor: &Editor<'_>, id: QgroupId) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::QUOTA_TREE)?;
    editor.replace(&tree, &item_key(KeyType::QGROUP_INFO, id), QgroupInfo::new_zeroed().as_bytes())?;
    editor.replace(&tree, &item_key(KeyType::QGROUP_LIMIT, id), QgroupLimit::new_zeroed().as_bytes())
}

/// Enters a group that numbers have come for before it was there.
pub(super) fn insert_found(editor: &Editor<'_>, id: QgroupId) -> Result<(), TreeError> {
    let group = editor.changes.quotas.lock().ledger.groups.get(&id).map(|group| (group.info, group.limit));
    let Some((info, limit)) = group else { return Ok(()) };
    let tree = editor.store.tree(RootId::QUOTA_TREE)?;
    editor.replace(&tree, &item_key(KeyType::QGROUP_INFO, id), info.as_bytes())?;
    editor.replace(&tree, &item_key(KeyType::QGROUP_LIMIT, id), limit.as_bytes())
}

/// Removes the items of a group that has left all others.
pub(crate) fn remove_group(editor: &Editor<'_>, id: QgroupId) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::QUOTA_TREE)?;
    for kind in [KeyType::QGROUP_INFO, KeyType::QGROUP_LIMIT] {
        editor.remove(&tree, &item_key(kind, id))?;
    }
    Ok(())
}

/// Enters that a group is part of another one, or removes it.
pub(crate) fn write_relation(
    editor: &Editor<'_>,
    child: QgroupId,
    parent: QgroupId,
    joins: bool,
) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::QUOTA_TREE)?;
    for (one, other) in [(child, parent), (parent, child)] {
        let key = Key::new(ObjectId::new(one.get()), KeyType::QGROUP_RELATION, other.get());
        if joins {
            editor.replace(&tree, &key, &[])?;
        } else {
            editor.remove(&tree, &key)?;
        }
    }
    Ok(())
}

/// A new subvolume becomes part of groups; one that is not there is left out.
pub(crate) fn join_groups(
    editor: &Editor<'_>,
    subvolume: RootId,
    groups: &[QgroupId],
) -> Result<(), TreeError> {
    let (quotas, child) = (&editor.changes.quotas, QgroupId::of_subvolume(subvolume));
    if !quotas.are_on() {
        return Ok(());
    }
    for parent in groups {
        let joins = {
            let ledger = &mut quotas.lock().ledger;
            let is_there = ledger.groups.contains_key(parent);
            // It has nothing yet: all numbers stay.
            is_there && !ledger.relate(child, *parent, true)
        };
        if joins {
            write_relation(editor, child, *parent, true)?;
        }
    }
    Ok(())
}

/// A snapshot has the limits of its source; with simple quotas it has none.
pub(crate) fn copy_limit(editor: &Editor<'_>, source: RootId, copy: RootId) -> Result<(), TreeError> {
    let (quotas, to) = (&editor.changes.quotas, QgroupId::of_subvolume(copy));
    if !quotas.are_on() || quotas.are_simple() {
        return Ok(());
    }
    let limit = {
        let groups = &mut quotas.lock().ledger.groups;
        let limit = groups.get(&QgroupId::of_subvolume(source)).map(|group| group.limit);
        match (limit, groups.get_mut(&to)) {
            (Some(limit), Some(group)) if limit.flags.get() != 0 => {
                group.limit = limit;
                limit
            }
            _ => return Ok(()),
        }
    };
    let tree = editor.store.tree(RootId::QUOTA_TREE)?;
    editor.replace(&tree, &item_key(KeyType::QGROUP_LIMIT, to), limit.as_bytes())
}

/// The group of a subvolume that is gone goes too, unless it has numbers, which are wrong then.
pub(super) fn remove_dropped(editor: &Editor<'_>, subvolume: RootId) -> Result<(), TreeError> {
    let id = QgroupId::of_subvolume(subvolume);
    let parents = {
        let groups = &mut editor.changes.quotas.lock().ledger.groups;
        let is_empty = |group: &Group| group.info.rfer.get() == 0 && group.info.excl.get() == 0;
        if !groups.get(&id).is_some_and(is_empty) {
            return Ok(());
        }
        groups.remove(&id).map(|group| group.parents).unwrap_or_default()
    };
    for parent in parents {
        write_relation(editor, id, parent, false)?;
    }
    remove_group(editor, id)
}

fn item_key(kind: KeyType, id: QgroupId) -> Key {
    Key::new(ObjectId::new(0), kind, id.get())
}
