//! Quota groups: turned on and off, made, related, limited and counted anew.

use super::nodes::Nodes;
use crate::errno::number;
use brindle_fs::{Filesystem, QgroupId, QgroupLimit, QgroupLimitFlags, QuotaSummary};
use brindle_uapi::message::{
    QGROUP_NO_LIMIT, QUOTA_DISABLE, QUOTA_ENABLE, QUOTA_ENABLE_SIMPLE, QgroupAssign, QgroupCreate,
    QgroupLimits, QuotaControl, QuotaRescan,
};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::FromZeros;

/// Quotas of the mounted pool.
#[derive(Debug)]
pub(super) struct Quotas {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
}

impl Quotas {
    pub(super) fn new(filesystem: Arc<Filesystem>, nodes: Arc<Nodes>) -> Self {
        Self { filesystem, nodes }
    }

    pub(super) fn control(&self, asked: QuotaControl) -> Result<QuotaControl, Errno> {
        let pool = self.filesystem.pool();
        let done = match asked.command {
            QUOTA_ENABLE => pool.enable_quotas(),
            QUOTA_ENABLE_SIMPLE => pool.enable_simple_quotas(),
            QUOTA_DISABLE => pool.disable_quotas(),
            _ => return Err(Errno::OPNOTSUPP),
        };
        number(done.map_err(Into::into))?;
        Ok(asked)
    }

    /// Counts anew if the numbers can't be told from those that there are.
    pub(super) fn relate(&self, asked: &QgroupAssign) -> Result<(), Errno> {
        let (child, parent) = (QgroupId::new(asked.child), QgroupId::new(asked.parent));
        let pool = self.filesystem.pool();
        let related = match asked.assign {
            0 => pool.unassign_quota_group(child, parent),
            _ => pool.assign_quota_group(child, parent),
        };
        if number(related.map_err(Into::into))? {
            number(pool.begin_quota_rescan().map_err(Into::into))?;
        }
        number(self.filesystem.commit())
    }

    pub(super) fn change(&self, asked: &QgroupCreate) -> Result<(), Errno> {
        let (id, pool) = (QgroupId::new(asked.id), self.filesystem.pool());
        let changed = match asked.create {
            0 => pool.destroy_quota_group(id),
            _ => pool.create_quota_group(id),
        };
        number(changed.map_err(Into::into))?;
        number(self.filesystem.commit())
    }

    /// Changes the limits that are named, of a group or of that of the file's subvolume.
    pub(super) fn limit(&self, node: u64, asked: &QgroupLimits) -> Result<(), Errno> {
        let id = match asked.id {
            0 => QgroupId::of_subvolume(self.nodes.inode(node)?.tree),
            id => QgroupId::new(id),
        };
        let found = self.summary()?.ok_or(Errno::NOTCONN)?;
        let group = found.groups.iter().find(|group| group.id == id).ok_or(Errno::NOENT)?;
        let limit = changed_limit(group.limit, asked);
        number(self.filesystem.pool().limit_quota_group(id, limit).map_err(Into::into))?;
        number(self.filesystem.commit())
    }

    pub(super) fn rescan(&self) -> Result<(), Errno> {
        let pool = self.filesystem.pool();
        if pool.is_counting_quotas() {
            return Err(Errno::INPROGRESS);
        }
        number(pool.begin_quota_rescan().map_err(Into::into))?;
        number(self.filesystem.commit())
    }

    pub(super) fn rescan_progress(&self) -> Result<QuotaRescan, Errno> {
        let summary = self.summary()?;
        let next =
            summary.and_then(|found| found.rescan).filter(|_| self.filesystem.pool().is_counting_quotas());
        Ok(QuotaRescan {
            flags: next.is_some().into(),
            progress: next.unwrap_or(0),
            ..QuotaRescan::new_zeroed()
        })
    }

    fn summary(&self) -> Result<Option<QuotaSummary>, Errno> {
        number(self.filesystem.pool().quotas().map_err(Into::into))
    }
}

/// Limits of a group once those that are named have changed.
fn changed_limit(mut limit: QgroupLimit, asked: &QgroupLimits) -> QgroupLimit {
    let (named, mut flags) = (
        QgroupLimitFlags::from_bits_truncate(asked.flags),
        QgroupLimitFlags::from_bits_truncate(limit.flags.get()),
    );
    let mut change = |flag, bytes| {
        if !named.contains(flag) {
            return None;
        }
        flags.set(flag, bytes != QGROUP_NO_LIMIT);
        Some(if bytes == QGROUP_NO_LIMIT { 0 } else { bytes })
    };
    if let Some(bytes) = change(QgroupLimitFlags::MAX_RFER, asked.max_rfer) {
        limit.max_rfer = bytes.into();
    }
    if let Some(bytes) = change(QgroupLimitFlags::MAX_EXCL, asked.max_excl) {
        limit.max_excl = bytes.into();
    }
    for flag in [QgroupLimitFlags::RFER_CMPR, QgroupLimitFlags::EXCL_CMPR] {
        change(flag, 0);
    }
    limit.flags = flags.bits().into();
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(flags: QgroupLimitFlags, max_rfer: u64, max_excl: u64) -> QgroupLimits {
        QgroupLimits { flags: flags.bits(), max_rfer, max_excl, ..QgroupLimits::new_zeroed() }
    }

    #[test]
    fn only_limits_that_are_named_change() {
        let none = QgroupLimit::new_zeroed();
        let rfer = changed_limit(none, &limits(QgroupLimitFlags::MAX_RFER, 100, 7));
        assert_eq!((rfer.flags.get(), rfer.max_rfer.get(), rfer.max_excl.get()), (1, 100, 0));
        let both = changed_limit(rfer, &limits(QgroupLimitFlags::MAX_EXCL, 7, 50));
        assert_eq!((both.flags.get(), both.max_rfer.get(), both.max_excl.get()), (3, 100, 50));
        let one = changed_limit(both, &limits(QgroupLimitFlags::MAX_RFER, QGROUP_NO_LIMIT, 0));
        assert_eq!((one.flags.get(), one.max_rfer.get(), one.max_excl.get()), (2, 0, 50));
    }
}
