//! Emptying a block group: its contents move elsewhere, shared with snapshots and clones as before, and its chunk
//! goes.
//!
//! # The walk
//!
//! 1. The group is *closed* ([`close`](crate::space)): nothing is taken from it any more, provided that there is room
//!    elsewhere for what was promised and for what it holds. Files are not written in place in it any more either
//!    ([`References::is_data_shared`](crate::References::is_data_shared) says that they are shared). A moment alone in the transaction, and a commit,
//!    and nothing is under way in it but what has been reserved before, which comes to an end by itself.
//! 2. What the extent tree has of the group is taken a *batch* at a time ([`contents`]).
//! 3. Blocks of unshared trees (all but subvolumes) are copied, with their paths, as any change does.
//! 4. Data is *carried* ([`data`]): read, verified where it has checksums, from another mirror if need be, and written to
//!    a place that was reserved for it. No lock is held, nothing refers to the new place yet. What lies on disk does not
//!    change meanwhile, for it is never written in place, and nothing new comes where something was freed. What has no
//!    free range as long as itself goes to several places, unless it is compressed: [`grow`] makes several items of each
//!    that refers to it, and several blocks of one that has no room for them.
//! 5. Blocks of subvolumes, and the leaves that refer to carried data, are moved while nothing else changes.
//!    [`plan`]: all blocks above them, in all trees, as the back references have it; [`rewrite`]: every one of them is
//!    given a new place once, what points to it is repointed, and whatever was filed under the old addresses is filed
//!    under the new ones. So what was shared stays shared, flags and counts as they were. A plan that the trees do not
//!    bear out (a back reference without a pointer, fewer pointers than references) is corruption, and is said before
//!    anything has changed.
//! 6. Each batch is a commit. After the last one the group is empty, and goes with the next commit; what its chunk took
//!    of devices is free when that is durable.
//!
//! # What holds meanwhile
//!
//! - A crash at any point leaves the pool of the last commit: part of the group has moved, the rest has not. Nothing says
//!   that a group was being emptied, and nothing has to be undone. An error, or the caller's observer, ends it
//!   between batches in the same state, and the group serves again.
//! - A moved block that may be part of several trees gets the flag `RELOC`: though younger than the last snapshot, it may
//!   be shared, and the flag tells this to its next change, as it does in blocks that the kernel's balance has moved.
//!   What has the flag refers to its children in its own name (`FULL_BACKREF`), as `btrfs check` wants it. A moved
//!   extent's item keeps the generation of the old one for the same reason.
//! - A reader that has looked up a place reads what was there: the old place is free, and may be overwritten, only when
//!   the commit is durable that moved what lay there, and no reader holds it ([`Pool::hold_freed_space`]). Changers that
//!   have looked up where data lies see by [`Pool::moves`] that it has moved.
//! - Walks beside others ([`Pool::estimate`]) see the trees of the last commit, which are whole and on disk.
//! - A deleted subvolume may be half dropped: children before its progress are gone, and its path still points to them;
//!   they are left alone.

mod contents;
mod data;
pub(crate) mod destage;
mod extents;
mod grow;
mod plan;
mod planner;
mod rewrite;

#[cfg(test)]
mod tests;

use crate::error::TreeError;
use crate::space::Space;
use crate::space::close::GroupStatus;
use crate::space::data::TierChoice;
use crate::store::Store;
use crate::transaction::{Need, Transactions};
use brindle_ondisk::Logical;
use contents::{Batch, Block};
use data::RoomFor;
use std::ops::ControlFlow;
use std::time::Duration;

/// Number of tree blocks that are moved at once, at first; fewer where space is short.
const BLOCKS_MAX: usize = 128;
/// Upper bounds on the data that is moved at once: bytes, and extents.
const DATA_BYTES_MAX: u64 = 32 << 20;
const EXTENTS_MAX: usize = 256;
/// Upper bound on passes that find nothing to move in a group that is not empty.
const IDLE_PASSES_MAX: usize = 200;
/// Pause between such passes, for operations under way to end.
const IDLE: Duration = Duration::from_millis(20);

/// Amounts moved until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Tree blocks, without those that were only rewritten because they point to what moved.
    pub blocks: u64,
    /// Extents of data.
    pub extents: u64,
    /// Number of them that lie in parts now.
    pub cut: u64,
    /// Bytes of both.
    pub bytes: u64,
}

/// Outcome of emptying a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// The group is gone.
    Done(Moved),
    /// The observer stopped it; everything moved until then stays moved.
    Stopped(Moved),
}

/// Observer that is told, after each commit, the amounts moved until then, and decides on going on.
pub type Observer<'o> = &'o mut dyn FnMut(&Moved) -> ControlFlow<()>;

/// Outcome of an attempt to move a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// All of it has moved.
    Moved,
    /// There was no room for all of it at once: a smaller batch is to be tried.
    TooMuch,
}

/// Moves what lies in block groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocator<'p> {
    store: &'p Store,
    space: &'p Space,
    transactions: &'p Transactions,
}

impl<'p> Relocator<'p> {
    pub(crate) fn of(transactions: &'p Transactions) -> Self {
        Self { store: transactions.store(), space: &transactions.changes().space, transactions }
    }

    /// Empties a block group, and removes its chunk. Commits; not to be called within a transaction. By the operation
    /// of which there is one at a time. [`TreeError::NoSpace`] if what lies in it has no room elsewhere: what was moved so far stays moved.
    pub(crate) fn relocate(&self, start: Logical, observer: Observer<'_>) -> Result<Relocation, TreeError> {
        self.space.close_group(self.store, self.transactions.load(), start, None)?;
        let mut moved = Moved::default();
        let done = self.empty_group(start, &mut moved, observer);
        match done {
            Ok(ControlFlow::Continue(())) => return Ok(Relocation::Done(moved)),
            _ => self.space.reopen_group(start),
        }
        done.map(|_| Relocation::Stopped(moved))
    }

    fn empty_group(
        &self,
        start: Logical,
        moved: &mut Moved,
        observer: Observer<'_>,
    ) -> Result<ControlFlow<()>, TreeError> {
        // Writes in place happen within a transaction.
        self.transactions.exclusively(|_| Ok(()))?;
        let mut idle = 0;
        loop {
            self.transactions.commit()?;
            let Some(group) = self.space.block_group(start) else {
                // The chunk goes with what was freed.
                self.space.wait_for_readers();
                return Ok(ControlFlow::Continue(()));
            };
            let before = *moved;
            if group.used_bytes > 0 && self.move_contents(&group, moved, observer)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if *moved != before {
                idle = 0;
                continue;
            }
            idle += 1;
            self.space.wait_for_readers();
            if idle > IDLE_PASSES_MAX {
                let why = "it is in use, and nothing in it can be moved";
                let length = group.used_bytes + group.reserved_bytes;
                return Err(TreeError::Space { start, length, problem: why });
            }
            if group.reserved_bytes > 0 {
                brindle_sync::thread::sleep(IDLE);
            }
        }
    }

    /// Moves what the extent tree has of a group, once through.
    fn move_contents(
        &self,
        group: &GroupStatus,
        moved: &mut Moved,
        observer: Observer<'_>,
    ) -> Result<ControlFlow<()>, TreeError> {
        let mut from = group.start;
        let mut blocks_max = BLOCKS_MAX;
        let tier = TierChoice::Preferred(group.place_elsewhere());
        loop {
            let batch = self.next_batch(group, from, blocks_max, None)?;
            let Some(behind) = batch.behind else {
                return Ok(ControlFlow::Continue(()));
            };
            if self.try_batch(&batch, tier, RoomFor::Another, &mut blocks_max, moved)? == Tried::TooMuch {
                continue;
            }
            self.transactions.commit()?;
            if observer(moved).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            from = behind;
        }
    }

    /// Moves a batch. Where it has no room, and is of several, half of it is to be tried, after a commit: a smaller batch
    /// needs less space at a time. `most` is the bound on batches.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`] if a batch of one has no room.
    fn try_batch(
        &self,
        batch: &Batch,
        tier: TierChoice,
        room: RoomFor,
        most: &mut usize,
        moved: &mut Moved,
    ) -> Result<Tried, TreeError> {
        match self.move_batch(batch, tier, room, moved) {
            Err(TreeError::NoSpace(_)) if batch.count() > 1 => {
                *most = batch.count() / 2;
                self.transactions.commit()?;
                Ok(Tried::TooMuch)
            }
            done => done.map(|()| Tried::Moved),
        }
    }

    fn move_batch(
        &self,
        batch: &Batch,
        tier: TierChoice,
        room: RoomFor,
        moved: &mut Moved,
    ) -> Result<(), TreeError> {
        self.copy_blocks(&batch.plain, moved)?;
        self.forget_caches(&batch.caches)?;
        let carried = self.carry(&batch.data, tier, room)?;
        if batch.shared.is_empty() && carried.is_empty() {
            return Ok(());
        }
        self.rewrite(&batch.shared, carried, moved)
    }

    /// Copies unshared blocks.
    fn copy_blocks(&self, blocks: &[Block], moved: &mut Moved) -> Result<(), TreeError> {
        /// The items whose change would copy as much as one path.
        const ITEMS_PER_PATH: usize = 2;
        for block in blocks {
            let transaction = self.transactions.join(Need::items(ITEMS_PER_PATH))?;
            let tree = match self.store.tree(block.owner) {
                Err(TreeError::NoTree(_)) => continue,
                tree => tree?,
            };
            if transaction.copy_path(&tree, block.at, &block.first_key, block.level)? {
                moved.count_block(self.store.nodesize());
            }
        }
        Ok(())
    }
}

impl Moved {
    /// The sum of both.
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        Self {
            blocks: self.blocks + more.blocks,
            extents: self.extents + more.extents,
            cut: self.cut + more.cut,
            bytes: self.bytes + more.bytes,
        }
    }

    fn count_block(&mut self, nodesize: u32) {
        self.blocks += 1;
        self.bytes += u64::from(nodesize);
    }
}
