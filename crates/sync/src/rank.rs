//! The order of locks.

/// Declares the ranks, and lists them.
macro_rules! ranks {
    ($($(#[$doc:meta])* $rank:ident,)*) => {
        /// The order of locks, outermost first: a thread that holds one waits only for those that are declared behind it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rank {
            $($(#[$doc])* $rank,)*
        }

        impl Rank {
            /// All ranks, in order.
            pub const ALL: &[Self] = &[$(Self::$rank),*];
        }
    };
}

ranks! {
    // Files: `fs`.
    /// Deletion of a dropped subvolume's blocks, or a move of blocks that could be part of one.
    SubvolumeDrop,
    /// Writeback on behalf of all files.
    Flusher,
    /// Moves of directories: no directory's ancestors change meanwhile.
    Renames,
    /// Permission to change a subvolume; several by ascending id.
    SubvolumeAccess,
    /// Names and link count of an inode; several by ascending inode id.
    Names,
    /// Gate of a file's contents; two by ascending inode id.
    FileGate,
    /// Writeback of one file.
    FileWriteback,
    /// Subvolumes where orphans are looked for; trees are read meanwhile.
    Orphans,
    /// The id of the next subvolume; trees are read meanwhile.
    NextSubvolume,
    /// The number of a subvolume's next inode; trees are read meanwhile.
    NextInode,

    // Transactions: `tree`.
    /// Writing out by disks ahead of a commit.
    WriteOut,
    /// The commit: one at a time.
    Commit,
    /// Turn of a sync of the log: one at a time, and none while the log ends. No lock; syncs wait for it.
    LogSync,
    /// Part in the running transaction, or its gate closed. No lock; a commit waits for it.
    Transaction,
    /// Preparation of log items, where that is told to be locked; trees are read meanwhile.
    LogPreparation,
    /// Position and caches of an open file: read under a hold, and trees are read meanwhile.
    OpenFile,
    /// State of the log.
    LogState,
    /// Subvolumes that are known to the filesystem; trees are read meanwhile.
    SubvolumeTable,
    /// Load of free ranges from the free space tree.
    SpaceLoad,
    /// Tree of a subvolume, or a log tree.
    FileTree,
    /// Decision about a block that several trees share.
    SharedBlock,
    /// Gate between references that wait and the extent tree.
    ReferenceGate,
    /// Splitting and joining of checksum items.
    Checksums,
    /// The tree of roots.
    RootTree,
    /// The other trees: extents, checksums, chunks, devices, free space, block groups.
    OtherTree,
    /// References that wait.
    References,
    /// Progress of the conversion of dropped trees.
    Conversions,
    /// Holds on freed space.
    SpaceReaders,
    /// Space and promises of space.
    Space,
    /// State of the transaction gate.
    GateState,
    /// Features of the next superblock.
    Features,
    /// Label of the next superblock.
    Label,
    /// The operation of which there is one at a time.
    Exclusive,
    /// Counters of commits.
    CommitStatistics,
    /// Counters of the log.
    LogStatistics,
    /// Errors of devices.
    DeviceStatistics,
    /// Trees that are known to the pool.
    TreeTable,
    /// Blocks that are final and not written.
    FrozenBlocks,
    /// Blocks of the log that have places.
    LogBlocks,
    /// A shard of the node cache.
    NodeCache,

    // State of files that is read and changed under the locks of trees: `fs`.
    /// Contents, sizes and times of a file that its items do not have.
    FileMemory,
    /// Files with contents that are not written.
    DirtyFiles,
    /// Contents that were lost.
    LostContents,
    /// Files that small writes have torn.
    TornFiles,
    /// Ranges that the log does not have.
    LogBook,
    /// Quota groups, and what has changed since their numbers were right.
    Quotas,
    /// A shard of the table of inodes.
    InodeTable,
    /// Readers of an inode.
    Readahead,
    /// Readers of small files.
    Neighbours,
    /// Runs of a bulk writer that wait for a thread.
    BulkRuns,
    /// Failure of a bulk writer.
    BulkFailure,
    /// Calls of a thread of the upkeep.
    UpkeepCalls,

    // Devices: `volume`.
    /// Records of the lease of a pool.
    Lease,
    /// Repair of a bad copy; writers hold it for reading.
    Repair,
    /// Row of a parity chunk.
    ParityRow,
    /// Flushes and superblocks of a device, and writing out what it took; several by ascending position in the pool.
    DeviceFlush,
    /// Chunks and devices.
    VolumePool,
    /// The superblock of the last commit.
    Superblock,
    /// Data fetched before it is read.
    Prefetched,
    /// Fetches of a device that are watched.
    Backlog,
    /// A request to a device, whose answer is waited for.
    Fetch,
    /// Places that a device failed to take.
    LostWrites,
    /// The first superblock of a device, as it was written or found.
    FirstSuperblock,
    /// Flash caches that this process has in use.
    CachesInUse,
    /// State of a flash cache.
    FlashCache,

    // Engines: `device`.
    /// Flushes and durable writes of a file; several by ascending address.
    DurableRequest,
    /// An answer that is waited for, and its buffer.
    DeviceRequest,
    /// Requests of an engine.
    DeviceQueue,
    /// Memory for buffers.
    DeviceBuffers,
    /// Record of the requests of a device.
    RequestRecord,
}

/// A type whose locks have one rank.
pub trait Ranked {
    /// Their rank.
    const RANK: Rank;
}
