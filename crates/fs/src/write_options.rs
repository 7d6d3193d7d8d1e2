//! Options of a filesystem that is written, and its needs of the host: the time, and unique numbers.

use crate::attributes::Timestamp;
use crate::compression::choice::CompressionChoice;
use brindle_ondisk::Uuid;
use brindle_ondisk::item::Timespec;
use brindle_policy::log::LogProfile;
use brindle_policy::placement::{PlacementClass, PlacementMode};
use brindle_tree::{DiscardMode, Recount, WriteBackWish, WriterOptions};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest contents that are kept inside an item unless told otherwise, in bytes, as the kernel has it.
const MAX_INLINE_BYTES: u32 = 2048;

/// Default bound on dirty contents in memory, in bytes.
const DIRTY_BYTES_MAX: u64 = 128 << 20;

/// Options of a filesystem that is written. Commit intervals are the caller's business.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Compression of new data, if any (`compress`, `compress-force`).
    pub compression: Option<CompressionChoice>,
    /// New files are overwritten in place, and so have no checksums (`nodatacow`).
    pub nodatacow: bool,
    /// New files have no checksums (`nodatasum`).
    pub nodatasum: bool,
    /// The longest contents that are kept inside an item, in bytes (`max_inline`).
    pub max_inline_bytes: u32,
    /// Contents in memory that are not written yet, of all files, from which on a writer has to write some of them
    /// back, in bytes.
    pub dirty_bytes_max: u64,
    /// Commits that are asked for take all contents along that are in memory, those of an fsync too (`flushoncommit`).
    /// Not those that are made in the midst of an operation, for room.
    pub flush_on_commit: bool,
    /// An fsync writes to the log what has changed of its file (`treelog`); without this it is a commit (`notreelog`).
    pub tree_log: bool,
    /// Items that an fsync logs are read and copied with the log's entries locked, and not before (`log_prepare_locked`): only to
    /// measure the worth of that.
    pub log_prepare_locked: bool,
    /// Freed space is given back to the devices (`discard=async`).
    pub discard: bool,
    /// Mode of updating access times.
    pub atime: AtimeMode,
    /// Weight of a device's class when a chunk is made.
    pub placement: PlacementMode,
    /// Files up to this length, compressed, have their data on fast devices, whatever the pool has stored about that
    /// (`small_files`).
    pub small_file_bytes: Option<u64>,
    /// The class that a device is to have, by its name, whatever the pool or the host says of it.
    pub classes: BTreeMap<String, PlacementClass>,
    /// Source of the mode of write-back: none unless told otherwise, for someone has to destage what waits
    /// ([`Upkeep`](crate::Upkeep)).
    pub write_back: WriteBackWish,
    /// Profile of the log, whatever the pool has stored (`log_profile`).
    pub log_profile: Option<LogProfile>,
    /// Longer extents that are not compressed become several when they are moved to another place, in bytes.
    pub moved_extent_bytes_max: u64,
    /// The time, and random numbers.
    pub host: Arc<dyn Host>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            compression: None,
            nodatacow: false,
            nodatasum: false,
            max_inline_bytes: MAX_INLINE_BYTES,
            dirty_bytes_max: DIRTY_BYTES_MAX,
            flush_on_commit: false,
            tree_log: true,
            log_prepare_locked: false,
            discard: false,
            atime: AtimeMode::default(),
            placement: PlacementMode::default(),
            small_file_bytes: None,
            classes: BTreeMap::new(),
            write_back: WriteBackWish::default(),
            log_profile: None,
            moved_extent_bytes_max: u64::MAX,
            host: Arc::new(SystemHost),
        }
    }
}

impl WriteOptions {
    /// Options for the trees.
    pub(crate) fn for_pool(&self) -> WriterOptions {
        let host = Arc::clone(&self.host);
        WriterOptions {
            discard: if self.discard { DiscardMode::Async } else { DiscardMode::None },
            placement: self.placement,
            classes: self.classes.clone(),
            write_back: self.write_back,
            log_profile: self.log_profile,
            moved_extent_bytes_max: self.moved_extent_bytes_max,
            log_prepare_locked: self.log_prepare_locked,
            recovers: true,
            recount: Recount::default(),
            is_transient: false,
            cancels_replacement: false,
            series: folded(self.host.new_uuid()),
            clock: Arc::new(move || Timespec::from(host.now())),
        }
    }
}

/// Both halves of a UUID as one number.
fn folded(uuid: Uuid) -> u64 {
    let number = u128::from_be_bytes(uuid.0);
    u64::try_from((number ^ number >> 64) & u128::from(u64::MAX)).expect("the upper half is cut off")
}

/// Mode of updating access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtimeMode {
    /// Updates a time older than the last change, or than a day (`relatime`).
    #[default]
    Relative,
    /// At each access (`strictatime`).
    Strict,
    /// Never (`noatime`).
    Never,
}

/// Services of the host.
pub trait Host: Debug + Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// New unique UUID.
    fn new_uuid(&self) -> Uuid;
}

/// The clock and the random numbers of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl Host for SystemHost {
    fn now(&self) -> Timestamp {
        let (seconds, nanoseconds) = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
            // A clock set before 1970 is wrong anyhow.
            Err(_) => (0, 0),
        };
        Timestamp { seconds, nanoseconds }
    }

    fn new_uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        let random = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
        if random.is_err() {
            // Without a source of randomness (a bare chroot) time and place are the next best.
            let now = self.now();
            bytes[..8].copy_from_slice(&now.seconds.to_le_bytes());
            bytes[8..12].copy_from_slice(&now.nanoseconds.to_le_bytes());
            bytes[12..].copy_from_slice(&std::process::id().to_le_bytes());
        }
        version_4(bytes)
    }
}

/// A host that says the same each time it is asked anew: for tests, and for images that can be made again.
#[derive(Debug)]
pub struct FixedHost {
    now: Timestamp,
    uuids: AtomicU64,
}

impl FixedHost {
    /// A host where it is always this time.
    pub const fn new(now: Timestamp) -> Self {
        Self { now, uuids: AtomicU64::new(1) }
    }
}

impl Host for FixedHost {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn new_uuid(&self) -> Uuid {
        let number = self.uuids.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.now.seconds.to_be_bytes());
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        version_4(bytes)
    }
}

/// Marks bytes as a random UUID.
fn version_4(mut bytes: [u8; 16]) -> Uuid {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_differ_and_are_of_version_4() {
        let fixed = FixedHost::new(Timestamp { seconds: 1_700_000_000, nanoseconds: 5 });
        for host in [&SystemHost as &dyn Host, &fixed] {
            let (a, b) = (host.new_uuid(), host.new_uuid());
            assert_ne!(a, b);
            assert_eq!((a.0[6] >> 4, a.0[8] >> 6), (4, 2));
        }
        assert_eq!(fixed.now(), fixed.now());
        assert!(SystemHost.now().seconds > 1_600_000_000);
    }
}
