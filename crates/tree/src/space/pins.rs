//! Freed space: pinned until what freed it is durable and no reader holds it any more, then free, and (if that is wanted) discarded.

use super::group::Group;
use super::{Space, interval};
use crate::options::DiscardMode;
use crate::store::Store;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::{Logical, Physical};
use std::sync::Arc;

/// Space freed in a transaction, to be used again only when it is durable.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    ranges: Arc<IntervalSet<u64>>,
    /// Block groups that are no more; their chunks are to go.
    removed: Vec<Group>,
}

impl Space {
    /// An extent got its item in the extent tree; it was allocated by [`allocate_blocks`](Self::allocate_blocks) or
    /// [`reserve_extent`](Self::reserve_extent).
    pub(crate) fn extent_recorded(&self, start: Logical, length: u64) {
        let span = interval(start, length);
        self.lock().change_at(span, |group| {
            let reserved =
                group.reserved.checked_sub(span.length()).ok_or("it gets an item, and was never taken")?;
            group.reserved = reserved;
            group.used += span.length();
            group.delta.take(span);
            Ok(())
        });
    }

    /// Pins the space of an extent that is about to lose its item in the extent tree (`was_recorded`; call it before
    /// the item is removed, so that a lookup of free space never takes it for free), or is given up without ever
    /// having had one.
    pub(crate) fn extent_freed(&self, start: Logical, length: u64, was_recorded: bool) {
        let span = interval(start, length);
        let mut state = self.lock();
        if !state.pinned_within(span).is_empty() {
            state.damage.get_or_insert((span, "it is freed twice"));
            return;
        }
        state.change_at(span, |group| {
            let amount = if was_recorded { &mut group.used } else { &mut group.reserved };
            *amount = amount
                .checked_sub(span.length())
                .ok_or("it is freed, and more than its block group has in use")?;
            group.pinned += span.length();
            if was_recorded {
                group.delta.free(span);
            }
            Ok(())
        });
        state.pinned.insert(span);
    }

    /// The transaction is frozen: what it has freed. It stays pinned, apart from what the next one frees.
    pub(crate) fn freeze(&self) -> Pinned {
        let mut state = self.lock();
        let ranges = Arc::new(std::mem::take(&mut state.pinned));
        assert!(state.frozen.is_none(), "one transaction is made durable at a time");
        state.frozen = Some(Arc::clone(&ranges));
        let fresh: Vec<u64> =
            state.groups().filter(|group| group.is_fresh).map(|group| group.start).collect();
        for start in fresh {
            state.change(start, |group| group.is_fresh = false);
        }
        Pinned { ranges, removed: std::mem::take(&mut state.removed) }
    }

    /// Returns true if the block groups are those of the last commit.
    pub(crate) fn has_committed_layout(&self) -> bool {
        let state = self.lock();
        let is_settled = state.removed.is_empty() && state.to_remove.is_empty();
        let is_written = state.unwritten_chunks.is_empty() && state.write_back.given_up.is_empty();
        is_settled && is_written && !state.groups().any(|group| group.is_fresh)
    }

    /// The transaction has no superblocks of its own: the next one frees what it has freed.
    pub(crate) fn keep_pinned(&self, pinned: Pinned) {
        let mut state = self.lock();
        state.frozen = None;
        for span in pinned.ranges.iter() {
            state.pinned.insert(span);
        }
        state.removed.extend(pinned.removed);
    }

    /// Space that a durable transaction has freed waits for readers, still pinned.
    pub(super) fn hold_back(&self, pinned: &Pinned) {
        let mut state = self.lock();
        state.frozen = None;
        state.held_back.push_back(Arc::clone(&pinned.ranges));
    }

    /// The oldest of what was [held back](Self::hold_back) is free.
    pub(super) fn release_pins(&self, store: &Store, pinned: Pinned) {
        for group in &pinned.removed {
            store.volume().remove_chunk(Logical::new(group.start));
        }
        let mut state = self.lock();
        let oldest = state.held_back.pop_front();
        assert!(oldest.is_some_and(|ranges| Arc::ptr_eq(&ranges, &pinned.ranges)), "releases are in order");
        for span in pinned.ranges.iter() {
            let mut rest = Some(span);
            while let Some((start, part, behind)) = rest.and_then(|span| state.split(span)) {
                let is_empty = state.change(start, |group| {
                    group.pinned = group.pinned.saturating_sub(part.length());
                    group.add_free(part);
                    group.is_empty()
                });
                state.may_remove |= is_empty == Some(true);
                rest = behind;
            }
            if self.discard == DiscardMode::Async {
                state.to_discard.insert(span);
            }
        }
        for group in pinned.removed {
            let mut stripes = group.stripes.clone();
            stripes.dedup();
            for (devid, start) in stripes {
                let extent = Interval::new(Physical::new(start), group.stripe_bytes);
                if let Some(device) = state.devices.iter_mut().find(|device| device.devid == devid) {
                    device.release(extent);
                }
                if self.discard == DiscardMode::Async {
                    state.to_discard_on_devices.push((devid, extent));
                }
            }
            state.to_discard.remove(group.interval());
        }
        state.forget_ranges();
    }
}
