use super::*;
use crate::tier::{TierChunk, TierDevice, TierStripe};
use PlacementClass::{Bulk, Fast};
use brindle_ondisk::item::{DirEntryHeader, FileExtentHeader, FileExtentRef, InodeItem};
use brindle_ondisk::{BlockGroupType, DevId, KeyType, Physical};
use zerocopy::{FromZeros, IntoBytes};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 64 << 10;

/// A fast data block group at 100 MiB, a bulk one at 200 MiB.
fn pool() -> TierPool {
    let device = |devid, class| TierDevice { devid: DevId::new(devid), class, total_bytes: 1 << 30 };
    let chunk = |at: u64, devid| TierChunk {
        logical: Logical::new(at * MIB),
        length_bytes: 100 * MIB,
        used_bytes: 0,
        kind: BlockGroupType::DATA,
        stripes: vec![TierStripe { devid: DevId::new(devid), physical: Physical::new(MIB) }],
        is_write_back: false,
    };
    TierPool {
        devices: vec![device(1, Fast), device(2, Bulk)],
        chunks: vec![chunk(200, 2), chunk(100, 1)],
        is_ours: true,
    }
}

/// Shows a file: its length, its mark, and its extents: where they begin, in MiB, and their length in bytes, stored and
/// compressed or not.
fn see(survey: &mut Survey, number: u64, size: u64, mark: &[u8], extents: &[(u64, u64, bool)]) {
    let key = |item_type, offset| Key::new(ObjectId::new(number), item_type, offset);
    let mut inode = InodeItem::new_zeroed();
    inode.size.set(size);
    survey.see(&key(KeyType::INODE_ITEM, 0), inode.as_bytes());
    if !mark.is_empty() {
        let mut header = DirEntryHeader::new_zeroed();
        header.data_len.set(u16::try_from(mark.len()).expect("short"));
        header.name_len.set(u16::try_from(MARK.len()).expect("short"));
        header.file_type = 8;
        let entry = [header.as_bytes(), MARK, mark].concat();
        survey.see(&key(KeyType::XATTR_ITEM, 1), &entry);
    }
    let mut offset = 0;
    for (at, length, is_compressed) in extents {
        let mut header = FileExtentHeader::new_zeroed();
        header.extent_type = 1;
        header.compression = u8::from(*is_compressed) * 3;
        let part = if *is_compressed { 128 << 10 } else { *length };
        header.ram_bytes.set(part);
        let mut extent = FileExtentRef::new_zeroed();
        extent.disk_bytenr = Logical::new(at * MIB);
        extent.disk_num_bytes.set(*length);
        extent.num_bytes.set(part);
        let item = [header.as_bytes(), extent.as_bytes()].concat();
        survey.see(&key(KeyType::EXTENT_DATA, offset), &item);
        offset += part;
    }
}

fn wrong(survey: &mut Survey) -> Vec<(u64, PlacementClass)> {
    survey.next_tree();
    survey.wrong().map(|extent| (extent.start.get() / MIB, extent.target)).collect()
}

#[test]
fn only_two_words_are_marks() {
    assert_eq!((tier_of_mark(b"fast"), tier_of_mark(b"bulk")), (Some(Fast), Some(Bulk)));
    assert_eq!((tier_of_mark(b""), tier_of_mark(b"Fast")), (None, None));
}

#[test]
fn length_and_mark_say_where_data_belongs() {
    let mut survey = Survey::new(&pool(), LIMIT, Logical::new(0));
    see(&mut survey, 256, 5000, b"", &[(110, 8192, false)]);
    see(&mut survey, 257, 5000, b"", &[(210, 8192, false)]);
    see(&mut survey, 258, 5000, b"bulk", &[(111, 8192, false)]);
    see(&mut survey, 259, MIB, b"", &[(112, MIB, false)]);
    see(&mut survey, 260, MIB, b"", &[(212, MIB, false)]);
    see(&mut survey, 261, MIB, b"fast", &[(213, MIB, false), (0, MIB, false)]);
    assert_eq!(wrong(&mut survey), [(111, Bulk), (112, Bulk), (210, Fast), (213, Fast)]);
    let amount = |extents, bytes| Amount { extents, bytes };
    assert_eq!(
        survey.tiers(),
        FileTiers {
            fast_in_place: amount(1, 8192),
            fast_on_bulk: amount(2, 8192 + MIB),
            bulk_on_fast: amount(2, 8192 + MIB),
        }
    );
    assert_eq!(survey.behind(), None);
}

#[test]
fn an_extent_has_the_best_tier_of_its_owners() {
    let mut survey = Survey::new(&pool(), LIMIT, Logical::new(0));
    see(&mut survey, 256, MIB, b"", &[(110, MIB, false), (210, MIB, false)]);
    survey.next_tree();
    see(&mut survey, 256, MIB, b"fast", &[(110, MIB, false), (210, MIB, false)]);
    survey.next_tree();
    see(&mut survey, 256, MIB, b"bulk", &[(110, MIB, false), (210, MIB, false)]);
    assert_eq!(wrong(&mut survey), [(210, Fast)]);
}

#[test]
fn files_small_only_compressed_or_with_preallocation_are_right_in_either_tier() {
    let mut survey = Survey::new(&pool(), LIMIT, Logical::new(0));
    let compressed = [(110, 8192, true), (210, 8192, true)];
    see(&mut survey, 256, 256 << 10, b"", &compressed);
    see(&mut survey, 257, 0, b"", &[(111, MIB, false), (211, MIB, false)]);
    assert_eq!(wrong(&mut survey), []);
    // More than the limit, compressed as well.
    let large: Vec<_> = (0..20).map(|number| (120 + number, 8192, true)).collect();
    see(&mut survey, 258, 20 << 17, b"", &large);
    assert_eq!(wrong(&mut survey).len(), 20);
}

#[test]
fn without_a_limit_only_marks_count_and_without_tiers_nothing_does() {
    let mut survey = Survey::new(&pool(), 0, Logical::new(0));
    see(&mut survey, 256, 5000, b"", &[(110, 8192, false), (210, 8192, false)]);
    assert_eq!(wrong(&mut survey), [(110, Bulk)]);
    for pool in
        [TierPool { is_ours: false, ..pool() }, TierPool { devices: pool().devices[..1].to_vec(), ..pool() }]
    {
        assert!(Survey::new(&pool, LIMIT, Logical::new(0)).is_idle());
    }
}

#[test]
fn memory_is_bounded_and_windows_see_every_extent_once() {
    let files = |survey: &mut Survey| {
        for number in (0..20).rev() {
            see(survey, 256 + number, MIB, b"", &[(110 + number, MIB, false)]);
        }
    };
    let (mut from, mut all, mut windows) = (Logical::new(0), Vec::new(), 0);
    loop {
        let mut survey = Survey::new(&pool(), LIMIT, from);
        survey.window = 7;
        files(&mut survey);
        let found = wrong(&mut survey);
        assert!(found.len() <= 7);
        all.extend(found);
        windows += 1;
        match survey.behind() {
            Some(behind) => from = behind,
            None => break,
        }
    }
    assert_eq!(windows, 3);
    assert_eq!(all, (110..130).map(|at| (at, Bulk)).collect::<Vec<_>>());
}

#[test]
fn it_is_said_why_data_has_no_tiers() {
    let why = |profile, fast, bulk| no_tiers_reason([profile], fast, bulk).map(|why| why.to_string());
    assert_eq!(why(Profile::Single, 1, 1), None);
    assert_eq!(why(Profile::Raid1, 2, 3), None);
    let said = |why: Option<String>| why.expect("there are too few devices");
    assert_eq!(said(why(Profile::Single, 0, 2)), "there are no fast devices, all are bulk");
    assert_eq!(said(why(Profile::Single, 2, 0)), "there are no bulk devices, all are fast");
    assert_eq!(said(why(Profile::Raid1, 1, 2)), "data of profile raid1 needs 2 fast devices, and there is 1");
    assert_eq!(said(why(Profile::Raid1, 2, 1)), "data of profile raid1 needs 2 bulk devices, and there is 1");
}
