//! The thread that reads answers, and connects again.

use super::connect::{self, Facts};
use super::job::Job;
use super::link::{Link, Shared};
use super::reader::Reader;
use crate::{Buffer, ReconnectError};
use brindle_nbd::{Command, CommandFlags, ExportFlags, ReplyError, SIMPLE_REPLY_BYTES, SimpleReply};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First pause between two attempts to connect; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Writes that are repeated before their answers are read.
const REPEATED_MAX: usize = 32;

/// Reads answers until the device is closed or has failed.
pub(super) fn run(shared: &Shared) {
    let mut link = shared.state().link.clone();
    while let Some(present) = link {
        let Err(error) = receive(shared, &present);
        present.end();
        {
            let mut state = shared.state();
            state.link = None;
            if state.is_over() {
                return;
            }
        }
        link = reconnect(shared, &error);
    }
}

/// Reads answers as long as the connection lasts.
fn receive(shared: &Shared, link: &Link) -> io::Result<std::convert::Infallible> {
    link.stream.set_read_timeout(Some(shared.limits.tick()))?;
    loop {
        let mut header = [0; SIMPLE_REPLY_BYTES];
        read_exact(shared, link, &mut header)?;
        let reply = SimpleReply::decode(&header)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if reply.error == Some(ReplyError::Shutdown) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server is about to end"));
        }
        let asked = shared.state().in_flight.get(&reply.cookie).map(|(job, _)| job.request);
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "an answer to no request");
        let asked = asked.ok_or_else(unknown)?;
        let answer = match reply.error {
            Some(error) => Err(io::Error::from_raw_os_error(error.number().cast_signed())),
            None if asked.command == Command::Read => {
                let mut buffer = Buffer::new(asked.length as usize);
                read_exact(shared, link, &mut buffer)?;
                Ok(Some(buffer))
            }
            None => Ok(None),
        };
        // Failed meanwhile, it has an answer already.
        if let Some(job) = shared.settle(reply.cookie, answer.is_ok()) {
            job.answer(answer);
        }
    }
}

/// Fills a buffer, and gives up a server that is silent for too long.
fn read_exact(shared: &Shared, link: &Link, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    let mut last = Instant::now();
    while filled < buffer.len() {
        match (&link.stream).read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has left")),
            Ok(length) => {
                filled += length;
                last = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let state = shared.state();
                // The first has waited for longest, unless it was sent again.
                let oldest = state.in_flight.values().map(|(_, sent)| *sent).min();
                let since = if filled > 0 { Some(last) } else { oldest };
                if state.is_over() || since.is_some_and(|since| since.elapsed() >= shared.limits.hang) {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Connects again; `None` if the device is closed or has failed.
fn reconnect(shared: &Shared, lost: &io::Error) -> Option<Arc<Link>> {
    let mut pause = PAUSE_MIN;
    let mut reason = lost.to_string();
    loop {
        {
            let mut state = shared.state();
            let deadline = state.in_flight.values().map(|(job, _)| job.deadline).min();
            if state.is_over() {
                return None;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                drop(state);
                shared.fail(io::ErrorKind::TimedOut, &format!("the connection is lost: {reason}"));
                return None;
            }
            state = shared.wait_for_change(state, pause);
            if state.is_over() {
                return None;
            }
        }
        pause = (pause * 2).min(PAUSE_MAX);
        let attempt = connect::connect(&shared.uri, shared.limits.hang);
        let (stream, facts) = match attempt {
            Ok(connected) => connected,
            Err(error) => {
                reason = error.to_string();
                continue;
            }
        };
        if let Err(why) = compare(&shared.facts, &facts) {
            shared.fail(io::ErrorKind::InvalidData, why);
            return None;
        }
        let repeated = ask(shared, facts, &stream).and_then(|()| repeat(shared, &stream));
        match repeated {
            Ok(()) => return resume(shared, stream),
            Err(Repeat::Lost(error)) => reason = error.to_string(),
            Err(Repeat::NotOwn(why)) => {
                let why = format!("the connection was lost, and nothing is written any more: {why}");
                shared.fail(io::ErrorKind::PermissionDenied, &why);
                return None;
            }
            Err(Repeat::Refused(error)) => {
                let error = io::Error::from_raw_os_error(error.number().cast_signed());
                let why = format!("the connection was lost, and a write could not be repeated: {error}");
                shared.fail(io::ErrorKind::Other, &why);
                return None;
            }
        }
    }
}

/// Refuses an export that is not the one of before.
fn compare(before: &Facts, now: &Facts) -> Result<(), &'static str> {
    // Only what this client uses has to be there still.
    let used = ExportFlags::SEND_FLUSH | ExportFlags::SEND_FUA | ExportFlags::SEND_WRITE_ZEROES;
    if before.size_bytes != now.size_bytes {
        return Err("the connection was lost, and the export has another size now");
    }
    if now.flags.contains(ExportFlags::READ_ONLY) && !before.flags.contains(ExportFlags::READ_ONLY) {
        return Err("the connection was lost, and the export is read-only now");
    }
    if !now.flags.contains(before.flags & used)
        || now.unit > before.unit
        || now.payload_max < before.payload_max
    {
        return Err("the connection was lost, and the server can do less now");
    }
    Ok(())
}

/// Reason for which writes were not repeated.
enum Repeat {
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

/// Asks the guard of the device, if it has one, before anything is written on the connection.
fn ask(shared: &Shared, facts: Facts, stream: &UnixStream) -> Result<(), Repeat> {
    let Some(guard) = shared.state().guard.clone() else { return Ok(()) };
    stream.set_read_timeout(Some(shared.limits.hang))?;
    guard.admit(&Reader { name: &shared.name, facts, stream }).map_err(|error| match error {
        ReconnectError::Unreadable(error) => Repeat::Lost(io::Error::other(error)),
        ReconnectError::Refused { why } => Repeat::NotOwn(why),
    })
}

/// Repeats the writes that may be lost. Nothing else is under way on the connection.
fn repeat(shared: &Shared, stream: &UnixStream) -> Result<(), Repeat> {
    let writes = shared.state().journal.writes();
    stream.set_read_timeout(Some(shared.limits.hang))?;
    let mut rest = &writes[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(independent(rest));
        for write in now {
            let mut request = write.request;
            // It was quick when it was made; now it has to be.
            request.flags.remove(CommandFlags::FAST_ZERO);
            (&*stream).write_all(&request.encode())?;
            (&*stream).write_all(&write.payload)?;
        }
        for _ in now {
            let mut header = [0; SIMPLE_REPLY_BYTES];
            (&*stream).read_exact(&mut header)?;
            let reply = SimpleReply::decode(&header).map_err(io::Error::other)?;
            if !now.iter().any(|write| write.request.cookie == reply.cookie) {
                return Err(Repeat::Lost(io::Error::other("an answer to no request")));
            }
            match reply.error {
                None => {}
                Some(ReplyError::Shutdown) => {
                    return Err(Repeat::Lost(io::ErrorKind::ConnectionAborted.into()));
                }
                Some(error) => return Err(Repeat::Refused(error)),
            }
        }
        rest = later;
    }
    Ok(())
}

/// Number of the first writes of which no two overlap, so that the server may make them in any order.
fn independent(writes: &[Arc<Job>]) -> usize {
    let range = |write: &Arc<Job>| -> Range<u64> {
        let offset = write.request.offset;
        offset..offset + u64::from(write.request.length)
    };
    let mut taken: Vec<Range<u64>> = Vec::new();
    for write in writes.iter().take(REPEATED_MAX) {
        let own = range(write);
        if taken.iter().any(|other| other.start < own.end && own.start < other.end) {
            break;
        }
        taken.push(own);
    }
    taken.len()
}

/// Puts the connection in its place, and sends again what has no answer.
fn resume(shared: &Shared, stream: UnixStream) -> Option<Arc<Link>> {
    let link = Link::new(stream);
    let jobs: Vec<Arc<Job>> = {
        let mut state = shared.state();
        if state.is_over() {
            return None;
        }
        state.link = Some(Arc::clone(&link));
        let now = Instant::now();
        state.in_flight.values_mut().for_each(|(_, sent)| *sent = now);
        state.in_flight.values().map(|(job, _)| Arc::clone(job)).collect()
    };
    let sender = Arc::clone(&link);
    // By another thread: the server may have answers taken before it takes more requests.
    let send = move || {
        let _ = jobs.iter().try_for_each(|job| sender.send(job));
    };
    if std::thread::Builder::new().name("nbd repeats".to_owned()).spawn(send).is_err() {
        link.end();
    }
    Some(link)
}
