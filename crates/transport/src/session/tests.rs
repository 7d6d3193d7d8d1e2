//! A session by a socket in the place of the kernel.

use super::*;
use crate::flags::{Features, WriteKind};
use crate::handshake::{RingUse, Wishes};
use crate::interrupt::EARLY_MAX;
use crate::operation::{FileOperation, InodeOperation, NameOperation, Operation};
use crate::operation::{MountOperation, Request};
use crate::reply::Entry;
use crate::turns::DeviceWaits;
use crate::wire::{self, ForgetOne, InHeader, InitIn, InitOut, OutHeader, WriteIn, opcode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex};
use zerocopy::{FromBytes, IntoBytes};

const WISHES: Wishes =
    Wishes { features: Features::all(), request_bytes: 1 << 16, background: 16, rings: RingUse::Off };

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

    fn enter_thread(&self, _: DeviceWaits, _: Effects) {}

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
    assert_eq!(agreement.features, Features::all() - Features::OVER_IO_URING);
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
        (opcode::INTERRUPT, b"short"),
    ] {
        refused(code, body, -22);
    }
    for code in [37, 40, 48, 4096, u32::MAX] {
        refused(code, &[], -38);
    }
    // Without a number there is no answer; a list may be longer than its message.
    kernel.send_raw(b"short");
    kernel.send(opcode::BATCH_FORGET, 0, &[0xff; 8]);
    let wrong_length = InHeader { length: 1 << 20, opcode: opcode::STATFS, unique: 4, ..InHeader::default() };
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

/// A server whose requests do as they are told, or wait until then.
#[derive(Debug, Default)]
struct Waits {
    goes_on: Mutex<bool>,
    told: Condvar,
    notes: Recorder,
}

thread_local! {
    static EFFECTS: RefCell<Option<Effects>> = const { RefCell::new(None) };
}

impl Server for Waits {
    type Leftover = ();

    fn enter_thread(&self, _: DeviceWaits, effects: Effects) {
        EFFECTS.set(Some(effects));
    }

    fn pace(&self, _: &Request<'_>) -> Pace {
        Pace::Slow
    }

    fn serve(&self, request: Request<'_>) {
        let wait = || {
            let goes_on = self.goes_on.lock().expect("no thread panics");
            drop(self.told.wait_while(goes_on, |goes_on| !*goes_on).expect("no thread panics"));
        };
        match request.operation {
            Operation::Inode(InodeOperation::ReadLink { reply }) => {
                wait();
                reply.data(b"target");
            }
            Operation::Name(NameOperation::Lookup { reply, .. }) => {
                wait();
                let entry = Entry { node: 7, ..Entry::default() };
                self.notes.note(format!("known: {}", reply.entry(&entry)));
            }
            Operation::Name(NameOperation::Unlink { reply, .. }) => {
                wait();
                let begins = EFFECTS.with_borrow(|effects| effects.as_ref().is_some_and(Effects::begin));
                self.notes.note(format!("begins: {begins}"));
                reply.done();
            }
            Operation::Name(NameOperation::RemoveDirectory { reply, .. }) => {
                assert!(reply.begin() && reply.waiter().is_there());
                wait();
                reply.done();
            }
            Operation::Mount(MountOperation::Space { reply }) => reply.error(Errno::NODATA),
            _ => {}
        }
    }

    fn forget(&self, _: u64, _: u64) -> Option<()> {
        None
    }

    fn clear(&self, (): ()) {}
}

impl Waits {
    fn go_on(&self) {
        *self.goes_on.lock().expect("no thread panics") = true;
        self.told.notify_all();
    }
}

/// Callers of odd numbers are killed.
const KILLED: u32 = 9;
const ALIVE: u32 = 8;

fn serve_callers(threads: usize) -> (Kernel, Arc<Waits>, Session) {
    let (kernel, server) = Kernel::new();
    kernel.offer(wire::MAJOR, wire::MINOR);
    let (channel, _) = Channel::open(server, &WISHES).expect("they agree");
    kernel.receive();
    let waits = Arc::new(Waits::default());
    let session = Session::start_watched(&Arc::new(channel), &waits, threads, |pid| pid % 2 == 1);
    (kernel, waits, session.expect("threads"))
}

impl Kernel {
    fn send_of(&self, pid: u32, code: u32, unique: u64, body: &[u8]) {
        let length = u32::try_from(size_of::<InHeader>() + body.len()).expect("it is short");
        let header = InHeader { length, opcode: code, unique, node: 1, pid, ..InHeader::default() };
        self.send_raw(&[header.as_bytes(), body].concat());
    }

    fn interrupt(&self, unique: u64) {
        self.send_of(0, opcode::INTERRUPT, unique | 1, &unique.to_ne_bytes());
    }

    /// Asks for something that is answered at once, so that all before it was read.
    fn expect_nothing(&self, unique: u64) {
        self.send_of(ALIVE, opcode::STATFS, unique, &[]);
        assert_eq!(self.receive().0, OutHeader { length: 16, error: -61, unique });
    }

    fn expect_interrupted(&self, unique: u64) {
        assert_eq!(self.receive().0, OutHeader { length: 16, error: -4, unique });
    }
}

#[test]
fn killed_callers_are_told_so_and_their_requests_change_nothing() {
    let (kernel, waits, session) = serve_callers(6);
    kernel.send_of(KILLED, opcode::READLINK, 2, &[]);
    kernel.send_of(KILLED, opcode::LOOKUP, 4, b"name\0");
    kernel.send_of(KILLED, opcode::UNLINK, 6, b"name\0");
    kernel.send_of(KILLED, opcode::RMDIR, 8, b"name\0");
    kernel.send_of(ALIVE, opcode::READLINK, 10, &[]);
    kernel.expect_nothing(12);
    for unique in [2, 4, 6] {
        kernel.interrupt(unique);
        kernel.expect_interrupted(unique);
    }
    // One has begun, the caller of the other has but a signal.
    kernel.interrupt(8);
    kernel.interrupt(10);
    kernel.expect_nothing(14);
    waits.go_on();
    let mut answers = [kernel.receive().0, kernel.receive().0];
    answers.sort_unstable_by_key(|header| header.unique);
    assert_eq!(answers.map(|header| (header.unique, header.error)), [(8, 0), (10, 0)]);
    kernel.expect_nothing(16);
    drop(kernel);
    session.join().expect("it ends well");
    let mut notes = waits.notes.0.lock().expect("no thread panics").clone();
    notes.sort();
    assert_eq!(notes, ["begins: false", "known: false"]);
}

#[test]
fn interruptions_may_come_before_their_request_or_after_its_answer() {
    let (kernel, waits, session) = serve_callers(1);
    kernel.interrupt(2);
    kernel.expect_nothing(4);
    kernel.send_of(KILLED, opcode::READLINK, 2, &[]);
    kernel.expect_interrupted(2);
    waits.go_on();
    kernel.send_of(KILLED, opcode::READLINK, 6, &[]);
    assert_eq!(kernel.receive().0.error, 0, "nothing was said of it");
    kernel.interrupt(6);
    kernel.expect_nothing(8);
    // Those of nothing that is known are kept, and given back when they are too many, the oldest first.
    let kept = u64::try_from(EARLY_MAX).expect("small");
    (0..kept).for_each(|number| kernel.interrupt(1000 + 2 * number));
    assert_eq!(kernel.receive().0, OutHeader { length: 16, error: -11, unique: 7 });
    kernel.interrupt(6);
    assert_eq!(kernel.receive().0, OutHeader { length: 16, error: -11, unique: 1001 });
    drop(kernel);
    session.join().expect("it ends well");
}

#[test]
fn killed_callers_are_found_when_no_thread_is_left_to_hear_of_them() {
    let (kernel, waits, session) = serve_callers(2);
    kernel.send_of(KILLED, opcode::READLINK, 2, &[]);
    kernel.send_of(ALIVE, opcode::READLINK, 4, &[]);
    kernel.interrupt(2);
    kernel.expect_interrupted(2);
    waits.go_on();
    assert_eq!(kernel.receive().0.unique, 4);
    drop(kernel);
    session.join().expect("it ends well");
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
        fn enter_thread(&self, _: DeviceWaits, _: Effects) {}
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
