//! Commands that make, move and remove names, and set extended attributes.

use super::error::ReceiveProblem;
use super::path::{Found, split};
use super::subvolume::Incoming;
use brindle_fs::{FileType, FsError, InodeId, RenameMode, XattrMode};
use brindle_stream::Command;

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
