//! Counters, under flashcache's names.

/// Counters of flashcache for events that never happen here. Blocks are written in the order of the disk, so each joins the one before it;
/// a request that waits looks its blocks up afterwards, and is never given back; there are no lists of processes; a lack of memory ends the
/// process.
pub(crate) const ALWAYS_ZERO: [&str; 8] = [
    "front_merge",
    "pending_inval",
    "uncached_IO_requeue",
    "pid_adds",
    "pid_dels",
    "pid_drops",
    "pid_expiry",
    "memory_alloc_errors",
];

/// Counters of requests that a device failed.
pub const ERROR_COUNTERS: [&str; 9] = [
    "disk_read_errors",
    "disk_write_errors",
    "disk_flush_errors",
    "ssd_read_errors",
    "ssd_write_errors",
    "ssd_flush_errors",
    "mirror_read_errors",
    "mirror_write_errors",
    "mirror_flush_errors",
];

/// Declares the counters, and lists them by name.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a cache since it was opened, or since they were set to 0. Those of blocks count blocks.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CacheCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CacheCounters {
            /// Names and values.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Blocks that were read.
    reads,
    /// Blocks that were written.
    writes,
    /// Blocks that were read from the flash.
    read_hits,
    /// Blocks that were written and were cached.
    write_hits,
    /// Blocks that were written and were dirty.
    dirty_write_hits,
    /// Blocks that made way for one that was read.
    replacement,
    /// Blocks that made way for one that was written.
    write_replacement,
    /// Cached blocks that were dropped as they were written on the disk.
    write_invalidates,
    /// Cached blocks that were dropped as they could not be read.
    read_invalidates,
    /// Requests that waited for another one of the same blocks.
    pending_enqueues,
    /// Slots that the table on flash got as dirty.
    metadata_dirties,
    /// Slots that the table on flash had as dirty, and has not any more.
    metadata_cleans,
    /// Blocks of the table that were written to the flash.
    metadata_ssd_writes,
    /// Transactions of the table.
    metadata_batch,
    /// Dirty blocks that were written to the disk.
    cleanings,
    /// Of these, blocks that had not been written for long.
    fallow_cleanings,
    /// Blocks for which there was no room in their set.
    no_room,
    /// Blocks that were cleaned together with the one before them on the disk.
    back_merge,
    /// Requests to the disk for reads.
    disk_reads,
    /// Requests to the disk for writes.
    disk_writes,
    /// Requests to the flash for reads.
    ssd_reads,
    /// Requests to the flash for writes.
    ssd_writes,
    /// Bytes that were written to the flash.
    ssd_write_bytes,
    /// Blocks that were read from the disk and not taken in.
    uncached_reads,
    /// Blocks that were written to the disk and not taken in.
    uncached_writes,
    /// Of the blocks not taken in, those of streams of reads.
    uncached_sequential_reads,
    /// Of the blocks not taken in, those of streams of writes.
    uncached_sequential_writes,
    /// Blocks that were not taken in to spare the flash.
    wear_refusals,
    /// Reads of the disk that failed.
    disk_read_errors,
    /// Writes of the disk that failed.
    disk_write_errors,
    /// Flushes of the disk that failed.
    disk_flush_errors,
    /// Reads of the first SSD that failed.
    ssd_read_errors,
    /// Writes of the first SSD that failed.
    ssd_write_errors,
    /// Flushes of the first SSD that failed.
    ssd_flush_errors,
    /// Reads of its mirror that failed.
    mirror_read_errors,
    /// Writes of its mirror that failed.
    mirror_write_errors,
    /// Flushes of its mirror that failed.
    mirror_flush_errors,
    /// Blocks on the flash with a wrong checksum.
    checksum_errors,
    /// Blocks that one SSD had wrong or could not read, and that were written over from its mirror.
    mirror_repairs,
    /// SSDs of a mirror that were given up.
    mirror_losses,
}
