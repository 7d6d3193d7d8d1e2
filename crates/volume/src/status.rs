//! What a pool is made of, for those who show it.

use brindle_ondisk::item::DevItem;
use brindle_ondisk::{BlockGroupType, DevId, Generation, Logical, Physical, Uuid};
use brindle_policy::placement::{AllocationHint, PlacementClass};

/// A device of the pool.
#[derive(Clone, Debug)]
pub struct DeviceStatus {
    /// Its id in the pool.
    pub devid: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// What messages call it: the path, where there is one.
    pub name: String,
    /// Its size in bytes, as the pool has it.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub bytes_used: u64,
    /// It was not given.
    pub missing: bool,
    /// It belongs to the seed that the pool grew from.
    pub is_seed: bool,
    /// It has missed transactions.
    pub is_stale: bool,
    /// It lacks something that it failed to take since the pool was opened.
    pub is_behind: bool,
    /// It lacks something: its superblock is older than its mark in the chunk tree, or than the commit before the last
    /// one. A stale device that is not incomplete has missed the last superblock alone, as a power cut between the
    /// superblocks of two devices leaves it.
    pub is_incomplete: bool,
    /// It rotates.
    pub is_rotating: bool,
    /// What the pool stores of it (`dev_item.type`).
    pub hint: AllocationHint,
    /// The generation of its superblock, where it is there.
    pub generation: Option<Generation>,
    /// What it has got wrong since the pool was opened.
    pub counters: DeviceCounters,
}

/// What a device has got wrong since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Reads that failed.
    pub read_errors: u64,
    /// Sectors and blocks of a wrong checksum, or with nonsense in them.
    pub checksum_errors: u64,
    /// Blocks of a wrong generation: writes that were lost.
    pub generation_errors: u64,
    /// Sectors and blocks that were read from elsewhere in place of a bad one here.
    pub recovered: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Flushes that failed.
    pub flush_errors: u64,
    /// Sectors and blocks that were written anew because they were bad.
    pub repaired: u64,
}

/// A device that is there and may be written, or could be, for those who decide what goes where.
#[derive(Clone, Debug)]
pub struct WritableDeviceStatus {
    /// What messages call it: the path, where there is one.
    pub name: String,
    /// As the pool has it, or will have it: id, UUID, size, bytes in use.
    pub item: DevItem,
    /// The size of the device itself, in bytes.
    pub size_bytes: u64,
    /// Flash or spindle; the pool may store a hint that says more.
    pub class: PlacementClass,
    /// What the pool stores (`dev_item.type`).
    pub hint: AllocationHint,
}

/// What readers wanted of a device, and how fast it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStatistics {
    /// Reads that it has not answered yet.
    pub in_flight: u32,
    /// Ranges that it was told to fetch, and that nobody has read yet.
    pub expected: u32,
    /// Reads that it has answered.
    pub reads: u64,
    /// What these were long, in bytes.
    pub bytes: u64,
    /// What it was asked for: ranges to fetch, and reads of what was not fetched.
    pub requests: u64,
    /// Of these, how many began where the one before had ended.
    pub local_requests: u64,
    /// Where the last one ended, in bytes.
    pub end: u64,
    /// How long a read takes lately, in nanoseconds.
    pub latency_ns: u64,
    /// How long a read keeps it from others lately, in nanoseconds.
    pub service_ns: u64,
    /// How fast it streamed lately, in bytes a second; 0 if nobody had to wait.
    pub bytes_per_second: u64,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkStatus {
    /// Where it begins.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    /// What it holds, and its profile.
    pub kind: BlockGroupType,
    /// It may be written, or could be if the pool were: no device of it belongs to a seed, and enough of them are there.
    pub writable: bool,
    /// Its pieces on the devices.
    pub stripes: Vec<StripeStatus>,
}

/// A chunk's piece of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeStatus {
    /// The device.
    pub devid: DevId,
    /// Where the piece begins on it.
    pub physical: Physical,
    /// How long it is, in bytes.
    pub length: u64,
    /// The device is there.
    pub present: bool,
}
