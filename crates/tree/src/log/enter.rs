//! Items enter a log.

use super::blocks::LogBlocks;
use super::sync::LogTicket;
use super::{Entered, LogState, LogTree, Unlogged};
use crate::editor::{insert_all, remove_range, replace};
use crate::refs::checksum_items;
use crate::transaction::Inside;
use crate::{DataRange, Editor, Pool, Readahead, Tree, TreeError, TreeRoot, Verdict};
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{Generation, Item, Key, KeyType, Logical, ObjectId, RootId, to_u64};
use std::sync::Arc;

/// Part in the running transaction, for an fsync: the transaction before it is durable.
#[derive(Debug)]
pub struct Logging<'p> {
    editor: Editor<'p>,
    _inside: Inside<'p>,
}

/// Change of an inode that an fsync logs.
#[derive(Debug)]
pub struct LogChange {
    /// The subvolume.
    pub subvolume: RootId,
    /// The inode.
    pub number: ObjectId,
    /// The directory of its name, the index there, and the name.
    pub name: (ObjectId, u64, Vec<u8>),
    /// All of its items before the extents, in order.
    pub items: Vec<(Key, Vec<u8>)>,
    /// The ranges that have changed, in order.
    pub extents: Vec<LogExtents>,
    /// Checksums of data that the last commit does not know.
    pub checksums: Vec<(Logical, Vec<u8>)>,
}

/// All extents in a range of a file.
#[derive(Debug)]
pub struct LogExtents {
    /// The first and the last offset.
    pub range: (u64, u64),
    /// The items, in order.
    pub items: Vec<(Key, Vec<u8>)>,
}

impl Pool {
    /// Takes part in the running transaction, to log: once the one before it is durable.
    pub fn begin_logging(&self) -> Result<Logging<'_>, TreeError> {
        let writer = self.writer()?;
        loop {
            writer.check_alive()?;
            let inside = writer.enter();
            let generation = inside.generation();
            if writer.durable_generation().get() + 1 == generation.get() {
                let editor = Editor { pool: self, writer, generation };
                return Ok(Logging { editor, _inside: inside });
            }
            drop(inside);
            drop(writer.lock_commit()?);
        }
    }
}

impl Logging<'_> {
    /// The running transaction.
    pub fn generation(&self) -> Generation {
        self.editor.generation
    }

    /// A tree as of the last commit, if it was there.
    pub fn committed_tree(&self, id: RootId) -> Result<Option<Arc<Tree>>, TreeError> {
        let (pool, log) = (self.editor.pool, &self.editor.writer.log);
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
        self.editor.writer.log.state().trees.get(&subvolume).map(Arc::clone)
    }

    /// Ticket of the sync that makes the logged state of an inode durable; `None` if the log has none.
    pub fn ticket_of(&self, subvolume: RootId, number: ObjectId) -> Option<LogTicket> {
        let state = self.editor.writer.log.state();
        let entered = state.inodes.get(&(subvolume, number))?;
        Some(LogTicket { generation: self.generation(), number: entered.number })
    }

    /// Enters what an fsync says of an inode. One caller per inode at a time.
    pub fn enter(&self, change: &LogChange) -> Result<Result<LogTicket, Unlogged>, TreeError> {
        let log = &self.editor.writer.log;
        let mut state = log.state();
        // Items copied before this check have not been moved.
        if log.is_forbidden(self.generation()) {
            return Ok(Err(Unlogged::Layout));
        }
        if !state.may_have_name(change) {
            return Ok(Err(Unlogged::Names));
        }
        let entered = self.enter_locked(&mut state, change);
        if let Err(error) = &entered {
            tracing::warn!("the log of subvolume {}: {error}", change.subvolume);
            // Half of it may be there.
            log.forbid(self.generation());
        }
        state.give_name(change);
        let ticket = LogTicket { generation: self.generation(), number: state.begun + 1 };
        drop(state);
        let mut counts = log.counts();
        counts.items += to_u64(entered?);
        counts.fsyncs += 1;
        Ok(Ok(ticket))
    }

    fn enter_locked(&self, state: &mut LogState, change: &LogChange) -> Result<usize, TreeError> {
        let tree = match state.trees.get(&change.subvolume) {
            Some(tree) => Arc::clone(tree),
            None => {
                let tree = self.editor.new_log_tree()?;
                state.trees.insert(change.subvolume, Arc::clone(&tree));
                tree
            }
        };
        let blocks = LogBlocks(self.editor);
        let is_item = |key: &Key| change.items.binary_search_by_key(key, |(key, _)| *key).is_ok();
        let first = Key::first_of(change.number, KeyType::INODE_ITEM);
        let last = Key::new(change.number, KeyType::XATTR_ITEM, u64::MAX);
        remove_range(&blocks, &tree, &first, &last, |key, _| {
            if is_item(key) { Verdict::Keep } else { Verdict::Remove }
        })?;
        for (key, data) in &change.items {
            replace(&blocks, &tree, key, data)?;
        }
        let mut count = change.items.len();
        for LogExtents { range: (from, to), items } in &change.extents {
            let key = |offset| Key::new(change.number, KeyType::EXTENT_DATA, offset);
            remove_range(&blocks, &tree, &key(*from), &key(*to), |_, _| Verdict::Remove)?;
            let items: Vec<(Key, &[u8])> = items.iter().map(|(key, data)| (*key, data.as_slice())).collect();
            insert_all(&blocks, &tree, &items)?;
            count += items.len();
        }
        let log = LogTree { subvolume: change.subvolume, tree };
        for (start, sums) in &change.checksums {
            count += self.enter_checksums(&log, *start, sums)?;
        }
        Ok(count)
    }

    /// Enters checksums, as far as the log has none: what it has of a place is of the same data, for no place is used
    /// twice within a transaction.
    fn enter_checksums(&self, log: &LogTree, start: Logical, sums: &[u8]) -> Result<usize, TreeError> {
        let blocks = LogBlocks(self.editor);
        let context = self.editor.pool.volume().tree_context();
        let (sector, size) = (u64::from(context.sectorsize), context.checksum_type.size());
        let sectors = to_u64(sums.len() / size);
        let there = self.editor.logged_checksums(log, DataRange { start, length: sectors * sector })?;
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

impl LogState {
    /// Returns true if a replay takes nothing from another inode of the log when it gives an inode its name.
    fn may_have_name(&self, change: &LogChange) -> bool {
        let (parent, index, name) = &change.name;
        let of_name = self.names.get(&(change.subvolume, *parent, name.clone()));
        let of_index = self.indexes.get(&(change.subvolume, *parent, *index));
        of_name.into_iter().chain(of_index).all(|holder| *holder == change.number)
    }

    fn give_name(&mut self, change: &LogChange) {
        let (subvolume, number) = (change.subvolume, change.number);
        let (parent, index, name) = change.name.clone();
        let entered = Entered { number: self.begun + 1, name: change.name.clone() };
        if let Some(before) = self.inodes.insert((subvolume, number), entered) {
            let (parent, index, name) = before.name;
            self.names.remove(&(subvolume, parent, name));
            self.indexes.remove(&(subvolume, parent, index));
        }
        self.names.insert((subvolume, parent, name), number);
        self.indexes.insert((subvolume, parent, index), number);
    }
}

impl Editor<'_> {
    /// An empty tree of log items, or of logs.
    pub(super) fn new_log_tree(&self) -> Result<Arc<Tree>, TreeError> {
        let leaf = self.empty_leaf(RootId::TREE_LOG)?;
        let bytenr = leaf.header().bytenr;
        let root = TreeRoot { id: RootId::TREE_LOG, bytenr, generation: self.generation, level: 0 };
        let tree = Tree::fixed(root);
        tree.write().dirty.insert(bytenr, Arc::new(leaf));
        Ok(tree)
    }
}

/// The root item of a log tree, as the kernel has it.
pub(super) fn root_item(root: TreeRoot, nodesize: u32) -> RootItem {
    let mut item: RootItem = zerocopy::FromZeros::new_zeroed();
    item.inode.generation = Generation::new(1);
    item.inode.size.set(3);
    item.inode.nlink.set(1);
    item.inode.nbytes.set(nodesize.into());
    item.inode.mode.set(0o40755);
    (item.generation, item.generation_v2) = (root.generation, root.generation);
    (item.bytenr, item.level) = (root.bytenr, root.level);
    item
}
