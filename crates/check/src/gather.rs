//! TreeFacts that the first walk takes from each leaf for the passes that follow.

use crate::Finding;
use crate::facts::TreeFacts;
use crate::files::{Judge, LeafSummary, Summary};
use crate::forest::{BlockId, Forest, Named};
use crate::ledger::Ledger;
use crate::owners::Owners;
use crate::page;
use crate::read::Reader;
use crate::references::{self, ReferenceSums, Shape};
use crate::regions::Regions;
use crate::roots::{Tree, TreeKind};
use crate::sectors::{Mark, SectorMap};
use crate::space::SpaceSums;
use crate::walk::{Leaf, Visitor};
use brindle_ondisk::item::{BackRef, Compression, ExtentFlags, ExtentItem, FileExtent};
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId, to_u64};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Looks at leaves for all passes at once.
pub(crate) struct Gather<'a> {
    pub(crate) forest: &'a Forest,
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) ledger: &'a Ledger,
    pub(crate) regions: &'a Regions,
    pub(crate) sectors: &'a SectorMap,
    pub(crate) no_holes: bool,
    /// With simple quotas: the transaction from which on extents count.
    pub(crate) counted_from: Option<u64>,
}

/// TreeFacts gathered by one thread.
pub(crate) struct Gathered {
    pub(crate) references: ReferenceSums,
    pub(crate) space: SpaceSums,
    pub(crate) facts: TreeFacts,
    /// The leaves below a node of level 1, or a leaf that is a root.
    pub(crate) nodes: HashMap<BlockId, Vec<LevelOnePart>>,
    /// Leaves that several nodes have.
    pub(crate) shared: HashMap<BlockId, Summary>,
    /// Trees with directories whose two kinds of entries disagree.
    pub(crate) suspects: BTreeSet<RootId>,
    pub(crate) items: u64,
    /// With simple quotas: bytes of extents that count, by the subvolume that wrote them first.
    pub(crate) written: BTreeMap<RootId, u64>,
    parts: Vec<LevelOnePart>,
    carry: Option<Carry>,
}

/// Summary of a node of level 1.
#[derive(Debug)]
pub(crate) enum LevelOnePart {
    /// Leaves of its own.
    Run(Summary),
    /// A leaf that others have too.
    Leaf(BlockId),
}

/// The inode to which the items at hand belong.
#[derive(Clone, Copy)]
struct Carry {
    inode: u64,
    is_without_checksums: bool,
}

impl Gathered {
    /// Puts together what the threads have.
    pub(crate) fn merge(&mut self, other: Self) {
        self.references.merge(&other.references);
        self.space.merge(other.space);
        self.facts.merge(other.facts);
        self.nodes.extend(other.nodes);
        self.shared.extend(other.shared);
        self.suspects.extend(other.suspects);
        self.items += other.items;
        for (owner, bytes) in other.written {
            add_written(&mut self.written, owner, bytes);
        }
    }
}

impl Visitor for Gather<'_> {
    type State = Gathered;

    fn start(&self) -> Gathered {
        Gathered {
            references: ReferenceSums::default(),
            space: SpaceSums::new(self.regions),
            facts: TreeFacts::default(),
            nodes: HashMap::new(),
            shared: HashMap::new(),
            suspects: BTreeSet::new(),
            items: 0,
            written: BTreeMap::new(),
            parts: Vec::new(),
            carry: None,
        }
    }

    fn leaf(&self, state: &mut Gathered, leaf: &Leaf<'_>) {
        state.items += to_u64(leaf.node.len());
        self.owners().check(leaf.id, &Named::of(leaf.node));
        self.count_written(state, leaf.node.header().owner, leaf.node.generation().get());
        match leaf.tree.kind {
            TreeKind::Extent => self.extent_leaf(state, leaf),
            TreeKind::Files | TreeKind::Relocation => self.file_leaf(state, leaf),
            TreeKind::Log => {}
            TreeKind::Root | TreeKind::Chunk | TreeKind::Other => self.pool_leaf(state, leaf),
        }
    }

    fn elsewhere(&self, state: &mut Gathered, id: BlockId) {
        state.parts.push(LevelOnePart::Leaf(id));
        state.carry = None;
    }

    fn unit_done(&self, state: &mut Gathered, unit: BlockId) {
        let parts = std::mem::take(&mut state.parts);
        state.carry = None;
        if matches!(self.forest.tree_of(unit).kind, TreeKind::Files | TreeKind::Relocation) {
            state.nodes.insert(unit, parts);
        }
    }
}

impl Gather<'_> {
    pub(crate) fn owners(&self) -> Owners<'_> {
        Owners { forest: self.forest, reader: self.reader, ledger: self.ledger }
    }

    fn extent_leaf(&self, state: &mut Gathered, leaf: &Leaf<'_>) {
        let mut edges: Option<(u64, u64)> = None;
        for slot in 0..leaf.node.len() {
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            let Ok(item) = Item::parse(&key, data) else { continue };
            references::from_extent_tree(&key, &item, &mut state.references);
            match &item {
                Item::Extent(extent) => {
                    let start = key.objectid.get();
                    let (is_data, length) = match references::shape_of(&key, extent) {
                        Shape::Data(length) => (true, length),
                        Shape::Block(_) => (false, u64::from(self.reader.context.nodesize)),
                    };
                    if let Some(owner) = self.counted_owner(extent).filter(|_| is_data) {
                        add_written(&mut state.written, owner, length);
                    }
                    let place = (start, length);
                    state.space.allocated(place, is_data, self.regions, self.sectors, self.ledger);
                    let first = edges.map_or(start, |(first, _)| first);
                    edges = Some((first, start.saturating_add(length)));
                    if extent.flags().contains(ExtentFlags::FULL_BACKREF) {
                        if let Some(id) = self.forest.at(start) {
                            self.forest.block(id).mark_full_backref();
                        }
                    }
                }
                Item::ExtentRef(_) => {}
                _ => state.facts.note(leaf.tree.id, leaf.node, &key, &item),
            }
        }
        state.space.edges.extend(edges);
    }

    /// A tree block counts for the subvolume that made it.
    pub(crate) fn count_written(&self, state: &mut Gathered, owner: RootId, generation: u64) {
        if self.counts(owner, generation) {
            add_written(&mut state.written, owner, self.reader.context.nodesize.into());
        }
    }

    /// Returns true if simple quotas count an extent.
    fn counts(&self, owner: RootId, generation: u64) -> bool {
        let is_of_subvolume = owner == RootId::FS_TREE || owner.is_subvolume();
        is_of_subvolume && self.counted_from.is_some_and(|from| generation >= from)
    }

    /// The subvolume for which simple quotas count an extent of data.
    fn counted_owner(&self, extent: &ExtentItem<'_>) -> Option<RootId> {
        self.counted_from?;
        let owner = extent.inline_refs.filter_map(Result::ok).find_map(|reference| match reference {
            BackRef::Owner(owner) => Some(owner),
            _ => None,
        })?;
        self.counts(owner, extent.header.generation.get()).then_some(owner)
    }

    fn file_leaf(&self, state: &mut Gathered, leaf: &Leaf<'_>) {
        let mut suspect = false;
        let mut report = |finding| self.ledger.report(page::FILES, finding);
        let mut judge = Judge {
            tree: leaf.tree.id,
            no_holes: self.no_holes,
            sectorsize: self.reader.context.sectorsize.into(),
            report: &mut report,
            suspect: &mut || suspect = true,
        };
        let mut summary = LeafSummary::default();
        for slot in 0..leaf.node.len() {
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            let Ok(item) = Item::parse(&key, data) else { continue };
            summary.note(&key, &item, &mut judge);
            self.file_data(state, leaf, &key, &item);
        }
        let summary = summary.finish(&mut judge);
        if self.forest.block(leaf.id).is_shared() {
            state.shared.insert(leaf.id, summary);
            state.parts.push(LevelOnePart::Leaf(leaf.id));
        } else if let Some(LevelOnePart::Run(run)) = state.parts.last_mut() {
            run.append(&summary, &mut judge);
        } else {
            state.parts.push(LevelOnePart::Run(summary));
        }
        if suspect {
            state.suspects.insert(leaf.tree.id);
        }
    }

    fn pool_leaf(&self, state: &mut Gathered, leaf: &Leaf<'_>) {
        let context = &self.reader.context;
        let sectorsize = u64::from(context.sectorsize);
        for slot in 0..leaf.node.len() {
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            let Ok(item) = Item::parse(&key, data) else { continue };
            match (&item, leaf.tree.id) {
                (Item::Csums(sums), RootId::CSUM_TREE) => {
                    let length = to_u64(sums.len() / context.checksum_type.size()) * sectorsize;
                    self.mark_summed(key.offset(), length);
                }
                (Item::FreeSpaceInfo(info), RootId::FREE_SPACE_TREE) => {
                    let count = info.extent_count.get().into();
                    state.space.free_info(&key, count, self.regions, self.ledger);
                }
                (Item::FreeSpaceExtent, RootId::FREE_SPACE_TREE) => {
                    state.space.free(key.objectid.get(), key.offset(), self.regions, self.ledger);
                }
                (Item::FreeSpaceBitmap(bits), RootId::FREE_SPACE_TREE) => {
                    state.space.free_bitmap(&key, bits, sectorsize, self.regions, self.ledger);
                }
                (Item::Inode(_) | Item::FileExtent(_), RootId::ROOT_TREE) => {
                    self.file_data(state, leaf, &key, &item);
                }
                _ => state.facts.note(leaf.tree.id, leaf.node, &key, &item),
            }
        }
    }

    /// Sectors have checksums. What lies in no region is not kept track of, but reported.
    fn mark_summed(&self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        let mut at = start;
        while at < end {
            let region = self.regions.find(at).and_then(|index| self.regions.get(index));
            let Some(region) = region else {
                let (start, length) = (Logical::new(at), end - at);
                return self.ledger.report(page::CHECKSUMS, Finding::ChecksumUnused { start, length });
            };
            let stop = end.min(region.end());
            self.sectors.mark(Mark::Summed, at, stop - at);
            at = stop;
        }
    }

    /// Gathers facts about data from the items of files: its users, and whether it should have checksums.
    fn file_data(&self, state: &mut Gathered, leaf: &Leaf<'_>, key: &Key, item: &Item<'_>) {
        let inode = key.objectid.get();
        let extent = match item {
            Item::Inode(item) => {
                let flags = item.inode_flags();
                let is_without_checksums = flags.contains(brindle_ondisk::item::InodeFlags::NODATASUM);
                state.carry = Some(Carry { inode, is_without_checksums });
                return;
            }
            Item::FileExtent(extent) => extent,
            _ => return,
        };
        references::from_file_extent(leaf.node, key, extent, leaf.is_full_backref, &mut state.references);
        let generation = extent.header().generation;
        if generation.get() > self.reader.context.max_generation.get() && generation > leaf.node.generation()
        {
            let (tree, inode) = (leaf.tree.id, key.objectid);
            let problem = "the generation of a file extent lies in the future";
            self.ledger.report(page::FILES, Finding::InodeRule { tree, inode, problem });
        }
        // Balance copies what has no checksums as it is, into a file that could have some.
        if leaf.tree.id == RootId::DATA_RELOC_TREE {
            return;
        }
        let Some((start, length)) = summed_range(extent) else { return };
        let carry = match state.carry {
            Some(carry) if carry.inode == inode => carry,
            _ => Carry { inode, is_without_checksums: self.look_up(leaf.tree, inode) },
        };
        state.carry = Some(carry);
        if carry.is_without_checksums {
            return;
        }
        // An extent that is not allocated is found missing; here it must not take room.
        let Some(region) = self.regions.find(start).and_then(|index| self.regions.get(index)) else { return };
        let length = length.min(region.end() - start);
        self.sectors.mark(Mark::Needed, start, length);
    }

    /// Returns true if an inode, whose item lies in another leaf, is one without checksums. An inode that is not
    /// found counts as one.
    fn look_up(&self, tree: &Tree, inode: u64) -> bool {
        let key = Key::new(ObjectId::new(inode), KeyType::INODE_ITEM, 0);
        let Some(leaf) = self.reader.leaf_of(&tree.root, &key) else { return true };
        let slot = leaf.search(&key).ok();
        let item = slot.and_then(|slot| leaf.item(slot)).map(|(key, data)| Item::parse(&key, data));
        match item {
            Some(Ok(Item::Inode(item))) => {
                item.inode_flags().contains(brindle_ondisk::item::InodeFlags::NODATASUM)
            }
            _ => true,
        }
    }
}

fn add_written(sums: &mut BTreeMap<RootId, u64>, owner: RootId, bytes: u64) {
    let sum = sums.entry(owner).or_default();
    *sum = sum.saturating_add(bytes);
}

/// The range that must have checksums for a file extent, unless its file has none: of what is compressed all
/// of it, of the rest what the file shows.
pub(crate) fn summed_range(extent: &FileExtent<'_>) -> Option<(u64, u64)> {
    let FileExtent::OnDisk { compression, is_prealloc: false, extent, .. } = extent else { return None };
    let start: Logical = extent.disk_bytenr;
    if start.get() == 0 {
        return None;
    }
    if *compression != Compression::None {
        return Some((start.get(), extent.disk_num_bytes.get()));
    }
    Some((start.checked_add(extent.offset.get())?.get(), extent.num_bytes.get()))
}
