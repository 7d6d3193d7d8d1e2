//! Attributes, times and flags in the words of the transport.

use crate::attributes::{BLOCK_BYTES, Stat};
use crate::operations::contents::WriteOrigin;
use crate::permission::{Caller, Ids};
use brindle_fs::{FileType, NewInode, NewTime, Timestamp};
use brindle_transport::{Attributes, DesiredTime, OpenAnswers, Time, WriteKind};
use rustix::fs::OFlags;

// Types in `st_mode`, as files are made with them.
pub(crate) const REGULAR: u32 = 0o100_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const SYMLINK: u32 = 0o120_777;

pub(crate) fn attributes_of(stat: &Stat) -> Attributes {
    Attributes {
        ino: stat.ino,
        size: stat.size,
        blocks: stat.blocks,
        accessed: time_of(stat.accessed),
        modified: time_of(stat.modified),
        changed: time_of(stat.changed),
        mode: type_bits(stat.kind) | u32::from(stat.permissions),
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        block_bytes: BLOCK_BYTES,
    }
}

/// The type in a mode (`S_IF*`).
pub(crate) fn type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Directory => DIRECTORY,
        FileType::CharDevice => 0o020_000,
        FileType::BlockDevice => 0o060_000,
        FileType::Fifo => 0o010_000,
        FileType::Socket => 0o140_000,
        FileType::Symlink => 0o120_000,
        FileType::Regular | FileType::Xattr => REGULAR,
    }
}

pub(crate) fn time_of(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(crate) fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(crate) fn new_time(time: DesiredTime) -> NewTime {
    match time {
        DesiredTime::Now => NewTime::Now,
        DesiredTime::At(time) => NewTime::At(timestamp(time)),
    }
}

/// Caller of a request.
pub(crate) fn caller(caller: brindle_transport::Caller) -> Caller {
    let brindle_transport::Caller { uid, gid, pid } = caller;
    let is_told = uid != brindle_transport::Caller::UNTOLD;
    Caller { told: is_told.then_some(Ids { uid, gid }), pid }
}

/// The origin of a write.
pub(crate) fn write_origin(caller: Caller, kind: WriteKind) -> WriteOrigin {
    if kind.contains(WriteKind::CACHE) {
        return WriteOrigin::PageCache;
    }
    WriteOrigin::Program { caller, keeps_set_ids: !kind.contains(WriteKind::KILL_SUIDGID) }
}

/// A device number as it lies on disk, of the 32 bits that the kernel shares with userspace (`new_encode_dev`).
pub(crate) fn device_on_disk(encoded: u32) -> u64 {
    let (major, minor) = ((encoded >> 8) & 0xfff, (encoded & 0xff) | ((encoded >> 12) & 0xfff00));
    u64::from(major) << 20 | u64::from(minor)
}

/// Reads and writes around the page cache go side by side; the kernel keeps them apart from mapped pages.
pub(crate) fn open_answers(flags: OFlags, is_past_cache: bool) -> OpenAnswers {
    if is_past_cache || flags.contains(OFlags::DIRECT) {
        OpenAnswers::DIRECT_IO | OpenAnswers::PARALLEL_DIRECT_WRITES | OpenAnswers::KEEP_CACHE
    } else {
        OpenAnswers::KEEP_CACHE
    }
}

/// New inode for the caller.
pub(crate) fn new_inode<'a>(caller: Caller, mode: u32, umask: u32) -> NewInode<'a> {
    let Ids { uid, gid } = caller.maker();
    NewInode { mode, umask, uid, gid, rdev: 0, target: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_spread_as_on_disk() {
        assert_eq!(device_on_disk(0x801), 8 << 20 | 1);
        assert_eq!(device_on_disk((300 & 0xff) | (259 << 8) | (0x100 << 12)), 259 << 20 | 300);
        assert_eq!(device_on_disk(u32::MAX), u64::from(u32::MAX));
    }
}
