//! Messages to a mount about streams of send, and what it tells of them.
//!
//! A stream goes through a pipe of the caller: the mount opens it as `/proc/PID/fd/N`, for FUSE passes no descriptors. Another pipe
//! takes [events](StreamEvent), each followed by its text. The mount closes both at the end; the last event says how it ended.

use super::Time;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of subvolumes that a request can name.
pub const SEND_IDS_MAX: usize = 1024;

/// Subvolumes to be sent (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SendStart {
    /// Descriptor of a pipe to be written: the stream.
    pub stream: u32,
    /// Descriptor of a pipe to be written: events.
    pub events: u32,
    /// [`SEND_COMPRESSED`], [`SEND_NO_DATA`], [`SEND_ONE_STREAM`].
    pub flags: u32,
    /// Version of the format.
    pub version: u32,
    /// Id of the subvolume from which the first differs; 0 for none.
    pub parent: u64,
    /// Number of subvolumes to be sent.
    pub count: u32,
    /// Number of subvolumes that can be cloned from.
    pub source_count: u32,
    /// Ids of the subvolumes to be sent, and then of those to be cloned from.
    pub ids: [u64; SEND_IDS_MAX],
}

/// Compressed extents are sent as they lie.
pub const SEND_COMPRESSED: u32 = 1 << 0;
/// Changed ranges are named, and not sent.
pub const SEND_NO_DATA: u32 = 1 << 1;
/// All subvolumes are in one stream.
pub const SEND_ONE_STREAM: u32 = 1 << 2;

/// Subvolume to be sent by the kernel (`btrfs_ioctl_send_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelSend {
    /// Descriptor of a pipe to be written.
    pub stream: i64,
    /// Number of subvolumes that can be cloned from.
    pub source_count: u64,
    /// Address of their ids.
    pub sources: u64,
    /// Id of the subvolume from which it differs; 0 for none.
    pub parent: u64,
    /// `KERNEL_SEND_` bits.
    pub flags: u64,
    /// Version of the format, with [`KERNEL_SEND_VERSION`].
    pub version: u32,
    /// Nothing.
    pub reserved: [u8; 28],
}
const _: () = assert!(size_of::<KernelSend>() == 72);

/// Subvolume that is marked as received, or is no longer (`btrfs_ioctl_received_subvol_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelReceived {
    /// UUID of what it was received from; zeros take the mark away.
    pub uuid: [u8; 16],
    /// Transaction of sending.
    pub sent_transaction: u64,
    /// Transaction of receiving, which the kernel answers.
    pub received_transaction: u64,
    /// Time of sending.
    pub sent: Time,
    /// Time of receiving, which the kernel answers.
    pub received: Time,
    /// Nothing.
    pub flags: u64,
    /// Nothing.
    pub reserved: [u64; 16],
}
const _: () = assert!(size_of::<KernelReceived>() == 200);

/// Changed ranges are named, and not sent (`BTRFS_SEND_FLAG_NO_FILE_DATA`).
pub const KERNEL_SEND_NO_DATA: u64 = 1 << 0;
/// The stream begins without its header (`BTRFS_SEND_FLAG_OMIT_STREAM_HEADER`).
pub const KERNEL_SEND_NO_HEADER: u64 = 1 << 1;
/// The stream ends without its end command (`BTRFS_SEND_FLAG_OMIT_END_CMD`).
pub const KERNEL_SEND_NO_END: u64 = 1 << 2;
/// The version is told (`BTRFS_SEND_FLAG_VERSION`); older kernels know no such bit.
pub const KERNEL_SEND_VERSION: u64 = 1 << 3;
/// Compressed extents are sent as they lie (`BTRFS_SEND_FLAG_COMPRESSED`).
pub const KERNEL_SEND_COMPRESSED: u64 = 1 << 4;

/// A range of a file that is to be shared with another one (`file_clone_range`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CloneRange {
    /// Descriptor of the source.
    pub source: i64,
    /// Offset in the source, in bytes.
    pub source_offset: u64,
    /// Length, in bytes.
    pub length: u64,
    /// Offset in the file that is told, in bytes.
    pub offset: u64,
}

/// Contents that are written as they are to lie in an extent (`btrfs_ioctl_encoded_io_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelEncodedWrite {
    /// Address of the list of pieces (`iovec`), and their number.
    pub pieces: [u64; 2],
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// None.
    pub flags: u64,
    /// Number of bytes of the file.
    pub length: u64,
    /// Number of bytes that decoding gives.
    pub decoded_length: u64,
    /// Offset of the file's bytes in the decoded ones.
    pub decoded_offset: u64,
    /// Number of the compression (`BTRFS_ENCODED_IO_COMPRESSION_*`).
    pub compression: u32,
    /// Number of the encryption.
    pub encryption: u32,
    /// Nothing.
    pub reserved: [u8; 64],
}
const _: () = assert!(size_of::<KernelEncodedWrite>() == 128);

/// A stream to be received into the directory (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReceiveStart {
    /// Descriptor of a pipe to be read: the stream.
    pub stream: u32,
    /// Descriptor of a pipe to be written: events.
    pub events: u32,
    /// [`RECEIVE_ONE_STREAM`].
    pub flags: u64,
    /// Number of failed commands at which it ends; 0 for no limit.
    pub errors_max: u64,
}

/// Receiving ends at the first end of a stream, although more may follow.
pub const RECEIVE_ONE_STREAM: u64 = 1 << 0;

/// Head of an event; its text follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StreamEvent {
    /// One of `STREAM_*`.
    pub kind: u32,
    /// Bytes of the text, at most [`STREAM_TEXT_MAX`].
    pub length: u32,
    /// Id of the subvolume, if it is about one.
    pub id: u64,
}

/// Bytes of the text of an event: two paths, or a message.
pub const STREAM_TEXT_MAX: usize = 64 << 10;

/// A subvolume is begun to be sent: its path, and after a zero that of the parent, if only the difference is sent.
pub const STREAM_SENDS: u32 = 1;
/// A subvolume was received: its name.
pub const STREAM_RECEIVED: u32 = 2;
/// A command failed, and it goes on: the message.
pub const STREAM_COMPLAINT: u32 = 3;
/// Everything was sent or received.
pub const STREAM_DONE: u32 = 4;
/// A failure, and the end: the message.
pub const STREAM_FAILED: u32 = 5;
