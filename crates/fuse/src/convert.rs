//! Attributes and errors in the words of `fuser`.

use crate::attributes::{BLOCK_BYTES, Stat};
use brindle_fs::{FileType, Timestamp};
use fuser::{Errno, FileAttr, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
}
