//! Choice of the tier of data: small files and marked files lie on fast devices.
//!
//! A file or directory is marked by an extended attribute. It is one of the user's own, for those are all that every
//! driver keeps, copies and sends along without knowing what they mean; a property of the `btrfs.` family that it does
//! not know the kernel refuses to set. What is made in a marked directory is marked alike.
//!
//! The length up to which files count as small is that of the pool, or of an attribute that is inherited in the same way.
//!
//! The mark, or else the length, counts when data is written; data that lies elsewhere stays until it is moved on request
//! ([`files`](brindle_policy::tier::files) tells what that is). An extent that several
//! files share (clones, snapshots) belongs into the best tier that one of them asks for: see
//! [`tier_of_owners`](brindle_policy::placement::tier_of_owners). So what is copied (`copy_file_range`) out of a fast
//! directory is shared, and what is copied into one is written anew.

use crate::attributes::InodeId;
use crate::core::Core;
use crate::error::FsError;
use crate::items::InodeItems;
use brindle_policy::log::LogProfile;
use brindle_policy::placement::{DataTier, PlacementClass};
pub(crate) use brindle_policy::tier::files::MARK as TIER;
use brindle_policy::tier::files::{SMALL_FILES, limit_of};
use brindle_tree::{FastTier, PoolSettings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inputs of the choice of a file's tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierWish {
    /// Its mark.
    pub(crate) mark: Option<DataTier>,
    /// Its length in bytes.
    pub(crate) size: u64,
    /// Files up to here count as small, in bytes.
    pub(crate) limit: u64,
    /// True if data on fast devices has copies on bulk devices, too.
    pub(crate) is_split: bool,
}

impl TierWish {
    /// Inputs that are the same for every tier.
    pub(crate) const NONE: Self = Self {
        mark: Some(DataTier { side: PlacementClass::Bulk, rank: None }),
        size: 0,
        limit: 0,
        is_split: false,
    };

    /// The tier of data of which `written` bytes are written now, and take `stored` bytes of the devices.
    pub(crate) fn tier(&self, written: u64, stored: u64) -> DataTier {
        // The compressed length of the whole is known only when all of it is written now.
        let kept = if written >= self.size { stored.min(self.size) } else { self.size };
        let by_length =
            if kept <= self.limit && self.limit > 0 { PlacementClass::Fast } else { PlacementClass::Bulk };
        self.mark.unwrap_or(by_length.into())
    }

    /// Returns true if data may wait in the write-back tier. What is marked lies in its last place from the first, unless a sync would
    /// wait for bulk devices there although it is for fast ones.
    pub(crate) fn may_wait(&self) -> bool {
        self.mark.is_none_or(|mark| self.is_split && mark.side == PlacementClass::Fast)
    }
}

/// Settings of tiers and of the log, and what a file asks for.
#[derive(Debug)]
pub(crate) struct Tiers {
    core: Arc<Core>,
    items: Arc<InodeItems>,
    /// Files up to this length, compressed, have their data on fast devices, in bytes; of a filesystem that is written.
    small_file_bytes: AtomicU64,
}

impl Tiers {
    pub(crate) fn new(core: Arc<Core>, items: Arc<InodeItems>, small_file_bytes: u64) -> Self {
        Self { core, items, small_file_bytes: AtomicU64::new(small_file_bytes) }
    }

    pub(crate) fn small_file_bytes(&self) -> u64 {
        if self.core.is_only_read() {
            // Reports ask for the stored setting.
            return self.core.pool().settings().map_or(0, |settings| settings.small_file_bytes);
        }
        self.small_file_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_small_file_bytes(&self, bytes: u64) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        self.core.pool().set_settings(&PoolSettings { small_file_bytes: bytes })?;
        self.small_file_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn log_profile(&self) -> Result<LogProfile, FsError> {
        match self.core.is_only_read() {
            true => Ok(self.core.pool().stored_log_profile()?),
            false => Ok(self.core.pool().log_profile()?),
        }
    }

    pub(crate) fn set_log_profile(&self, profile: LogProfile) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        Ok(self.core.pool().set_log_profile(profile)?)
    }

    /// Inputs of the choice of a file's tier for data that is written now.
    pub(crate) fn tier_wish(&self, file: InodeId, size: u64) -> Result<TierWish, FsError> {
        if !self.core.pool().has_tiers() {
            return Ok(TierWish::NONE);
        }
        let mark = self.items.xattr(file, TIER)?.and_then(|value| self.core.pool().tier_named(&value));
        let tier = self.core.pool().fast_tier();
        if tier == FastTier::Absent {
            // What can't stay on fast devices may still wait there.
            let mark = mark.filter(|mark| mark.side == PlacementClass::Bulk);
            return Ok(TierWish { mark, size, limit: 0, is_split: false });
        }
        let own = match mark {
            Some(_) => None,
            None => self.items.xattr_if_any(file, SMALL_FILES)?.and_then(|value| limit_of(&value)),
        };
        let limit = own.unwrap_or_else(|| self.small_file_bytes());
        Ok(TierWish { mark, size, limit, is_split: tier == FastTier::Split })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PlacementClass::{Bulk, Fast};

    #[test]
    fn the_mark_counts_more_than_the_length() {
        let wish = |mark: Option<DataTier>, size| TierWish { mark, size, limit: 100, is_split: false };
        assert_eq!(wish(None, 100).tier(100, 4096), Fast.into());
        assert_eq!(wish(None, 101).tier(101, 4096), Bulk.into());
        assert_eq!(wish(Some(Bulk.into()), 100).tier(100, 4096), Bulk.into());
        assert_eq!(wish(Some(Fast.into()), 1000).tier(100, 4096), Fast.into());
        let smr = DataTier { side: Bulk, rank: Some(3) };
        assert_eq!(wish(Some(smr), 100).tier(100, 4096), smr);
    }

    #[test]
    fn the_compressed_length_of_a_whole_file_counts() {
        let wish = TierWish { mark: None, size: 10_000, limit: 4096, is_split: false };
        assert_eq!(wish.tier(12_288, 4096), Fast.into(), "all of it is seen");
        assert_eq!(wish.tier(8192, 4096), Bulk.into(), "who knows what the rest comes to");
        assert_eq!(TierWish { limit: 0, ..wish }.tier(12_288, 0), Bulk.into(), "no limit, no small files");
    }
}
