//! Promises of metadata space, so that it runs out at an operation and never inside a commit.
//!
//! At any time there is room for the blocks that are changed (all of them get new places), for those that running
//! operations may change, for those that the commit changes by itself, and for what is kept back: a part for
//! operations that free space, a part for those that get a full pool out of that state, a part for the commit alone.
//!
//! Operations that free space may cost some first: the last reference to a file that a snapshot has as well frees
//! nothing, and the leaf in which it was is copied. So the parts are in that order. The last but one is as much as one
//! operation and its commit may take, and is for [`Urgency::Rescue`] alone: for what gives space back, or adds it.

use super::estimate::{COMMIT_BLOCKS_MIN, KeptBack, Waiting, commit_blocks, kept_back};
use super::group::Content;
use super::state::{State, content};
use super::{MetadataReservation, Space, Urgency};
use crate::error::TreeError;
use crate::store::Store;
use brindle_ondisk::{BlockGroupType, to_u64};
use brindle_sync::{MutexGuard, Rank};

/// Pending changes of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Blocks that are changed.
    pub(crate) dirty: u64,
    /// Extents whose references have changed.
    pub(crate) references: u64,
    /// Trees that have been asked for.
    pub(crate) trees: u64,
}

/// Remedy for a reservation that can't be given yet.
enum Shortage {
    /// A new chunk may help.
    Chunk,
    /// A commit may.
    Commit,
}

impl Space {
    /// Content of tree blocks, except those of the chunk tree.
    fn metadata(&self) -> Content {
        content(self.is_mixed, BlockGroupType::METADATA)
    }

    /// Bytes of metadata space that must be available for all changes and reservations, and `more`; without the
    /// reserves.
    pub(super) fn needed(&self, state: &State, load: Load, more: u64) -> u64 {
        let promised = state.promised_metadata.saturating_add(more);
        let waiting = Waiting {
            blocks: load.dirty + promised.div_ceil(self.nodesize),
            references: load.references,
            trees: load.trees,
            groups: to_u64(state.group_count()),
        };
        let own = commit_blocks(waiting, state.sizes, self.nodesize);
        (load.dirty + own).saturating_mul(self.nodesize).saturating_add(promised)
    }

    /// Reserves of metadata space, with as many trees asked for as there are now.
    pub(super) fn kept_back(&self, state: &State, trees: u64) -> KeptBack {
        let groups = to_u64(state.group_count());
        let idle = Waiting { blocks: 0, references: 0, trees, groups };
        kept_back(state.totals(self.metadata()).bytes, idle, state.sizes, self.nodesize)
    }

    /// Promises metadata space for `bytes` of changed blocks on top of everything promised and dirty so far.
    /// `Ok(None)`: not now; a commit may help, and another one if others were faster. [`TreeError::NoSpace`]: it does
    /// not.
    pub(crate) fn reserve_metadata(
        &self,
        store: &Store,
        load: Load,
        bytes: u64,
        urgency: Urgency,
    ) -> Result<Option<MetadataReservation>, TreeError> {
        Rank::SpaceLoad.assert_free();
        loop {
            let required = {
                let mut state = self.lock();
                let (required, available) = self.balance(&state, load, bytes, urgency);
                if available < required {
                    match self.shortage(&state, load, bytes) {
                        Shortage::Commit => return Ok(None),
                        Shortage::Chunk => match self.make_chunk(store, &mut state, self.metadata()) {
                            Ok(()) => continue,
                            Err(_) if self.may_be_freed(&state, load) => return Ok(None),
                            Err(_) if state.promised_metadata > 0 => {
                                self.wait_for_a_promise(state);
                                continue;
                            }
                            Err(_) if self.can_do_alone(&state, load, bytes, urgency) => {
                                state.promised_metadata += bytes;
                                return Ok(Some(MetadataReservation { bytes }));
                            }
                            Err(error) => return Err(error),
                        },
                    }
                }
                if state.totals(self.metadata()).looked_up >= required || !state.has_unknown(self.metadata())
                {
                    state.promised_metadata += bytes;
                    return Ok(Some(MetadataReservation { bytes }));
                }
                required
            };
            self.look_up_until(store, self.metadata(), required)?;
        }
    }

    /// Waits until a promise is taken back, if there are any: what was promised, and is not needed, may do for others.
    /// Whether there were.
    pub(crate) fn wait_for_others(&self) -> bool {
        let state = self.lock();
        let has_others = state.promised_metadata > 0;
        if has_others {
            self.wait_for_a_promise(state);
        }
        has_others
    }

    /// Operations end, and none waits here while it holds a promise.
    fn wait_for_a_promise(&self, mut state: MutexGuard<'_, State>) {
        state.waiting_for_promises += 1;
        let mut state = self.promise_ended.wait(state);
        state.waiting_for_promises -= 1;
    }

    /// Bytes that must be available, and bytes that are.
    fn balance(&self, state: &State, load: Load, bytes: u64, urgency: Urgency) -> (u64, u64) {
        let kept = self.kept_back(state, load.trees);
        let kept = match urgency {
            Urgency::Normal => kept.bytes(),
            Urgency::Freeing => kept.commit + kept.rescue,
            Urgency::Rescue => kept.commit,
        };
        let promised_data = if self.is_mixed { state.promised_data } else { 0 };
        let available = state.totals(self.metadata()).available.saturating_sub(promised_data);
        (self.needed(state, load, bytes) + kept, available)
    }

    /// Returns true if there is room for one operation and the commit after it, and a little more, when nothing else
    /// runs: others may have filled the pool further than is done here.
    fn can_do_alone(&self, state: &State, load: Load, bytes: u64, urgency: Urgency) -> bool {
        let (required, available) = self.balance(state, load, bytes, urgency);
        let saved = self.kept_back(state, load.trees).commit - COMMIT_BLOCKS_MIN * self.nodesize;
        urgency != Urgency::Normal && available >= required - saved
    }

    /// Remedy for a shortage: a commit if things are pinned or changed, and a good part of the space is left that no
    /// item accounts for. Else a chunk is better than commit after commit.
    fn shortage(&self, state: &State, load: Load, bytes: u64) -> Shortage {
        let totals = state.totals(self.metadata());
        let kept = self.kept_back(state, load.trees);
        let after = totals.bytes.saturating_sub(totals.used + load.dirty * self.nodesize);
        let idle = Load { dirty: 0, references: 0, trees: load.trees };
        let wanted = self.needed(state, idle, bytes) + kept.bytes() + totals.bytes / 8;
        if self.may_be_freed(state, load) && after >= wanted { Shortage::Commit } else { Shortage::Chunk }
    }

    /// Returns true if a commit changes anything about the available space.
    fn may_be_freed(&self, state: &State, load: Load) -> bool {
        state.totals(self.metadata()).pinned > 0 || load.dirty > 0 || load.references > 0
    }

    /// Looks up free space until [`allocate_blocks`](Self::allocate_blocks) can serve everything that is changed so
    /// far: call it before each round of a commit, with no tree locked, for it reads trees.
    pub(crate) fn prepare(&self, store: &Store, load: Load) -> Result<(), TreeError> {
        let (needed, commit) = {
            let state = self.lock();
            (self.needed(&state, load, 0), self.kept_back(&state, load.trees).commit)
        };
        self.look_up_until(store, Content::System, u64::MAX)?;
        self.look_up_until(store, self.metadata(), needed.saturating_add(commit))
    }
}

impl State {
    /// Returns true if there is a group with room that is not looked up.
    fn has_unknown(&self, content: Content) -> bool {
        let totals = self.totals(content);
        totals.looked_up < totals.available
    }
}
