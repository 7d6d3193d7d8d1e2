//! Subvolumes and snapshots: where their trees begin, and how they hang together.

pub(crate) mod change;
mod drop;
pub(crate) mod received;

use crate::attributes::{InodeId, Timestamp};
use crate::core::Core;
use crate::data::FileData;
use crate::directory::Directories;
use crate::directory::location::SubvolumePlace;
use crate::error::FsError;
use crate::items::InodeItems;
use crate::log::FsLog;
use crate::orphan::Orphans;
use brindle_ondisk::item::{RootFlags, RootItem};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId, Uuid, name_hash};
use brindle_tree::{Readahead, TreeError};
use std::sync::Arc;

/// A subvolume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// Its id.
    pub id: RootId,
    /// The subvolume whose directory names it; `None` for the top level.
    pub parent: Option<RootId>,
    /// Path from the top level, empty for the top level itself.
    pub path: Vec<u8>,
    /// The last transaction that changed it.
    pub generation: u64,
    /// The transaction that created it.
    pub created_generation: u64,
    /// Time of creation.
    pub created: Timestamp,
    /// Its UUID.
    pub uuid: Uuid,
    /// UUID of what it is a snapshot of.
    pub parent_uuid: Uuid,
    /// UUID of what it was received from.
    pub received_uuid: Uuid,
    /// The last transaction that changed a file or directory of it.
    pub changed_generation: u64,
    /// The same of what it was received from, in the pool of its sender; 0 if it was not received.
    pub sent_generation: u64,
    /// Flags.
    pub flags: RootFlags,
}

/// Choice of the subvolume that becomes the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubvolumeChoice {
    /// The one set as default; the top level unless someone set another.
    #[default]
    Default,
    /// The one at this path from the top level (`subvol=`).
    Path(Vec<u8>),
    /// The one of this id (`subvolid=`); 0 for the top level.
    Id(RootId),
}

/// Id of a subvolume that is not made yet: no other one gets it.
#[derive(Debug)]
pub struct ReservedId(RootId);

impl ReservedId {
    /// The id.
    pub fn id(&self) -> RootId {
        self.0
    }
}

impl Subvolume {
    /// Returns true if it can't be written.
    pub fn is_read_only(&self) -> bool {
        self.flags.contains(RootFlags::RDONLY)
    }
}

/// Lists, makes, snapshots and deletes subvolumes.
#[derive(Debug)]
pub(crate) struct Subvolumes {
    pub(crate) core: Arc<Core>,
    pub(crate) items: Arc<InodeItems>,
    pub(crate) directories: Arc<Directories>,
    pub(crate) data: Arc<FileData>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) log: Arc<FsLog>,
}

impl Subvolumes {
    pub(crate) fn subvolumes(&self) -> Result<Vec<Subvolume>, FsError> {
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let mut cursor = self.core.pool().cursor(&root_tree, Readahead::Forward);
        let mut found = Vec::new();
        cursor.seek(&Key::first_of(RootId::FS_TREE.object_id(), KeyType::ROOT_ITEM))?;
        while let Some((key, data)) = cursor.item() {
            let id = RootId::new(key.objectid.get());
            if key.objectid > ObjectId::LAST_FREE {
                break;
            }
            if key.item_type == KeyType::ROOT_ITEM && (id == RootId::FS_TREE || id.is_subvolume()) {
                let item = Item::parse(&key, data);
                let item = item.map_err(|defect| TreeError::item(RootId::ROOT_TREE, key, defect))?;
                if let Item::Root(item) = item {
                    found.extend(self.subvolume(id, &item)?);
                }
            }
            cursor.next()?;
        }
        Ok(found)
    }

    pub(crate) fn is_subvolume_read_only(&self, id: RootId) -> Result<bool, FsError> {
        Ok(self.core.subvolume_state(id)?.begin_upkeep()?.is_read_only)
    }

    pub(crate) fn default_subvolume(&self) -> Result<RootId, FsError> {
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let key = Key::new(ObjectId::ROOT_TREE_DIR, KeyType::DIR_ITEM, name_hash(b"default"));
        let location = self.core.pool().with_item(&root_tree, &key, |data| {
            match Item::parse(&key, data) {
                Ok(Item::DirItem(mut entries)) => {
                    entries.find_map(|entry| entry.ok().filter(|entry| entry.name == b"default"))
                }
                _ => None,
            }
            .map(|entry| RootId::new(entry.header.location.objectid.get()))
        })?;
        Ok(location.flatten().unwrap_or(RootId::FS_TREE))
    }

    pub(crate) fn choose_root(&self, choice: &SubvolumeChoice) -> Result<InodeId, FsError> {
        let id = match choice {
            SubvolumeChoice::Default => self.default_subvolume()?,
            SubvolumeChoice::Id(id) if id.get() == 0 => RootId::FS_TREE,
            SubvolumeChoice::Id(id) => *id,
            SubvolumeChoice::Path(path) => {
                let inode = self.directories.resolve(InodeId::root_of(RootId::FS_TREE), path)?;
                if inode != InodeId::root_of(inode.tree) {
                    return Err(FsError::NotASubvolume(path.clone()));
                }
                inode.tree
            }
        };
        self.core.tree(id)?;
        Ok(InodeId::root_of(id))
    }

    /// A subvolume with its path; `None` for one that is deleted or has lost its place.
    fn subvolume(&self, id: RootId, item: &RootItem) -> Result<Option<Subvolume>, FsError> {
        if item.refs.get() == 0 {
            return Ok(None);
        }
        let Some(SubvolumePlace { parent, path }) = self.directories.place(id)? else {
            return Ok(None);
        };
        Ok(Some(Subvolume {
            id,
            parent,
            path,
            generation: item.generation.get(),
            created_generation: item.otransid.get(),
            created: (&item.otime).into(),
            uuid: item.uuid,
            parent_uuid: item.parent_uuid,
            received_uuid: item.received_uuid,
            changed_generation: item.ctransid.get(),
            sent_generation: item.stransid.get(),
            flags: item.root_flags(),
        }))
    }
}
