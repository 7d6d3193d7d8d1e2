//! Streams of send, made and taken by a mounted pool.
//!
//! The walk: the client makes two pipes and names them in an ioctl; the server opens both by `/proc` (`pipe.rs`), answers, and a
//! thread of its own sends into one of them, or receives from it, by [`brindle_care`], and tells what happens through the other.
//! Nothing is kept for a client: when it goes, its pipes end, and with them the work. A mount that ends does not wait for pipes.

mod pipe;

use super::incoming::{Arrival, Incoming};
use super::invalidations::Invalidations;
use super::mode::MountMode;
use super::nodes::Nodes;
use super::pages::KernelPages;
use crate::control_thread::{ControlThread, OwnThread};
use crate::errno::number;
use crate::permission::Caller;
use brindle_care::job::Control;
use brindle_care::receive::{ReceiveEvent, ReceiveOptions, receive};
use brindle_care::send::{SendEvent, SendOptions, send};
use brindle_fs::{FileType, Filesystem, InodeId, RootId, Subvolume};
use brindle_uapi::message::{
    RECEIVE_ONE_STREAM, ReceiveStart, SEND_COMPRESSED, SEND_NO_DATA, SEND_ONE_STREAM, STREAM_COMPLAINT,
    STREAM_DONE, STREAM_FAILED, STREAM_RECEIVED, STREAM_SENDS, STREAM_TEXT_MAX, SendStart, StreamEvent,
};
use pipe::{Pipe, Stop};
use rustix::io::Errno;
use std::io::{BufWriter, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use zerocopy::IntoBytes;

/// Streams under way at once.
const STREAMS_MAX: usize = 16;
/// Unit of reading and writing, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Streams of the mounted pool.
#[derive(Debug)]
pub(super) struct Streams {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    mode: Arc<MountMode>,
    pages: Arc<KernelPages>,
    invalidations: Arc<Invalidations>,
    incoming: Arc<Incoming>,
    running: Arc<Running>,
    stop: Arc<Stop>,
}

/// Streams under way.
#[derive(Debug, Default)]
struct Running {
    counts: Mutex<Counts>,
    /// One has ended.
    ended: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: usize,
    received: usize,
}

/// A stream under way, until this is dropped.
struct Turn {
    running: Arc<Running>,
    receives: bool,
}

impl Streams {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        mode: Arc<MountMode>,
        nodes: Arc<Nodes>,
        pages: Arc<KernelPages>,
        invalidations: Arc<Invalidations>,
        incoming: Arc<Incoming>,
    ) -> std::io::Result<Self> {
        let (running, stop) = (Arc::default(), Arc::new(Stop::new()?));
        Ok(Self { filesystem, nodes, mode, pages, invalidations, incoming, running, stop })
    }

    /// Begins to send subvolumes.
    pub(super) fn send(&self, caller: Caller, start: &SendStart) -> Result<(), Errno> {
        let options = send_options(start)?;
        let (stream, mut events) = self.pipes(caller, start.stream, start.events, Pipe::to_write)?;
        let turn = self.running.begin(false)?;
        let (filesystem, stop) = (Arc::clone(&self.filesystem), Arc::clone(&self.stop));
        let run = move || {
            let mut target = BufWriter::with_capacity(BUFFER_BYTES, stream);
            let sent = send(&filesystem, &options, &mut target, &mut |event| {
                if let SendEvent::Begun { subvolume, parent } = event {
                    events.tell(STREAM_SENDS, subvolume.id.get(), &paths(subvolume, *parent));
                }
                control(&stop)
            });
            // What is left after a failure is not worth a further one.
            drop(target.into_parts());
            events.tell_end(sent);
            // The mount ends when all turns have, and nothing holds the pool then.
            drop(filesystem);
            drop(turn);
        };
        std::thread::Builder::new().name("send".to_owned()).spawn(run).map_err(|_| Errno::AGAIN)?;
        Ok(())
    }

    /// Begins to receive subvolumes into a directory.
    pub(super) fn receive(&self, caller: Caller, node: u64, start: &ReceiveStart) -> Result<(), Errno> {
        if start.flags & !RECEIVE_ONE_STREAM != 0 {
            return Err(Errno::INVAL);
        }
        if !self.mode.is_written() {
            return Err(Errno::ROFS);
        }
        let directory = self.nodes.inode(node)?;
        if number(self.filesystem.attributes(directory))?.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        let (stream, events) = self.pipes(caller, start.stream, start.events, Pipe::to_read)?;
        let turn = self.running.begin(true)?;
        let one_stream = start.flags & RECEIVE_ONE_STREAM != 0;
        let receiving = Receiving {
            filesystem: Arc::clone(&self.filesystem),
            nodes: Arc::clone(&self.nodes),
            pages: Arc::clone(&self.pages),
            invalidations: Arc::clone(&self.invalidations),
            incoming: Arc::clone(&self.incoming),
            stop: Arc::clone(&self.stop),
            options: ReceiveOptions { errors_max: start.errors_max, one_stream },
            target: (node, directory),
        };
        let thread = ControlThread::start("receive").map_err(|_| Errno::AGAIN)?;
        thread.run(Box::new(move |own| {
            receiving.run(own, stream, events);
            drop(turn);
        }));
        Ok(())
    }

    /// Returns true while subvolumes are received.
    pub(super) fn is_receiving(&self) -> bool {
        self.running.counts().received > 0
    }

    /// Ends them all, for the mount ends.
    pub(super) fn end(&self) {
        self.stop.set();
        let counts = self.running.counts();
        drop(self.running.ended.wait_while(counts, |counts| counts.sent + counts.received > 0));
    }

    /// The pipes of a caller, of the stream and of events.
    fn pipes(
        &self,
        caller: Caller,
        stream: u32,
        events: u32,
        open: impl FnOnce(u32, u32, &Arc<Stop>) -> Result<Pipe, Errno>,
    ) -> Result<(Pipe, Events), Errno> {
        let stream = open(caller.pid, stream, &self.stop)?;
        Ok((stream, Events(Pipe::to_write(caller.pid, events, &self.stop)?)))
    }
}

impl Running {
    fn begin(self: &Arc<Self>, receives: bool) -> Result<Turn, Errno> {
        let mut counts = self.counts();
        if counts.sent + counts.received == STREAMS_MAX {
            return Err(Errno::BUSY);
        }
        *counts.of(receives) += 1;
        drop(counts);
        Ok(Turn { running: Arc::clone(self), receives })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn of(&mut self, receives: bool) -> &mut usize {
        if receives { &mut self.received } else { &mut self.sent }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.running.counts().of(self.receives) -= 1;
        self.running.ended.notify_all();
    }
}

/// Events, told to a client.
struct Events(Pipe);

impl Events {
    /// Tells one. A client that has gone needs none.
    fn tell(&mut self, kind: u32, id: u64, text: &[u8]) {
        let text = &text[..text.len().min(STREAM_TEXT_MAX)];
        let head = StreamEvent { kind, length: text.len().try_into().expect("it is bounded"), id };
        let _ = self.0.write_all(head.as_bytes()).and_then(|()| self.0.write_all(text));
    }

    fn tell_end<T>(&mut self, done: Result<T, impl std::fmt::Display>) {
        match done {
            Ok(_) => self.tell(STREAM_DONE, 0, &[]),
            Err(error) => self.tell(STREAM_FAILED, 0, error.to_string().as_bytes()),
        }
    }
}

/// Subvolumes that are to be received, and all that it takes.
struct Receiving {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    pages: Arc<KernelPages>,
    invalidations: Arc<Invalidations>,
    incoming: Arc<Incoming>,
    stop: Arc<Stop>,
    options: ReceiveOptions,
    /// The directory: its node and its inode.
    target: (u64, InodeId),
}

impl Receiving {
    /// Receives; nothing holds the pool afterwards.
    fn run(self, own: &OwnThread, stream: Pipe, mut events: Events) {
        let mut arrival: Option<Arrival> = None;
        let mut look = |event: &ReceiveEvent<'_>| {
            match event {
                // Before anything shows the subvolume: the kernel would keep for good what it learns of it without this.
                ReceiveEvent::Reserved(id) => arrival = Some(self.incoming.begin(*id)),
                ReceiveEvent::Begun(begun) => self.show(own, &begun.name, begun.id),
                // What other programs have written into it meanwhile is part of it, as on a mount of the kernel.
                ReceiveEvent::Command(placed) if placed.command.ends_subvolume() => {
                    if let Some(arrival) = &arrival {
                        self.pages.gather(own, Some(arrival.tree));
                    }
                }
                ReceiveEvent::Command(_) => {}
                ReceiveEvent::Failed(error) => {
                    events.tell(STREAM_COMPLAINT, 0, error.to_string().as_bytes());
                }
                ReceiveEvent::Finished(received) => {
                    arrival = None;
                    self.show(own, &received.name, received.id);
                    events.tell(STREAM_RECEIVED, received.id.get(), &received.name);
                }
            }
            control(&self.stop)
        };
        let done = receive(&self.filesystem, self.target.1, stream, &self.options, &mut look);
        drop(arrival);
        events.tell_end(done);
    }

    /// Has the kernel look at a subvolume anew.
    fn show(&self, own: &OwnThread, name: &[u8], id: RootId) {
        self.invalidations.entry_changed(own, self.target.0, name);
        if let Some(root) = self.nodes.known(InodeId::root_of(id)) {
            self.invalidations.attributes_changed(root);
        }
    }
}

fn control(stop: &Stop) -> Control {
    if stop.is_set() { Control::Cancel } else { Control::Continue }
}

/// The path of a subvolume, and behind a zero that of its parent.
fn paths(subvolume: &Subvolume, parent: Option<&Subvolume>) -> Vec<u8> {
    let mut text = subvolume.path.clone();
    if let Some(parent) = parent {
        text.push(0);
        text.extend_from_slice(&parent.path);
    }
    text
}

fn send_options(start: &SendStart) -> Result<SendOptions, Errno> {
    if start.flags & !(SEND_COMPRESSED | SEND_NO_DATA | SEND_ONE_STREAM) != 0 {
        return Err(Errno::INVAL);
    }
    let is_set = |flag: u32| start.flags & flag != 0;
    let count = |count: u32| usize::try_from(count).map_err(|_| Errno::INVAL);
    let (count, source_count) = (count(start.count)?, count(start.source_count)?);
    let ids = |from: usize, count: usize| {
        let to = from.checked_add(count).ok_or(Errno::INVAL)?;
        let ids = start.ids.get(from..to).ok_or(Errno::INVAL)?;
        Ok(ids.iter().map(|id| RootId::new(*id)).collect::<Vec<RootId>>())
    };
    if count == 0 {
        return Err(Errno::INVAL);
    }
    Ok(SendOptions {
        subvolumes: ids(0, count)?,
        parent: Some(start.parent).filter(|id| *id != 0).map(RootId::new),
        sources: ids(count, source_count)?,
        version: start.version,
        compressed: is_set(SEND_COMPRESSED),
        no_data: is_set(SEND_NO_DATA),
        one_stream: is_set(SEND_ONE_STREAM),
    })
}
