//! More names for an inode.

use crate::attributes::{Attributes, InodeId};
use crate::core::edit::{Entry, Place, directory_bytes};
use crate::core::inodes::lock_names;
use crate::directory::entry::frozen_flags;
use crate::directory::name::check_name;
use crate::error::FsError;
use crate::namespace::Namespace;
use brindle_ondisk::item::FileType;
use brindle_ondisk::{Defect, KeyType, to_u64, to_usize};
use brindle_tree::Need;

/// The most names that an inode can have (`BTRFS_LINK_MAX`).
const LINK_MAX: u32 = 65535;

impl Namespace {
    pub(crate) fn link(&self, id: InodeId, parent: InodeId, name: &[u8]) -> Result<Attributes, FsError> {
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

impl Namespace {
    pub(crate) fn read_link(&self, id: InodeId) -> Result<Vec<u8>, FsError> {
        /// The kernel's `PATH_MAX`, which counts the zero at the end: no link can be longer.
        const TARGET_MAX: u64 = 4095;
        let attributes = self.items.attributes(id)?;
        if attributes.kind != FileType::Symlink {
            return Err(FsError::NotASymlink(id));
        }
        let file = self.holds.open_known(&attributes)?;
        let size = file.size();
        let key = id.key(KeyType::INODE_ITEM, 0);
        let refuse = |defect| FsError::Item { file: id, key, defect };
        if size > TARGET_MAX {
            return Err(refuse(Defect::expected("length of symbolic link", TARGET_MAX, size)));
        }
        let mut target = vec![0; to_usize(size)];
        let length = self.reader.read(&file, 0, &mut target);
        // A link that has lost its name meanwhile goes now; that it could not is no matter of the reader.
        if let Err(error) = self.holds.end_use(file) {
            tracing::warn!("{id} has lost its last name and could not be removed: {error}");
        }
        target.truncate(length?);
        if let Some(at) = target.iter().position(|byte| *byte == 0) {
            return Err(refuse(Defect::new("zero byte in a symbolic link, at", to_u64(at))));
        }
        Ok(target)
    }
}
