//! Names on their way from those of the parent to those of the subvolume that is sent.
//!
//! The receiver has the names of the parent, and each command leaves it in some state between. Each inode has its *turn*, by
//! ascending number; what it can't wait for is done before. A directory is *settled* once its whole path is the one that is sent:
//! it stays, so paths of settled directories never change again. To [settle](Names::settle) a directory is to settle the one above, and then
//! to make it, or to move it from where it is. That move never leads into itself: the directory above is settled, and so are all
//! above that, and this one is not.
//!
//! A name that is wanted may be taken by something that has it in the parent alone. It is [evicted](Names::evict): a file that is deleted
//! loses that name; anything else is renamed into the root, to an *orphan name* (`o257-7-0`: number, generation, and a number that makes
//! it free). Directories that are deleted wait for the end, when everything has left them, and go deepest first.
//!
//! State: [`Names::early`], directories that were made or moved before their turn; [`Names::orphans`] and `evicted_files`, inodes that
//! have an orphan name; `gone`, names of the parent that went before the turn of their inode. All of that goes with the difference,
//! and nothing of it is there for a subvolume without parent.

use crate::send::error::SendError;
use crate::send::output::Output;
use crate::send::view::{Inode, Place, View};
use brindle_ondisk::item::FileType;
use brindle_ondisk::{IdMap, ObjectId};
use brindle_stream::Command;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Number of paths that are remembered.
const PATHS_MAX: usize = 1 << 16;
const ROOT: ObjectId = ObjectId::FIRST_FREE;

/// Names of the receiver, on their way.
pub(super) struct Names<'s> {
    pub(super) new: &'s View<'s>,
    pub(super) old: Option<&'s View<'s>>,
    /// Inodes up to this one have had their turn, as far as names of the parent go.
    finished_old: ObjectId,
    /// The same, as far as their new names go.
    finished_new: ObjectId,
    /// Directories that were made or moved before their turn.
    early: HashSet<ObjectId>,
    /// Directories of the parent that have an orphan name.
    orphans: IdMap<ObjectId, Vec<u8>>,
    /// Orphan names of files.
    evicted_files: IdMap<ObjectId, Vec<Vec<u8>>>,
    /// All orphan names that were ever used.
    orphan_names: HashSet<Vec<u8>>,
    /// Names of the parent that went before the turn of their inode.
    gone: HashSet<Place>,
    /// Paths of settled directories.
    settled: HashMap<ObjectId, Vec<u8>>,
    /// Directories that are deleted.
    deleted: Vec<ObjectId>,
    /// Directories whose times are to be set.
    pub(super) touched: BTreeSet<ObjectId>,
}

/// A name that an inode still has, and is to lose.
enum Spare {
    /// Of the parent.
    Old(Place),
    Orphan(Vec<u8>),
}

impl<'s> Names<'s> {
    pub(super) fn new(new: &'s View<'s>, old: Option<&'s View<'s>>) -> Self {
        Self {
            new,
            old,
            finished_old: ObjectId::new(0),
            finished_new: ObjectId::new(0),
            early: HashSet::new(),
            orphans: IdMap::default(),
            evicted_files: IdMap::default(),
            orphan_names: HashSet::new(),
            gone: HashSet::new(),
            settled: HashMap::new(),
            deleted: Vec::new(),
            touched: BTreeSet::new(),
        }
    }

    fn old_inode(&self, number: ObjectId) -> Result<Option<Inode>, SendError> {
        self.old.map_or(Ok(None), |old| old.inode(number))
    }

    /// Returns true if an inode of the parent goes on in the subvolume.
    pub(super) fn is_kept(&self, number: ObjectId) -> Result<bool, SendError> {
        let (Some(old), Some(before), Some(after)) =
            (self.old, self.old_inode(number)?, self.new.inode(number)?)
        else {
            return Ok(false);
        };
        if number == ROOT {
            return Ok(true);
        }
        if before.kind != after.kind || before.item.generation != after.item.generation {
            return Ok(false);
        }
        // No command changes these.
        Ok(match after.kind {
            FileType::CharDevice | FileType::BlockDevice => before.item.rdev == after.item.rdev,
            FileType::Symlink => {
                let target = |view: &View<'_>| view.pieces(number, 0..u64::MAX)?.next();
                target(old)? == target(self.new)?
            }
            _ => true,
        })
    }

    /// Returns true if a name of the parent is the same in the subvolume, given that both have its bytes.
    fn is_same_parent(&self, place: &Place) -> Result<bool, SendError> {
        self.is_kept(place.parent)
    }

    /// Returns true if a directory that is kept lies elsewhere than in the parent.
    fn is_moved(&self, old: &View<'_>, directory: ObjectId) -> Result<bool, SendError> {
        if directory == ROOT {
            return Ok(false);
        }
        let (before, after) = (old.place(directory)?, self.new.place(directory)?);
        Ok(before != after || !self.is_same_parent(&after)?)
    }

    /// Returns true if a directory of the subvolume has been made or moved.
    fn is_done(&self, directory: ObjectId) -> bool {
        directory <= self.finished_new || self.early.contains(&directory)
    }

    /// The path of a directory of the subvolume, after all above it, and itself, are where they are sent to.
    pub(super) fn settle(&mut self, directory: ObjectId, out: &mut Output<'_>) -> Result<Vec<u8>, SendError> {
        let (mut chain, mut at) = (Vec::new(), directory);
        let mut path = loop {
            if at == ROOT {
                break Vec::new();
            }
            if let Some(path) = self.settled.get(&at) {
                break path.clone();
            }
            let place = self.new.place(at)?;
            let parent = place.parent;
            chain.push((at, place));
            at = parent;
            self.new.check_depth(at, chain.len())?;
        };
        for (directory, place) in chain.into_iter().rev() {
            path = join(&path, &place.name);
            if !self.is_done(directory) {
                self.bring(directory, &place, &path, out)?;
            }
            if self.settled.len() >= PATHS_MAX {
                self.settled.clear();
            }
            self.settled.insert(directory, path.clone());
        }
        Ok(path)
    }

    /// The path of a file that has had its turn, or needs none.
    pub(super) fn settled_path(
        &mut self,
        file: ObjectId,
        out: &mut Output<'_>,
    ) -> Result<Option<Vec<u8>>, SendError> {
        let Some(place) = self.new.names(file)?.into_iter().next() else { return Ok(None) };
        Ok(Some(join(&self.settle(place.parent, out)?, &place.name)))
    }

    /// Makes a directory, or moves it, into a settled one.
    fn bring(
        &mut self,
        directory: ObjectId,
        place: &Place,
        path: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(), SendError> {
        match self.old {
            Some(old) if self.is_kept(directory)? => {
                if !self.is_moved(old, directory)? {
                    return Ok(());
                }
                self.touch_old(old.place(directory)?.parent)?;
                self.evict(place, out)?;
                // Only now: what was evicted may be above it.
                let from = self.old_path(old, directory)?;
                out.write(&Command::Rename { path: &from, to: path })?;
                self.orphans.remove(&directory);
            }
            _ => {
                self.evict(place, out)?;
                out.write(&Command::MakeDirectory { path, inode: directory.get() })?;
            }
        }
        self.early.insert(directory);
        self.touched.extend([directory, place.parent]);
        Ok(())
    }

    /// The present path of a directory of the parent.
    fn old_path(&self, old: &View<'_>, directory: ObjectId) -> Result<Vec<u8>, SendError> {
        let (mut parts, mut at) = (Vec::new(), directory);
        while at != ROOT {
            if let Some(orphan) = self.orphans.get(&at) {
                parts.push(orphan.clone());
                break;
            }
            if self.is_done(at) && self.is_kept(at)? && self.is_moved(old, at)? {
                // It is settled, and so is all above it.
                parts.extend(self.new.path(at)?);
                break;
            }
            let place = old.place(at)?;
            parts.push(place.name);
            at = place.parent;
            old.check_depth(at, parts.len())?;
        }
        parts.reverse();
        Ok(parts.join(&b'/'))
    }

    /// The present path of a name of the parent.
    fn old_name(&self, old: &View<'_>, place: &Place) -> Result<Vec<u8>, SendError> {
        Ok(join(&self.old_path(old, place.parent)?, &place.name))
    }

    /// Notes that a directory of the parent has changed, if it is kept.
    fn touch_old(&mut self, directory: ObjectId) -> Result<(), SendError> {
        if self.is_kept(directory)? {
            self.touched.insert(directory);
        }
        Ok(())
    }

    /// Makes a name free in a settled directory.
    fn evict(&mut self, place: &Place, out: &mut Output<'_>) -> Result<(), SendError> {
        let Some(old) = self.old else { return Ok(()) };
        if !self.is_kept(place.parent)? || self.gone.contains(place) {
            return Ok(());
        }
        let Some(holder) = old.entry(place.parent, &place.name)? else { return Ok(()) };
        let Some(inode) = old.inode(holder)? else { return Ok(()) };
        let is_kept = self.is_kept(holder)?;
        let is_directory = inode.kind == FileType::Directory;
        let has_left = match is_directory {
            true if self.orphans.contains_key(&holder) => true,
            true => is_kept && self.is_done(holder),
            false => holder <= self.finished_old,
        };
        if has_left {
            return Ok(());
        }
        if is_directory && is_kept && !self.is_moved(old, holder)? {
            return Err(self.new.corrupt(holder, "shares its name with another inode"));
        }
        let from = self.old_name(old, place)?;
        self.touched.insert(place.parent);
        if !is_directory {
            self.gone.insert(place.clone());
        }
        if !is_directory && !is_kept {
            return out.write(&Command::Unlink { path: &from });
        }
        let orphan = self.orphan_name(old, holder, inode.item.generation.get())?;
        out.write(&Command::Rename { path: &from, to: &orphan })?;
        self.touched.insert(ROOT);
        if is_directory {
            self.orphans.insert(holder, orphan);
        } else {
            self.evicted_files.entry(holder).or_default().push(orphan);
        }
        Ok(())
    }

    /// A name in the root that neither subvolume has.
    fn orphan_name(
        &mut self,
        old: &View<'_>,
        number: ObjectId,
        generation: u64,
    ) -> Result<Vec<u8>, SendError> {
        let mut count = 0u64;
        loop {
            let name = format!("o{number}-{generation}-{count}").into_bytes();
            let is_taken = old.entry(ROOT, &name)?.is_some() || self.new.entry(ROOT, &name)?.is_some();
            if !is_taken && self.orphan_names.insert(name.clone()) {
                return Ok(name);
            }
            count += 1;
        }
    }

    /// The turn of an inode. Returns a path of it, if the subvolume has it.
    pub(super) fn turn(
        &mut self,
        number: ObjectId,
        out: &mut Output<'_>,
    ) -> Result<Option<Vec<u8>>, SendError> {
        if !self.is_kept(number)? {
            self.remove_old(number, out)?;
        }
        let path = match self.new.inode(number)? {
            None => None,
            Some(inode) if inode.kind == FileType::Directory => Some(self.settle(number, out)?),
            Some(inode) => self.bring_file(number, &inode, out)?,
        };
        (self.finished_old, self.finished_new) = (number, number);
        self.early.remove(&number);
        Ok(path)
    }

    /// Removes an inode of the parent that is not kept.
    fn remove_old(&mut self, number: ObjectId, out: &mut Output<'_>) -> Result<(), SendError> {
        if let Some((old, inode)) = self.old.zip(self.old_inode(number)?) {
            if inode.kind == FileType::Directory {
                self.deleted.push(number);
                return Ok(());
            }
            for place in old.names(number)? {
                if !self.gone.remove(&place) {
                    out.write(&Command::Unlink { path: &self.old_name(old, &place)? })?;
                    self.touch_old(place.parent)?;
                }
            }
        }
        self.finished_old = number;
        Ok(())
    }

    /// Gives a file its names. Returns one of them.
    fn bring_file(
        &mut self,
        number: ObjectId,
        inode: &Inode,
        out: &mut Output<'_>,
    ) -> Result<Option<Vec<u8>>, SendError> {
        let mut wanted = self.new.names(number)?;
        let (mut spare, mut path) = (Vec::new(), None);
        if let Some(old) = self.old.filter(|_| !wanted.is_empty()) {
            if self.is_kept(number)? {
                for place in old.names(number)? {
                    let same = wanted.iter().position(|name| *name == place);
                    match same {
                        Some(at) if self.is_same_parent(&place)? => {
                            wanted.remove(at);
                            // Others may move on above it, but nothing takes this name.
                            let parent = self.settle(place.parent, out)?;
                            path.get_or_insert(join(&parent, &place.name));
                        }
                        _ if self.gone.remove(&place) => {}
                        _ => spare.push(Spare::Old(place)),
                    }
                }
                let evicted = self.evicted_files.remove(&number).unwrap_or_default();
                spare.extend(evicted.into_iter().map(Spare::Orphan));
            }
        }
        for place in wanted {
            let parent = self.settle(place.parent, out)?;
            let target = join(&parent, &place.name);
            self.evict(&place, out)?;
            self.touched.insert(place.parent);
            match (spare.pop(), &path) {
                (Some(spare), _) => {
                    let from = self.spare_path(spare)?;
                    out.write(&Command::Rename { path: &from, to: &target })?;
                }
                (None, Some(existing)) => out.write(&Command::Link { path: &target, target: existing })?,
                (None, None) => self.make(number, inode, &target, out)?,
            }
            path.get_or_insert(target);
        }
        for spare in spare {
            let from = self.spare_path(spare)?;
            out.write(&Command::Unlink { path: &from })?;
        }
        Ok(path)
    }

    /// The present path of a name that goes, with its directory noted as changed.
    fn spare_path(&mut self, spare: Spare) -> Result<Vec<u8>, SendError> {
        match (spare, self.old) {
            (Spare::Old(place), Some(old)) => {
                self.touch_old(place.parent)?;
                self.old_name(old, &place)
            }
            (Spare::Old(place), None) => Err(self.new.corrupt(place.parent, "is of no parent")),
            (Spare::Orphan(name), _) => Ok(name),
        }
    }

    fn make(
        &self,
        number: ObjectId,
        inode: &Inode,
        path: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(), SendError> {
        let (mode, device) = (inode.item.mode.get().into(), device_of(inode));
        let target;
        let inode_number = number.get();
        out.write(&match inode.kind {
            FileType::Symlink => {
                target = self.new.link_target(number)?;
                Command::Symlink { path, inode: inode_number, target: &target }
            }
            FileType::CharDevice | FileType::BlockDevice => {
                Command::MakeNode { path, inode: inode_number, mode, device }
            }
            FileType::Fifo => Command::MakeFifo { path, inode: inode_number, mode, device },
            FileType::Socket => Command::MakeSocket { path, inode: inode_number, mode, device },
            _ => Command::MakeFile { path, inode: inode_number },
        })
    }

    /// Removes the directories that are deleted: everything has left them. No inode has a turn after this.
    pub(super) fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SendError> {
        let Some(old) = self.old else { return Ok(()) };
        let mut deepest_first = Vec::with_capacity(self.deleted.len());
        for directory in std::mem::take(&mut self.deleted) {
            let depth = old.path(directory)?.map_or(0, |path| path.split(|byte| *byte == b'/').count());
            deepest_first.push((std::cmp::Reverse(depth), directory));
        }
        deepest_first.sort_unstable();
        for (_, directory) in deepest_first {
            out.write(&Command::RemoveDirectory { path: &self.old_path(old, directory)? })?;
            self.touch_old(old.place(directory)?.parent)?;
        }
        Ok(())
    }
}

/// The device number as the stream has it: as in memory of Linux.
fn device_of(inode: &Inode) -> u64 {
    let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX);
    let rdev = inode.item.rdev.get();
    rustix::fs::makedev(low(rdev >> 20), low(rdev & 0xf_ffff))
}

pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}
