//! The place that subvolumes are received into.

use super::Received;
use super::error::{CommandError, ReceiveFailure, ReceiveProblem};
use brindle_fs::RootId;
use brindle_stream::{Command, Placed};

/// Told of the id of a subvolume before anything shows it. It may end the work.
pub type Tell<'t> = &'t mut dyn FnMut(RootId) -> Result<(), ReceiveFailure>;

/// Outcome of making a subvolume: the inner error is that of the command, the outer one the end of the work.
pub type Begun<I> = Result<Result<I, ReceiveProblem>, ReceiveFailure>;

/// A place that subvolumes are received into: it carries out the commands, and [`receive_into`](super::receive_into) reads and counts
/// them.
pub trait Destination {
    /// A subvolume that is being received.
    type Incoming;

    /// Makes the subvolume with which a stream begins, empty or a snapshot.
    ///
    /// # Errors
    /// No such parent; a name that is taken, or is none; the end of the work.
    fn begin(&mut self, command: &Command<'_>, tell: Tell<'_>) -> Begun<Self::Incoming>;

    /// Carries out the command that waits for the next one, if there is one; true if the next one was done with it.
    ///
    /// # Errors
    /// Those of the command that waited.
    fn join(&mut self, _: &mut Self::Incoming, _: &Command<'_>) -> Result<bool, Box<CommandError>> {
        Ok(false)
    }

    /// Carries out a command that neither begins nor ends a subvolume.
    ///
    /// # Errors
    /// The command makes no sense there, or is refused.
    fn apply(&mut self, incoming: &mut Self::Incoming, placed: &Placed<'_>) -> Result<(), ReceiveProblem>;

    /// Makes the subvolume durable and read-only, and marks it as received.
    ///
    /// # Errors
    /// The subvolume stays writable and without the mark.
    fn finish(&mut self, incoming: &mut Self::Incoming) -> Result<(), ReceiveProblem>;

    /// Its id and name.
    fn received(&self, incoming: &Self::Incoming) -> Received;

    /// Gives it up, writable and without the mark. Returns its name.
    fn abandon(&mut self, incoming: Self::Incoming) -> Vec<u8>;
}
