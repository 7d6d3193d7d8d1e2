//! Pools that the kernel made: every tree block and every sector of data with a checksum, with each set of
//! devices missing that the profiles tolerate.

use crate::{DataChecksums, OpenOptions, Volume, VolumeError, Warning};
use brindle_device::{Device, DeviceError};
use brindle_ondisk::{Generation, Item, KeyType, Logical, Node, NodeExpectation, RootId};
use brindle_testing::golden::{Golden, SparseImage};
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Debug)]
struct Image(SparseImage, String);

impl Device for Image {
    fn name(&self) -> &str {
        &self.1
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, buffer)
    }
}

fn open(golden: &Golden, missing: &[usize]) -> Result<Volume, VolumeError> {
    let there = golden.devices.iter().enumerate().filter(|(index, _)| !missing.contains(index));
    let devices = there
        .map(|(_, image)| Arc::new(Image(image.clone(), format!("dev{}", image.devid()))) as Arc<dyn Device>);
    let options = OpenOptions { degraded: true, ..OpenOptions::default() };
    let volume = Volume::open(devices.collect(), &options)?;
    let superblock = volume.superblock().clone();
    let level = superblock.chunk_root_level;
    let root = NodeExpectation::root(superblock.chunk_root, superblock.chunk_root_generation, level);
    walk(&volume, &root, &mut |_, item| match item.0 {
        (key, Item::Chunk(chunk)) => volume.add_chunk(Logical::new(key.offset()), &chunk).expect("chunk"),
        (_, Item::Device(device)) => volume.add_device(device).expect("device"),
        _ => {}
    });
    volume.check_complete()?;
    Ok(volume)
}

struct Found<'a>((brindle_ondisk::Key, Item<'a>));

fn walk(volume: &Volume, expected: &NodeExpectation, visit: &mut impl FnMut(&Node, Found<'_>)) {
    let context = volume.tree_context();
    let check = |bytes| Node::check(bytes, context, expected);
    let node = volume.read_block(expected.bytenr, context.nodesize, check);
    let node = node.unwrap_or_else(|error| panic!("{error}"));
    for pointer in node.key_ptrs() {
        walk(volume, &NodeExpectation::child(pointer, node.level()), visit);
    }
    for slot in 0..node.items().len() {
        let (key, data) = node.item(slot).expect("slot");
        visit(&node, Found((key, Item::parse(&key, data).expect("the tree checker has seen it"))));
    }
}

/// Reads everything; answers with the number of sectors of data and of tree blocks.
fn read_everything(volume: &Volume) -> (u64, u64) {
    let superblock = volume.superblock().clone();
    let root = NodeExpectation::root(superblock.root, superblock.generation, superblock.root_level);
    let mut roots: Vec<(RootId, Logical, Generation, u8)> = Vec::new();
    walk(volume, &root, &mut |_, Found((key, item))| {
        if let Item::Root(root) = item {
            let id = RootId::new(key.objectid.get());
            roots.push((id, root.bytenr, root.generation, root.level));
        }
    });
    assert!(roots.len() >= 5, "the pool's own trees");
    let (mut sectors, mut blocks) = (0, HashSet::new());
    for (_, bytenr, generation, level) in roots {
        walk(volume, &NodeExpectation::root(bytenr, generation, level), &mut |node, Found((key, item))| {
            blocks.insert(node.header().bytenr);
            if let (KeyType::EXTENT_CSUM, Item::Csums(sums)) = (key.item_type, item) {
                let count = sums.len() / volume.tree_context().checksum_type.size();
                let mut buffer = vec![0; count * 4096];
                let result =
                    volume.read_data(Logical::new(key.offset()), &mut buffer, &DataChecksums::all(sums));
                result.unwrap_or_else(|error| panic!("{error}"));
                sectors += count as u64;
            }
        });
    }
    (sectors, blocks.len() as u64)
}

fn assert_readable_without(name: &str, losses: usize) {
    let golden = Golden::load(name);
    let count = golden.devices.len();
    let complete = open(&golden, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let expected = read_everything(&complete);
    assert!(expected.0 > 100 && expected.1 > 5, "{name}: there is something to read: {expected:?}");
    assert!(complete.warnings().is_empty(), "{name}: {:?}", complete.warnings());
    let errors: u64 = complete.devices().iter().map(|d| d.counters.checksum_errors).sum();
    assert_eq!(errors, 0, "{name}");
    for set in 1..(1u32 << count) - 1 {
        let missing: Vec<usize> = (0..count).filter(|device| set >> device & 1 != 0).collect();
        if missing.len() > losses {
            continue;
        }
        let volume = open(&golden, &missing).unwrap_or_else(|error| panic!("{name}: {missing:?}: {error}"));
        assert_eq!(read_everything(&volume), expected, "{name} without {missing:?}");
    }
}

#[test]
fn raid5_of_three_and_five_devices_without_any_one() {
    assert_readable_without("raid5", 1);
    assert_readable_without("raid5-wide", 1);
}

#[test]
fn raid6_of_four_and_six_devices_without_any_two() {
    assert_readable_without("raid6", 2);
    assert_readable_without("raid6-wide", 2);
}

#[test]
fn mirrors_without_all_that_they_tolerate() {
    assert_readable_without("raid1", 1);
    assert_readable_without("raid1c3", 2);
    assert_readable_without("raid1c4", 3);
    assert_readable_without("raid10", 1);
}

#[test]
fn pools_without_redundancy_across_devices() {
    for name in ["single", "dup", "raid0", "raid1-metadata-raid0-data", "mixed-block-groups", "unequal"] {
        assert_readable_without(name, 0);
    }
}

#[test]
fn a_seed_and_its_sprout() {
    let golden = Golden::load("seed");
    let volume = open(&golden, &[]).expect("both are there");
    assert!(read_everything(&volume).0 > 100);
    assert!(volume.devices().iter().any(|device| device.is_seed));
    let alone = open(&golden, &[0]).expect("degraded, to read what is left").warnings();
    let is_told = |warning: &Warning| matches!(warning, Warning::LostChunks { unreadable, .. } if unreadable.len() == 3);
    assert!(alone.iter().any(is_told), "the sprout needs its seed: {alone:?}");
}

/// Data rebuilt from parity must equal that on the device, in all blocks and data.
#[test]
fn every_way_to_obtain_a_sector_of_the_kernels_gives_the_same() {
    for name in ["raid5", "raid5-wide", "raid6", "raid6-wide", "raid10", "raid1c4"] {
        let volume = open(&Golden::load(name), &[]).expect("complete");
        let superblock = volume.superblock().clone();
        let root = NodeExpectation::root(superblock.root, superblock.generation, superblock.root_level);
        let mut compared = 0;
        let mut compare = |at: Logical| {
            let ways = volume.copies(at).expect("mapped");
            let mut first = vec![0; 4096];
            volume.read_mirror(at, 0, &mut first).expect("readable");
            for mirror in 1..ways {
                let mut other = vec![0; 4096];
                volume.read_mirror(at, mirror, &mut other).expect("readable");
                assert!(first == other, "{name}: logical {at} in way {mirror}");
                compared += 1;
            }
        };
        walk(&volume, &root, &mut |node, Found((_, item))| {
            compare(node.header().bytenr);
            if let Item::Root(root) = item {
                let root = NodeExpectation::root(root.bytenr, root.generation, root.level);
                walk(&volume, &root, &mut |node, Found((key, item))| {
                    compare(node.header().bytenr);
                    if let Item::Csums(sums) = item {
                        let sectors = sums.len() / volume.tree_context().checksum_type.size();
                        (0..sectors as u64).for_each(|n| compare(Logical::new(key.offset()) + n * 4096));
                    }
                });
            }
        });
        assert!(compared > 1000, "{name}: {compared}");
    }
}
