//! Changes of quota groups: on, off, groups that come, go, join others, and limits.

use crate::accounting::groups::{insert_group, remove_group, write_relation};
use crate::dropping::TreeDropper;
use crate::editor::Editor;
use crate::error::TreeError;
use crate::quota::ledger::Group;
use crate::quota::state::State;
use crate::quota_error::QuotaError;
use crate::space::Urgency;
use crate::store::Store;
use crate::store::cursor::Readahead;
use crate::transaction::roots::Roots;
use crate::transaction::{Need, Transactions};
use brindle_ondisk::item::{QgroupLimit, QgroupStatusHeader, RootItem, SimpleQgroupStatus};
use brindle_ondisk::{Generation, Incompat, Key, KeyType, ObjectId, QgroupId, RootId};
use std::collections::BTreeSet;
use zerocopy::{FromZeros, IntoBytes};

/// Blocks that turning quotas on or off changes, apart from those of many subvolumes.
const BLOCKS: usize = 16;
/// Groups whose items fit one block.
const GROUPS_PER_BLOCK: usize = 20;
/// Attempts to find the quota tree unchanged since the last commit.
const TRIES: usize = 8;

/// Quota groups of a pool that is written, to be changed.
pub(crate) struct QuotaChanges<'t> {
    transactions: &'t Transactions,
}

impl<'t> QuotaChanges<'t> {
    pub(crate) fn of(transactions: &'t Transactions) -> Self {
        Self { transactions }
    }

    /// Gives each subvolume a group, and begins to count; nothing to do if quotas of this mode are on.
    pub(crate) fn enable(&self, simple: bool) -> Result<(), TreeError> {
        if let Some(found) = self.store().quotas()? {
            if found.is_on() && found.is_simple() != simple {
                let mode = if found.is_simple() { "simple" } else { "full" };
                return Err(QuotaError::OtherMode(mode).into());
            }
            if found.is_on() {
                return Ok(());
            }
            self.disable()?;
        }
        let blocks = BLOCKS + subvolumes(self.store())?.len() / GROUPS_PER_BLOCK;
        self.transactions.exclusively_with(blocks, Urgency::Normal, |editor| {
            plant(editor, simple).inspect_err(|error| editor.abort(error))
        })?;
        self.transactions.commit()
    }

    /// Gives up all groups, their limits included; nothing to do if quotas are off.
    pub(crate) fn disable(&self) -> Result<(), TreeError> {
        let tree = match self.store().tree(RootId::QUOTA_TREE) {
            Ok(tree) => tree,
            Err(TreeError::NoTree(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        for _ in 0..TRIES {
            self.transactions.commit()?;
            let is_gone = self.transactions.exclusively_with(BLOCKS, Urgency::Normal, |editor| {
                if tree.is_dirty() {
                    return Ok(false);
                }
                let quotas = &editor.changes.quotas;
                quotas.turn(false);
                *quotas.lock() = State::default();
                let dropped = TreeDropper::of(editor).drop_part(&tree, usize::MAX);
                dropped.inspect_err(|error| editor.abort(error))
            })?;
            if is_gone {
                return self.transactions.commit();
            }
        }
        Err(TreeError::Busy { running: "change of quota groups" })
    }

    /// Makes a group of no members.
    pub(crate) fn create(&self, id: QgroupId) -> Result<(), TreeError> {
        self.check_on()?;
        let transaction = self.transactions.join(Need::items(2))?;
        transaction.changes.quotas.add_group(id)?;
        insert_group(&transaction, id)
    }

    /// Removes a group that has no members, and is of no subvolume. Not while something moves: extents on their way are in no
    /// number.
    pub(crate) fn destroy(&self, id: QgroupId) -> Result<(), TreeError> {
        self.check_on()?;
        self.transactions.exclusively_with(BLOCKS, Urgency::Normal, |editor| {
            if id.level() == 0 && editor.store().root_item(RootId::new(id.get()))?.is_some() {
                return Err(QuotaError::InUse(id).into());
            }
            let parents = parents_of_removable(&editor.changes.quotas.lock(), id)?;
            remove(editor, id, &parents).inspect_err(|error| editor.abort(error))
        })
    }

    /// A group joins another one, or leaves it. Returns true if the numbers can't be told from those that there are, so that
    /// all has to be counted anew.
    pub(crate) fn relate(&self, child: QgroupId, parent: QgroupId, joins: bool) -> Result<bool, TreeError> {
        self.check_on()?;
        let transaction = self.transactions.join(Need::items(2))?;
        let is_unknown = {
            let mut state = transaction.changes.quotas.lock();
            check_relation(&state, child, parent, joins)?;
            relate(&mut state, child, parent, joins)
        };
        write_relation(&transaction, child, parent, joins)?;
        Ok(is_unknown)
    }

    /// Refuses groups that a new subvolume can't be part of.
    pub(crate) fn check_parents(&self, groups: &[QgroupId]) -> Result<(), QuotaError> {
        if groups.is_empty() {
            return Ok(());
        }
        self.check_on()?;
        let state = self.transactions.changes().quotas.lock();
        for parent in groups {
            if parent.level() == 0 {
                return Err(QuotaError::Level { child: QgroupId::new(0), parent: *parent });
            }
            if !state.ledger.groups.contains_key(parent) {
                return Err(QuotaError::NoGroup(*parent));
            }
        }
        Ok(())
    }

    /// Gives a group other limits.
    pub(crate) fn limit(&self, id: QgroupId, limit: QgroupLimit) -> Result<(), TreeError> {
        self.check_on()?;
        let transaction = self.transactions.join(Need::items(1))?;
        let mut state = transaction.changes.quotas.lock();
        state.ledger.groups.get_mut(&id).ok_or(QuotaError::NoGroup(id))?.limit = limit;
        drop(state);
        let tree = transaction.store.tree(RootId::QUOTA_TREE)?;
        let key = Key::new(ObjectId::new(0), KeyType::QGROUP_LIMIT, id.get());
        transaction.replace(&tree, &key, limit.as_bytes())
    }

    /// Begins to count anew, at the commits to come.
    pub(crate) fn begin_rescan(&self) -> Result<(), TreeError> {
        self.check_on()?;
        let transaction = self.transactions.join(Need::items(1))?;
        let mut state = transaction.changes.quotas.lock();
        if state.counted_from.is_some() {
            return Err(QuotaError::Simple.into());
        }
        if state.rescan.is_some() {
            return Err(QuotaError::Rescanning.into());
        }
        state.begin_rescan();
        Ok(())
    }

    /// Counts a part, and commits; the address before which everything is counted, `None` at the end.
    pub(crate) fn rescan_step(&self) -> Result<Option<u64>, TreeError> {
        self.transactions.commit()?;
        Ok(self.transactions.changes().quotas.lock().rescan)
    }

    fn store(&self) -> &'t Store {
        self.transactions.store()
    }

    fn check_on(&self) -> Result<(), QuotaError> {
        if self.transactions.changes().quotas.are_on() { Ok(()) } else { Err(QuotaError::Off) }
    }
}

/// Makes the quota tree, with a group for each subvolume.
fn plant(editor: &Editor<'_>, simple: bool) -> Result<(), TreeError> {
    let item = RootItem { refs: 1.into(), ..RootItem::new_zeroed() };
    let tree = Roots::of(editor).create(RootId::QUOTA_TREE, 0, &item)?;
    let mut state = State::default();
    if simple {
        // Of the running transaction some extents have been applied, and others not: it does not count.
        state.counted_from = Some(Generation::new(editor.generation().get() + 1));
        state.is_changed = true;
        editor.use_feature(Incompat::SIMPLE_QUOTA);
    } else {
        state.begin_rescan();
    }
    let header = QgroupStatusHeader {
        version: QgroupStatusHeader::VERSION.into(),
        generation: editor.generation().get().into(),
        flags: state.flags().into(),
        rescan: 0.into(),
    };
    let key = Key::new(ObjectId::new(0), KeyType::QGROUP_STATUS, 0);
    match state.counted_from {
        Some(from) => {
            let status = SimpleQgroupStatus { header, enable_gen: from.get().into() };
            editor.insert(&tree, &key, status.as_bytes())?;
        }
        None => editor.insert(&tree, &key, header.as_bytes())?,
    }
    for subvolume in subvolumes(editor.store())? {
        let id = QgroupId::of_subvolume(subvolume);
        insert_group(editor, id)?;
        state.ledger.groups.insert(id, Group::empty());
    }
    *editor.changes.quotas.lock() = state;
    editor.changes.quotas.turn(true);
    Ok(())
}

/// A group joins another one, or leaves it. Returns true if the numbers can't be told any more.
fn relate(state: &mut State, child: QgroupId, parent: QgroupId, joins: bool) -> bool {
    let is_unknown = state.ledger.relate(child, parent, joins) && state.counted_from.is_none();
    state.is_changed = true;
    if is_unknown {
        state.give_up(format_args!("{child} has bytes that others reach too, and {parent} changed"));
    }
    is_unknown
}

/// Groups that a group is part of, which can be removed.
fn parents_of_removable(state: &State, id: QgroupId) -> Result<BTreeSet<QgroupId>, QuotaError> {
    let group = state.ledger.groups.get(&id).ok_or(QuotaError::NoGroup(id))?;
    if state.counted_from.is_some() && id.level() == 0 && group.info.rfer.get() > 0 {
        return Err(QuotaError::HasExtents(id));
    }
    if !state.ledger.children(id).is_empty() {
        return Err(QuotaError::HasMembers(id));
    }
    Ok(group.parents.clone())
}

/// Removes a group and its relations.
fn remove(editor: &Editor<'_>, id: QgroupId, parents: &BTreeSet<QgroupId>) -> Result<(), TreeError> {
    for parent in parents {
        relate(&mut editor.changes.quotas.lock(), id, *parent, false);
        write_relation(editor, id, *parent, false)?;
    }
    editor.changes.quotas.lock().ledger.groups.remove(&id);
    remove_group(editor, id)
}

fn check_relation(state: &State, child: QgroupId, parent: QgroupId, joins: bool) -> Result<(), QuotaError> {
    let group = state.ledger.groups.get(&child).ok_or(QuotaError::NoGroup(child))?;
    if !state.ledger.groups.contains_key(&parent) {
        return Err(QuotaError::NoGroup(parent));
    }
    match (joins, group.parents.contains(&parent)) {
        (true, _) if child.level() >= parent.level() => Err(QuotaError::Level { child, parent }),
        (true, true) => Err(QuotaError::Related { child, parent }),
        (false, false) => Err(QuotaError::NotRelated { child, parent }),
        _ => Ok(()),
    }
}

/// Subvolumes of a pool, those that are being dropped left out.
fn subvolumes(store: &Store) -> Result<BTreeSet<RootId>, TreeError> {
    let roots = store.tree(RootId::ROOT_TREE)?;
    let mut found = BTreeSet::from([RootId::FS_TREE]);
    let mut cursor = store.cursor(&roots, Readahead::Forward);
    cursor.seek(&Key::first_of(ObjectId::FIRST_FREE, KeyType::ROOT_ITEM))?;
    while let Some(key) = cursor.key().filter(|key| key.objectid <= ObjectId::LAST_FREE) {
        if key.item_type == KeyType::ROOT_ITEM {
            found.insert(RootId::new(key.objectid.get()));
        }
        cursor.next()?;
    }
    Ok(found)
}
