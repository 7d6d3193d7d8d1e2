//! Superblocks that are damaged, and devices that end too soon.

use super::Outcome::{Refused, Survives};
use super::{Case, check, run};
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use brindle_testing::damage::Victim;
use brindle_testing::golden::Golden;

fn overwrite_superblocks(victim: &mut Victim, copies: &[usize], bytes: &[u8]) {
    for image in victim.images_mut() {
        for copy in copies {
            image.write_at(SUPERBLOCK_OFFSETS[*copy], bytes).expect("the device has room");
        }
    }
}

fn truncate(victim: &mut Victim, devid: u64, size_bytes: u64) {
    let image = victim.images_mut().iter_mut().find(|image| image.devid() == devid);
    image.expect("the pool has the device").truncate(size_bytes);
}

#[test]
fn a_copy_that_is_lost_is_survived_and_all_that_are_are_not() {
    const ZEROS: [u8; SUPERBLOCK_SIZE] = [0; SUPERBLOCK_SIZE];
    run(&[
        Case {
            name: "the first superblock is zeros",
            image: "single",
            damage: |victim| overwrite_superblocks(victim, &[0], &ZEROS),
            outcome: Survives(&["single/dev1: superblock at offset 65536 can't be used", "magic number"]),
        },
        Case {
            name: "the second superblock is zeros",
            image: "raid10",
            damage: |victim| overwrite_superblocks(victim, &[1], &ZEROS),
            outcome: Survives(&["raid10/dev4: superblock at offset 67108864 can't be used"]),
        },
        Case {
            name: "every superblock is zeros",
            image: "single",
            damage: |victim| overwrite_superblocks(victim, &[0, 1], &ZEROS),
            outcome: Refused(&[
                "no btrfs pool found",
                "single/dev1: not a btrfs device (no superblock magic",
            ]),
        },
        Case {
            name: "every superblock has a wrong checksum",
            image: "sha256",
            damage: |victim| overwrite_superblocks(victim, &[0, 1], &[0xff; 3]),
            outcome: Refused(&["sha256/dev1", "superblock checksum is 0xffffff", "computed 0x", "(sha256)"]),
        },
    ]);
}

#[test]
fn a_device_that_ends_too_soon_is_refused_or_survived() {
    run(&[
        Case {
            name: "the device ends before its superblock",
            image: "single",
            damage: |victim| truncate(victim, 1, 66_000),
            outcome: Refused(&["no btrfs pool found", "single/dev1", "the device ends before it"]),
        },
        Case {
            name: "the device is empty",
            image: "single",
            damage: |victim| truncate(victim, 1, 0),
            outcome: Refused(&["no btrfs pool found", "the device ends before it"]),
        },
        Case {
            name: "the device ends amidst its chunks",
            image: "single",
            damage: |victim| truncate(victim, 1, 16 << 20),
            outcome: Refused(&["chunk at logical ", "lies beyond the end of single/dev1 at 16777216"]),
        },
        Case {
            name: "one of two devices ends amidst its chunks",
            image: "raid1",
            damage: |victim| truncate(victim, 2, 16 << 20),
            outcome: Survives(&["raid1/dev2: a stripe of", "lies beyond its end at 16777216"]),
        },
        Case {
            name: "two of four devices end amidst their chunks",
            image: "raid6",
            damage: |victim| {
                truncate(victim, 1, 16 << 20);
                truncate(victim, 4, 16 << 20);
            },
            outcome: Survives(&["raid6/dev1: a stripe of", "raid6/dev4: a stripe of"]),
        },
    ]);
}

#[test]
fn features_that_brindle_lacks_are_refused_by_name() {
    let names = [
        (1 << 12, "unsupported feature: ZONED"),
        (1 << 13, "unsupported feature: EXTENT_TREE_V2"),
        (1 << 14, "unsupported feature: RAID_STRIPE_TREE"),
        (1 << 15, "unsupported feature: unknown flag: 0x8000"),
        (1 << 17, "unsupported feature: REMAP_TREE"),
        (1 << 63, "unsupported feature: unknown flag: 0x8000000000000000"),
        (1 << 12 | 1 << 40, "unsupported features: ZONED, unknown flag: 0x10000000000"),
    ];
    let golden = Golden::load("single");
    for (bits, message) in names {
        let mut victim = Victim::new(&golden);
        victim.edit_superblocks(|superblock| superblock.incompat_flags |= bits);
        check(message, &golden.manifest, &victim, Refused(&["single/dev1: superblock at offset 65536"]));
        let refusal = super::open(&victim, &crate::golden::top_level()).expect_err("it has been refused");
        assert!(refusal.to_string().ends_with(message), "{refusal}");
    }
}

#[test]
fn an_unknown_compat_ro_feature_is_read_and_forbids_writing() {
    let golden = Golden::load("single");
    let mut victim = Victim::new(&golden);
    victim.edit_superblocks(|superblock| superblock.compat_ro_flags |= 1 << 60);
    check("an unknown compat_ro feature", &golden.manifest, &victim, Survives(&[]));
    let filesystem = super::open(&victim, &crate::golden::top_level()).expect("can be read");
    assert!(filesystem.pool().superblock().compat_ro().forbids_writing());
}

const FIELDS: &[Case] = &[
    Case {
        name: "sectorsize of other machines",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.sectorsize.set(65536)),
        outcome: Refused(&["single/dev1", "unsupported sectorsize 65536"]),
    },
    Case {
        name: "sectorsize of no machine that we have",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.sectorsize.set(8192)),
        outcome: Refused(&["unsupported sectorsize 8192"]),
    },
    Case {
        name: "sectorsize no power of two",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.sectorsize.set(4095)),
        outcome: Refused(&["single/dev1", "invalid sectorsize, found 0xfff"]),
    },
    Case {
        name: "nodesize too large",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.nodesize.set(1 << 31)),
        outcome: Refused(&["single/dev1", "invalid nodesize, found 0x80000000"]),
    },
    Case {
        name: "nodesize zero",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.nodesize.set(0)),
        outcome: Refused(&["invalid nodesize, found 0x0"]),
    },
    Case {
        name: "nodesize of another pool",
        image: "single",
        damage: |victim| {
            victim.edit_superblocks(|superblock| {
                superblock.nodesize.set(65536);
                superblock.leafsize.set(65536);
            });
        },
        outcome: Refused(&["single/dev1 offset ", "corrupt tree block at logical ", "checksum is 0x"]),
    },
    Case {
        name: "sys_chunk_array cut off",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.sys_chunk_array_size -= 1),
        outcome: Refused(&["single/dev1", "sys_chunk_array ends inside an entry"]),
    },
    Case {
        name: "sys_chunk_array empty",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.sys_chunk_array_size.set(0)),
        outcome: Refused(&["sys_chunk_array is empty"]),
    },
    Case {
        name: "sys_chunk_array beyond its room",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.sys_chunk_array_size.set(2049)),
        outcome: Refused(&["sys_chunk_array_size too large, found 0x801, expected 0x800"]),
    },
    Case {
        name: "a system chunk without stripes",
        image: "single",
        damage: |victim| {
            // The number of stripes stands 44 bytes into the chunk, which follows its key.
            victim.edit_superblocks(|superblock| superblock.sys_chunk_array[17 + 44..17 + 46].fill(0));
        },
        outcome: Refused(&["single/dev1", "chunk has no stripes"]),
    },
    Case {
        name: "a checksum of the future",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.csum_type.set(4)),
        outcome: Refused(&["single/dev1", "unknown csum_type, found 0x4"]),
    },
];

#[test]
fn fields_out_of_range_are_refused_by_name_and_value() {
    run(FIELDS);
}
