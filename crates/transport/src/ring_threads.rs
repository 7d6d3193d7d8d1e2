//! Threads that serve a mount by rings.

use crate::channel::Channel;
use crate::decode::{Message, decode};
use crate::interrupt::Effects;
use crate::ring::{Crew, Desk, Left, Received, Ring, Slot};
use crate::server::{NO_REQUEST, Server};
use crate::turns::DeviceWaits;
use crate::way::Way;
use rustix::io::Errno;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Threads of a queue, at least.
const THREADS_MIN: usize = 4;

/// Threads of the rings.
#[derive(Debug)]
pub(crate) struct RingThreads {
    threads: Vec<JoinHandle<io::Result<()>>>,
    crew: Arc<Crew>,
}

/// Serves a mount by rings that it has agreed on.
///
/// # Errors
/// Rings that can't be had; requests come by `/dev/fuse` then.
pub(crate) fn start<S: Server>(
    mount: &Arc<Channel>,
    server: &Arc<S>,
    queues: u16,
    threads: usize,
) -> io::Result<RingThreads> {
    let mut refusal = Ring::new()?;
    refusal.enable()?;
    // Together somewhat more threads than by `/dev/fuse`, as those of one queue are of no use to another.
    let per_queue = (2 * threads).div_ceil(usize::from(queues)).clamp(THREADS_MIN, threads.max(THREADS_MIN));
    let crew = Arc::new(Crew::new(queues, per_queue, mount.write_bytes_max));
    let started = try_start(mount, server, &crew);
    if started.is_err() {
        crew.end();
        refusal.refuse(mount.descriptor.as_fd())?;
    }
    started
}

fn try_start<S: Server>(mount: &Arc<Channel>, server: &Arc<S>, crew: &Arc<Crew>) -> io::Result<RingThreads> {
    let entry = |slot| Ok((Ring::new()?, slot));
    let entries = crew.first_slots().map(entry).collect::<io::Result<Vec<_>>>()?;
    let (report, reports) = channel();
    let (mut handles, mut gates) = (Vec::new(), Vec::new());
    for (number, (ring, slot)) in entries.into_iter().enumerate() {
        let (gate, opened) = channel::<()>();
        let mut worker = Worker::new(Arc::clone(mount), Arc::clone(server), Arc::clone(crew));
        let report = report.clone();
        let thread = std::thread::Builder::new().name(format!("ring {} {number}", slot.queue()));
        handles.push(thread.spawn(move || worker.begin(ring, slot, &opened, &report))?);
        gates.push(gate);
    }
    let (extra_mount, extra_server, extra_crew) = (Arc::clone(mount), Arc::clone(server), Arc::clone(crew));
    crew.set_starter(Box::new(move || {
        let mut worker =
            Worker::new(Arc::clone(&extra_mount), Arc::clone(&extra_server), Arc::clone(&extra_crew));
        let thread = std::thread::Builder::new().name("ring spare".to_owned());
        thread.spawn(move || {
            let ring = Ring::new()?;
            ring.enable()?;
            worker.work(ring, None)
        })
    }));
    drop(report);
    gates.iter().try_for_each(|gate| gate.send(())).map_err(io::Error::other)?;
    reports.iter().take(handles.len()).collect::<io::Result<()>>()?;
    Ok(RingThreads { threads: handles, crew: Arc::clone(crew) })
}

impl RingThreads {
    /// Waits for the end of the mount.
    pub(crate) fn join(self) -> impl Iterator<Item = std::thread::Result<io::Result<()>>> {
        let Self { threads, crew } = self;
        let ended: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        // Those that were started have no slot any more, or are told so by the kernel.
        let started = crew.take_started().into_iter().map(JoinHandle::join);
        ended.into_iter().chain(started)
    }
}

/// A thread that serves.
struct Worker<S> {
    mount: Arc<Channel>,
    server: Arc<S>,
    crew: Arc<Crew>,
    desk: Arc<Desk>,
    /// Copy of the message that is served.
    message: Vec<u8>,
}

impl<S: Server> Worker<S> {
    fn new(mount: Arc<Channel>, server: Arc<S>, crew: Arc<Crew>) -> Self {
        let desk = Arc::new(Desk::new(Arc::clone(&crew)));
        Self { mount, server, crew, desk, message: Vec::new() }
    }

    /// Registers a slot once the gate is opened, reports, and works.
    fn begin(
        &mut self,
        mut ring: Ring,
        slot: Slot,
        gate: &Receiver<()>,
        report: &Sender<io::Result<()>>,
    ) -> io::Result<()> {
        if gate.recv().is_err() {
            return Ok(());
        }
        let registered = ring.enable().and_then(|()| {
            ring.push(self.mount.descriptor.as_fd(), slot);
            ring.submit()?.map_err(io::Error::from)
        });
        let is_registered = registered.is_ok();
        report.send(registered).ok();
        if is_registered {
            // The others begin to serve when all are there; none is needed any more where one is not.
            return self.work(ring, None);
        }
        Ok(())
    }

    fn work(&mut self, mut ring: Ring, first: Option<Slot>) -> io::Result<()> {
        let effects = Effects::new(Arc::clone(&self.mount.interrupts));
        self.server.enter_thread(DeviceWaits::without_turns(), effects.clone());
        let mut slot = first;
        loop {
            if !ring.is_under_way() {
                let Some(answered) = slot.take().or_else(|| self.crew.next()) else { return Ok(()) };
                ring.push(self.mount.descriptor.as_fd(), answered);
            }
            match ring.wait()? {
                Received::Request(received) => slot = self.serve(received, &effects),
                // The kernel gives all entries back at the end of a mount.
                Received::Failed(Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV, _) => {
                    self.crew.end();
                    return Ok(());
                }
                Received::Failed(error, lost) if lost.commit().is_some() => {
                    tracing::error!("the kernel does not take an answer: {error}");
                    slot = Some(self.crew.slot(lost.queue()));
                    // It may be used by the kernel still.
                    std::mem::forget(lost);
                }
                Received::Failed(error, _) => return Err(error.into()),
            }
        }
    }

    /// Does a request. Returns the slot to go on with.
    fn serve(&mut self, mut slot: Slot, effects: &Effects) -> Option<Slot> {
        let (queue, unique) = (slot.queue(), slot.header().unique);
        let mut kept = None;
        let message = if slot.is_write_back() {
            kept.insert(slot).message()
        } else {
            self.message.clear();
            self.message.extend_from_slice(slot.message());
            self.desk.put(slot);
            &self.message[..]
        };
        let way = Way::Ring(Arc::clone(&self.desk));
        // A reply that is dropped by a panic answers, and another thread passes the answer on.
        let served = catch_unwind(AssertUnwindSafe(|| match decode(message, &self.mount, &way) {
            Message::Request(request, unique) => {
                effects.of_request(unique);
                self.server.serve(request);
                effects.of_request(NO_REQUEST);
            }
            Message::Refused { opcode, error, .. } => {
                if error != Errno::NOSYS {
                    tracing::error!("a malformed message of the kernel, of operation {opcode}");
                }
                self.desk.answer(unique, Err(error));
            }
            // These keep to the other way.
            Message::Forget(_) | Message::Interrupt(_) => self.desk.answer(unique, Err(Errno::INVAL)),
        }));
        let left = self.desk.leave(kept);
        if let Err(panic) = served {
            if let Left::Answered(slot) = left {
                self.crew.inherited(slot);
            }
            resume_unwind(panic);
        }
        match left {
            Left::Answered(slot) => Some(slot),
            Left::Later => {
                self.desk = Arc::new(Desk::new(Arc::clone(&self.crew)));
                self.crew.later(queue)
            }
            Left::Taken => {
                self.desk = Arc::new(Desk::new(Arc::clone(&self.crew)));
                self.crew.returned();
                None
            }
        }
    }
}

/// A thread that serves the entry of a ring, without a ring: the fuzzer fills the entry as a kernel would, or never would.
#[cfg(fuzzing)]
pub struct RingThread<S> {
    worker: Worker<S>,
    slot: Option<Slot>,
}

#[cfg(fuzzing)]
impl<S: Server> RingThread<S> {
    /// A thread of a mount.
    pub fn new(mount: &Arc<Channel>, server: &Arc<S>) -> Self {
        let crew = Arc::new(Crew::new(1, 1, mount.write_bytes_max));
        let slot = Some(crew.slot(0));
        Self { worker: Worker::new(Arc::clone(mount), Arc::clone(server), crew), slot }
    }

    /// Serves a request whose head and payload are these, cut to what an entry has; what is missing is that of the answer before.
    /// Returns the head and the payload of the answer.
    pub fn serve(&mut self, head: &[u8], payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut slot = self.slot.take().expect("the answer before was no late one");
        slot.fill(head, payload);
        let effects = Effects::new(Arc::clone(&self.worker.mount.interrupts));
        let slot = self.worker.serve(slot, &effects).expect("the server answers at once");
        let answer = slot.contents();
        self.slot = Some(slot);
        answer
    }
}
