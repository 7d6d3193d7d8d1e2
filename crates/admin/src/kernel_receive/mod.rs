//! Streams of send, received into a mount of the kernel by the calls that a program has there.
//!
//! The walk: [`brindle_care::receive::receive_into`] reads commands and counts failures; [`KernelMountDestination`] carries them out. The first
//! makes a subvolume, or a snapshot of one that is there (`known.rs`); each further one is a call on a file of it (`inode.rs`) or on
//! its contents (`contents.rs`). Paths lead through no link, no mount point and no other subvolume (`place.rs`).
//!
//! **Promise.** What a subvolume holds is durable before it is marked as received. The kernel marks it and makes it read-only by two
//! calls, so that a crash between them may leave it writable, with the mark. The time of birth and that of the last change are those
//! of receiving, for the kernel lets no program set them.

mod contents;
mod inode;
mod known;
mod place;

use crate::control::{ControlError, Mounted};
use crate::{call, subvolumes};
use brindle_care::receive::{
    Begun, Destination, ReceiveError, ReceiveObserver, ReceiveOptions, ReceiveProblem, Received, Tell,
    check_name, receive_into,
};
use brindle_ondisk::RootId;
use brindle_stream::{Command, Origin, Placed};
use brindle_uapi::message::KernelReceived;
use brindle_uapi::verb;
use known::Known;
use place::Place;
use rustix::fs::{Mode, fchmod, syncfs};
use std::io::{self, Read};
use zerocopy::FromZeros;

/// Permissions of a subvolume's root, until the stream sets others.
const ROOT_PERMISSIONS: Mode = Mode::RWXU;

/// Receives the subvolumes of `source` into a directory of a mount of the kernel. Returns their number. Where `decompresses`, contents
/// that come compressed are written as other ones, which the mount may compress.
///
/// # Errors
/// A stream that is damaged or can't be carried out; subvolumes before the one that failed stay received.
pub fn receive_by_kernel(
    directory: &Mounted,
    source: impl Read,
    decompresses: bool,
    options: &ReceiveOptions,
    observer: ReceiveObserver<'_>,
) -> Result<u64, ReceiveError> {
    let mut destination = KernelMountDestination { directory, decompresses, known: Known::default() };
    receive_into(&mut destination, source, options, observer)
}

/// A directory of a mount of the kernel.
struct KernelMountDestination<'m> {
    directory: &'m Mounted,
    decompresses: bool,
    known: Known,
}

/// A subvolume that is being received.
struct Incoming {
    subvolume: Mounted,
    id: RootId,
    name: Vec<u8>,
    origin: Origin,
    place: Place,
}

impl Destination for KernelMountDestination<'_> {
    type Incoming = Incoming;

    fn begin(&mut self, command: &Command<'_>, _: Tell<'_>) -> Begun<Incoming> {
        Ok(self.make(command))
    }

    fn apply(&mut self, incoming: &mut Incoming, placed: &Placed<'_>) -> Result<(), ReceiveProblem> {
        let (command, place) = (&placed.command, &mut incoming.place);
        if let Some(done) = place.change_inode(command) {
            return done;
        }
        match command {
            Command::Clone { source, .. } if source.uuid != incoming.origin.uuid => {
                let source = self.known.find(self.directory, *source)?;
                place.clone_range(&mut Place::new(&source.file)?, command)
            }
            _ => place.change_contents(command, self.decompresses),
        }
    }

    fn finish(&mut self, incoming: &mut Incoming) -> Result<(), ReceiveProblem> {
        incoming.place.forget();
        let (subvolume, origin) = (&incoming.subvolume, incoming.origin);
        syncfs(&subvolume.file).map_err(io::Error::from)?;
        let mut mark = KernelReceived {
            uuid: origin.uuid.0,
            sent_transaction: origin.transid,
            ..KernelReceived::new_zeroed()
        };
        let marked = call::update::<verb::MarkReceived>(&subvolume.file, &mut mark);
        subvolume.explain("mark the subvolume as received (root may)", marked).map_err(told)?;
        subvolume.set_read_only(true).map_err(told)?;
        Ok(syncfs(&subvolume.file).map_err(io::Error::from)?)
    }

    fn received(&self, incoming: &Incoming) -> Received {
        Received { id: incoming.id, name: incoming.name.clone() }
    }

    fn abandon(&mut self, incoming: Incoming) -> Vec<u8> {
        incoming.name
    }
}

impl KernelMountDestination<'_> {
    /// Makes the subvolume with which a stream begins.
    fn make(&mut self, command: &Command<'_>) -> Result<Incoming, ReceiveProblem> {
        let (name, origin) = match *command {
            Command::Subvolume { path, origin } => {
                check_name(path)?;
                self.directory.create_subvolume(path).map_err(told)?;
                (path, origin)
            }
            Command::Snapshot { path, origin, parent } => {
                check_name(path)?;
                let parent = self.known.find(self.directory, parent)?;
                self.directory.snapshot(&parent, path, false).map_err(told)?;
                (path, origin)
            }
            _ => return Err(ReceiveProblem::NoSubvolume),
        };
        let subvolume = self.directory.within(name).map_err(told)?;
        let mut place = Place::new(&subvolume.file)?;
        if matches!(command, Command::Subvolume { .. }) {
            fchmod(&subvolume.file, ROOT_PERMISSIONS).map_err(io::Error::from)?;
            place.remove_inherited(b"")?;
        }
        let id = RootId::new(subvolume.subvolume().map_err(told)?.id);
        Ok(Incoming { subvolume, id, name: name.to_vec(), origin, place })
    }
}

/// The refusal of a mount, as that of a command.
fn told(error: ControlError) -> ReceiveProblem {
    io::Error::other(error).into()
}
