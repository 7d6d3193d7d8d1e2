//! Scrub of superblocks, beside commits and syncs of the log.

use super::Transactions;
use crate::error::TreeError;
use crate::stop::StopOnPanic;
use brindle_ondisk::DevId;
use brindle_volume::SuperblockScrub;

impl Transactions {
    /// Looks once more at the copies of the superblock of a device of which some were wrong, or being written, and writes those
    /// that are wrong anew if `repairs`. Returns what was found, and true if nothing is wrong any more.
    pub(crate) fn scrub_superblocks(
        &self,
        devid: DevId,
        repairs: bool,
    ) -> Result<(SuperblockScrub, bool), TreeError> {
        let volume = self.store.volume();
        let _stops = StopOnPanic::of(self.store.stop());
        let _durable = self.lock_commit()?;
        let _no_syncs = self.changes.log.keep_syncs_away(self.store.stop());
        let found = volume.scrub_superblocks(devid);
        volume.count_superblocks(devid, &found);
        if found.wrong.is_empty() || !repairs {
            let is_right = found.wrong.is_empty();
            return Ok((found, is_right));
        }
        self.check_sound()?;
        let is_written = volume.rewrite_superblocks(devid, &found);
        let is_right = is_written && volume.scrub_superblocks(devid).wrong.is_empty();
        Ok((found, is_right))
    }
}
