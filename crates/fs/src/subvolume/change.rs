//! Making, snapshotting and deleting subvolumes: the root item, the entry and the links to the directory that has it,
//! and the entry in the UUID tree.

use crate::attributes::{InodeId, Timestamp};
use crate::change::xattr::{COMPRESSION, compression_flag};
use crate::core::edit::{Edit, Entry, Place, directory_bytes};
use crate::core::subvolumes::{SubvolumeState, WriteAccess, highest_number};
use crate::directory::entry::Target;
use crate::directory::name::check_name;
use crate::error::FsError;
use crate::new_inode::{FirstName, Inheritance, NewInode, PlannedInode};
use crate::subvolume::{ReservedId, Subvolumes};
use crate::uuid_tree::UuidKind;
use brindle_ondisk::item::{FileType, InodeFlags, RootFlags, RootItem, Timespec};
use brindle_ondisk::{
    Defect, Generation, Incompat, Key, KeyType, ObjectId, QgroupId, RootId, Uuid, name_hash,
};
use brindle_sync::{RwLockReadGuard, RwLockWriteGuard};
use brindle_tree::{Need, RESCUE_ITEMS, Readahead, Roots, TreeError};
use std::cmp::Ordering;
use zerocopy::{FromBytes, FromZeros};

/// The mode of a new subvolume's root, as the kernel has it with the usual umask.
pub(crate) const ROOT_MODE: u32 = 0o040_755;
const DIRECTORY: u32 = 0o040_000;
const PERMISSIONS: u32 = 0o777;
/// The name under which a root directory is its own.
const PARENT: &[u8] = b"..";

/// Items that a new subvolume or snapshot changes, without those of its quota groups.
const NEW_ITEMS: usize = 18;
/// Items that a deletion changes: of the directory its inode and two entries; two references and the root item; two UUIDs
/// and the mark.
const DELETION_ITEMS: usize = 9;
const _: () = assert!(DELETION_ITEMS <= RESCUE_ITEMS, "snapshots of a full pool can be deleted");

/// Location of a subvolume's name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Home {
    directory: InodeId,
    name: Vec<u8>,
}

/// A source of a snapshot that its holder has alone, and the right to change the target if that is another.
type Access<'s> = (RwLockWriteGuard<'s, WriteAccess>, Option<RwLockReadGuard<'s, WriteAccess>>);

/// Identity of a subvolume that is to be made.
pub(crate) struct NewSubvolume<'s> {
    /// Its id; `None` for the next one.
    pub(crate) id: Option<ReservedId>,
    /// Quota groups that it becomes part of.
    pub(crate) groups: &'s [QgroupId],
}

impl Subvolumes {
    pub(crate) fn create_subvolume(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        NewSubvolume { id, groups }: NewSubvolume<'_>,
    ) -> Result<RootId, FsError> {
        check_name(name)?;
        self.core.pool().check_quota_parents(groups)?;
        let groups = &self.core.pool().groups_of_new_subvolume(parent.tree, groups);
        let writing = self.core.writing()?;
        let options = &writing.options;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let _access = subvolume.begin_write()?;
        subvolume.require_name()?;
        let place = Place { tree: subvolume.tree(), directory: parent, name };
        let directory = self.core.directory(parent);
        let mut names = directory.names();
        self.directories.changeable_directory(parent, false)?;
        self.check_free(place)?;
        let inheritance = self.inheritance_of_subvolume(parent.tree, new)?;
        let id = self.id_of_new(id)?;
        let uuid = options.host.new_uuid();
        let index = self.directories.new_index(place.tree, parent, &mut names)?;
        self.core.change(Need::items(NEW_ITEMS + 2 * groups.len()), |edit| {
            let item = new_root_item(uuid, edit.generation(), edit.now, edit.editor.store().nodesize());
            let roots = Roots::of(&edit.editor);
            let tree = roots.create(id, 0, &item)?;
            roots.join_quota_groups(id, groups)?;
            let root = planned_root(id, new.uid, inheritance);
            let first = FirstName { parent: ObjectId::FIRST_FREE, name: PARENT, index: 0 };
            edit.insert_inode(&tree, &root, Some(first))?;
            edit.name_subvolume(place, id, 0, index)?;
            edit.add_uuid(UuidKind::Subvolume, uuid, id)
        })?;
        Ok(id)
    }

    fn inheritance_of_subvolume(&self, around: RootId, new: &NewInode<'_>) -> Result<Inheritance, FsError> {
        let mode = DIRECTORY | new.mode & PERMISSIONS & !new.umask;
        let mut inheritance =
            Inheritance { mode, gid: new.gid, flags: InodeFlags::empty(), xattrs: Vec::new() };
        if let Some(value) = self.items.xattr(InodeId::root_of(around), COMPRESSION)? {
            // What the kernel can't read it passes over as well.
            if let Some(flag) = compression_flag(&value).filter(|flag| *flag == InodeFlags::COMPRESS) {
                inheritance.flags = flag;
                inheritance.xattrs.push((COMPRESSION, value));
            }
        }
        Ok(inheritance)
    }

    pub(crate) fn snapshot(
        &self,
        source: RootId,
        parent: InodeId,
        name: &[u8],
        read_only: bool,
        NewSubvolume { id, groups }: NewSubvolume<'_>,
    ) -> Result<RootId, FsError> {
        check_name(name)?;
        self.core.pool().check_quota_parents(groups)?;
        let groups = &self.core.pool().groups_of_new_subvolume(parent.tree, groups);
        let write = self.core.writing()?;
        let origin = self.core.subvolume_state(source)?;
        let subvolume = self.core.subvolume_state(parent.tree)?;
        let place = Place { tree: subvolume.tree(), directory: parent, name };
        // Looked at again with the locks held; nothing is written back for a snapshot that can't be made.
        self.check_free(place)?;
        // Most is written back while others still write.
        self.data.write_back_all(Some(source))?;
        let access = begin_snapshot(&origin, &subvolume)?;
        let directory = self.core.directory(parent);
        self.data.write_back_rest(source)?;
        let mut names = directory.names();
        self.directories.changeable_directory(parent, false)?;
        self.check_free(place)?;
        let id = self.id_of_new(id)?;
        let uuid = write.options.host.new_uuid();
        let now = write.options.host.now().into();
        let index = self.directories.new_index(place.tree, parent, &mut names)?;
        // Room is checked like for any operation; it can't be held until this thread is alone in the transaction.
        drop(self.core.pool().join(Need::items(NEW_ITEMS + 2 * groups.len()))?);
        self.core.pool().exclusively(|editor| {
            let edit = Edit { editor: **editor, now, log_book: &self.core.log_book };
            let (_, before) = editor.store().root_item(source)?.ok_or(TreeError::NoTree(source))?;
            let item = snapshot_item(&before, uuid, edit.generation(), now, read_only);
            let made = {
                Roots::snapshot(editor, origin.tree(), id, &item, groups)
                    .and_then(|_| edit.name_snapshot(place, id, &item, index))
            };
            made.inspect_err(|error| editor.abort(error))
        })?;
        drop(names);
        drop(access);
        self.orphans.clean_snapshot(id, &write.orphans);
        self.core.pool().commit()?;
        Ok(id)
    }

    pub(crate) fn delete_subvolume(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        check_name(name)?;
        let tree = self.core.tree(parent.tree)?;
        let place = Place { tree: &tree, directory: parent, name };
        let entry = self.directories.slot(place)?.entry.ok_or_else(|| FsError::NotFound(name.to_vec()))?;
        match self.directories.child(place, entry)?.target {
            Target::Subvolume(id) => self.delete(id, false),
            Target::Inode | Target::Nothing => Err(FsError::NotASubvolume(name.to_vec())),
        }
    }

    pub(crate) fn delete_subvolume_by_id(&self, id: RootId) -> Result<(), FsError> {
        self.delete(id, false)
    }

    /// Deletes a subvolume unless it holds something.
    pub(crate) fn delete_subvolume_if_empty(&self, id: RootId) -> Result<(), FsError> {
        self.delete(id, true)
    }

    fn delete(&self, id: RootId, only_if_empty: bool) -> Result<(), FsError> {
        // What is kept in memory of its inodes must not be taken for that of another one.
        let writing = self.core.writing()?;
        self.look_up_next_id(&mut writing.next_subvolume.lock())?;
        if self.take_out(id, only_if_empty)? {
            for inode in self.core.inodes.of_subvolume(id) {
                self.data.forget_contents(&inode);
            }
        }
        Ok(())
    }

    /// Takes a subvolume's name away, and marks it as one that is to be dropped. Returns true if it is out of use by that: where
    /// files or directories of it are open, all of it stays usable until the last one is closed.
    fn take_out(&self, id: RootId, only_if_empty: bool) -> Result<bool, FsError> {
        // Nothing moves between directories meanwhile, and so the name stays where it is but for its own directory.
        let writing = self.core.writing()?;
        let renames = &writing.renames;
        let _renames = renames.lock();
        let home = self.home(id)?.ok_or(FsError::NoSubvolume(id))?;
        let (subvolume, above) =
            (self.core.subvolume_state(id)?, self.core.subvolume_state(home.directory.tree)?);
        let (_above_access, mut access);
        if home.directory.tree < id {
            (_above_access, access) = (above.begin_write()?, subvolume.exclusive());
        } else {
            access = subvolume.exclusive();
            _above_access = above.begin_write()?;
        }
        subvolume.require_name()?;
        subvolume.require_no_hold()?;
        let directory = self.core.directory(home.directory);
        let names = directory.names();
        // The lock of the directory is held: from here on the name stays.
        let home = self.home(id)?.ok_or(FsError::NoSubvolume(id))?;
        let place = Place { tree: above.tree(), directory: home.directory, name: &home.name };
        self.directories.changeable_directory(place.directory, true)?;
        self.check_deletable(id)?;
        if only_if_empty && !self.directories.is_empty_directory(InodeId::root_of(id))? {
            return Err(FsError::NotEmpty(InodeId::root_of(id)));
        }
        let index = self.directories.root_reference_place(place.directory.tree, id)?.index;
        self.core.change(Need::rescuing(DELETION_ITEMS), |edit| {
            edit.remove_entry(place, index)?;
            edit.directory(place.tree, place.directory.number, -directory_bytes(place.name))?;
            edit.remove_root_reference(place.directory.tree, id)?;
            edit.condemn(id)
        })?;
        // Those of the subvolume come before it, if it lies in a newer one.
        drop(names);
        subvolume.note_deleted();
        access.is_gone = !self.core.is_open(id);
        if access.is_gone {
            self.core.subvolumes.forget(id);
        }
        Ok(access.is_gone)
    }

    /// Refuses to delete the default subvolume, and one that holds others.
    fn check_deletable(&self, id: RootId) -> Result<(), FsError> {
        if !id.is_subvolume() || self.default_subvolume()? == id {
            return Err(FsError::DefaultSubvolume(id));
        }
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let mut cursor = self.core.pool().cursor(&root_tree, Readahead::None);
        cursor.seek(&Key::first_of(id.object_id(), KeyType::ROOT_REF))?;
        match cursor.key() {
            Some(key) if (key.objectid, key.item_type) == (id.object_id(), KeyType::ROOT_REF) => {
                Err(FsError::NestedSubvolume(id, RootId::new(key.offset())))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn set_default_subvolume(&self, id: RootId) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(id)?;
        let _access = subvolume.begin_upkeep()?;
        subvolume.require_name()?;
        let root_tree = self.core.pool().tree(RootId::ROOT_TREE)?;
        let key = Key::new(ObjectId::ROOT_TREE_DIR, KeyType::DIR_ITEM, name_hash(b"default"));
        let missing =
            || TreeError::item(RootId::ROOT_TREE, key, Defect::new("no default subvolume is set", 0));
        if self.core.pool().with_item(&root_tree, &key, |_| ())?.is_none() {
            return Err(missing().into());
        }
        self.core.change(Need::items(1), |edit| {
            edit.editor.update(&root_tree, &key, |data| {
                // The location stands first.
                if let Ok((location, _)) = Key::mut_from_prefix(data) {
                    *location = Key::new(id.object_id(), KeyType::ROOT_ITEM, u64::MAX);
                }
            })?;
            edit.editor.use_feature(Incompat::DEFAULT_SUBVOL);
            Ok(())
        })
    }

    pub(crate) fn set_subvolume_read_only(&self, id: RootId, read_only: bool) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        if read_only {
            self.data.write_back_all(Some(id))?;
        }
        let subvolume = self.core.subvolume_state(id)?;
        let mut access = subvolume.exclusive();
        subvolume.require_name()?;
        if access.is_read_only == read_only {
            return Ok(());
        }
        subvolume.require_no_hold()?;
        if read_only {
            self.data.write_back_rest(id)?;
        }
        self.core.change(Need::items(3), |edit| {
            let received = Roots::of(&edit.editor).change_item(id, |item| {
                item.flags.set(with_read_only(item.root_flags(), read_only).bits());
                let received = item.received_uuid;
                if !read_only {
                    forget_received(item);
                }
                received
            })?;
            match received {
                Some(received) if !read_only => edit.remove_uuid(UuidKind::Received, received, id),
                _ => Ok(()),
            }
        })?;
        access.is_read_only = read_only;
        Ok(())
    }

    /// Refuses a name that is taken, or has no room.
    fn check_free(&self, place: Place<'_>) -> Result<(), FsError> {
        let slot = self.directories.slot(place)?;
        if slot.entry.is_some() {
            return Err(FsError::Exists(place.name.to_vec()));
        }
        self.directories.check_room(place, &slot, 0)
    }

    pub(crate) fn reserve_id(&self) -> Result<ReservedId, FsError> {
        Ok(ReservedId(self.new_subvolume_id()?))
    }

    fn id_of_new(&self, reserved: Option<ReservedId>) -> Result<RootId, FsError> {
        reserved.map_or_else(|| self.new_subvolume_id(), |reserved| Ok(reserved.id()))
    }

    /// An id that no subvolume has, or ever had since the filesystem was opened.
    pub(crate) fn new_subvolume_id(&self) -> Result<RootId, FsError> {
        let writing = self.core.writing()?;
        let mut next = writing.next_subvolume.lock();
        let id = self.look_up_next_id(&mut next)?;
        if id > ObjectId::LAST_FREE.get() {
            return Err(TreeError::NoSpace("subvolume ids".to_owned()).into());
        }
        *next = Some(id + 1);
        Ok(RootId::new(id))
    }

    /// The id of the next subvolume: known from now on, whichever subvolumes go.
    fn look_up_next_id(&self, next: &mut Option<u64>) -> Result<u64, FsError> {
        if let Some(id) = *next {
            return Ok(id);
        }
        let pool = self.core.pool();
        let last = highest_number(pool, &pool.tree(RootId::ROOT_TREE)?)?;
        let last = last.max(pool.last_quota_owner().filter(|owner| owner.is_subvolume()).map(RootId::get));
        Ok(*next.insert(last.map_or(ObjectId::FIRST_FREE.get(), |last| last + 1)))
    }

    fn home(&self, id: RootId) -> Result<Option<Home>, FsError> {
        let found = self.directories.backref(id)?;
        Ok(found.map(|(tree, number, name)| Home { directory: InodeId { tree, number }, name }))
    }
}

/// The right to make a snapshot: nothing changes the source meanwhile, so that operations which take more than one
/// transaction are in it as a whole or not at all; and the target may be changed. By ascending id, each subvolume once:
/// a thread that held one twice would wait for itself.
fn begin_snapshot<'s>(source: &'s SubvolumeState, target: &'s SubvolumeState) -> Result<Access<'s>, FsError> {
    let access = match source.tree().id().cmp(&target.tree().id()) {
        Ordering::Less => {
            let source = source.exclusive_upkeep()?;
            (source, Some(target.begin_write()?))
        }
        Ordering::Equal => (target.exclusive_write()?, None),
        Ordering::Greater => {
            let target = target.begin_write()?;
            (source.exclusive_upkeep()?, Some(target))
        }
    };
    source.require_name()?;
    target.require_name()?;
    Ok(access)
}

impl Edit<'_> {
    /// Gives a snapshot its name, and its UUIDs. What fails here has been done in part.
    fn name_snapshot(
        &self,
        place: Place<'_>,
        id: RootId,
        item: &RootItem,
        index: u64,
    ) -> Result<(), TreeError> {
        self.name_subvolume(place, id, u64::MAX, index)?;
        self.add_uuid(UuidKind::Subvolume, item.uuid, id)?;
        self.add_uuid(UuidKind::Received, item.received_uuid, id)
    }

    /// Gives a subvolume its name. `offset` is that of the location in the entry.
    fn name_subvolume(&self, place: Place<'_>, id: RootId, offset: u64, index: u64) -> Result<(), TreeError> {
        let location = Key::new(id.object_id(), KeyType::ROOT_ITEM, offset);
        self.add_entry(place, index, Entry { location, kind: FileType::Directory })?;
        self.add_root_reference(place, id, index)?;
        self.directory(place.tree, place.directory.number, directory_bytes(place.name))
    }

    /// A subvolume has lost its name: what is left of it is to be dropped.
    fn condemn(&self, id: RootId) -> Result<(), TreeError> {
        let uuids = Roots::of(&self.editor).change_item(id, |item| {
            item.flags.set((item.root_flags() | RootFlags::DEAD).bits());
            item.refs.set(0);
            item.drop_progress = Key::MIN;
            item.drop_level = 0;
            (item.uuid, item.received_uuid)
        })?;
        let (uuid, received) = uuids.ok_or(TreeError::NoTree(id))?;
        self.remove_uuid(UuidKind::Subvolume, uuid, id)?;
        self.remove_uuid(UuidKind::Received, received, id)?;
        let root_tree = self.editor.store().tree(RootId::ROOT_TREE)?;
        self.add_orphan(&root_tree, id.object_id())
    }
}

/// The root directory of a new subvolume.
pub(crate) fn planned_root(id: RootId, uid: u32, inheritance: Inheritance) -> PlannedInode<'static> {
    let id = InodeId::root_of(id);
    PlannedInode { id, kind: FileType::Directory, uid, rdev: 0, target: None, inheritance }
}

/// The root item of a new subvolume, but for what its tree decides.
pub(crate) fn new_root_item(uuid: Uuid, generation: Generation, now: Timespec, nodesize: u32) -> RootItem {
    let mut item = RootItem::new_zeroed();
    // Nothing reads these but for the flag; they are what every root item has.
    item.inode.generation = Generation::new(1);
    item.inode.size.set(3);
    item.inode.nbytes.set(nodesize.into());
    item.inode.nlink.set(1);
    item.inode.mode.set(ROOT_MODE);
    item.inode.flags.set(InodeFlags::ROOT_ITEM_INIT.bits());
    item.root_dirid = ObjectId::FIRST_FREE;
    item.bytes_used.set(nodesize.into());
    item.refs.set(1);
    item.generation = generation;
    item.generation_v2 = generation;
    item.uuid = uuid;
    (item.ctransid, item.otransid) = (generation, generation);
    (item.ctime, item.otime) = (now, now);
    item
}

/// The root item of a snapshot, but for what its tree decides.
fn snapshot_item(
    source: &RootItem,
    uuid: Uuid,
    generation: Generation,
    now: Timespec,
    read_only: bool,
) -> RootItem {
    let mut item = source.clone();
    item.uuid = uuid;
    item.parent_uuid = source.uuid;
    item.otransid = generation;
    item.otime = now;
    item.refs.set(1);
    item.drop_progress = Key::MIN;
    item.drop_level = 0;
    item.flags.set(with_read_only(source.root_flags(), read_only).bits());
    // What is writable may become something else than what was received.
    if !read_only {
        forget_received(&mut item);
    }
    item
}

pub(crate) fn with_read_only(mut flags: RootFlags, read_only: bool) -> RootFlags {
    flags.set(RootFlags::RDONLY, read_only);
    flags
}

fn forget_received(item: &mut RootItem) {
    item.received_uuid = Uuid::NIL;
    (item.stransid, item.rtransid) = (Generation::new(0), Generation::new(0));
    (item.stime, item.rtime) = (Timestamp::default().into(), Timestamp::default().into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn time(seconds: i64) -> Timespec {
        Timestamp { seconds, nanoseconds: 0 }.into()
    }

    #[test]
    fn a_snapshot_knows_its_source_and_keeps_what_was_received_only_while_read_only() {
        let mut source = new_root_item(Uuid([1; 16]), Generation::new(7), time(1), 16384);
        source.received_uuid = Uuid([9; 16]);
        source.rtransid = Generation::new(6);
        source.flags.set(RootFlags::RDONLY.bits());
        let kept = snapshot_item(&source, Uuid([2; 16]), Generation::new(8), time(2), true);
        assert_eq!((kept.uuid, kept.parent_uuid), (Uuid([2; 16]), Uuid([1; 16])));
        assert_eq!((kept.received_uuid, kept.rtransid), (Uuid([9; 16]), Generation::new(6)));
        assert_eq!((kept.otransid, kept.ctransid), (Generation::new(8), Generation::new(7)));
        let writable = snapshot_item(&source, Uuid([2; 16]), Generation::new(8), time(2), false);
        assert!(writable.received_uuid.is_nil() && writable.root_flags().is_empty());
        assert_eq!((writable.otime, writable.ctime, writable.rtime), (time(2), time(1), time(0)));
    }

    #[test]
    fn a_new_subvolume_is_what_the_kernel_makes() {
        let item = new_root_item(Uuid([1; 16]), Generation::new(7), time(1), 16384);
        assert_eq!(item.inode.as_bytes()[..8], 1u64.to_le_bytes());
        assert_eq!((item.refs.get(), item.root_dirid, item.flags.get()), (1, ObjectId::FIRST_FREE, 0));
        assert_eq!(
            (item.otransid, item.ctransid, item.generation_v2.get()),
            (item.generation, item.generation, 7)
        );
    }
}
