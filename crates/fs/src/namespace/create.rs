//! New inodes.

use super::inherit::inherit;
use crate::attributes::{Attributes, InodeId};
use crate::core::edit::{Place, directory_bytes};
use crate::core::inode_hold::InodeHold;
use crate::core::inodes::Inode;
use crate::core::subvolumes::SubvolumeState;
use crate::directory::name::check_name;
use crate::error::FsError;
use crate::extent::open_file::OpenFile;
use crate::namespace::Namespace;
use crate::new_inode::{FirstName, Inheritance, NewInode, PlannedInode};
use brindle_ondisk::item::{FileExtentHeader, FileType};
use brindle_ondisk::{ObjectId, RootId};
use brindle_tree::Need;
use std::sync::Arc;

/// Upper bound of a symbolic link's target, in bytes: `PATH_MAX` without the terminating zero. The target is an inline
/// extent, so a small node size lowers the bound further.
const TARGET_BYTES_MAX: usize = 4095;

impl Namespace {
    pub(crate) fn create(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attributes, FsError> {
        self.create_in(parent, name, new, 0).map(|(attributes, _)| attributes)
    }

    pub(crate) fn create_open(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(Attributes, OpenFile), FsError> {
        let (attributes, inode) = self.create_in(parent, name, new, 1)?;
        let file = self.holds.open_held(&attributes, self.holds.counted(inode))?;
        Ok((attributes, file))
    }

    fn create_in(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        opens: u32,
    ) -> Result<(Attributes, Arc<Inode>), FsError> {
        check_name(name)?;
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let _access = subvolume.begin_write()?;
        let place = Place { tree: subvolume.tree(), directory: parent, name };
        let directory = self.core.directory(parent);
        let mut names = directory.names();
        let above = self.directories.changeable_directory(parent, false)?;
        let slot = self.directories.slot(place)?;
        if slot.entry.is_some() {
            return Err(FsError::Exists(name.to_vec()));
        }
        self.directories.check_room(place, &slot, 0)?;
        self.check_quota(parent.tree)?;
        let inherited = self.inherited(parent, &mut names)?;
        let planned = self
            .plan_inode(&subvolume, new, |kind, options| inherit(new, kind, &above, &inherited, options))?;
        let index = self.directories.new_index(place.tree, parent, &mut names)?;
        let inode = self.core.inode(planned.id);
        // A lookup that finds the name waits until the opener is counted. New numbers are greater than all before.
        let mut new_names = inode.names();
        if planned.kind == FileType::Regular {
            inode.data.load(0);
        }
        let attributes = self.core.change(Need::items(planned.items() + 4), |edit| {
            let first = FirstName { parent: parent.number, name, index };
            let item = edit.insert_inode(place.tree, &planned, Some(first))?;
            edit.add_entry(place, index, planned.entry())?;
            edit.directory(place.tree, parent.number, directory_bytes(name))?;
            Ok(planned.attributes(&item))
        })?;
        new_names.opens = opens;
        drop(new_names);
        Ok((attributes, inode))
    }

    pub(crate) fn create_unnamed(
        &self,
        parent: InodeId,
        new: &NewInode<'_>,
    ) -> Result<(Attributes, InodeHold), FsError> {
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let _access = subvolume.begin_write()?;
        self.check_quota(parent.tree)?;
        let inherited = self.inherited(parent, &mut self.core.inode(parent).names())?;
        let above = self.directories.changeable_directory(parent, false)?;
        let planned = self
            .plan_inode(&subvolume, new, |kind, options| inherit(new, kind, &above, &inherited, options))?;
        let inode = self.core.inode(planned.id);
        let mut names = inode.names();
        let attributes = self.core.change(Need::items(planned.items() + 1), |edit| {
            let item = edit.insert_inode(subvolume.tree(), &planned, None)?;
            edit.add_orphan(subvolume.tree(), planned.id.number)?;
            Ok(planned.attributes(&item))
        })?;
        (names.opens, names.is_unnamed, names.is_linkable) = (1, true, true);
        drop(names);
        Ok((attributes, self.holds.counted(inode)))
    }

    /// Refuses what may make a tree block more of a subvolume that has all it may have.
    pub(super) fn check_quota(&self, subvolume: RootId) -> Result<(), FsError> {
        let pool = self.core.pool();
        pool.claim_quota(subvolume, pool.nodesize().into())?;
        Ok(())
    }

    /// Decides everything about a new inode, and gives it its number.
    fn plan_inode<'a>(
        &self,
        subvolume: &SubvolumeState,
        new: &NewInode<'a>,
        inherit: impl FnOnce(FileType, &crate::write_options::WriteOptions) -> Inheritance,
    ) -> Result<PlannedInode<'a>, FsError> {
        let tree = subvolume.tree().id();
        let invalid = |why| FsError::Invalid { file: InodeId { tree, number: ObjectId::new(0) }, why };
        let kind = FileType::from_mode(new.mode).ok_or_else(|| invalid("a new inode has no type"))?;
        let target_bytes_max =
            TARGET_BYTES_MAX.min(self.core.item_bytes_max() - size_of::<FileExtentHeader>());
        match new.target {
            Some(target) if target.len() > target_bytes_max => {
                return Err(FsError::NameTooLong(target.to_vec()));
            }
            Some(b"") => return Err(FsError::NotFound(Vec::new())),
            Some(target) if target.contains(&0) => return Err(FsError::InvalidName(target.to_vec())),
            _ if new.target.is_some() != (kind == FileType::Symlink) => {
                return Err(invalid("a symbolic link, and nothing else, has a target"));
            }
            _ => {}
        }
        let inheritance = inherit(kind, &self.core.writing()?.options);
        let id = InodeId { tree, number: subvolume.new_number(self.core.pool())? };
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let rdev = if is_device { new.rdev } else { 0 };
        Ok(PlannedInode { id, kind, uid: new.uid, rdev, target: new.target, inheritance })
    }
}
