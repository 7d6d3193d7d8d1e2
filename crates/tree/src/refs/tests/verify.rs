//! The references of a whole pool, counted from its trees, against what the extent tree says of each extent.

use super::super::delayed::Referrer;
use super::super::sharing::data_of;
use crate::pool::Pool;
use crate::root::TreeRoot;
use crate::store::cursor::Readahead;
use brindle_ondisk::item::{BackRef, ExtentFlags};
use brindle_ondisk::{Item, Key, KeyType, Logical, Node, NodeExpectation, ObjectId, RootId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An extent and all that is said of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    length: u64,
    referrers: BTreeMap<Referrer, u64>,
}

/// Walker that counts the references in trees.
struct Walker<'p> {
    pool: &'p Pool,
    full: BTreeSet<Logical>,
    seen: BTreeSet<Logical>,
    found: BTreeMap<Logical, Said>,
}

/// Compares both; the number of extents.
pub(super) fn verify(pool: &Pool) -> usize {
    let (recorded, full) = recorded(pool);
    let mut walker = Walker { pool, full, seen: BTreeSet::new(), found: BTreeMap::new() };
    let superblock = pool.superblock();
    for (root, progress) in roots(pool) {
        let referrer = match root.id {
            RootId::TREE_RELOC => Referrer::SharedTree(root.bytenr),
            id => Referrer::Tree(id),
        };
        walker.refer(root.bytenr, walker.nodesize(), referrer);
        walker.walk(&NodeExpectation::root(root.bytenr, root.generation, root.level), progress);
    }
    assert_eq!(superblock.log_root.get(), 0);
    for (start, said) in &walker.found {
        assert_eq!(recorded.get(start), Some(said), "extent {start} as its referrers have it (right)");
    }
    for start in recorded.keys() {
        assert!(walker.found.contains_key(start), "extent {start} is unused: {:?}", recorded[start]);
    }
    recorded.len()
}

/// Every root, and how far dropping it has come.
fn roots(pool: &Pool) -> Vec<(TreeRoot, Option<(Key, u8)>)> {
    let superblock = pool.superblock();
    let mut roots = vec![(TreeRoot::root_tree(&superblock), None), (TreeRoot::chunk_tree(&superblock), None)];
    let mut cursor = pool.cursor(&pool.tree(RootId::ROOT_TREE).expect("is there"), Readahead::None);
    cursor.seek(&Key::MIN).expect("seek");
    while let Some((key, data)) = cursor.item() {
        if let Ok(Item::Root(item)) = Item::parse(&key, data) {
            // The place of a relocation tree that is being merged is another one.
            let is_merging = key.objectid == ObjectId::TREE_RELOC && item.refs.get() > 0;
            let begun = item.drop_progress.objectid.get() != 0 && !is_merging;
            let progress = begun.then_some((item.drop_progress, item.drop_level));
            roots.push((TreeRoot::from_item(RootId::new(key.objectid.get()), &item), progress));
        }
        cursor.next().expect("next");
    }
    roots
}

/// References in the extent tree, and the blocks that refer to their children under their own name.
fn recorded(pool: &Pool) -> (BTreeMap<Logical, Said>, BTreeSet<Logical>) {
    let nodesize = u64::from(pool.nodesize());
    let (mut extents, mut full) = (BTreeMap::<Logical, Said>::new(), BTreeSet::new());
    let mut totals = BTreeMap::new();
    let mut cursor = pool.cursor(&pool.tree(RootId::EXTENT_TREE).expect("is there"), Readahead::Forward);
    cursor.seek(&Key::MIN).expect("seek");
    let refer = |said: &mut Said, reference: &BackRef| {
        if let Some(who) = Referrer::of(reference) {
            assert!(said.referrers.insert(who, reference.count()).is_none(), "{who:?} twice");
        }
    };
    while let Some((key, data)) = cursor.item() {
        let start = Logical::new(key.objectid.get());
        match Item::parse(&key, data).expect("parses") {
            Item::Extent(item) => {
                let is_skinny = key.item_type == KeyType::METADATA_ITEM;
                let mut said =
                    Said { length: if is_skinny { nodesize } else { key.offset() }, ..Said::default() };
                item.inline_refs.for_each(|reference| refer(&mut said, &reference.expect("parses")));
                if item.flags().contains(ExtentFlags::FULL_BACKREF) {
                    full.insert(start);
                }
                totals.insert(start, item.header.refs.get());
                assert!(extents.insert(start, said).is_none());
            }
            Item::ExtentRef(reference) => {
                refer(extents.get_mut(&start).expect("follows its extent"), &reference);
            }
            _ => {}
        }
        cursor.next().expect("next");
    }
    for (start, said) in &extents {
        assert_eq!(said.referrers.values().sum::<u64>(), totals[start], "references of {start}");
    }
    (extents, full)
}

impl Walker<'_> {
    fn nodesize(&self) -> u64 {
        self.pool.nodesize().into()
    }

    fn refer(&mut self, to: Logical, length: u64, who: Referrer) {
        let said = self.found.entry(to).or_default();
        said.length = length;
        *said.referrers.entry(who).or_default() += 1;
    }

    /// A block and everything below, but what lies before `progress`.
    fn walk(&mut self, expected: &NodeExpectation, progress: Option<(Key, u8)>) {
        if !self.seen.insert(expected.bytenr) {
            assert!(progress.is_none(), "a block on the way of a drop is nobody else's");
            return;
        }
        let node: Arc<Node> = self.pool.read_node(expected).expect("reads");
        let (at, owner) = (node.header().bytenr, node.header().owner);
        let is_full = self.full.contains(&at);
        if node.is_leaf() {
            for (range, objectid, offset) in data_of(&node).expect("parses") {
                let who = Referrer::Data { root: owner, objectid, offset };
                let who = if is_full { Referrer::SharedData(at) } else { who };
                self.refer(range.start, range.length, who);
            }
            return;
        }
        let first = progress.map_or(0, |(key, _)| node.search(&key).unwrap_or_else(|slot| slot - 1));
        for (slot, pointer) in node.key_ptrs().iter().enumerate().skip(first) {
            let who = if is_full { Referrer::SharedTree(at) } else { Referrer::Tree(owner) };
            self.refer(pointer.blockptr, self.nodesize(), who);
            let on_the_way = progress.filter(|(_, level)| slot == first && node.level() > *level);
            self.walk(&NodeExpectation::child(pointer, node.level()), on_the_way);
        }
    }
}
