//! Log trees: changes fsynced after the last commit. The superblock points to a tree of log trees, which has a root
//! item for each subvolume with a log; the log tree has copies of items of that subvolume, and the checksums of the
//! data that they refer to. The next mount of the pool, by the kernel or brindle, replays it ([`LogTree`](crate::LogTree)).
//!
//! A log consists of ranges of keys and the items in them. Their meaning as names and files, and which changes need
//! each other, is known in `fs`.
//!
//! **The walk of an fsync.** Contents are on the devices, and the running transaction N has the changed items. The
//! fsync
//! 1. takes part in N ([`Pool::begin_logging`]), not before N - 1 is durable, for the log says what has changed since;
//!    changes that several items tell together are logged while nothing changes ([`Pool::begin_logging_alone`]);
//! 2. copies the items, outside of all locks, and enters them into the subvolume's log tree, which lives in memory
//!    like any tree ([`Logging::enter`]), and gets a [`LogTicket`];
//! 3. syncs ([`Pool::sync_log`]): the first to get its turn (`log/turn.rs`) writes for all that have entered something before that.
//!    Changed blocks of the log get places, which lie side by side in the log reserve (`space/log_reserve.rs`), so that
//!    each copy of them is one write; devices with these blocks, and with data that the log refers to, are flushed; the
//!    first superblock of the fast devices, or of all, is that of the last commit but for the root of the log, and durable
//!    when its write returns: a second flush. A disk that is being written to for other files is not waited for.
//!
//! Syncs run one at a time, beside entries for the next one and beside operations, but not beside the end of the log in a
//! commit, nor beside an exclusive change. Of a log that has ended, the commit makes durable what was entered.
//!
//! **Blocks.** They have places in metadata space, and nothing that refers to them: reserved, not used, as far as
//! `space` knows. One that has been written is copied when it changes again, as a superblock reaches it: the copy takes the
//! next place of the reserve. All places go with the commit of N, which pins them until it is durable; then the reserve has
//! them again.
//!
//! **A crash** before the superblocks of a sync finds the log of the last sync, whole; between those of several devices
//! the one or the other, both whole. What N has freed is pinned, so that neither what the last commit reaches nor what
//! the log refers to is overwritten. The superblocks of N itself point to no log.
//!
//! **A change that can't be logged** is a commit ([`Unlogged`] says why), and so is whatever fails: a log is never the only way.

mod blocks;
pub(crate) mod enter;
pub(crate) mod replayed;
mod sync;
mod trees;

use crate::log::holders::LogHolders;
use crate::store::Store;
use crate::transaction::Transactions;
use crate::transaction::commit::PUBLISHED_WITHIN;
use brindle_ondisk::{DevId, Generation, to_u64};

/// Writes the log of a pool.
#[derive(Clone, Copy)]
pub(crate) struct LogWriter<'p> {
    store: &'p Store,
    transactions: &'p Transactions,
}

impl<'p> LogWriter<'p> {
    pub(crate) fn of(transactions: &'p Transactions) -> Self {
        Self { store: transactions.store(), transactions }
    }

    /// Devices that are to hold the log of a transaction.
    fn log_holders(&self, generation: Generation) -> LogHolders {
        let within_reach = self.store.volume().opened_generation().get() + to_u64(PUBLISHED_WITHIN);
        match self.transactions.changes().space.log_placement() {
            Err(_) => LogHolders::All,
            Ok(placement) => {
                let devices = placement.devices.into_iter().map(DevId::new).collect();
                match placement.is_reduced {
                    true if generation.get() <= within_reach => LogHolders::All,
                    true => LogHolders::Alone(devices),
                    false => LogHolders::Superblocks(devices),
                }
            }
        }
    }
}
