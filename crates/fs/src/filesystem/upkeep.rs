use crate::destage::{DestageStatistics, Destaged};
use crate::error::FsError;
use crate::filesystem::Filesystem;
use brindle_policy::writeback::{DestageReason, DestageSettings};
use brindle_tree::{WriteBackSettings, WriteBackStatus};
use std::time::Duration;

impl Filesystem {
    /// State of the write-back tier.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn write_back_status(&self) -> Result<WriteBackStatus, FsError> {
        self.write_back_tier.write_back_status()
    }

    /// Stores other settings of the write-back tier, and goes by them from now on; durable with the next commit.
    ///
    /// # Errors
    /// A filesystem that is not written.
    pub fn set_write_back(&self, settings: WriteBackSettings) -> Result<(), FsError> {
        self.write_back_tier.set_write_back(settings)
    }

    /// Amounts that were destaged since the filesystem was opened.
    pub fn destage_statistics(&self) -> DestageStatistics {
        self.write_back_tier.destage_statistics()
    }

    /// Moves what waits in the write-back tier to bulk devices. `keep_going` is asked before each batch.
    ///
    /// # Errors
    /// Room that is lacking, devices that fail; what was moved until then stays moved.
    pub fn destage(&self, keep_going: &dyn Fn() -> bool) -> Result<Destaged, FsError> {
        self.write_back_tier.destage(keep_going)
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
        self.write_back_tier.reason_to_destage(settings, since_last)
    }
}
