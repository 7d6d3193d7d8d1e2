//! Writes that a server may have forgotten, or never had, are made on a new connection before it is used for anything else.
//!
//! A consent of the [guard](crate::ReconnectGuard) of the device holds for a short time. Writes are cut into pieces, each is sent while the
//! last consent holds or right behind a new one, and when all are answered the guard is asked once more. So each write lies between
//! two looks that found the device to be its own, however long the server took, and none is acknowledged before the second look. What a
//! system that comes between two looks may find overwritten is the pieces that were on their way just then; the second look finds
//! that system, and the device fails for good.

use super::connect::Facts;
use super::job::Job;
use super::link::Shared;
use super::reader::Reader;
use super::wire::Wire;
use crate::{ReconnectError, ReconnectGuard};
use brindle_nbd::{Command, CommandFlags, ReplyError, Request, SIMPLE_REPLY_BYTES, SimpleReply};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Longest piece of a write, in bytes: a multiple of all units of servers.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Pieces that are sent before their answers are read.
const PIECES_MAX: usize = 32;
/// Times to look for writes that were submitted meanwhile.
const PASSES_MAX: usize = 4;

/// Reason for which writes were not repeated.
pub(super) enum Repeat {
    /// The connection is lost again.
    Lost(io::Error),
    /// The server refuses a write.
    Refused(ReplyError),
    /// The guard of the device says that it is another's now.
    NotOwn(String),
}

impl From<io::Error> for Repeat {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// A write, and the error that the server answered.
type Made = (Arc<Job>, Option<ReplyError>);

/// Part of a write that is one request.
struct Piece {
    request: Request,
    /// Its part of the payload of the write.
    payload: Range<usize>,
    /// Index of the write.
    write: usize,
}

/// A new connection, on which nothing else is under way, and the consent of the guard.
struct Repeater<'r> {
    shared: &'r Shared,
    facts: Facts,
    wire: &'r Wire,
    guard: Option<Arc<dyn ReconnectGuard>>,
    /// End of the consent, if it has one.
    until: Option<Instant>,
    /// True if something was written since the guard was asked.
    has_written: bool,
}

/// Repeats the writes that may be lost. With a guard, makes those without an answer as well: it may be long since these were
/// submitted.
pub(super) fn repeat(shared: &Shared, facts: Facts, wire: &Wire) -> Result<(), Repeat> {
    wire.set_read_timeout(shared.limits.hang)?;
    let guard = shared.state().guard.clone();
    let mut repeater = Repeater { shared, facts, wire, guard, until: None, has_written: false };
    repeater.ask()?;
    let answered = shared.state().journal.writes();
    if let Some(error) = repeater.make(&answered, true)?.into_iter().flatten().next() {
        return Err(Repeat::Refused(error));
    }
    let made = if repeater.guard.is_some() { repeater.make_unanswered()? } else { Vec::new() };
    if repeater.has_written {
        repeater.ask()?;
    }
    for (job, error) in made {
        let failed = |error: ReplyError| io::Error::from_raw_os_error(error.number() as i32);
        shared.settle(job.request.cookie, error.map_or(Ok(None), |error| Err(failed(error))));
    }
    Ok(())
}

impl Repeater<'_> {
    /// Asks the guard, if there is one.
    fn ask(&mut self) -> Result<(), Repeat> {
        let Some(guard) = &self.guard else { return Ok(()) };
        let begun = Instant::now();
        let reader = Reader { name: &self.shared.name, facts: self.facts, wire: self.wire };
        let consent = guard.admit(&reader).map_err(|error| match error {
            ReconnectError::Unreadable(error) => Repeat::Lost(io::Error::other(error)),
            ReconnectError::Refused { why } => Repeat::NotOwn(why),
        })?;
        (self.until, self.has_written) = (begun.checked_add(consent), false);
        Ok(())
    }

    fn has_consent(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Makes the writes that have no answer yet, and returns them with their errors.
    fn make_unanswered(&mut self) -> Result<Vec<Made>, Repeat> {
        let mut made: Vec<Made> = Vec::new();
        for _ in 0..PASSES_MAX {
            let last = made.last().map_or(0, |(job, _)| job.request.cookie);
            let writes: Vec<Arc<Job>> = {
                let state = self.shared.state();
                let jobs = state.in_flight.range(last + 1..).map(|(_, (job, _))| job);
                jobs.filter(|job| job.is_write()).cloned().collect()
            };
            if writes.is_empty() {
                break;
            }
            let errors = self.make(&writes, false)?;
            made.extend(writes.into_iter().zip(errors));
        }
        Ok(made)
    }

    /// Makes writes; the error of each.
    fn make(&mut self, writes: &[Arc<Job>], is_repeated: bool) -> Result<Vec<Option<ReplyError>>, Repeat> {
        let mut errors = vec![None; writes.len()];
        let pieces: Vec<Piece> = (0..).zip(writes).flat_map(|it| pieces_of(it, is_repeated)).collect();
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            if self.has_written && !self.has_consent() {
                self.ask()?;
            }
            let independent = independent(rest);
            let mut sent = 0;
            // One at least, or a server that is slow would never get any.
            while sent < independent && (sent == 0 || self.has_consent()) {
                self.send(sent, &rest[sent], writes)?;
                sent += 1;
            }
            let (now, later) = rest.split_at(sent);
            let mut waiting: Vec<Option<&Piece>> = now.iter().map(Some).collect();
            for _ in now {
                let (piece, error) = self.read_answer(&mut waiting)?;
                errors[piece.write] = errors[piece.write].or(error);
            }
            rest = later;
        }
        Ok(errors)
    }

    fn send(&mut self, number: usize, piece: &Piece, writes: &[Arc<Job>]) -> io::Result<()> {
        self.has_written = true;
        let request = Request { cookie: number as u64, ..piece.request };
        let mut wire = self.wire;
        wire.write_all(&request.encode())?;
        wire.write_all(&writes[piece.write].payload[piece.payload.clone()])
    }

    /// Reads the next answer, and takes the piece that it is of by its number.
    fn read_answer<'p>(
        &self,
        waiting: &mut [Option<&'p Piece>],
    ) -> Result<(&'p Piece, Option<ReplyError>), Repeat> {
        let mut header = [0; SIMPLE_REPLY_BYTES];
        { self.wire }.read_exact(&mut header)?;
        let reply = SimpleReply::decode(&header).map_err(io::Error::other)?;
        let piece = usize::try_from(reply.cookie).ok().and_then(|number| waiting.get_mut(number)?.take());
        let piece = piece.ok_or_else(|| io::Error::other("an answer to no request"))?;
        match reply.error {
            Some(ReplyError::Shutdown) => Err(Repeat::Lost(io::ErrorKind::ConnectionAborted.into())),
            error => Ok((piece, error)),
        }
    }
}

/// Requests of a write.
fn pieces_of((write, job): (usize, &Arc<Job>), is_repeated: bool) -> Vec<Piece> {
    let mut request = job.request;
    if is_repeated {
        // It was quick when it was made; now it has to be.
        request.flags.remove(CommandFlags::FAST_ZERO);
    }
    if request.command != Command::Write {
        return vec![Piece { request, payload: 0..0, write }];
    }
    let piece = |start: usize| {
        let end = job.payload.len().min(start + PIECE_BYTES_MAX);
        let length = u32::try_from(end - start).expect("a piece is short");
        let request = Request { offset: request.offset + start as u64, length, ..request };
        Piece { request, payload: start..end, write }
    };
    (0..job.payload.len()).step_by(PIECE_BYTES_MAX).map(piece).collect()
}

/// Number of the first pieces of which no two overlap, so that the server may make them in any order.
fn independent(pieces: &[Piece]) -> usize {
    let range = |piece: &Piece| -> Range<u64> {
        let offset = piece.request.offset;
        offset..offset + u64::from(piece.request.length)
    };
    let mut taken: Vec<Range<u64>> = Vec::new();
    for piece in pieces.iter().take(PIECES_MAX) {
        let own = range(piece);
        if taken.iter().any(|other| other.start < own.end && own.start < other.end) {
            break;
        }
        taken.push(own);
    }
    taken.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn piece(offset: u64, length: u32) -> Piece {
        let (flags, command) = (CommandFlags::empty(), Command::Write);
        Piece { request: Request { flags, command, cookie: 0, offset, length }, payload: 0..0, write: 0 }
    }

    fn job(command: Command, flags: CommandFlags, length: usize) -> Arc<Job> {
        let payload = if command == Command::Write { vec![0; length] } else { Vec::new() };
        let length = u32::try_from(length).expect("small");
        let request = Request { flags, command, cookie: 7, offset: 1 << 30, length };
        let mut job = Job::new(request, Instant::now() + Duration::from_secs(1), [0; 2]);
        job.payload = payload;
        Arc::new(job)
    }

    #[test]
    fn pieces_are_independent_up_to_the_first_overlap() {
        let count = |pieces: &[(u64, u32)]| {
            independent(&pieces.iter().map(|(offset, length)| piece(*offset, *length)).collect::<Vec<_>>())
        };
        assert_eq!(count(&[(0, 8), (8, 8), (24, 8), (16, 8)]), 4);
        assert_eq!(count(&[(0, 8), (7, 8), (100, 8)]), 1);
        assert_eq!(count(&[(8, 8), (100, 8), (1, 8), (200, 8)]), 2);
        assert_eq!(count(&[(8, 8), (100, 8), (10, 2)]), 2);
        assert_eq!(count(&[(8, 8), (100, 8), (0, 200)]), 2);
        let apart: Vec<(u64, u32)> = (0..100).map(|at| (at * 8, 8)).collect();
        assert_eq!(count(&apart), PIECES_MAX);
    }

    #[test]
    fn pieces_cover_a_write_and_have_to_be_quick_no_more() {
        let flags = CommandFlags::FUA | CommandFlags::FAST_ZERO;
        let write = job(Command::Write, CommandFlags::FUA, 2 * PIECE_BYTES_MAX + 5);
        let pieces = pieces_of((3, &write), true);
        let covered: Vec<_> =
            pieces.iter().map(|piece| (piece.request.offset, piece.payload.clone())).collect();
        let (one, two) = (PIECE_BYTES_MAX, 2 * PIECE_BYTES_MAX);
        let at = |start: usize| (1 << 30) + start as u64;
        assert_eq!(covered, [(at(0), 0..one), (at(one), one..two), (at(two), two..two + 5)]);
        for piece in &pieces {
            assert_eq!(piece.request.length as usize, piece.payload.len());
            assert_eq!((piece.write, piece.request.flags), (3, CommandFlags::FUA));
        }
        let zeros = job(Command::WriteZeroes, flags, 1 << 20);
        for (is_repeated, expected) in [(true, CommandFlags::FUA), (false, flags)] {
            let [piece] = &pieces_of((0, &zeros), is_repeated)[..] else { panic!("one request") };
            assert_eq!((piece.request.flags, piece.request.length), (expected, 1 << 20));
        }
    }
}
