//! Data that is not what it was, and streams that decompress to what they should not.

use super::Outcome::Fails;
use super::{Case, disk_extent, open, run};
use crate::bounds::within;
use crate::golden::{assert_same, read_whole, top_level};
use brindle_fs::Filesystem;
use brindle_ondisk::item::{Compression, FileExtentHeader};
use brindle_ondisk::{KeyType, Logical, ObjectId, RootId};
use brindle_testing::damage::Victim;
use brindle_testing::golden::Golden;
use brindle_volume::DeviceCounters;

/// Changes one byte of one copy, the first, of a sector.
fn flip_first_copy(victim: &mut Victim, at: Logical) {
    let place = victim.copies(at)[0];
    let image = victim.images_mut().iter_mut().find(|image| image.devid() == place.devid);
    let image = image.expect("the pool has the device");
    let mut byte = [0];
    image.read_at(place.physical + 1234, &mut byte).expect("lies on the device");
    image.write_at(place.physical + 1234, &[byte[0] ^ 4]).expect("lies on the device");
}

/// Changes one byte of the first copy of each sector or block that has it on the same device as the first: more
/// than one device can be too much for parity. Says which device, and how many bytes.
fn flip_on_one_device(victim: &mut Victim, all: impl Iterator<Item = Logical>) -> (u64, u64) {
    let (mut devid, mut count) = (None, 0);
    for at in all {
        let here = victim.copies(at)[0].devid;
        if *devid.get_or_insert(here) == here {
            flip_first_copy(victim, at);
            count += 1;
        }
    }
    (devid.expect("there is something"), count)
}

#[test]
fn a_flipped_bit_without_another_copy_is_an_error_that_says_it_all() {
    let mut victim = Victim::load("single");
    let (_, extent) = disk_extent(&victim, "single", "sizes/4097");
    let place = victim.copies(extent.disk_bytenr)[0];
    let right = victim.superblock().checksum_type().compute(&victim.read(extent.disk_bytenr, 4096));
    flip_first_copy(&mut victim, extent.disk_bytenr);
    let wrong = victim.superblock().checksum_type().compute(&victim.read(extent.disk_bytenr, 4096));
    let filesystem = open(&victim, &top_level()).expect("opens");
    let id = filesystem.resolve(filesystem.root(), b"sizes/4097").expect("is there");
    let file = filesystem.open_file(id).expect("opens");
    let error = filesystem.read(&file, 0, &mut [0; 8192]).expect_err("the checksum is wrong");
    let mut chunks = filesystem.pool().volume().chunks();
    chunks.retain(|chunk| chunk.start <= extent.disk_bytenr);
    let chunk = chunks.last().expect("one holds the extent").start;
    assert_eq!(
        error.to_string(),
        format!(
            "{id}, offset 0: logical {} (chunk {chunk}), 4096 bytes: single/dev1 offset {}: checksum {wrong} expected {right}",
            extent.disk_bytenr, place.physical
        )
    );
    let mut rest = [0; 10];
    assert_eq!(filesystem.read(&file, 4096, &mut rest).expect("the other sector is good"), 1);
}

#[test]
fn a_flipped_bit_is_answered_from_elsewhere_and_counted() {
    for image in
        ["dup", "raid1", "raid1c3", "raid1c4", "raid10", "raid5", "raid5-wide", "raid6", "raid6-wide"]
    {
        let golden = Golden::load(image);
        let mut victim = Victim::new(&golden);
        let (_, extent) = disk_extent(&victim, image, "megabyte");
        let sectors = extent.disk_num_bytes.get() / 4096;
        let sectors = (0..sectors).map(|sector| extent.disk_bytenr + sector * 4096);
        let (devid, count) = flip_on_one_device(&mut victim, sectors);
        let filesystem = open(&victim, &top_level()).expect("opens");
        assert_same(image, &golden.manifest, &read_whole(&filesystem, image));
        for device in filesystem.pool().volume().devices() {
            let DeviceCounters { checksum_errors, recovered, read_errors, .. } = device.counters;
            let expected = if device.devid.get() == devid { count } else { 0 };
            // With several copies another one may have been asked first.
            assert!(checksum_errors <= expected && recovered == checksum_errors, "{image}: {device:?}");
            assert_eq!(read_errors, 0, "{image}: {device:?}");
            if image.starts_with("raid5") || image.starts_with("raid6") {
                assert_eq!(checksum_errors, expected, "{image}: {device:?}");
            }
        }
    }
}

#[test]
fn a_leaf_that_is_bad_in_one_copy_is_read_from_another_and_counted() {
    for image in ["dup", "raid1", "raid10", "raid5", "raid6"] {
        let golden = Golden::load(image);
        let mut victim = Victim::new(&golden);
        let blocks: Vec<Logical> = victim.blocks().iter().map(|block| block.at).collect();
        flip_on_one_device(&mut victim, blocks.into_iter());
        let filesystem = open(&victim, &top_level()).expect("opens");
        assert_same(image, &golden.manifest, &read_whole(&filesystem, image));
        let counters = filesystem.pool().volume().devices().into_iter().map(|device| device.counters);
        let (errors, recovered) = counters.fold((0, 0), |(errors, recovered), counters| {
            (errors + counters.checksum_errors, recovered + counters.recovered)
        });
        assert!(errors > 0 && errors == recovered, "{image}: {errors} errors, {recovered} recovered");
    }
}

#[test]
fn data_without_its_checksum() {
    run(&[Case {
        name: "checksums gone",
        image: "node-4k",
        damage: |victim| {
            let leaves: Vec<_> = victim.leaves(RootId::CSUM_TREE).collect();
            for leaf in leaves {
                victim.edit_leaf(leaf.at, |items| {
                    for item in items.iter_mut().filter(|item| item.key.objectid == ObjectId::EXTENT_CSUM) {
                        item.data.truncate(4);
                    }
                });
            }
        },
        outcome: Fails(&["megabyte: inode ", "offset 0: only ", "sectors from logical ", "have a checksum"]),
    }]);
}

/// Overwrites the begin of the extent that a file's contents lie in, and mends its checksums.
fn overwrite_extent(victim: &mut Victim, image: &str, path: &str, stream: &[u8]) {
    let (_, extent) = disk_extent(victim, image, path);
    assert!(stream.len() as u64 <= extent.disk_num_bytes.get(), "{path}: {} bytes fit", stream.len());
    for (sector, bytes) in (0..).zip(stream.chunks(4096)) {
        victim
            .edit_data(extent.disk_bytenr + sector * 4096, |data| data[..bytes.len()].copy_from_slice(bytes));
    }
}

#[test]
fn streams_that_are_nonsense_behind_a_right_checksum() {
    run(&[
        Case {
            name: "zstd without its magic number",
            image: "zstd-levels",
            damage: |victim| overwrite_extent(victim, "zstd-levels", "zstd-1/regular", &[0xff]),
            outcome: Fails(&["zstd-1/regular: inode ", "offset 0: corrupt zstd extent at logical "]),
        },
        Case {
            name: "zlib without its header",
            image: "zlib-levels",
            damage: |victim| overwrite_extent(victim, "zlib-levels", "zlib-1/regular", &[0xff]),
            outcome: Fails(&["zlib-1/regular: inode ", "offset 0: corrupt zlib extent at logical "]),
        },
        Case {
            name: "lzo longer than it is",
            image: "lzo",
            damage: |victim| overwrite_extent(victim, "lzo", "lzo-0/regular", &[0xff; 4]),
            outcome: Fails(&["lzo-0/regular: inode ", "offset 0: corrupt lzo extent at logical "]),
        },
        Case {
            name: "lzo with a segment longer than it is",
            image: "lzo",
            damage: |victim| {
                let stream = [&0x1000_u32.to_le_bytes()[..], &u32::MAX.to_le_bytes()].concat();
                overwrite_extent(victim, "lzo", "lzo-0/regular", &stream);
            },
            outcome: Fails(&["corrupt lzo extent at logical ", "it is cut off at byte 8"]),
        },
        Case {
            name: "zstd that wants a window of 128 MiB",
            image: "zstd-levels",
            damage: |victim| {
                // Magic number, no content size, window of 2^27; then one block of 2^21 equal bytes.
                let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (27 - 10) << 3, 0x03, 0x00, 0x00, 0xaa];
                overwrite_extent(victim, "zstd-levels", "zstd-1/regular", &frame);
            },
            outcome: Fails(&["corrupt zstd extent at logical ", "requires too much memory"]),
        },
    ]);
}

/// Contents of a file.
fn read_file(filesystem: &Filesystem, path: &str) -> Result<Vec<u8>, String> {
    let id = filesystem.resolve(filesystem.root(), path.as_bytes()).expect("is there");
    let file = filesystem.open_file(id).expect("opens");
    let mut contents = vec![0xa5; usize::try_from(file.size()).expect("is small")];
    let length = filesystem.read(&file, 0, &mut contents).map_err(|error| error.to_string())?;
    assert_eq!(length, contents.len());
    Ok(contents)
}

#[test]
fn a_bomb_fills_its_extent_and_no_more() {
    let zeros = vec![0; 64 << 20];
    let zlib = {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&zeros).expect("compresses");
        // What is left out comes after everything that is wanted.
        let mut stream = encoder.finish().expect("compresses");
        stream.truncate(4000);
        stream
    };
    let zstd = zstd::stream::encode_all(&zeros[..], 1).expect("compresses");
    // One segment that holds far more than the sector it is for.
    let segment = lzokay::compress::compress(&zeros[..700_000]).expect("compresses");
    let lengths = [segment.len() + 8, segment.len()].map(|length| u32::try_from(length).expect("is short"));
    let lzo = [&lengths[0].to_le_bytes(), &lengths[1].to_le_bytes(), &segment[..]].concat();
    let bombs = [
        ("lzo", "lzo-0/regular", lzo),
        ("zlib-levels", "zlib-1/regular", zlib),
        ("zstd-levels", "zstd-1/regular", zstd.into_iter().take(4000).collect()),
    ];
    for (image, path, bomb) in bombs {
        let mut victim = Victim::load(image);
        overwrite_extent(&mut victim, image, path, &bomb);
        let read = within(image, move || read_file(&open(&victim, &top_level()).expect("opens"), path));
        match read {
            Ok(contents) => assert!(contents.iter().all(|byte| *byte == 0), "{image}"),
            Err(error) => assert!(error.contains("corrupt"), "{image}: {error}"),
        }
    }
}

#[test]
fn an_inline_extent_that_claims_another_compression_is_refused() {
    let mut victim = Victim::load("node-4k");
    let key = super::key_of("node-4k", "sizes/2047", KeyType::EXTENT_DATA, 0);
    for compression in [Compression::Zlib, Compression::Lzo, Compression::Zstd] {
        victim.edit_item(RootId::FS_TREE, &key, |header: &mut FileExtentHeader| {
            header.compression = compression as u8;
        });
        let error = read_file(&open(&victim, &top_level()).expect("opens"), "sizes/2047");
        let error = error.expect_err("it is not compressed");
        assert!(error.contains(&format!("corrupt {compression} extent")), "{error}");
    }
}
