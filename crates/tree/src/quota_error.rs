//! Reasons for which quota groups can't be changed, or let nothing more in.

use brindle_ondisk::{QgroupId, RootId};
use thiserror::Error;

/// Reason for which quota groups can't be changed, or let nothing more in.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum QuotaError {
    /// The pool has no quota groups.
    #[error("quotas are off")]
    Off,
    /// Simple quotas are never counted anew.
    #[error("simple quotas are not counted anew: their numbers are always those of the extents")]
    Simple,
    /// Quotas of the other mode are on.
    #[error("the pool has {0} quotas: they must be turned off first")]
    OtherMode(&'static str),
    /// A group that is to go is that of a deleted subvolume, and extents that it wrote are left (simple quotas).
    #[error("quota group {0} has extents that its subvolume wrote")]
    HasExtents(QgroupId),
    /// There is no such group.
    #[error("there is no quota group {0}")]
    NoGroup(QgroupId),
    /// There is such a group already.
    #[error("there is a quota group {0} already")]
    Exists(QgroupId),
    /// A group is part of another one already.
    #[error("quota group {child} is part of {parent} already")]
    Related {
        /// The inner one.
        child: QgroupId,
        /// The outer one.
        parent: QgroupId,
    },
    /// A group is not part of another one.
    #[error("quota group {child} is not part of {parent}")]
    NotRelated {
        /// The inner one.
        child: QgroupId,
        /// The outer one.
        parent: QgroupId,
    },
    /// A group is to be part of one that is not of a higher level.
    #[error(
        "quota group {child} can't be part of {parent}: the level of a group is higher than that of its members"
    )]
    Level {
        /// The inner one.
        child: QgroupId,
        /// The outer one.
        parent: QgroupId,
    },
    /// A group that is to go has members.
    #[error("quota group {0} has members")]
    HasMembers(QgroupId),
    /// A group that is to go is that of a subvolume.
    #[error("quota group {0} is that of a subvolume")]
    InUse(QgroupId),
    /// A rescan is under way.
    #[error("quota groups are being counted already")]
    Rescanning,
    /// A limit is reached.
    #[error("subvolume {subvolume}: quota group {group} is limited to {limit} bytes")]
    Exceeded {
        /// The subvolume that is written.
        subvolume: RootId,
        /// The group with the limit.
        group: QgroupId,
        /// The limit, in bytes.
        limit: u64,
    },
}
