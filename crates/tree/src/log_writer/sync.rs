//! A log becomes durable.

use super::LogWriter;
use super::trees::{LogTrees, Placed, ROOT_BLOCKS};
use crate::error::TreeError;
use crate::log::holders::LogHolders;
use crate::log::turn::Waited;
use crate::log::{LogTicket, SyncMeasure, Unlogged};
use crate::space::log_reserve::LOG_BYTES_MAX;
use crate::space::{MetadataReservation, Urgency};
use brindle_ondisk::{Generation, Logical, Node, RootId, Superblock, to_u64};
use brindle_volume::DeviceSet;
use std::sync::Arc;

impl LogWriter<'_> {
    /// Makes an entry durable, unless it is already.
    pub(crate) fn sync(&self, ticket: LogTicket) -> Result<Result<(), Unlogged>, TreeError> {
        let _stops = self.store.stop_on_panic();
        if self.transactions.durable_generation() >= ticket.generation {
            return Ok(Ok(()));
        }
        let _turn = match self.transactions.changes().log.wait_for_sync(ticket, self.store.stop()) {
            Waited::Synced => return Ok(Ok(())),
            Waited::Ended => return self.wait_for_commit_of(ticket),
            Waited::Turn(turn) => turn,
        };
        let _held = self.transactions.changes().log.histogram(SyncMeasure::LockHeld).time();
        self.store.stop().check()?;
        let editor = self.transactions.editor(ticket.generation);
        if !self.is_fit_for_log(ticket.generation)? {
            return Ok(Err(Unlogged::Layout));
        }
        let holders = self.log_holders(ticket.generation);
        if !self.transactions.changes().log.keeps_to(&holders) {
            self.transactions.changes().log.forbid(ticket.generation);
            return Ok(Err(Unlogged::Layout));
        }
        let Some(reservation) = self.reserve_for_log()? else { return Ok(Err(Unlogged::Space)) };
        let placed = LogTrees::of(&editor).place();
        self.transactions.changes().space.release_metadata(reservation);
        // From here on a log that is not written is of no use any more: it has blocks that are not where they should be.
        let placed = placed.inspect_err(|_| self.transactions.changes().log.forbid(ticket.generation));
        let placed = placed?;
        // Places may have been found in a chunk that was made for them.
        if !self.is_fit_for_log(ticket.generation)? {
            self.transactions.changes().log.forbid(ticket.generation);
            return Ok(Err(Unlogged::Layout));
        }
        if let Err(error) = self.write_log(&holders, &placed) {
            tracing::warn!("a log was not written: {error}");
            self.transactions.changes().log.forbid(ticket.generation);
            return Ok(Err(Unlogged::Devices));
        }
        // A sync changes one sector of the superblock, which can't be torn; the commit changes more, and if it tears them,
        // the others must know the log.
        self.transactions.copies_differ();
        let blocks = &placed.blocks;
        let callers = self.transactions.changes().log.note_synced(placed.number);
        self.transactions.changes().log.histogram(SyncMeasure::Callers).add(callers);
        self.transactions
            .changes()
            .log
            .histogram(SyncMeasure::Bytes)
            .add(to_u64(blocks.len()) * u64::from(self.store.nodesize()));
        let mut counts = self.transactions.changes().log.counts();
        counts.syncs += 1;
        counts.blocks += to_u64(blocks.len());
        let nodesize = u64::from(self.store.nodesize());
        counts.runs += to_u64(blocks.chunk_by(|(one, _), (next, _)| *one + nodesize == *next).count());
        Ok(Ok(()))
    }

    /// The commit that ended the log of an entry has everything that was entered: waits until it is durable.
    fn wait_for_commit_of(&self, ticket: LogTicket) -> Result<Result<(), Unlogged>, TreeError> {
        let durable = self.transactions.lock_commit()?;
        Ok(if durable.generation >= ticket.generation { Ok(()) } else { Err(Unlogged::Layout) })
    }

    /// Returns true if everything the log refers to can be found by way of the last commit.
    fn is_fit_for_log(&self, generation: Generation) -> Result<bool, TreeError> {
        let features = *self.transactions.changes().features.lock();
        // A device that is not there, and not known to be, would come back with a superblock as new as that of the log.
        Ok(!self.transactions.changes().log.is_forbidden(generation)
            && self.store.volume().devices_to_mark().is_empty()
            && self.transactions.changes().space.has_committed_layout()
            && !self.store.tree(RootId::CHUNK_TREE)?.is_dirty()
            && self.store.superblock().incompat().contains(features))
    }

    /// Room for all blocks that the log has changed, and for what its next places take of others; `None` if there is
    /// none.
    fn reserve_for_log(&self) -> Result<Option<MetadataReservation>, TreeError> {
        let nodesize = u64::from(self.store.nodesize());
        let waiting: usize = {
            let state = self.transactions.changes().log.state();
            state.trees.values().map(|tree| tree.read().dirty.len()).sum::<usize>() + ROOT_BLOCKS
        };
        let placed = self.store.unwritten().log.read().len();
        if to_u64(placed + waiting) * nodesize > LOG_BYTES_MAX {
            return Ok(None);
        }
        match self.transactions.changes().space.reserve_metadata(
            self.store,
            self.transactions.load(),
            to_u64(waiting) * nodesize,
            Urgency::Normal,
        ) {
            Err(TreeError::NoSpace(_)) => Ok(None),
            reserved => reserved,
        }
    }

    /// Writes blocks of the log and the superblocks that point to them. Blocks, and the data that they refer to, are durable
    /// before the superblocks are; a device that took no write since, or only such as the log does not need, is left alone.
    fn write_log(&self, holders: &LogHolders, placed: &Placed) -> Result<(), TreeError> {
        let Placed { root, blocks, data_on, .. } = placed;
        // Few, so that it is done before other threads had begun.
        let seal = |(at, node): &(Logical, Arc<Node>)| Ok((*at, self.store.seal(*at, node)?));
        let sealed: Vec<(Logical, Node)> = blocks.iter().map(seal).collect::<Result<_, TreeError>>()?;
        let writes: Vec<(Logical, &[u8])> = sealed.iter().map(|(at, node)| (*at, node.as_bytes())).collect();
        let needed = self.devices_of_log(holders, blocks).union(data_on);
        let woken = self.transactions.wake_written(&needed)?;
        self.store.volume().write_blocks_on(&writes, holders.alone())?;
        let devices = holders.superblocks();
        let unflushed = self.store.volume().unflushed_devices().intersection(&needed).union(&woken);
        self.store.volume().make_whole_relying_on(&unflushed.union(&devices), holders.alone())?;
        self.transactions.write_copies(&woken)?;
        let mut superblock = Box::new(Superblock::clone(&self.store.superblock()));
        superblock.add_holders(self.store.volume().holders(superblock.generation));
        (superblock.log_root, superblock.log_root_level) = (root.bytenr, root.level);
        if self.store.volume().has_lease() {
            self.store.volume().check_superblocks(&devices)?;
        }
        self.store.volume().settle_copies(&self.store.superblock(), &devices)?;
        self.store.volume().write_log_superblocks(&superblock, &devices)?;
        Ok(())
    }

    /// Devices with the copies of blocks of the log that count; all if the pool does not know.
    fn devices_of_log(&self, holders: &LogHolders, blocks: &[(Logical, Arc<Node>)]) -> DeviceSet {
        let alone: DeviceSet = holders.alone().iter().copied().collect();
        let of_block = |(at, _): &(Logical, Arc<Node>)| {
            let all = self
                .store
                .volume()
                .devices_of([(*at, self.store.nodesize().into())])
                .unwrap_or(DeviceSet::ALL);
            if !alone.is_empty() && alone.is_subset(&all) { alone.clone() } else { all }
        };
        blocks.iter().map(of_block).fold(DeviceSet::default(), |devices, of_one| devices.union(&of_one))
    }
}
