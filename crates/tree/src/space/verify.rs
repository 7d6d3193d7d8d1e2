//! Comparison of the sums that are kept of space with recounts.

use super::group::{Content, Group, PerContent, Totals};
use super::reserve::LogReserve;
use super::state::State;
use super::{FreeRanges, Space};
use brindle_interval::{Interval, IntervalSet, Point};
use brindle_ondisk::Physical;

impl Space {
    /// Panics unless all sums agree with recounts. No operation is under way.
    pub(crate) fn verify_at_rest(&self) {
        let waiting = self.readers.waiting();
        let state = self.lock();
        assert_eq!(state.held_back.len(), waiting, "releases that wait for readers");
        assert!(state.frozen.is_none(), "no transaction is being made durable");
        assert_eq!(state.promised_metadata, 0, "metadata promised while no operation is under way");
        state.verify();
    }
}

impl State {
    /// Panics unless groups, their sums, and the sets of ranges agree.
    pub(super) fn verify(&self) {
        let mut end = 0;
        let mut totals = PerContent::<Totals>::default();
        for group in self.groups() {
            assert!(group.start >= end, "{group} overlaps the one before");
            end = group.end();
            totals[group.content()].add(group.totals());
            group.verify();
            self.verify_pins(group);
        }
        assert!(self.next_chunk >= end, "a chunk may be made inside of another");
        for content in Content::ALL {
            assert_eq!(self.totals(content), totals[content], "kept and recounted sums of {content:?}");
        }
        self.verify_stripes();
        for set in self.pin_sets().chain([&self.to_discard]) {
            set.verify();
        }
    }

    fn pin_sets(&self) -> impl Iterator<Item = &IntervalSet<u64>> {
        [&self.pinned]
            .into_iter()
            .chain(self.frozen.as_deref())
            .chain(self.held_back.iter().map(|set| &**set))
    }

    /// Pinned ranges of a group are disjoint, add up to its count, and are not free.
    fn verify_pins(&self, group: &Group) {
        let mut pinned = self.pinned_within(group.interval());
        let bytes: u64 = pinned.iter().map(Interval::length).sum();
        assert_eq!(group.pinned, bytes, "{group}: kept and recounted bytes of pinned ranges");
        pinned.sort_unstable();
        assert_disjoint(&pinned, "pinned ranges");
        let free = group.free.iter().chain(group.log_reserve.as_ref().map(|reserve| &reserve.free));
        let both = pinned.iter().find(|span| free.clone().any(|free| free.intersects(**span)));
        assert_eq!(both, None, "{group}: a range is pinned and free");
    }

    /// Stripes of groups lie side by side on their devices, and on nothing that is free there.
    fn verify_stripes(&self) {
        for device in &self.devices {
            let of_group = |group: &Group| {
                let mut starts: Vec<u64> = group
                    .stripes
                    .iter()
                    .filter(|(devid, _)| *devid == device.devid)
                    .map(|(_, at)| *at)
                    .collect();
                starts.dedup();
                let bytes = group.stripe_bytes;
                starts
                    .into_iter()
                    .map(move |start| Interval::new(Physical::new(start), bytes))
                    .collect::<Vec<_>>()
            };
            let mut stripes: Vec<Interval<Physical>> = self.groups().flat_map(of_group).collect();
            stripes.sort_unstable();
            assert_disjoint(&stripes, "stripes of a device");
            device.free.verify();
            let both = stripes.iter().find(|span| device.free.intersects(**span));
            assert_eq!(both, None, "devid {}: a stripe lies where nothing is", device.devid);
        }
    }
}

impl Group {
    /// Panics unless the bytes of the group add up, and its free ranges are those that nothing holds.
    fn verify(&self) {
        let taken = self.used + self.reserved + self.pinned + self.excluded.bytes();
        assert!(taken <= self.length, "{self}: {taken} bytes are taken");
        self.excluded.verify();
        let Some(free) = &self.free else { return };
        free.verify();
        let kept = self.log_reserve.as_ref().map_or(0, |reserve| reserve.verify(free));
        assert_eq!(free.bytes() + kept, self.unused(), "{self}: free ranges, and bytes that hold nothing");
        let outside = free.iter().find(|span| span.start < self.start || span.end > self.end());
        assert_eq!(outside, None, "{self}: a free range of another group");
        let both = self.excluded.iter().find(|span| free.intersects(*span));
        assert_eq!(both, None, "{self}: the place of a superblock is free");
    }
}

impl LogReserve {
    /// Panics unless its free ranges lie in it, and no others do; returns their bytes.
    fn verify(&self, others: &FreeRanges) -> u64 {
        self.free.verify();
        assert_eq!(
            self.free.within(self.span).len(),
            self.free.len(),
            "{:?}: free ranges outside",
            self.span
        );
        assert!(
            !others.intersects(self.span),
            "{:?}: a free range for all in the reserve of the log",
            self.span
        );
        self.free.bytes()
    }
}

fn assert_disjoint<K: Point>(ranges: &[Interval<K>], which: &str) {
    let both = ranges.windows(2).find(|pair| pair[0].end > pair[1].start);
    assert_eq!(both, None, "{which} overlap");
}
