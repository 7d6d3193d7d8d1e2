//! The thread that reads answers, and connects again.

use super::connect::{self, Facts};
use super::job::Job;
use super::link::{Link, Shared};
use super::repeat::{Repeat, repeat};
use super::wire::Wire;
use crate::Buffer;
use brindle_nbd::{Command, ExportFlags, ReplyError, SIMPLE_REPLY_BYTES, SimpleReply};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First pause between two attempts to connect; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

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
    link.wire.set_read_timeout(shared.limits.tick())?;
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
            Some(error) => Err(io::Error::from_raw_os_error(error.number() as i32)),
            None if asked.command == Command::Read => {
                let mut buffer = Buffer::new(asked.length as usize);
                read_exact(shared, link, &mut buffer)?;
                Ok(Some(buffer))
            }
            None => Ok(None),
        };
        // Failed meanwhile, it has an answer already.
        shared.settle(reply.cookie, answer);
    }
}

/// Fills a buffer, and gives up a server that is silent for too long.
fn read_exact(shared: &Shared, link: &Link, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    let mut last = Instant::now();
    while filled < buffer.len() {
        match (&link.wire).read(&mut buffer[filled..]) {
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
        let (wire, facts) = match attempt {
            Ok(connected) => connected,
            Err(error) => {
                reason = error.to_string();
                continue;
            }
        };
        if let Err(why) = compare(&shared.facts, shared.size_bytes(), &facts) {
            shared.fail(io::ErrorKind::InvalidData, why);
            return None;
        }
        match repeat(shared, facts, &wire) {
            Ok(()) => return resume(shared, wire),
            Err(Repeat::Lost(error)) => reason = error.to_string(),
            Err(Repeat::NotOwn(why)) => {
                let why = format!("the connection was lost, and nothing is written any more: {why}");
                shared.fail(io::ErrorKind::PermissionDenied, &why);
                return None;
            }
            Err(Repeat::Refused(error)) => {
                let error = io::Error::from_raw_os_error(error.number() as i32);
                let why = format!("the connection was lost, and a write could not be repeated: {error}");
                shared.fail(io::ErrorKind::Other, &why);
                return None;
            }
        }
    }
}

/// Refuses an export that is not the one of before.
fn compare(before: &Facts, size_bytes: u64, now: &Facts) -> Result<(), &'static str> {
    // Only what this client uses has to be there still.
    let used = ExportFlags::SEND_FLUSH | ExportFlags::SEND_FUA | ExportFlags::SEND_WRITE_ZEROES;
    // A larger one has grown, and is used as far as it is known.
    if now.size_bytes < size_bytes {
        return Err("the connection was lost, and the export is shorter now");
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

/// Puts the connection in its place, and sends again what has no answer.
fn resume(shared: &Shared, wire: Wire) -> Option<Arc<Link>> {
    let link = Link::new(wire);
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
