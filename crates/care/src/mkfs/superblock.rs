//! The superblock of each device.

use super::plan::{GENERATION, Plan, PlannedDevice, SECTORSIZE};
use super::trees::Trees;
use super::{MkfsOptions, items};
use brindle_ondisk::{BlockGroupType, ObjectId, RootBackup, RootId, SUPERBLOCK_SIZE, Superblock, to_u64};
use zerocopy::{FromZeros, IntoBytes};

/// The block is as it was written (`BTRFS_SUPER_FLAG`, the header's `WRITTEN`).
const FLAG_WRITTEN: u64 = 1;
/// The version 1 free space cache is not there and not to be trusted.
const NO_CACHE: u64 = u64::MAX;

/// The superblock of the pool; what differs between devices and copies is left for [`for_device`].
pub(super) fn of_pool(plan: &Plan, trees: &Trees, options: &MkfsOptions) -> Box<Superblock> {
    let mut superblock = Superblock::from_bytes(&[0; SUPERBLOCK_SIZE]);
    let backup = backup(plan, trees);
    superblock.fsid = options.fsid;
    superblock.flags.set(FLAG_WRITTEN);
    superblock.magic = *b"_BHRfS_M";
    superblock.generation = GENERATION;
    superblock.root = backup.tree_root;
    superblock.root_level = backup.tree_root_level;
    superblock.chunk_root = backup.chunk_root;
    superblock.chunk_root_level = backup.chunk_root_level;
    superblock.chunk_root_generation = GENERATION;
    superblock.total_bytes = backup.total_bytes;
    superblock.bytes_used = backup.bytes_used;
    superblock.num_devices = backup.num_devices;
    superblock.root_dir_objectid.set(ObjectId::ROOT_TREE_DIR.get());
    superblock.sectorsize.set(SECTORSIZE);
    superblock.stripesize.set(SECTORSIZE);
    superblock.nodesize.set(plan.nodesize);
    superblock.leafsize.set(plan.nodesize);
    let profiles = [plan.data_profile, plan.metadata_profile];
    superblock.incompat_flags.set(options.features.incompat(&profiles).bits());
    let compat_ro = options.features.compat_ro();
    superblock.compat_ro_flags.set(compat_ro.bits());
    superblock.cache_generation.set(if compat_ro.is_empty() { NO_CACHE } else { 0 });
    superblock.uuid_tree_generation.set(GENERATION.get());
    superblock.csum_type.set(options.checksum.number());
    superblock.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    superblock.super_roots[0] = backup;
    add_system_chunks(&mut superblock, plan);
    superblock
}

/// The copy of the superblock that belongs at `offset` of a device.
pub(super) fn for_device(
    superblock: &Superblock,
    device: &PlannedDevice,
    options: &MkfsOptions,
    offset: u64,
) -> Box<Superblock> {
    let mut copy = Box::new(superblock.clone());
    copy.dev_item = items::dev_item(device, options);
    copy.bytenr.set(offset);
    let checksum = copy.compute_checksum(options.checksum);
    copy.csum[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
    copy
}

/// The roots of the one commit that there was.
fn backup(plan: &Plan, trees: &Trees) -> RootBackup {
    let root = |id: RootId| {
        let tree = trees.get(id).expect("every pool has this tree");
        (tree.addresses.root(), tree.addresses.root_level())
    };
    let mut backup = RootBackup::new_zeroed();
    (backup.tree_root, backup.tree_root_level) = root(RootId::ROOT_TREE);
    (backup.chunk_root, backup.chunk_root_level) = root(RootId::CHUNK_TREE);
    (backup.extent_root, backup.extent_root_level) = root(RootId::EXTENT_TREE);
    (backup.fs_root, backup.fs_root_level) = root(RootId::FS_TREE);
    (backup.dev_root, backup.dev_root_level) = root(RootId::DEV_TREE);
    (backup.csum_root, backup.csum_root_level) = root(RootId::CSUM_TREE);
    for generation in [
        &mut backup.tree_root_gen,
        &mut backup.chunk_root_gen,
        &mut backup.extent_root_gen,
        &mut backup.fs_root_gen,
        &mut backup.dev_root_gen,
        &mut backup.csum_root_gen,
    ] {
        *generation = GENERATION;
    }
    backup.total_bytes.set(plan.devices.iter().map(|device| device.total_bytes).sum());
    backup.bytes_used.set(plan.chunks.iter().map(|chunk| trees.used_bytes(chunk)).sum());
    backup.num_devices.set(to_u64(plan.devices.len()));
    backup
}

fn add_system_chunks(superblock: &mut Superblock, plan: &Plan) {
    let mut array = Vec::new();
    for chunk in plan.chunks.iter().filter(|chunk| chunk.kind.contains(BlockGroupType::SYSTEM)) {
        let (key, data) = items::chunk_item(chunk);
        array.extend_from_slice(key.as_bytes());
        array.extend(data);
    }
    superblock.sys_chunk_array[..array.len()].copy_from_slice(&array);
    superblock.sys_chunk_array_size.set(u32::try_from(array.len()).expect("at most 2048"));
}
