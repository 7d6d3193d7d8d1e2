//! Bytes by the subvolumes that reach them.
//!
//! From the roots down each tree block gets the number of a set, that of the subvolumes that reach it: the union of its
//! parents' sets. Leaves hand theirs on to the data that they refer to. There are few sets, and each is there once.
//!
//! Memory: four bytes a tree block; [`DATA_MAX`] extents of data, and more are counted in rounds by address, each a walk
//! over the leaves; [`MEMBERS_MAX`] members of sets, beyond which the bytes are not known.

use crate::examination::Examination;
use crate::forest::Forest;
use crate::roots::TreeKind;
use crate::walk::{Leaf, Visitor};
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{Item, KeyType, MAX_LEVEL, RootId};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Extents of data that are kept at once.
const DATA_MAX: usize = 1 << 20;
/// Members of all sets.
const MEMBERS_MAX: usize = 1 << 23;
/// Unions that are remembered.
const UNIONS_MAX: usize = 1 << 20;
/// The set of no subvolumes.
const NONE: u32 = 0;

/// Subvolumes in order, and the bytes that they, and no others, reach.
pub(crate) type Reached = Vec<(Arc<[RootId]>, u64)>;

/// Bytes of tree blocks and data by the subvolumes that reach them; `None` if there are too many different sets of these.
pub(crate) fn bytes(examination: &Examination<'_>, forest: &Forest) -> Option<Reached> {
    let mut sets = Sets::default();
    let of_block = of_blocks(forest, &mut sets);
    let mut sums: HashMap<u32, u64> = HashMap::new();
    let mut add = |set: u32, bytes: u64| {
        if set != NONE {
            let sum = sums.entry(set).or_default();
            *sum = sum.saturating_add(bytes);
        }
    };
    let nodesize = u64::from(examination.reader.context.nodesize);
    of_block.iter().for_each(|set| add(*set, nodesize));
    let most = DATA_MAX / examination.options.worker_count();
    let sets = Mutex::new(sets);
    let mut from = 0;
    while !lock(&sets).is_full {
        let end = AtomicU64::new(u64::MAX);
        let round = Round { sets: &sets, of_block: &of_block, from, end: &end, most };
        let is_wanted = |kind| matches!(kind, TreeKind::Files | TreeKind::Relocation);
        let found = examination.walk(forest, false).leaves(|tree| is_wanted(tree.kind), &round);
        let end = end.load(Relaxed);
        let mut extents = HashMap::new();
        for (at, data) in found.into_iter().flatten().filter(|(at, _)| *at < end) {
            round.note(&mut extents, at, data);
        }
        extents.into_values().for_each(|data| add(data.set, data.length));
        if end == u64::MAX {
            break;
        }
        from = end;
    }
    let sets = sets.into_inner().unwrap_or_else(PoisonError::into_inner);
    let named = |(set, bytes)| Some((sets.members(set)?, bytes));
    if sets.is_full { None } else { sums.into_iter().map(named).collect() }
}

/// The set of each block.
fn of_blocks(forest: &Forest, sets: &mut Sets) -> Vec<u32> {
    let mut found = vec![NONE; forest.len()];
    for (tree, root) in forest.trees.iter().zip(&forest.roots) {
        let is_subvolume = tree.kind == TreeKind::Files && tree.id != RootId::DATA_RELOC_TREE;
        if let Some(root) = root.filter(|_| is_subvolume) {
            let own = sets.number(vec![tree.id]);
            join(&mut found, root.index(), own, sets);
        }
    }
    for level in (1..=MAX_LEVEL).rev() {
        for id in forest.ids().filter(|id| forest.block(*id).level == level) {
            let set = found.get(id.index()).copied().unwrap_or(NONE);
            for child in forest.node(id).into_iter().flat_map(|node| &node.children) {
                join(&mut found, child.index(), set, sets);
            }
        }
    }
    found
}

/// A block has one more way to it.
fn join(found: &mut [u32], at: usize, set: u32, sets: &mut Sets) {
    if let Some(known) = found.get_mut(at) {
        *known = sets.union(*known, set);
    }
}

/// Sets of subvolumes, each once; the number of one is its index.
#[derive(Debug)]
struct Sets {
    sets: Vec<Arc<[RootId]>>,
    numbers: HashMap<Arc<[RootId]>, u32>,
    unions: HashMap<(u32, u32), u32>,
    members: usize,
    is_full: bool,
}

impl Default for Sets {
    fn default() -> Self {
        let empty: Arc<[RootId]> = Arc::from([]);
        let numbers = HashMap::from([(Arc::clone(&empty), NONE)]);
        Self { sets: vec![empty], numbers, unions: HashMap::new(), members: 0, is_full: false }
    }
}

impl Sets {
    /// The number of a set, its members in order.
    fn number(&mut self, set: Vec<RootId>) -> u32 {
        let set: Arc<[RootId]> = set.into();
        if let Some(known) = self.numbers.get(&set) {
            return *known;
        }
        self.members += set.len();
        let number = u32::try_from(self.sets.len()).ok().filter(|_| self.members <= MEMBERS_MAX);
        let Some(number) = number else {
            self.is_full = true;
            return NONE;
        };
        self.sets.push(Arc::clone(&set));
        self.numbers.insert(set, number);
        number
    }

    /// The number of the union of two sets.
    fn union(&mut self, one: u32, other: u32) -> u32 {
        if one == other || other == NONE {
            return one;
        }
        if one == NONE {
            return other;
        }
        let pair = (one.min(other), one.max(other));
        if let Some(known) = self.unions.get(&pair) {
            return *known;
        }
        let both = [one, other].into_iter().filter_map(|set| self.sets.get(set as usize));
        let members: BTreeSet<RootId> = both.flat_map(|set| set.iter().copied()).collect();
        let union = self.number(members.into_iter().collect());
        if self.unions.len() >= UNIONS_MAX {
            self.unions.clear();
        }
        self.unions.insert(pair, union);
        union
    }

    fn members(&self, set: u32) -> Option<Arc<[RootId]>> {
        self.sets.get(set as usize).cloned()
    }
}

/// An extent of data.
#[derive(Clone, Copy, Debug)]
struct Data {
    length: u64,
    set: u32,
}

/// Extents of data by address.
type Extents = HashMap<u64, Data>;

/// A walk over the leaves for the data of a range of addresses. A thread that has too many extents moves the end towards
/// the start, and forgets those behind it.
struct Round<'a> {
    sets: &'a Mutex<Sets>,
    of_block: &'a [u32],
    from: u64,
    end: &'a AtomicU64,
    /// Extents that a thread keeps.
    most: usize,
}

impl Round<'_> {
    fn note(&self, extents: &mut Extents, at: u64, data: Data) {
        match extents.entry(at) {
            Entry::Occupied(mut known) if known.get().set != data.set => {
                let known = known.get_mut();
                known.set = lock(self.sets).union(known.set, data.set);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(place) => {
                place.insert(data);
            }
        }
    }

    /// Forgets the upper half.
    fn halve(&self, extents: &mut Extents) {
        let mut addresses: Vec<u64> = extents.keys().copied().collect();
        let half = addresses.len() / 2;
        let (_, middle, _) = addresses.select_nth_unstable(half);
        let end = self.end.fetch_min(*middle, Relaxed).min(*middle);
        extents.retain(|at, _| *at < end);
    }
}

impl Visitor for Round<'_> {
    type State = Extents;

    fn start(&self) -> Extents {
        Extents::new()
    }

    fn leaf(&self, extents: &mut Extents, leaf: &Leaf<'_>) {
        let set = self.of_block.get(leaf.id.index()).copied().unwrap_or(NONE);
        if set == NONE {
            return;
        }
        for slot in 0..leaf.node.len() {
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            if key.item_type != KeyType::EXTENT_DATA {
                continue;
            }
            let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) = Item::parse(&key, data) else {
                continue;
            };
            let at = extent.disk_bytenr.get();
            if at == 0 || at < self.from || at >= self.end.load(Relaxed) {
                continue;
            }
            self.note(extents, at, Data { length: extent.disk_num_bytes.get(), set });
            if extents.len() > self.most {
                self.halve(extents);
            }
        }
    }
}

fn lock(sets: &Mutex<Sets>) -> MutexGuard<'_, Sets> {
    sets.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(sets: &mut Sets, ids: &[u64]) -> u32 {
        sets.number(ids.iter().copied().map(RootId::new).collect())
    }

    #[test]
    fn sets_are_there_once_and_unions_are_sets() {
        let mut sets = Sets::default();
        let (one, other) = (set(&mut sets, &[5, 256]), set(&mut sets, &[256, 257]));
        let both = sets.union(one, other);
        assert_eq!(both, set(&mut sets, &[5, 256, 257]));
        assert_eq!(both, sets.union(other, one));
        assert_eq!((sets.union(NONE, one), sets.union(one, NONE), sets.union(both, one)), (one, one, both));
    }

    #[test]
    fn a_round_that_has_too_many_extents_keeps_all_below_its_end() {
        let (sets, end) = (Mutex::new(Sets::default()), AtomicU64::new(u64::MAX));
        let round = Round { sets: &sets, of_block: &[], from: 0, end: &end, most: 8 };
        let mut extents: Extents = (1..=9).map(|at| (at << 20, Data { length: 4096, set: 1 })).collect();
        round.halve(&mut extents);
        let end = end.load(Relaxed);
        let mut left: Vec<u64> = extents.into_keys().collect();
        left.sort_unstable();
        assert_eq!((end, left), (5 << 20, (1..5).map(|at| at << 20).collect()));
    }
}
