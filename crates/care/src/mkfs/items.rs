//! The items of the first trees.

use super::MkfsOptions;
use super::plan::{GENERATION, Plan, PlannedChunk, PlannedDevice, SECTORSIZE};
use crate::bulk::{Addresses, TreeItem};
use brindle_ondisk::item::{
    BlockGroupItem, ChunkHeader, DevExtent, DevItem, DeviceClassesHeader, DirEntryHeader, ExtentFlags,
    ExtentItemHeader, FileType, FreeSpaceInfo, InodeFlags, InodeItem, QgroupInfo, QgroupLimit,
    QgroupStatusFlags, QgroupStatusHeader, RootItem, SimpleQgroupStatus, Timespec, TreeBlockInfo,
};
use brindle_ondisk::{Generation, Key, KeyType, ObjectId, QgroupId, RootId, name_hash, to_u64};
use brindle_policy::placement::STRIP_BYTES;
use std::ops::Range;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// Name of the entry for the default subvolume.
const DEFAULT: &[u8] = b"default";
/// Name of a subvolume's root directory by itself.
const PARENT: &[u8] = b"..";
/// A directory that all may read and its owner change.
const DIRECTORY_MODE: u32 = 0o040_755;

/// Range of the tree block info in the longer item of a tree block.
pub(super) const TREE_BLOCK_INFO_RANGE: Range<usize> =
    size_of::<ExtentItemHeader>()..size_of::<ExtentItemHeader>() + size_of::<TreeBlockInfo>();

/// A device as its item, in the chunk tree and in its superblocks, says it.
pub(super) fn dev_item(device: &PlannedDevice, options: &MkfsOptions) -> DevItem {
    let mut item = DevItem::new_zeroed();
    item.devid = device.devid;
    item.total_bytes.set(device.total_bytes);
    item.bytes_used.set(device.used_bytes);
    item.io_align.set(SECTORSIZE);
    item.io_width.set(SECTORSIZE);
    item.sector_size.set(SECTORSIZE);
    item.device_type.set(device.hint.number().into());
    item.uuid = device.uuid;
    item.fsid = options.fsid;
    item
}

/// A chunk's key and item, in the chunk tree and in the superblock.
pub(super) fn chunk_item(chunk: &PlannedChunk) -> TreeItem {
    let strip = u32::try_from(STRIP_BYTES).expect("64 KiB");
    let header = ChunkHeader {
        length: U64::new(chunk.length),
        owner: RootId::EXTENT_TREE,
        stripe_len: U64::new(STRIP_BYTES),
        chunk_type: U64::new(chunk.kind.bits()),
        io_align: U32::new(strip),
        io_width: U32::new(strip),
        sector_size: U32::new(SECTORSIZE),
        num_stripes: U16::new(u16::try_from(chunk.stripes.len()).expect("as many as the plan allows")),
        sub_stripes: U16::new(chunk.profile.attributes().sub_stripes),
    };
    let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, chunk.start.get());
    (key, [header.as_bytes(), chunk.stripes.as_bytes()].concat())
}

/// Devices and chunks.
pub(super) fn chunk_tree(plan: &Plan, options: &MkfsOptions) -> Vec<TreeItem> {
    let device = |device: &PlannedDevice| {
        let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, device.devid.get());
        (key, dev_item(device, options).as_bytes().to_vec())
    };
    plan.devices.iter().map(device).chain(plan.chunks.iter().map(chunk_item)).collect()
}

/// The pieces of devices that belong to chunks, and classes of devices.
pub(super) fn dev_tree(plan: &Plan) -> Vec<TreeItem> {
    let mut content: Vec<TreeItem> =
        plan.classes.encode().into_iter().map(|item| (DeviceClassesHeader::KEY, item)).collect();
    for chunk in &plan.chunks {
        for stripe in &chunk.stripes {
            let item = DevExtent {
                chunk_tree: RootId::CHUNK_TREE,
                chunk_objectid: ObjectId::FIRST_CHUNK_TREE,
                chunk_offset: chunk.start,
                length: U64::new(chunk.stripe_bytes),
                chunk_tree_uuid: plan.chunk_tree_uuid,
            };
            let devid = ObjectId::new(stripe.devid.get());
            content
                .push((Key::new(devid, KeyType::DEV_EXTENT, stripe.offset.get()), item.as_bytes().to_vec()));
        }
    }
    content
}

/// Space accounting of a chunk.
pub(super) fn block_group(chunk: &PlannedChunk, used_bytes: u64) -> TreeItem {
    let item = BlockGroupItem {
        used: U64::new(used_bytes),
        chunk_objectid: ObjectId::FIRST_CHUNK_TREE,
        flags: U64::new(chunk.kind.bits()),
    };
    let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM, chunk.length);
    (key, item.as_bytes().to_vec())
}

/// Free space of a chunk whose used part is its beginning.
pub(super) fn free_space(chunk: &PlannedChunk, used_bytes: u64) -> Vec<TreeItem> {
    let is_full = used_bytes == chunk.length;
    let info = FreeSpaceInfo { extent_count: U32::new(u32::from(!is_full)), flags: U32::new(0) };
    let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::FREE_SPACE_INFO, chunk.length);
    let mut content = vec![(key, info.as_bytes().to_vec())];
    if !is_full {
        let start = ObjectId::new((chunk.start + used_bytes).get());
        content.push((Key::new(start, KeyType::FREE_SPACE_EXTENT, chunk.length - used_bytes), Vec::new()));
    }
    content
}

/// The item of a tree block, with its one reference.
pub(super) fn tree_block(owner: RootId, info: Option<TreeBlockInfo>) -> Vec<u8> {
    let header = ExtentItemHeader {
        refs: U64::new(1),
        generation: GENERATION,
        flags: U64::new(ExtentFlags::TREE_BLOCK.bits()),
    };
    let mut data = header.as_bytes().to_vec();
    if let Some(info) = info {
        data.extend_from_slice(info.as_bytes());
    }
    data.push(KeyType::TREE_BLOCK_REF.0);
    data.extend_from_slice(owner.as_bytes());
    data
}

/// The root item of a tree.
pub(super) fn root_item(id: RootId, addresses: &Addresses, plan: &Plan, options: &MkfsOptions) -> TreeItem {
    let mut item = RootItem::new_zeroed();
    // Nothing reads these but for the flag; they are what every root item has.
    item.inode.generation = Generation::new(1);
    item.inode.size.set(3);
    item.inode.nbytes.set(plan.nodesize.into());
    item.inode.nlink.set(1);
    item.inode.mode.set(DIRECTORY_MODE);
    item.inode.flags.set(InodeFlags::ROOT_ITEM_INIT.bits());
    item.generation = GENERATION;
    item.generation_v2 = GENERATION;
    item.bytenr = addresses.root();
    item.level = addresses.root_level();
    item.bytes_used.set(to_u64(addresses.count()) * u64::from(plan.nodesize));
    item.refs.set(1);
    if id.is_file_tree() {
        item.root_dirid = ObjectId::FIRST_FREE;
    }
    if id == RootId::FS_TREE {
        item.uuid = plan.subvolume_uuid;
        item.otransid = GENERATION;
        item.ctransid = GENERATION;
        item.otime = now(options);
        item.ctime = now(options);
    }
    (Key::new(id.object_id(), KeyType::ROOT_ITEM, 0), item.as_bytes().to_vec())
}

/// The directory in the root tree that names the default subvolume.
pub(super) fn root_directory(plan: &Plan, options: &MkfsOptions) -> Vec<TreeItem> {
    let directory = ObjectId::ROOT_TREE_DIR;
    let entry = DirEntryHeader {
        location: Key::new(RootId::FS_TREE.object_id(), KeyType::ROOT_ITEM, u64::MAX),
        transid: Generation::new(0),
        data_len: U16::new(0),
        name_len: U16::new(u16::try_from(DEFAULT.len()).expect("short")),
        file_type: FileType::Directory as u8,
    };
    let name = Key::new(directory, KeyType::DIR_ITEM, name_hash(DEFAULT));
    let own_name = Key::new(RootId::FS_TREE.object_id(), KeyType::INODE_REF, directory.get());
    vec![
        (name, [entry.as_bytes(), DEFAULT].concat()),
        (own_name, inode_ref(DEFAULT)),
        directory_inode(directory, (0, 0), plan, options),
        (Key::new(directory, KeyType::INODE_REF, directory.get()), inode_ref(PARENT)),
    ]
}

/// A tree of files with nothing but its root directory.
pub(super) fn file_tree(id: RootId, plan: &Plan, options: &MkfsOptions) -> Vec<TreeItem> {
    let directory = ObjectId::FIRST_FREE;
    debug_assert!(id.is_file_tree(), "only trees of files have a root directory");
    let owner = if id == RootId::FS_TREE { options.root_owner } else { (0, 0) };
    vec![
        directory_inode(directory, owner, plan, options),
        (Key::new(directory, KeyType::INODE_REF, directory.get()), inode_ref(PARENT)),
    ]
}

/// The UUID of the top-level subvolume.
pub(super) fn uuid_item(plan: &Plan) -> TreeItem {
    let (high, low) = plan.subvolume_uuid.0.split_at(8);
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of sixteen bytes"));
    let key = Key::new(ObjectId::new(half(high)), KeyType::UUID_KEY_SUBVOL, half(low));
    (key, RootId::FS_TREE.as_bytes().to_vec())
}

/// Simple quotas that count from the first transaction on: the top-level subvolume has the blocks of its tree.
pub(super) fn quota_tree(top_level_bytes: u64) -> Vec<TreeItem> {
    let flags = QgroupStatusFlags::ON | QgroupStatusFlags::SIMPLE;
    let header = QgroupStatusHeader {
        version: U64::new(QgroupStatusHeader::VERSION),
        generation: U64::new(GENERATION.get()),
        flags: U64::new(flags.bits()),
        rescan: U64::new(0),
    };
    let status = SimpleQgroupStatus { header, enable_gen: U64::new(GENERATION.get()) };
    let bytes = U64::new(top_level_bytes);
    let info =
        QgroupInfo { generation: GENERATION, rfer: bytes, rfer_cmpr: bytes, excl: bytes, excl_cmpr: bytes };
    let (none, top_level) = (ObjectId::new(0), QgroupId::of_subvolume(RootId::FS_TREE));
    vec![
        (Key::new(none, KeyType::QGROUP_STATUS, 0), status.as_bytes().to_vec()),
        (Key::new(none, KeyType::QGROUP_INFO, top_level.get()), info.as_bytes().to_vec()),
        (
            Key::new(none, KeyType::QGROUP_LIMIT, top_level.get()),
            QgroupLimit::new_zeroed().as_bytes().to_vec(),
        ),
    ]
}

fn directory_inode(number: ObjectId, owner: (u32, u32), plan: &Plan, options: &MkfsOptions) -> TreeItem {
    let mut inode = InodeItem::new_zeroed();
    inode.generation = GENERATION;
    inode.transid = GENERATION;
    inode.nbytes.set(plan.nodesize.into());
    inode.nlink.set(1);
    inode.uid.set(owner.0);
    inode.gid.set(owner.1);
    inode.mode.set(DIRECTORY_MODE);
    let now = now(options);
    (inode.atime, inode.ctime, inode.mtime, inode.otime) = (now, now, now, now);
    (Key::new(number, KeyType::INODE_ITEM, 0), inode.as_bytes().to_vec())
}

/// One name, of index 0.
fn inode_ref(name: &[u8]) -> Vec<u8> {
    let length = u16::try_from(name.len()).expect("short");
    [&0u64.to_le_bytes()[..], &length.to_le_bytes(), name].concat()
}

fn now(options: &MkfsOptions) -> Timespec {
    Timespec { sec: options.time_sec.into(), nsec: U32::new(0) }
}
