//! More names for an inode.

use super::check_name;
use super::edit::{Place, directory_bytes};
use crate::attributes::{Attributes, InodeId};
use crate::directory::entry::frozen_flags;
use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::inodes::lock_names;
use crate::namespace::edit::Entry;
use brindle_ondisk::KeyType;
use brindle_ondisk::item::FileType;
use brindle_tree::Need;

/// The most names that an inode can have (`BTRFS_LINK_MAX`).
const LINK_MAX: u32 = 65535;

impl Filesystem {
    /// Gives an inode, not a directory, one more name.
    pub fn link(&self, id: InodeId, parent: InodeId, name: &[u8]) -> Result<Attributes, FsError> {
        check_name(name)?;
        let _writing = self.core.writing()?;
        if id.tree != parent.tree {
            return Err(FsError::CrossSubvolume(id));
        }
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let _access = subvolume.begin_write()?;
        let place = Place { tree: subvolume.tree(), directory: parent, name };
        let (directory, inode) = (self.core.directory(parent), self.core.inode(id));
        let mut locks = lock_names(&[&directory, &inode]);
        self.directories.changeable_directory(parent, false)?;
        let before = self.items.attributes(id)?;
        if before.kind == FileType::Directory {
            return Err(FsError::NotPermitted { file: id, why: "a directory has one name" });
        }
        frozen_flags(&before)?;
        // Only what was made without a name may get its first one now; what has lost its last one is gone.
        if before.nlink == 0 && !locks.of(id).is_linkable {
            return Err(FsError::NoInode(id));
        }
        if before.nlink >= LINK_MAX {
            return Err(FsError::TooManyLinks(id));
        }
        let slot = self.directories.slot(place)?;
        if slot.entry.is_some() {
            return Err(FsError::Exists(name.to_vec()));
        }
        self.directories.check_room(place, &slot, 0)?;
        let form = self.directories.new_name_form(place, id.number, None)?;
        let index = self.directories.new_index(place.tree, parent, locks.of(parent))?;
        self.core.change(Need::items(6), |edit| {
            let entry = Entry { location: id.key(KeyType::INODE_ITEM, 0), kind: before.kind };
            edit.add_entry(place, index, entry)?;
            edit.add_name(place, id.number, index, form)?;
            edit.directory(place.tree, parent.number, directory_bytes(name))?;
            if before.nlink == 0 {
                edit.remove_orphan(place.tree, id.number)?;
            }
            edit.inode(place.tree, id.number, |item| {
                item.nlink.set(before.nlink + 1);
                item.ctime = edit.now;
            })
        })?;
        (locks.of(id).is_unnamed, locks.of(id).is_linkable) = (false, false);
        drop(locks);
        self.items.attributes(id)
    }
}
