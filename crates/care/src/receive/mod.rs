//! A stream of btrfs send becomes subvolumes.
//!
//! The walk: [`receive`] reads commands, one after the other ([`brindle_stream`]). The first makes a subvolume, empty or a snapshot of
//! one that is there (`known.rs` finds it by UUID); each further one is an operation of [`Filesystem`] on it (`names.rs`, `contents.rs`), some
//! joined with the one before (`join.rs`). [`receive_into`] does the same at another [`Destination`].
//! Paths are resolved from the root of the subvolume, and never leave it (`path.rs`). A thread beside writes contents back meanwhile
//! (`flusher.rs`). The end makes all durable, the subvolume
//! read-only and known by its UUID, in one transaction ([`Filesystem::finish_received`]).
//!
//! **Promise.** A subvolume that is marked as received is whole: every command of its stream was carried out, and the end was seen. After
//! an error, a crash or a kill, the subvolume that was being received is writable and unmarked.
//!
//! Owners, modes, extended attributes and all four times are those of the source. Attributes that a directory passes on to what
//! is made in it are removed again: the stream tells which there are.

mod contents;
mod destination;
mod encoded;
mod error;
mod flusher;
mod join;
mod known;
mod names;
mod path;
mod pending;
mod pool;
mod source;
mod subvolume;

pub use destination::{Begun, Destination, Tell};
pub use encoded::decode;
pub use error::{CommandError, ReceiveError, ReceiveFailure, ReceiveProblem};
pub use known::{SourceState, choose};
pub use path::{PathParts, check_name, check_path, split};

use crate::job::Control;
use brindle_fs::{Filesystem, InodeId, RootId};
use brindle_stream::{Command, Placed, StreamError, StreamReader};
use flusher::Flusher;
use pool::PoolDestination;
use source::Source;
use std::io::{BufRead, Read};
use std::thread;

/// Options of receiving.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveOptions {
    /// Number of failed commands at which it ends; 0 for no limit.
    pub errors_max: u64,
    /// Ends at the first end command, although more may follow.
    pub one_stream: bool,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self { errors_max: 1, one_stream: false }
    }
}

/// A subvolume that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its id.
    pub id: RootId,
    /// Its name.
    pub name: Vec<u8>,
}

/// Something that happened while receiving.
#[derive(Debug)]
pub enum ReceiveEvent<'e> {
    /// An id was reserved for a subvolume that is about to be made.
    Reserved(RootId),
    /// A subvolume was made, and is to be filled.
    Begun(&'e Received),
    /// A command is about to be carried out.
    Command(&'e Placed<'e>),
    /// A command failed, and is not the last one that may.
    Failed(&'e CommandError),
    /// A subvolume is durable and marked as received.
    Finished(&'e Received),
}

/// Receiver of what happens. It may end the work.
pub type ReceiveObserver<'o> = &'o mut dyn FnMut(&ReceiveEvent<'_>) -> Control;

/// Receives the subvolumes of `source` into a directory. Returns their number.
///
/// # Errors
/// A stream that is damaged or can't be carried out; subvolumes before the one that failed stay received.
pub fn receive(
    filesystem: &Filesystem,
    directory: InodeId,
    source: impl Read,
    options: &ReceiveOptions,
    observer: ReceiveObserver<'_>,
) -> Result<u64, ReceiveError> {
    let _bypass = filesystem.pool().volume().bypass_caches();
    thread::scope(|threads| {
        let flusher = Flusher::start(threads, filesystem);
        receive_into(&mut PoolDestination::new(filesystem, directory, flusher), source, options, observer)
    })
}

/// The same at another destination.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_into<D: Destination>(
    destination: &mut D,
    source: impl Read,
    options: &ReceiveOptions,
    observer: ReceiveObserver<'_>,
) -> Result<u64, ReceiveError> {
    let mut reader = StreamReader::new(Source::new(source)).map_err(outside)?;
    let mut receiver = Receiver { destination, options, observer, failures: 0, received: 0 };
    loop {
        receiver.stream(&mut reader)?;
        if options.one_stream {
            break;
        }
        match reader.next_stream().map_err(outside)? {
            Some(next) => reader = next,
            None => break,
        }
    }
    Ok(receiver.received)
}

fn outside(error: StreamError) -> ReceiveError {
    ReceiveError { failure: error.into(), incomplete: None }
}

/// State of receiving.
struct Receiver<'r, D> {
    destination: &'r mut D,
    options: &'r ReceiveOptions,
    observer: ReceiveObserver<'r>,
    failures: u64,
    received: u64,
}

/// The subvolume that is being received.
struct Current<I> {
    incoming: I,
    /// Number of its commands that failed.
    failures: u64,
}

impl<D: Destination> Receiver<'_, D> {
    /// Receives one stream, to its end command.
    fn stream<R: BufRead>(&mut self, reader: &mut StreamReader<R>) -> Result<(), ReceiveError> {
        let mut current = None;
        self.commands(reader, &mut current).map_err(|failure| {
            let incomplete =
                current.map(|current: Current<D::Incoming>| self.destination.abandon(current.incoming));
            ReceiveError { failure, incomplete }
        })
    }

    fn commands<R: BufRead>(
        &mut self,
        reader: &mut StreamReader<R>,
        current: &mut Option<Current<D::Incoming>>,
    ) -> Result<(), ReceiveFailure> {
        loop {
            let end = reader.offset();
            let Some(placed) = reader.next()? else {
                return Err(ReceiveFailure::NoEnd(end));
            };
            self.tell(&ReceiveEvent::Command(&placed))?;
            let Placed { command, .. } = placed;
            if self.join(&command, current)? {
                continue;
            }
            let begins = matches!(command, Command::Subvolume { .. } | Command::Snapshot { .. });
            if command.ends_subvolume() {
                self.finish(&placed, current)?;
            }
            let done = match current {
                _ if command == Command::End => return Ok(()),
                _ if begins => {
                    self.begin(&command)?.map(|incoming| *current = Some(Current { incoming, failures: 0 }))
                }
                Some(current) => self.destination.apply(&mut current.incoming, &placed),
                None => Err(ReceiveProblem::NoSubvolume),
            };
            match (done, &current) {
                (Err(problem), _) => self.failed(at(&placed, problem), current.as_mut())?,
                (Ok(()), Some(current)) if begins => {
                    let begun = self.destination.received(&current.incoming);
                    self.tell(&ReceiveEvent::Begun(&begun))?;
                }
                (Ok(()), _) => {}
            }
        }
    }

    /// Carries out the command that waits, if there is one; true if the next one was done with it.
    fn join(
        &mut self,
        next: &Command<'_>,
        current: &mut Option<Current<D::Incoming>>,
    ) -> Result<bool, ReceiveFailure> {
        let Some(current) = current else { return Ok(false) };
        match self.destination.join(&mut current.incoming, next) {
            Ok(is_done) => Ok(is_done),
            Err(error) => self.failed(error, Some(current)).map(|()| false),
        }
    }

    /// Makes a subvolume. The observer knows its id, where that is chosen before, before anything shows it.
    fn begin(&mut self, command: &Command<'_>) -> Begun<D::Incoming> {
        let observer = &mut *self.observer;
        let tell = &mut |id| told(observer(&ReceiveEvent::Reserved(id)));
        self.destination.begin(command, tell)
    }

    /// Ends the subvolume that is being received, if there is one.
    fn finish(
        &mut self,
        placed: &Placed<'_>,
        current: &mut Option<Current<D::Incoming>>,
    ) -> Result<(), ReceiveFailure> {
        let Some(Current { incoming, failures }) = current else { return Ok(()) };
        if *failures > 0 {
            return Err(ReceiveFailure::Failures(*failures));
        }
        self.destination.finish(incoming).map_err(|problem| at(placed, problem))?;
        let received = self.destination.received(incoming);
        *current = None;
        self.received += 1;
        self.tell(&ReceiveEvent::Finished(&received))
    }

    /// Counts a failed command. It is the end if it is one too many, or there is nothing that later ones could be for.
    fn failed(
        &mut self,
        error: Box<CommandError>,
        current: Option<&mut Current<D::Incoming>>,
    ) -> Result<(), ReceiveFailure> {
        self.failures += 1;
        let is_last = self.options.errors_max != 0 && self.failures >= self.options.errors_max;
        let Some(current) = current.filter(|_| !is_last) else { return Err(error.into()) };
        current.failures += 1;
        self.tell(&ReceiveEvent::Failed(&error))
    }

    fn tell(&mut self, event: &ReceiveEvent<'_>) -> Result<(), ReceiveFailure> {
        told((self.observer)(event))
    }
}

fn told(answer: Control) -> Result<(), ReceiveFailure> {
    match answer {
        Control::Continue => Ok(()),
        Control::Pause | Control::Cancel => Err(ReceiveFailure::Cancelled),
    }
}

/// The failure of a command.
fn at(placed: &Placed<'_>, problem: ReceiveProblem) -> Box<CommandError> {
    let path = placed.command.path().unwrap_or_default().to_vec();
    Box::new(CommandError { offset: placed.offset, command: placed.command.number(), path, problem })
}
