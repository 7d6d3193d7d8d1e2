//! Flags of messages.

use bitflags::bitflags;

bitflags! {
    /// Abilities of a server, in its greeting.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HandshakeFlags: u16 {
        /// Unknown options are answered.
        const FIXED_NEWSTYLE = 1;
        /// The reply to `ExportName` may go without its 124 zeros.
        const NO_ZEROES = 1 << 1;
    }

    /// Choice of a client, after the greeting.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ClientFlags: u32 {
        /// Answers to unknown options are understood.
        const FIXED_NEWSTYLE = 1;
        /// The reply to `ExportName` has no zeros.
        const NO_ZEROES = 1 << 1;
    }

    /// Abilities of an export.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExportFlags: u16 {
        /// Always set.
        const HAS_FLAGS = 1;
        /// Writes are refused.
        const READ_ONLY = 1 << 1;
        /// `Flush` is known.
        const SEND_FLUSH = 1 << 2;
        /// Writes may be durable by themselves.
        const SEND_FUA = 1 << 3;
        /// Seeks cost time.
        const ROTATIONAL = 1 << 4;
        /// `Trim` is known.
        const SEND_TRIM = 1 << 5;
        /// `WriteZeroes` is known.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// A read may ask for an answer in one chunk.
        const SEND_DF = 1 << 7;
        /// A flush on one connection covers the writes of all.
        const CAN_MULTI_CONN = 1 << 8;
        /// The size may change.
        const SEND_RESIZE = 1 << 9;
        /// `Cache` is known.
        const SEND_CACHE = 1 << 10;
        /// `WriteZeroes` may be told to fail rather than to take long.
        const SEND_FAST_ZERO = 1 << 11;
    }

    /// Flags of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommandFlags: u16 {
        /// Durable when it is answered.
        const FUA = 1;
        /// Zeros keep their space.
        const NO_HOLE = 1 << 1;
        /// The answer is one chunk.
        const DF = 1 << 2;
        /// The status of the first extent is enough.
        const REQ_ONE = 1 << 3;
        /// Fails rather than take as long as a write.
        const FAST_ZERO = 1 << 4;
    }
}
