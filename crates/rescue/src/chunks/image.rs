//! The blocks of a chunk tree.

use brindle_ondisk::{
    Generation, Key, KeyPtr, Logical, Node, NodeExpectation, NodeHeader, TreeContext, to_usize,
};
use std::ops::Range;

/// Addresses of the blocks of a tree, by level, in the order of their keys; the last level is the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses(pub(crate) Vec<Vec<Logical>>);

/// A tree.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its blocks, ready to be written.
    pub(crate) blocks: Vec<Node>,
    pub(crate) root: Logical,
    pub(crate) level: u8,
}

impl Addresses {
    /// The addresses of the blocks of an old tree: pairs of address and level.
    ///
    /// # Errors
    /// Blocks that are no tree with this root.
    pub(crate) fn of_old(blocks: &[(Logical, u8)], root: Logical, root_level: u8) -> Result<Self, String> {
        let mut levels = vec![Vec::new(); usize::from(root_level) + 1];
        for (at, level) in blocks {
            let level = levels.get_mut(usize::from(*level));
            level.ok_or_else(|| format!("the block at logical {at} is above the root"))?.push(*at);
        }
        levels.iter_mut().for_each(|level| level.sort_unstable());
        if levels.last().is_none_or(|last| last[..] != [root]) || levels.iter().any(Vec::is_empty) {
            return Err("extents of the chunk tree do not make a tree with the superblock's root".to_owned());
        }
        Ok(Self(levels))
    }

    /// Addresses for as few blocks as items need, from a list of free places.
    pub(crate) fn packed(
        items: &[(Key, Vec<u8>)],
        nodesize: u32,
        mut free: impl Iterator<Item = Logical>,
    ) -> Option<Self> {
        let mut count = filled(items, capacity(nodesize), None).len();
        let mut levels = Vec::new();
        loop {
            let level: Vec<Logical> = free.by_ref().take(count).collect();
            if level.len() < count || levels.len() > usize::from(brindle_ondisk::MAX_LEVEL) {
                return None;
            }
            levels.push(level);
            if count == 1 {
                return Some(Self(levels));
            }
            count = count.div_ceil(pointers_max(nodesize));
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Logical> {
        self.0.iter().flatten().copied()
    }
}

impl Image {
    /// Makes a tree of items, which are in order. Each address gets a block, and each block something.
    ///
    /// # Errors
    /// Items that are too many or too few for the blocks, or nonsense.
    pub(crate) fn make(
        items: &[(Key, Vec<u8>)],
        addresses: &Addresses,
        header: &NodeHeader,
        generation: impl Fn(Logical) -> Generation,
        context: &TreeContext,
    ) -> Result<Self, String> {
        let header_at =
            |bytenr, level| NodeHeader { bytenr, level, generation: generation(bytenr), ..*header };
        let [leaves, above @ ..] = &addresses.0[..] else { return Err("a tree has a root".to_owned()) };
        let misfit = || format!("{} items do not fill {} blocks", items.len(), leaves.len());
        let parts = filled(items, capacity(context.nodesize), Some(leaves.len()));
        if parts.len() != leaves.len() || parts.iter().any(Range::is_empty) {
            return Err(misfit());
        }
        let mut blocks = Vec::new();
        let mut below = Vec::new();
        for (at, part) in leaves.iter().zip(parts) {
            let mut leaf = Node::empty(context.nodesize, &header_at(*at, 0));
            let part: Vec<(Key, &[u8])> = items[part].iter().map(|(key, data)| (*key, &data[..])).collect();
            leaf.insert_items(0, &part);
            below.push(finish(leaf, &mut blocks, context)?);
        }
        for (level, nodes) in above.iter().enumerate() {
            let level = u8::try_from(level + 1).map_err(|_| misfit())?;
            let parts = even(below.len(), nodes.len());
            if parts.iter().any(|part| part.is_empty() || part.len() > pointers_max(context.nodesize)) {
                return Err(misfit());
            }
            let mut next = Vec::new();
            for (at, part) in nodes.iter().zip(parts) {
                let mut node = Node::empty(context.nodesize, &header_at(*at, level));
                node.insert_pointers(0, &below[part]);
                next.push(finish(node, &mut blocks, context)?);
            }
            below = next;
        }
        let root = below.first().map(|pointer| pointer.blockptr).ok_or_else(misfit)?;
        let level = u8::try_from(above.len()).map_err(|_| misfit())?;
        Ok(Self { blocks, root, level })
    }
}

/// Seals a block, sees whether the gate lets it pass, and returns the pointer to it.
fn finish(mut node: Node, blocks: &mut Vec<Node>, context: &TreeContext) -> Result<KeyPtr, String> {
    node.seal(context);
    let header = *node.header();
    let generation = header.generation;
    let expected = NodeExpectation::root(header.bytenr, generation, header.level);
    node.verify(context, &expected).map_err(|corrupt| corrupt.to_string())?;
    let key = node.key(0).ok_or("a block is empty")?;
    blocks.push(node);
    Ok(KeyPtr { key, blockptr: header.bytenr, generation })
}

fn capacity(nodesize: u32) -> usize {
    to_usize(nodesize.into()) - size_of::<NodeHeader>()
}

fn pointers_max(nodesize: u32) -> usize {
    capacity(nodesize) / Node::POINTER_SPACE
}

/// Parts of items that fit a leaf each: as few as can be, or a number of them that are about as full as each other where that
/// goes.
fn filled(items: &[(Key, Vec<u8>)], capacity: usize, count: Option<usize>) -> Vec<Range<usize>> {
    let spaces: Vec<usize> = items.iter().map(|(_, data)| Node::item_space(data.len())).collect();
    let total: usize = spaces.iter().sum();
    let level = count.map_or(capacity, |count| total.div_ceil(count.max(1)).min(capacity));
    let parts = parts_of(&spaces, level, capacity, count);
    match count {
        // Rounding may have left too much for the last one.
        Some(count) if parts.len() != count => parts_of(&spaces, capacity, capacity, Some(count)),
        _ => parts,
    }
}

fn parts_of(spaces: &[usize], level: usize, capacity: usize, count: Option<usize>) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let (mut start, mut space) = (0, 0);
    for (index, next) in spaces.iter().enumerate() {
        let is_last = count.is_some_and(|count| parts.len() + 1 == count);
        let left = spaces.len() - index;
        let must_end = count.is_some_and(|count| !is_last && left < count.saturating_sub(parts.len()));
        let is_full = space + next > if is_last { capacity } else { level.min(capacity) };
        if index > start && (must_end || is_full) {
            parts.push(start..index);
            (start, space) = (index, 0);
        }
        space += next;
    }
    parts.push(start..spaces.len());
    parts
}

/// Parts of about the same length.
fn even(length: usize, count: usize) -> Vec<Range<usize>> {
    (0..count).map(|part| length * part / count..length * (part + 1) / count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{KeyType, ObjectId};

    fn items(count: u64, size: usize) -> Vec<(Key, Vec<u8>)> {
        (0..count).map(|at| (Key::new(ObjectId::new(at), KeyType(1), 0), vec![0; size])).collect()
    }

    #[test]
    fn items_fill_any_number_of_leaves_that_has_room_for_them() {
        for (number, size) in [(1, 80), (7, 80), (100, 80), (101, 81), (1000, 112)] {
            let items = items(number, size);
            let least = filled(&items, 4096 - 101, None).len();
            for count in least..=items.len() {
                let parts = filled(&items, 4096 - 101, Some(count));
                assert_eq!(parts.len(), count, "{number} items of {size} bytes");
                assert!(parts.iter().all(|part| !part.is_empty()));
                assert!(parts.iter().all(|part| part.len() * (size + 25) <= 4096 - 101));
                assert_eq!(parts.first().map(|part| part.start), Some(0));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert_eq!(parts.last().map(|part| part.end), Some(items.len()));
            }
        }
    }

    #[test]
    fn blocks_of_an_old_tree_are_taken_if_they_make_a_tree() {
        let at = Logical::new;
        let blocks = [(at(5), 0), (at(3), 0), (at(9), 1)];
        let expected = Addresses(vec![vec![at(3), at(5)], vec![at(9)]]);
        assert_eq!(Addresses::of_old(&blocks, at(9), 1), Ok(expected));
        assert!(Addresses::of_old(&blocks, at(5), 0).is_err());
        assert!(Addresses::of_old(&blocks, at(8), 1).is_err());
        assert!(Addresses::of_old(&blocks[..2], at(9), 1).is_err());
        assert!(Addresses::of_old(&blocks, at(9), 2).is_err());
    }
}
