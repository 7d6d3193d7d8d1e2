//! B-trees to files: inodes, directories, extended attributes, data extents, compression, subvolumes.
//! Must not know: FUSE, the command line.
//!
//! [`Filesystem`] is the public face: its methods hand on to parts, each a type with a module, and an `impl`, of its own. A part
//! holds those below it that it needs, and knows none above; `filesystem/parts.rs` puts them together.
//!
//! ```text
//! filesystem   Filesystem: the face           upkeep       threads that call it
//! ─────────────────────────────────────────────────────────────────────────────────────────
//! namespace    Namespace: make, link, rename, remove
//! subvolume    Subvolumes: make, snapshot, delete, drop        background   Background: steps
//! change       InodeChanges: attributes, flags, xattrs         destage      WriteBackTier
//! hold         Holds: inodes in use, open files                log          FsLog: fsync, commit
//!                                                              autodefrag   Autodefrag: torn files
//! orphan       Orphans: inodes without a name go
//! data         FileData: write, write back, truncate, clone
//! directory    Directories: names       read  Reader: contents       tier  Tiers: where data goes
//! items        InodeItems: attributes and xattrs, as they are
//! extent       Extents: maps of extents, checksums, and how extents change
//! core         Core: the pool; inodes, subvolumes and orphans in use; joins transactions (edit)
//! pages        contents in memory, inode by inode
//! ```
//!
//! Each row may use every row below it, and in a row each one those to its left. `bulk` fills a new filesystem, `replay` enters
//! a log as the pool is opened, `relocation` drops what a relocation of the kernel's left half done, `defragment` and `statfs`
//! need no more than `core`.
//!
//! The walk of a read: [`Filesystem::open_file`] remembers the inode's size and flags; `Reader` finds the extents of the range in
//! the map that the open file keeps (`extent`, a few hundred at a time), looks up the checksums of what lies on disk, has
//! `volume` fill and verify the caller's buffer, or decompresses what is compressed, and fills holes with zeros. A file read in
//! order asks the devices for what comes next, as do small files that lie one behind the other.
//!
//! A pool that is opened to be read shows the last commit; [`Filesystem::warnings`] says so where it has a log.

mod acl;
mod attributes;
mod autodefrag;
mod background;
mod bulk;
mod change;
mod compression;
mod core;
mod data;
mod defragment;
mod destage;
mod directory;
mod error;
mod error_kind;
mod extent;
mod file_flags;
mod filesystem;
mod hold;
mod interruption;
mod items;
mod log;
mod namespace;
mod neighbours;
mod new_inode;
mod orphan;
mod packed;
mod pages;
mod read;
mod relocation;
mod replay;
mod statfs;
mod subvolume;
mod tier;
mod upkeep;
mod uuid_tree;
mod write_options;

pub use crate::core::inode_hold::InodeHold;
pub use crate::core::inodes::Inode;
pub use crate::core::subvolume_hold::SubvolumeHold;
pub use attributes::{Attributes, InodeId, Timestamp};
pub use autodefrag::AutodefragStatistics;
pub use background::Remaining;
pub use brindle_device::before_wait;
pub use brindle_ondisk::item::RootFlags;
pub use brindle_ondisk::item::{Compression, FileType, InodeFlags, QgroupLimit, QgroupLimitFlags};
pub use brindle_ondisk::{ObjectId, QgroupId, RootId};
pub use brindle_policy::class::DeviceClasses;
pub use brindle_policy::log::LogProfile;
pub use brindle_policy::placement::{AllocationHint, PlacementClass, PlacementMode};
pub use brindle_policy::writeback::{DestageSettings, WriteBackMode, WriteBackObstacle};
pub use brindle_tree::{
    CommitPhase, CommitReport, CommitStatistics, HistogramCounts, LogStatistics, QuotaSummary, Readahead,
    SpaceSummary, Spread, SyncMeasure, TreeError, TreeKind, Unlogged, WriteBackSettings, WriteBackStatus,
    WriteBackWish, tree_name,
};
pub use brindle_volume::{LeaseMode, read_for};
pub use bulk::encode::{BulkFormat, BulkPiece};
pub use bulk::inode::{BulkEntry, BulkInode, BulkName, BulkTarget};
pub use bulk::writer::BulkWriter;
pub use change::attributes::{AttributeChange, NewTime};
pub use change::privileges::SetIdRight;
pub use change::xattr::XattrMode;
pub use compression::{CompressionChoice, DecompressError, UnknownCompression, WrongCompression, decompress};
pub use data::allocate::AllocateMode;
pub use data::clone::RangePair;
pub use data::defragment::{ContentsWish, DefragmentedContents};
pub use defragment::{DefragmentPlace, DefragmentScope, DefragmentedPiece};
pub use destage::{DestageStatistics, Destaged};
pub use directory::DirectoryEntry;
pub use directory::damaged::ListingGap;
pub use error::{Damage, FsError};
pub use error_kind::ErrorKind;
pub use extent::open_file::OpenFile;
pub use file_flags::FileFlags;
pub use filesystem::{Filesystem, OpenOptions};
pub use interruption::{before_effects, while_wanted};
pub use items::xattr::Xattr;
pub use namespace::RenameMode;
pub use new_inode::NewInode;
pub use read::bytes::FileBytes;
pub use read::seek::Whence;
pub use read::stored::StoredExtent;
pub use statfs::SpaceStatistics;
pub use subvolume::{ReservedId, Subvolume, SubvolumeChoice};
pub use upkeep::{Upkeep, UpkeepOptions, UpkeepOwner};
pub use write_options::{AtimeMode, FixedHost, Host, SystemHost, WriteOptions};
