//! Damage at random.

use super::{assert_never_wrong, open};
use crate::bounds::within;
use crate::golden::top_level;
use crate::walk::{Limits, Walk};
use brindle_testing::damage::Victim;
use brindle_testing::golden::{BLOCK_BYTES, Golden};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const IMAGES: [&str; 8] = ["node-4k", "dup", "raid1", "raid10", "raid5", "raid6", "lzo", "blake2b"];

/// Something that happens to a device, and that no checksum is told of.
#[derive(Clone, Debug)]
enum Mishap {
    /// A bit of a block that is not all zeros.
    Flip(Index, Index, u16),
    /// All of such a block.
    Zero(Index, Index),
    /// Such a block takes the place of another.
    Misplace(Index, Index, Index),
    /// The device ends before such a block.
    Truncate(Index, Index),
}

fn mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        6 => (any::<Index>(), any::<Index>(), any::<u16>()).prop_map(|(d, b, bit)| Mishap::Flip(d, b, bit)),
        3 => (any::<Index>(), any::<Index>()).prop_map(|(d, b)| Mishap::Zero(d, b)),
        2 => (any::<Index>(), any::<Index>(), any::<Index>()).prop_map(|(d, b, c)| Mishap::Misplace(d, b, c)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(d, b)| Mishap::Truncate(d, b)),
    ]
}

fn suffer(victim: &mut Victim, mishap: &Mishap) {
    let (Mishap::Flip(device, block, _)
    | Mishap::Zero(device, block)
    | Mishap::Misplace(device, block, _)
    | Mishap::Truncate(device, block)) = mishap;
    let images = victim.images_mut();
    let image = &mut images[device.index(images.len())];
    let blocks: Vec<(u64, [u8; BLOCK_BYTES])> =
        image.blocks().map(|(offset, bytes)| (offset, *bytes)).collect();
    if blocks.is_empty() {
        return;
    }
    let (offset, mut bytes) = blocks[block.index(blocks.len())];
    match mishap {
        Mishap::Flip(_, _, bit) => {
            bytes[usize::from(*bit) / 8 % BLOCK_BYTES] ^= 1 << (bit % 8);
            image.write_at(offset, &bytes).expect("lies on the device");
        }
        Mishap::Zero(..) => image.write_at(offset, &[0; BLOCK_BYTES]).expect("lies on the device"),
        Mishap::Misplace(_, _, other) => {
            image.write_at(offset, &blocks[other.index(blocks.len())].1).expect("lies on the device");
        }
        Mishap::Truncate(..) => image.truncate(offset),
    }
}

/// A third of what `PROPTEST_CASES` says: a case reads a whole pool.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases / 3, max_shrink_iters: 200, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reads_of_a_damaged_pool_are_never_wrong(
        image in select(&IMAGES[..]),
        mishaps in vec(mishap(), 1..12),
    ) {
        let golden = Golden::load(image);
        let mut victim = Victim::new(&golden);
        mishaps.iter().for_each(|mishap| suffer(&mut victim, mishap));
        within(image, move || {
            if let Ok(filesystem) = open(&victim, &top_level()) {
                assert_never_wrong(image, &golden.manifest, &Walk::of(&filesystem, Limits::NONE));
            }
        });
    }

    #[test]
    fn blocks_with_right_checksums_may_hold_anything(
        image in select(&IMAGES[..]),
        script in vec(any::<u8>(), 0..300),
    ) {
        const LIMITS: Limits =
            Limits { piece: 1 << 16, entries: 2000, file_bytes: 1 << 22, bytes: 1 << 24, depth: 50 };
        let mut victim = Victim::load(image);
        victim.run_script(&script);
        within(image, move || {
            if let Ok(filesystem) = open(&victim, &top_level()) {
                let walk = Walk::of(&filesystem, LIMITS);
                walk.troubles.iter().for_each(|trouble| drop(trouble.to_string()));
                drop((filesystem.subvolumes(), filesystem.space()));
            }
        });
    }
}
