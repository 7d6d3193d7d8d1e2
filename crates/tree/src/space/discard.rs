//! Discard of free space. A range is taken while its device discards it, so that nothing is written to it meanwhile.

use super::Space;
use super::group::Group;
use crate::error::TreeError;
use crate::store::Store;
use brindle_interval::Interval;
use brindle_ondisk::{DevId, Logical, Physical};
use std::ops::Range;

/// The longest range that is taken at once, in bytes.
const STEP_BYTES: u64 = 256 << 20;

impl Space {
    /// Discards space that was freed ([`DiscardMode::Async`](crate::DiscardMode)), at most about `budget_bytes`;
    /// returns the bytes discarded. To be called from time to time, with no tree locked and outside of a transaction.
    pub(crate) fn discard_step(&self, store: &Store, budget_bytes: u64) -> Result<u64, TreeError> {
        let mut done = 0;
        while done < budget_bytes {
            let next = self.lock().to_discard.iter().next();
            let Some(span) = next else { break };
            let span = Interval::new(span.start, span.length().min(STEP_BYTES));
            self.lock().to_discard.remove(span);
            self.discard(store, span, 0, &|| true)?;
            done += span.length();
        }
        while done < budget_bytes {
            let Some((devid, span)) = self.lock().to_discard_on_devices.pop() else { break };
            self.discard_unallocated(store, devid, span, 0);
            done += span.length();
        }
        Ok(done)
    }

    /// Discards every free range of at least `min_bytes` within a range of logical addresses (`fstrim`). Space that
    /// belongs to no chunk has no logical address: it is discarded if the range holds every chunk. Returns the number
    /// of device bytes, which are fewer if `goes_on` says no. Not to be called with a tree locked.
    pub(crate) fn trim(
        &self,
        store: &Store,
        range: Range<Logical>,
        min_bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, TreeError> {
        self.lock().give_back_log_reserve();
        let asked = Interval { start: range.start.get(), end: range.end.get() };
        let groups: Vec<Interval> = self.lock().groups().map(Group::interval).collect();
        let is_all = groups.iter().all(|group| group.intersection(&asked) == *group);
        let mut done = 0;
        for part in groups.iter().map(|group| group.intersection(&asked)).filter(|part| !part.is_empty()) {
            done += self.discard(store, part, min_bytes, goes_on)?;
        }
        if !is_all {
            return Ok(done);
        }
        let unallocated: Vec<(DevId, Interval<Physical>)> = {
            let state = self.lock();
            let ranges = state.devices.iter().map(|device| (device.devid, &device.free));
            ranges.flat_map(|(devid, free)| free.iter().map(move |span| (devid, span))).collect()
        };
        for (devid, span) in unallocated.into_iter().take_while(|_| goes_on()) {
            done += self.discard_unallocated(store, devid, span, min_bytes);
        }
        Ok(done)
    }
}

impl Space {
    /// Discards the free parts of a range, each of at least `min_bytes`.
    fn discard(
        &self,
        store: &Store,
        span: Interval,
        min_bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, TreeError> {
        let mut done = 0;
        let mut rest = Some(span);
        while let Some((start, part, behind)) = rest.and_then(|span| self.lock().split(span)) {
            rest = behind;
            self.look_up(store, start)?;
            let free = {
                let state = self.lock();
                let free =
                    state.group(start).filter(|group| group.writable).and_then(|group| group.free.as_ref());
                free.map(|free| free.within(part)).unwrap_or_default()
            };
            for free in free.into_iter().filter(|free| free.length() >= min_bytes) {
                let mut at = free.start;
                while at < free.end && goes_on() {
                    let step = Interval::new(at, STEP_BYTES.min(free.end - at));
                    done += self.discard_taken(store, start, step);
                    at = step.end;
                }
            }
        }
        Ok(done)
    }

    /// Discards what of a range of one group is free still.
    fn discard_taken(&self, store: &Store, group: u64, span: Interval) -> u64 {
        let taken = self.lock().change(group, |group| {
            let next = group.next;
            let free = group.free.as_ref().map(|free| free.within(span)).unwrap_or_default();
            for part in &free {
                group.reserve(*part);
            }
            group.next = next;
            free
        });
        let mut done = 0;
        for part in taken.unwrap_or_default() {
            done += store.volume().discard(Logical::new(part.start), part.length());
            self.lock().change(group, |group| group.unreserve(part));
        }
        done
    }

    /// Discards what of a range of a device belongs to no chunk.
    fn discard_unallocated(
        &self,
        store: &Store,
        devid: DevId,
        span: Interval<Physical>,
        min_bytes: u64,
    ) -> u64 {
        let take = |parts: &mut Vec<Interval<Physical>>| {
            let mut state = self.lock();
            if let Some(device) = state.devices.iter_mut().find(|device| device.devid == devid) {
                *parts = device.free.remove(span);
            }
        };
        let mut parts = Vec::new();
        take(&mut parts);
        let mut done = 0;
        for part in parts {
            if part.length() >= min_bytes {
                done += store.volume().discard_device(devid, part.start.get(), part.length());
            }
            let mut state = self.lock();
            if let Some(device) = state.devices.iter_mut().find(|device| device.devid == devid) {
                device.release(part);
            }
        }
        done
    }
}
