use super::*;
use crate::testing::{seal_superblock, superblock};
use crate::{DevId, Physical, RootId, UNSUPPORTED_INCOMPAT};
use proptest::prelude::*;

/// Result of parsing the good superblock after a change and with the checksum put right.
fn verdict(change: impl FnOnce(&mut Superblock)) -> String {
    let mut superblock = superblock();
    change(&mut superblock);
    seal_superblock(&mut superblock);
    let bytes = superblock.as_bytes().try_into().expect("a superblock has its size");
    Superblock::parse(bytes, SUPERBLOCK_OFFSETS[0])
        .map_or_else(|refusal| refusal.to_string(), |_| "good".into())
}

/// Asserts that the refusal names the reason.
#[track_caller]
fn assert_refused(change: impl FnOnce(&mut Superblock), why: &str) {
    let verdict = verdict(change);
    assert!(verdict.contains(why), "{verdict:?} does not say {why:?}");
}

/// Changes the header of the one system chunk.
fn with_chunk(change: impl FnOnce(&mut crate::item::ChunkHeader)) -> impl FnOnce(&mut Superblock) {
    |superblock| {
        let entry = &mut superblock.sys_chunk_array[size_of::<Key>()..];
        let (header, _) = crate::item::ChunkHeader::mut_from_prefix(entry).expect("the entry is there");
        change(header);
    }
}

macro_rules! refuses {
    ($($name:ident: $change:expr => $why:literal;)*) => {
        $(#[test] fn $name() { assert_refused($change, $why); })*
    };
}

refuses! {
    foreign_magic: |sb| sb.magic[0] = 0 => "no btrfs superblock";
    unknown_checksum_algorithm: |sb| sb.csum_type.set(9) => "unknown csum_type";
    copy_in_the_wrong_place: |sb| sb.bytenr.set(64 << 20) => "bytenr is not its place";
    unsupported_feature_is_named: |sb| sb.incompat_flags.set(UNSUPPORTED_INCOMPAT.bits()) => "RAID_STRIPE_TREE";
    sectorsize_of_no_power_of_two: |sb| sb.sectorsize.set(4095) => "invalid sectorsize";
    sectorsize_of_another_page: |sb| sb.sectorsize.set(65536) => "unsupported sectorsize 65536";
    nodesize_of_no_power_of_two: |sb| sb.nodesize.set(4097) => "invalid nodesize";
    nodesize_too_large: |sb| sb.nodesize.set(131_072) => "invalid nodesize";
    leafsize_of_its_own: |sb| sb.leafsize.set(8192) => "leafsize is not nodesize";
    root_level_too_high: |sb| sb.root_level = 8 => "root_level too high";
    chunk_root_level_too_high: |sb| sb.chunk_root_level = 8 => "chunk_root_level too high";
    log_root_level_too_high: |sb| sb.log_root_level = 8 => "log_root_level too high";
    root_off_its_sector: |sb| sb.root = Logical::new(1) => "root is not aligned";
    chunk_root_off_its_sector: |sb| sb.chunk_root = Logical::new(1) => "chunk_root is not aligned";
    log_root_off_its_sector: |sb| sb.log_root = Logical::new(1) => "log_root is not aligned";
    device_of_another_pool: |sb| sb.dev_item.fsid = Uuid([1; 16]) => "dev_item fsid differs";
    generation_that_could_wrap: |sb| sb.generation = Generation::new(u64::MAX) => "generation";
    too_little_in_use: |sb| sb.bytes_used.set(6 * 4096 - 1) => "bytes_used too small";
    pool_of_no_device: |sb| sb.num_devices.set(0) => "num_devices is zero";
    system_chunks_past_their_room: |sb| sb.sys_chunk_array_size.set(2049) => "sys_chunk_array_size too large";
    no_system_chunk: |sb| sb.sys_chunk_array_size.set(0) => "sys_chunk_array is empty";
    half_a_system_chunk: |sb| sb.sys_chunk_array_size -= 1 => "ends inside an entry";
    half_a_system_chunk_key: |sb| sb.sys_chunk_array_size.set(16) => "ends inside an entry";
    system_chunk_of_another_type: |sb| sb.sys_chunk_array[8] = 1 => "key has another type";
    system_chunk_of_data: with_chunk(|chunk| chunk.chunk_type.set(1)) => "not a system chunk";
    system_chunk_without_stripes: with_chunk(|chunk| chunk.num_stripes.set(0)) => "chunk has no stripes";
}

#[test]
fn the_good_one_is_good() {
    assert_eq!(verdict(|_| ()), "good");
}

/// The target of a replacement in a pool of one device.
#[test]
fn devid_zero_is_good() {
    assert_eq!(verdict(|sb| sb.dev_item.devid = DevId::new(0)), "good");
}

#[test]
fn unknown_compat_and_compat_ro_bits_do_not_hinder_reading() {
    assert_eq!(verdict(|sb| (sb.compat_flags.set(u64::MAX), sb.compat_ro_flags.set(u64::MAX)).1), "good");
}

#[test]
fn a_changed_byte_shows_in_the_checksum() {
    let mut superblock = superblock();
    superblock.label[0] = b'x';
    let bytes = superblock.as_bytes().try_into().expect("a superblock has its size");
    let refusal = Superblock::parse(bytes, SUPERBLOCK_OFFSETS[0]).expect_err("the checksum is of another");
    assert!(matches!(refusal, SuperblockDefect::Checksum { .. }), "{refusal}");
}

#[test]
fn tree_uuid_is_the_metadata_uuid_only_with_the_feature() {
    let mut superblock = superblock();
    superblock.metadata_uuid = Uuid([9; 16]);
    assert_eq!(superblock.tree_uuid(), superblock.fsid);
    superblock.incompat_flags.set(Incompat::METADATA_UUID.bits());
    assert_eq!(superblock.tree_uuid(), Uuid([9; 16]));
}

#[test]
fn system_chunks_are_listed() {
    let superblock = superblock();
    let chunks: Vec<_> = superblock.system_chunks().collect::<Result<_, _>>().expect("the array is whole");
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].1.header.owner, RootId::EXTENT_TREE);
    assert_eq!(chunks[0].1.stripes[0].offset, Physical::new(1 << 20));
}

/// Everything that can be asked of a superblock, good or bad.
fn ask(superblock: &Superblock) {
    let _ = (superblock.label(), superblock.tree_uuid(), superblock.is_seeding(), superblock.has_magic());
    let _ = (superblock.incompat().names(), superblock.compat_ro().names(), format!("{superblock:?}"));
    assert!(superblock.system_chunks().count() <= SYS_CHUNK_ARRAY_SIZE, "the list ends");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_keep_their_form(bytes: Vec<u8>, seed: u8) {
        let mut block = [seed; SUPERBLOCK_SIZE];
        block.iter_mut().zip(&bytes).for_each(|(target, source)| *target = *source);
        let superblock = Superblock::from_bytes(&block);
        prop_assert_eq!(superblock.as_bytes(), &block[..]);
        ask(&superblock);
        let _ = Superblock::parse(&block, SUPERBLOCK_OFFSETS[0]);
    }

    #[test]
    fn a_mutated_superblock_is_refused_or_read_as_it_stands(
        changes in prop::collection::vec((0..SUPERBLOCK_SIZE, any::<u8>()), 1..8),
    ) {
        let mut superblock = superblock();
        for (place, byte) in changes {
            superblock.as_mut_bytes()[place] = byte;
        }
        seal_superblock(&mut superblock);
        ask(&superblock);
        let bytes = superblock.as_bytes().try_into().expect("a superblock has its size");
        if let Ok(parsed) = Superblock::parse(bytes, SUPERBLOCK_OFFSETS[0]) {
            prop_assert_eq!(parsed.as_bytes(), superblock.as_bytes());
            prop_assert!(parsed.system_chunks().all(|chunk| chunk.is_ok()));
        }
    }
}
