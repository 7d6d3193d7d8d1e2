//! Background work, and syncs of everything.

use crate::core::Core;
use crate::error::FsError;
use crate::interruption::is_wanted;
use crate::orphan::Orphans;
use crate::subvolume::Subvolumes;
use brindle_ondisk::Logical;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of freed space that are given back to the devices in one step.
const DISCARD_BYTES_PER_STEP: u64 = 256 << 20;

/// Remaining work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// More: call again soon.
    More,
    /// Nothing, until something changes or is committed.
    Nothing,
}

/// Work that waits for a quiet moment: orphans, deleted subvolumes, rescans of quota groups, discards.
#[derive(Debug)]
pub(crate) struct Background {
    core: Arc<Core>,
    orphans: Arc<Orphans>,
    subvolumes: Arc<Subvolumes>,
}

impl Background {
    pub(crate) fn new(core: Arc<Core>, orphans: Arc<Orphans>, subvolumes: Arc<Subvolumes>) -> Self {
        Self { core, orphans, subvolumes }
    }

    pub(crate) fn background_step(&self) -> Result<Remaining, FsError> {
        let write = self.core.writing()?;
        let _drops = write.drops.lock();
        let is_busy = self.orphans.clean_orphans(&write.orphans)?
            || self.subvolumes.drop_deleted_subvolume()?
            || self.core.pool().is_counting_quotas() && self.core.pool().quota_rescan_step()?.is_some()
            || write.options.discard && self.core.pool().discard_step(DISCARD_BYTES_PER_STEP)? > 0;
        Ok(if is_busy { Remaining::More } else { Remaining::Nothing })
    }

    pub(crate) fn trim(&self, range: Range<Logical>, min_bytes: u64) -> Result<u64, FsError> {
        Ok(self.core.pool().trim(range, min_bytes, &is_wanted)?)
    }
}
