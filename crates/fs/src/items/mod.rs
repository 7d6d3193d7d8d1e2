//! Inode items, and the items beside them: attributes and extended attributes, with what memory knows better.

use crate::attributes::{Attributes, InodeId, Timestamp};
use crate::core::Core;
use crate::core::inodes::Inode;
use crate::error::FsError;
use crate::extent::Extents;
use crate::file_flags::FileFlags;
use brindle_ondisk::{Item, Key, KeyType};
use brindle_tree::Readahead;
use std::ops::Range;
use std::sync::Arc;

pub(crate) mod xattr;

/// Lookups of extents before giving up, if others change them meanwhile.
const TRIES: usize = 4;

/// Reads attributes and extended attributes of inodes.
#[derive(Debug)]
pub(crate) struct InodeItems {
    core: Arc<Core>,
    extents: Arc<Extents>,
}

impl InodeItems {
    pub(crate) fn new(core: Arc<Core>, extents: Arc<Extents>) -> Self {
        Self { core, extents }
    }

    pub(crate) fn attributes(&self, id: InodeId) -> Result<Attributes, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        if let Some(inode) = self.core.inodes.find(id) {
            // Where extents cannot be read, what they would tell does not count.
            self.classify_unwritten(&inode).ok();
        }
        self.quick_attributes(id)
    }

    /// The same; the bytes on disk may lack contents that are in memory only.
    pub(crate) fn quick_attributes(&self, id: InodeId) -> Result<Attributes, FsError> {
        let _stops = self.core.pool().stop_on_panic();
        if id.is_empty_subvolume() {
            return self.empty_subvolume(id);
        }
        let key = id.key(KeyType::INODE_ITEM, 0);
        loop {
            let inode = self.core.inodes.find(id);
            let stamp = inode.as_ref().map(|inode| inode.data.stamp());
            let found =
                self.core.pool().with_item(&self.core.tree(id.tree)?, &key, |data| parse(id, &key, data))?;
            let mut attributes = found.unwrap_or(Err(FsError::NoInode(id)))?;
            let Some(inode) = inode else {
                return Ok(attributes);
            };
            inode.data.overlay(&mut attributes);
            if stamp == Some(inode.data.stamp()) {
                return Ok(attributes);
            }
        }
    }

    /// The place of a subvolume in a snapshot is as old as the snapshot. (The kernel shows the time at which it looked.)
    fn empty_subvolume(&self, id: InodeId) -> Result<Attributes, FsError> {
        let born = self
            .core
            .pool()
            .root_item(id.tree)?
            .map_or_else(Timestamp::default, |(_, item)| (&item.otime).into());
        let times = (born, born, born, born);
        let mut attributes = Attributes::empty_subvolume(id);
        (attributes.accessed, attributes.changed, attributes.modified, attributes.created) = times;
        Ok(attributes)
    }

    pub(crate) fn attributes_of(&self, ids: &[InodeId]) -> Vec<Result<Attributes, FsError>> {
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_unstable_by_key(|index| ids[*index]);
        let mut found: Vec<_> = ids.iter().map(|id| Err(FsError::NoInode(*id))).collect();
        for run in order.chunk_by(|a, b| ids[*a].tree == ids[*b].tree) {
            let tree = ids[run[0]].tree;
            let mut cursor = match self.core.tree(tree) {
                Ok(tree) => self.core.pool().cursor(&tree, Readahead::Forward),
                Err(_) => continue,
            };
            for index in run {
                let id = ids[*index];
                if id.is_empty_subvolume() {
                    found[*index] = self.empty_subvolume(id);
                    continue;
                }
                let key = id.key(KeyType::INODE_ITEM, 0);
                found[*index] = match cursor.seek(&key) {
                    Err(error) => Err(error.into()),
                    Ok(()) => match cursor.item().filter(|(at, _)| *at == key) {
                        // Of what is in memory, the item alone does not tell everything.
                        Some(_) if self.core.inodes.find(id).is_some() => self.attributes(id),
                        Some((key, data)) => parse(id, &key, data),
                        None => Err(FsError::NoInode(id)),
                    },
                };
            }
        }
        found
    }

    pub(crate) fn flags(&self, id: InodeId) -> Result<FileFlags, FsError> {
        Ok(FileFlags::of(self.attributes(id)?.flags))
    }

    /// Finds out for which contents in memory the file has no space.
    pub(crate) fn classify_unwritten(&self, inode: &Inode) -> Result<(), FsError> {
        for _ in 0..TRIES {
            let (unclassified, version) = {
                let memory = inode.data.memory();
                let unclassified = memory.unallocated.unclassified();
                match memory.settled_version().filter(|_| !unclassified.is_empty()) {
                    Some(version) => (unclassified.clone(), version),
                    None => return Ok(()),
                }
            };
            let tree = self.core.tree(inode.id().tree)?;
            let look_up = |range| Ok((self.extents.holes(inode, &tree, &range)?, range));
            let found: Vec<_> =
                unclassified.iter().map(Range::from).map(look_up).collect::<Result<_, FsError>>()?;
            let mut memory = inode.data.memory();
            if memory.settled_version() == Some(version) {
                found.iter().for_each(|(holes, range)| memory.unallocated.classify(range, holes));
                return Ok(());
            }
        }
        Ok(())
    }
}

fn parse(id: InodeId, key: &Key, data: &[u8]) -> Result<Attributes, FsError> {
    let refuse = |defect| FsError::Item { file: id, key: *key, defect };
    match Item::parse(key, data).map_err(refuse)? {
        Item::Inode(item) => Attributes::from_item(id, item).map_err(refuse),
        _ => Err(FsError::NoInode(id)),
    }
}
