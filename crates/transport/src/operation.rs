//! Requests, as a server sees them.

use crate::flags::WriteKind;
use crate::reply::{Reply, Time, kind};
use rustix::fs::OFlags;

/// A request. Names and data lie in the buffer of the thread that read it.
#[derive(Debug)]
pub struct Request<'a> {
    /// The process that asks.
    pub caller: Caller,
    /// The node that it is about; of names, their directory.
    pub node: u64,
    /// The operation, with its arguments.
    pub operation: Operation<'a>,
}

/// The process that asks, as the kernel shows it to the server's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its user, for access to files; or the owner of what is made, by the mount's map of owners.
    pub uid: u32,
    /// Its group, likewise.
    pub gid: u32,
    /// Its number; 0 for the kernel itself.
    pub pid: u32,
}

impl Caller {
    /// User and group of all requests that make nothing, if [`ALLOW_IDMAP`](crate::Features::ALLOW_IDMAP) was agreed on.
    pub const UNTOLD: u32 = u32::MAX;
}

/// An operation, with the reply that answers it.
#[derive(Debug)]
pub enum Operation<'a> {
    /// An operation on a name in the directory that the request is about.
    Name(NameOperation<'a>),
    /// An operation on an inode of any type.
    Inode(InodeOperation<'a>),
    /// An operation on the contents of a file.
    File(FileOperation<'a>),
    /// An operation on an open directory.
    Directory(DirectoryOperation),
    /// An operation on the mount as a whole.
    Mount(MountOperation),
}

/// An operation on a name in the directory that the request is about.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are the arguments of the system calls")]
pub enum NameOperation<'a> {
    /// A name in a directory.
    Lookup { name: &'a [u8], reply: Reply<kind::Entry> },
    /// mknod(2), and creat(2) of what is not opened.
    MakeNode { name: &'a [u8], new: NewNode, reply: Reply<kind::Entry> },
    /// mkdir(2).
    MakeDirectory { name: &'a [u8], new: NewNode, reply: Reply<kind::Entry> },
    /// symlink(2).
    Symlink { name: &'a [u8], target: &'a [u8], reply: Reply<kind::Entry> },
    /// link(2): `target` gets another name in the directory.
    Link { target: u64, name: &'a [u8], reply: Reply<kind::Entry> },
    /// open(2) of a new file.
    Create { name: &'a [u8], new: NewNode, flags: OFlags, reply: Reply<kind::Created> },
    /// open(2) with `O_TMPFILE`: a new file without a name.
    CreateUnnamed { new: NewNode, flags: OFlags, reply: Reply<kind::Created> },
    /// unlink(2).
    Unlink { name: &'a [u8], reply: Reply<kind::Done> },
    /// rmdir(2).
    RemoveDirectory { name: &'a [u8], reply: Reply<kind::Done> },
    /// renameat2(2).
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32, reply: Reply<kind::Done> },
}

/// An operation on an inode of any type.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are the arguments of the system calls")]
pub enum InodeOperation<'a> {
    /// stat(2).
    GetAttributes { handle: Option<u64>, reply: Reply<kind::Attributes> },
    /// statx(2) for more than stat(2) tells.
    GetExtendedAttributes { reply: Reply<kind::Extended> },
    /// chmod(2), chown(2), truncate(2), utimensat(2).
    SetAttributes { change: AttributeChange, reply: Reply<kind::Attributes> },
    /// readlink(2).
    ReadLink { reply: Reply<kind::Data> },
    /// getxattr(2).
    GetXattr { name: &'a [u8], reply: Reply<kind::Value> },
    /// listxattr(2).
    ListXattr { reply: Reply<kind::Value> },
    /// setxattr(2).
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        /// True if an access list takes the set-group-id bit away; `None` if the kernel does not tell.
        drops_set_group_id: Option<bool>,
        reply: Reply<kind::Done>,
    },
    /// removexattr(2).
    RemoveXattr { name: &'a [u8], reply: Reply<kind::Done> },
    /// access(2), where the kernel does not check permissions.
    Access { mask: u32, reply: Reply<kind::Done> },
    /// ioctl(2) with a number that tells the sizes of its argument.
    Ioctl { command: u32, input: &'a [u8], reply: Reply<kind::Ioctl> },
}

/// An operation on the contents of a file.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are the arguments of the system calls")]
pub enum FileOperation<'a> {
    /// open(2) of a file.
    Open { flags: OFlags, reply: Reply<kind::Opened> },
    /// The last close(2) of what was opened once.
    Release { handle: u64, reply: Reply<kind::Done> },
    /// read(2).
    Read { handle: u64, offset: u64, size: usize, reply: Reply<kind::Data> },
    /// write(2), and pages that are written back.
    Write { write: WriteRequest<'a>, reply: Reply<kind::Written> },
    /// fsync(2), fdatasync(2).
    Sync { handle: u64, data_only: bool, reply: Reply<kind::Done> },
    /// fallocate(2).
    Allocate { handle: u64, offset: u64, length: u64, mode: u32, reply: Reply<kind::Done> },
    /// lseek(2) to data or a hole.
    Seek { handle: u64, offset: u64, whence: u32, reply: Reply<kind::Offset> },
    /// copy_file_range(2) within the mount.
    Copy { copy: CopyRequest, reply: Reply<kind::Copied> },
}

/// An operation on an open directory.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are the arguments of the system calls")]
pub enum DirectoryOperation {
    /// open(2) of a directory.
    Open { reply: Reply<kind::Opened> },
    /// The last close(2) of a directory that was opened once.
    Release { handle: u64, reply: Reply<kind::Done> },
    /// readdir(3).
    Read { handle: u64, offset: u64, reply: Reply<kind::Names> },
    /// readdir(3), of a process that is likely to ask for attributes as well.
    ReadPlus { handle: u64, offset: u64, reply: Reply<kind::NamesPlus> },
    /// fsync(2) of a directory.
    Sync { reply: Reply<kind::Done> },
}

/// An operation on the mount as a whole.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are the arguments of the system calls")]
pub enum MountOperation {
    /// statfs(2).
    Space { reply: Reply<kind::Space> },
    /// syncfs(2), sync(2): of mounts on a block device alone.
    Sync { reply: Reply<kind::Done> },
    /// The end of a mount on a block device; umount(2) waits for the answer.
    Destroy { reply: Reply<kind::Done> },
}

/// Attributes of something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits; of directories, permission bits alone.
    pub mode: u32,
    /// The umask, if the server applies it.
    pub umask: u32,
    /// Number of a device, as `new_encode_dev` makes it.
    pub rdev: u32,
}

/// Attributes to be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of stat(2)")]
pub struct AttributeChange {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<DesiredTime>,
    pub modified: Option<DesiredTime>,
    pub changed: Option<Time>,
    /// The file as it was opened, for ftruncate(2) and its like.
    pub handle: Option<u64>,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredTime {
    /// The time of the request.
    Now,
    /// A time that the caller chose.
    At(Time),
}

/// Data to be written.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    /// The file as it was opened; of pages that are written back, any handle that is or was open.
    pub handle: u64,
    /// The place in the file.
    pub offset: u64,
    /// The data.
    pub data: &'a [u8],
    /// The origin of the data.
    pub kind: WriteKind,
    /// The flags by which the file was opened, or `RWF_SYNC` and `RWF_DSYNC` as `O_SYNC` and `O_DSYNC`.
    pub flags: OFlags,
}

/// A range to be copied from the node of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// The source as it was opened.
    pub source_handle: u64,
    /// The place in the source.
    pub source_offset: u64,
    /// The node of the target.
    pub target: u64,
    /// The target as it was opened.
    pub target_handle: u64,
    /// The place in the target.
    pub target_offset: u64,
    /// Bytes.
    pub length: u64,
}
