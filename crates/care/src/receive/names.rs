//! Commands that make, move and remove names, and set attributes.

use super::error::ReceiveProblem;
use super::path::{Found, split};
use super::subvolume::Incoming;
use brindle_fs::{
    AttributeChange, FileType, FsError, InodeId, NewInode, NewTime, RenameMode, Timestamp, XattrMode,
};
use brindle_stream::{Command, StreamTime};
use rustix::fs::{major, minor};

const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;
const FIFO: u32 = 0o010_000;
const PERMISSIONS: u32 = 0o7777;
/// Permissions of what is made, until the stream sets others.
const PRIVATE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;

impl Incoming<'_> {
    /// Carries out a command about names; `None` if it is another one.
    pub(super) fn change_names(&mut self, command: &Command<'_>) -> Option<Result<(), ReceiveProblem>> {
        let mode = |kind, permissions| NewInode { mode: kind | permissions, ..Default::default() };
        Some(match *command {
            Command::MakeFile { path, .. } => self.make(path, &mode(FILE, PRIVATE)),
            Command::MakeDirectory { path, .. } => self.make(path, &mode(DIRECTORY, PRIVATE_DIRECTORY)),
            Command::MakeFifo { path, .. } => self.make(path, &mode(FIFO, PRIVATE)),
            Command::MakeSocket { path, .. } => self.make(path, &mode(SOCKET, PRIVATE)),
            Command::MakeNode { path, mode, device, .. } => self.make_node(path, mode, device),
            Command::Symlink { path, target, .. } => self
                .make(path, &NewInode { mode: SYMLINK | 0o777, target: Some(target), ..Default::default() }),
            Command::Rename { path, to } => self.rename(path, to),
            Command::Link { path, target } => self.link(path, target),
            Command::Unlink { path } => self.unlink(path),
            Command::RemoveDirectory { path } => self.remove_directory(path),
            _ => return None,
        })
    }

    /// Carries out a command about attributes; `None` if it is another one.
    pub(super) fn change_attributes(&mut self, command: &Command<'_>) -> Option<Result<(), ReceiveProblem>> {
        Some(match *command {
            Command::Chmod { path, mode } => small("mode", mode).and_then(|mode| {
                let mode = Some(mode & PERMISSIONS);
                self.set(path, &AttributeChange { mode, ..Default::default() })
            }),
            Command::Chown { path, uid, gid } => self.chown(path, uid, gid),
            Command::Times { path, accessed, modified, changed, created } => {
                let change = AttributeChange {
                    accessed: Some(NewTime::At(time(accessed))),
                    modified: Some(NewTime::At(time(modified))),
                    changed: Some(time(changed)),
                    created: created.map(time),
                    ..Default::default()
                };
                self.set(path, &change)
            }
            Command::SetXattr { path, name, value } => self
                .find(path)
                .and_then(|found| Ok(self.filesystem.set_xattr(found.id, name, value, XattrMode::Any)?)),
            Command::RemoveXattr { path, name } => self.find(path).and_then(|found| {
                match self.filesystem.remove_xattr(found.id, name) {
                    // A sender may remove what setting a mode or an owner has taken away.
                    Ok(()) | Err(FsError::NoXattr(_)) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }),
            // As btrfs-progs do: what can be set of it, the stream sets by other commands.
            Command::Flags { .. } => Ok(()),
            _ => return None,
        })
    }

    fn make_node(&mut self, path: &[u8], mode: u64, device: u64) -> Result<(), ReceiveProblem> {
        let mode = small("mode", mode)?;
        // As on disk: the major number from bit 20 on.
        let rdev = u64::from(major(device)) << 20 | u64::from(minor(device));
        self.make(path, &NewInode { mode: mode & TYPE | PRIVATE, rdev, ..Default::default() })
    }

    fn make(&mut self, path: &[u8], new: &NewInode<'_>) -> Result<(), ReceiveProblem> {
        let place = split(path)?;
        let directory = self.directory(place.directory)?;
        let made = self.filesystem.create(directory, place.name, new)?;
        // The directory may pass on attributes that the source does not have.
        for inherited in self.filesystem.xattrs(made.id)? {
            self.filesystem.remove_xattr(made.id, &inherited.name)?;
        }
        Ok(())
    }

    fn rename(&mut self, path: &[u8], to: &[u8]) -> Result<(), ReceiveProblem> {
        let (from, target) = (split(path)?, split(to)?);
        let from_directory = self.directory(from.directory)?;
        let to_directory = self.directory(target.directory)?;
        self.forget_paths()?;
        Ok(self.filesystem.rename(
            from_directory,
            from.name,
            to_directory,
            target.name,
            RenameMode::Replace,
        )?)
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ReceiveProblem> {
        let place = split(path)?;
        let directory = self.directory(place.directory)?;
        let Found { id, kind } = self.find(target)?;
        if kind == FileType::Directory {
            return Err(FsError::IsADirectory(id).into());
        }
        self.filesystem.link(id, directory, place.name)?;
        Ok(())
    }

    fn unlink(&mut self, path: &[u8]) -> Result<(), ReceiveProblem> {
        let place = split(path)?;
        let directory = self.directory(place.directory)?;
        self.forget_paths()?;
        Ok(self.filesystem.unlink(directory, place.name)?)
    }

    fn remove_directory(&mut self, path: &[u8]) -> Result<(), ReceiveProblem> {
        let place = split(path)?;
        let directory = self.directory(place.directory)?;
        self.forget_paths()?;
        Ok(self.filesystem.remove_directory(directory, place.name)?)
    }

    fn chown(&mut self, path: &[u8], uid: u64, gid: u64) -> Result<(), ReceiveProblem> {
        let (uid, gid) = (Some(small("owner", uid)?), Some(small("group", gid)?));
        self.set(path, &AttributeChange { uid, gid, ..Default::default() })
    }

    fn set(&mut self, path: &[u8], change: &AttributeChange) -> Result<(), ReceiveProblem> {
        let Found { id, .. } = self.find(path)?;
        self.filesystem.set_attributes(id, change)?;
        Ok(())
    }

    /// The directory of a path, which mostly is that of the command before.
    fn directory(&mut self, path: &[u8]) -> Result<InodeId, ReceiveProblem> {
        if let Some((known, id)) = &self.last_directory {
            if known == path {
                return Ok(*id);
            }
        }
        let Found { id, kind } = self.find(path)?;
        if kind != FileType::Directory {
            return Err(ReceiveProblem::Path { path: path.to_vec(), why: "is no directory" });
        }
        self.last_directory = Some((path.to_vec(), id));
        Ok(id)
    }
}

fn small(what: &'static str, found: u64) -> Result<u32, ReceiveProblem> {
    u32::try_from(found).map_err(|_| ReceiveProblem::Range { what, found })
}

fn time(time: StreamTime) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
