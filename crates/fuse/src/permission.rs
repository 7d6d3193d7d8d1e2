//! Permissions of callers. The kernel checks what it knows; ioctls that change directories are ours to check, by the same
//! rules: mode bits and access lists.
//!
//! On mounts that may map owners (`MOUNT_ATTR_IDMAP`) the kernel tells user and group only of a caller that makes something, as the
//! mount maps them. Those of all others are looked up in `/proc`. An ioctl does not tell the mount that it came by: if the caller
//! can see a mount that maps owners, it owns nothing for us, unless it is an administrator.

use brindle_fs::{Attributes, Filesystem, FsError, SetIdRight};
use brindle_uapi::mount_table;
use rustix::io::Errno;

/// Caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// User and group, if the kernel tells them.
    pub(crate) told: Option<Ids>,
    /// 0 if it can't be seen from here.
    pub(crate) pid: u32,
}

/// User and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The access list of an inode.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// `CAP_FSETID`, as a bit.
const FSETID: u64 = 1 << 4;
/// Umask of a caller that can't be seen from here.
const USUAL_UMASK: u32 = 0o022;
const WRITE: u16 = 2;
const EXECUTE: u16 = 1;
const STICKY: u32 = 0o1000;

/// Tags of an access list's entries.
const USER_OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One line of an access list.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

impl Caller {
    /// Returns true for root, and for the user that serves the mount: that one could write the devices anyway.
    pub(crate) fn is_administrator(&self) -> bool {
        self.own_ids().is_some_and(Ids::is_administrator)
    }

    /// User and group as the filesystem has them; `None` if they are not known.
    pub(crate) fn ids(&self) -> Option<Ids> {
        let ids = self.own_ids()?;
        let may_be_mapped = || self.told.is_none() && !ids.is_administrator() && self.sees_mapped_owners();
        (!may_be_mapped()).then_some(ids)
    }

    /// Owner of something new, which the kernel tells.
    pub(crate) fn maker(&self) -> Ids {
        self.told.unwrap_or(Ids::NOBODY)
    }

    fn own_ids(&self) -> Option<Ids> {
        self.told.or_else(|| ids_of(&self.status()))
    }

    /// Returns true if a mount of ours that the caller can see maps owners.
    fn sees_mapped_owners(&self) -> bool {
        let maps = |options: &str| options.split(',').any(|option| option == "idmapped");
        let mounts = mount_table::read_of(self.pid);
        mounts.map_or(true, |mounts| mounts.iter().any(|mount| mount.is_ours() && maps(&mount.options)))
    }

    /// Refuses other callers.
    pub(crate) fn require_administrator(&self) -> Result<(), Errno> {
        if self.is_administrator() { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Refuses a caller that neither owns it nor is an administrator.
    pub(crate) fn require_owner(&self, attributes: &Attributes) -> Result<(), Errno> {
        let is_owner = self.ids().is_some_and(|ids| ids.uid == attributes.uid);
        if is_owner { Ok(()) } else { self.require_administrator() }
    }

    /// Refuses a caller that may not change the entries of a directory.
    pub(crate) fn require_change(
        &self,
        filesystem: &Filesystem,
        directory: &Attributes,
    ) -> Result<(), Errno> {
        if self.is_administrator() {
            return Ok(());
        }
        let list = filesystem
            .xattr(directory.id, ACCESS_LIST)
            .map_err(|error: FsError| crate::errno::errno_of(&error))?;
        let entries = list.as_deref().map_or_else(|| from_mode(directory.mode), parse);
        let ids = self.ids().ok_or(Errno::ACCESS)?;
        let allowed = ids.allowed(&entries, directory, &self.groups());
        let wanted = WRITE | EXECUTE;
        if allowed & wanted == wanted { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Refuses a caller that may not remove this from a directory with the sticky bit.
    pub(crate) fn require_removal(&self, directory: &Attributes, victim: &Attributes) -> Result<(), Errno> {
        let is_sticky = directory.mode & STICKY != 0;
        let owns = |ids: Ids| ids.uid == directory.uid || ids.uid == victim.uid;
        let is_owner = self.ids().is_some_and(owns);
        if is_sticky && !is_owner { self.require_administrator() } else { Ok(()) }
    }

    /// Returns true if the caller may keep a set-group-id bit for this group: as one of its members, or as an
    /// administrator.
    pub(crate) fn may_set_group_id(&self, gid: u32) -> bool {
        self.is_administrator() || self.is_member(gid)
    }

    /// The right of the caller to leave set-user-id and set-group-id to a file that it changes.
    pub(crate) fn set_id_right(&self, gid: u32) -> SetIdRight {
        if self.has_fsetid() { SetIdRight::Keep } else { self.group_right(gid) }
    }

    /// The same, of a caller that is known to lack `CAP_FSETID`.
    pub(crate) fn group_right(&self, gid: u32) -> SetIdRight {
        if self.is_member(gid) { SetIdRight::GroupMember } else { SetIdRight::None }
    }

    fn is_member(&self, gid: u32) -> bool {
        self.ids().is_some_and(|ids| ids.gid == gid || self.groups().contains(&gid))
    }

    /// Returns true if the caller has `CAP_FSETID` where the mount is served. Root has it where `/proc` does not say.
    fn has_fsetid(&self) -> bool {
        let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user")).ok();
        let is_here = || namespace(&self.pid.to_string()) == namespace("self");
        match effective_capabilities(&self.status()) {
            Some(capabilities) => capabilities & FSETID != 0 && is_here(),
            None => self.own_ids().is_some_and(|ids| ids.uid == 0),
        }
    }

    /// The permissions that the caller does not give by itself, which ioctls do not carry.
    pub(crate) fn umask(&self) -> u32 {
        umask_of(&self.status()).unwrap_or(USUAL_UMASK)
    }

    /// The supplementary groups, which requests do not carry.
    fn groups(&self) -> Vec<u32> {
        groups_of(&self.status())
    }

    /// Status of the caller in `/proc`.
    fn status(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default()
    }
}

impl Ids {
    /// Owner of what the kernel told no owner of.
    const NOBODY: Self = Self { uid: 65534, gid: 65534 };

    fn is_administrator(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// The rule of POSIX.1e: the first class that fits counts; among groups any that allows it.
    fn allowed(self, entries: &[Entry], attributes: &Attributes, groups: &[u32]) -> u16 {
        let of = |tag| entries.iter().filter(move |entry| entry.tag == tag);
        let mask = of(MASK).map(|entry| entry.permissions).next().unwrap_or(0o7);
        if self.uid == attributes.uid {
            return of(USER_OWNER).map(|entry| entry.permissions).next().unwrap_or(0);
        }
        if let Some(entry) = of(USER).find(|entry| entry.id == self.uid) {
            return entry.permissions & mask;
        }
        let is_member = |gid: u32| self.gid == gid || groups.contains(&gid);
        let owning = of(GROUP_OWNER).filter(|_| is_member(attributes.gid));
        let named = of(GROUP).filter(|entry| is_member(entry.id));
        let mut fitting = owning.chain(named).map(|entry| entry.permissions & mask).peekable();
        if fitting.peek().is_some() {
            // One that allows all of it is enough; several that allow parts are not.
            return fitting.max_by_key(|allowed| (allowed & (WRITE | EXECUTE)).count_ones()).unwrap_or(0);
        }
        of(OTHER).map(|entry| entry.permissions).next().unwrap_or(0)
    }
}

/// User and group for access to files, of a status in `/proc`.
fn ids_of(status: &str) -> Option<Ids> {
    // Real, effective, saved, and for access to files.
    let last = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(3)?.parse().ok()
    };
    Some(Ids { uid: last("Uid:")?, gid: last("Gid:")? })
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

fn umask_of(status: &str) -> Option<u32> {
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(octal.trim(), 8).ok()
}

fn groups_of(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// The list that says the same as the mode bits.
fn from_mode(mode: u32) -> Vec<Entry> {
    let bits = |shift: u32| u16::try_from(mode >> shift & 0o7).expect("three bits fit");
    let entry = |tag, permissions| Entry { tag, permissions, id: u32::MAX };
    vec![entry(USER_OWNER, bits(6)), entry(GROUP_OWNER, bits(3)), entry(OTHER, bits(0))]
}

/// A list as extended attributes have it: a version, and eight bytes for each entry. Nonsense allows nothing.
fn parse(bytes: &[u8]) -> Vec<Entry> {
    const VERSION: [u8; 4] = [2, 0, 0, 0];
    let Some(entries) = bytes.strip_prefix(&VERSION) else {
        return Vec::new();
    };
    let entry = |bytes: &[u8; 8]| Entry {
        tag: u16::from_le_bytes([bytes[0], bytes[1]]),
        permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
        id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    entries.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok()).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_fs::{FileType, InodeFlags, InodeId, RootId, Timestamp};

    fn directory(mode: u32) -> Attributes {
        let time = Timestamp::default();
        Attributes {
            id: InodeId::root_of(RootId::new(5)),
            kind: FileType::Directory,
            mode: 0o40_000 | mode,
            uid: 1000,
            gid: 100,
            nlink: 1,
            size: 0,
            disk_bytes: 0,
            rdev: 0,
            flags: InodeFlags::empty(),
            generation: 1,
            transid: 1,
            accessed: time,
            changed: time,
            modified: time,
            created: time,
        }
    }

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller { told: Some(Ids { uid, gid }), pid: 0 }
    }

    fn ids(uid: u32, gid: u32) -> Ids {
        Ids { uid, gid }
    }

    #[test]
    fn mode_bits_count_by_class() {
        let entries = from_mode(0o375);
        let at = directory(0o375);
        assert_eq!(
            ids(1000, 100).allowed(&entries, &at, &[]),
            3,
            "the owner's class, though others may more"
        );
        assert_eq!(ids(1001, 100).allowed(&entries, &at, &[]), 7);
        assert_eq!(ids(1001, 1).allowed(&entries, &at, &[7, 100]), 7, "by a supplementary group");
        assert_eq!(ids(1001, 1).allowed(&entries, &at, &[7]), 5);
    }

    #[test]
    fn lists_count_before_mode_bits() {
        let entry = |tag: u16, permissions: u16, id: u32| {
            let mut bytes = tag.to_le_bytes().to_vec();
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
            bytes
        };
        let none = u32::MAX;
        let lines = [
            entry(USER_OWNER, 7, none),
            entry(USER, 7, 2000),
            entry(GROUP_OWNER, 1, none),
            entry(GROUP, 3, 300),
            entry(MASK, 3, none),
            entry(OTHER, 0, none),
        ];
        let list: Vec<u8> = [2, 0, 0, 0].into_iter().chain(lines.concat()).collect();
        let (entries, at) = (parse(&list), directory(0o770));
        assert_eq!(ids(2000, 1).allowed(&entries, &at, &[]), 3, "as far as the mask allows");
        assert_eq!(ids(2001, 100).allowed(&entries, &at, &[300]), 3, "any group that allows it");
        assert_eq!(ids(2001, 1).allowed(&entries, &at, &[]), 0);
        assert!(parse(b"nonsense").is_empty());
    }

    #[test]
    fn a_sticky_directory_protects_what_others_own() {
        let (sticky, mut victim) = (directory(0o1777), directory(0o755));
        victim.uid = 7;
        assert_eq!(caller(4_000_000, 1).require_removal(&sticky, &victim), Err(Errno::PERM));
        assert_eq!(caller(7, 1).require_removal(&sticky, &victim), Ok(()));
        assert_eq!(caller(4_000_000, 1).require_removal(&directory(0o777), &victim), Ok(()));
    }

    #[test]
    fn groups_are_found() {
        assert_eq!(groups_of("Name:\tx\nGroups:\t4 24 1000 \nUid:\t0\n"), [4, 24, 1000]);
        assert!(groups_of("").is_empty());
        assert_eq!(ids_of("Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n"), Some(ids(4, 8)));
        assert_eq!(ids_of("Uid:\t1\t2\t3\t4\nGid:\t5\n"), None);
        assert_eq!(umask_of("Name:\tx\nUmask:\t0077\n"), Some(0o077));
        assert_eq!(umask_of("Umask:\tnone\n"), None);
        assert_eq!(effective_capabilities("CapPrm:\t0\nCapEff:\t00000000000000ff\n"), Some(0xff));
        assert_eq!(effective_capabilities(""), None);
    }
}
