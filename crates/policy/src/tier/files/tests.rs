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
    let device = |devid, class| TierDevice { devid: DevId::new(devid), class, rank: 0, total_bytes: 1 << 30 };
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
        ..TierPool::default()
    }
}

/// Shows a file: its length, its mark, and its extents: where they begin, in MiB, and their length in bytes, stored and
/// compressed or not.
fn see(survey: &mut Survey, number: u64, size: u64, mark: &[u8], extents: &[(u64, u64, bool)]) {
    let attributes: &[(&[u8], &[u8])] = if mark.is_empty() { &[] } else { &[(MARK, mark)] };
    see_with(survey, number, size, attributes, extents);
}

/// The same, with these attributes.
fn see_with(
    survey: &mut Survey,
    number: u64,
    size: u64,
    attributes: &[(&[u8], &[u8])],
    extents: &[(u64, u64, bool)],
) {
    let key = |item_type, offset| Key::new(ObjectId::new(number), item_type, offset);
    let mut inode = InodeItem::new_zeroed();
    inode.size.set(size);
    survey.see(&key(KeyType::INODE_ITEM, 0), inode.as_bytes());
    for (hash, (name, value)) in (1..).zip(attributes) {
        let mut header = DirEntryHeader::new_zeroed();
        header.data_len.set(u16::try_from(value.len()).expect("short"));
        header.name_len.set(u16::try_from(name.len()).expect("short"));
        header.file_type = 8;
        let entry = [header.as_bytes(), name, value].concat();
        survey.see(&key(KeyType::XATTR_ITEM, hash), &entry);
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
    survey.wrong().map(|extent| (extent.start.get() / MIB, extent.target.side)).collect()
}

#[test]
fn sides_and_names_of_classes_are_marks() {
    assert!(["fast", "bulk", "nvme"].iter().all(|mark| is_mark(mark.as_bytes())));
    assert!(["", "Fast", "two words"].iter().all(|mark| !is_mark(mark.as_bytes())));
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
            ..FileTiers::default()
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
    assert_eq!(why(Profile::Raid1, 1, 2), None, "one copy lies on the fast device");
    assert_eq!(said(why(Profile::Raid1, 1, 1)), "data of profile raid1 needs 2 fast devices, and there is 1");
    assert_eq!(
        said(why(Profile::Raid10, 1, 2)),
        "data of profile raid10 needs 2 fast devices, and there is 1"
    );
    assert_eq!(said(why(Profile::Raid1, 2, 1)), "data of profile raid1 needs 2 bulk devices, and there is 1");
}

/// Data of four classes: block groups at 100, 200, 300 and 400 MiB.
fn pool_of_four() -> TierPool {
    let mut pool = pool();
    pool.classes.list(Fast, &["nvme", "ssd"]).expect("names");
    pool.classes.list(Bulk, &["disk", "smr"]).expect("names");
    let (device, chunk) = (pool.devices[0], pool.chunks[0].clone());
    let side = |rank| if rank < 2 { Fast } else { Bulk };
    let of_rank =
        |rank: u8| TierDevice { devid: DevId::new(u64::from(rank) + 1), class: side(rank), rank, ..device };
    pool.devices = (0..4).map(of_rank).collect();
    let on = |rank: u8| TierChunk {
        logical: Logical::new(100 * MIB * (u64::from(rank) + 1)),
        stripes: vec![TierStripe { devid: DevId::new(u64::from(rank) + 1), physical: Physical::new(MIB) }],
        ..chunk.clone()
    };
    pool.chunks = (0..4).map(on).collect();
    pool
}

fn targets(survey: &mut Survey) -> Vec<(u64, PlacementClass, Option<u8>)> {
    survey.next_tree();
    survey.wrong().map(|extent| (extent.start.get() / MIB, extent.target.side, extent.target.rank)).collect()
}

#[test]
fn a_mark_that_names_a_class_is_right_in_that_class_alone() {
    let mut survey = Survey::new(&pool_of_four(), LIMIT, Logical::new(0));
    for (number, mark) in
        [&b"nvme"[..], b"ssd", b"disk", b"smr", b"fast", b"bulk", b"", b"tape"].iter().enumerate()
    {
        let at = 110 + 10 * number as u64;
        let extents = [0, 100, 200, 300].map(|class| (at + class, MIB, false));
        see(&mut survey, 256 + number as u64, 10 * MIB, mark, &extents);
    }
    let of_file = |found: &[(u64, PlacementClass, Option<u8>)], number: u64| -> Vec<_> {
        let is_of = |at: &u64| at % 100 == 10 + 10 * number;
        found.iter().filter(|(at, ..)| is_of(at)).map(|(at, side, rank)| (at / 100, *side, *rank)).collect()
    };
    let found = targets(&mut survey);
    assert_eq!(of_file(&found, 0), [2, 3, 4].map(|class| (class, Fast, Some(0))));
    assert_eq!(of_file(&found, 1), [1, 3, 4].map(|class| (class, Fast, Some(1))));
    assert_eq!(of_file(&found, 2), [1, 2, 4].map(|class| (class, Bulk, Some(2))));
    assert_eq!(of_file(&found, 3), [1, 2, 3].map(|class| (class, Bulk, Some(3))));
    assert_eq!(of_file(&found, 4), [3, 4].map(|class| (class, Fast, None)));
    // Neither a mark, nor a mark of a class that the pool lacks: right in any class of the bulk side.
    for number in 5..8 {
        assert_eq!(of_file(&found, number), [1, 2].map(|class| (class, Bulk, None)));
    }
    let tiers = survey.tiers();
    let wrong = Amount { extents: 3, bytes: 3 * MIB };
    assert_eq!(tiers.by_class[..4], [wrong; 4]);
    assert_eq!((tiers.fast_on_bulk.extents, tiers.bulk_on_fast.extents), (2, 6));
    assert_eq!(tiers.fast_in_place.extents, 4);
}

#[test]
fn of_owners_that_name_classes_the_best_counts() {
    for (marks, target) in [
        ([&b"smr"[..], b"nvme"], Some((Fast, Some(0)))),
        ([b"smr", b"disk"], None),
        ([b"smr", b""], None),
        ([b"smr", b"smr"], Some((Bulk, Some(3)))),
        ([b"ssd", b"fast"], Some((Fast, Some(1)))),
    ] {
        for marks in [marks, [marks[1], marks[0]]] {
            let mut survey = Survey::new(&pool_of_four(), 0, Logical::new(0));
            for mark in marks {
                see(&mut survey, 256, MIB, mark, &[(310, MIB, false)]);
                survey.next_tree();
            }
            let expected: Vec<_> = target.iter().map(|(side, rank)| (310, *side, *rank)).collect();
            assert_eq!(targets(&mut survey), expected, "{marks:?}");
        }
    }
}

#[test]
fn a_class_with_too_few_devices_for_the_data_counts_as_its_side() {
    let mut pool = pool_of_four();
    // Two devices on each side, and one of each class.
    for (chunk, pair) in pool.chunks.iter_mut().zip([[1, 2], [1, 2], [3, 4], [3, 4]]) {
        chunk.kind |= BlockGroupType::RAID1;
        chunk.stripes =
            pair.map(|devid| TierStripe { devid: DevId::new(devid), physical: Physical::new(MIB) }).into();
    }
    let mut survey = Survey::new(&pool, LIMIT, Logical::new(0));
    see(&mut survey, 256, 10 * MIB, b"smr", &[(110, MIB, false), (310, MIB, false)]);
    assert_eq!(targets(&mut survey), [(110, Bulk, None)]);
}

/// A fast device and two others, `raid1`: block groups at 100 MiB with a copy on the fast one, and at 200 MiB.
fn pool_with_one_fast_device() -> TierPool {
    let mut pool = pool();
    let disk = TierDevice { devid: DevId::new(3), ..pool.devices[1] };
    pool.devices.push(disk);
    for chunk in &mut pool.chunks {
        chunk.kind |= BlockGroupType::RAID1;
        chunk.stripes.push(TierStripe { devid: DevId::new(3), physical: Physical::new(MIB) });
    }
    pool
}

#[test]
fn with_one_fast_device_small_files_belong_where_a_copy_is_on_it() {
    let pool = pool_with_one_fast_device();
    let mut survey = Survey::new(&pool, LIMIT, Logical::new(0));
    let both = |at: u64, bytes: u64| [(110 + at, bytes, false), (210 + at, bytes, false)];
    see(&mut survey, 256, 8192, b"", &both(0, 4096));
    see(&mut survey, 257, 2 * MIB, b"", &both(1, MIB));
    see(&mut survey, 258, 2 * MIB, b"fast", &both(3, MIB));
    see(&mut survey, 259, 8192, b"bulk", &both(5, 4096));
    assert_eq!(wrong(&mut survey), [(111, Bulk), (115, Bulk), (210, Fast), (213, Fast)]);
    assert_eq!(survey.tiers().fast_in_place, Amount { extents: 2, bytes: 4096 + MIB });
    // The kernel has no tiers, and with as few disks other data lies on the fast device, too.
    let of_kernel = TierPool { is_ours: false, ..pool.clone() };
    let with_one_disk = TierPool { devices: pool.devices[..2].to_vec(), ..pool };
    for pool in [of_kernel, with_one_disk] {
        assert!(Survey::new(&pool, LIMIT, Logical::new(0)).is_idle());
        assert!(pool.chunks.iter().all(|chunk| !pool.is_of_fast_tier(chunk)));
    }
}

#[test]
fn with_one_fast_device_a_mark_that_names_its_class_counts_as_its_side() {
    let mut pool = pool_with_one_fast_device();
    pool.classes.list(Fast, &["nvme"]).expect("a name");
    pool.classes.list(Bulk, &["disk"]).expect("a name");
    pool.devices[1].rank = 1;
    pool.devices[2].rank = 1;
    let mut survey = Survey::new(&pool, LIMIT, Logical::new(0));
    see(&mut survey, 256, 2 * MIB, b"nvme", &[(110, MIB, false), (210, MIB, false)]);
    see(&mut survey, 257, 2 * MIB, b"disk", &[(111, MIB, false), (211, MIB, false)]);
    assert_eq!(targets(&mut survey), [(111, Bulk, Some(1)), (210, Fast, None)]);
    assert_eq!(pool.chunk_rank(&pool.chunks[1]), 0, "the class of the fast device");
}

#[test]
fn a_limit_of_its_own_counts_more_than_that_of_the_pool_and_less_than_a_mark() {
    let own = |value: &'static [u8]| [(SMALL_FILES, value)];
    for limit in [0, LIMIT] {
        let mut survey = Survey::new(&pool(), limit, Logical::new(0));
        let both = |at: u64| [(110 + at, MIB / 2, false), (210 + at, MIB / 2, false)];
        see_with(&mut survey, 256, MIB, &own(b"1048576"), &both(0));
        see_with(&mut survey, 257, MIB, &own(b"1048575"), &both(1));
        see_with(&mut survey, 258, 5000, &own(b"0"), &both(2));
        see_with(&mut survey, 259, MIB, &[own(b"1048576")[0], (MARK, b"bulk")], &both(3));
        // No number: the pool's limit counts.
        see_with(&mut survey, 260, MIB, &own(b"1M"), &both(4));
        assert_eq!(wrong(&mut survey), [(111, Bulk), (112, Bulk), (113, Bulk), (114, Bulk), (210, Fast)]);
    }
}

#[test]
fn limits_are_decimal_numbers() {
    let all = [&b"0"[..], b"65536", b"", b"-1", b"+1", b"64K", b" 1", b"1\0", b"99999999999999999999"];
    assert_eq!(all.map(limit_of), [Some(0), Some(65_536), None, None, None, None, None, None, None]);
}
