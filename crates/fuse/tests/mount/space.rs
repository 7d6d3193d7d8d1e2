//! Space that is given back to the devices of a mount.

use crate::support::{Written, can_mount, patiently, run, writable_options};
use brindle_fs::WriteOptions;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes that the image takes of the filesystem that it lies on.
fn allocated(image: &Path) -> u64 {
    image.metadata().expect("stat").blocks() * 512
}

fn fill(path: &Path, length_mib: usize) {
    let mut file = File::create(path).expect("create");
    for number in 0..length_mib {
        file.write_all(&vec![number.to_le_bytes()[0] | 1; 1 << 20]).expect("write");
    }
    file.sync_all().expect("durable");
}

#[test]
fn fstrim_makes_holes_of_what_is_not_used() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("1G");
    fill(&ours.root().join("kept"), 16);
    fill(&ours.root().join("gone"), 64);
    let full = allocated(&ours.image);
    std::fs::remove_file(ours.root().join("gone")).expect("unlink");
    // The kernel closes files and forgets inodes behind the program's back: the contents go then.
    patiently(|| {
        ours.commit();
        let said = run(Command::new("fstrim").arg("-v").arg(ours.root()));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("trimmed"), "{said}");
        let left = allocated(&ours.image);
        let is_given_back = left + (60 << 20) < full;
        is_given_back.then_some(()).ok_or_else(|| format!("{full} bytes before, {left} bytes after"))
    })
    .unwrap_or_else(|said| panic!("{said}"));
    let kept = std::fs::read(ours.root().join("kept")).expect("read");
    assert!(kept.chunks(1 << 20).zip(0usize..).all(|(part, number)| {
        let byte = number.to_le_bytes()[0] | 1;
        part.iter().all(|found| *found == byte)
    }));
    ours.finish();
}

#[test]
fn fstrim_keeps_to_the_range_that_it_is_given() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let trim = |offset: &str, length: &str, minimum: &str| {
        let range = ["-v", "-o", offset, "-l", length, "-m", minimum];
        let done = Command::new("fstrim").args(range).arg(ours.root()).output().expect("fstrim starts");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let bytes = said.split(['(', ' ']).rev().skip(2).find_map(|word| word.parse::<u64>().ok());
        done.status.success().then(|| bytes.unwrap_or_else(|| panic!("{said}")))
    };
    let (all, rest) = ("18446744073709551615", "1073741824");
    assert_eq!(trim("0", "4095", "0"), None, "less than a sector");
    assert_eq!(trim("18446744073709551610", "4096", "0"), None, "behind the last address");
    assert_eq!(trim("0", "4096", "0"), Some(0), "no chunk begins so early");
    assert_eq!(trim("1099511627776", rest, "0"), Some(0), "behind all chunks");
    assert_eq!(trim("0", all, "1099511627776"), Some(0), "no free range is that long");
    // The first chunk that is not mkfs' own: data of 8 MiB or more.
    let part = trim("13631488", "1048576", "0").expect("a part of a chunk");
    assert!(part <= 1 << 20, "{part}");
    let whole = trim("0", all, "0").expect("everything");
    assert!(whole > 400 << 20, "{whole}");
    ours.finish();
}

#[test]
fn freed_space_is_discarded_in_the_background() {
    if !can_mount() {
        return;
    }
    let write = WriteOptions { discard: true, ..WriteOptions::default() };
    let mut ours = Written::make_with("1G", &write, &writable_options());
    fill(&ours.root().join("gone"), 64);
    let full = allocated(&ours.image);
    std::fs::remove_file(ours.root().join("gone")).expect("unlink");
    let end = Instant::now() + Duration::from_secs(60);
    while allocated(&ours.image) + (60 << 20) > full {
        assert!(Instant::now() < end, "{full} bytes before, {} after", allocated(&ours.image));
        // The kernel forgets the inode behind the program's back: the first commit may come before that.
        ours.commit();
        std::thread::sleep(Duration::from_millis(200));
    }
    ours.finish();
}

/// The contents as they are in the file, past the page cache.
fn read_directly(path: &Path) -> Vec<u8> {
    let direct = OFlags::DIRECT.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(direct).open(path).expect("open");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("read");
    bytes
}

#[test]
fn writes_refused_with_enospc_are_not_read_from_the_cache() {
    const WRITTEN: usize = 192 << 20;
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("128M");
    let path = ours.root().join("large");
    let mut file = File::create(&path).expect("create");
    for number in 0..WRITTEN >> 20 {
        if file.write_all(&vec![number.to_le_bytes()[0] | 1; 1 << 20]).is_err() {
            break;
        }
    }
    let error = file.sync_all().expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    drop(file);
    let stored = read_directly(&path);
    let count = stored.iter().filter(|byte| **byte != 0).count();
    assert!(count > 0 && count < WRITTEN, "{count} of {WRITTEN} bytes are in the file");
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let cached = std::fs::read(&path).expect("read");
        let (there, behind) = cached.split_at(stored.len());
        if there == stored && behind.iter().all(|byte| *byte == 0) {
            break;
        }
        assert!(Instant::now() < end, "the cache has what is not in the file");
        std::thread::sleep(Duration::from_millis(100));
    }
    ours.remount();
    assert!(std::fs::read(&path).expect("read") == stored, "what was read is what lasts");
    ours.finish();
}

/// Writes on and on, without ever syncing; what was taken until there was an error, in bytes.
fn write_until_told(file: &mut File) -> u64 {
    const FAR_TOO_MUCH: u64 = 2 << 30;
    let mut taken = 0;
    while taken < FAR_TOO_MUCH {
        match file.write(&vec![7; 1 << 20]) {
            Ok(length) => taken += length as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                return taken;
            }
        }
    }
    panic!("{taken} bytes were taken, and nobody was told");
}

#[test]
fn writers_without_a_sync_get_enospc() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("192M");
    let filler = ours.root().join("filler");
    fill(&filler, 48);
    let path = ours.root().join("large");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("create");
    write_until_told(&mut file);
    let length = path.metadata().expect("others may look at it").len();
    assert_eq!(file.metadata().expect("the writer, too").len(), length);
    file.write_all(b"more").expect_err("looking at it changes nothing");
    assert_eq!(std::fs::read(&path).expect("it can be read").len() as u64, length);
    let other = ours.root().join("other");
    File::create(&other).expect("there is room for a name");
    std::fs::remove_file(&filler).expect("unlink");
    // The kernel forgets the inode behind the program's back, and the room is there after that.
    let mut taken = 0;
    let enough = patiently(|| {
        taken += write_until_told(&mut file);
        (taken >= 32 << 20).then_some(()).ok_or(taken)
    });
    enough.unwrap_or_else(|taken| panic!("{taken} bytes, where 48 MiB were given back"));
    file.set_len(4096).expect("shorter");
    file.write_all(b"more").expect("there is room again");
    // What was refused before is told once more.
    file.sync_all().ok();
    file.sync_all().expect("all that is left is durable");
    drop(file);
    ours.finish();
}

#[test]
fn a_full_pool_takes_writes_in_place() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("128M");
    let path = ours.root().join("in-place");
    File::create(&path).expect("create");
    run(Command::new("chattr").arg("+C").arg(&path));
    fill(&path, 8);
    let mut file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    file.seek(SeekFrom::End(0)).expect("seek");
    write_until_told(&mut file);
    // All that the kernel has taken goes the same way.
    file.sync_all().ok();
    let new = vec![9; 1 << 20];
    // What was refused last is told by the first write, at the most.
    file.write_all_at(&new, 2 << 20).or_else(|_| file.write_all_at(&new, 2 << 20)).expect("it needs no room");
    file.sync_all().expect("durable");
    file.write_all_at(&new, 4 << 20).expect("nothing was refused any more");
    drop(file);
    ours.remount();
    let mut stored = vec![0; 8 << 20];
    File::open(&path).expect("open").read_exact(&mut stored).expect("read");
    let parts = stored.chunks(1 << 20).map(|part| part[4711]).collect::<Vec<_>>();
    assert_eq!(parts, [1, 1, 9, 3, 9, 5, 7, 7]);
    ours.finish();
}

#[test]
fn a_file_takes_what_it_will_take_before_it_is_written() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let path = ours.root().join("file");
    let file = File::create(&path).expect("create");
    let blocks = || path.metadata().expect("stat").blocks();
    let becomes = |expected: u64| {
        patiently(|| if blocks() == expected { Ok(()) } else { Err(blocks()) })
            .expect("the blocks of the file");
    };
    file.write_all_at(&[7; 100], 0).expect("room");
    // The kernel alone has it.
    becomes(8);
    file.sync_all().expect("durable");
    assert_eq!(blocks(), 8);
    file.write_all_at(&vec![7; 1 << 20], 0).expect("room");
    file.sync_all().expect("durable");
    becomes(2048);
    file.write_all_at(&vec![8; 1 << 20], 0).expect("room");
    assert_eq!(blocks(), 2048, "written over");
    file.sync_all().expect("durable");
    assert_eq!(blocks(), 2048);
    drop(file);
    let over = ["bs=1M", "count=2", "seek=1", "oflag=direct", "conv=notrunc"];
    for _ in 0..2 {
        run(Command::new("dd").arg("if=/dev/zero").arg(format!("of={}", path.display())).args(over));
        becomes(6144);
    }
    let copy = ours.root().join("copy");
    run(Command::new("cp").arg("--reflink=never").args([&path, &copy]));
    assert_eq!(copy.metadata().expect("stat").blocks(), 6144, "closed is as good as synced");
    ours.finish();
}

#[test]
fn a_full_pool_has_no_room_while_contents_wait() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("256M");
    let free = || {
        let space = rustix::fs::statvfs(ours.root()).expect("statvfs");
        (space.f_bavail * space.f_frsize, space.f_bfree * space.f_frsize)
    };
    let empty = free();
    let mut file = File::create(ours.root().join("file")).expect("create");
    write_until_told(&mut file);
    file.sync_all().ok();
    let (available, unused) = free();
    assert!(available < 8 << 20, "{available} bytes of {empty:?}");
    ours.commit();
    let (durable, unused_then) = free();
    assert!(durable < 8 << 20, "{durable} bytes");
    assert!(unused.abs_diff(unused_then) < 8 << 20, "{unused} bytes and then {unused_then}");
    file.set_len(0).expect("shorter");
    drop(file);
    ours.commit();
    let (again, _) = free();
    assert!(again + (8 << 20) > empty.0, "{again} bytes of {empty:?}");
    ours.finish();
}
