//! Races, as the model has them: one act after the other.

use super::act::{ACL, ACL_MODE, Act, Answer, Seen, acl};
use super::world::{HELD, TEMPORARY};
use brindle_testing::model::{Body, Errno, Identity, Model, TreePath, XattrRule, path};
use brindle_testing::operations::Operation;
use std::collections::HashMap;

/// A model, with the inodes that acts are about.
#[derive(Clone)]
pub(super) struct Modelled {
    pub(super) model: Model,
    /// Inodes by the paths that they had before the race.
    known: HashMap<TreePath, Identity>,
    /// The paths of the files that are open all the time.
    held: Vec<TreePath>,
    /// The file that was made without a name has got one, which it may have lost.
    was_named: bool,
}

impl Modelled {
    /// The model before a race.
    pub(super) fn new(mut model: Model, held: Vec<TreePath>) -> Self {
        let known = model
            .walk()
            .into_iter()
            .filter_map(|found| Some((found.path.clone(), model.identity(&found.path).ok()?)));
        let known = known.collect();
        // The model keeps what is open by a name that is no part of the race.
        for (number, held) in held.iter().enumerate() {
            model.link(held, &path(&format!("{HELD}{number}"))).expect("the name is free");
        }
        Self { model, known, held, was_named: false }
    }

    /// The model after the race, with all files closed.
    pub(super) fn ended(mut self) -> Model {
        for subvolume in [TreePath::top(), path("s")] {
            if let Ok(is_read_only) = self.model.is_read_only(&subvolume) {
                self.model.set_read_only(&subvolume, false).expect("it is there");
                let held = (0..self.held.len()).map(|number| format!("{HELD}{number}"));
                for name in held.chain([TEMPORARY.to_owned()]) {
                    let _ = self.model.unlink(&subvolume.join(name.as_bytes()));
                }
                self.model.set_read_only(&subvolume, is_read_only).expect("it is there");
            }
        }
        self.model
    }

    /// Does an act.
    pub(super) fn act(&mut self, act: &Act) -> Answer {
        if let Some(written) = act.written() {
            if self.model.is_read_only(&self.now(&written)?)? {
                return Err(Errno::ReadOnly);
            }
        }
        match act {
            Act::Do(operation) => self.operation(operation),
            Act::CreateOpen(path) => self.create_open(path),
            Act::LinkUnnamed(to) => {
                let (to, temporary) = (self.placed(to)?, path(TEMPORARY));
                if self.was_named && self.model.inode(&temporary)?.nlink == 1 {
                    return Err(Errno::NotFound);
                }
                self.model.link(&temporary, &to)?;
                self.was_named = true;
                Ok(Seen::Nothing)
            }
            Act::Lookup(path) => {
                let path = self.placed(path)?;
                Ok(Seen::There(self.model.is_there(&path)))
            }
            Act::Stat(path) => self.stat(path),
            Act::List(path) => self.list(path),
            Act::Read(path) => Ok(Seen::Bytes(self.model.contents(&self.now(path)?)?)),
            Act::GetXattr(path, name) => {
                let xattrs = &self.model.inode(&self.now(path)?)?.xattrs;
                xattrs.get(*name).map(|value| Seen::Bytes(value.clone())).ok_or(Errno::NoData)
            }
            Act::OpenClose(path) | Act::SetFlags(path) => self.now(path).map(|_| Seen::Nothing),
            Act::SetAcl(path) => {
                let path = self.now(path)?;
                self.model.set_xattr(&path, ACL, &acl(ACL_MODE), XattrRule::Any)?;
                self.model.set_mode(&path, ACL_MODE).map(nothing)
            }
            Act::SetReadOnly(path, is_read_only) => {
                let path = self.now(path)?;
                self.model.set_read_only(&path, *is_read_only).map(nothing)
            }
            Act::Commit
            | Act::Sync
            | Act::Background
            | Act::Relocate
            | Act::Defragment
            | Act::SnapshotOutside => Ok(Seen::Nothing),
        }
    }

    /// Does an act, and returns true if it may be answered so. What has gone from a read-only subvolume may be refused for
    /// either reason.
    pub(super) fn allows(&mut self, act: &Act, answer: &Answer) -> bool {
        let own = self.act(act);
        let is_either = |answer: &Answer| matches!(answer, Err(Errno::NotFound | Errno::ReadOnly));
        own == *answer
            || is_either(&own) && is_either(answer) && self.model.is_read_only(&TreePath::top()) == Ok(true)
    }

    /// Present path of an inode that had this path before the race.
    fn now(&self, path: &TreePath) -> Result<TreePath, Errno> {
        let identity = *self.known.get(path).ok_or(Errno::NotFound)?;
        self.model.path_of(identity).ok_or(Errno::NotFound)
    }

    /// Present path of a name in a directory that had this path before the race.
    fn placed(&self, path: &TreePath) -> Result<TreePath, Errno> {
        let (directory, name) = path.split().ok_or(Errno::Invalid)?;
        Ok(self.now(&directory)?.join(name))
    }

    fn operation(&mut self, operation: &Operation) -> Answer {
        let mut now = operation.clone();
        match &mut now {
            Operation::Create { path, .. }
            | Operation::MakeDirectory { path, .. }
            | Operation::Symlink { path, .. }
            | Operation::MakeNode { path, .. }
            | Operation::Unlink { path }
            | Operation::RemoveDirectory { path }
            | Operation::CreateSubvolume { path }
            | Operation::DeleteSubvolume { path } => *path = self.placed(path)?,
            Operation::Link { existing, path } | Operation::Snapshot { source: existing, path, .. } => {
                (*existing, *path) = (self.now(existing)?, self.placed(path)?);
                self.check_named(existing, operation)?;
            }
            Operation::Rename { from, to, .. } => (*from, *to) = (self.placed(from)?, self.placed(to)?),
            Operation::CloneRange { from, to, .. } => (*from, *to) = (self.now(from)?, self.now(to)?),
            Operation::Write { path, .. }
            | Operation::Truncate { path, .. }
            | Operation::Allocate { path, .. }
            | Operation::PunchHole { path, .. }
            | Operation::ZeroRange { path, .. }
            | Operation::SetMode { path, .. }
            | Operation::SetOwner { path, .. }
            | Operation::SetTimes { path, .. }
            | Operation::SetXattr { path, .. }
            | Operation::RemoveXattr { path, .. }
            | Operation::SyncFile { path } => *path = self.now(path)?,
            Operation::Sync | Operation::Remount => {}
        }
        self.model.apply(&now)?;
        // A list and the permissions say the same.
        if let Operation::SetMode { path, mode } = &now
            && self.model.inode(path)?.xattrs.contains_key(ACL)
        {
            self.model.set_xattr(path, ACL, &acl(*mode), XattrRule::Any)?;
        }
        Ok(Seen::Nothing)
    }

    /// Refuses a new name for a file that is only open.
    fn check_named(&self, existing: &TreePath, operation: &Operation) -> Result<(), Errno> {
        let is_only_open = matches!(operation, Operation::Link { .. })
            && existing.bytes().starts_with(HELD.as_bytes())
            && self.model.inode(existing)?.nlink == 1;
        if is_only_open { Err(Errno::NotFound) } else { Ok(()) }
    }

    fn create_open(&mut self, path: &TreePath) -> Answer {
        let path = self.placed(path)?;
        self.model.create(&path, 0o600)?;
        self.model.write(&path, 0, super::world::NEW_CONTENTS).map(nothing)
    }

    fn stat(&self, of: &TreePath) -> Answer {
        let at = self.now(of)?;
        let inode = self.model.inode(&at)?;
        let is_held = self.held.iter().any(|held| self.known.get(held) == self.known.get(of));
        let names = self.model.inode(&at).map(|inode| match &inode.body {
            Body::Directory(children) => {
                let hidden = |name: &&Vec<u8>| is_hidden(name);
                children.keys().filter(hidden).map(|name| 2 * name.len() as u64).sum()
            }
            _ => 0,
        })?;
        Ok(Seen::Stat {
            mode: inode.mode,
            owner: (inode.uid, inode.gid),
            nlink: inode.nlink - u32::from(is_held),
            size: inode.size() - names,
        })
    }

    fn list(&self, of: &TreePath) -> Answer {
        match &self.model.inode(&self.now(of)?)?.body {
            Body::Directory(children) => {
                Ok(Seen::Names(children.keys().filter(|name| !is_hidden(name)).cloned().collect()))
            }
            _ => Err(Errno::NotDirectory),
        }
    }
}

/// Returns true if a name exists in the model only.
fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(HELD.as_bytes()) || name == TEMPORARY.as_bytes()
}

fn nothing((): ()) -> Seen {
    Seen::Nothing
}
