//! Bytes to requests.

use crate::channel::Channel;
use crate::flags::WriteKind;
use crate::operation::{
    AttributeChange, Caller, CopyRequest, DesiredTime, DirectoryOperation, FileOperation, InodeOperation,
    MountOperation, NameOperation, NewNode, Operation, Request, WriteRequest,
};
use crate::reply::{Listing, Reply, Time, kind};
use crate::way::Way;
use crate::wire::{
    self, AccessIn, BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, ForgetIn, ForgetOne, FsyncIn,
    GetAttrIn, GetXattrIn, InHeader, InterruptIn, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn,
    ReleaseIn, Rename2In, RenameIn, SetAttrIn, SetXattrIn, SetXattrMore, WriteIn, opcode, valid,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A message of the kernel.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    /// A request to be answered, and its number.
    Request(Request<'a>, u64),
    /// Nodes that the kernel has forgotten; there is no answer.
    Forget(Forgotten<'a>),
    /// The number of a request whose caller has a signal; there is no answer.
    Interrupt(u64),
    /// A message that is not answered by the server, and the error that answers it. A message whose head is too short
    /// has no number to answer to.
    Refused { unique: Option<u64>, opcode: u32, error: Errno },
}

/// Nodes that the kernel has forgotten, with the number of lookups each.
#[derive(Debug)]
pub(crate) enum Forgotten<'a> {
    One(u64, u64),
    Many(&'a [u8]),
}

impl Forgotten<'_> {
    /// Calls for each node.
    pub(crate) fn for_each(&self, mut call: impl FnMut(u64, u64)) {
        match self {
            Self::One(node, lookups) => call(*node, *lookups),
            Self::Many(list) => {
                let mut rest = *list;
                while let Ok((one, behind)) = ForgetOne::read_from_prefix(rest) {
                    call(one.node, one.lookups);
                    rest = behind;
                }
            }
        }
    }
}

/// Bytes of a message that were not looked at yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// Text up to its zero.
    fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }

    /// A name of a directory entry.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        if name.is_empty() || name.contains(&b'/') { Err(Errno::INVAL) } else { Ok(name) }
    }

    fn bytes(&mut self, length: u32) -> Result<&'a [u8], Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// Makes a message of what was read; requests are answered by the way that they came.
pub(crate) fn decode<'a>(bytes: &'a [u8], channel: &Arc<Channel>, way: &Way) -> Message<'a> {
    let mut fields = Fields(bytes);
    let Ok(header) = fields.take::<InHeader>() else {
        return Message::Refused { unique: None, opcode: 0, error: Errno::INVAL };
    };
    let refused = |error| Message::Refused { unique: Some(header.unique), opcode: header.opcode, error };
    if usize::try_from(header.length).ok() != Some(bytes.len()) {
        return refused(Errno::INVAL);
    }
    if let opcode::FORGET | opcode::BATCH_FORGET = header.opcode {
        return match forgotten(&header, fields) {
            Ok(forgotten) => Message::Forget(forgotten),
            // These have no answer.
            Err(error) => Message::Refused { unique: None, opcode: header.opcode, error },
        };
    }
    if header.opcode == opcode::INTERRUPT {
        return match fields.take() {
            Ok(InterruptIn { unique }) => Message::Interrupt(unique),
            Err(error) => refused(error),
        };
    }
    let decoder = Decoder { channel, way, unique: header.unique, pid: header.pid, fields };
    match decoder.operation(header.opcode) {
        Ok(operation) => {
            let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
            Message::Request(Request { caller, node: header.node, operation }, header.unique)
        }
        Err(error) => refused(error),
    }
}

fn forgotten<'a>(header: &InHeader, mut fields: Fields<'a>) -> Result<Forgotten<'a>, Errno> {
    if header.opcode == opcode::FORGET {
        let ForgetIn { lookups } = fields.take()?;
        return Ok(Forgotten::One(header.node, lookups));
    }
    let one = u32::try_from(size_of::<ForgetOne>()).expect("it is small");
    let BatchForgetIn { count, .. } = fields.take()?;
    Ok(Forgotten::Many(fields.bytes(count.checked_mul(one).ok_or(Errno::INVAL)?)?))
}

/// Decoder of one request.
struct Decoder<'a, 'c> {
    channel: &'c Arc<Channel>,
    way: &'c Way,
    unique: u64,
    /// The process that waits.
    pid: u32,
    fields: Fields<'a>,
}

impl<'a> Decoder<'a, '_> {
    fn reply<K>(&self, kind: K) -> Reply<K> {
        // The kernel tells no number of processes that are not to be seen from here.
        if self.pid != 0 {
            self.channel.interrupts.enter(self.unique, self.pid, self.way);
        }
        self.unlisted_reply(kind)
    }

    /// A reply that no process waits for, or only the end of the mount.
    fn unlisted_reply<K>(&self, kind: K) -> Reply<K> {
        Reply::new(self.channel, self.way, self.unique, kind)
    }

    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Errno> {
        self.fields.take()
    }

    /// The operation. Fields are taken before the reply is made, for one that is dropped answers.
    fn operation(self, code: u32) -> Result<Operation<'a>, Errno> {
        Ok(match code {
            opcode::LOOKUP
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::LINK
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2 => Operation::Name(self.name_operation(code)?),
            opcode::OPENDIR
            | opcode::RELEASEDIR
            | opcode::READDIR
            | opcode::READDIRPLUS
            | opcode::FSYNCDIR => Operation::Directory(self.directory_operation(code)?),
            opcode::OPEN
            | opcode::RELEASE
            | opcode::READ
            | opcode::WRITE
            | opcode::FSYNC
            | opcode::FALLOCATE
            | opcode::LSEEK
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64 => Operation::File(self.file_operation(code)?),
            opcode::STATFS => Operation::Mount(MountOperation::Space { reply: self.reply(kind::Space) }),
            opcode::SYNCFS => Operation::Mount(MountOperation::Sync { reply: self.reply(kind::Done) }),
            opcode::DESTROY => {
                Operation::Mount(MountOperation::Destroy { reply: self.unlisted_reply(kind::Done) })
            }
            code => Operation::Inode(self.inode_operation(code)?),
        })
    }

    fn name_operation(mut self, code: u32) -> Result<NameOperation<'a>, Errno> {
        match code {
            opcode::MKNOD => {
                let MknodIn { mode, rdev, umask, .. } = self.take()?;
                let (name, new) = (self.fields.name()?, NewNode { mode, umask, rdev });
                Ok(NameOperation::MakeNode { name, new, reply: self.reply(kind::Entry) })
            }
            opcode::MKDIR => {
                let MkdirIn { mode, umask } = self.take()?;
                let (name, new) = (self.fields.name()?, NewNode { mode, umask, rdev: 0 });
                Ok(NameOperation::MakeDirectory { name, new, reply: self.reply(kind::Entry) })
            }
            opcode::SYMLINK => {
                let (name, target) = (self.fields.name()?, self.fields.text()?);
                Ok(NameOperation::Symlink { name, target, reply: self.reply(kind::Entry) })
            }
            opcode::LINK => {
                let LinkIn { node: target } = self.take()?;
                let name = self.fields.name()?;
                Ok(NameOperation::Link { target, name, reply: self.reply(kind::Entry) })
            }
            opcode::CREATE | opcode::TMPFILE => self.create(code == opcode::TMPFILE),
            opcode::RENAME | opcode::RENAME2 => self.rename(code == opcode::RENAME2),
            _ => {
                let name = self.fields.name()?;
                Ok(match code {
                    opcode::LOOKUP => NameOperation::Lookup { name, reply: self.reply(kind::Entry) },
                    opcode::UNLINK => NameOperation::Unlink { name, reply: self.reply(kind::Done) },
                    _ => NameOperation::RemoveDirectory { name, reply: self.reply(kind::Done) },
                })
            }
        }
    }

    fn create(mut self, is_unnamed: bool) -> Result<NameOperation<'a>, Errno> {
        let CreateIn { flags, mode, umask, .. } = self.take()?;
        let (new, flags) = (NewNode { mode, umask, rdev: 0 }, open_flags(flags));
        if is_unnamed {
            return Ok(NameOperation::CreateUnnamed { new, flags, reply: self.reply(kind::Created) });
        }
        let name = self.fields.name()?;
        Ok(NameOperation::Create { name, new, flags, reply: self.reply(kind::Created) })
    }

    fn rename(mut self, has_flags: bool) -> Result<NameOperation<'a>, Errno> {
        let (new_parent, flags) = if has_flags {
            let Rename2In { new_parent, flags, .. } = self.take()?;
            (new_parent, flags)
        } else {
            let RenameIn { new_parent } = self.take()?;
            (new_parent, 0)
        };
        let (name, new_name) = (self.fields.name()?, self.fields.name()?);
        Ok(NameOperation::Rename { name, new_parent, new_name, flags, reply: self.reply(kind::Done) })
    }

    fn directory_operation(mut self, code: u32) -> Result<DirectoryOperation, Errno> {
        match code {
            opcode::OPENDIR => Ok(DirectoryOperation::Open { reply: self.reply(kind::Opened) }),
            opcode::RELEASEDIR => {
                let ReleaseIn { handle, .. } = self.take()?;
                Ok(DirectoryOperation::Release { handle, reply: self.unlisted_reply(kind::Done) })
            }
            opcode::FSYNCDIR => Ok(DirectoryOperation::Sync { reply: self.reply(kind::Done) }),
            _ => {
                let ReadIn { handle, offset, size, .. } = self.take()?;
                let listing = Listing::new(self.bounded(size)?);
                Ok(if code == opcode::READDIR {
                    DirectoryOperation::Read { handle, offset, reply: self.reply(kind::Names { listing }) }
                } else {
                    let reply = self.reply(kind::NamesPlus { listing });
                    DirectoryOperation::ReadPlus { handle, offset, reply }
                })
            }
        }
    }

    fn file_operation(mut self, code: u32) -> Result<FileOperation<'a>, Errno> {
        match code {
            opcode::OPEN => {
                let OpenIn { flags, .. } = self.take()?;
                Ok(FileOperation::Open { flags: open_flags(flags), reply: self.reply(kind::Opened) })
            }
            opcode::RELEASE => {
                let ReleaseIn { handle, .. } = self.take()?;
                Ok(FileOperation::Release { handle, reply: self.unlisted_reply(kind::Done) })
            }
            opcode::READ => {
                let ReadIn { handle, offset, size, flags, .. } = self.take()?;
                let size = self.bounded(size)?;
                let is_in_place = self.is_read_ahead(size, open_flags(flags));
                let kind = kind::Data { bytes_max: size, is_in_place };
                let reply = if is_in_place { self.unlisted_reply(kind) } else { self.reply(kind) };
                Ok(FileOperation::Read { handle, offset, size, reply })
            }
            opcode::WRITE => {
                let WriteIn { handle, offset, size, write_flags, flags, .. } = self.take()?;
                let data = self.fields.bytes(size)?;
                let kind = WriteKind::from_bits_retain(write_flags);
                let write = WriteRequest { handle, offset, data, kind, flags: open_flags(flags) };
                let is_of_cache = write.kind.contains(WriteKind::CACHE);
                let reply =
                    if is_of_cache { self.unlisted_reply(kind::Written) } else { self.reply(kind::Written) };
                Ok(FileOperation::Write { write, reply })
            }
            opcode::FSYNC => {
                let FsyncIn { handle, flags, .. } = self.take()?;
                let data_only = flags & wire::DATA_ONLY != 0;
                Ok(FileOperation::Sync { handle, data_only, reply: self.reply(kind::Done) })
            }
            opcode::FALLOCATE => {
                let FallocateIn { handle, offset, length, mode, .. } = self.take()?;
                Ok(FileOperation::Allocate { handle, offset, length, mode, reply: self.reply(kind::Done) })
            }
            opcode::LSEEK => {
                let LseekIn { handle, offset, whence, .. } = self.take()?;
                Ok(FileOperation::Seek { handle, offset, whence, reply: self.reply(kind::Offset) })
            }
            _ => self.copy(code == opcode::COPY_FILE_RANGE_64),
        }
    }

    fn copy(mut self, is_wide: bool) -> Result<FileOperation<'a>, Errno> {
        let wire: CopyFileRangeIn = self.take()?;
        let copy = CopyRequest {
            source_handle: wire.source_handle,
            source_offset: wire.source_offset,
            target: wire.target,
            target_handle: wire.target_handle,
            target_offset: wire.target_offset,
            length: wire.length,
        };
        Ok(FileOperation::Copy { copy, reply: self.reply(kind::Copied { is_wide }) })
    }

    fn inode_operation(mut self, code: u32) -> Result<InodeOperation<'a>, Errno> {
        match code {
            opcode::GETATTR => {
                let GetAttrIn { flags, handle, .. } = self.take()?;
                let handle = (flags & wire::HAS_HANDLE != 0).then_some(handle);
                Ok(InodeOperation::GetAttributes { handle, reply: self.reply(kind::Attributes) })
            }
            opcode::STATX => Ok(InodeOperation::GetExtendedAttributes { reply: self.reply(kind::Extended) }),
            opcode::SETATTR => {
                let change = attribute_change(&self.take()?);
                Ok(InodeOperation::SetAttributes { change, reply: self.reply(kind::Attributes) })
            }
            opcode::READLINK => {
                let reply = self.reply(kind::Data { bytes_max: TARGET_BYTES_MAX, is_in_place: false });
                Ok(InodeOperation::ReadLink { reply })
            }
            opcode::GETXATTR => {
                let kind = self.value()?;
                let name = self.fields.text()?;
                Ok(InodeOperation::GetXattr { name, reply: self.reply(kind) })
            }
            opcode::LISTXATTR => {
                let kind = self.value()?;
                Ok(InodeOperation::ListXattr { reply: self.reply(kind) })
            }
            opcode::SETXATTR => {
                let SetXattrIn { size, flags } = self.take()?;
                let more = self.channel.has_long_setxattr.then(|| self.take::<SetXattrMore>()).transpose()?;
                let drops_set_group_id = more.map(|more| more.more_flags & wire::ACL_KILL_SGID != 0);
                let (name, value) = (self.fields.text()?, self.fields.bytes(size)?);
                let reply = self.reply(kind::Done);
                Ok(InodeOperation::SetXattr { name, value, flags, drops_set_group_id, reply })
            }
            opcode::REMOVEXATTR => {
                let name = self.fields.text()?;
                Ok(InodeOperation::RemoveXattr { name, reply: self.reply(kind::Done) })
            }
            opcode::ACCESS => {
                let AccessIn { mask, .. } = self.take()?;
                Ok(InodeOperation::Access { mask, reply: self.reply(kind::Done) })
            }
            opcode::IOCTL => {
                let IoctlIn { command, in_size, out_size, .. } = self.take()?;
                let input = self.fields.bytes(in_size)?;
                let reply = self.reply(kind::Ioctl { bytes_max: size(out_size)? });
                Ok(InodeOperation::Ioctl { command, input, reply })
            }
            // The kernel remembers that, and asks no more: what it does without us is what it should do.
            _ => Err(Errno::NOSYS),
        }
    }

    /// Returns true for a read by a ring whose caller waits for pages, and not for the answer, so that it ends when it is killed.
    fn is_read_ahead(&self, size: usize, flags: OFlags) -> bool {
        const LEAST: usize = 64 << 10;
        matches!(self.way, Way::Ring(_)) && size >= LEAST && !flags.contains(OFlags::DIRECT)
    }

    fn value(&mut self) -> Result<kind::Value, Errno> {
        let GetXattrIn { size: room, .. } = self.take()?;
        Ok(kind::Value { bytes_max: size(room)? })
    }

    /// A size that is asked for, no larger than what was agreed on.
    fn bounded(&self, bytes: u32) -> Result<usize, Errno> {
        Ok(size(bytes)?.min(self.channel.write_bytes_max))
    }
}

fn size(bytes: u32) -> Result<usize, Errno> {
    usize::try_from(bytes).map_err(|_| Errno::INVAL)
}

/// The longest target of a symbolic link (`PATH_MAX`, without its zero).
const TARGET_BYTES_MAX: usize = 4095;

fn open_flags(flags: u32) -> OFlags {
    OFlags::from_bits_retain(flags)
}

fn attribute_change(change: &SetAttrIn) -> AttributeChange {
    const NANOSECONDS_MAX: u32 = 999_999_999;
    let has = |bit| change.valid & bit != 0;
    let plain = |seconds, nanoseconds: u32| Time { seconds, nanoseconds: nanoseconds.min(NANOSECONDS_MAX) };
    let time = |bit, now, seconds, nanoseconds| {
        has(bit)
            .then(|| if has(now) { DesiredTime::Now } else { DesiredTime::At(plain(seconds, nanoseconds)) })
    };
    AttributeChange {
        mode: has(valid::MODE).then_some(change.mode),
        uid: has(valid::UID).then_some(change.uid),
        gid: has(valid::GID).then_some(change.gid),
        size: has(valid::SIZE).then_some(change.size),
        accessed: time(valid::ACCESSED, valid::ACCESSED_NOW, change.accessed, change.accessed_nanoseconds),
        modified: time(valid::MODIFIED, valid::MODIFIED_NOW, change.modified, change.modified_nanoseconds),
        changed: has(valid::CHANGED).then_some(plain(change.changed, change.changed_nanoseconds)),
        handle: has(valid::HANDLE).then_some(change.handle),
    }
}
