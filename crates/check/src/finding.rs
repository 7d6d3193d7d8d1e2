//! Everything that can be wrong with a pool, each with where, what was expected and what was found.

use brindle_ondisk::{
    BlockGroupType, Defect, DevId, Generation, Key, Logical, ObjectId, Physical, RootId, Uuid,
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
        /** The device. */
        device: String,
        /** Where on it. */
        offset: u64,
        /** What is wrong. */
        problem: String,
    },
    /// A device or a copy has missed transactions.
    #[error("{device}: superblock at offset {offset} has generation {found}, expected {expected}")]
    SuperblockGeneration {
        /** The device. */
        device: String,
        /** Where on it. */
        offset: u64,
        /** The pool's. */
        expected: Generation,
        /** Its own. */
        found: Generation,
    },
    /// Copies of one generation say different things.
    #[error("{device}: superblock at offset {offset} says {field} {found}, expected {expected}")]
    SuperblockField {
        /** The device. */
        device: String,
        /** Where on it. */
        offset: u64,
        /** Which field. */
        field: &'static str,
        /** What the pool's superblock says. */
        expected: u64,
        /** What this one says. */
        found: u64,
    },
    /// A backup of the roots can't be.
    #[error("superblock: backup roots {slot}: {problem}, found {found}")]
    BackupRoot {
        /** Which of the four. */
        slot: usize,
        /** What is wrong. */
        problem: &'static str,
        /** What it says. */
        found: u64,
    },
    /// Opening the pool had to survive something.
    #[error("{0}")]
    Opening(/** What. */ String),
    /// A total that the superblock keeps is not the sum.
    #[error("superblock: {field} is {found}, expected {expected}")]
    SuperblockTotal {
        /** Which field. */
        field: &'static str,
        /** The sum. */
        expected: u64,
        /** What it says. */
        found: u64,
    },

    // Chunks and devices
    /// The chunk map does not take a chunk.
    #[error("{0}")]
    Chunk(/** What is wrong. */ String),
    /// A system chunk of the superblock is not the chunk tree's.
    #[error(
        "system chunk at logical {start} of the superblock differs from the chunk tree's, or is not there"
    )]
    SystemChunk {
        /** Where the chunk begins. */
        start: Logical,
    },
    /// A stripe of a chunk has no device extent, or another one.
    #[error(
        "chunk at logical {chunk}: stripe at offset {offset} of device {devid}, {length} bytes: {problem}"
    )]
    Stripe {
        /** The chunk. */
        chunk: Logical,
        /** The device. */
        devid: DevId,
        /** Where on it. */
        offset: Physical,
        /** The stripe's length. */
        length: u64,
        /** What is wrong. */
        problem: &'static str,
    },
    /// A device extent belongs to no chunk.
    #[error(
        "device extent at offset {offset} of device {devid}, {length} bytes, of the chunk at logical {chunk}: {problem}"
    )]
    DeviceExtent {
        /** The device. */
        devid: DevId,
        /** Where on it. */
        offset: Physical,
        /** Its length. */
        length: u64,
        /** The chunk that it names. */
        chunk: Logical,
        /** What is wrong. */
        problem: &'static str,
    },
    /// Device extents lie over each other.
    #[error("device {devid}: device extent at offset {offset} lies over the one before, which ends at {end}")]
    DeviceExtentOverlap {
        /** The device. */
        devid: DevId,
        /** Where the second begins. */
        offset: Physical,
        /** Where the first ends. */
        end: u64,
    },
    /// A number of a device item is wrong.
    #[error("device {devid}: {field} is {found}, expected {expected}")]
    Device {
        /** The device. */
        devid: DevId,
        /** Which field. */
        field: &'static str,
        /** What it should be. */
        expected: u64,
        /** What it is. */
        found: u64,
    },

    // Trees
    /// A tree block can't be had, from no copy.
    #[error("{tree}: {error}")]
    Unreadable {
        /** The tree. */
        tree: TreeName,
        /** Where the block should be. */
        at: Logical,
        /** What each copy had. */
        error: String,
    },
    /// A copy of a tree block is bad, another one good.
    #[error("{tree}: bad copy, another one is good: {error}")]
    BadCopy {
        /** The tree. */
        tree: TreeName,
        /** Where the block is. */
        at: Logical,
        /** What is wrong. */
        error: String,
    },
    /// The keys of a block pass the first key of the next.
    #[error("{tree}: block at logical {at}: last key {last} is not less than its parent's next key {bound}")]
    KeyBeyondBound {
        /** The tree. */
        tree: TreeName,
        /** The block. */
        at: Logical,
        /** Its last key. */
        last: Key,
        /** The next block's first. */
        bound: Key,
    },
    /// A tree without which there is no pool is not there.
    #[error("there is no {0} tree")]
    TreeMissing(/** Which one. */ &'static str),
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
        /// What its flags say.
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
        /** Where. */
        at: Logical,
        /** By whom. */
        reference: Reference,
        /** How often. */
        count: u64,
    },
    /// An extent is allocated and nobody uses it.
    #[error("extent at logical {at}, {length} bytes: allocated, but nothing uses it")]
    ExtentUnused {
        /** Where. */
        at: Logical,
        /** Its length. */
        length: u64,
    },
    /// An extent's number of references is not the sum of its back references.
    #[error("extent at logical {at}: refs is {found}, its back references count {expected}")]
    ExtentRefs {
        /** Where. */
        at: Logical,
        /** The sum. */
        expected: u64,
        /** What it says. */
        found: u64,
    },
    /// A back reference is there and the reference is not, or the other way round.
    #[error("extent at logical {at}: back reference of {reference} counts {found}, expected {expected}")]
    BackReference {
        /** Where. */
        at: Logical,
        /** Whose. */
        reference: Reference,
        /** How often it is used. */
        expected: u64,
        /** What the back reference says. */
        found: u64,
    },
    /// An extent is used with another length or level than it was allocated with.
    #[error("extent at logical {at}: {field} is {expected}, {reference} takes it for {found}")]
    ExtentShape {
        /** Where. */
        at: Logical,
        /** Length or level. */
        field: &'static str,
        /** As allocated. */
        expected: u64,
        /** As used. */
        found: u64,
        /** By whom. */
        reference: Reference,
    },
    /// An extent lies over the one before.
    #[error("extent at logical {at} lies over the one before, which ends at {end}")]
    ExtentOverlap {
        /** Where. */
        at: Logical,
        /** End of the one before. */
        end: u64,
    },
    /// An extent is not within one block group, or in one of the wrong kind.
    #[error("extent at logical {at}, {length} bytes: {problem}")]
    ExtentPlace {
        /** Where. */
        at: Logical,
        /** Its length. */
        length: u64,
        /** What is wrong. */
        problem: &'static str,
    },

    // Block groups and free space
    /// A chunk without block group, or the other way round, or they differ.
    #[error("block group at logical {start}, {length} bytes: {problem}")]
    BlockGroup {
        /** Where it begins. */
        start: Logical,
        /** Its length. */
        length: u64,
        /** What is wrong. */
        problem: &'static str,
    },
    /// A block group is of another type than its chunk.
    #[error("block group at logical {start} is of type {found}, its chunk {expected}")]
    BlockGroupType {
        /** Where it begins. */
        start: Logical,
        /** The chunk's. */
        expected: BlockGroupType,
        /** The block group's. */
        found: BlockGroupType,
    },
    /// A block group's sum is wrong.
    #[error("block group at logical {start}: used is {found}, expected {expected}")]
    BlockGroupUsed {
        /** Where it begins. */
        start: Logical,
        /** Sum of its extents. */
        expected: u64,
        /** What it says. */
        found: u64,
    },
    /// The free space tree does not agree with the extents.
    #[error("free space at logical {start}, {length} bytes: {problem}")]
    FreeSpace {
        /** Where. */
        start: Logical,
        /** How long. */
        length: u64,
        /** What is wrong. */
        problem: &'static str,
    },
    /// The number of free ranges of a block group is wrong.
    #[error("free space of block group at logical {start}: extent_count is {found}, expected {expected}")]
    FreeSpaceCount {
        /** Where the block group begins. */
        start: Logical,
        /** How many there are. */
        expected: u64,
        /** What is said. */
        found: u64,
    },

    // Checksums and data
    /// Data has no checksum.
    #[error("data at logical {start}, {length} bytes: no checksum, used by {}", named(*.user))]
    ChecksumMissing {
        /** Where. */
        start: Logical,
        /** How long. */
        length: u64,
        /** Tree, inode and offset of one who uses it. */
        user: Option<(RootId, ObjectId, u64)>,
    },
    /// There is a checksum of nothing.
    #[error("checksums of logical {start}, {length} bytes, where no data is allocated")]
    ChecksumUnused {
        /** Where. */
        start: Logical,
        /** How long. */
        length: u64,
    },
    /// A sector does not match its checksum.
    #[error("data at logical {at}, mirror {mirror}{place}: checksum {found}, expected {expected}")]
    Data {
        /** Where. */
        at: Logical,
        /** Which copy, from 0. */
        mirror: usize,
        /** The device and the byte there, ready to be read. */
        place: String,
        /** As read. */
        found: String,
        /** As stored. */
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
        /** Where. */
        at: Logical,
        /** Which copy, from 0. */
        mirror: usize,
        /** Why. */
        error: String,
    },

    // Files
    /// A number of an inode is wrong.
    #[error("tree {tree} inode {inode}: {field} is {found}, expected {expected}")]
    Inode {
        /** The tree. */
        tree: RootId,
        /** The inode. */
        inode: ObjectId,
        /** Which field. */
        field: &'static str,
        /** What it should be. */
        expected: u64,
        /** What it is. */
        found: u64,
    },
    /// Something about an inode is not as it must be.
    #[error("tree {tree} inode {inode}: {problem}")]
    InodeRule {
        /** The tree. */
        tree: RootId,
        /** The inode. */
        inode: ObjectId,
        /** What is wrong. */
        problem: &'static str,
    },
    /// A file has neither data nor a hole at some place.
    #[error("tree {tree} inode {inode}: no file extent from offset {offset} on")]
    FileGap {
        /** The tree. */
        tree: RootId,
        /** The inode. */
        inode: ObjectId,
        /** Where. */
        offset: u64,
    },
    /// Extents of a file lie over each other.
    #[error(
        "tree {tree} inode {inode}: file extent at offset {offset} lies over the one before, which ends at {end}"
    )]
    FileOverlap {
        /** The tree. */
        tree: RootId,
        /** The inode. */
        inode: ObjectId,
        /** Where. */
        offset: u64,
        /** End of the one before. */
        end: u64,
    },
    /// A name stands in one place and not in the other.
    #[error("tree {tree} directory {directory}: \"{name}\" (inode {inode}, index {index}): {problem}")]
    Name {
        /** The tree. */
        tree: RootId,
        /** The directory. */
        directory: ObjectId,
        /** The name. */
        name: String,
        /** What it stands for. */
        inode: ObjectId,
        /** Index in the directory. */
        index: u64,
        /** What is wrong. */
        problem: &'static str,
    },
    /// Names do not agree, and which was not to be found out.
    #[error("tree {tree}: entries of directories and names of inodes do not agree")]
    Names {
        /** The tree. */
        tree: RootId,
    },

    // Roots
    /// Subvolumes do not hang together.
    #[error("subvolume {subvolume} in {parent}: {problem}")]
    RootRef {
        /** The child. */
        subvolume: RootId,
        /** The parent. */
        parent: RootId,
        /** What is wrong. */
        problem: &'static str,
    },
    /// Something about a subvolume is not as it must be.
    #[error("tree {subvolume}: {problem}")]
    Root {
        /** The subvolume. */
        subvolume: RootId,
        /** What is wrong. */
        problem: &'static str,
    },
    /// The UUID tree says something wrong.
    #[error("uuid tree: {uuid} stands for subvolume {subvolume}: {problem}")]
    UuidEntry {
        /** The UUID. */
        uuid: Uuid,
        /** The subvolume. */
        subvolume: RootId,
        /** What is wrong. */
        problem: &'static str,
    },
    /// Quotas lack something.
    #[error("qgroup 0/{subvolume}: {problem}")]
    Quota {
        /** The subvolume. */
        subvolume: RootId,
        /** What is wrong. */
        problem: &'static str,
    },
    /// Bytes that passed the tree checker and yet make no sense.
    #[error("tree {tree}: item {key}: {defect}")]
    Item {
        /** The tree. */
        tree: RootId,
        /** The key. */
        key: Key,
        /** What is wrong. */
        defect: Defect,
    },
}

/// A tree, to be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TreeName {
    /// By its id, which is its own.
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

/// Who uses an extent.
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
        /// Where in the file the whole extent would begin.
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
                write!(f, "tree {root} inode {inode} at offset {}", offset.cast_signed())
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
        None => "nobody that was found".into(),
    }
}
