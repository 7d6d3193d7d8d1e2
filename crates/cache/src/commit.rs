//! The commit: everything that was acknowledged becomes durable.
//!
//! 1. The table's changes are taken together with the note that the disk has unflushed writes. Blocks of the table are made
//!    from what is published, so each dirty block in it has been written to its slot before.
//! 2. The disk is flushed, if it has to be. Only then may the table forget dirty blocks that were overwritten on the disk.
//! 3. Blocks of the table are written, each over its older copy.
//! 4. The flash is flushed: slots and table together. A crash before that may leave a part of either. Each block of the
//!    table tells its transaction and the number of its blocks, and each entry the checksum of its slot: a
//!    transaction that is not whole is not used when the cache is loaded, and the older copies are.
//! 5. If one of two SSDs was given up, superblock and disk are told ([`mirror`](crate::mirror)).
//! 6. Slots that the table no longer names may be written again.
//!
//! One commit runs at a time. A caller waits for one that began after it came; callers that come meanwhile share the next.
//! After a failure nothing is certain of what was acknowledged: the cache refuses each later write and flush, and the
//! last durable transaction is found when it is loaded again.

use crate::engine::{Cache, State};
use crate::format::{PAGE_BYTES, TableBlock};
use crate::slots::TableChange;
use brindle_device::{Batch, DeviceError};

/// Work of one commit.
struct CommitWork {
    change: TableChange,
    transaction: u64,
    flushes_disk: bool,
}

/// Stops the cache unless the commit came to its end.
struct Running<'c>(Option<&'c Cache>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(cache) = self.0 {
            cache.state.lock_after_panic().stopped = Some("a commit did not come to its end".to_owned());
            cache.changed.notify_all();
        }
    }
}

/// A flush of the disk; gone, another may begin.
struct DiskFlush<'c>(&'c Cache);

impl Drop for DiskFlush<'_> {
    fn drop(&mut self) {
        self.0.state.lock_after_panic().is_flushing_disk = false;
        self.0.changed.notify_all();
    }
}

impl Cache {
    /// Makes everything durable that was acknowledged before.
    pub(crate) fn commit(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        let target = state.commits.begun + 1;
        loop {
            self.check_running(&state)?;
            if state.commits.done >= target {
                return Ok(());
            }
            if !state.commits.is_running {
                break;
            }
            state = self.wait(state);
        }
        let work = self.begin_commit(&mut state);
        drop(state);
        let mut running = Running(Some(self));
        let done = self.make_durable(&work);
        running.0 = None;
        let mut state = self.lock();
        state.commits.is_running = false;
        match &done {
            Ok(()) => {
                state.commits.done = state.commits.begun;
                for (index, _) in &work.change.blocks {
                    state.commits.copies[*index as usize] ^= 1;
                }
                state.slots.confirm(&work.change);
            }
            Err(error) => state.stopped = Some(format!("a commit failed: {error}")),
        }
        drop(state);
        self.changed.notify_all();
        done
    }

    fn begin_commit(&self, state: &mut State) -> CommitWork {
        state.commits.begun += 1;
        state.commits.is_running = true;
        let change = state.slots.take_change();
        let written = (change.blocks.len() * PAGE_BYTES) as u64;
        if !change.blocks.is_empty() {
            state.commits.transaction += 1;
            state.counters.metadata_batch += 1;
            state.counters.metadata_dirties += change.dirtied;
            state.counters.metadata_cleans += change.cleaned();
            state.counters.metadata_ssd_writes += change.blocks.len() as u64;
            state.count_written(written);
            state.wear.spend(written);
        }
        let flushes_disk = std::mem::take(&mut state.disk_unflushed);
        CommitWork { change, transaction: state.commits.transaction, flushes_disk }
    }

    fn make_durable(&self, work: &CommitWork) -> Result<(), DeviceError> {
        if work.flushes_disk {
            self.flush_disk()?;
        }
        if !work.change.blocks.is_empty() {
            self.write_table(work)?;
            self.flash.flush()?;
        }
        self.record_loss()
    }

    /// Flushes the disk, one flush after the other: a disk may tell a failure to one of two flushes alone. One that fails stops the
    /// cache, as it may have lost what any request wrote, and is not reported again.
    pub(crate) fn flush_disk(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        while state.is_flushing_disk {
            state = self.wait(state);
        }
        self.check_running(&state)?;
        state.is_flushing_disk = true;
        drop(state);
        let ended = DiskFlush(self);
        let flushed = self.on_disk(self.disk.flush());
        let mut state = self.lock();
        if let Err(error) = &flushed {
            state.stopped.get_or_insert_with(|| format!("a flush of the disk failed: {error}"));
        }
        drop((state, ended));
        flushed
    }

    fn write_table(&self, work: &CommitWork) -> Result<(), DeviceError> {
        let (uuid, copies) = {
            let state = self.lock();
            let copy = |(index, _): &(u32, _)| state.commits.copies[*index as usize];
            (state.superblock.cache, work.change.blocks.iter().map(copy).collect::<Vec<u8>>())
        };
        let parts = u32::try_from(work.change.blocks.len()).expect("no more than slots");
        let page = |(index, entries): &(u32, Vec<_>)| {
            let (transaction, entries) = (work.transaction, entries.clone());
            TableBlock { index: *index, transaction, parts, entries }.to_page(&uuid)
        };
        let pages: Vec<Vec<u8>> = work.change.blocks.iter().map(page).collect();
        let mut batch = Batch::default();
        let mut submitted = Vec::new();
        for (((index, _), page), copy) in work.change.blocks.iter().zip(&pages).zip(copies) {
            let offset = self.geometry.table_place(*index, copy ^ 1);
            submitted.push(self.flash.submit_write(offset, &[page], &mut batch));
        }
        let mut answers = batch.run().into_iter();
        let settled: Vec<_> = submitted.iter().map(|write| self.flash.settle(write, &mut answers)).collect();
        settled.into_iter().collect()
    }
}
