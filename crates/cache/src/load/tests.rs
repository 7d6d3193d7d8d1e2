//! Hostile tables: their checksums are right, and nothing else need be.

use super::*;
use crate::format::{TableBlock, block_checksum};
use crate::{CreateOptions, HostClock, create};
use brindle_device::{Device, DeviceClass};
use brindle_sim::{Image, ImageDevice, Random};

fn options() -> CreateOptions {
    CreateOptions {
        name: "pair".to_owned(),
        mode: Mode::Back,
        block_bytes: 4096,
        associativity: 64,
        size_bytes: None,
        is_write_only: false,
        is_forced: false,
        uuids: [[1; 16], [2; 16], [3; 16]],
    }
}

/// A number that is small, or at a bound, or anything.
fn number(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.number(),
        1 => u64::MAX - random.below(3),
        _ => random.below(600),
    }
}

fn block(random: &mut Random, index: u32) -> TableBlock {
    let is_sparse = random.chance(1, 2);
    let entry = |random: &mut Random| {
        if is_sparse && random.chance(9, 10) {
            return Entry::EMPTY;
        }
        let state = u8::try_from(random.below(4)).expect("small");
        let block = number(random);
        let mut entry = Entry::new(block, block_checksum(block, &[0; 4096]), true);
        entry.state = state;
        entry
    };
    let entries = (0..ENTRIES).map(|_| entry(random)).collect();
    let parts = u32::try_from(random.below(4)).expect("small");
    TableBlock { index, transaction: number(random), parts, entries }
}

#[test]
fn hostile_tables_are_refused_or_loaded() {
    let device = |name, bytes| Arc::new(ImageDevice::new(name, Image::new(bytes), DeviceClass::Unknown));
    let mut loaded = 0;
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let (flash, disk): (Arc<dyn WritableDevice>, Arc<dyn WritableDevice>) =
            (device("flash", 3 << 20), device("disk", 2 << 20));
        let clock = Arc::new(HostClock::new());
        let made = create(Arc::clone(&flash), Arc::clone(&disk), &options(), clock).expect("it can be made");
        let (cache, geometry) = (made.lock().superblock.cache, made.geometry);
        drop(made);
        for index in 0..u32::try_from(geometry.table_blocks()).expect("small") {
            for copy in [0, 1] {
                if random.chance(1, 3) {
                    let page = block(&mut random, index).to_page(&cache);
                    flash.write_at(geometry.table_place(index, copy), &page).expect("inside");
                }
            }
        }
        let is_forced = random.chance(1, 2);
        let Ok(cache) = load(&flash, &disk, is_forced, Arc::new(HostClock::new())) else { continue };
        loaded += 1;
        cache.verify().expect("sums agree");
        let mut bytes = vec![0; 2 << 20];
        cache.read_at(0, &mut bytes).ok();
        cache.write_at(4096, &bytes[..1 << 20]).ok();
        cache.flush().expect("the devices work");
        cache.clean_all().expect("the devices work");
    }
    assert!(loaded > 100, "{loaded} were loaded");
}
