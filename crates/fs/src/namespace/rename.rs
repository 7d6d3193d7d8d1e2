//! Names that change.
//!
//! Lookups take no lock but the trees', and see each edit by itself. So an entry that is replaced is changed by one edit,
//! and what moves has its new entry before it loses the old one: a name that is there before and after is there all the
//! time. For a moment two names may stand for one inode.

use super::RenameMode;
use super::inherit::inherit;
use super::unlink::Leaving;
use crate::attributes::InodeId;
use crate::core::edit::{Edit, NameForm, Place, directory_bytes};
use crate::core::inodes::{Inode, NameLocks, lock_names};
use crate::data::output::Cause;
use crate::directory::entry::{Child, NamePlace, Target, freed_entry_bytes, frozen_flags};
use crate::directory::name::check_name;
use crate::error::FsError;
use crate::namespace::Namespace;
use crate::new_inode::{FirstName, NewInode, PlannedInode};
use brindle_ondisk::item::FileType;
use brindle_ondisk::{KeyType, ObjectId};
use brindle_tree::{Need, TreeError};
use std::sync::Arc;

/// More directories than any path can name.
const DEPTH_MAX: usize = 1 << 16;

/// Type and permissions of a whiteout: a character device, whose number is 0.
const WHITEOUT_MODE: u32 = 0o020_000;

/// A rename whose locks are held.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    from: Place<'a>,
    to: Place<'a>,
    mode: RenameMode,
    source: &'a Child,
    target: Option<&'a Child>,
}

/// Something that gets another name.
#[derive(Clone, Copy, Debug)]
struct Move<'a> {
    child: &'a Child,
    from: Place<'a>,
    to: Place<'a>,
    old: NamePlace,
    new: NamePlace,
}

impl Namespace {
    pub(crate) fn rename(
        &self,
        from_parent: InodeId,
        from_name: &[u8],
        to_parent: InodeId,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<(), FsError> {
        check_name(from_name)?;
        check_name(to_name)?;
        let is_across = from_parent != to_parent;
        let writing = self.core.writing()?;
        let renames = &writing.renames;
        let _renames = is_across.then(|| renames.lock());
        let from_subvolume = self.core.subvolume_state(from_parent.tree)?;
        let to_subvolume = self.core.subvolume_state(to_parent.tree)?;
        let mut ordered = vec![&from_subvolume, &to_subvolume];
        ordered.sort_unstable_by_key(|subvolume| subvolume.tree().id());
        // Held twice by one thread it would wait for itself behind a writer.
        ordered.dedup_by_key(|subvolume| subvolume.tree().id());
        let access =
            ordered.iter().map(|subvolume| subvolume.begin_write()).collect::<Result<Vec<_>, _>>()?;
        let from = Place { tree: from_subvolume.tree(), directory: from_parent, name: from_name };
        let to = Place { tree: to_subvolume.tree(), directory: to_parent, name: to_name };
        let (from_directory, to_directory) =
            (self.core.directory(from_parent), self.core.directory(to_parent));
        let left = loop {
            let source =
                self.directories.slot(from)?.entry.ok_or_else(|| FsError::NotFound(from_name.to_vec()))?;
            let target = self.directories.slot(to)?.entry;
            let source_child = self.directories.child(from, source)?;
            let target_child = target.map(|entry| self.directories.child(to, entry)).transpose()?;
            if let Some(target) = &target_child {
                self.write_back_moved(&source_child, target, mode)?;
            }
            let mut inodes = vec![&from_directory, &to_directory, &source_child.inode];
            inodes.extend(target_child.as_ref().map(|child| &child.inode));
            let mut locks = lock_names(&inodes);
            // Before the locks were held the names may have come to stand for something else.
            if self.directories.slot(from)?.entry != Some(source)
                || self.directories.slot(to)?.entry != target
            {
                continue;
            }
            let (source, target) = (&source_child, target_child.as_ref());
            break self.rename_locked(Request { from, to, mode, source, target }, &mut locks)?;
        };
        drop(access);
        left.map_or(Ok(()), |inode| self.orphans.remove_unnamed(&inode))
    }

    /// Writes back the contents of what takes another's place: no commit may have the name without them, for then a
    /// crash would leave neither the old contents nor the new ones. An error leaves the names as they are.
    fn write_back_moved(&self, source: &Child, target: &Child, mode: RenameMode) -> Result<(), FsError> {
        match mode {
            mode if mode.keeps_target() => return Ok(()),
            RenameMode::Exchange => self.data.write_back_inode(&target.inode, Cause::Sync)?,
            _ => {}
        }
        self.data.write_back_inode(&source.inode, Cause::Sync)
    }

    /// Renames; the inode that has lost its last name by it, and has to go.
    fn rename_locked(
        &self,
        request: Request<'_>,
        locks: &mut NameLocks<'_>,
    ) -> Result<Option<Arc<Inode>>, FsError> {
        let Request { from, to, mode, source, target } = request;
        if mode.keeps_target() && target.is_some() {
            return Err(FsError::Exists(to.name.to_vec()));
        }
        // Two names of one inode: there is nothing to do, says POSIX.
        if target.is_some_and(|target| target.inode.id() == source.inode.id()) {
            return Ok(None);
        }
        self.check_rename(&request)?;
        match (mode, target) {
            (RenameMode::Exchange, None) => Err(FsError::NotFound(to.name.to_vec())),
            (RenameMode::Exchange, Some(target)) => {
                let there = self.plan_move(source, from, to, locks)?;
                let back = self.plan_move(target, to, from, locks)?;
                self.core.change(Need::items(24), |edit| {
                    edit.replace_entry(to, back.old.index, there.new.index, source.entry)?;
                    edit.replace_entry(from, there.old.index, back.new.index, target.entry)?;
                    edit.detach(&there)?;
                    edit.detach(&back)?;
                    edit.attach(&there)?;
                    edit.attach(&back)?;
                    edit.touch_both(from, to, 0, 0)
                })?;
                Ok(None)
            }
            _ => self.replace(&request, locks),
        }
    }

    /// Moves the source, in place of the target if there is one.
    fn replace(
        &self,
        request: &Request<'_>,
        locks: &mut NameLocks<'_>,
    ) -> Result<Option<Arc<Inode>>, FsError> {
        let &Request { from, to, mode, source, target } = request;
        let leaving = match target {
            Some(target) => Some(self.replaced(to, target, locks)?),
            None => None,
        };
        let there = self.plan_move(source, from, to, locks)?;
        let whiteout = match mode {
            RenameMode::Whiteout { uid, gid, .. } => Some(self.plan_whiteout(from, (uid, gid), locks)?),
            _ => None,
        };
        let removed = leaving.as_ref().map_or(0, |(leaving, _)| leaving.items());
        let left = whiteout.as_ref().map_or(0, |(planned, _)| planned.items());
        let freed_to = if target.is_some() { 0 } else { directory_bytes(to.name) };
        let freed_from = if whiteout.is_some() { 0 } else { -directory_bytes(from.name) };
        self.core.change(Need::items(18 + removed + left), |edit| {
            match &leaving {
                Some((leaving, _)) => {
                    edit.replace_entry(to, leaving.index(), there.new.index, source.entry)?;
                    edit.lose_inode_name(to, leaving)?;
                }
                None => edit.add_entry(to, there.new.index, source.entry)?,
            }
            match &whiteout {
                Some((planned, index)) => {
                    let first = FirstName { parent: from.directory.number, name: from.name, index: *index };
                    edit.insert_inode(from.tree, planned, Some(first))?;
                    edit.replace_entry(from, there.old.index, *index, planned.entry())?;
                }
                None => edit.remove_entry(from, there.old.index)?,
            }
            edit.detach(&there)?;
            edit.attach(&there)?;
            edit.touch_both(from, to, freed_from, freed_to)
        })?;
        let Some((leaving, inode)) = leaving else {
            return Ok(None);
        };
        let names = locks.of(inode.id());
        names.is_unnamed = leaving.is_last();
        Ok((names.opens == 0 && leaving.has_to_go()).then_some(inode))
    }

    /// Refuses what can't be renamed so.
    fn check_rename(&self, request: &Request<'_>) -> Result<(), FsError> {
        let &Request { from, to, mode, source, target } = request;
        self.directories.changeable_directory(from.directory, true)?;
        self.directories.changeable_directory(to.directory, target.is_some())?;
        let is_exchange = mode == RenameMode::Exchange;
        if from.directory != to.directory {
            self.check_not_below(to.directory, source)?;
            match target {
                Some(target) if is_exchange => self.check_not_below(from.directory, target)?,
                Some(target) if self.is_below(from.directory, target)? => {
                    return Err(FsError::NotEmpty(target.inode.id()));
                }
                _ => {}
            }
        }
        if let (Some(target), true) = (target, is_exchange) {
            self.check_moved(source, from, to, mode)?;
            return self.check_moved(target, to, from, mode);
        }
        let is_directory = |child: &Child| child.entry.kind == FileType::Directory;
        match target.map(|target| (is_directory(source), is_directory(target), target)) {
            Some((true, false, target)) => return Err(FsError::NotADirectory(target.inode.id())),
            Some((false, true, target)) => return Err(FsError::IsADirectory(target.inode.id())),
            Some((_, _, target)) if target.target == Target::Nothing => return Err(empty_place(target)),
            _ => {}
        }
        self.check_moved(source, from, to, mode)?;
        match target {
            // A subvolume is not replaced, be it empty or not.
            Some(target) if is_directory(target) && target.target != Target::Inode => {
                Err(FsError::NotEmpty(target.inode.id()))
            }
            Some(target)
                if is_directory(target) && !self.directories.is_empty_directory(target.inode.id())? =>
            {
                Err(FsError::NotEmpty(target.inode.id()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses to move what its flags protect, and inodes out of their subvolume.
    fn check_moved(
        &self,
        child: &Child,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        let id = child.inode.id();
        match child.target {
            // One that has lost its name holds no other.
            Target::Subvolume(_) => self.core.subvolume_state(to.directory.tree)?.require_name(),
            _ if from.directory.tree != to.directory.tree => Err(FsError::CrossSubvolume(id)),
            Target::Nothing if mode == RenameMode::Exchange => Err(empty_place(child)),
            Target::Nothing => Err(FsError::NotEmpty(id)),
            Target::Inode => frozen_flags(&self.items.attributes(id)?),
        }
    }

    /// Refuses to move a directory to a place that is below it.
    fn check_not_below(&self, place: InodeId, moved: &Child) -> Result<(), FsError> {
        if self.is_below(place, moved)? {
            return Err(FsError::Invalid { file: place, why: "a directory can't move below itself" });
        }
        Ok(())
    }

    /// Returns true if a directory is another one, or below it.
    fn is_below(&self, directory: InodeId, above: &Child) -> Result<bool, FsError> {
        if above.entry.kind != FileType::Directory {
            return Ok(false);
        }
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if at == above.inode.id() {
                return Ok(true);
            }
            match self.directories.parent_directory(at)? {
                Some(parent) if parent != at => at = parent,
                _ => return Ok(false),
            }
        }
        Err(FsError::SubvolumeLoop(directory.tree))
    }

    /// Change of the inode that has the new name.
    fn replaced<'t>(
        &self,
        place: Place<'_>,
        target: &'t Child,
        locks: &mut NameLocks<'_>,
    ) -> Result<(Leaving<'t>, Arc<Inode>), FsError> {
        let id = target.inode.id();
        let before = self.items.attributes(id)?;
        let leaving = self.leaving(place, &before, &target.inode, locks.of(id).opens)?;
        Ok((leaving, Arc::clone(&target.inode)))
    }

    /// Finds where the pieces of a name are, and where the new ones go.
    fn plan_move<'a>(
        &self,
        child: &'a Child,
        from: Place<'a>,
        to: Place<'a>,
        locks: &mut NameLocks<'_>,
    ) -> Result<Move<'a>, FsError> {
        let slot = self.directories.slot(to)?;
        let freed = if slot.entry.is_some() { freed_entry_bytes(to.name) } else { 0 };
        self.directories.check_room(to, &slot, freed)?;
        let (old, form) = match child.subvolume() {
            Some(below) => {
                (self.directories.root_reference_place(from.directory.tree, below)?, NameForm::Ref)
            }
            None => {
                let number = child.inode.id().number;
                let old = self.directories.name_place(from, number)?;
                let is_beside = from.directory == to.directory && old.form == NameForm::Ref;
                (old, self.directories.new_name_form(to, number, is_beside.then_some(from.name))?)
            }
        };
        let index = self.directories.new_index(to.tree, to.directory, locks.of(to.directory))?;
        Ok(Move { child, from, to, old, new: NamePlace { index, form } })
    }

    /// Change of the old name: a whiteout or nothing.
    fn plan_whiteout(
        &self,
        from: Place<'_>,
        (uid, gid): (u32, u32),
        locks: &mut NameLocks<'_>,
    ) -> Result<(PlannedInode<'static>, u64), FsError> {
        let subvolume = self.core.subvolume_state(from.directory.tree)?;
        let above = self.items.attributes(from.directory)?;
        let inherited = self.inherited(from.directory, locks.of(from.directory))?;
        let new = NewInode { mode: WHITEOUT_MODE, uid, gid, ..NewInode::default() };
        let inheritance =
            inherit(&new, FileType::CharDevice, &above, &inherited, &self.core.writing()?.options);
        let id = InodeId { tree: from.directory.tree, number: subvolume.new_number(self.core.pool())? };
        let planned =
            PlannedInode { id, kind: FileType::CharDevice, uid, rdev: 0, target: None, inheritance };
        Ok((planned, self.directories.new_index(from.tree, from.directory, locks.of(from.directory))?))
    }
}

fn empty_place(child: &Child) -> FsError {
    let why = "it stands for a subvolume that the snapshot does not have";
    FsError::NotPermitted { file: child.inode.id(), why }
}

impl Edit<'_> {
    /// Takes the name away that something has in the directory that it leaves. The entry there is another matter.
    fn detach(&self, moved: &Move<'_>) -> Result<(), TreeError> {
        match moved.child.subvolume() {
            Some(below) => self.remove_root_reference(moved.from.directory.tree, below),
            None => self.remove_name(moved.from, moved.number(), moved.old.form),
        }
    }

    /// Gives it the name that it has in the one that it comes to.
    fn attach(&self, moved: &Move<'_>) -> Result<(), TreeError> {
        match moved.child.subvolume() {
            Some(below) => self.add_root_reference(moved.to, below, moved.new.index),
            None => {
                if moved.child.entry.kind == FileType::Directory {
                    self.note_moved(moved.child.inode.id());
                }
                self.add_name(moved.to, moved.number(), moved.new.index, moved.new.form)?;
                self.inode(moved.to.tree, moved.number(), |item| item.ctime = self.now)
            }
        }
    }

    /// Both directories have changed.
    fn touch_both(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        from_grown: i64,
        to_grown: i64,
    ) -> Result<(), TreeError> {
        if from.directory == to.directory {
            return self.directory(from.tree, from.directory.number, from_grown + to_grown);
        }
        self.directory(from.tree, from.directory.number, from_grown)?;
        self.directory(to.tree, to.directory.number, to_grown)
    }
}

impl Move<'_> {
    fn number(&self) -> ObjectId {
        debug_assert_eq!(self.child.entry.location.item_type, KeyType::INODE_ITEM);
        self.child.inode.id().number
    }
}
