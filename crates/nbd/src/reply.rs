//! Answers to requests: simple replies, and chunks of structured ones.

use crate::fields::Fields;
use crate::{ReplyError, WireError};
use bitflags::bitflags;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Flag of the last chunk of an answer.
const DONE: u16 = 1;

/// Length of a simple reply without its data.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Length of a chunk without its payload.
pub const CHUNK_HEADER_BYTES: usize = 20;

/// A simple reply; the bytes of a read that succeeded follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// The error, if the request failed.
    pub error: Option<ReplyError>,
    /// Number of the request.
    pub cookie: u64,
}

impl SimpleReply {
    /// Reads a reply.
    ///
    /// # Errors
    /// Another magic number, another length: the peer is out of step.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("reply", bytes);
        fields.magic32(SIMPLE_MAGIC)?;
        let reply = Self { error: ReplyError::from_number(fields.u32()?), cookie: fields.u64()? };
        fields.end()?;
        Ok(reply)
    }
}

/// A simple reply as bytes.
pub fn simple_reply(cookie: u64, error: Option<ReplyError>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, ReplyError::number).to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// Success, no payload.
    None,
    /// Bytes of a read behind their offset (64 bits).
    OffsetData,
    /// Extents and their status.
    BlockStatus,
    /// An error.
    Error,
}

impl ChunkKind {
    fn number(self) -> u16 {
        match self {
            Self::None => 0,
            Self::OffsetData => 1,
            Self::BlockStatus => 5,
            Self::Error => (1 << 15) + 1,
        }
    }
}

/// Header of a chunk that is the whole answer, and has a payload of this length.
pub fn chunk(kind: ChunkKind, cookie: u64, length: u32) -> [u8; CHUNK_HEADER_BYTES] {
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.number().to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A chunk that says that a request failed; no message goes with it.
pub fn error_chunk(cookie: u64, error: ReplyError) -> Vec<u8> {
    let mut bytes = chunk(ChunkKind::Error, cookie, 6).to_vec();
    bytes.extend(error.number().to_be_bytes());
    bytes.extend(0u16.to_be_bytes());
    bytes
}

bitflags! {
    /// Status of an extent in the context `base:allocation`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct StatusFlags: u32 {
        /// Takes no space.
        const HOLE = 1;
        /// Reads as zeros.
        const ZERO = 1 << 1;
    }
}

/// Status of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStatus {
    /// Length in bytes.
    pub length: u32,
    /// The status.
    pub flags: StatusFlags,
}

/// A chunk with the status of extents, the first at the offset that was asked for.
pub fn status_chunk(cookie: u64, context: u32, extents: &[BlockStatus]) -> Vec<u8> {
    let length = u32::try_from(4 + 8 * extents.len()).expect("a status of few extents");
    let mut bytes = chunk(ChunkKind::BlockStatus, cookie, length).to_vec();
    bytes.extend(context.to_be_bytes());
    for extent in extents {
        bytes.extend(extent.length.to_be_bytes());
        bytes.extend(extent.flags.bits().to_be_bytes());
    }
    bytes
}
