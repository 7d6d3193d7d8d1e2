//! Names, one by one: which of them stand in one place and not in another.
//!
//! A name stands in three: a `DIR_ITEM` and a `DIR_INDEX` of the directory, and an `INODE_REF` or
//! `INODE_EXTREF` of the inode. The tree is walked twice: first for sums in many buckets, then for the names
//! in the buckets that are not zero.

use crate::Finding;
use crate::fingerprint::{Domain, Sum, add, bucket, hash, hash_name, take};
use crate::ledger::Ledger;
use crate::page;
use crate::read::Reader;
use crate::roots::Tree;
use brindle_ondisk::item::FileType;
use brindle_ondisk::{Item, Key, KeyPtr, KeyType, Node, NodeExpectation, ObjectId, RootId};
use std::collections::BTreeMap;

const BUCKETS: usize = 1 << 16;
/// No more names than this are kept.
const NAMES_MAX: usize = 1 << 17;

/// One place where a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameSource {
    Item,
    Index,
    Inode,
}

/// A name in a place.
struct Name<'a> {
    place: NameSource,
    directory: u64,
    name: &'a [u8],
    /// Key that it names; `DIR_ITEM` does not know the index.
    inode: Key,
    index: u64,
    kind: u64,
}

/// Entries of a name, in each of the places.
#[derive(Clone, Debug, Default)]
struct NameSources {
    item: Vec<(Key, u64)>,
    index: Vec<(Key, u64, u64)>,
    inode: Vec<(Key, u64, u64)>,
}

/// Names what is wrong with the names of a tree.
pub(crate) fn look_into(tree: &Tree, reader: &Reader<'_>, ledger: &Ledger) {
    let mut sums: Vec<[Sum; 2]> = vec![[0; 2]; BUCKETS];
    each_name(tree, reader, &mut |name| name.count(&mut sums[name.bucket()]));
    let wanted: Vec<bool> = sums.into_iter().map(|sums| sums != [0; 2]).collect();
    let mut found: BTreeMap<(u64, Vec<u8>), NameSources> = BTreeMap::new();
    let mut is_full = false;
    each_name(tree, reader, &mut |name| {
        if !wanted[name.bucket()] {
            return;
        }
        if found.len() >= NAMES_MAX {
            is_full = true;
            return;
        }
        let entry = found.entry((name.directory, name.name.to_vec())).or_default();
        match name.place {
            NameSource::Item => entry.item.push((name.inode, name.kind)),
            NameSource::Index => entry.index.push((name.inode, name.index, name.kind)),
            NameSource::Inode => entry.inode.push((name.inode, name.index, name.kind)),
        }
    });
    let mut count = 0;
    for ((directory, name), found) in &found {
        if let Some((problem, inode, index)) = found.problem() {
            count += 1;
            let finding = Finding::Name {
                tree: tree.id,
                directory: ObjectId::new(*directory),
                name: name.escape_ascii().to_string(),
                inode,
                index,
                problem,
            };
            ledger.report(page::FILES, finding);
        }
    }
    if count == 0 || is_full {
        ledger.report(page::FILES, Finding::Names { tree: tree.id });
    }
}

impl NameSources {
    fn problem(&self) -> Option<(&'static str, ObjectId, u64)> {
        let say = |problem, key: Key, index| Some((problem, key.objectid, index));
        match (self.item.as_slice(), self.index.as_slice(), self.inode.as_slice()) {
            ([], [(key, index, _), ..], _) => say("has no DIR_ITEM", *key, *index),
            ([(key, _), ..], [], _) => say("has no DIR_INDEX", *key, 0),
            ([], [], [(key, index, _), ..]) => say("the directory has no such entry", *key, *index),
            ([(key, kind)], [(other, index, other_kind)], _) if (key, kind) != (other, other_kind) => {
                say("DIR_ITEM and DIR_INDEX stand for different things", *key, *index)
            }
            ([(key, _)], [(_, index, _)], []) if key.item_type == KeyType::INODE_ITEM => {
                say("the inode has no such name", *key, *index)
            }
            ([(key, kind)], [(_, index, _)], [(other, other_index, other_kind)]) => {
                if key != other {
                    say("another inode has this name", *key, *index)
                } else if index != other_index {
                    say("the inode has another index for it", *key, *index)
                } else if kind != other_kind {
                    say("the inode is of another type", *key, *index)
                } else {
                    None
                }
            }
            ([(key, _), ..], [(_, index, _), ..], _)
                if self.item.len() > 1 || self.index.len() > 1 || self.inode.len() > 1 =>
            {
                say("stands there more than once", *key, *index)
            }
            _ => None,
        }
    }
}

impl Name<'_> {
    fn bucket(&self) -> usize {
        let sum = hash_name(Domain::Name, &[self.directory], self.name);
        bucket(brindle_ondisk::to_u64(self.name.len()) ^ fold(sum), BUCKETS)
    }

    /// Items and indexes cancel, and so do indexes and inodes.
    fn count(&self, sums: &mut [Sum; 2]) {
        let Key { objectid, item_type, .. } = self.inode;
        let words = [self.directory, objectid.get(), item_type.0.into(), self.kind];
        let entry = hash_name(Domain::Entry, &words, self.name);
        let whole = entry.wrapping_add(hash(Domain::Name, &[self.index, fold(entry)]));
        match self.place {
            NameSource::Item => add(&mut sums[0], entry, 1),
            NameSource::Index => {
                take(&mut sums[0], entry, 1);
                if item_type == KeyType::INODE_ITEM {
                    take(&mut sums[1], whole, 1);
                }
            }
            NameSource::Inode => add(&mut sums[1], whole, 1),
        }
    }
}

/// Every name of a tree, in each place.
fn each_name(tree: &Tree, reader: &Reader<'_>, found: &mut dyn FnMut(&Name<'_>)) {
    let mut walk = NameWalk { reader, mode: (0, 0), found };
    walk.below(&tree.root);
}

struct NameWalk<'a, 'b> {
    reader: &'a Reader<'a>,
    /// The last inode item that was met, and its mode.
    mode: (u64, u32),
    found: &'b mut dyn FnMut(&Name<'_>),
}

impl NameWalk<'_, '_> {
    fn below(&mut self, expected: &NodeExpectation) {
        let Some(node) = self.reader.again(expected) else { return };
        if node.is_leaf() {
            return self.leaf(&node);
        }
        let size = self.reader.context.nodesize.into();
        for (slot, pointer) in node.key_ptrs().iter().enumerate() {
            if slot % 16 == 0 {
                let next: &[KeyPtr] = node.key_ptrs().get(slot..).unwrap_or_default();
                for next in next.iter().take(32) {
                    self.reader.volume.prefetch(next.blockptr, size);
                }
            }
            self.below(&NodeExpectation::child(pointer, node.level()));
        }
    }

    fn leaf(&mut self, leaf: &Node) {
        for slot in 0..leaf.len() {
            let Some((key, data)) = leaf.item(slot) else { continue };
            let Ok(item) = Item::parse(&key, data) else { continue };
            match item {
                Item::Inode(inode) => self.mode = (key.objectid.get(), inode.mode.get()),
                Item::InodeRef(names) => names.flatten().for_each(|name| {
                    self.inode_name(&key, key.offset(), name.index, name.name);
                }),
                Item::InodeExtref(names) => names.flatten().for_each(|name| {
                    self.inode_name(&key, name.parent.get(), name.index, name.name);
                }),
                Item::DirItem(entries) => self.entries(NameSource::Item, &key, entries),
                Item::DirIndex(entries) => self.entries(NameSource::Index, &key, entries),
                _ => {}
            }
        }
    }

    fn entries(&mut self, place: NameSource, key: &Key, entries: brindle_ondisk::item::DirEntries<'_>) {
        for entry in entries.flatten() {
            (self.found)(&Name {
                place,
                directory: key.objectid.get(),
                name: entry.name,
                inode: entry.header.location,
                index: if place == NameSource::Index { key.offset() } else { 0 },
                kind: entry.file_type().map_or(0, |kind| u64::from(kind as u8)),
            });
        }
    }

    fn inode_name(&mut self, key: &Key, directory: u64, index: u64, name: &[u8]) {
        let inode = key.objectid;
        if directory == inode.get() && name == b".." {
            return;
        }
        let mode = if self.mode.0 == inode.get() { self.mode.1 } else { 0 };
        (self.found)(&Name {
            place: NameSource::Inode,
            directory,
            name,
            inode: Key::new(inode, KeyType::INODE_ITEM, 0),
            index,
            kind: FileType::from_mode(mode).map_or(0, |kind| u64::from(kind as u8)),
        });
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
fn fold(sum: Sum) -> u64 {
    sum as u64 ^ (sum >> 64) as u64
}

/// Returns true if a directory of a tree has an entry, in both places: a subvolume's name.
pub(crate) fn has_entry(
    tree: &Tree,
    reader: &Reader<'_>,
    directory: ObjectId,
    (index, name): (u64, &[u8]),
    child: RootId,
) -> bool {
    let keys = [
        Key::new(directory, KeyType::DIR_ITEM, brindle_ondisk::name_hash(name)),
        Key::new(directory, KeyType::DIR_INDEX, index),
    ];
    keys.iter().all(|key| {
        let Some(leaf) = reader.leaf_of(&tree.root, key) else { return true };
        let Some((key, data)) = leaf.search(key).ok().and_then(|slot| leaf.item(slot)) else { return false };
        match Item::parse(&key, data) {
            Ok(Item::DirItem(mut entries) | Item::DirIndex(mut entries)) => entries.any(|entry| {
                entry.is_ok_and(|entry| {
                    let location = entry.header.location;
                    entry.name == name
                        && location.item_type == KeyType::ROOT_ITEM
                        && location.objectid.get() == child.get()
                })
            }),
            _ => false,
        }
    })
}
