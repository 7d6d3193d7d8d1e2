//! The kernel's table of mounts, as far as it tells where a pool is.

use crate::control::Mounted;
use brindle_ondisk::Uuid;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const TABLE: &str = "/proc/self/mountinfo";
/// The types of mounts that a pool may have: of the kernel, and of brindle.
const TYPES: [&[u8]; 2] = [b"btrfs", b"fuse.brindle"];

impl Mounted {
    /// The mount of a pool, wherever that is: one of the kernel, or else one of brindle. `None` if the pool is not mounted,
    /// as far as the caller sees.
    pub fn find(fsid: &Uuid) -> Option<Self> {
        let table = std::fs::read(TABLE).ok()?;
        // A place may be hidden by another mount, or closed to the caller.
        let is_it = |mounted: &Self| mounted.filesystem().is_ok_and(|info| info.fsid == fsid.0);
        TYPES.into_iter().find_map(|kind| {
            let places = mountpoints(&table, kind);
            places.filter_map(|place| Self::open(&place).ok()).find(is_it)
        })
    }
}

/// The places where something of a type is mounted.
fn mountpoints<'t>(table: &'t [u8], kind: &'t [u8]) -> impl Iterator<Item = PathBuf> + 't {
    table.split(|byte| *byte == b'\n').filter_map(move |line| {
        // mount id, parent id, major:minor, root, mount point, options, optional fields, "-", type, ...
        let mut fields = line.split(|byte| *byte == b' ');
        let place = fields.nth(4)?;
        let found = fields.skip_while(|field| *field != b"-").nth(1)?;
        (found == kind).then(|| PathBuf::from(OsString::from_vec(unescape(place))))
    })
}

/// The table writes blanks and the like as a backslash and three octal digits.
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

    #[test]
    fn places_of_a_type_are_found() {
        let table = b"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
            40 22 0:51 /sub /mnt/a\\040b rw shared:3 master:1 - btrfs /dev/sdb rw\n\
            41 22 0:52 / /mnt/d rw shared:1 - fuse.brindle y rw\n\
            42 22 0:51 / /mnt/e rw - btrfs /dev/sdb rw\n";
        let of = |kind: &'static [u8]| mountpoints(table, kind).collect::<Vec<_>>();
        assert_eq!(of(b"btrfs"), [PathBuf::from("/mnt/a b"), PathBuf::from("/mnt/e")]);
        assert_eq!(of(b"fuse.brindle"), [PathBuf::from("/mnt/d")]);
        assert!(of(b"tmpfs").is_empty());
    }
}
