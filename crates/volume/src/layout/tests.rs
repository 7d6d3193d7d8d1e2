//! Geometry against a table dealt out cell by cell.

use super::*;
use crate::tests::support::{Cell, OwnedChunk, SHAPES, as_data, columns, deal, stripe};
use brindle_ondisk::BlockGroupType;
use proptest::prelude::*;
use std::collections::HashSet;

const STRIP: usize = brindle_ondisk::to_usize(STRIP_BYTES);
const SECTOR: usize = 4096;

fn layout_of(profile: Profile, stripes: usize, length: u64) -> Result<Layout, Defect> {
    let kind = BlockGroupType::DATA | profile.attributes().flag;
    let stripes = (0..stripes as u64).map(|devid| stripe(devid % 255, 0)).collect();
    Layout::new(&OwnedChunk::new(kind, length, stripes).view())
}

fn layout(profile: Profile, stripes: usize, rows: usize) -> Layout {
    let length = rows * columns(profile, stripes) * STRIP;
    layout_of(profile, stripes, length as u64).expect("good geometry")
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("small")
}

#[test]
fn every_sector_lies_where_it_was_dealt_and_nowhere_else() {
    for (profile, stripes) in SHAPES {
        let rows = 2 * stripes + 1;
        let (table, layout) = (deal(profile, stripes, rows), layout(profile, stripes, rows));
        let mut used = HashSet::new();
        for sector in 0..rows * columns(profile, stripes) * STRIP / SECTOR {
            let offset = sector * SECTOR;
            let run = layout.run_at(offset as u64);
            let wanted = Cell::Data(offset / STRIP);
            let direct: Vec<usize> = (0..layout.ways())
                .filter_map(|way| match layout.way(&run, way) {
                    Way::Direct(stripe) => Some(stripe),
                    Way::Rebuild(_) => None,
                })
                .collect();
            let holders = table.iter().filter(|cells| cells.contains(&wanted)).count();
            assert_eq!(direct.len(), holders, "{profile} of {stripes}");
            for stripe in direct {
                assert_eq!(table[stripe][index(run.stripe_offset) / STRIP], wanted, "{profile} of {stripes}");
                assert_eq!(index(run.stripe_offset) % STRIP, offset % STRIP);
                assert!(used.insert((stripe, run.stripe_offset)), "a place is used twice");
            }
        }
        let cells = table.iter().flatten().filter(|cell| as_data(**cell).is_some()).count();
        assert_eq!(used.len(), cells * (STRIP / SECTOR), "{profile} of {stripes}: a place of data is unused");
    }
}

#[test]
fn rebuilds_use_the_parity_of_their_row_and_never_what_they_take_to_be_lost() {
    for (profile, stripes) in SHAPES.into_iter().filter(|(profile, _)| profile.has_parity()) {
        let rows = 2 * stripes;
        let (table, layout) = (deal(profile, stripes, rows), layout(profile, stripes, rows));
        for strip in 0..rows * columns(profile, stripes) {
            let run = layout.run_at((strip * STRIP) as u64);
            let row = index(run.stripe_offset) / STRIP;
            let mut assumed = HashSet::new();
            for way in 1..layout.ways() {
                let Way::Rebuild(recovery) = layout.way(&run, way) else { panic!("way {way} is direct") };
                let sources: Vec<_> = layout.sources(&run, recovery).map(|(stripe, _)| stripe).collect();
                let lost: Vec<_> = layout.lost_stripes(&run, recovery).collect();
                assert!(assumed.insert(lost.clone()), "two ways are the same");
                assert_eq!(table[lost[0]][row], Cell::Data(strip));
                assert!(sources.iter().all(|stripe| !lost.contains(stripe)));
                let cells: Vec<_> = sources.iter().map(|stripe| table[*stripe][row]).collect();
                assert_eq!(cells.contains(&Cell::P), recovery != Recovery::FromQ);
                assert_eq!(cells.contains(&Cell::Q), recovery != Recovery::FromP);
                let data = cells.iter().filter(|cell| as_data(**cell).is_some()).count();
                let lost_data = lost.iter().filter(|s| as_data(table[**s][row]).is_some()).count();
                assert_eq!(data + lost_data, columns(profile, stripes));
            }
        }
    }
}

#[test]
fn survivable_losses_follow_from_the_table() {
    for (profile, stripes) in SHAPES {
        let (table, layout) = (deal(profile, stripes, stripes), layout(profile, stripes, stripes));
        for lost in 0..1u32 << stripes {
            let is_lost = |stripe: usize| lost >> stripe & 1 != 0;
            let left = |cell: &Cell| (0..stripes).any(|s| !is_lost(s) && table[s].contains(cell));
            let parity = usize::from(profile.attributes().nparity);
            let all_left = table.iter().flatten().all(left);
            let expected = if parity > 0 { index(lost.count_ones().into()) <= parity } else { all_left };
            assert_eq!(layout.survives(is_lost), expected, "{profile} of {stripes} without {lost:b}");
        }
    }
}

#[test]
fn nonsense_has_no_layout() {
    let strip = STRIP_BYTES;
    assert!(layout_of(Profile::Single, 0, strip).is_err());
    assert!(layout_of(Profile::Raid1, 3, strip).is_err());
    assert!(layout_of(Profile::Raid10, 3, strip).is_err());
    assert!(layout_of(Profile::Raid5, 1, strip).is_err());
    assert!(layout_of(Profile::Raid6, 2, strip).is_err());
    assert!(layout_of(Profile::Raid6, 258, 256 * strip).is_err());
    assert!(layout_of(Profile::Raid6, 257, 255 * strip).is_ok());
    assert!(layout_of(Profile::Raid0, 3, strip).is_err());
    assert!(layout_of(Profile::Single, 1, 0).is_err());
    let mut other_strip = OwnedChunk::new(BlockGroupType::DATA, strip, vec![stripe(1, 0)]);
    other_strip.header.stripe_len.set(4096);
    assert!(Layout::new(&other_strip.view()).is_err());
}

proptest! {
    /// Offsets of devices of petabytes; also, a run ends where its strip does.
    #[test]
    fn runs_follow_each_other(shape in 0..SHAPES.len(), start in 0..1u64 << 50) {
        let (profile, stripes) = SHAPES[shape];
        let layout = layout(profile, stripes, 1);
        let run = layout.run_at(start);
        prop_assume!(run.length != u64::MAX);
        prop_assert_eq!((start + run.length) % STRIP_BYTES, 0);
        let last = layout.run_at(start + run.length - 1);
        prop_assert_eq!((last.row, last.column), (run.row, run.column));
        prop_assert_eq!(last.stripe_offset, run.stripe_offset + run.length - 1);
        let next = layout.run_at(start + run.length);
        prop_assert_ne!((next.row, next.column), (run.row, run.column));
    }
}
