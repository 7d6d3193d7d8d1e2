//! The threads that serve a mount.

use crate::channel::Channel;
use crate::decode::{Message, decode};
use crate::handshake::buffer_bytes;
use crate::notify::Notifier;
use crate::operation::Request;
use crate::turns::{DeviceWaits, Pace, Turns, Worker};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A filesystem that answers requests, of several threads at once.
pub trait Server: Send + Sync + 'static {
    /// Work that is left when the kernel has forgotten a node.
    type Leftover;

    /// A thread of the mount begins. Before it waits for a device, while it does a request, it should tell so.
    fn enter_thread(&self, waits: DeviceWaits);

    /// Returns true if a thread looks out for the next request for a moment before it sleeps. That takes the time of a
    /// processor, and saves that of waking up: worth it where a request is often followed by the next one at once.
    fn looks_out(&self) -> bool {
        true
    }

    /// The expected duration of a request. Does not wait.
    fn pace(&self, request: &Request<'_>) -> Pace;

    /// Answers a request, now or later.
    fn serve(&self, request: Request<'_>);

    /// The kernel has forgotten `lookups` of its lookups of a node. Does not wait: work that takes longer is returned.
    fn forget(&self, node: u64, lookups: u64) -> Option<Self::Leftover>;

    /// Does such work.
    fn clear(&self, leftover: Self::Leftover);
}

/// A mount that is being served. To be joined; dropped, its threads go on.
#[derive(Debug)]
#[must_use = "the threads go on, and their errors are lost"]
pub struct Session {
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Session {
    /// Serves a mount by a number of threads.
    ///
    /// # Errors
    /// Threads that can't be made. Those that were made already end with the mount.
    pub fn start<S: Server>(channel: &Arc<Channel>, server: &Arc<S>, threads: usize) -> io::Result<Self> {
        let turns = Arc::new(Turns::new(Arc::clone(channel), server.looks_out())?);
        let start = |number| {
            let (channel, server, turns) = (Arc::clone(channel), Arc::clone(server), Arc::clone(&turns));
            let thread = std::thread::Builder::new().name(format!("request {number}"));
            thread.spawn(move || work(&channel, &*server, turns.enter()))
        };
        Ok(Self { threads: (0..threads.max(1)).map(start).collect::<io::Result<_>>()? })
    }

    /// Waits for the end of the mount.
    ///
    /// # Errors
    /// The first error of a thread; a panic is one.
    pub fn join(self) -> io::Result<()> {
        let ends = self.threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that serves the mount panicked")))
        });
        // All of them, before any error is told.
        ends.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Channel {
    /// The way to tell the kernel of changes.
    pub fn notifier(self: &Arc<Self>) -> Notifier {
        Notifier::new(Arc::clone(self))
    }
}

fn work<S: Server>(channel: &Arc<Channel>, server: &S, mut worker: Worker) -> io::Result<()> {
    server.enter_thread(worker.device_waits());
    let mut buffer = vec![0; buffer_bytes(channel.write_bytes_max)];
    while let Some(message) = channel.receive(&mut buffer)? {
        match decode(message, channel) {
            Message::Request(request) => {
                let _turn = worker.begin(server.pace(&request));
                server.serve(request);
            }
            Message::Forget(forgotten) => {
                let mut leftovers = Vec::new();
                forgotten.for_each(|node, lookups| leftovers.extend(server.forget(node, lookups)));
                if leftovers.is_empty() {
                    worker.pass();
                } else {
                    // A caller that waits already is served by this thread soonest where processors are scarce; the next
                    // request of one that does not wait yet is another thread's.
                    let pace = if channel.has_message() { Pace::Quick } else { Pace::Slow };
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
                    channel.answer(unique, Err(error));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Features, WriteKind};
    use crate::handshake::Wishes;
    use crate::operation::{FileOperation, InodeOperation, NameOperation, Operation};
    use crate::wire::{self, ForgetOne, InHeader, InitIn, InitOut, OutHeader, WriteIn, opcode};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;
    use zerocopy::{FromBytes, IntoBytes};

    const WISHES: Wishes = Wishes { features: Features::all(), request_bytes: 1 << 16, background: 16 };

    /// The kernel's side of a connection.
    struct Kernel(OwnedFd);

    impl Kernel {
        fn new() -> (Self, OwnedFd) {
            let (kernel, server) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                    .expect("a pair of sockets");
            (Self(kernel), server)
        }

        fn send(&self, code: u32, unique: u64, body: &[u8]) {
            let length = u32::try_from(size_of::<InHeader>() + body.len()).expect("it is short");
            let header = InHeader { length, opcode: code, unique, node: 1, ..InHeader::default() };
            self.send_raw(&[header.as_bytes(), body].concat());
        }

        fn send_raw(&self, message: &[u8]) {
            rustix::io::write(&self.0, message).expect("the server reads");
        }

        fn receive(&self) -> (OutHeader, Vec<u8>) {
            let mut buffer = vec![0; 1 << 17];
            let length = rustix::io::read(&self.0, &mut *buffer).expect("an answer");
            let (header, body) = OutHeader::read_from_prefix(&buffer[..length]).expect("a header");
            assert_eq!(usize::try_from(header.length).expect("it fits"), length);
            (header, body.to_vec())
        }

        fn offer(&self, major: u32, minor: u32) {
            let flags = u32::MAX;
            let init = InitIn { major, minor, readahead_bytes_max: 1 << 17, flags };
            self.send(opcode::INIT, 1, &[init.as_bytes(), &u32::MAX.to_ne_bytes(), &[0; 44]].concat());
        }
    }

    /// A server that answers with ENODATA what it knows, and writes down what it is told.
    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl Recorder {
        fn note(&self, text: String) {
            self.0.lock().expect("no thread panics").push(text);
        }
    }

    impl Server for Recorder {
        type Leftover = u64;

        fn enter_thread(&self, _: DeviceWaits) {}

        fn pace(&self, _: &Request<'_>) -> Pace {
            Pace::Quick
        }

        fn serve(&self, request: Request<'_>) {
            match request.operation {
                Operation::Name(NameOperation::Lookup { name, reply }) => {
                    self.note(format!("lookup {}", name.escape_ascii()));
                    reply.error(Errno::NODATA);
                }
                Operation::File(FileOperation::Write { write, reply }) => {
                    assert_eq!(write.kind, WriteKind::CACHE);
                    self.note(format!("write {} at {}", write.data.len(), write.offset));
                    reply.written(write.data.len());
                }
                Operation::Inode(InodeOperation::GetXattr { reply, .. }) => reply.value(b"four"),
                // Dropped without an answer.
                _ => {}
            }
        }

        fn forget(&self, node: u64, lookups: u64) -> Option<u64> {
            self.note(format!("forget {node} {lookups}"));
            (node == 7).then_some(node)
        }

        fn clear(&self, node: u64) {
            self.note(format!("clear {node}"));
        }
    }

    fn serve(threads: usize) -> (Kernel, Arc<Recorder>, Session) {
        let (kernel, server) = Kernel::new();
        kernel.offer(wire::MAJOR, wire::MINOR);
        let (channel, agreement) = Channel::open(server, &WISHES).expect("they agree");
        assert_eq!(agreement.features, Features::all());
        let (_, body) = kernel.receive();
        let (answer, _) = InitOut::read_from_prefix(&body).expect("an answer");
        assert_eq!((answer.minor, answer.pages_max, answer.write_bytes_max), (wire::MINOR, 16, 1 << 16));
        let recorder = Arc::new(Recorder::default());
        let session = Session::start(&Arc::new(channel), &recorder, threads).expect("threads");
        (kernel, recorder, session)
    }

    #[test]
    fn requests_reach_the_server_and_answers_the_kernel() {
        let (kernel, recorder, session) = serve(4);
        kernel.send(opcode::LOOKUP, 2, b"name\0");
        assert_eq!(kernel.receive().0, OutHeader { length: 16, error: -61, unique: 2 });
        let write = WriteIn { offset: 4096, size: 3, write_flags: 1, ..WriteIn::default() };
        kernel.send(opcode::WRITE, 3, &[write.as_bytes(), b"abc"].concat());
        let (header, body) = kernel.receive();
        assert_eq!((header.unique, header.error, &body[..4]), (3, 0, &3u32.to_ne_bytes()[..]));
        let forgets: Vec<_> = [6, 7].map(|node| ForgetOne { node, lookups: node * 2 }).to_vec();
        kernel.send(opcode::BATCH_FORGET, 0, &[&2u64.to_ne_bytes(), forgets.as_bytes()].concat());
        kernel.send(opcode::STATFS, 5, &[]);
        assert_eq!(kernel.receive().0, OutHeader { length: 16, error: -5, unique: 5 }, "dropped: EIO");
        drop(kernel);
        session.join().expect("it ends well");
        let notes = recorder.0.lock().expect("no thread panics").clone();
        assert_eq!(notes, ["lookup name", "write 3 at 4096", "forget 6 12", "forget 7 14", "clear 7"]);
    }

    #[test]
    fn malformed_messages_are_refused_and_serving_goes_on() {
        let (kernel, recorder, session) = serve(2);
        let refused = |code, body: &[u8], error| {
            kernel.send(code, 9, body);
            assert_eq!(kernel.receive().0, OutHeader { length: 16, error, unique: 9 }, "operation {code}");
        };
        for (code, body) in [
            (opcode::LOOKUP, &b"no end"[..]),
            (opcode::LOOKUP, b"\0"),
            (opcode::LOOKUP, b"a/b\0"),
            (opcode::RENAME2, b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0old\0"),
            (opcode::WRITE, WriteIn { size: 4, ..WriteIn::default() }.as_bytes()),
            (opcode::SETATTR, b"short"),
            (opcode::IOCTL, &[0xff; 32]),
        ] {
            refused(code, body, -22);
        }
        for code in [36, 37, 40, 48, 4096, u32::MAX] {
            refused(code, &[], -38);
        }
        // Without a number there is no answer; a list may be longer than its message.
        kernel.send_raw(b"short");
        kernel.send(opcode::BATCH_FORGET, 0, &[0xff; 8]);
        let wrong_length =
            InHeader { length: 1 << 20, opcode: opcode::STATFS, unique: 4, ..InHeader::default() };
        kernel.send_raw(wrong_length.as_bytes());
        assert_eq!(kernel.receive().0.error, -22);
        kernel.send(opcode::GETXATTR, 6, b"\x03\0\0\0\0\0\0\0user.a\0");
        assert_eq!(kernel.receive().0.error, -34, "too little room");
        kernel.send(opcode::GETXATTR, 7, b"\0\0\0\0\0\0\0\0user.a\0");
        assert_eq!(kernel.receive().1, [4, 0, 0, 0, 0, 0, 0, 0]);
        drop(kernel);
        session.join().expect("it ends well");
        assert!(recorder.0.lock().expect("no thread panics").is_empty());
    }

    #[test]
    fn kernels_that_are_too_old_are_refused_and_newer_ones_asked_again() {
        let (kernel, server) = Kernel::new();
        kernel.offer(wire::MAJOR, wire::MINOR_MIN - 1);
        let error = Channel::open(server, &WISHES).expect_err("it is too old");
        assert!(error.to_string().contains("7.30"), "{error}");
        assert!(kernel.receive().0.error < 0);
        let (kernel, server) = Kernel::new();
        kernel.offer(wire::MAJOR + 1, 0);
        kernel.offer(wire::MAJOR, wire::MINOR_MIN);
        Channel::open(server, &WISHES).expect("they agree");
        let (_, body) = kernel.receive();
        assert_eq!(body[..4], wire::MAJOR.to_ne_bytes());
        let (kernel, server) = Kernel::new();
        kernel.send(opcode::STATFS, 1, &[]);
        assert!(Channel::open(server, &WISHES).is_err(), "that is no handshake");
    }

    #[test]
    fn a_panic_of_a_thread_is_an_error_of_the_session() {
        #[derive(Debug)]
        struct Panics;
        impl Server for Panics {
            type Leftover = ();
            fn enter_thread(&self, _: DeviceWaits) {}
            fn pace(&self, _: &Request<'_>) -> Pace {
                Pace::Quick
            }
            fn serve(&self, _: Request<'_>) {
                panic!("a defect");
            }
            fn forget(&self, _: u64, _: u64) -> Option<()> {
                None
            }
            fn clear(&self, (): ()) {}
        }
        let (kernel, server) = Kernel::new();
        kernel.offer(wire::MAJOR, wire::MINOR);
        let (channel, _) = Channel::open(server, &WISHES).expect("they agree");
        let session = Session::start(&Arc::new(channel), &Arc::new(Panics), 3).expect("threads");
        kernel.receive();
        kernel.send(opcode::STATFS, 2, &[]);
        assert_eq!(kernel.receive().0.error, -5, "the caller is answered");
        drop(kernel);
        assert!(session.join().expect_err("it panicked").to_string().contains("panicked"));
    }
}
