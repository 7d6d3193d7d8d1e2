//! The command before, which waits for the next one: the two may be done as one.
//!
//! A sender makes each inode under a name of its own and renames it at once; then it sets owner, mode and times, one by one. Done as they
//! come, a small file costs five changes of the tree; made under its last name, with all attributes set at once, two.
//!
//! **Invariant.** After each command that did not join the one before, the subvolume is as if every command before it had been carried
//! out when it came.

use super::error::{CommandError, ReceiveProblem};
use super::names::{narrow, time};
use super::path::{Found, split};
use super::subvolume::{Incoming, Opened};
use brindle_fs::{AttributeChange, FileType, InodeId, NewInode, NewTime};
use brindle_stream::{Command, CommandNumber, Placed};
use std::collections::HashMap;

const PERMISSIONS: u32 = 0o7777;
const SET_GROUP_ID: u32 = 0o2000;
/// Directories of which is remembered whether they pass on anything.
const REMEMBERED_MAX: usize = 1000;

/// A command that waits.
#[derive(Debug)]
pub(super) struct Pending {
    offset: u64,
    number: CommandNumber,
    path: Vec<u8>,
    change: Change,
}

/// The kinds of commands that wait.
#[derive(Debug)]
pub(super) enum Change {
    Make(Made),
    Set(InodeId, AttributeChange),
}

/// An inode to be made.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    /// Type and permissions.
    pub(super) mode: u32,
    /// Number of a device, as on disk.
    pub(super) rdev: u64,
    /// Target of a symbolic link.
    pub(super) target: Option<Vec<u8>>,
}

impl Made {
    fn as_new(&self) -> NewInode<'_> {
        NewInode { mode: self.mode, rdev: self.rdev, target: self.target.as_deref(), ..Default::default() }
    }
}

/// Directories that were looked at: true for those that pass nothing on to what is made in them.
#[derive(Debug, Default)]
pub(super) struct PlainDirectories(HashMap<InodeId, bool>);

impl PlainDirectories {
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Incoming<'_> {
    /// Keeps a command until the next one comes. Returns false for one that is not to wait.
    pub(super) fn keep(&mut self, placed: &Placed<'_>) -> Result<bool, ReceiveProblem> {
        let command = &placed.command;
        let change = match (Self::made(command)?, Self::attributes(command)?) {
            (Some(made), _) => Change::Make(made),
            (None, Some((path, change))) => {
                let Found { id, kind } = self.find(path)?;
                let passes_on = change.mode.is_some() || change.gid.is_some();
                if kind == FileType::Directory && passes_on {
                    self.plain.forget();
                }
                Change::Set(id, change)
            }
            (None, None) => return Ok(false),
        };
        let path = command.path().unwrap_or_default().to_vec();
        self.pending = Some(Pending { offset: placed.offset, number: command.number(), path, change });
        Ok(true)
    }

    /// Joins a command to the one that waits, and returns true; or carries out the one that waits.
    pub(super) fn join(&mut self, next: &Command<'_>) -> Result<bool, Box<CommandError>> {
        let Some(mut pending) = self.pending.take() else { return Ok(false) };
        // What is refused in one step is done in two, which tell the reason.
        let is_done = match (&mut pending.change, next) {
            (Change::Make(made), Command::Rename { path, to }) if *path == pending.path => {
                self.make_renamed(path, to, made).unwrap_or(false)
            }
            (Change::Set(_, change), _) if next.path() == Some(&pending.path) => {
                let further = Self::attributes(next).ok().flatten();
                let both = further.and_then(|(_, further)| joined(change, &further));
                if let Some(both) = both {
                    *change = both;
                    self.pending = Some(pending);
                    return Ok(true);
                }
                false
            }
            _ => false,
        };
        if is_done {
            return Ok(true);
        }
        self.carry_out(pending).map(|()| false)
    }

    fn carry_out(&mut self, pending: Pending) -> Result<(), Box<CommandError>> {
        let done = match &pending.change {
            Change::Make(made) => self.make(&pending.path, made),
            Change::Set(id, change) => {
                self.filesystem.set_attributes(*id, change).map(drop).map_err(ReceiveProblem::from)
            }
        };
        let Pending { offset, number: command, path, .. } = pending;
        done.map_err(|problem| Box::new(CommandError { offset, command, path, problem }))
    }

    /// The attributes that a command sets, and its path; `None` if it sets none.
    fn attributes<'c>(command: &Command<'c>) -> Result<Option<(&'c [u8], AttributeChange)>, ReceiveProblem> {
        let none = AttributeChange::default();
        Ok(Some(match *command {
            Command::Chmod { path, mode } => {
                let mode = Some(narrow("mode", mode)? & PERMISSIONS);
                (path, AttributeChange { mode, ..none })
            }
            Command::Chown { path, uid, gid } => {
                let (uid, gid) = (Some(narrow("owner", uid)?), Some(narrow("group", gid)?));
                (path, AttributeChange { uid, gid, ..none })
            }
            Command::Times { path, accessed, modified, changed, created } => {
                let change = AttributeChange {
                    accessed: Some(NewTime::At(time(accessed))),
                    modified: Some(NewTime::At(time(modified))),
                    changed: Some(time(changed)),
                    created: created.map(time),
                    ..none
                };
                (path, change)
            }
            _ => return Ok(None),
        }))
    }

    /// Makes an inode under the name that it is about to get. Returns false, and makes nothing, where that may give another one.
    fn make_renamed(&mut self, path: &[u8], to: &[u8], made: &Made) -> Result<bool, ReceiveProblem> {
        let (first, last) = (split(path)?, split(to)?);
        let (from, directory) = (self.directory(first.directory)?, self.directory(last.directory)?);
        if !self.is_plain(from)? || !self.is_plain(directory)? {
            return Ok(false);
        }
        if self.filesystem.lookup(from, first.name)?.is_some() {
            return Ok(false);
        }
        self.make_in(directory, to, last.name, made)?;
        Ok(true)
    }

    /// Returns true if a directory passes nothing on to what is made in it: no flags, group or extended attributes.
    fn is_plain(&mut self, directory: InodeId) -> Result<bool, ReceiveProblem> {
        if let Some(known) = self.plain.0.get(&directory) {
            return Ok(*known);
        }
        let attributes = self.filesystem.attributes(directory)?;
        let is_plain = attributes.flags.is_empty()
            && attributes.mode & SET_GROUP_ID == 0
            && self.filesystem.xattrs(directory)?.is_empty();
        if self.plain.0.len() >= REMEMBERED_MAX {
            self.plain.forget();
        }
        self.plain.0.insert(directory, is_plain);
        Ok(is_plain)
    }

    /// Makes an inode.
    fn make(&mut self, path: &[u8], made: &Made) -> Result<(), ReceiveProblem> {
        let place = split(path)?;
        let directory = self.directory(place.directory)?;
        let id = self.make_in(directory, path, place.name, made)?;
        // The directory may pass on attributes that the source does not have.
        for inherited in self.filesystem.xattrs(id)? {
            self.filesystem.remove_xattr(id, &inherited.name)?;
        }
        Ok(())
    }

    fn make_in(
        &mut self,
        directory: InodeId,
        path: &[u8],
        name: &[u8],
        made: &Made,
    ) -> Result<InodeId, ReceiveProblem> {
        let new = made.as_new();
        if !made.is_file() {
            return Ok(self.filesystem.create(directory, name, &new)?.id);
        }
        let (attributes, file) = self.filesystem.create_open(directory, name, &new)?;
        self.close()?;
        self.opened = Some(Opened { path: path.to_vec(), file });
        Ok(attributes.id)
    }
}

/// Two changes as one; `None` if the second one must see the first: times are the last that is set.
fn joined(first: &AttributeChange, second: &AttributeChange) -> Option<AttributeChange> {
    if first.changed.is_some() {
        return None;
    }
    Some(AttributeChange {
        mode: second.mode.or(first.mode),
        uid: second.uid.or(first.uid),
        gid: second.gid.or(first.gid),
        ..*second
    })
}
