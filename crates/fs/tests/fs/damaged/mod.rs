//! Damaged pools: what is damaged is refused in words that say where, what and why; what is not reads as it
//! was; nothing panics, hangs, or reads wrong.

mod data;
mod files;
mod random;
mod rescue;
mod superblock;
mod trees;

use crate::bounds::within;
use crate::golden::{top_level, without_flags};
use crate::walk::{Limits, Walk, Why};
use brindle_fs::{Filesystem, FsError, OpenOptions};
use brindle_ondisk::item::{FileExtent, FileExtentRef};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId};
use brindle_testing::damage::{LeafItem, Victim};
use brindle_testing::golden::Golden;
use brindle_testing::manifest::{Entry, Kind, Manifest};

/// The flag, as `FS_IOC_GETFLAGS` shows it, of a file without checksums.
const FLAG_NODATACOW: u32 = 0x0080_0000;

/// One kind of damage, and what must come of it.
struct Case {
    /// Name of the damage.
    name: &'static str,
    /// Golden image.
    image: &'static str,
    damage: fn(&mut Victim),
    outcome: Outcome,
}

/// Expected result of damage. Every fragment must stand in one message or another.
#[derive(Clone, Copy)]
enum Outcome {
    /// The pool is not opened.
    Refused(&'static [&'static str]),
    /// The pool is opened; something in it can't be read, and all the rest reads as before.
    Fails(&'static [&'static str]),
    /// Everything reads as it was. The fragments are of warnings.
    Survives(&'static [&'static str]),
}

fn run(cases: &[Case]) {
    for Case { name, image, damage, outcome } in cases {
        let mut victim = Victim::load(image);
        damage(&mut victim);
        let (name, outcome) = (format!("{name} ({image})"), *outcome);
        let golden = Golden::load(image);
        within(&name.clone(), move || check(&name, &golden.manifest, &victim, outcome));
    }
}

fn check(name: &str, expected: &Manifest, victim: &Victim, outcome: Outcome) {
    let opened = open(victim, &top_level());
    let (said, wanted) = match (opened, outcome) {
        (Err(error), Outcome::Refused(wanted)) => (error.to_string(), wanted),
        (Err(error), _) => panic!("{name}: {error}"),
        (Ok(_), Outcome::Refused(_)) => panic!("{name}: is opened"),
        (Ok(filesystem), Outcome::Survives(wanted)) => {
            let walk = Walk::of(&filesystem, Limits::NONE);
            assert_never_wrong(name, expected, &walk);
            walk.expect_whole(name);
            (filesystem.warnings().join("\n"), wanted)
        }
        (Ok(filesystem), Outcome::Fails(wanted)) => {
            let walk = Walk::of(&filesystem, Limits { bytes: 1 << 30, entries: 10_000, ..Limits::NONE });
            assert_never_wrong(name, expected, &walk);
            let mut said: Vec<String> = walk.troubles.iter().map(ToString::to_string).collect();
            said.extend(filesystem.subvolumes().err().map(|error| error.to_string()));
            said.extend(filesystem.space().err().map(|error| error.to_string()));
            (said.join("\n"), wanted)
        }
    };
    assert!(said.len() < 100_000, "{name}: says too much");
    for wanted in wanted {
        assert!(said.contains(wanted), "{name}: no {wanted:?} in:\n{said}");
    }
}

fn open(victim: &Victim, options: &OpenOptions) -> Result<Filesystem, FsError> {
    Filesystem::open(victim.devices(), options)
}

/// Asserts that everything read is right, and nothing is left out without an error.
fn assert_never_wrong(name: &str, expected: &Manifest, walk: &Walk) {
    for trouble in &walk.troubles {
        assert!(!matches!(trouble.why, Why::Disagrees(_)), "{name}: {trouble}");
    }
    let has_trouble = |path: &[u8]| {
        walk.troubles.iter().any(|trouble| {
            let below = path.strip_prefix(&trouble.path[..]);
            below.is_some_and(|rest| rest.is_empty() || trouble.path.is_empty() || rest[0] == b'/')
        })
    };
    let comparable = |entry: &Entry| {
        let unchecked = expected.entry(&entry.path).and_then(|entry| entry.flags).unwrap_or(0);
        let mut entry = entry.clone();
        if unchecked & FLAG_NODATACOW != 0 {
            entry.kind = Kind::file_of(b"has no checksums");
        }
        // The first of several names may be among those that can't be read.
        entry.same_as = None;
        entry
    };
    let readable = without_flags(expected);
    let readable: Manifest = readable
        .entries()
        .filter(|entry| walk.manifest.entry(&entry.path).is_some() || !has_trouble(&entry.path))
        .map(comparable)
        .collect();
    let read: Manifest = walk.manifest.entries().map(comparable).collect();
    let differences = readable.diff_strict(&read);
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

/// The key of an item of the file at a path of the top level.
fn key_of(image: &str, path: &str, item_type: KeyType, offset: u64) -> Key {
    let golden = Golden::load(image);
    let entry = golden.manifest.entry(path.as_bytes()).unwrap_or_else(|| panic!("{image} has no {path}"));
    Key::new(ObjectId::new(entry.ino.expect("manifests have inode numbers")), item_type, offset)
}

/// The file extents of a file of the top level.
fn extents_of(victim: &Victim, image: &str, path: &str) -> Vec<LeafItem> {
    let inode = key_of(image, path, KeyType::EXTENT_DATA, 0).objectid;
    let is_extent =
        |item: &LeafItem| (item.key.objectid, item.key.item_type) == (inode, KeyType::EXTENT_DATA);
    let leaves = victim.leaves(RootId::FS_TREE).flat_map(|leaf| victim.leaf_items(leaf.at));
    leaves.filter(is_extent).collect()
}

/// The first extent of a file that lies on disk.
fn disk_extent(victim: &Victim, image: &str, path: &str) -> (Key, FileExtentRef) {
    let extents = extents_of(victim, image, path);
    let found = extents.iter().find_map(|item| match Item::parse(&item.key, &item.data) {
        Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) if extent.disk_bytenr.get() != 0 => {
            Some((item.key, *extent))
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{image}: {path} has no extent on disk"))
}
