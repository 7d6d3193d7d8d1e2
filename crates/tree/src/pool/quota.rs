//! Face of a pool for its quota groups.

use super::Pool;
use crate::error::TreeError;
use crate::quota::state::Quotas;
use crate::quota_changes::QuotaChanges;
use brindle_ondisk::item::QgroupLimit;
use brindle_ondisk::{QgroupId, RootId};

/// Bytes that a subvolume may have beside all others; given back when it is dropped.
#[derive(Debug)]
pub struct QuotaClaim<'p> {
    quotas: &'p Quotas,
    subvolume: RootId,
    bytes: u64,
}

impl QuotaClaim<'_> {
    /// Bytes of the subvolume that are in memory become `more`, in place of the claim.
    pub fn count(mut self, more: u64) {
        let claimed = std::mem::take(&mut self.bytes);
        self.quotas.count_in_memory(self.subvolume, more, claimed);
    }
}

impl Drop for QuotaClaim<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.quotas.count_in_memory(self.subvolume, 0, self.bytes);
        }
    }
}

impl Pool {
    /// Gives each subvolume a quota group, and begins to count ([`quota_rescan_step`](Self::quota_rescan_step)); nothing to
    /// do if quotas are on. Commits; not to be called within a transaction.
    ///
    /// # Errors
    /// No space, devices that fail, a pool that is only read or has simple quotas.
    pub fn enable_quotas(&self) -> Result<(), TreeError> {
        self.quota_changes()?.enable(false)
    }

    /// Gives each subvolume a quota group of simple quotas, which count extents that are written from then on; nothing to do
    /// if they are on. Commits; not to be called within a transaction.
    ///
    /// # Errors
    /// No space, devices that fail, a pool that is only read or has quotas that count references.
    pub fn enable_simple_quotas(&self) -> Result<(), TreeError> {
        self.quota_changes()?.enable(true)
    }

    /// Gives up all quota groups, their limits included; nothing to do if quotas are off. Commits; not to be called within
    /// a transaction.
    ///
    /// # Errors
    /// No space, devices that fail, a pool that is only read.
    pub fn disable_quotas(&self) -> Result<(), TreeError> {
        self.quota_changes()?.disable()
    }

    /// Makes a quota group that has no members.
    ///
    /// # Errors
    /// Quotas that are off, a group that is there already, no space.
    pub fn create_quota_group(&self, id: QgroupId) -> Result<(), TreeError> {
        self.quota_changes()?.create(id)
    }

    /// Removes a quota group.
    ///
    /// # Errors
    /// Quotas that are off, a group that has members or is of a subvolume, or is not there; with simple quotas, one of a
    /// subvolume that is gone while extents of it are left.
    pub fn destroy_quota_group(&self, id: QgroupId) -> Result<(), TreeError> {
        self.quota_changes()?.destroy(id)
    }

    /// Makes a quota group part of another one, of a higher level. Returns true if the numbers can't be told from those that
    /// there are: they are marked as inconsistent, for a rescan.
    ///
    /// # Errors
    /// Quotas that are off, groups that are not there, levels that do not fit, no space.
    pub fn assign_quota_group(&self, child: QgroupId, parent: QgroupId) -> Result<bool, TreeError> {
        self.quota_changes()?.relate(child, parent, true)
    }

    /// Takes a quota group out of another one. Returns true as [`assign_quota_group`](Self::assign_quota_group) does.
    ///
    /// # Errors
    /// Quotas that are off, groups that are not there or not related.
    pub fn unassign_quota_group(&self, child: QgroupId, parent: QgroupId) -> Result<bool, TreeError> {
        self.quota_changes()?.relate(child, parent, false)
    }

    /// Refuses quota groups that a new subvolume can't be part of.
    ///
    /// # Errors
    /// Quotas that are off, groups that are not there or of level 0.
    pub fn check_quota_parents(&self, groups: &[QgroupId]) -> Result<(), TreeError> {
        Ok(self.quota_changes()?.check_parents(groups)?)
    }

    /// Gives a quota group other limits, in place of all that it has.
    ///
    /// # Errors
    /// Quotas that are off, a group that is not there.
    pub fn limit_quota_group(&self, id: QgroupId, limit: QgroupLimit) -> Result<(), TreeError> {
        self.quota_changes()?.limit(id, limit)
    }

    /// Groups that a new subvolume becomes part of: those that are asked for; with simple quotas and none asked for, those that
    /// the subvolume around it is part of.
    pub fn groups_of_new_subvolume(&self, around: RootId, asked: &[QgroupId]) -> Vec<QgroupId> {
        let Ok(changes) = self.changes() else { return asked.to_vec() };
        if !asked.is_empty() || !changes.quotas.are_simple() {
            return asked.to_vec();
        }
        let state = changes.quotas.lock();
        let group = state.ledger.groups.get(&QgroupId::of_subvolume(around));
        group.map(|group| group.parents.iter().copied().collect()).unwrap_or_default()
    }

    /// The last one of the subvolumes for which simple quotas count extents, there or gone: another one of its id would have them.
    pub fn last_quota_owner(&self) -> Option<RootId> {
        self.changes().ok().and_then(|changes| changes.quotas.last_owner())
    }

    /// Begins to count all quota groups anew: a part at each commit, so [`quota_rescan_step`](Self::quota_rescan_step) until
    /// it has ended.
    ///
    /// # Errors
    /// Quotas that are off or simple, a rescan that is under way.
    pub fn begin_quota_rescan(&self) -> Result<(), TreeError> {
        self.quota_changes()?.begin_rescan()
    }

    /// Returns true if quota groups are being counted anew.
    pub fn is_counting_quotas(&self) -> bool {
        self.changes().is_ok_and(|changes| changes.quotas.is_counting())
    }

    /// Counts a part, and commits. Returns the address before which everything is counted; `None` if nothing is left, or
    /// nothing was to be done. Not to be called within a transaction.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn quota_rescan_step(&self) -> Result<Option<u64>, TreeError> {
        self.quota_changes()?.rescan_step()
    }

    /// Claims `bytes` more bytes of data for a subvolume: until the claim is dropped, or counted, no other writer gets the room for
    /// them below a limit. Refuses if a limit would be exceeded; after a commit, if that may make room. Not to be called within
    /// a transaction, nor with a tree locked.
    ///
    /// # Errors
    /// [`QuotaError::Exceeded`](crate::QuotaError::Exceeded), and those of a commit.
    pub fn claim_quota(&self, subvolume: RootId, bytes: u64) -> Result<QuotaClaim<'_>, TreeError> {
        let transactions = self.transactions()?;
        let quotas = &transactions.changes().quotas;
        if !quotas.are_on() {
            return Ok(QuotaClaim { quotas, subvolume, bytes: 0 });
        }
        let claim = || {
            // Its tree may have grown since the last commit, and will for what is written now.
            let grown = self.tree(subvolume)?.read().grown.max(0).unsigned_abs();
            let metadata = grown.saturating_add(1).saturating_mul(self.nodesize().into());
            let claimed = quotas.claim(subvolume, bytes, metadata);
            Ok::<_, TreeError>(claimed.map(|bytes| QuotaClaim { quotas, subvolume, bytes }))
        };
        match claim()? {
            Err(_) if quotas.may_shrink(transactions.changes().refs.len() > 0) => transactions.commit()?,
            claimed => return Ok(claimed?),
        }
        Ok(claim()??)
    }

    /// Returns true if a subvolume could not have `bytes` more bytes for a limit; by the numbers that are known, without a commit.
    pub fn is_near_quota_limit(&self, subvolume: RootId, bytes: u64) -> bool {
        self.changes().is_ok_and(|changes| changes.quotas.is_near_limit(subvolume, bytes))
    }

    /// Bytes of a subvolume that are in memory, and have no extents yet, become more and less.
    pub fn count_in_memory(&self, subvolume: RootId, more: u64, less: u64) {
        if let Ok(changes) = self.changes() {
            changes.quotas.count_in_memory(subvolume, more, less);
        }
    }

    fn quota_changes(&self) -> Result<QuotaChanges<'_>, TreeError> {
        Ok(QuotaChanges::of(self.transactions()?))
    }
}
