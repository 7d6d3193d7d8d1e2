//! Messages about quota groups.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Quotas on or off (`btrfs_ioctl_quota_ctl_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QuotaControl {
    /// [`QUOTA_ENABLE`], [`QUOTA_DISABLE`], [`QUOTA_ENABLE_SIMPLE`].
    pub command: u64,
    /// Nothing.
    pub status: u64,
}

/// Turns quotas on (`BTRFS_QUOTA_CTL_ENABLE`).
pub const QUOTA_ENABLE: u64 = 1;
/// Turns quotas off (`BTRFS_QUOTA_CTL_DISABLE`).
pub const QUOTA_DISABLE: u64 = 2;
/// Turns simple quotas on (`BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA`).
pub const QUOTA_ENABLE_SIMPLE: u64 = 4;

/// Change of the parents of a quota group (`btrfs_ioctl_qgroup_assign_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QgroupAssign {
    /// 1 to make it part of the parent, 0 to take it out.
    pub assign: u64,
    /// The group.
    pub child: u64,
    /// The parent, of a higher level.
    pub parent: u64,
}

/// A quota group to be made or removed (`btrfs_ioctl_qgroup_create_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QgroupCreate {
    /// 1 to make it, 0 to remove it.
    pub create: u64,
    /// The group.
    pub id: u64,
}

/// Limits of a quota group (`btrfs_ioctl_qgroup_limit_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QgroupLimits {
    /// The group; 0 for that of the open file's subvolume.
    pub id: u64,
    /// Limits that are changed (`BTRFS_QGROUP_LIMIT_*`).
    pub flags: u64,
    /// Most referenced, or [`QGROUP_NO_LIMIT`].
    pub max_rfer: u64,
    /// Most exclusive, or [`QGROUP_NO_LIMIT`].
    pub max_excl: u64,
    /// Reserved, referenced.
    pub rsv_rfer: u64,
    /// Reserved, exclusive.
    pub rsv_excl: u64,
}
const _: () = assert!(size_of::<QgroupLimits>() == 48);

/// A limit that is taken away.
pub const QGROUP_NO_LIMIT: u64 = u64::MAX;

/// A rescan of quota groups (`btrfs_ioctl_quota_rescan_args`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QuotaRescan {
    /// Answered: 1 while one runs.
    pub flags: u64,
    /// Answered: the address before which everything is counted.
    pub progress: u64,
    /// Nothing.
    pub reserved: [u64; 6],
}
const _: () = assert!(size_of::<QuotaRescan>() == 64);

/// The subvolume or snapshot becomes part of quota groups (`BTRFS_SUBVOL_QGROUP_INHERIT`).
pub const INHERIT_QGROUPS: u64 = 1 << 2;

/// Words before the ids in a list of groups that a subvolume becomes part of (`btrfs_qgroup_inherit`).
const INHERIT_HEAD: usize = 9;
/// Position of the number of ids among them.
const INHERIT_COUNT: usize = 1;

/// List of the groups that a new subvolume becomes part of, as `btrfs_qgroup_inherit` has it.
pub fn inherited_groups(groups: &[u64]) -> Vec<u64> {
    let mut list = vec![0; INHERIT_HEAD];
    list[INHERIT_COUNT] = groups.len() as u64;
    list.extend(groups);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_groups_has_their_number_in_its_head() {
        let list = inherited_groups(&[1 << 48 | 100, 1 << 48 | 101]);
        assert_eq!((list.len(), list[1], list[10]), (11, 2, 1 << 48 | 101));
    }
}
