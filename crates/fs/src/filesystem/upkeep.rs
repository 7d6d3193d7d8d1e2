//! Upkeep: background work, destaging, defragmentation.

use crate::autodefrag::AutodefragStatistics;
use crate::background::Remaining;
use crate::defragment::{DefragmentPlace, DefragmentScope, DefragmentedPiece};
use crate::destage::{DestageStatistics, Destaged};
use crate::error::FsError;
use crate::filesystem::Filesystem;
use brindle_ondisk::Logical;
use brindle_policy::writeback::{DestageReason, DestageSettings};
use brindle_tree::{WriteBackSettings, WriteBackStatus};
use std::ops::Range;
use std::time::{Duration, Instant};

impl Filesystem {
    /// State of the write-back tier.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn write_back_status(&self) -> Result<WriteBackStatus, FsError> {
        self.parts.write_back_tier.write_back_status()
    }

    /// Stores other settings of the write-back tier, and goes by them from now on; durable with the next commit.
    ///
    /// # Errors
    /// A filesystem that is not written.
    pub fn set_write_back(&self, settings: WriteBackSettings) -> Result<(), FsError> {
        self.parts.write_back_tier.set_write_back(settings)
    }

    /// Amounts that were destaged since the filesystem was opened.
    pub fn destage_statistics(&self) -> DestageStatistics {
        self.parts.write_back_tier.destage_statistics()
    }

    /// Moves what waits in the write-back tier to bulk devices. `keep_going` is asked before each batch.
    ///
    /// # Errors
    /// Room that is lacking, devices that fail; what was moved until then stays moved.
    pub fn destage(&self, keep_going: &dyn Fn() -> bool) -> Result<Destaged, FsError> {
        self.parts.write_back_tier.destage(keep_going)
    }

    /// Reason to destage now, if there is one. `since_last`: since it was last done.
    ///
    /// # Errors
    /// A pool that can't be read.
    pub fn reason_to_destage(
        &self,
        settings: &DestageSettings,
        since_last: Duration,
    ) -> Result<Option<DestageReason>, FsError> {
        self.parts.write_back_tier.reason_to_destage(settings, since_last)
    }

    /// Does a step of the background work: orphans, deleted subvolumes, discards. To be called by one
    /// thread, again and again while there is more, else from time to time.
    pub fn background_step(&self) -> Result<Remaining, FsError> {
        self.parts.background.background_step()
    }

    /// Defragments a piece of the metadata, of about `leaves` leaves, from a place on, or from the beginning, and
    /// commits if that has changed anything. Leaves shared with another subvolume stay in their places.
    pub fn defragment(
        &self,
        scope: DefragmentScope,
        from: Option<DefragmentPlace>,
        leaves: usize,
    ) -> Result<DefragmentedPiece, FsError> {
        self.parts.defragmentation.defragment(scope, from, leaves)
    }

    /// Has files that small writes tear laid together again by [`autodefrag_step`](Self::autodefrag_step), or not, which is the default.
    pub fn set_autodefrag(&self, is_on: bool) {
        self.parts.data.context.torn.set_on(is_on);
    }

    /// Returns true if files that small writes tear are laid together again.
    pub fn is_autodefrag(&self) -> bool {
        self.parts.data.context.torn.is_on()
    }

    /// Lays a part of a file together that small writes have torn, if one is due at the time `now`; true if one was. To be called by
    /// one thread, again and again while there is more, else from time to time. `may_go_on` is asked when nothing else that
    /// moves block groups can begin any more.
    ///
    /// # Errors
    /// A filesystem that is not written (any more).
    pub fn autodefrag_step(&self, now: Instant, may_go_on: &dyn Fn() -> bool) -> Result<bool, FsError> {
        self.parts.autodefrag.step(now, may_go_on)
    }

    /// Work of [`autodefrag_step`](Self::autodefrag_step) since the filesystem was opened.
    pub fn autodefrag_statistics(&self) -> AutodefragStatistics {
        self.parts.autodefrag.statistics()
    }

    /// Discards free space within a range of logical addresses ([`Pool::trim`](brindle_tree::Pool::trim)); ends early inside of
    /// [`while_wanted`](crate::while_wanted).
    pub fn trim(&self, range: Range<Logical>, min_bytes: u64) -> Result<u64, FsError> {
        self.parts.background.trim(range, min_bytes)
    }
}
