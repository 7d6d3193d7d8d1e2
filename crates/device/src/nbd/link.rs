//! Requests without an answer, and the connection that they are sent on.

use super::connect::{Facts, Limits};
use super::job::{Job, JobAnswer};
use super::journal::{Journal, cost};
use super::wire::Wire;
use crate::{DeviceError, ReadAnswer, ReadUnderWay, ReconnectGuard};
use brindle_nbd::{Command, CommandFlags, NbdUri, Request};
use brindle_sync::{Condvar, Mutex, MutexGuard, Rank};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Memory for writes that are not flushed, in bytes.
const UNFLUSHED_BYTES_MAX: usize = 64 << 20;

/// A connection that requests are sent on.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) wire: Wire,
    /// Held by the thread that sends.
    sending: Mutex<()>,
}

impl Link {
    pub(super) fn new(wire: Wire) -> Arc<Self> {
        Arc::new(Self { wire, sending: Mutex::new(Rank::DeviceRequest, ()) })
    }

    /// Sends a request. A failure ends the connection, and the thread that reads answers finds that.
    pub(super) fn send(&self, job: &Job) -> io::Result<()> {
        let _sending = self.sending.lock_after_panic();
        let mut wire = &self.wire;
        let sent = wire.write_all(&job.header()).and_then(|()| wire.write_all(&job.payload));
        sent.inspect_err(|_| self.end())
    }

    pub(super) fn end(&self) {
        self.wire.end();
    }
}

/// State of a device that its users and the thread of the answers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) uri: NbdUri,
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) facts: Facts,
    /// Size of the export in bytes; it only grows.
    size_bytes: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) link: Option<Arc<Link>>,
    next_cookie: u64,
    /// Requests without an answer, by number, and when each was sent on the present connection.
    pub(super) in_flight: BTreeMap<u64, (Arc<Job>, Instant)>,
    pub(super) journal: Journal,
    /// Memory of writes, under way or in the journal.
    unflushed_bytes: usize,
    /// Durable requests that failed.
    failures: u64,
    /// True if a write was told of a failure of earlier ones, and no flush yet: the server may tell it once.
    is_owed: bool,
    /// The end: the reason for which all requests fail from now on.
    failure: Option<(io::ErrorKind, String)>,
    pub(super) is_closed: bool,
    /// Judge of the device on each further connection.
    pub(super) guard: Option<Arc<dyn ReconnectGuard>>,
}

impl State {
    fn failure(&self) -> Option<io::Error> {
        self.failure.as_ref().map(|(kind, reason)| io::Error::new(*kind, reason.clone()))
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.failure.is_some()
    }
}

impl Shared {
    pub(super) fn new(uri: NbdUri, limits: Limits, facts: Facts, wire: Wire) -> Self {
        let state = State {
            link: Some(Link::new(wire)),
            next_cookie: 1,
            in_flight: BTreeMap::new(),
            journal: Journal::default(),
            unflushed_bytes: 0,
            failures: 0,
            is_owed: false,
            failure: None,
            is_closed: false,
            guard: None,
        };
        let state = Mutex::new(Rank::DeviceQueue, state);
        let size_bytes = AtomicU64::new(facts.size_bytes);
        Self { name: uri.to_string(), uri, limits, facts, size_bytes, state, changed: Condvar::new() }
    }

    /// Size of the export in bytes.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Takes a larger size. Requests go on by another connection, on which the server knows it too.
    pub(super) fn grow(&self, size_bytes: u64) {
        if self.size_bytes.fetch_max(size_bytes, Ordering::AcqRel) < size_bytes {
            self.state().link.iter().for_each(|link| link.end());
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until something changes or the time is over.
    pub(super) fn wait_for_change<'s>(
        &self,
        state: MutexGuard<'s, State>,
        limit: std::time::Duration,
    ) -> MutexGuard<'s, State> {
        self.changed.wait_timeout(state, limit).0
    }

    /// Takes memory for a write, by a flush if there is none.
    pub(super) fn make_room(&self, payload_bytes: usize) -> io::Result<()> {
        let deadline = Instant::now() + self.limits.timeout;
        let mut state = self.state();
        loop {
            if let Some(error) = state.failure() {
                return Err(error);
            }
            if state.unflushed_bytes + cost(payload_bytes) <= UNFLUSHED_BYTES_MAX {
                state.unflushed_bytes += cost(payload_bytes);
                return Ok(());
            }
            if state.journal.is_empty() {
                // All of it is under way: an answer makes it part of the journal, or gives it back.
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    drop(state);
                    return Err(self.fail(io::ErrorKind::TimedOut, "writes are not answered"));
                }
                state = self.wait_for_change(state, left);
                continue;
            }
            drop(state);
            let flush = self.submit_flush_for_write();
            self.wait(&flush)?;
            state = self.state();
        }
    }

    pub(super) fn submit_flush(&self) -> Arc<Job> {
        self.submit(Command::Flush, CommandFlags::empty(), 0, 0, Vec::new())
    }

    /// A flush that a write waits for: the next flush of a caller is told of its failure, too.
    pub(super) fn submit_flush_for_write(&self) -> Arc<Job> {
        let request = |cookie| Request {
            flags: CommandFlags::empty(),
            command: Command::Flush,
            cookie,
            offset: 0,
            length: 0,
        };
        self.submit_job(request, |job| job.is_for_write = true)
    }

    /// Sends a request; without a connection it is sent when there is one. Memory for a write was taken before.
    pub(super) fn submit(
        &self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u32,
        payload: Vec<u8>,
    ) -> Arc<Job> {
        let request = |cookie| Request { flags, command, cookie, offset, length };
        self.submit_job(request, |job| job.payload = payload)
    }

    fn submit_job(&self, request: impl FnOnce(u64) -> Request, complete: impl FnOnce(&mut Job)) -> Arc<Job> {
        let now = Instant::now();
        let mut state = self.state();
        let cookie = state.next_cookie;
        state.next_cookie += 1;
        let before = [state.journal.count(), state.failures];
        let mut job = Job::new(request(cookie), now + self.limits.timeout, before);
        complete(&mut job);
        let job = Arc::new(job);
        if let Some(error) = state.failure() {
            drop(state);
            job.answer(Err(error));
            return job;
        }
        state.in_flight.insert(cookie, (Arc::clone(&job), now));
        let link = state.link.clone();
        drop(state);
        if let Some(link) = link {
            // A failure is found by the thread of the answers, which sends it again.
            let _ = link.send(&job);
        }
        job
    }

    /// Waits for an answer, and takes it. Without one at its deadline, the device fails.
    pub(super) fn wait(&self, job: &Job) -> JobAnswer {
        self.wait_until_answered(job);
        job.take()
    }

    fn wait_until_answered(&self, job: &Job) {
        if !job.wait() {
            let seconds = self.limits.timeout.as_secs();
            self.fail(io::ErrorKind::TimedOut, &format!("the server has not answered for {seconds} s"));
            // Its own answer is that of the failure, or came at the last moment.
            while !job.is_answered() {
                drop(self.wait_for_change(self.state(), self.limits.tick()));
            }
        }
    }

    /// Takes a request out of the table when its answer is there, keeps what has to be kept, and answers it: a flush by an error, too, if
    /// another request was told of a failure since it was asked for, or a durable write since the last flush.
    pub(super) fn settle(&self, cookie: u64, mut answer: JobAnswer) {
        let mut state = self.state();
        let Some((job, _)) = state.in_flight.remove(&cookie) else { return };
        let is_flush = job.request.command == Command::Flush;
        if is_flush || job.is_durable_write() {
            let is_doubtful = state.is_owed || state.failures != job.failures;
            state.failures += u64::from(answer.is_err());
            // Decided here, not by its caller: a flush behind it must not come between.
            let tells_a_write = !is_flush || job.is_for_write;
            state.is_owed = tells_a_write && (state.is_owed || answer.is_err());
            if is_flush && is_doubtful && answer.is_ok() {
                let why = "an earlier write failed, of which another request was told";
                answer = Err(io::Error::other(why));
            }
        }
        match (job.is_write(), answer.is_ok()) {
            (true, true) => state.journal.push(Arc::clone(&job)),
            // A part of it may be written; no later request counts on it.
            (true, false) => state.unflushed_bytes -= cost(job.payload.len()),
            (false, true) if is_flush => {
                let freed = state.journal.forget(job.covers);
                state.unflushed_bytes -= freed;
            }
            (false, _) => {}
        }
        drop(state);
        self.changed.notify_all();
        job.answer(answer);
    }

    /// Fails the device for good: all requests without an answer, and all that come.
    pub(super) fn fail(&self, kind: io::ErrorKind, reason: &str) -> io::Error {
        let mut state = self.state();
        let failure = state.failure.get_or_insert_with(|| (kind, reason.to_owned())).clone();
        let error = || io::Error::new(failure.0, failure.1.clone());
        let jobs: Vec<Arc<Job>> =
            std::mem::take(&mut state.in_flight).into_values().map(|(job, _)| job).collect();
        state.link.take().iter().for_each(|link| link.end());
        drop(state);
        jobs.iter().for_each(|job| job.answer(Err(error())));
        self.changed.notify_all();
        error()
    }

    /// Ends the connection for good: the device is no longer used.
    pub(super) fn close(&self) {
        let mut state = self.state.lock_after_panic();
        state.is_closed = true;
        state.link.iter().for_each(|link| link.end());
        drop(state);
        self.changed.notify_all();
    }
}

/// A read that was submitted.
pub(super) struct ReadJob {
    pub(super) shared: Arc<Shared>,
    pub(super) job: Arc<Job>,
}

impl ReadUnderWay for ReadJob {
    fn is_answered(&self) -> bool {
        self.job.is_answered()
    }

    fn wait(&self) {
        self.shared.wait_until_answered(&self.job);
    }

    fn take(&self) -> ReadAnswer {
        let (offset, length) = (self.job.request.offset, self.job.request.length as usize);
        let answer = self.job.take().map(|bytes| bytes.expect("a read is answered by bytes"));
        answer.map_err(|source| DeviceError::Read {
            device: self.shared.name.clone(),
            offset,
            length,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_nbd::ExportFlags;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_flush_behind_that_of_a_write_is_told_what_the_write_was_told() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let uri = NbdUri::parse("nbd+unix:///?socket=/none").expect("of NBD").expect("a URI");
        let limits = Limits::of(&uri);
        let flags = ExportFlags::HAS_FLAGS | ExportFlags::SEND_FLUSH;
        let facts = Facts { size_bytes: 1 << 20, flags, unit: 1, payload_max: 1 << 20 };
        let shared = Shared::new(uri, limits, facts, Wire::plain(ours));
        let settle = |job: &Job, answer: JobAnswer| {
            shared.settle(job.request.cookie, answer);
            job.take().is_ok()
        };
        let lost = || Err(io::Error::other("lost"));
        // Of the failures of a write and of a flush alike; the writes' threads have not gone on yet.
        for told in [lost(), Ok(None)] {
            if told.is_ok() {
                shared.make_room(0).expect("there is room");
                let write = shared.submit(Command::Write, CommandFlags::FUA, 0, 0, Vec::new());
                assert!(!settle(&write, lost()));
            }
            assert!(!settle(&shared.submit_flush_for_write(), told));
            assert!(!settle(&shared.submit_flush(), Ok(None)), "the server told the write alone");
            assert!(settle(&shared.submit_flush(), Ok(None)), "all is told");
        }
    }
}
