//! Subvolumes, made, shown and deleted by ioctls. The kernel does not see these changes and is told of them; nor does
//! it check permissions for them.

use super::invalidations::Invalidations;
use super::nodes::Nodes;
use super::pages::KernelPages;
use crate::control_thread::OwnThread;
use crate::errno::number;
use crate::permission::{Caller, Ids};
use brindle_fs::{
    Attributes, ErrorKind, FileType, Filesystem, FsError, InodeId, NewInode, ObjectId, QgroupId, RootId,
    Subvolume,
};
use brindle_uapi::message::{
    BY_ID, InodeLookup, READ_ONLY, SnapshotRequest, SubvolumeInfo, SubvolumePage, Time, VolumeArgumentsV2,
    field, text,
};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros};

/// Subvolumes of the mounted pool.
#[derive(Debug)]
pub(super) struct Subvolumes {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    pages: Arc<KernelPages>,
    invalidations: Arc<Invalidations>,
    owners_delete: bool,
}

impl Subvolumes {
    /// With `owners_delete`, the owner of a subvolume may delete it.
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        pages: Arc<KernelPages>,
        invalidations: Arc<Invalidations>,
        owners_delete: bool,
    ) -> Self {
        Self { filesystem, nodes, pages, invalidations, owners_delete }
    }

    pub(super) fn create(
        &self,
        own: &OwnThread,
        caller: Caller,
        parent: u64,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.create_in(own, caller, parent, name, &[])
    }

    fn create_in(
        &self,
        own: &OwnThread,
        caller: Caller,
        parent: u64,
        name: &[u8],
        groups: &[QgroupId],
    ) -> Result<(), Errno> {
        let directory = self.changeable_directory(caller, parent)?;
        let Ids { uid, gid } = caller.ids().ok_or(Errno::PERM)?;
        let umask = caller.umask();
        let new = NewInode { mode: 0o777, umask, uid, gid, ..NewInode::default() };
        number(self.filesystem.create_subvolume_in(directory.id, name, &new, groups))?;
        self.invalidations.entry_changed(own, parent, name);
        Ok(())
    }

    /// Makes a snapshot, or an empty subvolume, in quota groups.
    pub(super) fn make(
        &self,
        own: &OwnThread,
        caller: Caller,
        parent: u64,
        request: &SnapshotRequest,
    ) -> Result<(), Errno> {
        if request.flags & !READ_ONLY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let groups: Vec<QgroupId> =
            request.groups.iter().take_while(|id| **id != 0).map(|id| QgroupId::new(*id)).collect();
        // As with the kernel, they count for nothing while quotas are off.
        let parents = self.filesystem.pool().check_quota_parents(&groups);
        let groups = match parents.map_err(|error| FsError::from(error).kind()) {
            Err(ErrorKind::QuotasOff) => Vec::new(),
            _ => groups,
        };
        match (request.source, request.flags) {
            (0, 0) => self.create_in(own, caller, parent, text(&request.name), &groups),
            (0, _) => Err(Errno::INVAL),
            _ => self.snapshot(own, caller, parent, request, &groups),
        }
    }

    fn snapshot(
        &self,
        own: &OwnThread,
        caller: Caller,
        parent: u64,
        request: &SnapshotRequest,
        groups: &[QgroupId],
    ) -> Result<(), Errno> {
        let source = self.nodes.inode(request.source).map_err(|_| Errno::NOENT)?;
        require_root(source)?;
        let directory = self.changeable_directory(caller, parent)?;
        caller.require_owner(&number(self.filesystem.attributes(source))?)?;
        let (name, is_read_only) = (text(&request.name), request.flags & READ_ONLY != 0);
        // Nothing is written back for a snapshot that can't be made.
        if number(self.filesystem.lookup(directory.id, name))?.is_some() {
            return Err(Errno::EXIST);
        }
        self.pages.gather(own, Some(source.tree));
        number(self.filesystem.snapshot_in(source.tree, directory.id, name, is_read_only, groups))?;
        self.invalidations.entry_changed(own, parent, name);
        Ok(())
    }

    pub(super) fn delete(
        &self,
        own: &OwnThread,
        caller: Caller,
        parent: u64,
        name: &[u8],
    ) -> Result<(), Errno> {
        let directory = self.changeable_directory(caller, parent)?;
        let entry = number(self.filesystem.lookup(directory.id, name))?.ok_or(Errno::NOENT)?;
        require_root(entry.inode)?;
        if entry.inode.tree == self.filesystem.root().tree {
            return Err(Errno::BUSY);
        }
        let victim = number(self.filesystem.attributes(entry.inode))?;
        caller.require_removal(&directory, &victim)?;
        if self.owners_delete {
            caller.require_owner(&victim)?;
        } else {
            caller.require_administrator()?;
        }
        number(self.filesystem.delete_subvolume(directory.id, name))?;
        self.invalidations.entry_changed(own, parent, name);
        Ok(())
    }

    pub(super) fn delete_v2(
        &self,
        own: &OwnThread,
        caller: Caller,
        parent: u64,
        arguments: &VolumeArgumentsV2,
    ) -> Result<(), Errno> {
        match arguments.flags {
            0 => self.delete(own, caller, parent, text(&arguments.name)),
            BY_ID => {
                caller.require_administrator()?;
                let (id, _) = u64::read_from_prefix(&arguments.name).map_err(|_| Errno::INVAL)?;
                let place =
                    number(self.filesystem.subvolumes())?.into_iter().find(|found| found.id.get() == id);
                let place = place.ok_or(Errno::NOENT)?;
                let above = number(self.filesystem.parent_directory(InodeId::root_of(place.id)))?;
                let above = above.ok_or(Errno::NOENT)?;
                let name = place.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                let parent = self.nodes.known(above).ok_or(Errno::NOENT)?;
                self.delete(own, caller, parent, name)
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    pub(super) fn flags(&self, node: u64) -> Result<u64, Errno> {
        let id = self.nodes.inode(node)?;
        require_root(id)?;
        let is_read_only = number(self.filesystem.is_subvolume_read_only(id.tree))?;
        Ok(if is_read_only { READ_ONLY } else { 0 })
    }

    pub(super) fn set_flags(
        &self,
        own: &OwnThread,
        caller: Caller,
        node: u64,
        flags: u64,
    ) -> Result<(), Errno> {
        let id = self.nodes.inode(node)?;
        require_root(id)?;
        if flags & !READ_ONLY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        caller.require_owner(&number(self.filesystem.attributes(id))?)?;
        let is_read_only = flags & READ_ONLY != 0;
        if is_read_only {
            self.pages.gather(own, Some(id.tree));
        }
        number(self.filesystem.set_subvolume_read_only(id.tree, is_read_only))
    }

    pub(super) fn set_default(&self, node: u64, id: u64) -> Result<(), Errno> {
        let here = self.nodes.inode(node)?;
        let id = if id == 0 { here.tree } else { RootId::new(id) };
        number(self.filesystem.set_default_subvolume(id))
    }

    pub(super) fn describe(&self, node: u64) -> Result<SubvolumeInfo, Errno> {
        let tree = self.nodes.inode(node)?.tree;
        let all = number(self.filesystem.subvolumes())?;
        let found = all.iter().find(|subvolume| subvolume.id == tree).ok_or(Errno::NOENT)?;
        self.info(found)
    }

    /// The next subvolumes of the list.
    pub(super) fn page(&self, after: u64) -> Result<SubvolumePage, Errno> {
        let mut page = SubvolumePage::empty(number(self.filesystem.default_subvolume())?.get());
        page.after = after;
        for subvolume in number(self.filesystem.subvolumes())?.iter().filter(|found| found.id.get() > after) {
            if !page.push(&self.info(subvolume)?, &subvolume.path) {
                break;
            }
        }
        Ok(page)
    }

    /// The subvolume of an inode and its path in that.
    pub(super) fn lookup_inode(
        &self,
        caller: Caller,
        node: u64,
        mut asked: InodeLookup,
    ) -> Result<InodeLookup, Errno> {
        let here = self.nodes.inode(node)?;
        let root = InodeId::root_of(here.tree);
        if asked.subvolume != 0 || asked.inode != root.number.get() {
            caller.require_administrator()?;
        }
        let tree = if asked.subvolume == 0 { here.tree } else { RootId::new(asked.subvolume) };
        let mut at = InodeId { tree, number: ObjectId::new(asked.inode) };
        let mut path = Vec::new();
        while at.number != root.number {
            let (parent, name) = number(self.filesystem.first_name(at))?.ok_or(Errno::NOENT)?;
            path.splice(0..0, name.into_iter().chain([b'/']));
            if path.len() >= asked.path.len() {
                return Err(Errno::NAMETOOLONG);
            }
            at.number = parent;
        }
        asked.subvolume = tree.get();
        asked.path = field(&path).ok_or(Errno::NAMETOOLONG)?;
        Ok(asked)
    }

    fn info(&self, subvolume: &Subvolume) -> Result<SubvolumeInfo, Errno> {
        let above = match subvolume.parent {
            Some(_) => number(self.filesystem.parent_directory(InodeId::root_of(subvolume.id)))?,
            None => None,
        };
        let name = subvolume.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let created = Time {
            seconds: subvolume.created.seconds as u64,
            nanoseconds: subvolume.created.nanoseconds,
            padding: 0,
        };
        Ok(SubvolumeInfo {
            id: subvolume.id.get(),
            name: field(name).ok_or(Errno::NAMETOOLONG)?,
            parent: subvolume.parent.map_or(0, RootId::get),
            directory: above.map_or(0, |above| above.number.get()),
            generation: subvolume.generation,
            flags: subvolume.flags.bits(),
            uuid: subvolume.uuid.0,
            parent_uuid: subvolume.parent_uuid.0,
            received_uuid: subvolume.received_uuid.0,
            transactions: [subvolume.generation, subvolume.created_generation, 0, 0],
            times: [Time::default(), created, Time::default(), Time::default()],
            ..SubvolumeInfo::new_zeroed()
        })
    }

    /// A directory that the caller may change.
    fn changeable_directory(&self, caller: Caller, node: u64) -> Result<Attributes, Errno> {
        let directory = number(self.filesystem.attributes(self.nodes.inode(node)?))?;
        if directory.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        caller.require_change(&self.filesystem, &directory)?;
        Ok(directory)
    }
}

/// Refuses what is not the root of a subvolume.
fn require_root(id: InodeId) -> Result<(), Errno> {
    if id == InodeId::root_of(id.tree) { Ok(()) } else { Err(Errno::INVAL) }
}
