//! Trees, walked without a map: a pointer's block is found by its address and generation.

use super::members::Members;
use super::proved::ProvedChunk;
use super::scan::Scan;
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{
    Generation, Item, Key, KeyType, Logical, Node, NodeExpectation, RootId, TreeContext, to_usize,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Blocks that are kept in memory.
const KEPT_MAX: usize = 2048;

/// Reader of tree blocks.
pub(crate) struct Blocks<'a> {
    members: &'a Members,
    scan: &'a Scan,
    context: &'a TreeContext,
    /// Chunks that are proved by now.
    chunks: &'a BTreeMap<Logical, ProvedChunk>,
    kept: RefCell<HashMap<(u64, u64), Rc<Node>>>,
}

/// Items of a range of a tree.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) items: Vec<(Key, Vec<u8>)>,
    /// Blocks that could not be read.
    pub(crate) lost: Vec<String>,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(
        members: &'a Members,
        scan: &'a Scan,
        context: &'a TreeContext,
        chunks: &'a BTreeMap<Logical, ProvedChunk>,
    ) -> Self {
        Self { members, scan, context, chunks, kept: RefCell::default() }
    }

    /// A block; the error names it.
    pub(crate) fn read(&self, expected: &NodeExpectation) -> Result<Rc<Node>, String> {
        let generation = expected.generation.map_or(0, Generation::get);
        let name = (expected.bytenr.get(), generation);
        if let Some(node) = self.kept.borrow().get(&name) {
            return Ok(Rc::clone(node));
        }
        let sighted = self.scan.within(expected.bytenr, 1).iter();
        let of_generation = sighted.filter(|sighting| sighting.generation.get() == generation);
        let places = of_generation.map(|sighting| (sighting.device, sighting.physical));
        let mut found = places.into_iter().find_map(|place| self.read_at(place, expected));
        if found.is_none() {
            found =
                self.places_of(expected.bytenr).into_iter().find_map(|place| self.read_at(place, expected));
        }
        let Some(node) = found.map(Rc::new) else {
            let (at, generation) = name;
            return Err(format!("the tree block at logical {at}, generation {generation}, is on no device"));
        };
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(name, Rc::clone(&node));
        Ok(node)
    }

    fn read_at(&self, (device, physical): (usize, u64), expected: &NodeExpectation) -> Option<Node> {
        let mut bytes = vec![0; to_usize(self.context.nodesize.into())];
        self.members.devices.get(device)?.read_at(physical, &mut bytes).ok()?;
        Node::check(bytes.into(), self.context, expected).ok()
    }

    /// Places of an address by chunks that are proved.
    fn places_of(&self, at: Logical) -> Vec<(usize, u64)> {
        let chunk = self.chunks.range(..=at).next_back();
        let Some((start, chunk)) = chunk.filter(|(start, chunk)| at.get() - start.get() < chunk.length())
        else {
            return Vec::new();
        };
        chunk.places(self.members, at.get() - start.get())
    }

    /// Items of a range of a tree, as far as they can be read.
    pub(crate) fn items(&self, root: &NodeExpectation, range: &RangeInclusive<Key>) -> Items {
        let mut items = Items::default();
        self.visit(root, range, &mut items.lost, &mut |key, data| {
            items.items.push((*key, data.to_vec()));
            true
        });
        items
    }

    /// The first item from a key on.
    pub(crate) fn first_from(&self, root: &NodeExpectation, from: Key) -> Result<Option<Key>, String> {
        let (mut lost, mut first) = (Vec::new(), None);
        self.visit(root, &(from..=Key::MAX), &mut lost, &mut |key, _| {
            first = Some(*key);
            false
        });
        match lost.into_iter().next() {
            Some(lost) => Err(lost),
            None => Ok(first),
        }
    }

    /// Visits items of a range until the visitor has enough; returns false then.
    pub(crate) fn visit(
        &self,
        root: &NodeExpectation,
        range: &RangeInclusive<Key>,
        lost: &mut Vec<String>,
        visitor: &mut dyn FnMut(&Key, &[u8]) -> bool,
    ) -> bool {
        let node = match self.read(root) {
            Ok(node) => node,
            Err(error) => {
                lost.push(error);
                return true;
            }
        };
        if node.is_leaf() {
            let items = (0..node.len()).filter_map(|slot| node.item(slot));
            let mut within = items.filter(|(key, _)| range.contains(key));
            return within.all(|(key, data)| visitor(&key, data));
        }
        let children = node.key_ptrs();
        // The child before the first key that lies behind the beginning may have it.
        let first = children.partition_point(|child| child.key <= *range.start()).saturating_sub(1);
        let within = children.iter().skip(first).take_while(|child| child.key <= *range.end());
        for child in within {
            if !self.visit(&NodeExpectation::child(child, node.level()), range, lost, visitor) {
                return false;
            }
        }
        true
    }

    /// The root of a tree, by its item in the tree of roots.
    pub(crate) fn root_of(&self, tree: RootId) -> Result<Option<NodeExpectation>, String> {
        let superblock = &self.members.superblock;
        let roots = NodeExpectation::root(superblock.root, superblock.generation, superblock.root_level);
        let of_tree = Key::first_of(tree.object_id(), KeyType::ROOT_ITEM)
            ..=Key::last_of(tree.object_id(), KeyType::ROOT_ITEM);
        let items = self.items(&roots, &of_tree);
        if let Some(lost) = items.lost.into_iter().next() {
            return Err(lost);
        }
        let root = |(key, data): &(Key, Vec<u8>)| match Item::parse(key, data) {
            Ok(Item::Root(item)) => Some(expectation(&item)),
            _ => None,
        };
        Ok(items.items.iter().find_map(root))
    }
}

fn expectation(item: &RootItem) -> NodeExpectation {
    NodeExpectation::root(item.bytenr, item.generation, item.level)
}
