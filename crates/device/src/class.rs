//! The class of a device, as the host sees it.

use crate::QUEUE_DEPTH;
use rustix::fs::{Stat, major, minor};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The cost of a seek, by which devices are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceClass {
    /// Seeks cost nothing.
    Solid,
    /// Seeks cost a revolution.
    Rotating,
    /// The host doesn't say.
    #[default]
    Unknown,
}

impl DeviceClass {
    /// The class of a block device, or of the block device that holds an image file.
    pub(crate) fn of(stat: &Stat, is_block_device: bool) -> Self {
        match queue_number(stat, is_block_device, "rotational") {
            Some(0) => Self::Solid,
            Some(1) => Self::Rotating,
            _ => Self::Unknown,
        }
    }
}

/// Requests that the device works on at once: by its own word, or else the length of the host's queue for it.
pub(crate) fn queue_depth(stat: &Stat, is_block_device: bool) -> u32 {
    let mut known = ["../device/queue_depth", "nr_requests"]
        .into_iter()
        .filter_map(|name| queue_number(stat, is_block_device, name));
    known.next().and_then(|depth| u32::try_from(depth).ok()).filter(|depth| *depth > 0).unwrap_or(QUEUE_DEPTH)
}

/// Returns true if a block device can forget a range. One that can't may still take the request to zero it, and write
/// every byte, which takes a hard disk hours.
pub(crate) fn can_discard(stat: &Stat) -> bool {
    queue_number(stat, true, "discard_max_bytes").is_some_and(|most| most > 0)
}

/// Returns true if a block device is write-protected. Opening one to write it succeeds all the same; writing does not.
pub(crate) fn is_write_protected(stat: &Stat) -> bool {
    let flag = format!("/sys/dev/block/{}:{}/ro", major(stat.st_rdev), minor(stat.st_rdev));
    fs::read_to_string(flag).is_ok_and(|flag| flag.trim() == "1")
}

/// The file in which the host counts the requests that wait for the whole disk of a block device: another partition
/// keeps the same head from it.
pub(crate) fn in_flight(stat: &Stat) -> Option<File> {
    let node = PathBuf::from(format!("/sys/dev/block/{}:{}", major(stat.st_rdev), minor(stat.st_rdev)));
    let is_part = node.join("partition").exists();
    File::open(node.join(if is_part { "../inflight" } else { "inflight" })).ok()
}

/// Parses such a file: reads and writes, as two numbers.
pub(crate) fn parse_in_flight(text: &str) -> Option<u32> {
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u32>().ok());
    let (reads, writes) = (numbers.next()??, numbers.next()??);
    Some(reads.saturating_add(writes))
}

/// Least and greatest length of one hint to the host, in bytes: shorter ones are not worth a system call, longer ones only
/// fill the queue.
const PREFETCH_BYTES_MIN: u64 = 128 << 10;
const PREFETCH_BYTES_MAX: u64 = 2 << 20;

/// Bytes that one hint fetches: as many as the kernel reads ahead by itself, or as many as the disk takes at once,
/// whichever are more.
pub(crate) fn prefetch_bytes(stat: &Stat, is_block_device: bool) -> u64 {
    let kib = ["read_ahead_kb", "max_sectors_kb"].map(|name| queue_number(stat, is_block_device, name));
    let bytes = kib.into_iter().flatten().map(|kib| kib.saturating_mul(1 << 10));
    bytes.max().unwrap_or(0).clamp(PREFETCH_BYTES_MIN, PREFETCH_BYTES_MAX)
}

/// A number that the host knows of the queue of a block device, or of the one that holds a file.
fn queue_number(stat: &Stat, is_block_device: bool, name: &str) -> Option<u64> {
    let number = if is_block_device { stat.st_rdev } else { stat.st_dev };
    let node = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    // A partition has no queue of its own, its disk does.
    ["queue", "../queue"].into_iter().find_map(|queue| {
        let text = fs::read_to_string(Path::new(&node).join(queue).join(name)).ok()?;
        text.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_reads_and_writes_are_added() {
        assert_eq!(parse_in_flight("       3        4\n"), Some(7));
        assert_eq!(parse_in_flight("3\n"), None);
        assert_eq!(parse_in_flight(""), None);
        assert_eq!(parse_in_flight("4294967295 9"), Some(u32::MAX));
    }
}
