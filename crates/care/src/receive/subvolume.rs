//! One subvolume while it is received.

use super::Received;
use super::error::ReceiveProblem;
use super::known::Known;
use super::path::{self, Found};
use super::pending::{Pending, PlainDirectories};
use brindle_fs::{FileType, Filesystem, InodeId, NewInode, OpenFile, ReservedId, RootId};
use brindle_stream::{Command, Origin, Placed};

/// Permissions of a subvolume's root, until the stream sets others.
const ROOT_PERMISSIONS: u32 = 0o700;

/// A file that stays open from one command to the next.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) path: Vec<u8>,
    pub(super) file: OpenFile,
}

/// A subvolume that is being received.
#[derive(Debug)]
pub(super) struct Incoming<'f> {
    pub(super) filesystem: &'f Filesystem,
    pub(super) root: InodeId,
    pub(super) name: Vec<u8>,
    pub(super) origin: Origin,
    pub(super) opened: Option<Opened>,
    pub(super) last_directory: Option<(Vec<u8>, InodeId)>,
    /// The command before, if it waits for the next one.
    pub(super) pending: Option<Pending>,
    pub(super) plain: PlainDirectories,
}

impl<'f> Incoming<'f> {
    /// Makes the subvolume, of a reserved id in `directory`, with which a stream begins.
    pub(super) fn begin(
        filesystem: &'f Filesystem,
        directory: InodeId,
        known: &mut Known,
        command: &Command<'_>,
        id: ReservedId,
    ) -> Result<Self, ReceiveProblem> {
        let (name, origin, id) = match *command {
            Command::Subvolume { path, origin } => {
                path::check_name(path)?;
                let new = NewInode { mode: ROOT_PERMISSIONS, ..Default::default() };
                (path, origin, filesystem.create_subvolume_as(id, directory, path, &new)?)
            }
            Command::Snapshot { path, origin, parent } => {
                path::check_name(path)?;
                let parent = known.find(filesystem, parent)?;
                (path, origin, filesystem.snapshot_as(id, parent, directory, path)?)
            }
            _ => return Err(ReceiveProblem::NoSubvolume),
        };
        let root = InodeId::root_of(id);
        Ok(Self {
            filesystem,
            root,
            name: name.to_vec(),
            origin,
            opened: None,
            last_directory: None,
            pending: None,
            plain: PlainDirectories::default(),
        })
    }

    /// Id of the subvolume.
    pub(super) fn id(&self) -> RootId {
        self.root.tree
    }

    /// Its id and name.
    pub(super) fn received(&self) -> Received {
        Received { id: self.id(), name: self.name.clone() }
    }

    /// Carries out a command that neither begins nor ends a subvolume, or keeps it until the next one ([`join`](Self::join)).
    pub(super) fn apply(&mut self, placed: &Placed<'_>, known: &mut Known) -> Result<(), ReceiveProblem> {
        if self.keep(placed)? {
            return Ok(());
        }
        let command = &placed.command;
        let done = self.change_names(command).or_else(|| self.change_xattrs(command));
        done.or_else(|| self.change_contents(command, known)).expect("a command of one of three kinds")
    }

    /// Makes the subvolume durable and read-only, and files it under the UUID that it was sent by.
    pub(super) fn finish(&mut self) -> Result<(), ReceiveProblem> {
        self.close()?;
        Ok(self.filesystem.finish_received(self.id(), self.origin.uuid, self.origin.transid)?)
    }

    /// Gives it up, and returns its name.
    pub(super) fn abandon(mut self) -> Vec<u8> {
        if let Err(error) = self.close() {
            tracing::warn!("the subvolume that is given up: {error}");
        }
        self.name
    }

    pub(super) fn find(&self, path: &[u8]) -> Result<Found, ReceiveProblem> {
        if let Some(opened) = self.opened.as_ref().filter(|opened| opened.path == path) {
            return Ok(Found { id: opened.file.id(), kind: FileType::Regular });
        }
        path::find(self.filesystem, self.root, path)
    }

    /// Forgets the file and the directory of the last commands: a path may lead elsewhere from now on.
    pub(super) fn forget_paths(&mut self) -> Result<(), ReceiveProblem> {
        self.last_directory = None;
        self.close()
    }
}
