//! Commands that make, move and remove names, and set attributes.

use super::place::{Place, name_of};
use brindle_care::receive::ReceiveProblem;
use brindle_stream::{Command, StreamTime};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, linkat, listxattr,
    mkdirat, mknodat, removexattr, renameat, setxattr, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// Permissions of what is made, until the stream sets others.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
const PERMISSIONS: u64 = 0o7777;
/// Longest list of the names of extended attributes (`XATTR_LIST_MAX`), in bytes.
const NAMES_BYTES: usize = 64 << 10;
/// Attributes that a directory passes on to what is made in it.
const INHERITED: [&[u8]; 2] = [b"system.posix_acl_", b"btrfs."];

type Done = Result<(), ReceiveProblem>;

impl Place {
    /// Carries out a command about names or attributes; `None` if it is another one.
    pub(super) fn change_inode(&mut self, command: &Command<'_>) -> Option<Done> {
        Some(match *command {
            Command::MakeFile { path, .. } => self.make_node(path, FileType::RegularFile, 0, 0),
            Command::MakeFifo { path, mode, .. } => self.make_node(path, FileType::Fifo, mode, 0),
            Command::MakeSocket { path, mode, .. } => self.make_node(path, FileType::Socket, mode, 0),
            Command::MakeNode { path, mode, device, .. } => match u32::try_from(mode) {
                Ok(bits) => self.make_node(path, FileType::from_raw_mode(bits), mode, device),
                Err(_) => Err(ReceiveProblem::Range { what: "mode", found: mode }),
            },
            Command::MakeDirectory { path, .. } => {
                self.make(path, |directory, name| mkdirat(directory, name, Mode::RWXU))
            }
            Command::Symlink { path, target, .. } => {
                self.names(path, |directory, name| symlinkat(target, directory, name))
            }
            Command::Rename { path, to } => self.rename(path, to),
            Command::Link { path, target } => self.link(path, target),
            Command::Unlink { path } => self.remove(path, AtFlags::empty()),
            Command::RemoveDirectory { path } => self.remove(path, AtFlags::REMOVEDIR),
            Command::SetXattr { path, name, value } => {
                self.note_attributes(path);
                self.set(path, |inode| setxattr(name_of(inode), name, value, XattrFlags::empty()))
            }
            Command::RemoveXattr { path, name } => self.set(path, |inode| {
                match removexattr(name_of(inode), name) {
                    // A sender may remove what setting a mode or an owner has taken away.
                    Err(Errno::NODATA) => Ok(()),
                    done => done,
                }
            }),
            Command::Chmod { path, mode } => match u32::try_from(mode & PERMISSIONS) {
                Ok(mode) => self.set(path, |inode| chmod(name_of(inode), Mode::from_raw_mode(mode))),
                Err(_) => unreachable!("these bits are few"),
            },
            Command::Chown { path, uid, gid } => self.set_owner(path, uid, gid),
            Command::Times { path, accessed, modified, .. } => {
                let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
                self.set(path, |inode| utimensat(inode, "", &times, AtFlags::EMPTY_PATH))
            }
            // As btrfs-progs do: what can be set of it, the stream sets by other commands.
            Command::Flags { .. } => Ok(()),
            _ => return None,
        })
    }

    fn names(&mut self, path: &[u8], call: impl FnOnce(&OwnedFd, &[u8]) -> Result<(), Errno>) -> Done {
        let (directory, name) = self.parts(path)?;
        Ok(call(&directory, name).map_err(io::Error::from)?)
    }

    fn set(&mut self, path: &[u8], call: impl FnOnce(&OwnedFd) -> Result<(), Errno>) -> Done {
        Ok(call(&self.inode(path)?.file).map_err(io::Error::from)?)
    }

    /// Makes an inode, without what its directory passes on: the stream tells the attributes that there are.
    fn make(&mut self, path: &[u8], call: impl FnOnce(&OwnedFd, &[u8]) -> Result<(), Errno>) -> Done {
        self.names(path, call)?;
        if self.passes_on(path)? { self.remove_inherited(path) } else { Ok(()) }
    }

    /// Removes what a directory has passed on to an inode that was just made.
    pub(super) fn remove_inherited(&mut self, path: &[u8]) -> Done {
        self.note_attributes(path);
        self.set(path, |inode| {
            let (place, mut names) = (name_of(inode), vec![0; NAMES_BYTES]);
            let length = listxattr(&place, &mut names)?;
            let names = names[..length].split(|byte| *byte == 0);
            let passed_on = |name: &&[u8]| INHERITED.iter().any(|start| name.starts_with(start));
            names.filter(passed_on).try_for_each(|name| removexattr(&place, name))
        })
    }

    fn make_node(&mut self, path: &[u8], kind: FileType, mode: u64, device: u64) -> Done {
        let kind = match kind {
            FileType::Directory | FileType::Symlink | FileType::Unknown => {
                return Err(ReceiveProblem::Range { what: "mode", found: mode });
            }
            kind => kind,
        };
        self.make(path, |directory, name| mknodat(directory, name, kind, PRIVATE, device))
    }

    fn rename(&mut self, path: &[u8], to: &[u8]) -> Done {
        let (from, name) = self.parts(path)?;
        let (directory, last) = self.parts(to)?;
        self.forget();
        Ok(renameat(from, name, directory, last).map_err(io::Error::from)?)
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Done {
        if self.inode(target)?.kind == FileType::Directory {
            return Err(io::Error::from(Errno::ISDIR).into());
        }
        let (from, name) = self.parts(target)?;
        let (directory, last) = self.parts(path)?;
        Ok(linkat(from, name, directory, last, AtFlags::empty()).map_err(io::Error::from)?)
    }

    fn remove(&mut self, path: &[u8], flags: AtFlags) -> Done {
        let (directory, name) = self.parts(path)?;
        self.forget();
        Ok(unlinkat(directory, name, flags).map_err(io::Error::from)?)
    }

    fn set_owner(&mut self, path: &[u8], uid: u64, gid: u64) -> Done {
        let number = |what, found| {
            let number = u32::try_from(found).ok().filter(|number| *number != u32::MAX);
            number.ok_or(ReceiveProblem::Range { what, found })
        };
        let (uid, gid) = (number("owner", uid)?, number("group", gid)?);
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        self.set(path, |inode| chownat(inode, "", uid, gid, AtFlags::EMPTY_PATH))
    }
}

fn time(time: StreamTime) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}
