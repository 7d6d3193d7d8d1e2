//! Waiting changes of references, merged by extent.

use brindle_ondisk::item::{BackRef, ExtentDataRef};
use brindle_ondisk::{Generation, Key, Logical, ObjectId, RootId};
use brindle_sync::{Mutex, MutexGuard, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeMap, HashMap};

/// The owner of a reference, without its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Referrer {
    /// A tree, to a block that it holds.
    Tree(RootId),
    /// A block, to its child.
    SharedTree(Logical),
    /// A file of a tree, to data.
    Data {
        /// The tree.
        root: RootId,
        /// The file.
        objectid: ObjectId,
        /// Offset in the file at which the extent would begin, in bytes.
        offset: u64,
    },
    /// A leaf, to the data that its items have.
    SharedData(Logical),
}

/// Kind of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    /// A tree block.
    Block {
        /// Its level.
        level: u8,
        /// Its first key, which only the item of a new block needs, and only without skinny metadata.
        first_key: Key,
    },
    /// Data of files.
    Data,
}

/// An extent that a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: Logical,
    pub(crate) length: u64,
    pub(crate) kind: ExtentKind,
    /// The tree that made it, where that is known.
    pub(crate) owner: Option<RootId>,
}

/// Properties of a new extent that takes the place of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The transaction that its item is to name.
    pub(crate) generation: Generation,
    /// The subvolume that wrote it first, as the extent tree has it (simple quotas).
    pub(crate) owner: Option<RootId>,
}

/// Changes that wait for one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: u64,
    pub(crate) kind: ExtentKind,
    /// The extent tree has no item of it yet.
    pub(crate) is_new: bool,
    /// The block gets the flag `FULL_BACKREF`.
    pub(crate) becomes_full: bool,
    /// The tree that made it, where that is known.
    pub(crate) owner: Option<RootId>,
    /// For a new extent that is a copy of another.
    pub(crate) origin: Option<Origin>,
    /// Changes of counts by referrer; none is 0.
    pub(crate) changes: Vec<(Referrer, i64)>,
}

/// Number of locks for decisions on shared blocks.
const SHARING_LOCKS: usize = 32;

/// Changes of references that the extent tree does not have yet.
#[derive(Debug)]
pub(crate) struct DelayedRefs {
    heads: Mutex<BTreeMap<Logical, Head>>,
    /// Held for writing while changes are on their way to the extent tree, so that a reader that holds it finds each
    /// of them in exactly one of the two.
    gate: RwLock<()>,
    /// Held from the look at a block's references to the changes that follow from it, by all threads that may share
    /// it.
    sharing: [Mutex<()>; SHARING_LOCKS],
    /// Held while items of the checksum tree are split and joined.
    checksums: Mutex<()>,
    /// Progress of the conversion of a dropped tree's shared blocks.
    conversions: Mutex<HashMap<RootId, Key>>,
}

impl Default for DelayedRefs {
    fn default() -> Self {
        Self {
            heads: Mutex::new(Rank::References, BTreeMap::new()),
            gate: RwLock::new(Rank::ReferenceGate, ()),
            sharing: std::array::from_fn(|_| Mutex::new(Rank::SharedBlock, ())),
            checksums: Mutex::new(Rank::Checksums, ()),
            conversions: Mutex::new(Rank::Conversions, HashMap::new()),
        }
    }
}

impl Referrer {
    /// Owner of a reference; `None` for a note of the extent's owner, which is no reference.
    pub(crate) fn of(reference: &BackRef) -> Option<Self> {
        Some(match reference {
            BackRef::Tree(root) => Self::Tree(*root),
            BackRef::SharedTree(parent) => Self::SharedTree(*parent),
            BackRef::Data(data) => Self::of_data(data),
            BackRef::SharedData { parent, .. } => Self::SharedData(*parent),
            BackRef::Owner(_) => return None,
        })
    }

    /// The file of a data reference.
    pub(crate) fn of_data(data: &ExtentDataRef) -> Self {
        Self::Data { root: data.root, objectid: data.objectid, offset: data.offset.get() }
    }

    /// Back reference with a count from here.
    pub(crate) fn times(self, count: u32) -> BackRef {
        match self {
            Self::Tree(root) => BackRef::Tree(root),
            Self::SharedTree(parent) => BackRef::SharedTree(parent),
            Self::Data { root, objectid, offset } => {
                BackRef::Data(ExtentDataRef { root, objectid, offset: offset.into(), count: count.into() })
            }
            Self::SharedData(parent) => BackRef::SharedData { parent, count },
        }
    }

    /// The tree that a reference names.
    pub(crate) fn tree(self) -> Option<RootId> {
        match self {
            Self::Tree(root) | Self::Data { root, .. } => Some(root),
            Self::SharedTree(_) | Self::SharedData(_) => None,
        }
    }

    /// Greatest number of references from here.
    pub(crate) fn most(self) -> u64 {
        match self {
            Self::Tree(_) | Self::SharedTree(_) => 1,
            Self::Data { .. } | Self::SharedData(_) => u32::MAX.into(),
        }
    }
}

impl Head {
    fn new(extent: &Extent) -> Self {
        let Extent { length, kind, owner, .. } = *extent;
        let (origin, changes) = (None, Vec::new());
        Self { length, kind, is_new: false, becomes_full: false, owner, origin, changes }
    }

    /// The subvolume that wrote a new extent first.
    pub(crate) fn writer(&self) -> Option<RootId> {
        self.origin.map_or(self.owner, |origin| origin.owner)
    }

    /// Bytes of new data, unless they are a copy of others.
    pub(crate) fn entered(&self) -> u64 {
        if self.kind == ExtentKind::Data && self.origin.is_none() { self.length } else { 0 }
    }

    fn change(&mut self, who: Referrer, by: i64) {
        match self.changes.iter().position(|(other, _)| *other == who) {
            Some(at) => {
                let (_, sum) = &mut self.changes[at];
                *sum = sum.saturating_add(by);
                if *sum == 0 {
                    self.changes.swap_remove(at);
                }
            }
            None if by != 0 => self.changes.push((who, by)),
            None => {}
        }
    }

    /// Sum of the changes of counts.
    pub(crate) fn sum(&self) -> i64 {
        self.changes.iter().fold(0, |sum, (_, by)| sum.saturating_add(*by))
    }

    /// Returns true if there is nothing to do.
    pub(crate) fn is_void(&self) -> bool {
        !self.is_new && !self.becomes_full && self.changes.is_empty()
    }
}

impl DelayedRefs {
    /// True if a panic has interrupted a change of what waits, or its way to the extent tree.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.heads.is_poisoned()
            || self.gate.is_poisoned()
            || self.sharing.iter().any(Mutex::is_poisoned)
            || self.checksums.is_poisoned()
            || self.conversions.is_poisoned()
    }

    /// Number of extents with waiting changes.
    pub(crate) fn len(&self) -> usize {
        self.heads.lock().len()
    }

    /// Changes a count.
    pub(crate) fn change(&self, extent: &Extent, who: Referrer, by: i64) {
        self.change_all([(*extent, who, by)]);
    }

    /// Changes counts.
    pub(crate) fn change_all(&self, changes: impl IntoIterator<Item = (Extent, Referrer, i64)>) {
        let mut heads = self.heads.lock();
        for (extent, who, by) in changes {
            let head = heads.entry(extent.start).or_insert_with(|| Head::new(&extent));
            head.owner = head.owner.or(extent.owner);
            head.change(who, by);
        }
    }

    /// An extent that was never referred to before gets its first references.
    pub(crate) fn create(&self, extent: &Extent, who: Referrer, count: i64) {
        let mut heads = self.heads.lock();
        let head = heads.entry(extent.start).or_insert_with(|| Head::new(extent));
        (head.is_new, head.kind, head.length) = (true, extent.kind, extent.length);
        head.owner = head.owner.or(extent.owner).or(who.tree());
        head.change(who, count);
    }

    /// Tells which tree made an extent that changes wait for.
    pub(crate) fn note_owner(&self, extent: &Extent) {
        let mut heads = self.heads.lock();
        heads.entry(extent.start).or_insert_with(|| Head::new(extent)).owner = extent.owner;
    }

    /// Files the references of a block under the block from now on.
    pub(crate) fn set_full(&self, extent: &Extent) {
        let mut heads = self.heads.lock();
        heads.entry(extent.start).or_insert_with(|| Head::new(extent)).becomes_full = true;
    }

    /// A new extent of data takes the place of another one, and is as old as that: by its age it is known whether
    /// snapshots may have it. It counts for the same subvolume.
    pub(crate) fn set_origin(&self, extent: &Extent, origin: Origin) {
        let mut heads = self.heads.lock();
        heads.entry(extent.start).or_insert_with(|| Head::new(extent)).origin = Some(origin);
    }

    /// Changes that wait for an extent.
    pub(crate) fn waiting(&self, start: Logical) -> Option<Head> {
        self.heads.lock().get(&start).cloned()
    }

    /// Takes the first `limit` extents that have changes, in the order of their addresses.
    pub(crate) fn take(&self, _gate: &RwLockWriteGuard<'_, ()>, limit: usize) -> Vec<(Logical, Head)> {
        let mut heads = self.heads.lock();
        std::iter::from_fn(|| heads.pop_first()).take(limit).collect()
    }

    /// The right to move changes from here to the extent tree.
    pub(crate) fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Nothing moves from here to the extent tree meanwhile.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Locks out other decisions that depend on the references to this block.
    pub(crate) fn lock_block(&self, at: Logical, nodesize: u64) -> MutexGuard<'_, ()> {
        let number = at.get() / nodesize % SHARING_LOCKS as u64;
        self.sharing[usize::try_from(number).expect("a remainder of few")].lock()
    }

    /// Locks out other splits and joins of checksum items.
    pub(crate) fn lock_checksums(&self) -> MutexGuard<'_, ()> {
        self.checksums.lock()
    }

    /// Up to which key the blocks of a dropped tree that others share have been converted.
    pub(crate) fn conversion(&self, tree: RootId) -> Key {
        self.conversions.lock().get(&tree).copied().unwrap_or(Key::MIN)
    }

    /// Notes how far conversion has come; `None` when it is over.
    pub(crate) fn note_conversion(&self, tree: RootId, to: Option<Key>) {
        let mut conversions = self.conversions.lock();
        match to {
            Some(key) => conversions.insert(tree, key),
            None => conversions.remove(&tree),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent =
        Extent { start: Logical::new(1 << 20), length: 4096, kind: ExtentKind::Data, owner: None };

    fn file(objectid: u64) -> Referrer {
        Referrer::Data { root: RootId::FS_TREE, objectid: ObjectId::new(objectid), offset: 0 }
    }

    fn take(refs: &DelayedRefs) -> Vec<(Logical, Head)> {
        refs.take(&refs.close(), usize::MAX)
    }

    #[test]
    fn changes_of_one_referrer_add_up() {
        let refs = DelayedRefs::default();
        refs.change(&EXTENT, file(257), 2);
        refs.change(&EXTENT, file(258), -1);
        refs.change(&EXTENT, file(257), 1);
        assert_eq!(refs.len(), 1);
        assert_eq!(refs.waiting(EXTENT.start).map(|head| head.sum()), Some(2));
        let taken = take(&refs);
        assert_eq!(taken[0].1.changes, [(file(257), 3), (file(258), -1)]);
        assert_eq!(refs.len(), 0);
    }

    #[test]
    fn changes_that_cancel_out_leave_nothing_to_do() {
        let refs = DelayedRefs::default();
        refs.change(&EXTENT, file(257), 1);
        refs.change(&EXTENT, file(257), -1);
        assert!(take(&refs)[0].1.is_void());
    }

    #[test]
    fn a_new_extent_stays_new_when_its_references_come_and_go() {
        let refs = DelayedRefs::default();
        refs.create(&EXTENT, file(257), 1);
        refs.change(&EXTENT, file(257), -1);
        refs.change(&EXTENT, file(258), 1);
        let taken = take(&refs);
        assert!(taken[0].1.is_new && !taken[0].1.is_void());
        assert_eq!(taken[0].1.changes, [(file(258), 1)]);
    }

    #[test]
    fn a_new_extent_is_of_its_first_referrer_or_of_what_it_is_a_copy_of() {
        let refs = DelayedRefs::default();
        refs.create(&EXTENT, file(257), 1);
        let snapshot = Referrer::Data { root: RootId::new(300), objectid: ObjectId::new(257), offset: 0 };
        refs.change(&EXTENT, snapshot, 1);
        let writer = |refs: &DelayedRefs| refs.waiting(EXTENT.start).and_then(|head| head.writer());
        assert_eq!(writer(&refs), Some(RootId::FS_TREE));
        let (generation, owner) = (Generation::new(3), Some(RootId::new(256)));
        refs.set_origin(&EXTENT, Origin { generation, owner });
        assert_eq!(writer(&refs), owner);
        refs.set_origin(&EXTENT, Origin { generation, owner: None });
        assert_eq!(writer(&refs), None, "a copy of what counts for none");
    }

    #[test]
    fn heads_come_in_the_order_of_addresses_and_no_more_than_asked_for() {
        let refs = DelayedRefs::default();
        for start in [5u64, 3, 9, 1] {
            refs.change(&Extent { start: Logical::new(start << 20), ..EXTENT }, file(257), 1);
        }
        let first: Vec<u64> =
            refs.take(&refs.close(), 3).iter().map(|(start, _)| start.get() >> 20).collect();
        assert_eq!(first, [1, 3, 5]);
        assert_eq!(refs.len(), 1);
    }
}
