//! The kernel's side of a mount, and a server: what targets share that send messages of FUSE.

use brindle_transport::{
    Channel, DeviceWaits, DirectoryOperation, Effects, Entry, Features, FileOperation, InodeOperation, Listed,
    Operation, Pace, Request, RingUse, Server, Session, Wishes,
};
use std::io::{IoSlice, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, OnceLock};

pub const FORGET: u32 = 2;
pub const INTERRUPT: u32 = 36;
pub const BATCH_FORGET: u32 = 42;
const INIT: u32 = 26;
pub const REQUEST_BYTES: u32 = 1 << 16;

/// A server that reads all of a request, and answers as large as it may.
pub struct Reader;

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
            Operation::File(FileOperation::Read { size, offset, reply, .. }) => {
                let fill = |memory: &mut [u8]| {
                    memory.fill(0);
                    Ok(memory.len())
                };
                // The memory of a ring is one that an answer may be made in.
                let reply = if offset % 2 == 0 { reply.fill_in_place(fill) } else { Some(reply) };
                if let Some(reply) = reply {
                    reply.data(&zeros[..size]);
                }
            }
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

pub fn header(opcode: u32, unique: u64, length: u32) -> [u8; 40] {
    let mut header = [0; 40];
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&opcode.to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    header
}

pub fn send(kernel: &UnixDatagram, opcode: u32, unique: u64, body: &[u8], off: u8) {
    let length = (40 + body.len() as u32).wrapping_add(off.into());
    let head = header(opcode, unique, length);
    let parts = [IoSlice::new(&head), IoSlice::new(body)];
    rustix::io::retry_on_intr(|| rustix::io::writev(kernel, &parts)).expect("the server reads");
}

/// A mount, and the kernel's side of it.
pub fn mount() -> (UnixDatagram, Arc<Channel>) {
    let (kernel, server) = UnixDatagram::pair().expect("sockets");
    let mut init = [0; 64];
    init[..4].copy_from_slice(&7u32.to_ne_bytes());
    init[4..8].copy_from_slice(&45u32.to_ne_bytes());
    init[12..20].fill(0xff);
    send(&kernel, INIT, 1, &init, 0);
    let wishes = Wishes { features: Features::all(), request_bytes: REQUEST_BYTES, background: 16, rings: RingUse::Off };
    let (channel, _) = Channel::open(OwnedFd::from(server), &wishes).expect("they agree");
    kernel.recv(&mut [0; 4096]).expect("an answer");
    (kernel, Arc::new(channel))
}

/// The kernel's side of a mount that is served for as long as the program runs.
pub fn served() -> &'static UnixDatagram {
    static KERNEL: OnceLock<UnixDatagram> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let (kernel, channel) = mount();
        std::mem::forget(Session::start(&channel, &Arc::new(Reader), 1).expect("a thread"));
        kernel
    })
}

/// Takes the next answer: its error, its number, and its bytes behind the header.
pub fn receive(kernel: &UnixDatagram, buffer: &mut Vec<u8>) -> (i32, u64) {
    buffer.resize(2 * REQUEST_BYTES as usize, 0);
    // The fuzzer's clock interrupts.
    let length = rustix::io::retry_on_intr(|| rustix::io::read(kernel, &mut *buffer.as_mut_slice())).expect("an answer");
    let (error, unique) = answer(&buffer[..length], length);
    buffer.truncate(length);
    buffer.drain(..ANSWER_HEADER_BYTES);
    (error, unique)
}

pub const ANSWER_HEADER_BYTES: usize = 16;

/// Error and number of an answer of this length.
pub fn answer(header: &[u8], length: usize) -> (i32, u64) {
    assert_eq!(u32::from_ne_bytes(header[..4].try_into().expect("four bytes")) as usize, length);
    let error = i32::from_ne_bytes(header[4..8].try_into().expect("four bytes"));
    (error, u64::from_ne_bytes(header[8..16].try_into().expect("eight bytes")))
}
