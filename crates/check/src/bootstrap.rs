//! Bootstrap of a pool from devices until every address can be found: superblocks, then the chunk tree.

use crate::ledger::Ledger;
use crate::page;
use crate::read::Reader;
use crate::{CheckOptions, Finding, Findings, TreeName};
use brindle_device::Device;
use brindle_ondisk::item::{SuperblockAge, SuperblockAgesHeader};
use brindle_ondisk::{Item, Key, KeyType, Logical, Node, NodeExpectation, RootBackup, RootId, Superblock};
use brindle_volume::{Volume, VolumeError};
use std::sync::Arc;

/// A pool ready to be examined.
#[derive(Debug)]
pub struct Pool {
    volume: Volume,
    devices: Vec<Arc<dyn Device>>,
    /// Superblock of the last commit, which need not be the one that is examined.
    last: Arc<Superblock>,
    /// Problems of the chunks found on the way.
    problems: Findings,
    has_chunk_tree: bool,
}

/// Finds the pool on the devices and reads its chunk tree. What is wrong there is found again, and reported,
/// by the examination; an error means that there is nothing to examine.
pub fn open(devices: Vec<Arc<dyn Device>>, options: &CheckOptions) -> Result<Pool, VolumeError> {
    let volume = Volume::open(devices.clone(), &options.volume)?;
    let last = volume.superblock();
    let ledger = Ledger::new(options);
    let mut has_chunk_tree = false;
    let reader = Reader::new(&volume, &ledger, false);
    let uses_backups = options.volume.rescue.backup_roots;
    if uses_backups && reader.again(&chunk_root(&last)).is_none() {
        enter_by_backup(&reader, false, |backup| {
            NodeExpectation::root(backup.chunk_root, backup.chunk_root_gen, backup.chunk_root_level)
        });
    }
    let root = chunk_root(&volume.superblock());
    reader.walk_small(TreeName::Id(RootId::CHUNK_TREE), &root, &mut |leaf| {
        has_chunk_tree = true;
        add_leaf(&volume, leaf, &ledger);
    });
    if has_chunk_tree {
        volume.check_complete()?;
        if volume.has_sleepers() {
            // Without a record no device sleeps.
            volume.judge_sleepers(&superblock_ages(&reader).unwrap_or_default())?;
        }
    }
    if uses_backups && has_chunk_tree && reader.again(&tree_root(&volume.superblock())).is_none() {
        enter_by_backup(&reader, true, |backup| {
            NodeExpectation::root(backup.tree_root, backup.tree_root_gen, backup.tree_root_level)
        });
    }
    // What the walk over the chunk tree found, the examination finds again, if it gets there.
    let page = if has_chunk_tree { page::CHUNKS } else { page::TREES };
    let problems = ledger.take(page).errors;
    Ok(Pool { volume, devices, last, problems, has_chunk_tree })
}

/// Enters by the newest backup of which a root can be read.
fn enter_by_backup(reader: &Reader<'_>, has_chunks: bool, root: impl Fn(&RootBackup) -> NodeExpectation) {
    let backups = reader.volume.backup_roots();
    if let Some(backup) = backups.iter().find(|backup| reader.again(&root(backup)).is_some()) {
        reader.volume.enter_by(backup, has_chunks);
    }
}

/// Root of the root tree in the superblock.
fn tree_root(superblock: &Superblock) -> NodeExpectation {
    NodeExpectation::root(superblock.root, superblock.generation, superblock.root_level)
}

/// Chunk tree root in the superblock.
pub(crate) fn chunk_root(superblock: &Superblock) -> NodeExpectation {
    let Superblock { chunk_root, chunk_root_generation, chunk_root_level, .. } = superblock;
    NodeExpectation::root(*chunk_root, *chunk_root_generation, *chunk_root_level)
}

/// Ages of superblocks that the pool has recorded in its device tree.
fn superblock_ages(reader: &Reader<'_>) -> Option<Vec<SuperblockAge>> {
    let superblock = reader.volume.superblock();
    let root_tree = tree_root(&superblock);
    let key = Key::new(RootId::DEV_TREE.object_id(), KeyType::ROOT_ITEM, 0);
    let leaf = reader.leaf_of(&root_tree, &key)?;
    let (_, data) = leaf.item(leaf.search(&key).ok()?)?;
    let Ok(Item::Root(item)) = Item::parse(&key, data) else { return None };
    let device_tree = NodeExpectation::root(item.bytenr, item.generation, item.level);
    let key = SuperblockAgesHeader::KEY;
    let leaf = reader.leaf_of(&device_tree, &key)?;
    let (_, data) = leaf.item(leaf.search(&key).ok()?)?;
    let Ok(Item::SuperblockAges(item)) = Item::parse(&key, data) else { return None };
    Some(item.devices.to_vec())
}

fn add_leaf(volume: &Volume, leaf: &Node, ledger: &Ledger) {
    for slot in 0..leaf.len() {
        let Some((key, data)) = leaf.item(slot) else { continue };
        let added = match Item::parse(&key, data) {
            Ok(Item::Chunk(chunk)) => volume.add_chunk(Logical::new(key.offset()), &chunk),
            Ok(Item::Device(device)) => volume.add_device(device),
            _ => Ok(()),
        };
        if let Err(error) = added {
            ledger.report(page::CHUNKS, Finding::Chunk(error.to_string()));
        }
    }
}

impl Pool {
    /// The pool's superblock.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.volume.superblock()
    }

    /// The superblock of the last commit, by which every copy is judged.
    pub(crate) fn last_superblock(&self) -> &Superblock {
        &self.last
    }

    /// The pool's address space.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The devices that were given.
    pub(crate) fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// Chunks that the chunk map refused.
    pub(crate) fn problems(&self) -> &Findings {
        &self.problems
    }

    /// Returns true if any of the chunk tree could be read.
    pub(crate) fn has_chunk_tree(&self) -> bool {
        self.has_chunk_tree
    }
}
