//! A pool of ours as the place that subvolumes are received into.

use super::Received;
use super::destination::{Begun, Destination, Tell};
use super::error::{CommandError, ReceiveProblem};
use super::flusher::Flusher;
use super::known::Known;
use super::subvolume::Incoming;
use brindle_fs::{Filesystem, InodeId};
use brindle_ondisk::to_usize;
use brindle_stream::{Command, Placed};

/// A directory of a pool.
pub(super) struct PoolDestination<'f> {
    filesystem: &'f Filesystem,
    directory: InodeId,
    known: Known,
    flusher: Flusher,
}

impl<'f> PoolDestination<'f> {
    pub(super) fn new(filesystem: &'f Filesystem, directory: InodeId, flusher: Flusher) -> Self {
        Self { filesystem, directory, known: Known::default(), flusher }
    }
}

impl<'f> Destination for PoolDestination<'f> {
    type Incoming = Incoming<'f>;

    fn begin(&mut self, command: &Command<'_>, tell: Tell<'_>) -> Begun<Incoming<'f>> {
        let id = match self.filesystem.reserve_subvolume_id() {
            Ok(id) => id,
            Err(error) => return Ok(Err(error.into())),
        };
        tell(id.id())?;
        Ok(Incoming::begin(self.filesystem, self.directory, &mut self.known, command, id))
    }

    fn join(&mut self, incoming: &mut Incoming<'f>, next: &Command<'_>) -> Result<bool, Box<CommandError>> {
        incoming.join(next)
    }

    fn apply(&mut self, incoming: &mut Incoming<'f>, placed: &Placed<'_>) -> Result<(), ReceiveProblem> {
        incoming.apply(placed, &mut self.known)?;
        self.flusher.note_written(content_bytes(&placed.command));
        Ok(())
    }

    fn finish(&mut self, incoming: &mut Incoming<'f>) -> Result<(), ReceiveProblem> {
        incoming.finish()
    }

    fn received(&self, incoming: &Incoming<'f>) -> Received {
        incoming.received()
    }

    fn abandon(&mut self, incoming: Incoming<'f>) -> Vec<u8> {
        incoming.abandon()
    }
}

/// Bytes of contents that a command brings.
fn content_bytes(command: &Command<'_>) -> usize {
    match command {
        Command::Write { data, .. } => data.len(),
        Command::EncodedWrite(write) => to_usize(write.length),
        _ => 0,
    }
}
