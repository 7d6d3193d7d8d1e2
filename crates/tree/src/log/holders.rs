//! Devices that hold the log of a transaction.
//!
//! **All copies or some.** Blocks of a log lie in metadata chunks, and a superblock that points to them is on the devices that
//! hold the log: on all, or on the fast ones of the lowest devids alone. Where these are fewer than the copies of a block, the
//! owner may have chosen fewer for the log. Then the copies on the holders are written, and the others are left as they are:
//! *stale* copies, of which these things must be true, and are:
//!
//! - **None is taken for the block.** A mount, the kernel's or ours, checks each copy: its checksum, its address, and that it is
//!   of the transaction N of the log; one that fails is passed over. So no block of N may have lain at that place before. Of
//!   this mount none has: blocks of N other than the log's are written when the log has ended, and no place is used twice
//!   within a transaction. Of earlier mounts none has either, if N is beyond the reach of what they can have written: a
//!   transaction is written before it is published, and up to [`PUBLISHED_WITHIN`](crate::transaction::commit::PUBLISHED_WITHIN) of them one after the other, so N must be
//!   greater than the generation that was found by more than that. Until then the log has all copies.
//! - **None is read where the log is lost.** Devices that don't hold the log have superblocks that point to none: those of the
//!   last commit, and whatever writes them again before the next commit leaves the log out. So without the holders a mount
//!   finds the last commit, which has all its copies. What is lost with the holders is what was fsynced since that commit,
//!   and nothing else.
//! - **Each holder has all of the log,** or one would point to blocks that went with another. They are as many as there are
//!   copies to be, and a block that does not lie on each of them is written to all its copies. A log keeps to its holders
//!   until the commit: when others would be chosen, what is in it becomes a commit.
//! - **None makes good a holder's failure.** A write that a holder does not take, or a flush of one that fails, ends the log;
//!   the fsync is a commit then.
//! - **None is verified as a copy.** No extent item records blocks of a log, so a scrub does not see them, and a replay pins them
//!   until its commit.

use super::Log;
use brindle_ondisk::DevId;
use brindle_volume::DeviceSet;

/// Devices that hold a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogHolders {
    /// Every device: all copies of the blocks, and superblocks everywhere.
    All,
    /// These have superblocks that point to it; blocks have all copies.
    Superblocks(Vec<DevId>),
    /// These have such superblocks, and the only copies of blocks that lie on each of them.
    Alone(Vec<DevId>),
}

impl LogHolders {
    /// Devices that get superblocks which point to the log.
    pub(crate) fn superblocks(&self) -> DeviceSet {
        match self {
            Self::All => DeviceSet::ALL,
            Self::Superblocks(devices) | Self::Alone(devices) => devices.iter().copied().collect(),
        }
    }

    /// Devices with the only copies.
    pub(crate) fn alone(&self) -> &[DevId] {
        match self {
            Self::Alone(devices) => devices,
            Self::All | Self::Superblocks(_) => &[],
        }
    }
}

impl Log {
    /// Returns true if a log can go on with these holders.
    pub(crate) fn keeps_to(&self, holders: &LogHolders) -> bool {
        let mut state = self.state();
        let before = state.holders.replace(holders.clone());
        before.is_none_or(|before| before == *holders || before.alone() == holders.alone())
    }
}
