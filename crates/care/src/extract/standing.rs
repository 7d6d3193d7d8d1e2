//! Comparison of an entry of the pool with what has its name in the destination.

use super::{ExtractOptions, Failure};
use brindle_fs::{Attributes, FileType, Filesystem, FsError};
use rustix::fs::{AtFlags, Stat, makedev, readlinkat, statat};
use std::os::fd::AsFd;

/// Granularities of times, in nanoseconds: of filesystems that keep each, down to FAT with its two seconds.
const GRANULARITIES: [i128; 5] = [1, 100, 10_000_000, 1_000_000_000, 2_000_000_000];

/// State of a name in the destination.
#[derive(Debug)]
pub(super) enum Standing {
    /// Nothing is there.
    Absent,
    /// The same is there, whole.
    Whole(Stat),
    /// Something of the same kind is there, and differs.
    Differs,
    /// Something of another kind is there.
    Other(rustix::fs::FileType),
}

impl Standing {
    /// The failure that it means, if it is one.
    pub(super) fn obstacle(&self, options: ExtractOptions) -> Option<Failure> {
        let Self::Other(kind) = self else { return None };
        let is_directory = *kind == rustix::fs::FileType::Directory;
        if options.overwrite && !is_directory {
            return None;
        }
        let advice = if is_directory { "" } else { "; --overwrite replaces it" };
        Some(Failure::InTheWay { found: kind_name(*kind), advice })
    }
}

/// Compares an entry that is no directory with what has its name in a directory of the destination.
///
/// # Errors
/// A symbolic link of the pool that can't be read.
pub(super) fn compare(
    filesystem: &Filesystem,
    directory: impl AsFd,
    name: &[u8],
    attributes: &Attributes,
) -> Result<Standing, FsError> {
    let directory = directory.as_fd();
    let Ok(found) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
        // What can't be looked at can't be replaced either, which is told then.
        return Ok(Standing::Absent);
    };
    let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
    if kind != rustix::fs::FileType::from_raw_mode(attributes.mode) {
        return Ok(Standing::Other(kind));
    }
    let is_whole = match attributes.kind {
        FileType::Regular => {
            u64::try_from(found.st_size).ok() == Some(attributes.size) && has_its_time(attributes, &found)
        }
        FileType::Symlink => {
            let target = readlinkat(directory, name, Vec::new());
            let wanted = filesystem.read_link(attributes.id)?;
            target.is_ok_and(|target| target.as_bytes() == &*wanted)
        }
        FileType::CharDevice | FileType::BlockDevice => {
            let (major, minor) = attributes.device_numbers();
            found.st_rdev == makedev(major, minor)
        }
        _ => true,
    };
    Ok(if is_whole { Standing::Whole(found) } else { Standing::Differs })
}

/// Returns true if a file has the time of modification that it gets when it is whole, as far as its filesystem keeps it.
fn has_its_time(attributes: &Attributes, found: &Stat) -> bool {
    let time = |seconds: i64, nanoseconds: i128| i128::from(seconds) * 1_000_000_000 + nanoseconds;
    let wanted = time(attributes.modified.seconds, attributes.modified.nanoseconds.into());
    #[expect(clippy::useless_conversion, reason = "the type is another one on other machines")]
    let found = time(found.st_mtime.into(), found.st_mtime_nsec.into());
    GRANULARITIES.iter().any(|granularity| found == wanted - wanted.rem_euclid(*granularity))
}

/// Kind of a file, with its article.
pub(super) fn kind_name(kind: rustix::fs::FileType) -> &'static str {
    use rustix::fs::FileType;
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device node",
        FileType::Unknown => "something",
    }
}
