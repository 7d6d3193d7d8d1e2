//! Messages of the network block device protocol (NBD): bytes to values and back, for both ends of a connection.
//!
//! The walk of a connection, as its two ends use this crate; the server's side of each line comes first:
//!
//! 1. Greeting: [`greeting`] is sent as it stands; the client checks it ([`parse_greeting`]) and answers with its [`ClientFlags`].
//! 2. Options: [`OptionHeader::decode`] and the contents behind it ([`ExportRequest`], [`ContextRequest`]); the answers are made by
//!    [`option_reply`], and read by [`OptionReply::decode`] and [`Information::decode`].
//! 3. The option `Go`, or the older `ExportName`, ends the options: the client knows size and [`ExportFlags`].
//! 4. Requests: [`Request::decode`]; the payload of a write follows. The client makes them by [`Request::encode`].
//! 5. Answers: [`simple_reply`], or chunks ([`chunk`], and the payloads beside it). The client reads [`SimpleReply`].
//!
//! Integers are big-endian. A decoder is given bytes of an untrusted peer, and returns a [`WireError`] for all that it can't take;
//! lengths that a peer names are returned as they are, and the caller limits them before it takes memory.
//! Must not know: sockets, threads, devices, any state of a connection.

mod error;
mod fields;
mod flags;
mod handshake;
mod reply;
mod request;
mod uri;

pub use error::{ReplyError, WireError};
pub use flags::{ClientFlags, CommandFlags, ExportFlags, HandshakeFlags};
pub use handshake::{
    ALLOCATION_CONTEXT, BlockSizes, ContextRequest, ExportRequest, GREETING_BYTES, Information,
    NAME_BYTES_MAX, OPTION_HEADER_BYTES, OPTION_REPLY_HEADER_BYTES, OptionHeader, OptionKind, OptionReply,
    OptionReplyKind, context_reply, export_name_reply, export_request, greeting, information, option_header,
    option_reply, parse_export_name, parse_greeting, server_reply,
};
pub use reply::{
    BlockStatus, CHUNK_HEADER_BYTES, ChunkKind, SIMPLE_REPLY_BYTES, SimpleReply, StatusFlags, chunk,
    error_chunk, simple_reply, status_chunk,
};
pub use request::{Command, REQUEST_BYTES, Request};
pub use uri::{NbdAddress, NbdTls, NbdUri, UriError};

/// Port of NBD, as IANA has it.
pub const PORT: u16 = 10809;
/// Longest payload that a peer takes unless it says otherwise, in bytes.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

#[cfg(test)]
mod tests;
