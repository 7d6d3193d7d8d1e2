//! Inodes that have lost their last name: they stay while they are open, and then go.
//!
//! Each [`InodeHold`](crate::InodeHold) is counted in the inode's `opens`; the count rises from 0 only while the inode has
//! a name. The inode's items go under two locks: that of its names, which all changes of names and attributes hold, and its
//! gate, which all use of contents holds. An operation that has found the inode under either lock finds it until the lock is
//! given back, and one that comes too late is refused before it joins a transaction.
//!
//! In the subvolume's tree such an inode has a mark, the orphan item, from the same transaction on that takes its
//! last name. Contents go in steps, each a part of one transaction, then attributes, if they are many, and at last the inode and the
//! mark together. Each step is one for which a full pool has room. Whatever a crash leaves of it has the mark, and is found by
//! [`OrphanQueue`] after the next opening.

use crate::attributes::InodeId;
use crate::core::Core;
use crate::core::inodes::Inode;
use crate::core::orphan_queue::OrphanQueue;
use crate::core::subvolumes::SubvolumeState;
use crate::data::FileData;
use crate::error::FsError;
use crate::items::InodeItems;
use brindle_ondisk::item::FileType;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_tree::{RESCUE_ITEMS, Readahead, Tree};
use std::sync::Arc;

/// Size of a batch, of subvolumes and of the orphans of one.
const BATCH: usize = 64;
/// Upper bound on the items of an inode that are removed in one transaction, the inode item and the mark not counted.
const PIECE_ITEMS: usize = RESCUE_ITEMS - 2;

/// Removes inodes that have lost their last name.
#[derive(Debug)]
pub(crate) struct Orphans {
    core: Arc<Core>,
    items: Arc<InodeItems>,
    data: Arc<FileData>,
}

/// Items of an inode that are removed in one transaction.
#[derive(Debug, Default)]
struct Piece {
    items: usize,
    last: Option<Key>,
    /// True if the inode has further items.
    has_more: bool,
}

/// The least key that an item of an inode can have beside the inode item.
fn after_inode_item(id: InodeId) -> Key {
    Key::new(id.number, KeyType::INODE_ITEM, 1)
}

impl Orphans {
    pub(crate) fn new(core: Arc<Core>, items: Arc<InodeItems>, data: Arc<FileData>) -> Self {
        Self { core, items, data }
    }

    /// Removes an inode that has lost its last name and is not open, once it bears the mark.
    pub(crate) fn remove_unnamed(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        let mut names = inode.names();
        if names.opens > 0 || std::mem::replace(&mut names.is_going, true) {
            return Ok(());
        }
        drop(names);
        let removed = match self.remove_marked(inode) {
            // It goes with its subvolume, and the operation that took its name has done what it was asked for.
            Err(FsError::DeletedSubvolume(_) | FsError::NoSubvolume(_)) => return Ok(()),
            removed => removed,
        };
        if removed.is_err() {
            inode.names().is_going = false;
        }
        removed
    }

    /// Removes contents in steps, then the rest.
    fn remove_marked(&self, inode: &Inode) -> Result<(), FsError> {
        match self.items.attributes(inode.id()) {
            Ok(before) if before.nlink == 0 && before.kind == FileType::Regular => {
                self.data.drop_file_contents(inode.id())?;
            }
            Ok(_) | Err(FsError::NoInode(_)) => {}
            Err(error) => return Err(error),
        }
        self.remove_remnant(inode)
    }

    /// Removes an inode without contents, and its mark. Only the mark goes if the inode has a name (the kernel marks
    /// files, too, whose truncation it has begun), or is gone (a removal that a crash interrupted in an older
    /// implementation).
    fn remove_remnant(&self, inode: &Inode) -> Result<(), FsError> {
        let id = inode.id();
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = subvolume.begin_upkeep()?;
        let _names = inode.names();
        let _alone = inode.data.exclusive();
        let has_name = match self.items.attributes(id) {
            Ok(attributes) => attributes.nlink > 0,
            Err(FsError::NoInode(_)) => false,
            Err(error) => return Err(error),
        };
        let tree = subvolume.tree();
        if has_name {
            return self.core.change(Core::removal(tree, 1), |edit| edit.remove_orphan(tree, id.number));
        }
        let mut piece = self.first_piece(tree, id)?;
        while let Some(last) = piece.last.filter(|_| piece.has_more) {
            self.core.change(Core::removal(tree, piece.items), |edit| {
                edit.remove_inode_items(tree, &after_inode_item(id), &last)
            })?;
            piece = self.first_piece(tree, id)?;
        }
        self.core.change(Core::removal(tree, 2 + piece.items), |edit| {
            edit.remove_inode(tree, id.number)?;
            edit.remove_orphan(tree, id.number)
        })
    }

    /// The first items of an inode after the inode item.
    fn first_piece(&self, tree: &Arc<Tree>, id: InodeId) -> Result<Piece, FsError> {
        let mut cursor = self.core.pool().cursor(tree, Readahead::None);
        cursor.seek(&after_inode_item(id))?;
        let mut piece = Piece::default();
        while let Some(key) = cursor.key().filter(|key| key.objectid == id.number) {
            if piece.items == PIECE_ITEMS {
                piece.has_more = true;
                break;
            }
            (piece.items, piece.last) = (piece.items + 1, Some(key));
            cursor.next()?;
        }
        Ok(piece)
    }

    /// Looks for orphans in a few subvolumes, and removes a few; whether there is more to do.
    pub(crate) fn clean_orphans(&self, orphans: &OrphanQueue) -> Result<bool, FsError> {
        let Some(id) = orphans.next(self.core.pool())? else {
            return Ok(false);
        };
        let subvolume = match self.core.subvolume_state(id) {
            Ok(subvolume) => subvolume,
            // Deleted since: its orphans go with it.
            Err(FsError::NoSubvolume(_) | FsError::DeletedSubvolume(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        let found = self.orphans_of(&subvolume)?;
        let mut failed = None;
        for number in &found {
            let inode = self.core.inode(InodeId { tree: id, number: *number });
            if let Err(error) = self.remove_unnamed(&inode) {
                tracing::warn!("{} has lost its last name and could not be removed: {error}", inode.id());
                failed.get_or_insert(error);
            }
        }
        if found.len() == BATCH && failed.is_none() {
            orphans.look_at(id);
        }
        Ok(true)
    }

    /// Removes the orphans that a new snapshot has of its source, read-only or not, as the kernel does. `btrfs check` does not
    /// put up with orphans in blocks that several trees share. What can't be removed now is left to the background.
    pub(crate) fn clean_snapshot(&self, id: RootId, orphans: &OrphanQueue) {
        let cleaned = self.core.subvolume_state(id).and_then(|snapshot| {
            let mut before = None;
            loop {
                let found = self.orphans_of(&snapshot)?;
                let first = found.first().copied();
                if first.is_none() || first == before {
                    return Ok(first.is_none());
                }
                before = first;
                for number in found {
                    self.remove_unnamed(&self.core.inode(InodeId { tree: id, number }))?;
                }
            }
        });
        match cleaned {
            Ok(true) => {}
            Ok(false) => orphans.look_at(id),
            Err(error) => {
                tracing::warn!("orphans of the new snapshot {id} are left for later: {error}");
                orphans.look_at(id);
            }
        }
    }

    /// Marked inodes of a subvolume without openers, as many as are removed in one go.
    pub(crate) fn orphans_of(&self, subvolume: &SubvolumeState) -> Result<Vec<ObjectId>, FsError> {
        let tree = subvolume.tree();
        let mut cursor = self.core.pool().cursor(tree, Readahead::None);
        cursor.seek(&Key::first_of(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM))?;
        let mut found = Vec::new();
        while found.len() < BATCH {
            let Some(key) = cursor.key().filter(|key| key.objectid == ObjectId::ORPHAN) else {
                break;
            };
            let id = InodeId { tree: tree.id(), number: ObjectId::new(key.offset()) };
            let is_open = self.core.inodes.find(id).is_some_and(|inode| inode.names().opens > 0);
            if key.item_type == KeyType::ORPHAN_ITEM && !is_open {
                found.push(id.number);
            }
            cursor.next()?;
        }
        Ok(found)
    }
}
