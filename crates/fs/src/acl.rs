//! POSIX access control lists: what they do to modes, and modes to them (POSIX.1e draft 17). Kept as extended
//! attributes, in the form in which `setxattr` gets them.

use brindle_ondisk::to_u64;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Attribute of the ACL that grants access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute of a directory's ACL for new entries.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The only version there is (`POSIX_ACL_XATTR_VERSION`).
const VERSION: u32 = 2;

/// One entry (`posix_acl_xattr_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    tag: U16,
    permissions: U16,
    id: U32,
}
const _: () = assert!(size_of::<Entry>() == 8);

/// Subject of an entry, in the order in which they stand.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A list that is sound: its entries stand in their order, with the three of the mode once each, and a mask where
/// users or groups are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

/// Error of a malformed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAnAcl;

impl Acl {
    /// The list of an attribute; `None` if it has no entries, which stands for no list.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Self>, NotAnAcl> {
        let (version, entries) = U32::ref_from_prefix(value).map_err(|_| NotAnAcl)?;
        let entries = <[Entry]>::ref_from_bytes(entries).map_err(|_| NotAnAcl)?;
        if version.get() != VERSION {
            return Err(NotAnAcl);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self(entries.to_vec());
        if acl.is_sound() { Ok(Some(acl)) } else { Err(NotAnAcl) }
    }

    /// The value of the attribute.
    pub(crate) fn to_value(&self) -> Vec<u8> {
        [U32::new(VERSION).as_bytes(), self.0.as_bytes()].concat()
    }

    fn is_sound(&self) -> bool {
        let count = |tag: u16| self.0.iter().filter(|entry| entry.tag.get() == tag).count();
        let ranks: Option<Vec<_>> = self.0.iter().map(|entry| rank(entry.tag.get())).collect();
        let in_order = ranks.is_some_and(|ranks| ranks.is_sorted());
        let permissions = self.0.iter().all(|entry| entry.permissions.get() <= 7);
        let needs_mask = count(USER) + count(GROUP) > 0;
        let once = [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1);
        in_order && permissions && once && count(MASK) <= 1 && (!needs_mask || count(MASK) == 1)
    }

    /// Returns true if a mode expresses the whole list.
    pub(crate) fn is_minimal(&self) -> bool {
        to_u64(self.0.len()) == 3
    }

    /// The permission bits that a mode has beside this list.
    pub(crate) fn mode(&self) -> u32 {
        let of =
            |tag| self.0.iter().find(|entry| entry.tag.get() == tag).map(|entry| entry.permissions.get());
        // The class of the group can do no more than the mask lets it.
        let group = of(MASK).or(of(GROUP_OBJ)).unwrap_or(0);
        u32::from(of(USER_OBJ).unwrap_or(0)) << 6 | u32::from(group) << 3 | u32::from(of(OTHER).unwrap_or(0))
    }

    /// The list after `chmod` to these permission bits.
    pub(crate) fn with_mode(&self, mode: u32) -> Self {
        self.changed(|_, bits| bits, mode)
    }

    /// List that a new inode gets from a directory's default one, when its maker wants these permission bits: no more
    /// than both allow.
    pub(crate) fn inherited(&self, mode: u32) -> Self {
        self.changed(|before, bits| before & bits, mode)
    }

    /// The entries that stand for the three parts of a mode, changed by them.
    fn changed(&self, change: impl Fn(u16, u16) -> u16, mode: u32) -> Self {
        let bits = |shift: u32| u16::try_from(mode >> shift & 7).unwrap_or(0);
        let has_mask = self.0.iter().any(|entry| entry.tag.get() == MASK);
        let group = if has_mask { MASK } else { GROUP_OBJ };
        let mut changed = self.clone();
        for entry in &mut changed.0 {
            let part = match entry.tag.get() {
                USER_OBJ => bits(6),
                OTHER => bits(0),
                tag if tag == group => bits(3),
                _ => continue,
            };
            entry.permissions.set(change(entry.permissions.get(), part));
        }
        changed
    }
}

/// The place of a tag in the order; `None` for one that is unknown.
fn rank(tag: u16) -> Option<usize> {
    [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].into_iter().position(|known| known == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let entry = |&(tag, permissions): &(u16, u16)| Entry {
            tag: U16::new(tag),
            permissions: U16::new(permissions),
            id: U32::new(if matches!(tag, USER | GROUP) { 1000 } else { u32::MAX }),
        };
        Acl(entries.iter().map(entry).collect()).to_value()
    }

    fn parsed(entries: &[(u16, u16)]) -> Acl {
        Acl::parse(&acl(entries)).expect("a list").expect("not empty")
    }

    #[test]
    fn a_value_comes_back_as_it_was() {
        let value = acl(&[(USER_OBJ, 7), (USER, 5), (GROUP_OBJ, 4), (MASK, 5), (OTHER, 0)]);
        assert_eq!(value[..8], [2, 0, 0, 0, 1, 0, 7, 0], "the form of setxattr");
        assert_eq!(Acl::parse(&value).unwrap().unwrap().to_value(), value);
    }

    #[test]
    fn malformed_lists_are_refused() {
        for entries in [
            &[(USER_OBJ, 7), (GROUP_OBJ, 4)][..],
            &[(GROUP_OBJ, 7), (USER_OBJ, 4), (OTHER, 0)],
            &[(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 4), (OTHER, 0)],
            &[(USER_OBJ, 8), (GROUP_OBJ, 4), (OTHER, 0)],
            &[(USER_OBJ, 7), (GROUP_OBJ, 4), (OTHER, 0), (0x40, 0)],
            &[(USER_OBJ, 7), (USER_OBJ, 7), (GROUP_OBJ, 4), (OTHER, 0)],
        ] {
            assert_eq!(Acl::parse(&acl(entries)), Err(NotAnAcl), "{entries:?}");
        }
        assert_eq!(Acl::parse(&[2, 0, 0]), Err(NotAnAcl));
        assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(NotAnAcl));
        assert_eq!(Acl::parse(&[2, 0, 0, 0, 1]), Err(NotAnAcl));
        assert_eq!(Acl::parse(&[2, 0, 0, 0]), Ok(None));
    }

    #[test]
    fn the_mask_stands_for_the_group_in_the_mode() {
        let named = parsed(&[(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 1), (MASK, 6), (OTHER, 4)]);
        assert_eq!((named.mode(), named.is_minimal()), (0o764, false));
        let minimal = parsed(&[(USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0)]);
        assert_eq!((minimal.mode(), minimal.is_minimal()), (0o640, true));
        assert_eq!(named.with_mode(0o4750).mode(), 0o750);
        let expected = parsed(&[(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 1), (MASK, 5), (OTHER, 0)]);
        assert_eq!(named.with_mode(0o4750), expected);
    }

    #[test]
    fn a_new_inode_gets_what_both_allow() {
        let default = parsed(&[(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 5), (MASK, 7), (OTHER, 5)]);
        let expected = parsed(&[(USER_OBJ, 6), (USER, 7), (GROUP_OBJ, 5), (MASK, 6), (OTHER, 4)]);
        assert_eq!(default.inherited(0o666), expected);
        assert_eq!(default.inherited(0o666).mode(), 0o664);
    }
}
