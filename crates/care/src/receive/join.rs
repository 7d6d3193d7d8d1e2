//! Commands that are carried out together with the one before.
//!
//! A sender makes each inode under a name of its own and renames it at once; then it sets owner, mode and times, one by one. Done as they
//! come, a small file costs five changes of the tree; made under its last name, with all attributes set at once, two.
//!
//! **Invariant.** After each command that did not join the one before, the subvolume is as if every command before it had been carried
//! out when it came.

use super::error::{CommandError, ReceiveProblem};
use super::path::{Found, split};
use super::pending::{Change, Made, Pending, attributes, joined, made};
use super::subvolume::{Incoming, Opened};
use brindle_fs::{FileType, InodeId};
use brindle_stream::{Command, Placed};

const SET_GROUP_ID: u32 = 0o2000;

impl Incoming<'_> {
    /// Keeps a command until the next one comes. Returns false for one that is not to wait.
    pub(super) fn keep(&mut self, placed: &Placed<'_>) -> Result<bool, ReceiveProblem> {
        let command = &placed.command;
        let change = match (made(command)?, attributes(command)?) {
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
                let further = attributes(next).ok().flatten();
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
        if let Some(known) = self.plain.get(directory) {
            return Ok(known);
        }
        let attributes = self.filesystem.attributes(directory)?;
        let is_plain = attributes.flags.is_empty()
            && attributes.mode & SET_GROUP_ID == 0
            && self.filesystem.xattrs(directory)?.is_empty();
        self.plain.note(directory, is_plain);
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
