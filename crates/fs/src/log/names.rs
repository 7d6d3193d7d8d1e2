//! Checks that a replay finds a file where it is now.

use super::{Items, Logged};
use crate::packed::find;
use crate::{Filesystem, FsError, InodeId};
use brindle_ondisk::item::{DirEntryHeader, InodeItem};
use brindle_ondisk::{Generation, Item, Key, KeyType, ObjectId, RootId, name_hash};
use brindle_tree::{Logging, Readahead, Tree, Unlogged};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Directories and subvolumes above a file, at the most.
const LEVELS_MAX: usize = 256;

impl Filesystem {
    /// Inode item of the last commit for a file that a replay finds, or makes, where it is now; `None` if it has
    /// none.
    pub(super) fn committed_base(
        &self,
        logging: &Logging<'_>,
        tree: &Arc<Tree>,
        id: InodeId,
        items: &Items,
    ) -> Result<Logged<Option<InodeItem>>, FsError> {
        let Some(committed) = logging.committed_tree(id.tree)? else { return Ok(Err(Unlogged::Names)) };
        let (parent, index, name) = &items.name;
        let before = self.inode_of(&committed, id.number)?;
        let is_as_now = match &before {
            Some(before) => {
                before.generation == items.inode.generation
                    && before.nlink == items.inode.nlink
                    && self.has_same_name(&committed, tree, id.number)?
            }
            None => self.is_name_free(&committed, *parent, *index, name)?,
        };
        if !is_as_now || !self.is_directory_in_place(logging, id.tree, *parent)? {
            return Ok(Err(Unlogged::Names));
        }
        Ok(Ok(before))
    }

    /// Returns true if a name in a directory, and its index, are free.
    fn is_name_free(
        &self,
        committed: &Arc<Tree>,
        parent: ObjectId,
        index: u64,
        name: &[u8],
    ) -> Result<bool, FsError> {
        let key = Key::new(parent, KeyType::DIR_ITEM, name_hash(name));
        let has_name = self.pool().with_item(committed, &key, |data| {
            find::<DirEntryHeader>(data, |_, there| there == name).is_some()
        })?;
        let key = Key::new(parent, KeyType::DIR_INDEX, index);
        let has_index = self.pool().with_item(committed, &key, |_| ())?.is_some();
        Ok(has_name != Some(true) && !has_index)
    }

    /// Returns true if a directory, and everything above it, is where it was at the last commit.
    fn is_directory_in_place(
        &self,
        logging: &Logging<'_>,
        subvolume: RootId,
        directory: ObjectId,
    ) -> Result<bool, FsError> {
        let (mut subvolume, mut directory) = (subvolume, directory);
        for _ in 0..LEVELS_MAX {
            let tree = self.tree(subvolume)?;
            let Some(committed) = logging.committed_tree(subvolume)? else { return Ok(false) };
            if directory != InodeId::root_of(subvolume).number {
                let (before, now) = (self.inode_of(&committed, directory)?, self.inode_of(&tree, directory)?);
                let made = |item: Option<InodeItem>| {
                    item.filter(InodeItem::is_directory).map(|item: InodeItem| item.generation)
                };
                let made: (Option<Generation>, _) = (made(before), made(now));
                if made.0.is_none()
                    || made.0 != made.1
                    || !self.has_same_name(&committed, &tree, directory)?
                {
                    return Ok(false);
                }
                let name = self.first_item(&tree, directory, KeyType::INODE_REF)?;
                let Some((key, _)) = name else { return Ok(false) };
                directory = ObjectId::new(key.offset());
                continue;
            }
            if subvolume == RootId::FS_TREE {
                return Ok(true);
            }
            let roots = self.pool().tree(RootId::ROOT_TREE)?;
            let Some(committed) = logging.committed_tree(RootId::ROOT_TREE)? else { return Ok(false) };
            let of = |tree| self.first_item(tree, subvolume.object_id(), KeyType::ROOT_BACKREF);
            let (before, now) = (of(&committed)?, of(&roots)?);
            let Some((key, data)) = now.filter(|now| Some(now) == before.as_ref()) else { return Ok(false) };
            let Ok(Item::RootRef(reference)) = Item::parse(&key, &data) else { return Ok(false) };
            (subvolume, directory) = (RootId::new(key.offset()), reference.dirid);
        }
        Ok(false)
    }

    /// Returns true if an inode has the same first name in two trees, and it is the only one in that directory.
    fn has_same_name(&self, a: &Arc<Tree>, b: &Arc<Tree>, number: ObjectId) -> Result<bool, FsError> {
        let name = |tree| self.first_item(tree, number, KeyType::INODE_REF);
        let (a, b) = (name(a)?, name(b)?);
        Ok(a.is_some() && a == b)
    }

    fn inode_of(&self, tree: &Arc<Tree>, number: ObjectId) -> Result<Option<InodeItem>, FsError> {
        let key = Key::new(number, KeyType::INODE_ITEM, 0);
        let item = self.pool().with_item(tree, &key, |data| InodeItem::read_from_bytes(data).ok())?;
        Ok(item.flatten())
    }

    /// The first item of a type that an object has.
    fn first_item(
        &self,
        tree: &Arc<Tree>,
        object: ObjectId,
        item_type: KeyType,
    ) -> Result<Option<(Key, Vec<u8>)>, FsError> {
        let mut cursor = self.pool().cursor(tree, Readahead::None);
        cursor.seek(&Key::first_of(object, item_type))?;
        let item = cursor.item().filter(|(key, _)| (key.objectid, key.item_type) == (object, item_type));
        Ok(item.map(|(key, data)| (key, data.to_vec())))
    }
}
