//! References to extents, from both sides: what the extent tree says, and what is.
//!
//! A block refers to its children and to data either as itself (its extent item has `FULL_BACKREF`: then the
//! back references name the block, they are *shared*) or in the name of the tree in its header. Which of the
//! two, only the extent tree knows, so that has to be read first.

use crate::Reference;
use crate::fingerprint::{Domain, Sum, add, bucket, hash, take};
use brindle_ondisk::item::{BackRef, ExtentFlags, ExtentItem, FileExtent};
use brindle_ondisk::{Item, Key, KeyType, Logical, Node, ObjectId, RootId};

/// Shape of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// Data of this length in bytes.
    Data(u64),
    /// A tree block of this level.
    Block(u8),
}

/// Receiver of both sides.
pub(crate) trait ReferenceSink {
    /// An extent is allocated.
    fn allocated(&mut self, at: u64, shape: Shape, refs: u64);
    /// The extent tree has a back reference.
    fn claimed(&mut self, at: u64, reference: Reference, count: u64);
    /// Something uses an extent.
    fn used(&mut self, at: u64, shape: Shape, reference: Reference);
}

/// Number of sums kept apart.
pub(crate) const BUCKETS: usize = 4096;

/// The difference of both sides, in buckets by address; zero where they agree.
#[derive(Debug)]
pub(crate) struct ReferenceSums(pub(crate) Vec<Sum>);

impl Default for ReferenceSums {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

impl ReferenceSums {
    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, other) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.wrapping_add(*other);
        }
    }
}

impl ReferenceSink for ReferenceSums {
    fn allocated(&mut self, at: u64, shape: Shape, refs: u64) {
        let sum = &mut self.0[bucket(at, BUCKETS)];
        add(sum, shape.hash(at), refs);
        add(sum, hash(Domain::Count, &[at]), refs);
    }

    fn claimed(&mut self, at: u64, reference: Reference, count: u64) {
        let sum = &mut self.0[bucket(at, BUCKETS)];
        add(sum, reference.hash(at), count);
        take(sum, hash(Domain::Count, &[at]), count);
    }

    fn used(&mut self, at: u64, shape: Shape, reference: Reference) {
        let sum = &mut self.0[bucket(at, BUCKETS)];
        take(sum, shape.hash(at), 1);
        take(sum, reference.hash(at), 1);
    }
}

impl Shape {
    fn hash(self, at: u64) -> Sum {
        match self {
            Self::Data(length) => hash(Domain::Shape, &[at, 0, length]),
            Self::Block(level) => hash(Domain::Shape, &[at, 1, level.into()]),
        }
    }
}

impl Reference {
    fn hash(&self, at: u64) -> Sum {
        match self {
            Self::Tree(root) => hash(Domain::Reference, &[at, 0, root.get()]),
            Self::SharedTree(parent) => hash(Domain::Reference, &[at, 1, parent.get()]),
            Self::Data { root, inode, offset } => {
                hash(Domain::Reference, &[at, 2, root.get(), inode.get(), *offset])
            }
            Self::SharedData(parent) => hash(Domain::Reference, &[at, 3, parent.get()]),
        }
    }

    /// Reference of a back reference; `None` for one that counts as no reference.
    fn of(reference: &BackRef) -> Option<Self> {
        Some(match reference {
            BackRef::Tree(root) => Self::Tree(*root),
            BackRef::SharedTree(parent) => Self::SharedTree(*parent),
            BackRef::Data(data) => {
                Self::Data { root: data.root, inode: data.objectid, offset: data.offset.get() }
            }
            BackRef::SharedData { parent, .. } => Self::SharedData(*parent),
            BackRef::Owner(_) => return None,
        })
    }
}

/// Shape in the item of a data or tree block extent.
pub(crate) fn shape_of(key: &Key, extent: &ExtentItem<'_>) -> Shape {
    if extent.flags().contains(ExtentFlags::DATA) {
        return Shape::Data(key.offset());
    }
    match extent.tree_block {
        Some(info) => Shape::Block(info.level),
        None => Shape::Block(u8::try_from(key.offset()).unwrap_or(u8::MAX)),
    }
}

/// An item of the extent tree.
pub(crate) fn from_extent_tree(key: &Key, item: &Item<'_>, sink: &mut dyn ReferenceSink) {
    let at = key.objectid.get();
    match item {
        Item::Extent(extent) => {
            sink.allocated(at, shape_of(key, extent), extent.header.refs.get());
            for reference in extent.inline_refs.flatten() {
                claim(at, &reference, sink);
            }
        }
        Item::ExtentRef(reference) => claim(at, reference, sink),
        _ => {}
    }
}

fn claim(at: u64, reference: &BackRef, sink: &mut dyn ReferenceSink) {
    if let Some(named) = Reference::of(reference) {
        sink.claimed(at, named, reference.count());
    }
}

/// The data that the items of a leaf use.
pub(crate) fn from_leaf(leaf: &Node, is_full_backref: bool, sink: &mut dyn ReferenceSink) {
    for slot in 0..leaf.len() {
        let Some((key, data)) = leaf.item(slot) else { continue };
        if key.item_type != KeyType::EXTENT_DATA {
            continue;
        }
        if let Ok(Item::FileExtent(extent)) = Item::parse(&key, data) {
            from_file_extent(leaf, &key, &extent, is_full_backref, sink);
        }
    }
}

/// The data that a file extent uses.
pub(crate) fn from_file_extent(
    leaf: &Node,
    key: &Key,
    extent: &FileExtent<'_>,
    is_full_backref: bool,
    sink: &mut dyn ReferenceSink,
) {
    let FileExtent::OnDisk { extent, .. } = extent else { return };
    if extent.disk_bytenr.get() == 0 {
        return;
    }
    let reference = if is_full_backref {
        Reference::SharedData(leaf.header().bytenr)
    } else {
        // A piece of an extent may lie before where the whole would begin; the kernel lets that wrap.
        let offset = key.offset().wrapping_sub(extent.offset.get());
        Reference::Data { root: leaf.header().owner, inode: ObjectId::new(key.objectid.get()), offset }
    };
    sink.used(extent.disk_bytenr.get(), Shape::Data(extent.disk_num_bytes.get()), reference);
}

/// Reference of a node's pointer to a child.
pub(crate) fn to_child(parent: u64, owner: u64, is_full_backref: bool) -> Reference {
    if is_full_backref {
        Reference::SharedTree(Logical::new(parent))
    } else {
        Reference::Tree(RootId::new(owner))
    }
}
