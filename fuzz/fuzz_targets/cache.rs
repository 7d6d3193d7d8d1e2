//! A flash cache whose own data on the SSD is edited as the input says, checksums put right. It is refused, or loaded, and then a
//! device as any other: read, written, cleaned and closed, with errors where blocks are damaged.
//!
//! An input is a byte of options (1: force the load, 2: leave checksums alone, 4: the cache was closed) and edits: two bytes of a place in the first 64 KiB,
//! one of a length up to 15, and that number of bytes.

#![no_main]

use brindle_cache::{Cache, CreateOptions, HostClock, Mode, create, load};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_sim::{Image, ImageDevice};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, OnceLock};

const BLOCK: usize = 1024;
const DISK_BYTES: u64 = 512 << 10;
const FLASH_BYTES: u64 = (64 + 32) << 10;
const PAGE: usize = 4096;
/// Superblocks, and two copies of a table of one block.
const PAGES: usize = 4;

/// Flash and disk of a cache in use, and of one that was closed.
fn images() -> &'static [[Image; 2]; 2] {
    static IMAGES: OnceLock<[[Image; 2]; 2]> = OnceLock::new();
    IMAGES.get_or_init(|| [false, true].map(made))
}

fn device(image: &Image, name: &str) -> Arc<ImageDevice> {
    Arc::new(ImageDevice::new(name, image.clone(), DeviceClass::Unknown))
}

fn made(closes: bool) -> [Image; 2] {
    let [flash, disk] =
        [(FLASH_BYTES, "flash"), (DISK_BYTES, "disk")].map(|(bytes, name)| device(&Image::new(bytes), name));
    let options = CreateOptions {
        name: "fuzzed".to_owned(),
        mode: Mode::Back,
        block_bytes: BLOCK as u64,
        associativity: 8,
        size_bytes: None,
        is_write_only: false,
        is_forced: false,
        uuids: [[1; 16], [2; 16], [3; 16]],
    };
    let (one, other): (Arc<dyn WritableDevice>, Arc<dyn WritableDevice>) = (flash.clone(), disk.clone());
    let cache = create(one, other, &options, Arc::new(HostClock::new())).expect("it can be made");
    for block in 0..24_u64 {
        cache.write_at(block * 7 % 512 * BLOCK as u64, &[7; BLOCK]).expect("memory");
    }
    cache.flush().expect("memory");
    if closes {
        cache.set("fast_remove", "1").expect("a setting");
        cache.close().expect("memory");
    }
    drop(cache);
    [flash.image(), disk.image()]
}

/// Puts the checksums of the cache's own data right.
fn mend(data: &mut [u8]) {
    let uuid: [u8; 16] = data[24..40].try_into().expect("16 bytes");
    for superblock in data.chunks_mut(PAGE).take(2) {
        superblock[8..12].fill(0);
        let checksum = crc32c::crc32c(&superblock[..512]);
        superblock[8..12].copy_from_slice(&checksum.to_le_bytes());
    }
    let seed = crc32c::crc32c(&uuid);
    for table in data.chunks_mut(PAGE).skip(2) {
        let entries = crc32c::crc32c_append(seed, &table[64..]);
        table[4..8].copy_from_slice(&entries.to_le_bytes());
        table[..4].fill(0);
        let head = crc32c::crc32c_append(seed, &table[..64]);
        table[..4].copy_from_slice(&head.to_le_bytes());
    }
}

fn use_it(cache: &Cache) {
    cache.verify().expect("sums agree");
    let size = usize::try_from(cache.size_bytes()).expect("as long as the disk");
    let mut bytes = vec![0; size];
    let whole = cache.read_at(0, &mut bytes);
    for (block, bytes) in bytes.chunks_mut(BLOCK).enumerate().step_by(5) {
        let offset = (block * BLOCK) as u64;
        if whole.is_err() {
            let _ = cache.read_at(offset, bytes);
        }
        let _ = cache.write_at(offset + 100, &[9; 200]);
        let _ = cache.write_at(offset, &[8; BLOCK][..bytes.len()]);
    }
    let _ = cache.flush();
    let _ = cache.upkeep();
    let _ = cache.clean_all();
    cache.verify().expect("sums agree");
    let _ = cache.status();
    let _ = cache.close();
}

fuzz_target!(|data: &[u8]| {
    let Some((options, mut edits)) = data.split_first() else { return };
    let [flash, disk] = &images()[usize::from(options & 4 != 0)];
    let (flash, disk) = (device(flash, "flash"), device(disk, "disk"));
    let mut own = vec![0; PAGES * PAGE];
    flash.read_at(0, &mut own).expect("memory");
    while let [low, high, length, rest @ ..] = edits {
        let (bytes, rest) = rest.split_at(usize::from(length & 15).min(rest.len()));
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        for (place, byte) in own.iter_mut().skip(at % (PAGES * PAGE)).zip(bytes) {
            *place = *byte;
        }
        edits = rest;
    }
    if options & 2 == 0 {
        mend(&mut own);
    }
    flash.write_at(0, &own).expect("memory");
    let (flash, disk): (Arc<dyn WritableDevice>, Arc<dyn WritableDevice>) = (flash, disk);
    let _ = brindle_cache::inspect(&*flash);
    if let Ok(cache) = load(&flash, &disk, options & 1 != 0, Arc::new(HostClock::new())) {
        use_it(&cache);
    }
});
