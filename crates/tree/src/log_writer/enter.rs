//! Items enter a log.

use super::LogWriter;
use super::blocks::LogBlocks;
use super::replayed::logged_checksums;
use super::trees::LogTrees;
use crate::changes::Changes;
use crate::checksums::checksum_items;
use crate::editor::operations::{insert_all, replace};
use crate::editor::remove::remove_range;
use crate::editor::{Editor, Verdict};
use crate::error::TreeError;
use crate::histogram::Timing;
use crate::log::{LogState, LogTicket, SyncMeasure, Unlogged};
use crate::refs::DataRange;
use crate::root::TreeRoot;
use crate::store::cursor::Readahead;
use crate::store::logs::LogTree;
use crate::transaction::Durable;
use crate::transaction::stop::{ClosedGate, Inside};
use crate::tree::Tree;
use brindle_ondisk::{Generation, Item, Key, KeyType, Logical, RootId, to_u64};
use brindle_sync::MutexGuard;
use brindle_volume::DeviceSet;
use std::sync::Arc;

/// Part in the running transaction, for an fsync: the transaction before it is durable.
#[derive(Debug)]
pub struct Logging<'p> {
    editor: Editor<'p>,
    locked: Option<Locked<'p>>,
    _part: Part<'p>,
}

/// Lock under which items are prepared and entered, if preparation is told to be locked.
#[derive(Debug)]
#[expect(dead_code, reason = "both are held, and not looked at")]
struct Locked<'p> {
    held: Timing<'p>,
    lock: MutexGuard<'p, ()>,
}

impl<'p> Locked<'p> {
    /// The lock, if it is wanted. A holder that panics stops the pool on its way out.
    fn if_told(changes: &'p Changes) -> Option<Self> {
        let is_told = changes.options.log_prepare_locked;
        let lock = is_told.then(|| changes.log.preparation.lock_after_panic())?;
        Some(Self { held: changes.log.histogram(SyncMeasure::EntryHeld).time(), lock })
    }
}

/// Kind of part that an fsync has in the running transaction.
#[expect(dead_code, reason = "the parts are held, and not looked at")]
enum Part<'p> {
    /// One of many.
    Inside(Inside<'p>),
    /// The only one.
    Alone(ClosedGate<'p, MutexGuard<'p, Durable>>),
}

/// Items to be logged of a subvolume.
#[derive(Debug)]
pub struct LogChange {
    /// The subvolume.
    pub subvolume: RootId,
    /// Ranges of keys, with all items that the log is to have in them.
    pub ranges: Vec<LogRange>,
    /// Checksums of data that the last commit does not know.
    pub checksums: Vec<(Logical, Vec<u8>)>,
    /// Devices with data that the items refer to: flushed before the log counts.
    pub data_on: DeviceSet,
}

/// All items of a log in a range of keys.
#[derive(Debug)]
pub struct LogRange {
    /// The first key of the range.
    pub first: Key,
    /// The last key of the range.
    pub last: Key,
    /// The items, in order.
    pub items: Vec<(Key, Vec<u8>)>,
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Inside(_) => "Inside",
            Self::Alone(_) => "Alone",
        })
    }
}

impl<'p> LogWriter<'p> {
    /// Takes part in the running transaction, to log: once the one before it is durable.
    pub(crate) fn begin(&self) -> Result<Logging<'p>, TreeError> {
        let Self { transactions, .. } = *self;
        loop {
            self.store.stop().check()?;
            let inside = transactions.enter();
            let generation = inside.generation();
            if transactions.durable_generation().get() + 1 == generation.get() {
                let editor = transactions.editor(generation);
                return Ok(Logging {
                    editor,
                    locked: Locked::if_told(transactions.changes()),
                    _part: Part::Inside(inside),
                });
            }
            drop(inside);
            drop(transactions.lock_commit()?);
        }
    }

    /// Takes part in the running transaction as the only one, to log changes that several items tell together: nothing
    /// else changes as long as the answer lives.
    pub(crate) fn begin_alone(&self) -> Result<Logging<'p>, TreeError> {
        let Self { transactions, .. } = *self;
        let _stops = self.store.stop_on_panic();
        // No commit is under way then, so the transaction before the running one is durable.
        let durable = transactions.lock_commit()?;
        let closed = transactions.close_gate(durable);
        transactions.check_sound()?;
        let editor = transactions.editor(closed.generation());
        Ok(Logging { editor, locked: None, _part: Part::Alone(closed) })
    }
}

impl Logging<'_> {
    /// The running transaction.
    pub fn generation(&self) -> Generation {
        self.editor.generation
    }

    /// A tree as of the last commit, if it was there.
    pub fn committed_tree(&self, id: RootId) -> Result<Option<Arc<Tree>>, TreeError> {
        let (pool, log) = (self.editor.store, &self.editor.changes.log);
        let roots = Tree::fixed(TreeRoot::root_tree(&pool.superblock()));
        if id == RootId::ROOT_TREE {
            return Ok(Some(roots));
        }
        if let Some(known) = log.state().committed.get(&id) {
            return Ok(known.clone());
        }
        let mut cursor = pool.cursor(&roots, Readahead::None);
        cursor.seek_last(&Key::last_of(id.object_id(), KeyType::ROOT_ITEM))?;
        let item = cursor
            .item()
            .filter(|(key, _)| (key.objectid, key.item_type) == (id.object_id(), KeyType::ROOT_ITEM));
        let root = item.and_then(|(key, data)| match Item::parse(&key, data) {
            Ok(Item::Root(item)) => Some(TreeRoot::from_item(id, &item)),
            _ => None,
        });
        let tree = root.map(Tree::fixed);
        log.state().committed.insert(id, tree.clone());
        Ok(tree)
    }

    /// The log of a subvolume, if it has one by now.
    pub fn log_tree(&self, subvolume: RootId) -> Option<Arc<Tree>> {
        self.editor.changes.log.state().trees.get(&subvolume).map(Arc::clone)
    }

    /// Enters changes. One caller at a time for each range of keys.
    pub fn enter(&self, changes: &[LogChange]) -> Result<Result<LogTicket, Unlogged>, TreeError> {
        let log = &self.editor.changes.log;
        let mut state = log.state();
        let held = self.locked.is_none().then(|| log.histogram(SyncMeasure::EntryHeld).time());
        // Items copied before this check have not been moved.
        if log.is_forbidden(self.generation()) {
            return Ok(Err(Unlogged::Layout));
        }
        state.generation = self.generation();
        let entered = changes.iter().map(|change| self.enter_locked(&mut state, change));
        let entered: Result<usize, TreeError> = entered.sum();
        state.data_on = changes
            .iter()
            .fold(std::mem::take(&mut state.data_on), |devices, change| devices.union(&change.data_on));
        if let Err(error) = &entered {
            tracing::warn!("a log was not entered: {error}");
            // Half of it may be there.
            log.forbid(self.generation());
        }
        let ticket = LogTicket { generation: self.generation(), number: state.begun + 1 };
        drop(held);
        drop(state);
        log.counts().items += to_u64(entered?);
        Ok(Ok(ticket))
    }

    fn enter_locked(&self, state: &mut LogState, change: &LogChange) -> Result<usize, TreeError> {
        let tree = match state.trees.get(&change.subvolume) {
            Some(tree) => Arc::clone(tree),
            None => {
                let tree = LogTrees::of(&self.editor).new_tree()?;
                state.trees.insert(change.subvolume, Arc::clone(&tree));
                tree
            }
        };
        let mut count = 0;
        for range in &change.ranges {
            self.enter_range(&tree, range)?;
            count += range.items.len();
        }
        let log = LogTree { subvolume: change.subvolume, tree };
        for (start, sums) in &change.checksums {
            count += self.enter_checksums(&log, *start, sums)?;
        }
        Ok(count)
    }

    fn enter_range(&self, tree: &Arc<Tree>, range: &LogRange) -> Result<(), TreeError> {
        let blocks = LogBlocks(self.editor);
        let is_item = |key: &Key| range.items.binary_search_by_key(key, |(key, _)| *key).is_ok();
        let mut has_some = false;
        remove_range(&blocks, tree, &range.first, &range.last, |key, _| {
            if is_item(key) {
                has_some = true;
                Verdict::Keep
            } else {
                Verdict::Remove
            }
        })?;
        if has_some {
            return range.items.iter().try_for_each(|(key, data)| replace(&blocks, tree, key, data));
        }
        let items: Vec<(Key, &[u8])> =
            range.items.iter().map(|(key, data)| (*key, data.as_slice())).collect();
        insert_all(&blocks, tree, &items)
    }

    /// Enters checksums, as far as the log has none: what it has of a place is of the same data, for no place is used
    /// twice within a transaction.
    fn enter_checksums(&self, log: &LogTree, start: Logical, sums: &[u8]) -> Result<usize, TreeError> {
        let blocks = LogBlocks(self.editor);
        let context = self.editor.store.volume().tree_context();
        let (sector, size) = (u64::from(context.sectorsize), context.checksum_type.size());
        let sectors = to_u64(sums.len() / size);
        let there = logged_checksums(self.editor.store, log, DataRange { start, length: sectors * sector })?;
        let mut known: Vec<(u64, u64)> = Vec::new();
        for (at, sums) in there {
            let from = (at.get() - start.get()) / sector;
            known.push((from, from + to_u64(sums.len() / size)));
        }
        known.push((sectors, sectors));
        let (mut at, mut count) = (0, 0);
        for (from, to) in known {
            if from > at {
                let missing = brindle_ondisk::to_usize(at) * size..brindle_ondisk::to_usize(from) * size;
                let items: Vec<(Key, &[u8])> =
                    checksum_items(context, start + at * sector, &sums[missing]).collect();
                insert_all(&blocks, &log.tree, &items)?;
                count += items.len();
            }
            at = at.max(to);
        }
        Ok(count)
    }
}
