//! The kernel's table of mounts (`mountinfo`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The types of brindle's mounts; the second is that of mounts on a block device.
pub const BRINDLE_TYPES: [&[u8]; 2] = [b"fuse.brindle", b"fuseblk.brindle"];
/// The type of the kernel's own.
pub const KERNEL_TYPE: &[u8] = b"btrfs";

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The number of the mount below whose mountpoint this one is.
    pub parent: u64,
    /// The number of the filesystem, as `major:minor`. All mounts of one filesystem have the same; once the last is gone, the next
    /// filesystem may get it.
    pub device: String,
    /// The directory of the filesystem that it shows.
    pub root: PathBuf,
    /// The directory that it covers.
    pub mountpoint: PathBuf,
    /// The options of the mount itself.
    pub options: String,
    /// The type of the filesystem.
    pub kind: Vec<u8>,
    /// The options of the filesystem, the same for all its mounts.
    pub super_options: String,
    /// The first column of mount(8): for mounts of ours the devices, unless told otherwise.
    pub source: PathBuf,
}

impl Mount {
    /// Returns true if the mount is one of brindle.
    pub fn is_ours(&self) -> bool {
        BRINDLE_TYPES.contains(&self.kind.as_slice())
    }

    /// Returns true if it is one of brindle on a block device, of which there can be further mounts.
    pub fn is_on_block_device(&self) -> bool {
        self.kind == BRINDLE_TYPES[1]
    }

    /// The number of the filesystem's connection, if it is one of FUSE: that of its device as the kernel has it.
    pub fn connection(&self) -> Option<u32> {
        connection(&self.device)
    }

    /// Returns true if both are mounts of one filesystem of brindle.
    pub fn is_of(&self, other: &Self) -> bool {
        self.is_ours() && self.device == other.device
    }
}

/// The mounts that this process sees, in the order in which they were made.
pub fn read() -> std::io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mounts that another process sees.
pub fn read_of(process: u32) -> std::io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(format!("/proc/{process}/mountinfo"))?))
}

/// The mount at a path: the last one, where several are.
pub fn at<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    mounts.iter().rfind(|mount| mount.mountpoint == path)
}

/// The mount that a path is in: that of the longest mount point above it, and the last one there.
pub fn holding<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.mountpoint));
    above.max_by_key(|mount| mount.mountpoint.components().count())
}

/// The number of the connection of a filesystem of FUSE with a number as `major:minor`: the same as the kernel has it.
pub fn connection(device: &str) -> Option<u32> {
    let (major, minor) = device.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

/// The lines of a table.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    // Number, parent, device, root, mountpoint, options, any number of tags, "-", type, source, options.
    let mut fields = line.split(|byte| *byte == b' ');
    let mut text = || Some(String::from_utf8_lossy(fields.next()?).into_owned());
    let (id, parent, device) = (text()?.parse().ok()?, text()?.parse().ok()?, text()?);
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(fields.next()?))));
    let (root, mountpoint) = (path()?, path()?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (behind.next()?.to_vec(), unescape(behind.next()?));
    let source = PathBuf::from(OsString::from_vec(source));
    let super_options = String::from_utf8_lossy(behind.next()?).into_owned();
    Some(Mount { id, parent, device, root, mountpoint, options, kind, super_options, source })
}

/// The table writes blanks and the like as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = || {
            let digits = after.get(..3).filter(|_| *byte == b'\\')?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
        };
        match octal() {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_a_path_counts() {
        let table = b"22 1 0:1 / / rw shared:1 - ext4 /dev/vda rw\n\
            30 22 0:40 / /a\\040b ro,nodev - fuse.brindle x.img ro\n\
            31 22 7:3 / /mnt ro - fuseblk.brindle /dev/loop3 ro\n\
            33 30 0:40 /d /a\\040b/c ro master:4 propagate_from:2 - fuse.brindle x.img ro\n\
            32 31 0:42 / /mnt rw - tmpfs none rw\n\
            34 30 0:43 / /e\\134f rw - overlay none rw,lowerdir=/\xff\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 6);
        let find = |path: &str| at(&mounts, Path::new(path)).expect("it is there");
        assert!(find("/a b").is_ours() && find("/a b").is_of(find("/a b/c")));
        assert_eq!((find("/a b/c").id, find("/a b/c").parent), (33, 30));
        assert!(mounts[2].is_ours() && mounts[2].device == "7:3");
        assert_eq!((mounts[1].connection(), mounts[2].connection()), (Some(40), Some(7 << 20 | 3)));
        assert_eq!(find("/a b").options, "ro,nodev");
        assert_eq!(
            (find("/mnt").super_options.as_str(), find("/a b/c").root.as_path()),
            ("rw", Path::new("/d"))
        );
        assert_eq!(find("/a b").source, Path::new("x.img"));
        let holding = |path: &str| holding(&mounts, Path::new(path)).map(|mount| mount.id);
        assert_eq!(
            [holding("/a b/d"), holding("/a b/c"), holding("/mnt/x"), holding("/a")],
            [Some(30), Some(33), Some(32), Some(22)]
        );
        assert_eq!((find("/mnt").kind.as_slice(), find("/mnt").device.as_str()), (&b"tmpfs"[..], "0:42"));
        assert_eq!(find("/e\\f").kind, b"overlay", "whatever bytes its options have");
        assert_eq!(at(&mounts, Path::new("/mnt/x")), None);
        assert!(parse(b"").is_empty() && parse(b"1 2\n").is_empty());
    }
}
