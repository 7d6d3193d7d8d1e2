//! Free ranges for extents that are written together.

use super::{SECTOR, World, fill};
use crate::space::data::{RangeLengths, ReservedExtent};
use brindle_ondisk::to_usize;
use brindle_policy::writeback::DataPlace;

const MIB: u64 = 1 << 20;

impl World {
    /// Takes a range for a number of extents of one sector.
    fn take_series(&self, extents: u64) -> ReservedExtent<'_> {
        let all = extents * SECTOR;
        self.take(RangeLengths { least: SECTOR, first: SECTOR, all, ahead: all })
    }

    fn take(&self, lengths: RangeLengths) -> ReservedExtent<'_> {
        self.pool.reserve_data(lengths.all).expect("there is room");
        let range = self.pool.reserve_range_on(DataPlace::Bulk, lengths).expect("promised");
        self.pool.release_data(lengths.all - range.length);
        range
    }

    fn chunks(&self) -> usize {
        self.pool.volume().chunks().len()
    }
}

#[test]
fn a_series_takes_one_range_but_leaves_long_ones_where_they_are_few() {
    let (mut world, _) = fill("single", SECTOR, SECTOR);
    let count = world.extents.len();
    // Holes of a sector, of two, and of six.
    let is_hole = |index: usize| match index * 4 / count {
        0 => index % 2 == 0,
        1 => index % 4 < 2,
        2 => index % 8 < 6,
        _ => false,
    };
    (0..count)
        .filter(|index| is_hole(*index))
        .for_each(|index| world.shrink(index).expect("files can be deleted"));
    // A long one.
    let long = to_usize(6 * MIB / SECTOR);
    let middle = count * 7 / 8;
    (middle..middle + long).for_each(|index| world.shrink(index).expect("files can be deleted"));
    world.commit();
    world.commit();
    world.reopen();
    let chunks = world.chunks();
    let mut series = Vec::new();
    loop {
        let next = world.take_series(96);
        if next.length <= 2 * SECTOR {
            break;
        }
        assert!(next.length <= 8 * SECTOR, "no long range is taken: {}", next.length);
        series.push(next);
    }
    assert!(series.len() > 100, "{}", series.len());
    assert_eq!(series[0].length, 6 * SECTOR, "a sixteenth of it just fits in");
    let extent = world.take(RangeLengths::of_extent(SECTOR, MIB));
    assert_eq!(extent.length, MIB, "a long extent lies in the long range");
    assert_eq!(world.chunks(), chunks, "no chunk is made for a series");
    drop((series, extent));
    // Nearly all free space is in long ranges again.
    for index in (0..count).filter(|index| !is_hole(*index) && !(middle..middle + long).contains(index)) {
        world.shrink(index).expect("files can be deleted");
    }
    world.commit();
    world.commit();
    world.reopen();
    let mut whole = world.take_series(96);
    assert_eq!(whole.length, 96 * SECTOR, "one range for all");
    let first = whole.cut_front(SECTOR);
    assert_eq!((first.start + SECTOR, whole.length), (whole.start, 95 * SECTOR));
    drop((first, whole));
    world.space().verify();
    assert_eq!(world.pool.space_summary().expect("writable").promised_data_bytes, 0);
    world.check();
}
