//! Locations: the directory and name of an inode, and of a subvolume in its parent.

use crate::attributes::InodeId;
use crate::core::edit::NameForm;
use crate::core::edit::root_reference_keys;
use crate::directory::Directories;
use crate::directory::entry::NamePlace;
use crate::error::FsError;
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use brindle_tree::{Readahead, TreeError};

/// Parent and path of a subvolume.
pub(crate) struct SubvolumePlace {
    pub(crate) parent: Option<RootId>,
    pub(crate) path: Vec<u8>,
}

impl Directories {
    pub(crate) fn path_of_subvolume(&self, id: RootId) -> Result<Option<Vec<u8>>, FsError> {
        Ok(self.place(id)?.map(|place| place.path))
    }

    /// The parent of a subvolume, and its path from the top level.
    pub(crate) fn place(&self, id: RootId) -> Result<Option<SubvolumePlace>, FsError> {
        /// Deeper than any path that can be named.
        const DEPTH_MAX: usize = 4096;
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        let mut first_parent = None;
        while at != RootId::FS_TREE {
            let Some((parent, directory, name)) = self.backref(at)? else {
                return Ok(None);
            };
            first_parent.get_or_insert(parent);
            parts.push(name);
            let mut inode = InodeId { tree: parent, number: directory };
            while inode.number != ObjectId::FIRST_FREE {
                let Some((above, name)) = self.first_name(inode)? else {
                    return Ok(None);
                };
                parts.push(name);
                inode.number = above;
                if parts.len() > DEPTH_MAX {
                    return Err(FsError::SubvolumeLoop(id));
                }
            }
            at = parent;
            if parts.len() > DEPTH_MAX {
                return Err(FsError::SubvolumeLoop(id));
            }
        }
        parts.reverse();
        Ok(Some(SubvolumePlace { parent: first_parent, path: parts.join(&b'/') }))
    }

    /// Parent subvolume, directory in it and name of a subvolume.
    pub(crate) fn backref(&self, id: RootId) -> Result<Option<(RootId, ObjectId, Vec<u8>)>, FsError> {
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let mut cursor = self.core.pool().cursor(&root_tree, Readahead::None);
        cursor.seek(&Key::first_of(id.object_id(), KeyType::ROOT_BACKREF))?;
        let Some((key, data)) = cursor.item() else {
            return Ok(None);
        };
        if (key.objectid, key.item_type) != (id.object_id(), KeyType::ROOT_BACKREF) {
            return Ok(None);
        }
        match Item::parse(&key, data) {
            Ok(Item::RootRef(reference)) => {
                Ok(Some((RootId::new(key.offset()), reference.dirid, reference.name.to_vec())))
            }
            Ok(_) => Ok(None),
            Err(defect) => Err(TreeError::item(RootId::ROOT_TREE, key, defect).into()),
        }
    }

    pub(crate) fn parent_directory(&self, id: InodeId) -> Result<Option<InodeId>, FsError> {
        if id == InodeId::root_of(RootId::FS_TREE) {
            return Ok(Some(id));
        }
        if id == InodeId::root_of(id.tree) {
            let above = self.backref(id.tree)?;
            return Ok(above.map(|(tree, number, _)| InodeId { tree, number }));
        }
        let above = self.first_name(id)?;
        Ok(above.map(|(number, _)| InodeId { tree: id.tree, number }))
    }

    pub(crate) fn first_name(&self, id: InodeId) -> Result<Option<(ObjectId, Vec<u8>)>, FsError> {
        let mut cursor = self.core.pool().cursor(&self.core.tree(id.tree)?, Readahead::None);
        cursor.seek(&id.key(KeyType::INODE_REF, 0))?;
        let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == id.number) else {
            return Ok(None);
        };
        let refuse = |defect| FsError::Item { file: id, key, defect };
        match Item::parse(&key, data).map_err(refuse)? {
            Item::InodeRef(mut names) => {
                let name = names.next().transpose().map_err(refuse)?;
                Ok(name.map(|name| (ObjectId::new(key.offset()), name.name.to_vec())))
            }
            Item::InodeExtref(mut names) => {
                let name = names.next().transpose().map_err(refuse)?;
                Ok(name.map(|name| (name.parent, name.name.to_vec())))
            }
            _ => Ok(None),
        }
    }

    /// Record of a subvolume's name beside the directory's entry.
    pub(crate) fn root_reference_place(&self, parent: RootId, child: RootId) -> Result<NamePlace, FsError> {
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let [key, _] = root_reference_keys(parent, child);
        let index = self.core.pool().with_item(&root_tree, &key, |data| match Item::parse(&key, data) {
            Ok(Item::RootRef(reference)) => Some(reference.sequence),
            _ => None,
        })?;
        let index = index.flatten().ok_or(FsError::NoSubvolume(child))?;
        Ok(NamePlace { index, form: NameForm::Ref })
    }
}
