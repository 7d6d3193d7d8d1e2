//! The threads that serve a mount.

use crate::channel::Channel;
use crate::decode::{Message, decode};
use crate::handshake::{buffer_bytes, without_rings};
use crate::interrupt::{Effects, is_killed};
use crate::ring_threads::{self, RingThreads};
use crate::server::{NO_REQUEST, Server};
use crate::turns::{Pace, Turns, Worker};
use crate::way::Way;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A mount that is being served. To be joined; dropped, its threads go on.
#[derive(Debug)]
#[must_use = "the threads go on, and their errors are lost"]
pub struct Session {
    threads: Vec<JoinHandle<io::Result<()>>>,
    rings: Option<RingThreads>,
}

impl Session {
    /// Serves a mount by a number of threads.
    ///
    /// # Errors
    /// Threads that can't be made. Those that were made already end with the mount.
    pub fn start<S: Server>(channel: &Arc<Channel>, server: &Arc<S>, threads: usize) -> io::Result<Self> {
        Self::start_watched(channel, server, threads, is_killed)
    }

    /// The same, with a test for callers that were killed.
    fn start_watched<S: Server>(
        channel: &Arc<Channel>,
        server: &Arc<S>,
        threads: usize,
        is_killed: impl Fn(u32) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        // Before any thread could take a request: the kernel holds them back.
        let rings = Self::start_rings(channel, server, threads)?;
        let turns = Arc::new(Turns::new(Arc::clone(channel), server.looks_out())?);
        let watched = Arc::clone(channel);
        std::thread::Builder::new()
            .name("killed callers".to_owned())
            .spawn(move || watched.watch_callers(is_killed))?;
        let start = |number| {
            let (channel, server, turns) = (Arc::clone(channel), Arc::clone(server), Arc::clone(&turns));
            let thread = std::thread::Builder::new().name(format!("request {number}"));
            thread.spawn(move || work(&channel, &*server, turns.enter()))
        };
        Ok(Self { threads: (0..threads.max(1)).map(start).collect::<io::Result<_>>()?, rings })
    }

    fn start_rings<S: Server>(
        channel: &Arc<Channel>,
        server: &Arc<S>,
        threads: usize,
    ) -> io::Result<Option<RingThreads>> {
        let Some(queues) = channel.queues else { return Ok(None) };
        match ring_threads::start(channel, server, queues, threads) {
            Ok(rings) => {
                tracing::debug!("requests come by io_uring, in {queues} queues");
                Ok(Some(rings))
            }
            Err(error) if channel.needs_rings => Err(without_rings(&error)),
            Err(error) => {
                tracing::debug!("{}", without_rings(&error));
                Ok(None)
            }
        }
    }

    /// Returns true if requests come by rings.
    pub fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Waits for the end of the mount.
    ///
    /// # Errors
    /// The first error of a thread; a panic is one.
    pub fn join(self) -> io::Result<()> {
        let rings = self.rings.into_iter().flat_map(RingThreads::join);
        let ends = self.threads.into_iter().map(JoinHandle::join).chain(rings).map(|end| {
            end.unwrap_or_else(|_| Err(io::Error::other("a thread that serves the mount panicked")))
        });
        // All of them, before any error is told.
        ends.collect::<Vec<_>>().into_iter().collect()
    }
}

fn work<S: Server>(channel: &Arc<Channel>, server: &S, mut worker: Worker) -> io::Result<()> {
    let effects = Effects::new(Arc::clone(&channel.interrupts));
    server.enter_thread(worker.device_waits(), effects.clone());
    let mut buffer = vec![0; buffer_bytes(channel.write_bytes_max)];
    while let Some(message) = channel.descriptor.receive(&mut buffer)? {
        match decode(message, channel, &Way::Device) {
            Message::Request(request, unique) => {
                let _turn = worker.begin(server.pace(&request));
                effects.of_request(unique);
                server.serve(request);
                effects.of_request(NO_REQUEST);
            }
            Message::Interrupt(unique) => {
                channel.interrupt(unique);
                worker.pass();
            }
            Message::Forget(forgotten) => {
                let mut leftovers = Vec::new();
                forgotten.for_each(|node, lookups| leftovers.extend(server.forget(node, lookups)));
                if leftovers.is_empty() {
                    worker.pass();
                } else {
                    // A caller that waits already is served by this thread soonest where processors are scarce; the next
                    // request of one that does not wait yet is another thread's.
                    let pace = if channel.descriptor.has_message() { Pace::Quick } else { Pace::Slow };
                    let _turn = worker.begin(pace);
                    leftovers.into_iter().for_each(|leftover| server.clear(leftover));
                }
            }
            Message::Refused { unique, opcode, error } => {
                if error != Errno::NOSYS {
                    tracing::error!("a malformed message of the kernel, of operation {opcode}");
                }
                let _turn = worker.begin(Pace::Quick);
                if let Some(unique) = unique {
                    channel.descriptor.answer(unique, Err(error));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
