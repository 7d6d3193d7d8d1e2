//! Devices: which parts of them belong to no chunk.

use brindle_interval::{ByLength, Interval, IntervalSet};
use brindle_ondisk::{DevId, Physical, Uuid};
use brindle_policy::placement::{AllocationHint, DeviceSummary, PlacementClass, STRIP_BYTES};
use brindle_volume::WritableDeviceStatus;

/// Nothing is allocated before this on any device (`BTRFS_DEVICE_RANGE_RESERVED`).
const RESERVED_BYTES: u64 = 1 << 20;

/// Ranges of a device that belong to no chunk.
pub(super) type Unallocated = IntervalSet<Physical, ByLength<Physical>>;

/// A device that chunks may be placed on.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) devid: DevId,
    pub(super) uuid: Uuid,
    pub(super) class: PlacementClass,
    pub(super) hint: AllocationHint,
    /// The user's class, for as long as the pool is open.
    pub(super) chosen: Option<PlacementClass>,
    /// Present or future type in its device item.
    pub(super) stored_type: u64,
    pub(super) total_bytes: u64,
    /// Future `bytes_used` of its device item.
    pub(super) used_bytes: u64,
    /// Ranges that belong to no chunk, and may be taken.
    pub(super) free: Unallocated,
    /// Nothing is taken from here on: the device is about to end here, or (0) to leave.
    pub(super) end: u64,
    /// Ranges after that which belong to no chunk.
    pub(super) withheld: Unallocated,
    /// The device item does not say so yet.
    pub(super) is_changed: bool,
}

impl Device {
    /// Facts for placement. Only whole strips count.
    pub(super) fn summary(&self) -> DeviceSummary {
        let whole = |length: u64| length - length % STRIP_BYTES;
        DeviceSummary {
            devid: self.devid,
            class: self.class,
            hint: self.hint,
            // Of the pool's classes, which the device does not know.
            rank: 0,
            max_available_bytes: self.free.longest().map_or(0, |longest| whole(longest.length())),
            total_available_bytes: self.free.bytes(),
        }
    }

    /// Takes `length` bytes from the first free range that has them.
    pub(super) fn take(&mut self, length: u64) -> Option<Physical> {
        let start = self.free.iter().find(|free| free.length() >= length)?.start;
        self.free.remove(Interval::new(start, length));
        self.used_bytes += length;
        self.is_changed = true;
        Some(start)
    }

    /// A range belongs to no chunk (any more), and that is durable.
    pub(super) fn release(&mut self, span: Interval<Physical>) {
        let end = Physical::new(self.end);
        self.free.insert(Interval { end: span.end.min(end), ..span });
        self.withheld.insert(Interval { start: span.start.max(end), ..span });
    }

    /// Nothing is taken from an offset on, and what is free before it may be.
    pub(super) fn set_end(&mut self, end: u64) {
        self.end = end;
        let (free, withheld) = (std::mem::take(&mut self.free), std::mem::take(&mut self.withheld));
        for span in free.iter().chain(withheld.iter()) {
            self.release(span);
        }
    }

    /// Returns true if a chunk may lie on it, were there room.
    pub(super) fn takes_chunks(&self) -> bool {
        self.end > RESERVED_BYTES
    }

    /// A device extent belongs to no chunk any more; its range is free only when that is durable.
    pub(super) fn give_up(&mut self, length: u64) {
        self.used_bytes = self.used_bytes.saturating_sub(length);
        self.is_changed = true;
    }
}

/// Ranges of a device that belong to no chunk, given those that do.
pub(super) fn unallocated(total_bytes: u64, extents: &[Interval<Physical>]) -> Unallocated {
    let mut free = Unallocated::of(Physical::new(RESERVED_BYTES)..Physical::new(total_bytes));
    for extent in extents {
        free.remove(*extent);
    }
    free
}

/// A device, of which these parts belong to chunks.
pub(super) fn device_of(
    status: &WritableDeviceStatus,
    extents: &[Interval<Physical>],
    chosen: Option<PlacementClass>,
) -> Device {
    let item = status.item;
    let total_bytes = item.total_bytes.get().min(status.size_bytes);
    Device {
        devid: item.devid,
        uuid: item.uuid,
        class: status.class,
        hint: status.hint,
        chosen,
        stored_type: item.device_type.get(),
        total_bytes,
        used_bytes: item.bytes_used.get(),
        free: unallocated(total_bytes, extents),
        end: total_bytes,
        withheld: Unallocated::default(),
        is_changed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    const MIB: u64 = 1 << 20;

    fn interval(start: u64, length: u64) -> Interval<Physical> {
        Interval::new(Physical::new(start), length)
    }

    fn ranges(free: &Unallocated) -> Vec<Range<u64>> {
        free.iter().map(|range| range.start.get()..range.end.get()).collect()
    }

    fn device(total_bytes: u64, extents: &[Interval<Physical>]) -> Device {
        Device {
            devid: DevId::new(1),
            uuid: Uuid::default(),
            class: PlacementClass::Bulk,
            hint: AllocationHint::default(),
            chosen: None,
            stored_type: 0,
            total_bytes,
            used_bytes: extents.iter().map(Interval::length).sum(),
            free: unallocated(total_bytes, extents),
            end: total_bytes,
            withheld: Unallocated::default(),
            is_changed: false,
        }
    }

    #[test]
    fn the_beginning_is_reserved_and_what_belongs_to_chunks_is_not_free() {
        let extents = [interval(4 * MIB, 8 * MIB), interval(90 * MIB, 10 * MIB)];
        let free = unallocated(100 * MIB, &extents);
        assert_eq!(ranges(&free), [MIB..4 * MIB, 12 * MIB..90 * MIB]);
        assert!(unallocated(MIB / 2, &[]).is_empty());
    }

    #[test]
    fn the_first_hole_that_is_large_enough_is_taken() {
        let mut device = device(100 * MIB, &[interval(4 * MIB, 8 * MIB)]);
        assert_eq!(device.take(4 * MIB), Some(Physical::new(12 * MIB)));
        assert_eq!(device.take(2 * MIB), Some(Physical::new(MIB)));
        assert_eq!(device.take(100 * MIB), None);
        assert_eq!(device.used_bytes, 14 * MIB);
        assert_eq!(device.summary().max_available_bytes, 84 * MIB);
    }

    #[test]
    fn nothing_is_taken_behind_the_end_that_a_device_is_to_have() {
        let mut device = device(100 * MIB, &[interval(4 * MIB, 8 * MIB)]);
        device.set_end(50 * MIB);
        assert_eq!(device.summary().max_available_bytes, 38 * MIB);
        device.release(interval(40 * MIB, 20 * MIB));
        device.release(interval(70 * MIB, MIB));
        assert_eq!((device.free.bytes(), device.withheld.bytes()), (41 * MIB, 50 * MIB));
        device.set_end(0);
        assert_eq!((device.take(MIB), device.takes_chunks()), (None, false));
        device.set_end(100 * MIB);
        assert_eq!(ranges(&device.free), [MIB..4 * MIB, 12 * MIB..100 * MIB]);
        assert!(device.withheld.is_empty());
    }
}
