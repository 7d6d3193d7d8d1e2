//! Attributes and errors in the words of `fuser`.

use crate::attributes::{BLOCK_BYTES, Stat};
use crate::operations::WriteOrigin;
use crate::permission::Caller;
use brindle_fs::{FileType, NewInode, NewTime, Timestamp};
use fuser::{Errno, FileAttr, FopenFlags, INodeNo, Request, TimeOrNow, WriteFlags};
use rustix::fs::OFlags;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

// Types in `st_mode`, as files are made with them.
pub(crate) const REGULAR: u32 = 0o100_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const SYMLINK: u32 = 0o120_777;

pub(crate) fn errno(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

pub(crate) fn file_attr(stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.ino),
        size: stat.size,
        blocks: stat.blocks,
        atime: system_time(stat.accessed),
        mtime: system_time(stat.modified),
        ctime: system_time(stat.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(stat.kind),
        perm: stat.permissions,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

pub(crate) fn file_type(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Regular | FileType::Xattr => fuser::FileType::RegularFile,
    }
}

/// The nanoseconds count forward, before 1970 too. A time that has no `SystemTime` becomes 1970.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// The time that a request carries. `fuser` 0.18 takes the nanoseconds of a time before 1970, which count forward, for
/// ones that count backward: this takes them as they were.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        },
        Err(error) => {
            let before = error.duration();
            let seconds = 0i64.checked_sub_unsigned(before.as_secs()).unwrap_or(i64::MIN);
            Timestamp { seconds, nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(crate) fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::Now => NewTime::Now,
        TimeOrNow::SpecificTime(time) => NewTime::At(timestamp(time)),
    }
}

/// Caller of a request.
pub(crate) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

/// The origin of a write.
pub(crate) fn write_origin(request: &Request, how: WriteFlags) -> WriteOrigin {
    if how.contains(WriteFlags::FUSE_WRITE_CACHE) {
        return WriteOrigin::PageCache;
    }
    let keeps_set_ids = !how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
    WriteOrigin::Program { caller: caller(request), keeps_set_ids }
}

/// A device number as it lies on disk, of the 32 bits that the kernel shares with userspace (`new_encode_dev`).
pub(crate) fn device_on_disk(encoded: u32) -> u64 {
    let (major, minor) = ((encoded >> 8) & 0xfff, (encoded & 0xff) | ((encoded >> 12) & 0xfff00));
    u64::from(major) << 20 | u64::from(minor)
}

/// Reads and writes around the page cache go side by side; the kernel keeps them apart from mapped pages.
pub(crate) fn open_flags(flags: OFlags, is_past_cache: bool) -> FopenFlags {
    if is_past_cache || flags.contains(OFlags::DIRECT) {
        FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::FOPEN_KEEP_CACHE
    }
}

/// New inode for the caller.
pub(crate) fn new_inode<'a>(request: &Request, mode: u32, umask: u32) -> NewInode<'a> {
    NewInode { mode, umask, uid: request.uid(), gid: request.gid(), rdev: 0, target: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_forward() {
        let time = system_time(Timestamp { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(time).expect("before"), Duration::from_millis(1200));
        let extreme = system_time(Timestamp { seconds: i64::MIN, nanoseconds: 0 });
        assert!(extreme <= UNIX_EPOCH);
        assert!(system_time(Timestamp { seconds: i64::MAX, nanoseconds: 999_999_999 }) >= UNIX_EPOCH);
    }

    #[test]
    fn times_of_requests_are_taken_as_they_were_sent() {
        let nearly = 999_999_999;
        for (seconds, nanoseconds) in
            [(0, 0), (-2, 800_000_000), (-2, 0), (5, 1), (-1, nearly), (i64::MIN, 0), (i64::MAX, nearly)]
        {
            // As fuser reads it.
            let whole = Duration::new(seconds.unsigned_abs(), nanoseconds);
            let read =
                if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
            assert_eq!(timestamp(read.expect("a time")), Timestamp { seconds, nanoseconds });
        }
    }

    #[test]
    fn the_extremes_of_time_are_shown_as_they_are() {
        for (seconds, nanoseconds) in [(i64::MIN, 0), (i64::MIN, 1), (i64::MAX, 0), (-1, 999_999_999)] {
            let shown = system_time(Timestamp { seconds, nanoseconds });
            let whole = match shown.duration_since(UNIX_EPOCH) {
                Ok(since) => i128::try_from(since.as_nanos()).expect("it fits"),
                Err(error) => -i128::try_from(error.duration().as_nanos()).expect("it fits"),
            };
            assert_eq!(whole, i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds));
        }
    }

    #[test]
    fn device_numbers_are_spread_as_on_disk() {
        assert_eq!(device_on_disk(0x801), 8 << 20 | 1);
        assert_eq!(device_on_disk((300 & 0xff) | (259 << 8) | (0x100 << 12)), 259 << 20 | 300);
        assert_eq!(device_on_disk(u32::MAX), u64::from(u32::MAX));
    }
}
