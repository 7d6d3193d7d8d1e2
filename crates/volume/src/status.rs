//! Status of a pool's parts, for display.

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
    /// Name in messages: the path, where there is one.
    pub name: String,
    /// Its size in bytes, as the pool has it.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub bytes_used: u64,
    /// True if it was not given.
    pub missing: bool,
    /// The first generation that was written without it, by its mark; of a missing device that is not marked yet, `None`.
    pub absent_since: Option<Generation>,
    /// Generation in which it took the place of another device, or its own after an absence; 0 for never. One with an older
    /// superblock is not this device.
    pub placed_in: Generation,
    /// True if it belongs to the seed that the pool grew from.
    pub is_seed: bool,
    /// True if it has missed transactions.
    pub is_stale: bool,
    /// True if its superblock is behind because commits had nothing for the device: it lacks nothing.
    pub is_asleep: bool,
    /// True if it lacks writes that it failed to take since the pool was opened.
    pub is_behind: bool,
    /// True if it lacks writes: its superblock is older than its mark in the chunk tree, than one that it is known to have had,
    /// or than the commit before the last one and not of its series. A stale device that is not incomplete has missed the last
    /// superblock alone, as a power cut between the superblocks of two devices leaves it.
    pub is_incomplete: bool,
    /// True if it rotates.
    pub is_rotating: bool,
    /// Hint stored in the pool (`dev_item.type`).
    pub hint: AllocationHint,
    /// The generation of its superblock, where it is there.
    pub generation: Option<Generation>,
    /// Error counters since the pool was opened.
    pub counters: DeviceCounters,
}

impl DeviceStatus {
    /// Returns true if it has missed transactions, and is left out of writes. One that has missed the last superblock alone is not:
    /// it gets the next one.
    pub fn is_left_out(&self) -> bool {
        self.is_stale && self.is_incomplete
    }
}

/// Error counters of a device since the pool was opened.
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

/// A present device that may be written, or could be, for placement.
#[derive(Clone, Debug)]
pub struct WritableDeviceStatus {
    /// Name in messages: the path, where there is one.
    pub name: String,
    /// Device item of the pool, present or future: id, UUID, size, bytes in use.
    pub item: DevItem,
    /// The size of the device itself, in bytes.
    pub size_bytes: u64,
    /// Flash or spindle; the pool may store a hint that says more.
    pub class: PlacementClass,
    /// Hint stored in the pool (`dev_item.type`).
    pub hint: AllocationHint,
}

/// Read statistics of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStatistics {
    /// Reads that it has not answered yet.
    pub in_flight: u32,
    /// Prefetched ranges that are not read yet.
    pub expected: u32,
    /// Reads that it has answered.
    pub reads: u64,
    /// Bytes of these reads.
    pub bytes: u64,
    /// Requests to the device: prefetched ranges, and reads of data that was not prefetched.
    pub requests: u64,
    /// Number of these that began where the one before had ended.
    pub local_requests: u64,
    /// End of the last one, in bytes.
    pub end: u64,
    /// Recent latency of a read, in nanoseconds.
    pub latency_ns: u64,
    /// Recent time for which a read keeps it from others, in nanoseconds.
    pub service_ns: u64,
    /// Recent throughput, in bytes a second; 0 if no reader had to wait.
    pub bytes_per_second: u64,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkStatus {
    /// Start address.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    /// Content and profile.
    pub kind: BlockGroupType,
    /// True if it may be written, or could be if the pool were: no device of it belongs to a seed, and enough of them
    /// are there.
    pub writable: bool,
    /// Its pieces on the devices.
    pub stripes: Vec<StripeStatus>,
}

/// A chunk's piece of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeStatus {
    /// The device.
    pub devid: DevId,
    /// Start on the device.
    pub physical: Physical,
    /// Length in bytes.
    pub length: u64,
    /// True if the device is there.
    pub present: bool,
}
