//! Commands as values.

use crate::{CommandNumber, Uuid};

/// Time as a stream has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTime {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds of the second.
    pub nanoseconds: u32,
}

/// A subvolume as the sender knew it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// UUID under which it is received.
    pub uuid: Uuid,
    /// The transaction that changed it last.
    pub transid: u64,
}

/// Contents in an encoded form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodedWrite<'a> {
    /// The file.
    pub path: &'a [u8],
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of bytes of the file.
    pub length: u64,
    /// Number of bytes that decoding gives.
    pub decoded_length: u64,
    /// Offset of the file's bytes in the decoded ones.
    pub decoded_offset: u64,
    /// Number of the compression (`BTRFS_ENCODED_IO_COMPRESSION_*`); 0 for none.
    pub compression: u32,
    /// Number of the encryption; 0 for none.
    pub encryption: u32,
    /// The encoded bytes.
    pub data: &'a [u8],
}

/// A command, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Offset in the stream, in bytes.
    pub offset: u64,
    /// The command.
    pub command: Command<'a>,
}

/// One command. Paths are relative to the root of the subvolume; the empty one is that root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the attributes of the format")]
pub enum Command<'a> {
    /// Begins a new subvolume.
    Subvolume { path: &'a [u8], origin: Origin },
    /// Begins a snapshot of a subvolume that was received before.
    Snapshot { path: &'a [u8], origin: Origin, parent: Origin },
    /// Makes a regular file.
    MakeFile { path: &'a [u8], inode: u64 },
    /// Makes a directory.
    MakeDirectory { path: &'a [u8], inode: u64 },
    /// Makes a device node.
    MakeNode { path: &'a [u8], inode: u64, mode: u64, device: u64 },
    /// Makes a FIFO.
    MakeFifo { path: &'a [u8], inode: u64, mode: u64, device: u64 },
    /// Makes a socket.
    MakeSocket { path: &'a [u8], inode: u64, mode: u64, device: u64 },
    /// Makes a symbolic link.
    Symlink { path: &'a [u8], inode: u64, target: &'a [u8] },
    /// Gives it another name.
    Rename { path: &'a [u8], to: &'a [u8] },
    /// Gives `target` one more name, `path`.
    Link { path: &'a [u8], target: &'a [u8] },
    /// Removes a name of what is no directory.
    Unlink { path: &'a [u8] },
    /// Removes an empty directory.
    RemoveDirectory { path: &'a [u8] },
    /// Sets an extended attribute.
    SetXattr { path: &'a [u8], name: &'a [u8], value: &'a [u8] },
    /// Removes an extended attribute.
    RemoveXattr { path: &'a [u8], name: &'a [u8] },
    /// Writes contents.
    Write { path: &'a [u8], offset: u64, data: &'a [u8] },
    /// Shares contents of a file of `source`.
    Clone {
        path: &'a [u8],
        offset: u64,
        length: u64,
        source: Origin,
        source_path: &'a [u8],
        source_offset: u64,
    },
    /// Sets the length of a file.
    Truncate { path: &'a [u8], size: u64 },
    /// Sets permissions.
    Chmod { path: &'a [u8], mode: u64 },
    /// Sets owner and group.
    Chown { path: &'a [u8], uid: u64, gid: u64 },
    /// Sets times; that of creation is known since version 2.
    Times {
        path: &'a [u8],
        accessed: StreamTime,
        modified: StreamTime,
        changed: StreamTime,
        created: Option<StreamTime>,
    },
    /// Ends a subvolume.
    End,
    /// Tells of changed contents that are not in the stream (`send --no-data`).
    UpdateExtent { path: &'a [u8], offset: u64, length: u64 },
    /// Allocates space, punches a hole, or fills with zeros: `mode` is that of fallocate(2).
    Allocate { path: &'a [u8], mode: u32, offset: u64, length: u64 },
    /// Sets flags of an inode.
    Flags { path: &'a [u8], flags: u64 },
    /// Writes contents that are encoded.
    EncodedWrite(EncodedWrite<'a>),
}

impl Command<'_> {
    /// Returns true if a subvolume before it ends with it.
    pub fn ends_subvolume(&self) -> bool {
        matches!(self, Self::End | Self::Subvolume { .. } | Self::Snapshot { .. })
    }

    /// Its number.
    pub fn number(&self) -> CommandNumber {
        match self {
            Self::Subvolume { .. } => CommandNumber::SUBVOLUME,
            Self::Snapshot { .. } => CommandNumber::SNAPSHOT,
            Self::MakeFile { .. } => CommandNumber::MAKE_FILE,
            Self::MakeDirectory { .. } => CommandNumber::MAKE_DIRECTORY,
            Self::MakeNode { .. } => CommandNumber::MAKE_NODE,
            Self::MakeFifo { .. } => CommandNumber::MAKE_FIFO,
            Self::MakeSocket { .. } => CommandNumber::MAKE_SOCKET,
            Self::Symlink { .. } => CommandNumber::SYMLINK,
            Self::Rename { .. } => CommandNumber::RENAME,
            Self::Link { .. } => CommandNumber::LINK,
            Self::Unlink { .. } => CommandNumber::UNLINK,
            Self::RemoveDirectory { .. } => CommandNumber::REMOVE_DIRECTORY,
            Self::SetXattr { .. } => CommandNumber::SET_XATTR,
            Self::RemoveXattr { .. } => CommandNumber::REMOVE_XATTR,
            Self::Write { .. } => CommandNumber::WRITE,
            Self::Clone { .. } => CommandNumber::CLONE,
            Self::Truncate { .. } => CommandNumber::TRUNCATE,
            Self::Chmod { .. } => CommandNumber::CHMOD,
            Self::Chown { .. } => CommandNumber::CHOWN,
            Self::Times { .. } => CommandNumber::TIMES,
            Self::End => CommandNumber::END,
            Self::UpdateExtent { .. } => CommandNumber::UPDATE_EXTENT,
            Self::Allocate { .. } => CommandNumber::ALLOCATE,
            Self::Flags { .. } => CommandNumber::FLAGS,
            Self::EncodedWrite(_) => CommandNumber::ENCODED_WRITE,
        }
    }
}
