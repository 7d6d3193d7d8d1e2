//! Replay of logs: changes fsynced after the last commit enter the trees of the subvolumes, as part of the first
//! transaction after it. What the log holds, and what follows from it, is as the kernel has it, whose logs these are.
//!
//! The walk: each subvolume's log is gone through three times, each time in the order of its items, for a name may be
//! given to an inode that comes later. First *inodes*: attributes that the log lacks go, and so do the names of a
//! directory in the ranges of indexes for which the log is complete; the inode item is that of the log (one that only
//! says that the inode exists takes no other's place), and nothing stays behind the end of a file. Then *entries*:
//! names that only directories tell of. Then *the rest*: attributes, names by inode, extents with their checksums. At
//! last the inodes that lost or gained names get the number of links that they have; one without links is marked, and goes
//! as any orphan does.
//!
//! A name that comes to stand for another inode, or an index for another name, takes it from its owner. Nothing
//! here is visible before all of it is durable; should it fail, the log is still there.
//!
//! That an item makes sense by itself has been seen to where its block was read, as everywhere; what is refused here does
//! not fit what is there.

pub(crate) mod extents;
mod inodes;
mod names;

use crate::attributes::InodeId;
use crate::core::Core;
use crate::core::edit::Edit;
use crate::directory::Directories;
use crate::error::FsError;
use crate::extent::Extents;
use brindle_ondisk::item::InodeItem;
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use brindle_tree::{LogReplay, LogTree, Need, Readahead, Tree, TreeError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Metadata space that the replay reserves, in items: it has to have some, and its real need shows in its course.
const ITEMS: usize = 64;

/// The times that a log is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Inodes,
    Entries,
    Rest,
}

/// One subvolume's replay.
struct Replay<'a> {
    core: &'a Core,
    extents: &'a Extents,
    directories: &'a Directories,
    edit: &'a Edit<'a>,
    log: &'a LogTree,
    tree: &'a Arc<Tree>,
    /// Inodes whose number of links has to be counted.
    touched: BTreeSet<ObjectId>,
}

/// Replays the log, if there is one, and makes it durable. The filesystem must not be in use yet.
pub(crate) fn replay_log(core: &Core, extents: &Extents, directories: &Directories) -> Result<(), FsError> {
    if !core.pool().has_log() {
        return Ok(());
    }
    let logs = core.pool().log_trees()?;
    let now = core.writing()?.options.host.now().into();
    let transaction = match core.pool().join(Need::freeing(ITEMS)) {
        // The pool can't be written before.
        Err(TreeError::NoSpace(_)) => core.pool().join(Need::rescuing(ITEMS))?,
        joined => joined?,
    };
    let edit = Edit { editor: *transaction, now, log_book: &core.log_book };
    LogReplay::of(&edit.editor).keep_log()?;
    for log in &logs {
        let tree = match core.pool().tree(log.subvolume) {
            // Deleted since: the log went with it.
            Err(TreeError::NoTree(_)) => continue,
            tree => tree?,
        };
        // The same, but it was open.
        if core.pool().root_item(log.subvolume)?.is_some_and(|(_, item)| item.refs.get() == 0) {
            continue;
        }
        let touched = BTreeSet::new();
        Replay { core, extents, directories, edit: &edit, log, tree: &tree, touched }.run()?;
    }
    drop(transaction);
    core.pool().log_is_replayed()?;
    core.pool().commit()?;
    tracing::info!("replayed a log of fsyncs after the last commit, in {} subvolumes", logs.len());
    Ok(())
}

impl Replay<'_> {
    fn run(mut self) -> Result<(), FsError> {
        for stage in [Stage::Inodes, Stage::Entries, Stage::Rest] {
            self.go_through(stage)?;
        }
        self.settle_links()
    }

    /// Goes through the log once.
    fn go_through(&mut self, stage: Stage) -> Result<(), FsError> {
        let mut cursor = self.core.pool().cursor(&self.log.tree, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        let mut unnamed = None;
        while let Some((key, data)) = cursor.item() {
            let refuse = |defect| TreeError::item(RootId::TREE_LOG, key, defect);
            let item = Item::parse(&key, data).map_err(refuse)?;
            if let Item::Inode(inode) = &item {
                // Without a name, and open, when it was logged: it has gone since.
                unnamed = (inode.nlink.get() == 0).then_some(key.objectid);
            }
            if unnamed != Some(key.objectid) {
                self.replay_item(stage, key, data, &item)?;
            }
            cursor.next()?;
        }
        Ok(())
    }

    fn replay_item(&mut self, stage: Stage, key: Key, data: &[u8], item: &Item<'_>) -> Result<(), FsError> {
        let number = key.objectid;
        match (stage, item) {
            (Stage::Inodes, Item::Inode(inode)) => self.replay_inode(number, inode),
            (Stage::Entries, Item::DirIndex(entries)) => {
                entries.flatten().try_for_each(|entry| self.replay_entry(number, key.offset(), &entry))
            }
            (Stage::Rest, Item::Xattr(_)) => self.replay_xattr(&key, data),
            (Stage::Rest, Item::InodeRef(names)) => {
                let parent = ObjectId::new(key.offset());
                let names = names.flatten().map(|name| (parent, name.index, name.name));
                self.replay_names(&key, &names.collect::<Vec<_>>())
            }
            (Stage::Rest, Item::InodeExtref(names)) => {
                let names = names.flatten().map(|name| (name.parent, name.index, name.name));
                self.replay_names(&key, &names.collect::<Vec<_>>())
            }
            (Stage::Rest, Item::FileExtent(extent)) => match self.inode_item(number)? {
                Some(inode) => self.replay_extent((self.id(number), &inode), (key, extent)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn id(&self, number: ObjectId) -> InodeId {
        InodeId { tree: self.tree.id(), number }
    }

    /// An inode's item, as it is by now.
    fn inode_item(&self, number: ObjectId) -> Result<Option<InodeItem>, FsError> {
        let key = Key::new(number, KeyType::INODE_ITEM, 0);
        let read = |data: &[u8]| match Item::parse(&key, data) {
            Ok(Item::Inode(item)) => Ok(Some(*item)),
            Ok(_) => Ok(None),
            Err(defect) => Err(TreeError::item(self.tree.id(), key, defect)),
        };
        let found = self.core.pool().with_item(self.tree, &key, read)?;
        Ok(found.transpose()?.flatten())
    }
}
