//! Commands that make, move and remove names, and set extended attributes.

use super::error::ReceiveProblem;
use super::path::{Found, split};
use super::pending::Made;
use super::subvolume::Incoming;
use brindle_fs::{FileType, FsError, InodeId, RenameMode, Timestamp, XattrMode};
use brindle_stream::{Command, StreamTime};
use rustix::fs::{major, minor};

const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;
const FIFO: u32 = 0o010_000;
/// Permissions of what is made, until the stream sets others.
const PRIVATE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;

impl Made {
    pub(super) fn is_file(&self) -> bool {
        self.mode & TYPE == FILE
    }
}

impl Incoming<'_> {
    /// Carries out a command about names; `None` if it is another one.
    pub(super) fn change_names(&mut self, command: &Command<'_>) -> Option<Result<(), ReceiveProblem>> {
        Some(match *command {
            Command::Rename { path, to } => self.rename(path, to),
            Command::Link { path, target } => self.link(path, target),
            Command::Unlink { path } => self.unlink(path),
            Command::RemoveDirectory { path } => self.remove_directory(path),
            _ => return None,
        })
    }

    /// Carries out a command about extended attributes or flags; `None` if it is another one.
    pub(super) fn change_xattrs(&mut self, command: &Command<'_>) -> Option<Result<(), ReceiveProblem>> {
        Some(match *command {
            Command::SetXattr { path, name, value } => self
                .find(path)
                .and_then(|found| Ok(self.filesystem.set_xattr(found.id, name, value, XattrMode::Any)?))
                .inspect(|()| self.plain.forget()),
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

    /// The inode that a command makes; `None` if it makes none.
    pub(super) fn made(command: &Command<'_>) -> Result<Option<Made>, ReceiveProblem> {
        let of = |mode| Made { mode, ..Default::default() };
        Ok(Some(match *command {
            Command::MakeFile { .. } => of(FILE | PRIVATE),
            Command::MakeDirectory { .. } => of(DIRECTORY | PRIVATE_DIRECTORY),
            Command::MakeFifo { .. } => of(FIFO | PRIVATE),
            Command::MakeSocket { .. } => of(SOCKET | PRIVATE),
            Command::MakeNode { mode, device, .. } => {
                // As on disk: the major number from bit 20 on.
                let rdev = u64::from(major(device)) << 20 | u64::from(minor(device));
                Made { rdev, ..of(narrow("mode", mode)? & TYPE | PRIVATE) }
            }
            Command::Symlink { target, .. } => Made { target: Some(target.to_vec()), ..of(SYMLINK | 0o777) },
            _ => return Ok(None),
        }))
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

    /// The directory of a path, which mostly is that of the command before.
    pub(super) fn directory(&mut self, path: &[u8]) -> Result<InodeId, ReceiveProblem> {
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

/// A number of a stream that is to fit into 32 bits.
pub(super) fn narrow(what: &'static str, found: u64) -> Result<u32, ReceiveProblem> {
    u32::try_from(found).map_err(|_| ReceiveProblem::Range { what, found })
}

pub(super) fn time(time: StreamTime) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
