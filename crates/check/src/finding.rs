//! Errors of a pool, each with its place, the expected and the found value.

use brindle_ondisk::{
    BlockGroupType, Defect, DevId, Generation, Key, Logical, ObjectId, Physical, QgroupId, RootId, Uuid,
};
use std::fmt;
use thiserror::Error;

/// One thing that is wrong. Shown, it is one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Finding {
    // Superblocks
    /// A copy of a superblock can't be used.
    #[error("{device}: superblock at offset {offset}: {problem}")]
    Superblock {
        /// The device.
        device: String,
        /// Offset on it, in bytes.
        offset: u64,
        /// The problem.
        problem: String,
    },
    /// A device or a copy has missed transactions.
    #[error("{device}: superblock at offset {offset} has generation {found}, expected {expected}")]
    SuperblockGeneration {
        /// The device.
        device: String,
        /// Offset on it, in bytes.
        offset: u64,
        /// The pool's.
        expected: Generation,
        /// Its own.
        found: Generation,
    },
    /// Copies of one generation say different things.
    #[error("{device}: superblock at offset {offset} says {field} {found}, expected {expected}")]
    SuperblockField {
        /// The device.
        device: String,
        /// Offset on it, in bytes.
        offset: u64,
        /// The field.
        field: &'static str,
        /// Value in the pool's superblock.
        expected: u64,
        /// Value in this one.
        found: u64,
    },
    /// A backup of the roots can't be.
    #[error("superblock: backup roots {slot}: {problem}, found {found}")]
    BackupRoot {
        /// Index among the four.
        slot: usize,
        /// The problem.
        problem: &'static str,
        /// Stored value.
        found: u64,
    },
    /// Opening the pool had to survive something.
    #[error("{0}")]
    Opening(/** The error. */ String),
    /// A total that the superblock keeps is not the sum.
    #[error("superblock: {field} is {found}, expected {expected}")]
    SuperblockTotal {
        /// The field.
        field: &'static str,
        /// The sum.
        expected: u64,
        /// Stored value.
        found: u64,
    },

    // Chunks and devices
    /// The chunk map does not take a chunk.
    #[error("{0}")]
    Chunk(/** The problem. */ String),
    /// A system chunk of the superblock is not the chunk tree's.
    #[error(
        "system chunk at logical {start} of the superblock differs from the chunk tree's, or is not there"
    )]
    SystemChunk {
        /// Start of the chunk.
        start: Logical,
    },
    /// A stripe of a chunk has no device extent, or another one.
    #[error(
        "chunk at logical {chunk}: stripe at offset {offset} of device {devid}, {length} bytes: {problem}"
    )]
    Stripe {
        /// The chunk.
        chunk: Logical,
        /// The device.
        devid: DevId,
        /// Offset on it, in bytes.
        offset: Physical,
        /// The stripe's length.
        length: u64,
        /// The problem.
        problem: &'static str,
    },
    /// A device extent belongs to no chunk.
    #[error(
        "device extent at offset {offset} of device {devid}, {length} bytes, of the chunk at logical {chunk}: {problem}"
    )]
    DeviceExtent {
        /// The device.
        devid: DevId,
        /// Offset on it, in bytes.
        offset: Physical,
        /// Length in bytes.
        length: u64,
        /// The chunk that it names.
        chunk: Logical,
        /// The problem.
        problem: &'static str,
    },
    /// Device extents lie over each other.
    #[error("device {devid}: device extent at offset {offset} lies over the one before, which ends at {end}")]
    DeviceExtentOverlap {
        /// The device.
        devid: DevId,
        /// Start of the second.
        offset: Physical,
        /// End of the first.
        end: u64,
    },
    /// A number of a device item is wrong.
    #[error("device {devid}: {field} is {found}, expected {expected}")]
    Device {
        /// The device.
        devid: DevId,
        /// The field.
        field: &'static str,
        /// Correct value.
        expected: u64,
        /// Stored value.
        found: u64,
    },

    // Trees
    /// A tree block can't be had, from no copy.
    #[error("{tree}: {error}")]
    Unreadable {
        /// The tree.
        tree: TreeName,
        /// Address of the block.
        at: Logical,
        /// Error of each copy.
        error: String,
    },
    /// A copy of a tree block is bad, another one good.
    #[error("{tree}: bad copy, another one is good: {error}")]
    BadCopy {
        /// The tree.
        tree: TreeName,
        /// Address of the block.
        at: Logical,
        /// The problem.
        error: String,
    },
    /// The keys of a block pass the first key of the next.
    #[error("{tree}: block at logical {at}: last key {last} is not less than its parent's next key {bound}")]
    KeyBeyondBound {
        /// The tree.
        tree: TreeName,
        /// The block.
        at: Logical,
        /// Its last key.
        last: Key,
        /// The next block's first.
        bound: Key,
    },
    /// A tree without which there is no pool is not there.
    #[error("there is no {0} tree")]
    TreeMissing(/** Name of the tree. */ &'static str),
    /// A block is marked as written by a balance, and its extent is not.
    #[error("tree block at logical {at} has the relocation flag, and its extent lacks FULL_BACKREF")]
    RelocationFlag {
        /// The block.
        at: Logical,
    },
    /// A block's references are kept in a way that is not known.
    #[error("{tree}: block at logical {at}: backref revision is {found}, expected 1")]
    BackrefRevision {
        /// The tree.
        tree: TreeName,
        /// The block.
        at: Logical,
        /// Revision in its flags.
        found: u64,
    },
    /// A block says that it belongs to a tree that does not have it.
    #[error("tree block at logical {at} says it is of tree {owner}, which does not have it")]
    BlockOwner {
        /// The block.
        at: Logical,
        /// The tree in its header.
        owner: RootId,
    },

    // Extents
    /// Something is referred to that is not allocated.
    #[error("extent at logical {at}: not allocated, but used by {reference}{}", times(*count))]
    ExtentMissing {
        /// Address.
        at: Logical,
        /// The reference.
        reference: Reference,
        /// Number of references.
        count: u64,
    },
    /// An extent is allocated and nothing uses it.
    #[error("extent at logical {at}, {length} bytes: allocated, but nothing uses it")]
    ExtentUnused {
        /// Address.
        at: Logical,
        /// Length in bytes.
        length: u64,
    },
    /// An extent's number of references is not the sum of its back references.
    #[error("extent at logical {at}: refs is {found}, its back references count {expected}")]
    ExtentRefs {
        /// Address.
        at: Logical,
        /// The sum.
        expected: u64,
        /// Stored value.
        found: u64,
    },
    /// A back reference is there and the reference is not, or the other way round.
    #[error("extent at logical {at}: back reference of {reference} counts {found}, expected {expected}")]
    BackReference {
        /// Address.
        at: Logical,
        /// The reference.
        reference: Reference,
        /// Number of such references.
        expected: u64,
        /// Count in the back reference.
        found: u64,
    },
    /// An extent is used with another length or level than it was allocated with.
    #[error("extent at logical {at}: {field} is {expected}, {reference} takes it for {found}")]
    ExtentShape {
        /// Address.
        at: Logical,
        /// Length or level.
        field: &'static str,
        /// Value in the allocated extent.
        expected: u64,
        /// Value in the reference.
        found: u64,
        /// The reference.
        reference: Reference,
    },
    /// An extent lies over the one before.
    #[error("extent at logical {at} lies over the one before, which ends at {end}")]
    ExtentOverlap {
        /// Address.
        at: Logical,
        /// End of the one before.
        end: u64,
    },
    /// An extent is not within one block group, or in one of the wrong kind.
    #[error("extent at logical {at}, {length} bytes: {problem}")]
    ExtentPlace {
        /// Address.
        at: Logical,
        /// Length in bytes.
        length: u64,
        /// The problem.
        problem: &'static str,
    },

    // Block groups and free space
    /// A chunk without block group, or the other way round, or they differ.
    #[error("block group at logical {start}, {length} bytes: {problem}")]
    BlockGroup {
        /// Start address.
        start: Logical,
        /// Length in bytes.
        length: u64,
        /// The problem.
        problem: &'static str,
    },
    /// A block group is of another type than its chunk.
    #[error("block group at logical {start} is of type {found}, its chunk {expected}")]
    BlockGroupType {
        /// Start address.
        start: Logical,
        /// The chunk's.
        expected: BlockGroupType,
        /// The block group's.
        found: BlockGroupType,
    },
    /// A block group's sum is wrong.
    #[error("block group at logical {start}: used is {found}, expected {expected}")]
    BlockGroupUsed {
        /// Start address.
        start: Logical,
        /// Sum of its extents.
        expected: u64,
        /// Stored value.
        found: u64,
    },
    /// The free space tree does not agree with the extents.
    #[error("free space at logical {start}, {length} bytes: {problem}")]
    FreeSpace {
        /// Start address.
        start: Logical,
        /// Length in bytes.
        length: u64,
        /// The problem.
        problem: &'static str,
    },
    /// The number of free ranges of a block group is wrong.
    #[error("free space of block group at logical {start}: extent_count is {found}, expected {expected}")]
    FreeSpaceCount {
        /// Start of the block group.
        start: Logical,
        /// Number found.
        expected: u64,
        /// Stored number.
        found: u64,
    },

    // Checksums and data
    /// Data has no checksum.
    #[error("data at logical {start}, {length} bytes: no checksum, used by {}", named(*.user))]
    ChecksumMissing {
        /// Start address.
        start: Logical,
        /// Length in bytes.
        length: u64,
        /// Tree, inode and offset of a file that uses it.
        user: Option<(RootId, ObjectId, u64)>,
    },
    /// A checksum covers no data.
    #[error("checksums of logical {start}, {length} bytes, where no data is allocated")]
    ChecksumUnused {
        /// Start address.
        start: Logical,
        /// Length in bytes.
        length: u64,
    },
    /// A sector does not match its checksum.
    #[error("data at logical {at}, mirror {mirror}{place}: checksum {found}, expected {expected}")]
    Data {
        /// Address.
        at: Logical,
        /// Mirror, from 0.
        mirror: usize,
        /// The device and the byte there, ready to be read.
        place: String,
        /// Checksum of the data as read.
        found: String,
        /// Stored checksum.
        expected: String,
    },
    /// Parity does not match the data of its row, all of which matches its checksums.
    #[error("parity {parity} ({device} at {byte}) does not match the data at logical {at}{}", doubt(*unsummed))]
    Parity {
        /// The first sector of data in the row that has a checksum.
        at: Logical,
        /// P or Q.
        parity: &'static str,
        /// The device of the parity.
        device: String,
        /// Address of the parity on that device.
        byte: Physical,
        /// Number of data sectors in the row that have no checksum, any of which may be wrong instead.
        unsummed: usize,
    },
    /// Data can't be read.
    #[error("data at logical {at}, mirror {mirror}: {error}")]
    DataUnreadable {
        /// Address.
        at: Logical,
        /// Mirror, from 0.
        mirror: usize,
        /// Reason.
        error: String,
    },

    // Files
    /// A number of an inode is wrong.
    #[error("tree {tree} inode {inode}: {field} is {found}, expected {expected}")]
    Inode {
        /// The tree.
        tree: RootId,
        /// The inode.
        inode: ObjectId,
        /// The field.
        field: &'static str,
        /// Correct value.
        expected: u64,
        /// Stored value.
        found: u64,
    },
    /// Something about an inode is not as it must be.
    #[error("tree {tree} inode {inode}: {problem}")]
    InodeRule {
        /// The tree.
        tree: RootId,
        /// The inode.
        inode: ObjectId,
        /// The problem.
        problem: &'static str,
    },
    /// A file has neither data nor a hole at some place.
    #[error("tree {tree} inode {inode}: no file extent from offset {offset} on")]
    FileGap {
        /// The tree.
        tree: RootId,
        /// The inode.
        inode: ObjectId,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// Extents of a file lie over each other.
    #[error(
        "tree {tree} inode {inode}: file extent at offset {offset} lies over the one before, which ends at {end}"
    )]
    FileOverlap {
        /// The tree.
        tree: RootId,
        /// The inode.
        inode: ObjectId,
        /// Offset in the file, in bytes.
        offset: u64,
        /// End of the one before.
        end: u64,
    },
    /// A name stands in one place and not in the other.
    #[error("tree {tree} directory {directory}: \"{name}\" (inode {inode}, index {index}): {problem}")]
    Name {
        /// The tree.
        tree: RootId,
        /// The directory.
        directory: ObjectId,
        /// The name.
        name: String,
        /// Inode that it names.
        inode: ObjectId,
        /// Index in the directory.
        index: u64,
        /// The problem.
        problem: &'static str,
    },
    /// Names do not agree, and which was not to be found out.
    #[error("tree {tree}: entries of directories and names of inodes do not agree")]
    Names {
        /// The tree.
        tree: RootId,
    },

    // Roots
    /// Subvolumes do not hang together.
    #[error("subvolume {subvolume} in {parent}: {problem}")]
    RootRef {
        /// The child.
        subvolume: RootId,
        /// The parent.
        parent: RootId,
        /// The problem.
        problem: &'static str,
    },
    /// Something about a subvolume is not as it must be.
    #[error("tree {subvolume}: {problem}")]
    Root {
        /// The subvolume.
        subvolume: RootId,
        /// The problem.
        problem: &'static str,
    },
    /// The UUID tree says something wrong.
    #[error("uuid tree: {uuid} stands for subvolume {subvolume}: {problem}")]
    UuidEntry {
        /// The UUID.
        uuid: Uuid,
        /// The subvolume.
        subvolume: RootId,
        /// The problem.
        problem: &'static str,
    },
    /// Quotas lack something.
    #[error("qgroup 0/{subvolume}: {problem}")]
    Quota {
        /// The subvolume.
        subvolume: RootId,
        /// The problem.
        problem: &'static str,
    },
    /// The numbers of a quota group are not those of its subvolumes.
    #[error(
        "qgroup {group}: {} bytes referenced, {} exclusive, expected {} and {}",
        found.0, found.1, expected.0, expected.1
    )]
    QuotaNumbers {
        /// The group.
        group: QgroupId,
        /// Bytes by the references: referenced, exclusive.
        expected: (u64, u64),
        /// Stored bytes.
        found: (u64, u64),
    },
    /// Bytes that passed the tree checker and yet make no sense.
    #[error("tree {tree}: item {key}: {defect}")]
    Item {
        /// The tree.
        tree: RootId,
        /// The key.
        key: Key,
        /// The problem.
        defect: Defect,
    },
}

/// A tree, to be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TreeName {
    /// Tree with an id of its own.
    Id(/** The id. */ RootId),
    /// The log of a subvolume.
    LogOf(/** The subvolume. */ RootId),
    /// The tree of the logs.
    Logs,
}

impl fmt::Display for TreeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "tree {id}"),
            Self::LogOf(subvolume) => write!(f, "log tree of subvolume {subvolume}"),
            Self::Logs => f.write_str("tree of log trees"),
        }
    }
}

/// Reference to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reference {
    /// A tree (or the block's parent in it) has this block.
    Tree(/** The tree. */ RootId),
    /// A block has this block as child.
    SharedTree(/** The parent. */ Logical),
    /// A file has this extent.
    Data {
        /// The tree.
        root: RootId,
        /// The inode.
        inode: ObjectId,
        /// Offset in the file at which the whole extent would begin, in bytes.
        offset: u64,
    },
    /// A leaf has this extent.
    SharedData(/** The leaf. */ Logical),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(root) => write!(f, "tree {root}"),
            Self::SharedTree(parent) => write!(f, "the node at logical {parent}"),
            Self::Data { root, inode, offset } => {
                write!(f, "tree {root} inode {inode} at offset {}", *offset as i64)
            }
            Self::SharedData(leaf) => write!(f, "the leaf at logical {leaf}"),
        }
    }
}

fn doubt(unsummed: usize) -> String {
    match unsummed {
        0 => String::new(),
        1 => ", unless a sector in its row that has no checksum is wrong".into(),
        count => format!(", unless one of {count} sectors in its row that have no checksum is wrong"),
    }
}

fn times(count: u64) -> String {
    if count == 1 { String::new() } else { format!(" {count} times") }
}

fn named(user: Option<(RootId, ObjectId, u64)>) -> String {
    match user {
        Some((tree, inode, offset)) => format!("tree {tree} inode {inode} at offset {offset}"),
        None => "no file that was found".into(),
    }
}
