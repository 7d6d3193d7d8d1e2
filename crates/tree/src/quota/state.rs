//! Quota groups of a pool that is written, as they are in memory.

use super::ledger::{Group, Ledger};
use super::summary::{self, QuotaSummary};
use crate::error::TreeError;
use crate::quota_error::QuotaError;
use crate::store::Store;
use brindle_ondisk::item::{QgroupInfo, QgroupStatusFlags};
use brindle_ondisk::{Generation, Logical, QgroupId, RootId, to_u64};
use brindle_sync::atomic::{AtomicBool, Ordering};
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// Groups whose items share a block of the quota tree, at least.
const GROUPS_PER_BLOCK: u64 = 20;
/// Blocks from the root of the quota tree to a leaf.
const PATH: u64 = 4;

/// Quota groups of a pool that is written.
#[derive(Default)]
pub(crate) struct Quotas {
    is_on: AtomicBool,
    pub(super) is_simple: AtomicBool,
    state: Mutex<State>,
}

/// The groups, and what has changed since their numbers were right.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    /// With simple quotas: the first transaction whose extents count.
    pub(crate) counted_from: Option<Generation>,
    /// True if the numbers are known to be wrong.
    pub(crate) is_inconsistent: bool,
    /// The address before which a rescan has counted.
    pub(crate) rescan: Option<u64>,
    /// True if the status in the quota tree says something else.
    pub(crate) is_changed: bool,
    pub(crate) changes: Changed,
    /// Bytes in memory that have no extents yet, by subvolume.
    pub(crate) in_memory: HashMap<RootId, u64>,
}

/// Changes that are not in the numbers yet.
#[derive(Default)]
pub(crate) struct Changed {
    /// Extents whose references have changed.
    pub(crate) touched: BTreeSet<Logical>,
    /// Snapshots that have been made, each behind its source.
    pub(crate) copies: Vec<(RootId, RootId)>,
    /// Subvolumes of which nothing is left.
    pub(crate) dropped: Vec<RootId>,
    /// Groups that the quota tree does not have: of subvolumes that are gone, and whose blocks have moved.
    pub(crate) found: Vec<QgroupId>,
    /// Bytes of new extents, by subvolume.
    pub(crate) entered: HashMap<RootId, u64>,
}

impl Ranked for State {
    const RANK: Rank = Rank::Quotas;
}

impl Quotas {
    /// The groups that a pool has.
    pub(crate) fn load(store: &Store) -> Result<Self, TreeError> {
        let quotas = Self::default();
        let Some(found) = summary::read(store)?.filter(QuotaSummary::is_on) else {
            return Ok(quotas);
        };
        let mut state = quotas.lock();
        // A system that wrote the pool last without its quotas has left the numbers as they were.
        // With simple ones, a feature that must be known, there is no such system.
        let is_simple = found.is_simple();
        let is_current = is_simple || found.generation == store.superblock().generation.get();
        state.counted_from = is_simple.then(|| found.enable_gen.unwrap_or(Generation::new(0)));
        state.is_inconsistent = !is_simple && (found.is_inconsistent() || !is_current);
        state.is_changed = !is_current;
        state.rescan = found.rescan.filter(|_| is_current && !is_simple);
        for group in found.groups {
            let kept = Group {
                info: group.info,
                limit: group.limit,
                parents: group.parents.into_iter().collect(),
                is_changed: false,
            };
            state.ledger.groups.insert(group.id, kept);
        }
        drop(state);
        quotas.turn(true);
        Ok(quotas)
    }

    /// Returns true if the pool has quota groups.
    pub(crate) fn are_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Turns counting on, in the way that the state says, or off.
    pub(crate) fn turn(&self, on: bool) {
        self.is_simple.store(on && self.lock().counted_from.is_some(), Ordering::Release);
        self.is_on.store(on, Ordering::Release);
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// True if a panic has interrupted a change.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.is_poisoned()
    }

    /// Returns true if a commit has something to write, whatever else has changed.
    pub(crate) fn wants_commit(&self) -> bool {
        self.are_on() && self.lock().is_changed
    }

    /// Returns true if a rescan is under way.
    pub(crate) fn is_counting(&self) -> bool {
        self.are_on() && self.lock().rescan.is_some()
    }

    /// Blocks of the quota tree that a commit may change.
    pub(crate) fn blocks(&self) -> u64 {
        if !self.are_on() {
            return 0;
        }
        let state = self.lock();
        let parents = |id: &RootId| {
            let group = state.ledger.groups.get(&QgroupId::of_subvolume(*id));
            group.map_or(0, |group| group.parents.len())
        };
        let relations =
            state.changes.dropped.iter().map(parents).sum::<usize>() * 2 + state.changes.found.len();
        to_u64(state.ledger.groups.len()) / GROUPS_PER_BLOCK + PATH + to_u64(relations)
    }

    /// References to extents are applied that subvolumes may reach: the numbers of groups may change.
    pub(crate) fn touch(&self, extents: impl FnOnce() -> Vec<Logical>) {
        if self.are_on() && !self.are_simple() {
            let touched = extents();
            self.lock().changes.touched.extend(touched);
        }
    }

    /// Nothing is left of a subvolume.
    pub(crate) fn dropped(&self, subvolume: RootId) {
        if self.are_on() && subvolume.is_subvolume() {
            self.lock().changes.dropped.push(subvolume);
        }
    }

    /// A subvolume gets a new extent.
    pub(crate) fn enter(&self, subvolume: RootId, bytes: u64) {
        if self.are_on() {
            *self.lock().changes.entered.entry(subvolume).or_default() += bytes;
        }
    }

    /// A snapshot has been made, of a subvolume whose root lies there. Its group is there already.
    pub(crate) fn copied(&self, source: RootId, root: Logical, copy: RootId) {
        // With simple quotas a snapshot has its root, which is counted as other blocks are.
        if self.are_on() && !self.are_simple() {
            let mut state = self.lock();
            state.changes.touched.insert(root);
            state.changes.copies.push((source, copy));
            if state.ledger.inherit(source, copy) {
                state
                    .give_up(format_args!("subvolume {source} has parents that its snapshot {copy} has not"));
            }
        }
    }

    /// The subvolume's group is in the quota tree.
    pub(crate) fn add_group(&self, id: QgroupId) -> Result<(), QuotaError> {
        let mut state = self.lock();
        match state.ledger.groups.contains_key(&id) {
            true => Err(QuotaError::Exists(id)),
            false => {
                state.ledger.groups.insert(id, Group::empty());
                Ok(())
            }
        }
    }

    /// Returns true if there is such a group.
    pub(crate) fn has_group(&self, id: QgroupId) -> bool {
        self.lock().ledger.groups.contains_key(&id)
    }
}

impl State {
    pub(crate) fn begin_rescan(&mut self) {
        self.ledger.clear();
        self.changes.copies.clear();
        (self.rescan, self.is_inconsistent, self.is_changed) = (Some(0), true, true);
    }

    /// The flags of the status.
    pub(crate) fn flags(&self) -> u64 {
        let mut flags = QgroupStatusFlags::ON;
        flags.set(QgroupStatusFlags::SIMPLE, self.counted_from.is_some());
        flags.set(QgroupStatusFlags::RESCAN, self.rescan.is_some());
        flags.set(QgroupStatusFlags::INCONSISTENT, self.is_inconsistent);
        flags.bits()
    }

    /// The numbers that the quota tree does not have.
    pub(crate) fn take_changed(&mut self) -> Vec<(QgroupId, QgroupInfo)> {
        let groups = self.ledger.groups.iter_mut();
        let is_simple = self.counted_from.is_some();
        let taken = |(id, group): (&QgroupId, &mut Group)| {
            let mut info = group.info;
            if is_simple {
                // The kernel leaves them alone.
                (info.rfer_cmpr, info.excl_cmpr) = (0.into(), 0.into());
            }
            std::mem::take(&mut group.is_changed).then_some((*id, info))
        };
        self.is_changed = self.rescan.is_some();
        groups.filter_map(taken).collect()
    }

    /// The numbers can't be told any more, and the reason.
    pub(crate) fn give_up(&mut self, why: fmt::Arguments<'_>) {
        if !self.is_inconsistent || self.rescan.is_some() {
            tracing::warn!("quota groups are inconsistent: {why}; count them anew with 'quota rescan'");
        }
        (self.is_inconsistent, self.rescan, self.is_changed) = (true, None, true);
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quotas").field("is_on", &self.is_on).finish_non_exhaustive()
    }
}
