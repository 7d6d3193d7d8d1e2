//! Tests of the format on flash.

use super::*;

fn superblock() -> Superblock {
    let geometry = Geometry::fitting(64 << 20, 4096, 512).expect("it fits");
    let mut superblock = Superblock::new();
    superblock.flash_bytes = (64 << 20).into();
    superblock.block_bytes = 4096.into();
    superblock.associativity = 512.into();
    superblock.sets = geometry.sets.into();
    superblock.data_offset = geometry.data_offset.into();
    superblock.mode = Mode::Back.number();
    superblock
}

#[test]
fn superblocks_are_read_again_and_damage_is_noticed() {
    let page = superblock().to_page();
    let found = Superblock::parse(&page).expect("whole");
    assert_eq!(found.to_page(), page);
    for at in 0..512 {
        let mut damaged = page.clone();
        damaged[at] ^= 0x10;
        Superblock::parse(&damaged).expect_err("damaged");
    }
    assert_eq!(Superblock::parse(&[0; 4096]), Err(NoSuperblock::Foreign));
    assert_eq!(Superblock::parse(&[]), Err(NoSuperblock::Foreign));
}

#[test]
fn superblocks_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Superblock)| {
        let mut superblock = superblock();
        change(&mut superblock);
        Superblock::parse(&superblock.to_page()).expect_err("nonsense")
    };
    assert_eq!(refused(&|found| found.version = 3.into()), NoSuperblock::Version(3));
    for change in [
        &(|found: &mut Superblock| found.mirror = [0; 16]) as &dyn Fn(&mut Superblock),
        &|found| found.mirror = found.flash,
        &|found| found.member = 2,
        &|found| found.role = 3,
        &|found| found.epoch = u64::MAX.into(),
        &|found| found.mode = Mode::Through.number(),
    ] {
        let mirrored = |found: &mut Superblock| {
            found.set_role(Role::InSync);
            found.mirror = [9; 16];
            Superblock::parse(&found.to_page()).expect("it can be");
            change(found);
        };
        assert!(matches!(refused(&mirrored), NoSuperblock::Nonsense(_)));
    }
    for change in [
        &(|found: &mut Superblock| found.mode = 9) as &dyn Fn(&mut Superblock),
        &|found| found.block_bytes = 0.into(),
        &|found| found.block_bytes = 4097.into(),
        &|found| found.associativity = 0.into(),
        &|found| found.associativity = (1 << 16).into(),
        &|found| found.sequence = u64::MAX.into(),
        &|found| found.closed_at = u64::MAX.into(),
        &|found| found.sets = 0.into(),
        &|found| found.sets = u64::MAX.into(),
        &|found| found.data_offset = 0.into(),
        &|found| found.data_offset = u64::MAX.into(),
        &|found| found.flash_bytes = 4096.into(),
    ] {
        assert!(matches!(refused(change), NoSuperblock::Nonsense(_)));
    }
}

#[test]
fn a_geometry_fits_and_wastes_little() {
    for bytes in [1u64 << 20, 3 << 20, 64 << 20, (64 << 20) + 12_345, 10 << 30, 1 << 40] {
        for (block, associativity) in [(4096, 512), (4096, 8), (512, 1), (1 << 20, 64)] {
            let Some(found) = Geometry::fitting(bytes, block, associativity) else {
                assert!(bytes < (block * u64::from(associativity)) + (1 << 20), "{bytes} {block}");
                continue;
            };
            let end = |sets: u64| {
                let table = TABLE_OFFSET
                    + 2 * (sets * u64::from(associativity)).div_ceil(ENTRIES as u64) * PAGE_BYTES as u64;
                table.next_multiple_of(DATA_ALIGNMENT) + sets * block * u64::from(associativity)
            };
            assert!(end(found.sets) <= bytes);
            let aligned = DATA_ALIGNMENT / (block * u64::from(associativity));
            assert!(end(found.sets + 1 + found.sets / 100 + aligned) > bytes, "{bytes}, {block}: {found:?}");
            let second = found.table_place(0, 1);
            assert_eq!(second - found.table_place(0, 0), found.table_blocks() * PAGE_BYTES as u64);
            assert!(second + found.table_blocks() * PAGE_BYTES as u64 <= found.slot_place(0));
        }
    }
}

#[test]
fn blocks_of_the_table_tell_a_torn_write_from_damage() {
    let cache = [7; 16];
    let block = |transaction| {
        let mut entries = vec![Entry::EMPTY; ENTRIES];
        entries[251] = Entry::new(transaction, 5, true);
        TableBlock { index: 3, transaction, parts: 1, entries }
    };
    let (old, new) = (block(4).to_page(&cache), block(5).to_page(&cache));
    assert_eq!(TableBlock::parse(&new, &cache, 3), FoundBlock::Whole(block(5)));
    let torn = [&new[..512], &old[512..]].concat();
    assert_eq!(TableBlock::parse(&torn, &cache, 3), FoundBlock::Torn { transaction: 5 });
    let torn = [&old[..512], &new[512..]].concat();
    assert_eq!(TableBlock::parse(&torn, &cache, 3), FoundBlock::Torn { transaction: 4 });
    assert_eq!(TableBlock::parse(&new, &cache, 2), FoundBlock::Damaged, "another place");
    assert_eq!(TableBlock::parse(&new, &[8; 16], 3), FoundBlock::Damaged, "another cache");
    assert_eq!(TableBlock::parse(&new[..4000], &cache, 3), FoundBlock::Torn { transaction: 5 });
    assert_eq!(TableBlock::parse(&[], &cache, 3), FoundBlock::Damaged);
}

#[test]
fn the_checksum_of_a_block_depends_on_its_place() {
    assert_ne!(block_checksum(1, &[0; 4096]), block_checksum(2, &[0; 4096]));
}
