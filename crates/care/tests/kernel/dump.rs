//! Output of mkfs, side by side with that of mkfs.btrfs for the same options. The differences that remain
//! are explained in `src/mkfs/trees.rs`.

use super::host::{LoopPool, can_mount, dump_tree, options, run};
use crate::support::MIB;
use brindle_care::mkfs::{Features, MkfsOptions};
use brindle_device::FileDevice;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The first superblock, as dump-super prints it.
pub(crate) fn superblock(device: &Path) -> String {
    run(Command::new("btrfs").args(["inspect-internal", "dump-super"]).arg(device))
}

/// Device type in the superblock.
pub(crate) fn dev_item_type(device: &Path) -> String {
    field(&superblock(device), "dev_item.type")
}

fn field(dump: &str, name: &str) -> String {
    let line = dump.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with('\t')));
    line.unwrap_or_else(|| panic!("no {name} in {dump}")).trim().to_owned()
}

/// The keys of all trees but the free space tree: the tree's name, then the key, addresses and sizes left out.
fn keys(dump: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut tree = "";
    for line in dump.lines() {
        if let Some((_, owner)) = line.split_once(" owner ") {
            tree = owner.split_whitespace().next().unwrap_or_default();
        }
        let Some((_, key)) = line.split_once(" key (").filter(|_| line.starts_with("\titem ")) else {
            continue;
        };
        let key = key.split(')').next().unwrap_or_default();
        let part = |part: &str| match part.parse::<u64>() {
            Ok(number) if (1 << 20..u64::MAX / 2).contains(&number) && !key.contains("DIR_ITEM") => {
                "*".to_owned()
            }
            _ if part.starts_with("0x") => "*".to_owned(),
            _ => part.to_owned(),
        };
        let key: Vec<String> = key.split(' ').map(part).collect();
        if tree != "FREE_SPACE_TREE" {
            keys.insert(format!("{tree}: {}", key.join(" ")));
        }
    }
    keys
}

/// Lines about inodes, directories and names that do not depend on addresses or times.
fn file_lines(dump: &str) -> BTreeSet<String> {
    let names = ["name:", "mode ", "location key", "subvol_id", "refs 1 ", "tree block backref root"];
    let lines = dump.lines().map(str::trim).filter(|line| names.iter().any(|name| line.contains(name)));
    lines.map(|line| line.replace("gen 5", "gen 1").replace("gen 6", "gen 1")).collect()
}

fn compare(what: &str, words: &[&str], sizes: &[u64], options: &MkfsOptions) {
    let ours = LoopPool::make(sizes, options);
    let theirs: Vec<_> = (0..sizes.len()).map(|index| ours.beside(&format!("theirs{index}.img"))).collect();
    for (path, size) in theirs.iter().zip(sizes) {
        FileDevice::create(path, *size).expect("room, sparsely");
    }
    run(Command::new("mkfs.btrfs").arg("-q").args(words).args(&theirs));
    let (our_super, their_super) = (superblock(&ours.images[0]), superblock(&theirs[0]));
    for name in [
        "csum_type",
        "flags",
        "label",
        "root_level",
        "chunk_root_level",
        "log_root",
        "total_bytes",
        "sectorsize",
        "nodesize",
        "leafsize (deprecated)",
        "stripesize",
        "root_dir",
        "num_devices",
        "compat_flags",
        "compat_ro_flags",
        "incompat_flags",
        "cache_generation",
        "dev_item.type",
        "dev_item.total_bytes",
        "dev_item.io_align",
        "dev_item.io_width",
        "dev_item.sector_size",
        "dev_item.devid",
        "dev_item.dev_group",
        "dev_item.seek_speed",
        "dev_item.bandwidth",
        "dev_item.generation",
        "sys_array_size",
        "bytes_used",
    ] {
        assert_eq!(field(&our_super, name), field(&their_super, name), "{what}: {name}");
    }
    let (our_dump, their_dump) = (dump_tree(&ours.images[0]), dump_tree(&theirs[0]));
    assert_eq!(keys(&our_dump), keys(&their_dump), "{what}");
    assert_eq!(file_lines(&our_dump), file_lines(&their_dump), "{what}");
}

#[test]
fn trees_have_the_items_that_mkfs_btrfs_gives_them() {
    if !can_mount() {
        return;
    }
    let mut options = options();
    options.features = Features::default().with_list("^block-group-tree").expect("known words");
    compare("default", &[], &[512 * MIB], &options);
    options.label = "a label".to_owned();
    options.nodesize = Some(32768);
    compare("label, nodesize", &["-L", "a label", "-n", "32k"], &[512 * MIB], &options);
    options.label.clear();
    options.nodesize = None;
    options.features = options.features.with_list("^skinny-metadata,^free-space-tree").expect("known words");
    let words = ["-O", "^skinny-metadata", "-R", "^free-space-tree"];
    compare("older", &words, &[512 * MIB], &options);
}
