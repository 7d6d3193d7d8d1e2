//! Messages of a kernel that sends anything: at the other end of a socket a server reads every name and byte of what it is
//! handed, and answers as large as it may. Each message that is not a notice is answered once, and serving goes on.
//!
//! An input is a list of messages: an operation, the number of bytes of the body, one byte that says how far the length in
//! the header is off, the body.

#![no_main]

use brindle_transport::{
    Channel, DeviceWaits, DirectoryOperation, Effects, Entry, Features, FileOperation, InodeOperation, Listed,
    Operation, Pace, Request, RingUse, Server, Session, Wishes,
};
use libfuzzer_sys::fuzz_target;
use std::io::{IoSlice, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, OnceLock};

const STATFS: u32 = 17;
const INIT: u32 = 26;
const FORGET: u32 = 2;
const INTERRUPT: u32 = 36;
const EAGAIN: i32 = 11;
const BATCH_FORGET: u32 = 42;
const REQUEST_BYTES: u32 = 1 << 16;
/// Number of the message that comes after those of an input.
const LAST: u64 = u64::MAX;

struct Reader;

impl Server for Reader {
    type Leftover = u64;

    fn enter_thread(&self, _: DeviceWaits, _: Effects) {}

    fn pace(&self, _: &Request<'_>) -> Pace {
        Pace::Quick
    }

    fn serve(&self, request: Request<'_>) {
        std::io::sink().write_fmt(format_args!("{request:?}")).expect("a sink takes all");
        let zeros = [0; REQUEST_BYTES as usize];
        match request.operation {
            Operation::File(FileOperation::Read { size, reply, .. }) => reply.data(&zeros[..size]),
            Operation::File(FileOperation::Write { write, reply }) => reply.written(write.data.len()),
            Operation::Inode(InodeOperation::GetXattr { name, reply }) => reply.value(name),
            Operation::Inode(InodeOperation::Ioctl { input, reply, .. }) => reply.result(input),
            Operation::Directory(DirectoryOperation::ReadPlus { offset, mut reply, .. }) => {
                let listed = Listed { name: &zeros[..251], ino: 1, offset, mode: 0o100_644 };
                let node = Entry {
                    node: 1,
                    generation: 2,
                    name_ttl: Default::default(),
                    attributes_ttl: Default::default(),
                    attributes: Default::default(),
                };
                while !reply.add(&listed, &node) {}
                reply.listed();
            }
            // Dropped: answered with EIO.
            _ => {}
        }
    }

    fn forget(&self, node: u64, lookups: u64) -> Option<u64> {
        (lookups % 2 == 1).then_some(node)
    }

    fn clear(&self, _: u64) {}
}

fn header(opcode: u32, unique: u64, length: u32) -> [u8; 40] {
    let mut header = [0; 40];
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&opcode.to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    header
}

fn send(kernel: &UnixDatagram, opcode: u32, unique: u64, body: &[u8], off: u8) {
    let length = (40 + body.len() as u32).wrapping_add(off.into());
    let head = header(opcode, unique, length);
    let parts = [IoSlice::new(&head), IoSlice::new(body)];
    rustix::io::retry_on_intr(|| rustix::io::writev(kernel, &parts)).expect("the server reads");
}

/// The kernel's side of a server that serves for as long as the program runs.
fn kernel() -> &'static UnixDatagram {
    static KERNEL: OnceLock<UnixDatagram> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let (kernel, server) = UnixDatagram::pair().expect("sockets");
        let mut init = [0; 64];
        init[..4].copy_from_slice(&7u32.to_ne_bytes());
        init[4..8].copy_from_slice(&45u32.to_ne_bytes());
        init[12..20].fill(0xff);
        send(&kernel, INIT, 1, &init, 0);
        let wishes = Wishes { features: Features::all(), request_bytes: REQUEST_BYTES, background: 16, rings: RingUse::Off };
        let (channel, _) = Channel::open(OwnedFd::from(server), &wishes).expect("they agree");
        kernel.recv(&mut [0; 4096]).expect("an answer");
        std::mem::forget(Session::start(&Arc::new(channel), &Arc::new(Reader), 1).expect("a thread"));
        kernel
    })
}

fuzz_target!(|data: &[u8]| {
    const MESSAGES_MAX: u64 = 16;
    let kernel = kernel();
    let mut rest = data;
    let mut expected = Vec::new();
    let mut answer = vec![0; 2 * REQUEST_BYTES as usize];
    let mut receive = || {
        // The fuzzer's clock interrupts.
        let length = rustix::io::retry_on_intr(|| rustix::io::read(kernel, &mut *answer)).expect("an answer");
        assert_eq!(u32::from_ne_bytes(answer[..4].try_into().expect("four bytes")) as usize, length);
        let error = i32::from_ne_bytes(answer[4..8].try_into().expect("four bytes"));
        (error, u64::from_ne_bytes(answer[8..16].try_into().expect("eight bytes")))
    };
    // Interruptions that are too many are given back.
    let mut receive = || loop {
        let (error, unique) = receive();
        if error != -EAGAIN {
            return unique;
        }
    };
    while let [opcode, low, high, off, behind @ ..] = rest
        && (expected.len() as u64) < MESSAGES_MAX
    {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
        let (body, behind) = behind.split_at(length);
        let (opcode, unique) = (u32::from(*opcode), expected.len() as u64 + 1);
        send(kernel, opcode, unique, body, *off);
        // Notices have no answer, but for one whose length is wrong.
        let is_notice =
            matches!(opcode, FORGET | BATCH_FORGET) || opcode == INTERRUPT && body.len() >= size_of::<u64>();
        expected.push(!is_notice || *off != 0);
        if expected.last() == Some(&true) {
            assert_eq!(receive(), unique);
        }
        rest = behind;
    }
    send(kernel, STATFS, LAST, &[], 0);
    assert_eq!(receive(), LAST);
});
