//! Items: what the leaves hold, a typed view for each key type.
//!
//! A view is a cast, not a copy. [`Item::parse`] takes any bytes: it checks lengths, and the values that
//! decide lengths, and nothing else; what values may be is the tree checker's concern.

mod classes;
mod device;
mod directory;
mod extent;
mod file_extent;
mod inode;
mod misc;
mod own;
mod quota;
mod quota_table;
mod root;

pub use classes::{ClassEntry, ClassMember, DeviceClassesHeader, DeviceClassesItem};
pub use device::{BlockGroupItem, Chunk, ChunkHeader, DevExtent, DevItem, DevReplaceItem, DevStats, Stripe};
pub use directory::{DirEntries, DirEntry, DirEntryHeader, DirLogItem, FileType};
pub use extent::{
    BackRef, ExtentDataRef, ExtentFlags, ExtentItem, ExtentItemHeader, ExtentRefs, SharedDataRef,
    TreeBlockInfo,
};
pub use file_extent::{Compression, FileExtent, FileExtentHeader, FileExtentRef, FileExtentType};
pub use inode::{
    InodeExtrefHeader, InodeExtrefs, InodeFlags, InodeItem, InodeName, InodeRefHeader, InodeRefs, Timespec,
};
pub use misc::{
    BalanceArgs, BalanceItem, FreeSpaceHeader, FreeSpaceInfo, QgroupInfo, QgroupLimit, QgroupStatus,
    QgroupStatusHeader, SimpleQgroupStatus, VerityDescItem,
};
pub use own::{
    LogSettingsItem, PoolSettingsItem, SuperblockAge, SuperblockAgesHeader, SuperblockAgesItem,
    WriteBackChunk, WriteBackHeader, WriteBackItem,
};
pub use quota::{BadQgroupId, QgroupId, QgroupLimitFlags, QgroupStatusFlags};
pub use quota_table::QuotaTable;
pub use root::{RootFlags, RootItem, RootRef, RootRefHeader};

use crate::{Defect, Key, KeyType, ObjectId, to_u64};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// One item, typed by its key.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// `INODE_ITEM`
    Inode(&'a InodeItem),
    /// `INODE_REF`
    InodeRef(InodeRefs<'a>),
    /// `INODE_EXTREF`
    InodeExtref(InodeExtrefs<'a>),
    /// `XATTR_ITEM`
    Xattr(DirEntries<'a>),
    /// `VERITY_DESC_ITEM` at offset 0
    VerityDescSize(&'a VerityDescItem),
    /// `VERITY_DESC_ITEM` from offset 1 on
    VerityDesc(&'a [u8]),
    /// `VERITY_MERKLE_ITEM`
    VerityMerkle(&'a [u8]),
    /// `ORPHAN_ITEM`
    Orphan,
    /// `DIR_LOG_ITEM`, `DIR_LOG_INDEX`
    DirLog(&'a DirLogItem),
    /// `DIR_ITEM`
    DirItem(DirEntries<'a>),
    /// `DIR_INDEX`
    DirIndex(DirEntries<'a>),
    /// `EXTENT_DATA`
    FileExtent(FileExtent<'a>),
    /// `EXTENT_CSUM`: checksums, one after the other
    Csums(&'a [u8]),
    /// `ROOT_ITEM`
    Root(Box<RootItem>),
    /// `ROOT_REF`, `ROOT_BACKREF`
    RootRef(RootRef<'a>),
    /// `EXTENT_ITEM`, `METADATA_ITEM`
    Extent(ExtentItem<'a>),
    /// `TREE_BLOCK_REF`, `SHARED_BLOCK_REF`, `EXTENT_DATA_REF`, `SHARED_DATA_REF`
    ExtentRef(BackRef),
    /// `BLOCK_GROUP_ITEM`
    BlockGroup(&'a BlockGroupItem),
    /// `FREE_SPACE_INFO`
    FreeSpaceInfo(&'a FreeSpaceInfo),
    /// `FREE_SPACE_EXTENT`
    FreeSpaceExtent,
    /// `FREE_SPACE_BITMAP`
    FreeSpaceBitmap(&'a [u8]),
    /// `DEV_EXTENT`
    DevExtent(&'a DevExtent),
    /// `DEV_ITEM`
    Device(&'a DevItem),
    /// `CHUNK_ITEM`
    Chunk(Chunk<'a>),
    /// `QGROUP_STATUS`
    QgroupStatus(QgroupStatus),
    /// `QGROUP_INFO`
    QgroupInfo(&'a QgroupInfo),
    /// `QGROUP_LIMIT`
    QgroupLimit(&'a QgroupLimit),
    /// `QGROUP_RELATION`
    QgroupRelation,
    /// `TEMPORARY_ITEM` of a balance
    Balance(&'a BalanceItem),
    /// `PERSISTENT_ITEM` of a device's statistics
    DevStats(DevStats),
    /// `PERSISTENT_ITEM` of brindle's own
    PoolSettings(&'a PoolSettingsItem),
    /// `PERSISTENT_ITEM` of brindle's own
    WriteBack(WriteBackItem<'a>),
    /// `PERSISTENT_ITEM` of brindle's own
    LogSettings(&'a LogSettingsItem),
    /// `PERSISTENT_ITEM` of brindle's own
    SuperblockAges(SuperblockAgesItem<'a>),
    /// `PERSISTENT_ITEM` of brindle's own: a [`DeviceClassesItem`]
    DeviceClasses(&'a [u8]),
    /// `DEV_REPLACE`
    DevReplace(&'a DevReplaceItem),
    /// `UUID_KEY_SUBVOL`, `UUID_KEY_RECEIVED_SUBVOL`: subvolume ids
    UuidSubvolumes(&'a [U64]),
    /// Version 1 free space cache header (key type 0, object id `FREE_SPACE`)
    FreeSpaceHeader(&'a FreeSpaceHeader),
    /// `STRING_ITEM`
    String(&'a [u8]),
    /// A type that brindle does not know
    Unknown(&'a [u8]),
}

impl<'a> Item<'a> {
    /// The item that `data`, filed under `key`, is.
    pub fn parse(key: &Key, data: &'a [u8]) -> Result<Self, Defect> {
        Ok(match key.item_type {
            KeyType::INODE_ITEM => Self::Inode(exact(data, "inode item size")?),
            KeyType::INODE_REF => Self::InodeRef(InodeRefs::new(data)),
            KeyType::INODE_EXTREF => Self::InodeExtref(InodeExtrefs::new(data)),
            KeyType::XATTR_ITEM => Self::Xattr(DirEntries::new(data)),
            KeyType::VERITY_DESC_ITEM if key.offset() == 0 => {
                Self::VerityDescSize(exact(data, "verity descriptor size")?)
            }
            KeyType::VERITY_DESC_ITEM => Self::VerityDesc(data),
            KeyType::VERITY_MERKLE_ITEM => Self::VerityMerkle(data),
            KeyType::ORPHAN_ITEM => empty(data, "orphan item size", Self::Orphan)?,
            KeyType::DIR_LOG_ITEM | KeyType::DIR_LOG_INDEX => Self::DirLog(exact(data, "dir log item size")?),
            KeyType::DIR_ITEM => Self::DirItem(DirEntries::new(data)),
            KeyType::DIR_INDEX => Self::DirIndex(DirEntries::new(data)),
            KeyType::EXTENT_DATA => Self::FileExtent(FileExtent::parse(data)?),
            KeyType::EXTENT_CSUM => Self::Csums(data),
            KeyType::ROOT_ITEM => Self::Root(RootItem::parse(data)?),
            KeyType::ROOT_REF | KeyType::ROOT_BACKREF => Self::RootRef(RootRef::parse(data)?),
            KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => Self::Extent(ExtentItem::parse(key, data)?),
            KeyType::TREE_BLOCK_REF
            | KeyType::SHARED_BLOCK_REF
            | KeyType::EXTENT_DATA_REF
            | KeyType::SHARED_DATA_REF => Self::ExtentRef(BackRef::parse_keyed(key, data)?),
            _ => return Self::parse_pool_item(key, data),
        })
    }

    /// Items of chunk, device, block group, free space, quota and UUID trees.
    fn parse_pool_item(key: &Key, data: &'a [u8]) -> Result<Self, Defect> {
        Ok(match key.item_type {
            KeyType::BLOCK_GROUP_ITEM => Self::BlockGroup(exact(data, "block group item size")?),
            KeyType::FREE_SPACE_INFO => Self::FreeSpaceInfo(exact(data, "free space info size")?),
            KeyType::FREE_SPACE_EXTENT => empty(data, "free space extent size", Self::FreeSpaceExtent)?,
            KeyType::FREE_SPACE_BITMAP => Self::FreeSpaceBitmap(data),
            KeyType::DEV_EXTENT => Self::DevExtent(exact(data, "device extent size")?),
            KeyType::DEV_ITEM => Self::Device(exact(data, "device item size")?),
            KeyType::CHUNK_ITEM => Self::Chunk(Chunk::parse(data)?),
            KeyType::QGROUP_STATUS => Self::QgroupStatus(QgroupStatus::parse(data)?),
            KeyType::QGROUP_INFO => Self::QgroupInfo(exact(data, "qgroup info size")?),
            KeyType::QGROUP_LIMIT => Self::QgroupLimit(exact(data, "qgroup limit size")?),
            KeyType::QGROUP_RELATION => empty(data, "qgroup relation size", Self::QgroupRelation)?,
            KeyType::TEMPORARY_ITEM if key.objectid == ObjectId::BALANCE => {
                Self::Balance(exact(data, "balance item size")?)
            }
            KeyType::PERSISTENT_ITEM if key.objectid == ObjectId::new(0) => {
                Self::DevStats(DevStats::parse(data)?)
            }
            KeyType::PERSISTENT_ITEM if *key == PoolSettingsItem::KEY => {
                Self::PoolSettings(prefix(data, "pool settings size")?.0)
            }
            KeyType::PERSISTENT_ITEM if *key == WriteBackHeader::KEY => {
                Self::WriteBack(WriteBackItem::parse(data)?)
            }
            KeyType::PERSISTENT_ITEM if *key == LogSettingsItem::KEY => {
                Self::LogSettings(prefix(data, "log settings size")?.0)
            }
            KeyType::PERSISTENT_ITEM if *key == SuperblockAgesHeader::KEY => {
                Self::SuperblockAges(SuperblockAgesItem::parse(data)?)
            }
            KeyType::PERSISTENT_ITEM if *key == DeviceClassesHeader::KEY => Self::DeviceClasses(data),
            KeyType::DEV_REPLACE => Self::DevReplace(exact(data, "dev replace item size")?),
            KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL => {
                let ids = <[U64]>::ref_from_bytes(data);
                let size = to_u64(data.len());
                Self::UuidSubvolumes(
                    ids.map_err(|_| Defect::new("uuid item size is not of whole ids", size))?,
                )
            }
            KeyType(0) if key.objectid == ObjectId::FREE_SPACE => {
                Self::FreeSpaceHeader(exact(data, "free space header size")?)
            }
            KeyType::STRING_ITEM => Self::String(data),
            _ => Self::Unknown(data),
        })
    }
}

/// All of `data` as one structure.
fn exact<'a, T>(data: &'a [u8], why: &'static str) -> Result<&'a T, Defect>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let wrong = || Defect::expected(why, to_u64(size_of::<T>()), to_u64(data.len()));
    T::ref_from_bytes(data).map_err(|_| wrong())
}

/// The structure at the start of `data`, and what follows.
fn prefix<'a, T>(data: &'a [u8], why: &'static str) -> Result<(&'a T, &'a [u8]), Defect>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let short = || Defect::expected(why, to_u64(size_of::<T>()), to_u64(data.len()));
    T::ref_from_prefix(data).map_err(|_| short())
}

/// The first `length` bytes of `data`, and what follows.
fn split<'a>(data: &'a [u8], length: u64, why: &'static str) -> Result<(&'a [u8], &'a [u8]), Defect> {
    let short = || Defect::expected(why, length, to_u64(data.len()));
    data.split_at_checked(crate::to_usize(length)).ok_or_else(short)
}

fn empty<'a>(data: &[u8], why: &'static str, item: Item<'a>) -> Result<Item<'a>, Defect> {
    if data.is_empty() { Ok(item) } else { Err(Defect::expected(why, 0, to_u64(data.len()))) }
}
