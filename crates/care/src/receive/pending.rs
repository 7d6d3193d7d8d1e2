//! The command before, which waits for the next one: the two may be done as one (`join.rs`).

use super::error::ReceiveProblem;
use brindle_fs::{AttributeChange, InodeId, NewInode, NewTime, Timestamp};
use brindle_stream::{Command, CommandNumber, StreamTime};
use rustix::fs::{major, minor};
use std::collections::HashMap;

const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;
const FIFO: u32 = 0o010_000;
/// Permissions of what is made, until the stream sets others.
const PRIVATE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
const PERMISSIONS: u32 = 0o7777;
/// Upper bound on the directories that are remembered.
const REMEMBERED_MAX: usize = 1000;

/// A command that waits.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) offset: u64,
    pub(super) number: CommandNumber,
    pub(super) path: Vec<u8>,
    pub(super) change: Change,
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
    pub(super) fn is_file(&self) -> bool {
        self.mode & TYPE == FILE
    }

    pub(super) fn as_new(&self) -> NewInode<'_> {
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

    pub(super) fn get(&self, directory: InodeId) -> Option<bool> {
        self.0.get(&directory).copied()
    }

    pub(super) fn note(&mut self, directory: InodeId, is_plain: bool) {
        if self.0.len() >= REMEMBERED_MAX {
            self.forget();
        }
        self.0.insert(directory, is_plain);
    }
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

/// The attributes that a command sets, and its path; `None` if it sets none.
pub(super) fn attributes<'c>(
    command: &Command<'c>,
) -> Result<Option<(&'c [u8], AttributeChange)>, ReceiveProblem> {
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

/// Two changes as one; `None` if the second one must see the first: times are the last that is set.
pub(super) fn joined(first: &AttributeChange, second: &AttributeChange) -> Option<AttributeChange> {
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

/// A number of a stream that is to fit into 32 bits.
pub(super) fn narrow(what: &'static str, found: u64) -> Result<u32, ReceiveProblem> {
    u32::try_from(found).map_err(|_| ReceiveProblem::Range { what, found })
}

pub(super) fn time(time: StreamTime) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
