//! The kernel's table of mounts (`/proc/self/mountinfo`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Which mount: the device number that the kernel made up for it, as `major:minor`. When the mount is gone, the
/// next one gets the number, wherever that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountId(String);

impl MountId {
    /// `major:minor`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// One line of the table.
struct Line<'a> {
    device: &'a str,
    mountpoint: PathBuf,
}

/// The topmost mount on this directory.
pub(crate) fn mounted_on(mountpoint: &Path) -> Option<MountId> {
    find_on(&std::fs::read(TABLE).ok()?, mountpoint)
}

const TABLE: &str = "/proc/self/mountinfo";

fn find_on(table: &[u8], mountpoint: &Path) -> Option<MountId> {
    let found = lines(table).filter(|line| line.mountpoint == mountpoint).last();
    found.map(|line| MountId(line.device.to_owned()))
}

fn lines(table: &[u8]) -> impl Iterator<Item = Line<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        // mount id, parent id, major:minor, root, mount point, ...
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = std::str::from_utf8(fields.next()?).ok()?;
        let mountpoint = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
        Some(Line { device, mountpoint })
    })
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(code) => {
                plain.push(code);
                rest = &behind[3..];
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
        40 22 0:51 / /mnt/a\\040b\\134c rw - fuse.brindle x rw\n\
        41 22 0:52 / /mnt/d rw shared:1 - fuse.brindle y rw\n\
        42 41 0:53 / /mnt/d rw - tmpfs z rw\n";

    #[test]
    fn the_topmost_mount_is_found() {
        assert_eq!(find_on(SAMPLE, Path::new("/mnt/d")), Some(MountId("0:53".to_owned())));
        assert_eq!(find_on(SAMPLE, Path::new("/mnt/a b\\c")), Some(MountId("0:51".to_owned())));
        assert_eq!(find_on(SAMPLE, Path::new("/nowhere")), None);
    }
}
