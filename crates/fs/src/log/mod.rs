//! Entry of an fsync into the log of a subvolume: of a regular file with one name, the changes of the running
//! transaction, and no more. The walk as a whole is told in [`brindle_tree`]'s own module of that name.
//!
//! - *Inode item, name, attributes*: all there are, as they are; a replay takes away attributes that the log lacks.
//! - *Extents*: what there is now in the ranges that have changed since the last commit (`book` knows which), holes
//!   told; each range is as wide as the extents that reach into it, those that the log has already included, so that
//!   no two of a log ever overlap (`extents`).
//! - *Checksums* of extents that the last commit does not have.
//!
//! A replay begins with the last commit. So that it ends with the file where it is now, and takes nothing from others,
//! the file must be where it was then, or be new and have a name that was free there; and the directories above must
//! be those of then, in their places (`names`). What the last commit has is looked up in its own trees, which are still
//! there.
//!
//! Everything else is a commit: other kinds of inodes, several names, clones, anything that is uncertain.

mod book;
mod extents;
mod names;

pub(crate) use book::LogBook;

use crate::{Filesystem, FsError, Inode, InodeId};
use brindle_ondisk::item::{InodeItem, InodeRefHeader};
use brindle_ondisk::{Key, KeyType, ObjectId};
use brindle_tree::{LogChange, LogTicket, Readahead, Tree, Unlogged};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Logged part of a file, or the reason for logging nothing.
type Logged<T> = Result<T, Unlogged>;

/// A file's items before its extents.
struct Items {
    inode: InodeItem,
    /// The directory, the index there, and the name.
    name: (ObjectId, u64, Vec<u8>),
    all: Vec<(Key, Vec<u8>)>,
}

impl Filesystem {
    /// Makes durable what has been written back of a file, and what else has changed of it: by the log if that can say
    /// it, else by a commit.
    pub(crate) fn sync_inode(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        let writing = self.writing()?;
        let options = &writing.options;
        let logged = if options.tree_log && !options.flush_on_commit {
            match self.log_inode(inode)? {
                Ok(Some(ticket)) => self.pool().sync_log(ticket)?,
                Ok(None) => Ok(()),
                Err(why) => Err(why),
            }
        } else {
            Err(Unlogged::Off)
        };
        match logged {
            Ok(()) => Ok(()),
            Err(why) => {
                self.pool().count_unlogged(why);
                self.commit()
            }
        }
    }

    /// Enters a file into the log; `None` if nothing of it has changed since what is durable.
    fn log_inode(&self, inode: &Arc<Inode>) -> Result<Logged<Option<LogTicket>>, FsError> {
        let id = inode.id();
        let _entry = inode.data.shared();
        let _turn = inode.data.writeback_turn();
        let logging = self.pool().begin_logging()?;
        let tree = self.tree(id.tree)?;
        let Some(items) = self.items_of(&tree, id)? else { return Ok(Err(Unlogged::Kind)) };
        let generation = logging.generation();
        let committed = match self.committed_base(&logging, &tree, id, &items)? {
            Ok(committed) => committed,
            Err(why) => return Ok(Err(why)),
        };
        let Some(mut ranges) = self.log_book.changes(generation, id) else {
            return Ok(Err(Unlogged::Extents));
        };
        let end = items.inode.size.get().next_multiple_of(self.sector());
        let (log, logged) = (logging.log_tree(id.tree), logging.ticket_of(id.tree, id.number));
        match (&log, logged) {
            (Some(log), Some(ticket)) => {
                // What has gone behind the end is told when there is something behind it.
                let has_changed = ranges.iter().any(|range| range.start < end);
                if !has_changed && self.has_logged(log, &items)? {
                    return Ok(Ok(Some(ticket)));
                }
            }
            _ if committed.is_none() => ranges = std::iter::once(0..u64::MAX).collect(),
            _ if ranges.is_empty() && items.inode.transid < generation => return Ok(Ok(None)),
            _ => {}
        }
        let found = self.extents_to_log(&tree, log.as_ref(), id, &items.inode, (generation, ranges))?;
        let Some((extents, checksums)) = found else { return Ok(Err(Unlogged::Extents)) };
        let change = LogChange {
            subvolume: id.tree,
            number: id.number,
            name: items.name,
            items: items.all,
            extents,
            checksums,
        };
        let entered = logging.enter(&change)?;
        if entered.is_ok() {
            self.log_book.forget_before(generation, id, end);
        }
        Ok(entered.map(Some))
    }

    /// A regular file's items before its extents, if it has one name and nothing unusual.
    fn items_of(&self, tree: &Arc<Tree>, id: InodeId) -> Result<Option<Items>, FsError> {
        let mut cursor = self.pool().cursor(tree, Readahead::None);
        cursor.seek(&id.key(KeyType::INODE_ITEM, 0))?;
        let (mut inode, mut names, mut all) = (None, Vec::new(), Vec::new());
        while let Some((key, data)) =
            cursor.item().filter(|(key, _)| key.objectid == id.number && key.item_type < KeyType::EXTENT_DATA)
        {
            match key.item_type {
                KeyType::INODE_ITEM => inode = InodeItem::read_from_bytes(data).ok(),
                KeyType::INODE_REF => names.push((ObjectId::new(key.offset()), data.to_vec())),
                KeyType::XATTR_ITEM => {}
                _ => return Ok(None),
            }
            all.push((key, data.to_vec()));
            cursor.next()?;
        }
        let Some(inode) = inode.filter(|inode| inode.is_regular() && inode.nlink.get() == 1) else {
            return Ok(None);
        };
        let [(parent, data)] = &names[..] else { return Ok(None) };
        let Ok((header, name)) = InodeRefHeader::read_from_prefix(data) else { return Ok(None) };
        let is_one = name.len() == usize::from(header.name_len.get());
        let name = (*parent, header.index.get(), name.to_vec());
        Ok(is_one.then_some(Items { inode, name, all }))
    }

    /// Returns true if the log has just these items.
    fn has_logged(&self, log: &Arc<Tree>, items: &Items) -> Result<bool, FsError> {
        let mut cursor = self.pool().cursor(log, Readahead::None);
        cursor.seek(&Key::first_of(items.all[0].0.objectid, KeyType::INODE_ITEM))?;
        for (key, data) in &items.all {
            if cursor.item() != Some((*key, data.as_slice())) {
                return Ok(false);
            }
            cursor.next()?;
        }
        Ok(cursor.key().is_none_or(|key| {
            key.objectid != items.all[0].0.objectid || key.item_type >= KeyType::EXTENT_DATA
        }))
    }
}
