//! Contents of a pool: every type, every size where something changes, and large numbers of rare things.

use super::pool::run;
use rustix::fs::{CWD, FallocateFlags, FileType, IFlags, Mode, XattrFlags};
use std::fs::{File, create_dir, write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

const SIZES: [usize; 13] =
    [0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 131_071, 131_072, 131_073, 262_145, (5 << 20) + 77];

/// Fills a mounted pool.
pub(crate) fn fill(root: &Path) {
    let below = |name: &str| {
        let path = root.join(name);
        create_dir(&path).expect("directory");
        path
    };
    sizes(&below("sizes"));
    layouts(&below("layouts"));
    many(&below("many"));
    links(&below("links"));
    names(&below("names"));
    attributes(&below("attributes"));
    special(&below("special"));
    subvolumes(&below("subvolumes"));
}

/// Bytes that nothing compresses, the same each time (xorshift).
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Bytes that everything compresses.
fn text(length: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|number: u32| format!("line {number} of a text\n").into_bytes());
    lines.take(length).collect()
}

fn sizes(directory: &Path) {
    for size in SIZES {
        write(directory.join(format!("noise-{size}")), noise(size, size as u64)).expect("file");
        write(directory.join(format!("text-{size}")), text(size)).expect("file");
    }
}

fn layouts(directory: &Path) {
    let create = |name: &str| File::create_new(directory.join(name)).expect("file");
    let put = |file: &File, offset: u64, bytes: &[u8]| file.write_all_at(bytes, offset).expect("write");
    let holes = create("holes");
    put(&holes, 1 << 20, &noise(5000, 1));
    put(&holes, 3 << 20, &text(300_000));
    holes.set_len(10_000_001).expect("size");
    let hole = create("hole");
    hole.set_len(123_456).expect("size");

    // Committed in between, so that there are extents of which a part is left.
    let patched = create("patched");
    put(&patched, 0, &text(1 << 20));
    patched.sync_all().expect("sync");
    for offset in (0..1 << 20).step_by(150_000) {
        put(&patched, offset, &noise(7000, offset + 1));
    }
    patched.sync_all().expect("sync");

    let cloned = create("cloned");
    rustix::fs::ioctl_ficlone(&cloned, &patched).expect("clone");
    put(&cloned, 70_000, b"its own");

    let preallocated = create("preallocated");
    rustix::fs::fallocate(&preallocated, FallocateFlags::empty(), 0, 1 << 20).expect("fallocate");
    put(&preallocated, 100_000, &noise(50_000, 3));
    let punched = create("punched");
    put(&punched, 0, &noise(400_000, 4));
    punched.sync_all().expect("sync");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, punch, 65_000, 200_000).expect("fallocate");

    let plain = create("without-checksums");
    rustix::fs::ioctl_setflags(&plain, IFlags::NOCOW).expect("flags");
    put(&plain, 0, &noise(100_000, 5));
}

fn many(directory: &Path) {
    for number in 0..1500_usize {
        let contents = if number % 100 == 0 { text(number * 10) } else { noise(number % 40, number as u64) };
        write(directory.join(format!("entry {number:04}")), contents).expect("file");
    }
}

fn links(directory: &Path) {
    let first = directory.join("first");
    write(&first, b"of many names").expect("file");
    for number in 0..400 {
        let name = format!("{number:03}-{}", "link".repeat(20));
        std::fs::hard_link(&first, directory.join(name)).expect("link");
    }
}

fn names(directory: &Path) {
    let longest = vec![b'n'; 255];
    let names: [&[u8]; 7] = [
        &longest,
        "gr\u{fc}\u{df}e \u{65e5}\u{672c}\u{8a9e} \u{1f980}".as_bytes(),
        b"not utf-8 \xff\xfe",
        b"new\nline",
        b" ",
        b"...",
        b"\x01\x7f",
    ];
    for name in names {
        write(directory.join(std::ffi::OsStr::from_bytes(name)), name).expect("file");
    }
}

/// An access control list as the kernel takes it: one entry for a user besides the usual ones.
fn access_list() -> Vec<u8> {
    const NOBODY_IN_PARTICULAR: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (1, 6, NOBODY_IN_PARTICULAR),
        (2, 4, 1000),
        (4, 4, NOBODY_IN_PARTICULAR),
        (16, 6, NOBODY_IN_PARTICULAR),
        (32, 4, NOBODY_IN_PARTICULAR),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    list
}

fn attributes(directory: &Path) {
    let file = |name: &str| {
        let path = directory.join(name);
        write(&path, name).expect("file");
        path
    };
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).expect("xattr");
    };
    let long = file("long");
    set(&long, "user.long", &noise(3000, 6));
    let several = file("several");
    for number in 0..40_usize {
        set(&several, &format!("user.number-{number}"), &noise(number, number as u64));
    }
    set(&several, "trusted.overlay", b"y");
    set(&several, "security.test", &[0, 1, 2, 255]);
    let listed = file("listed");
    set(&listed, "system.posix_acl_access", &access_list());
    let inheriting = directory.join("inheriting");
    create_dir(&inheriting).expect("directory");
    set(&inheriting, "system.posix_acl_default", &access_list());
    write(inheriting.join("file"), b"inherits").expect("file");
    create_dir(inheriting.join("directory")).expect("directory");

    let owned = file("owned");
    std::os::unix::fs::chown(&owned, Some(4_000_000_000), Some(65_534)).expect("chown");
    rustix::fs::chmod(&owned, Mode::from_raw_mode(0o6751)).expect("chmod");
}

fn special(directory: &Path) {
    for (name, kind, (major, minor)) in [
        ("char", FileType::CharacterDevice, (1, 3)),
        ("block", FileType::BlockDevice, (7, 200)),
        ("large-numbers", FileType::CharacterDevice, (4095, 1_048_575)),
        ("fifo", FileType::Fifo, (0, 0)),
        ("socket", FileType::Socket, (0, 0)),
    ] {
        let device = rustix::fs::makedev(major, minor);
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, directory.join(name), kind, mode, device).expect("node");
    }
    symlink("char", directory.join("link")).expect("link");
    symlink("d/".repeat(1500), directory.join("long-link")).expect("link");
    symlink("\u{fc}ber alles/../hinaus", directory.join("odd-link")).expect("link");
}

fn subvolumes(directory: &Path) {
    let volume = directory.join("volume");
    run("btrfs", ["-q", "subvolume", "create"], [&volume]);
    write(volume.join("inline"), b"small").expect("file");
    write(volume.join("file"), text(200_000)).expect("file");
    write(volume.join("removed"), noise(20_000, 7)).expect("file");
    run("btrfs", ["-q", "subvolume", "create"], [volume.join("nested")]);
    write(volume.join("nested/file"), noise(3000, 8)).expect("file");

    let snapshot = |options: &[&'static str], source: &Path, target: &Path| {
        let options = ["-q", "subvolume", "snapshot"].into_iter().chain(options.iter().copied());
        run("btrfs", options, [source, target]);
    };
    let first = directory.join("snapshot");
    snapshot(&[], &volume, &first);
    std::fs::remove_file(volume.join("removed")).expect("remove");
    let file = File::options().write(true).open(volume.join("file")).expect("file");
    file.write_all_at(&noise(9000, 9), 100_000).expect("write");
    write(first.join("added"), b"to the snapshot").expect("file");
    let second = directory.join("snapshot-of-snapshot");
    snapshot(&[], &first, &second);
    write(second.join("inline"), text(5000)).expect("file");
    snapshot(&["-r"], &second, &directory.join("read-only"));
}
