//! An entry of a ring's queue: the memory by which one request at a time comes and is answered.
//!
//! The kernel writes the head of a request apart from its rest, which lies in the payload. Before the payload there is room for the
//! head, so that the message is put together as `/dev/fuse` would give it, without moving the payload, and
//! [`decode`](crate::decode::decode) takes both.

use crate::flags::WriteKind;
use crate::wire::{InHeader, OutHeader, RingHead, WriteIn, opcode};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// Room before the payload: for a header and the part of an operation.
const ROOM: usize = 4096;

/// An entry. Where there is one, the kernel does not use its memory: while it does, it is [`Ring`](super::shared::Ring)'s.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Queue that the entry belongs to.
    queue: u16,
    /// Number by which the kernel knows the request; `None` before the first.
    commit: Option<u64>,
    head: Box<RingHead>,
    /// The room, then the payload.
    area: Box<[u8]>,
}

impl Slot {
    /// An entry that the kernel knows nothing of.
    pub(crate) fn new(queue: u16, payload_bytes: usize) -> Self {
        Self { queue, commit: None, head: Box::default(), area: vec![0; ROOM + payload_bytes].into() }
    }

    pub(crate) fn queue(&self) -> u16 {
        self.queue
    }

    /// Number of the request that is answered; `None` before the first.
    pub(crate) fn commit(&self) -> Option<u64> {
        self.commit
    }

    /// Address and length of the head and of the payload, to be handed to the kernel.
    pub(crate) fn segments(&mut self) -> [[u64; 2]; 2] {
        let of = |bytes: &mut [u8]| [bytes.as_mut_ptr().expose_provenance() as u64, bytes.len() as u64];
        [of(self.head.as_mut_bytes()), of(&mut self.area[ROOM..])]
    }

    /// The kernel has put a request into it.
    pub(crate) fn receive(&mut self) {
        self.commit = Some(self.head.commit);
    }

    #[cfg(test)]
    pub(crate) fn put_head(&mut self, head: RingHead) {
        *self.head = head;
    }

    /// Puts a request into it, cut to what it has room for.
    #[cfg(fuzzing)]
    pub(crate) fn fill(&mut self, head: &[u8], payload: &[u8]) {
        let copy = |to: &mut [u8], from: &[u8]| {
            let length = to.len().min(from.len());
            to[..length].copy_from_slice(&from[..length]);
        };
        copy(self.head.as_mut_bytes(), head);
        copy(&mut self.area[ROOM..], payload);
        self.receive();
    }

    /// The head, and the payload as far as the head says.
    #[cfg(fuzzing)]
    pub(crate) fn contents(&self) -> (Vec<u8>, Vec<u8>) {
        let length = usize::try_from(self.head.payload_bytes).expect("it fits");
        (self.head.as_bytes().to_vec(), self.area[ROOM..][..length].to_vec())
    }

    pub(crate) fn header(&self) -> InHeader {
        let (header, _) = InHeader::read_from_prefix(self.head.in_out.as_bytes()).expect("it has the room");
        header
    }

    /// Returns true for pages that the kernel writes back: no process is told EINTR of it.
    pub(crate) fn is_write_back(&self) -> bool {
        let (write, _) = WriteIn::read_from_prefix(self.head.operation.as_bytes()).expect("it has the room");
        self.header().opcode == opcode::WRITE
            && WriteKind::from_bits_retain(write.write_flags).contains(WriteKind::CACHE)
    }

    /// The message, in one piece. One whose lengths contradict each other has another length than its header says.
    pub(crate) fn message(&mut self) -> &[u8] {
        let header = self.header();
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        let payload = size(self.head.payload_bytes).min(self.area.len() - ROOM);
        let operation = self.head.operation.as_bytes();
        let operation_bytes =
            size(header.length).saturating_sub(size_of::<InHeader>() + payload).min(operation.len());
        let start = ROOM - operation_bytes - size_of::<InHeader>();
        let (first, second) = self.area[start..ROOM].split_at_mut(size_of::<InHeader>());
        first.copy_from_slice(header.as_bytes());
        second.copy_from_slice(&operation[..operation_bytes]);
        &self.area[start..ROOM + payload]
    }

    /// The first bytes of the payload.
    pub(crate) fn payload(&mut self, length: usize) -> &mut [u8] {
        &mut self.area[ROOM..][..length]
    }

    /// Puts the answer in place.
    pub(crate) fn answer(&mut self, unique: u64, answer: Result<&[&[u8]], Errno>) {
        match answer {
            Err(error) => self.finish(unique, -error.raw_os_error(), 0),
            Ok(parts) => {
                let length = parts.iter().map(|part| part.len()).sum::<usize>();
                if length > self.area.len() - ROOM {
                    tracing::error!("an answer of {length} bytes, more than the kernel asks for");
                    return self.finish(unique, -Errno::IO.raw_os_error(), 0);
                }
                let mut place = ROOM;
                for part in parts {
                    self.area[place..][..part.len()].copy_from_slice(part);
                    place += part.len();
                }
                self.finish(unique, 0, length);
            }
        }
    }

    /// The answer is the first bytes of the payload.
    pub(crate) fn answer_in_place(&mut self, unique: u64, length: usize) {
        self.finish(unique, 0, length);
    }

    fn finish(&mut self, unique: u64, error: i32, payload_bytes: usize) {
        let payload_bytes = u32::try_from(payload_bytes).expect("as long as a request at most");
        let header_bytes = u32::try_from(size_of::<OutHeader>()).expect("it is small");
        let header = OutHeader { length: header_bytes + payload_bytes, error, unique };
        self.head.in_out.as_mut_bytes()[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        self.head.payload_bytes = payload_bytes;
    }
}
