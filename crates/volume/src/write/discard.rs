//! Giving back the space of what is no longer used.

use crate::Volume;
use crate::chunk::Chunk;
use crate::layout::{STRIP_BYTES, Way};
use crate::pool::Pool;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::{DevId, Logical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use std::collections::BTreeMap;
use std::ops::Range;

impl Volume {
    /// Tells the devices that a range is not used any more, as well as it can be done; answers how many bytes
    /// of them were given back. With parity only whole rows are: the others still need their parity.
    pub fn discard(&self, logical: Logical, length: u64) -> u64 {
        if !self.is_writable() {
            return 0;
        }
        let pool = self.snapshot();
        let _no_repairs = self.locks.writer();
        let mut places: BTreeMap<usize, IntervalSet<u64>> = BTreeMap::new();
        let mut done = 0;
        while done < length {
            let Some(at) = logical.checked_add(done) else { break };
            let Some(chunk) = pool.chunks.find(at) else { break };
            let Some(offset) = chunk.offset_of(at) else { break };
            let now = (length - done).min(chunk.length - offset);
            if pool.is_writable(chunk) {
                add_places(&pool, chunk, offset..offset + now, &mut places);
            }
            done += now;
        }
        places.into_iter().map(|(device, ranges)| discard_on(&pool, device, ranges)).sum()
    }
}

impl Volume {
    /// Tells a device that a range of it, which belongs to no chunk, is not used; answers how many bytes of it were
    /// given back.
    pub fn discard_device(&self, devid: DevId, start: u64, length: u64) -> u64 {
        if !self.is_writable() {
            return 0;
        }
        let pool = self.snapshot();
        let is_it = |device: &crate::device::PoolDevice| device.devid == devid && device.writable.is_some();
        let device = pool.devices.iter().position(is_it);
        let range = Interval::new(start, length);
        device.map_or(0, |device| discard_on(&pool, device, IntervalSet::of(range)))
    }
}

/// Adds the locations of a range of a chunk.
fn add_places(pool: &Pool, chunk: &Chunk, range: Range<u64>, places: &mut BTreeMap<usize, IntervalSet<u64>>) {
    let mut add = |stripe: usize, start: u64, length: u64| {
        let place = &chunk.stripes[stripe];
        if pool.devices[place.device].writable.is_some() {
            let start = place.physical.get() + start;
            places.entry(place.device).or_default().insert(Interval::new(start, length));
        }
    };
    if chunk.layout.has_parity() {
        let row_bytes = chunk.layout.columns() * STRIP_BYTES;
        let rows = range.start.div_ceil(row_bytes)..range.end / row_bytes;
        if rows.start < rows.end {
            let length = (rows.end - rows.start) * STRIP_BYTES;
            (0..chunk.stripes.len()).for_each(|stripe| add(stripe, rows.start * STRIP_BYTES, length));
        }
        return;
    }
    let mut at = range.start;
    while at < range.end {
        let run = chunk.layout.run_at(at);
        let length = run.length.min(range.end - at);
        for way in 0..chunk.layout.ways() {
            if let Way::Direct(stripe) = chunk.layout.way(&run, way) {
                add(stripe, run.stripe_offset, length);
            }
        }
        at += length;
    }
}

/// Superblocks stay, wherever they lie.
fn discard_on(pool: &Pool, device: usize, unused: IntervalSet<u64>) -> u64 {
    let Some(device) = &pool.devices[device].writable else { return 0 };
    let mut given_back = 0;
    for range in without_superblocks(unused).iter() {
        match device.discard(range.start, range.length()) {
            Ok(true) => given_back += range.length(),
            Ok(false) => {}
            Err(error) => tracing::warn!("{error}"),
        }
    }
    given_back
}

/// Ranges of a device without the places of superblocks.
fn without_superblocks(mut ranges: IntervalSet<u64>) -> IntervalSet<u64> {
    for superblock in SUPERBLOCK_OFFSETS {
        ranges.remove(Interval::new(superblock, SUPERBLOCK_SIZE as u64));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_are_never_discarded() {
        const MIB: u64 = 1 << 20;
        const COPY: u64 = 64 << 10;
        let left = |range: Range<u64>| -> Vec<(u64, u64)> {
            let left = without_superblocks(IntervalSet::of(range));
            left.iter().map(|left| (left.start, left.end)).collect()
        };
        assert_eq!(left(MIB..63 * MIB), [(MIB, 63 * MIB)]);
        assert_eq!(left(MIB..100 * MIB), [(MIB, 64 * MIB), (64 * MIB + 4096, 100 * MIB)]);
        assert_eq!(left(64 * MIB + 1..65 * MIB), [(64 * MIB + 4096, 65 * MIB)]);
        assert_eq!(left(64 * MIB..64 * MIB + 4096), []);
        assert_eq!(left(0..128 * MIB), [(0, COPY), (COPY + 4096, 64 * MIB), (64 * MIB + 4096, 128 * MIB)]);
    }
}
