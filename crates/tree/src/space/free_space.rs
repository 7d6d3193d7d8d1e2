//! The items of the free space tree: how the free ranges of one block group are written down.
//!
//! A block group has an info item, and then either an item for each free range or, if those would take more room,
//! bitmaps of one bit a sector. The change from one to the other has some slack, so that a block group does not go
//! to and fro.

use crate::error::TreeError;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::item::FreeSpaceInfo;
use brindle_ondisk::{Defect, Item, Key, KeyType, ObjectId, RootId, to_u64, to_usize};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// The size of a whole bitmap in bytes (`BTRFS_FREE_SPACE_BITMAP_SIZE`).
const BITMAP_BYTES: u64 = 256;
/// Bytes that an item's header takes of a leaf.
const ITEM_HEADER_BYTES: u64 = 25;
/// Hysteresis: number of ranges below the threshold for bitmaps at which to change back.
const SLACK: u64 = 100;
/// `BTRFS_FREE_SPACE_USING_BITMAPS`.
const USING_BITMAPS: u32 = 1;

/// An item of the free space tree.
pub(crate) type FreeSpaceItem = (Key, Vec<u8>);

/// The free ranges of a block group, and how they are written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeSpace {
    pub(crate) ranges: IntervalSet<u64>,
    pub(crate) uses_bitmaps: bool,
}

/// The range of a block group, and the unit of its bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) sectorsize: u64,
}

impl Bounds {
    /// Bytes that a bitmap covers.
    fn bitmap_span(&self) -> u64 {
        self.sectorsize * 8 * BITMAP_BYTES
    }

    /// With more ranges than the second, bitmaps are used; with fewer than the first, they are no more.
    fn thresholds(&self) -> (u64, u64) {
        let bitmaps = self.length.div_ceil(self.bitmap_span());
        let high = bitmaps * (BITMAP_BYTES + ITEM_HEADER_BYTES) / ITEM_HEADER_BYTES;
        (high.saturating_sub(SLACK), high)
    }

    /// The first key of the block group in the free space tree.
    pub(crate) fn first_key(&self) -> Key {
        Key::new(ObjectId::new(self.start), KeyType(0), 0)
    }

    /// The last key that may belong to it.
    pub(crate) fn last_key(&self) -> Key {
        Key::new(ObjectId::new(self.start + (self.length - 1)), KeyType(u8::MAX), u64::MAX)
    }
}

impl FreeSpace {
    /// Reads the items of a block group.
    pub(crate) fn parse(bounds: Bounds, items: &[FreeSpaceItem]) -> Result<Self, TreeError> {
        let mut space = Self::default();
        for (key, data) in items {
            space
                .add(bounds, key, data)
                .map_err(|defect| TreeError::item(RootId::FREE_SPACE_TREE, *key, defect))?;
        }
        Ok(space)
    }

    fn add(&mut self, bounds: Bounds, key: &Key, data: &[u8]) -> Result<(), Defect> {
        let (start, length) = (key.objectid.get(), key.offset());
        let end = start.saturating_add(length);
        if start < bounds.start || end > bounds.start + bounds.length {
            return Err(Defect::new("free space reaches out of its block group, to", end));
        }
        match Item::parse(key, data)? {
            Item::FreeSpaceInfo(info) => self.uses_bitmaps = info.flags.get() & USING_BITMAPS != 0,
            Item::FreeSpaceExtent => self.ranges.insert(start..end),
            Item::FreeSpaceBitmap(bits) => {
                let sectors = (length / bounds.sectorsize).min(to_u64(bits.len()) * 8);
                for run in runs(bits, sectors) {
                    self.ranges
                        .insert(start + run.start * bounds.sectorsize..start + run.end * bounds.sectorsize);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes to bitmaps or back, if the number of ranges says so.
    pub(crate) fn choose_layout(&mut self, bounds: Bounds) {
        let (low, high) = bounds.thresholds();
        let count = to_u64(self.ranges.len());
        if count > high {
            self.uses_bitmaps = true;
        } else if count < low {
            self.uses_bitmaps = false;
        }
    }

    /// The items, in order.
    pub(crate) fn items(&self, bounds: Bounds) -> Vec<FreeSpaceItem> {
        let info = FreeSpaceInfo {
            extent_count: U32::new(u32::try_from(self.ranges.len()).unwrap_or(u32::MAX)),
            flags: U32::new(if self.uses_bitmaps { USING_BITMAPS } else { 0 }),
        };
        let key = |kind, start, length| Key::new(ObjectId::new(start), kind, length);
        let info_key = key(KeyType::FREE_SPACE_INFO, bounds.start, bounds.length);
        let mut items = vec![(info_key, info.as_bytes().to_vec())];
        if self.uses_bitmaps {
            let bitmaps = self.bitmaps(bounds);
            items.extend(
                bitmaps
                    .into_iter()
                    .map(|(span, bits)| (key(KeyType::FREE_SPACE_BITMAP, span.start, span.length()), bits)),
            );
        } else {
            let extents = self.ranges.iter();
            items.extend(
                extents.map(|span| (key(KeyType::FREE_SPACE_EXTENT, span.start, span.length()), Vec::new())),
            );
        }
        items
    }

    /// Bitmaps of the whole block group.
    fn bitmaps(&self, bounds: Bounds) -> Vec<(Interval, Vec<u8>)> {
        let span = bounds.bitmap_span();
        let places = (0..bounds.length).step_by(to_usize(span));
        let empty = places.map(|offset| {
            let length = span.min(bounds.length - offset);
            let bytes = (length / bounds.sectorsize).div_ceil(8);
            (Interval::new(bounds.start + offset, length), vec![0; to_usize(bytes)])
        });
        let mut bitmaps: Vec<(Interval, Vec<u8>)> = empty.collect();
        for range in self.ranges.iter() {
            let first = (range.start - bounds.start) / bounds.sectorsize;
            for sector in first..first + range.length() / bounds.sectorsize {
                let (bitmap, bit) = (sector / (8 * BITMAP_BYTES), sector % (8 * BITMAP_BYTES));
                bitmaps[to_usize(bitmap)].1[to_usize(bit / 8)] |= 1 << (bit % 8);
            }
        }
        bitmaps
    }
}

/// The runs of set bits among the first `count`.
fn runs(bits: &[u8], count: u64) -> Vec<Interval> {
    let mut runs: Vec<Interval> = Vec::new();
    for at in 0..count {
        if bits[to_usize(at / 8)] >> (at % 8) & 1 != 0 {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(Interval::new(at, 1)),
            }
        }
    }
    runs
}

/// Edits that turn items into other items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edits {
    pub(crate) removed: Vec<Key>,
    /// Items of the same size as before.
    pub(crate) changed: Vec<FreeSpaceItem>,
    pub(crate) added: Vec<FreeSpaceItem>,
}

/// Compares items in order.
pub(crate) fn difference(before: &[FreeSpaceItem], after: Vec<FreeSpaceItem>) -> Edits {
    let mut edits = Edits::default();
    let mut old = before.iter().peekable();
    for (key, data) in after {
        while let Some((gone, _)) = old.next_if(|(old, _)| *old < key) {
            edits.removed.push(*gone);
        }
        match old.next_if(|(old, _)| *old == key) {
            Some((_, same)) if *same == data => {}
            Some((_, other)) if other.len() == data.len() => edits.changed.push((key, data)),
            Some(_) => {
                edits.removed.push(key);
                edits.added.push((key, data));
            }
            None => edits.added.push((key, data)),
        }
    }
    edits.removed.extend(old.map(|(key, _)| *key));
    edits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SECTOR: u64 = 4096;

    fn bounds(start: u64, length: u64) -> Bounds {
        Bounds { start, length, sectorsize: SECTOR }
    }

    #[test]
    fn thresholds_are_those_of_the_room_that_items_take() {
        // A gigabyte has 128 bitmaps, of 281 bytes each with their headers.
        assert_eq!(bounds(0, 1 << 30).thresholds(), (1338, 1438));
        assert_eq!(bounds(0, 8 << 20).thresholds(), (0, 11));
    }

    #[test]
    fn layouts_change_with_slack() {
        let bounds = bounds(1 << 20, 1 << 30);
        let every_other =
            |count| (0..count).map(|n| Interval::new((1 << 20) + n * 2 * SECTOR, SECTOR)).collect();
        let mut space = FreeSpace { ranges: every_other(1438), uses_bitmaps: false };
        space.choose_layout(bounds);
        assert!(!space.uses_bitmaps);
        space.ranges = every_other(1439);
        space.choose_layout(bounds);
        assert!(space.uses_bitmaps);
        space.ranges = every_other(1338);
        space.choose_layout(bounds);
        assert!(space.uses_bitmaps);
        space.ranges = every_other(1337);
        space.choose_layout(bounds);
        assert!(!space.uses_bitmaps);
    }

    #[test]
    fn space_outside_of_its_group_is_refused() {
        let key = Key::new(ObjectId::new(4096), KeyType::FREE_SPACE_EXTENT, 8192);
        assert!(FreeSpace::parse(bounds(4096, 4096), &[(key, Vec::new())]).is_err());
    }

    proptest! {
        #[test]
        fn items_written_are_read_back(
            sectors in 1u64..5000,
            spans in prop::collection::vec((0u64..5000, 1u64..200), 0..40),
            uses_bitmaps in any::<bool>(),
            before in prop::collection::vec((0u64..5000, 1u64..200), 0..40),
        ) {
            let bounds = bounds(1 << 20, sectors * SECTOR);
            let clipped = |spans: Vec<(u64, u64)>| -> IntervalSet<u64> {
                let inside = spans.into_iter().filter(|(first, count)| first + count <= sectors);
                let span = |(first, count)| Interval::new((1 << 20) + first * SECTOR, count * SECTOR);
                inside.map(span).collect()
            };
            let space = FreeSpace { ranges: clipped(spans), uses_bitmaps };
            let items = space.items(bounds);
            prop_assert!(items.is_sorted_by_key(|(key, _)| *key));
            prop_assert_eq!(&FreeSpace::parse(bounds, &items).expect("parses"), &space);
            // Edits turn one into the other.
            let mut old = FreeSpace { ranges: clipped(before), uses_bitmaps: false };
            old.choose_layout(bounds);
            let old = old.items(bounds);
            let edits = difference(&old, items.clone());
            let mut tree: BTreeMap<Key, Vec<u8>> = old.into_iter().collect();
            for key in edits.removed {
                prop_assert!(tree.remove(&key).is_some());
            }
            for (key, data) in edits.changed {
                prop_assert_eq!(tree.insert(key, data.clone()).map(|old| old.len()), Some(data.len()));
            }
            for (key, data) in edits.added {
                prop_assert!(tree.insert(key, data).is_none());
            }
            prop_assert_eq!(tree.into_iter().collect::<Vec<_>>(), items);
        }
    }
}
