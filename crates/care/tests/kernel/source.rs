//! A directory with everything that a pool can hold, and a description of such a tree to compare by.

use super::host::run;
use brindle_ondisk::ChecksumType;
use rustix::fs::{AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;
/// The longest target that fits a leaf of 4 KiB, about.
const SHORT_TARGET: usize = 3700;

/// Amounts of files of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amounts {
    /// Entries of the largest directory.
    pub(crate) entries: usize,
    /// Names of one file.
    pub(crate) links: usize,
    /// The size of the largest file, in bytes.
    pub(crate) large: usize,
    /// True if symbolic links are as long as they can be.
    pub(crate) has_long_targets: bool,
}

/// Bytes that do not compress.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length).collect()
}

/// Makes the tree. Needs root.
pub(crate) fn make(at: &Path, amounts: Amounts) {
    fs::create_dir_all(at).expect("room");
    contents(at, amounts);
    holes(&at.join("holes"));
    names(at, amounts);
    specials(&at.join("specials"), amounts);
    attributes(at);
}

fn contents(at: &Path, amounts: Amounts) {
    let sizes = at.join("sizes");
    fs::create_dir(&sizes).expect("room");
    for size in [0, 1, 100, 2047, 2048, 2049, 3900, 4095, 4096, 4097, 8192, 65535, 131_071, 131_072, 131_073]
    {
        fs::write(sizes.join(format!("noise-{size}")), noise(size, size as u64 * 31)).expect("room");
        fs::write(sizes.join(format!("same-{size}")), vec![b'a'; size]).expect("room");
    }
    let mut mixed = File::create(at.join("mixed")).expect("room");
    for number in 0..8u64 {
        mixed.write_all(&noise(200_000, number + 9)).expect("room");
        mixed.write_all(&[7; 300_000]).expect("room");
    }
    let mut large = File::create(at.join("large")).expect("room");
    let piece = [noise(MIB - 5000, 77), vec![0x5a; 5000]].concat();
    for number in 0..amounts.large.div_ceil(MIB) {
        large.write_all(&number.to_le_bytes()).expect("room");
        large.write_all(&piece[8..]).expect("room");
    }
}

/// Files with holes: in front, between, behind, everywhere.
fn holes(at: &Path) {
    fs::create_dir(at).expect("room");
    let file = |name: &str, size: u64, data: &[(u64, usize)]| {
        let file = File::create(at.join(name)).expect("room");
        for (offset, length) in data {
            file.write_all_at(&noise(*length, *offset + 3), *offset).expect("room");
        }
        file.set_len(size).expect("room");
    };
    file("all", 9 << 20, &[]);
    file("front", (8 << 20) + 100, &[(8 << 20, 100)]);
    file("behind", 20 << 20, &[(0, 5000)]);
    file("between", 12 << 20, &[(0, 4096), (65536, 100_000), (5 << 20, 4096), ((12 << 20) - 4096, 4096)]);
    file("small", 6000, &[(5000, 10)]);
    file("unaligned", (3 << 20) + 1, &[(1_000_001, 3), (2_000_003, 70_001)]);
}

fn names(at: &Path, amounts: Amounts) {
    let many = at.join("many");
    fs::create_dir(&many).expect("room");
    for number in 0..amounts.entries {
        fs::write(many.join(format!("entry-{number}")), []).expect("room");
    }
    let links = at.join("links");
    fs::create_dir_all(links.join("other")).expect("room");
    fs::write(links.join("first"), "of many names").expect("room");
    for number in 0..amounts.links {
        let name = format!("{number:0200}");
        let to = if number % 3 == 0 { links.join("other").join(name) } else { links.join(name) };
        fs::hard_link(links.join("first"), to).expect("room");
    }
    let odd = at.join("odd");
    fs::create_dir(&odd).expect("room");
    for name in [&b"\xff\xfe\x80"[..], b"line\nbreak", b" ", b"\\", b"..."] {
        fs::write(odd.join(OsStr::from_bytes(name)), name).expect("room");
    }
    fs::write(odd.join("x".repeat(255)), "long").expect("room");
    fs::create_dir(odd.join(OsString::from_vec(vec![0xe9; 255]))).expect("room");
    let mut deep = at.join("deep");
    for level in 0..80 {
        fs::create_dir(&deep).expect("room");
        fs::write(deep.join("file"), format!("at level {level}")).expect("room");
        deep.push(format!("{level}"));
    }
}

fn specials(at: &Path, amounts: Amounts) {
    fs::create_dir(at).expect("room");
    let node = |name: &str, kind, mode, device| {
        rustix::fs::mknodat(CWD, at.join(name), kind, Mode::from_raw_mode(mode), device).expect("root");
    };
    node("null", FileType::CharacterDevice, 0o666, rustix::fs::makedev(1, 3));
    node("disk", FileType::BlockDevice, 0o660, rustix::fs::makedev(259, 70_000));
    node("pipe", FileType::Fifo, 0o600, 0);
    drop(UnixListener::bind(at.join("socket")).expect("room"));
    let longest = if amounts.has_long_targets { 4095 } else { SHORT_TARGET };
    for length in [1, 59, 60, 255, 1000, 2048, longest] {
        symlink("t".repeat(length), at.join(format!("to-{length}"))).expect("room");
    }
    symlink(OsStr::from_bytes(b"\xff/\x80"), at.join("to-odd")).expect("room");
}

fn attributes(at: &Path) {
    let with = at.join("with");
    fs::create_dir(&with).expect("room");
    for mode in [0o000, 0o400, 0o444, 0o755, 0o4755, 0o2755, 0o6711] {
        let path = with.join(format!("{mode:o}"));
        fs::write(&path, "x").expect("room");
        std::os::unix::fs::chown(&path, Some(mode + 70_000), Some(4_000_000_000)).expect("root");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("own file");
    }
    fs::create_dir(with.join("sticky")).expect("room");
    fs::set_permissions(with.join("sticky"), Permissions::from_mode(0o3777)).expect("own directory");
    let link = with.join("owned-link");
    symlink("nowhere", &link).expect("room");
    std::os::unix::fs::lchown(&link, Some(12), Some(34)).expect("root");
    let shell = "set -e; cd \"$1\"; echo x >acl; setfacl -m u:1234:rw,g:99:r,m::rwx acl; mkdir inherit
        setfacl -d -m u:77:rx inherit; setfacl -m u:78:x inherit
        setfattr -n user.empty acl; setfattr -n user.key -v value acl; setfattr -n trusted.t -v 0x00ff00 acl
        setfattr -n user.large -v \"$(head -c 2000 /dev/zero | tr '\\0' v)\" 755
        setfattr -h -n trusted.link -v here owned-link; setfattr -n user.d -v directory inherit";
    run(Command::new("sh").args(["-c", shell, "sh"]).arg(&with));
    for (path, seconds, nanoseconds) in [
        ("acl", -5, 0),
        ("inherit", 4_102_444_800, 999_999_999),
        ("owned-link", 1, 1),
        ("755", 981_173_106, 7),
    ] {
        let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps { last_access: time(seconds + 1), last_modification: time(seconds) };
        rustix::fs::utimensat(CWD, with.join(path), &times, AtFlags::SYMLINK_NOFOLLOW).expect("own file");
    }
}

/// Description of a tree, by path: everything that must be the same.
pub(crate) type Description = BTreeMap<PathBuf, String>;

/// Describes a tree: first the times of everything, then what reading may change.
pub(crate) fn describe(root: &Path) -> Description {
    let mut found = Description::new();
    let mut first_names: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut paths = vec![PathBuf::new()];
    while let Some(path) = paths.pop() {
        let full = root.join(&path);
        let stat = fs::symlink_metadata(&full).expect("readable");
        let mut text = format!(
            "mode {:o} owner {}:{} modified {}.{:09} accessed {}.{:09}",
            stat.mode(),
            stat.uid(),
            stat.gid(),
            stat.mtime(),
            stat.mtime_nsec(),
            stat.atime(),
            stat.atime_nsec()
        );
        let kind = FileType::from_raw_mode(stat.mode());
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
            text += &format!(" device {:x}", stat.rdev());
        }
        if stat.is_dir() {
            let mut names: Vec<OsString> = fs::read_dir(&full)
                .expect("readable")
                .map(|child| child.expect("readable").file_name())
                .collect();
            names.sort();
            paths.extend(names.into_iter().rev().map(|name| path.join(name)));
        } else {
            let first = first_names.entry((stat.dev(), stat.ino())).or_insert_with(|| path.clone());
            text += &format!(" size {} links {} first {}", stat.size(), stat.nlink(), first.display());
        }
        found.insert(path, text);
    }
    for (path, text) in &mut found {
        *text += &details(&root.join(path));
    }
    found
}

fn details(path: &Path) -> String {
    let mut text = String::new();
    let mut buffer = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut buffer[..]).expect("readable");
    let mut names: Vec<Vec<u8>> = buffer[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    names.sort();
    for name in names {
        let length = rustix::fs::lgetxattr(path, &name[..], &mut buffer[..]).expect("readable");
        text += &format!(" {}={}", name.escape_ascii(), buffer[..length].escape_ascii());
    }
    let stat = fs::symlink_metadata(path).expect("readable");
    if stat.is_symlink() {
        text +=
            &format!(" to {}", fs::read_link(path).expect("readable").as_os_str().as_bytes().escape_ascii());
    }
    if stat.is_file() {
        let contents = fs::read(path).expect("readable");
        text += &format!(" contents {}", ChecksumType::Blake2b.compute(&contents));
        // What has no holes in the source may be given none here either.
        if path.parent().is_some_and(|parent| parent.ends_with("holes")) && stat.size() > MIB as u64 {
            text += &format!(" data {:?}", data_ranges(path));
        }
    }
    text
}

/// Ranges of a file that hold data.
fn data_ranges(path: &Path) -> Vec<(u64, u64)> {
    let file = OpenOptions::new().read(true).open(path).expect("readable");
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).expect("the end is a hole");
        ranges.push((start, end));
        at = end;
    }
    ranges
}
