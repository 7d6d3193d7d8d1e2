//! Every golden image of the kernel's, read back path by path and byte by byte.

use crate::walk::{Limits, Walk};
use brindle_device::Device;
use brindle_fs::{Filesystem, OpenOptions, SubvolumeChoice};
use brindle_ondisk::RootId;
use brindle_testing::golden::{self, Golden};
use brindle_testing::manifest::{Entry, Manifest};
use std::sync::Arc;

pub(crate) fn devices(golden: &Golden) -> Vec<Arc<dyn Device>> {
    golden.devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect()
}

/// The top level, as the manifests have it, whatever the default subvolume is.
pub(crate) fn top_level() -> OpenOptions {
    OpenOptions { subvolume: SubvolumeChoice::Id(RootId::FS_TREE), ..OpenOptions::default() }
}

fn open(golden: &Golden) -> Filesystem {
    Filesystem::open(devices(golden), &top_level()).unwrap_or_else(|error| panic!("{}: {error}", golden.name))
}

/// The manifest of all that a filesystem holds.
pub(crate) fn read_whole(filesystem: &Filesystem, name: &str) -> Manifest {
    Walk::of(filesystem, Limits::NONE).expect_whole(name)
}

/// Manifest as the library knows it: the flags of `FS_IOC_GETFLAGS` are made by the server of the call.
pub(crate) fn without_flags(manifest: &Manifest) -> Manifest {
    manifest.entries().cloned().map(|entry| Entry { flags: None, ..entry }).collect()
}

pub(crate) fn assert_same(name: &str, expected: &Manifest, walked: &Manifest) {
    let differences = without_flags(expected).diff_strict(walked);
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

#[test]
fn every_image_reads_back_as_the_kernel_read_it() {
    for name in golden::names() {
        let golden = Golden::load(&name);
        assert_same(&name, &golden.manifest, &read_whole(&open(&golden), &name));
    }
}

#[test]
fn odd_pieces_and_a_tiny_node_cache_read_the_same() {
    for name in ["single", "raid5", "zstd-levels", "deep-tree"] {
        let golden = Golden::load(name);
        let mut options = top_level();
        options.pool.cache_bytes = 0;
        let filesystem = Filesystem::open(devices(&golden), &options).expect("open");
        let walk = Walk::of(&filesystem, Limits { piece: 5003, ..Limits::NONE });
        assert_same(name, &golden.manifest, &walk.expect_whole(name));
    }
}

#[test]
fn devices_in_any_order_make_the_same_pool() {
    for name in ["raid10", "raid6-wide", "seed", "removed-device"] {
        let golden = Golden::load(name);
        let mut devices = devices(&golden);
        devices.reverse();
        let filesystem =
            Filesystem::open(devices, &top_level()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(name, &golden.manifest, &read_whole(&filesystem, name));
    }
}

#[test]
fn space_is_what_the_kernel_says() {
    let mut wrong = Vec::new();
    for name in golden::names() {
        let golden = Golden::load(&name);
        let space = open(&golden).space().expect("space");
        let block = u64::from(space.block_size);
        let ours =
            [block, space.total_bytes / block, space.free_bytes / block, space.available_bytes / block];
        let theirs =
            ["f_bsize", "f_blocks", "f_bfree", "f_bavail"].map(|name| golden.about.number(name).unwrap_or(0));
        if ours != theirs {
            wrong.push(format!("{name}: ours {ours:?}, the kernel's {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_default_subvolume_is_entered_unless_told_otherwise() {
    let golden = Golden::load("default-subvolume");
    let filesystem = Filesystem::open(devices(&golden), &OpenOptions::default()).expect("open");
    let expected = golden.about.number("default-subvolume").expect("is recorded");
    assert_eq!(filesystem.root().tree.get(), expected);
}

/// Every set of `count` of the numbers below `of`.
pub(crate) fn subsets(of: usize, count: usize) -> Vec<Vec<usize>> {
    let all = 0u32..1 << of;
    all.filter(|set| set.count_ones() as usize == count)
        .map(|set| (0..of).filter(|bit| set >> bit & 1 != 0).collect())
        .collect()
}

pub(crate) fn degraded() -> OpenOptions {
    let mut options = top_level();
    options.pool.volume.degraded = true;
    options
}

#[test]
fn every_tolerated_loss_of_devices_reads_the_same() {
    let pools = [
        ("raid1", 1),
        ("raid1c3", 2),
        ("raid1c4", 3),
        ("raid10", 1),
        ("raid5", 1),
        ("raid5-wide", 1),
        ("raid6", 2),
        ("raid6-wide", 2),
        ("removed-device", 1),
    ];
    for (name, tolerated) in pools {
        let golden = Golden::load(name);
        let all = devices(&golden);
        for lost in (1..=tolerated).flat_map(|count| subsets(all.len(), count)) {
            let mut left = all.clone();
            let mut index = 0;
            left.retain(|_| (index += 1, !lost.contains(&(index - 1))).1);
            let refusal =
                Filesystem::open(left.clone(), &top_level()).expect_err("something is missing").to_string();
            assert!(refusal.contains("-o degraded"), "{name} without {lost:?}: {refusal}");
            let filesystem = Filesystem::open(left, &degraded())
                .unwrap_or_else(|error| panic!("{name} without {lost:?}: {error}"));
            assert_same(name, &golden.manifest, &read_whole(&filesystem, name));
        }
    }
}

#[test]
fn data_that_is_lost_is_an_error_and_the_rest_reads_the_same() {
    let golden = Golden::load("raid1-metadata-raid0-data");
    let all = devices(&golden);
    for lost in 0..all.len() {
        let mut left = all.clone();
        left.remove(lost);
        let filesystem = Filesystem::open(left, &degraded()).expect("metadata is whole");
        let devid = format!("devid {} (missing)", golden.devices[lost].devid());
        let walk = Walk::of(&filesystem, Limits::NONE);
        for trouble in &walk.troubles {
            assert!(trouble.to_string().contains(&devid), "{trouble}");
        }
        let is_whole = |entry: &&Entry| walk.troubles.iter().all(|trouble| trouble.path != entry.path);
        let expected: Manifest = golden.manifest.entries().filter(is_whole).cloned().collect();
        let found: Manifest = walk.manifest.entries().filter(is_whole).cloned().collect();
        assert!(!walk.troubles.is_empty() && !expected.is_empty());
        assert_same("raid1-metadata-raid0-data", &expected, &found);
    }
}

#[test]
fn a_loss_that_is_too_much_is_refused_by_the_missing_devids() {
    for (name, lost) in [("raid0", 1), ("raid1", 2), ("raid5", 2), ("raid6", 3)] {
        let golden = Golden::load(name);
        let left = devices(&golden).split_off(lost);
        if left.is_empty() {
            continue;
        }
        let refusal = Filesystem::open(left, &degraded()).expect_err("too much is missing").to_string();
        for device in &golden.devices[..lost] {
            assert!(refusal.contains(&format!("devid {}", device.devid())), "{name}: {refusal}");
        }
    }
}
