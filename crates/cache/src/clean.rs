//! Cleaning: dirty blocks are read from the flash, verified, and written to the disk in its order, in long runs. Requests
//! that write a block of a run wait while the run is on its way, and no longer. When the disk has been flushed, blocks that
//! were not written since are clean; the table on flash says so after the next commit.
//!
//! A crash at any point leaves the table naming the slots, whose contents are as they were: cleaning does no harm twice.

use crate::CacheError;
use crate::engine::{Cache, State};
use crate::format::block_checksum;
use crate::settings::Mode;
use brindle_device::DeviceError;
use brindle_policy::cache::cleaning;
use std::io;
use std::time::Duration;

/// Bytes that are written to the disk at once.
const RUN_BYTES: u64 = 1 << 20;
/// Blocks of the table that may wait for a commit before upkeep makes one.
const PENDING_MAX: usize = 256;

/// A round of cleaning; gone, another may begin.
struct Round<'c>(&'c Cache);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.state.lock_after_panic().is_cleaning = false;
        self.0.changed.notify_all();
    }
}

impl Cache {
    /// Does a part of the work that nothing waits for: cleans blocks of sets that have too many dirty ones, and blocks
    /// that were not written for long. True if there is more to do at once.
    ///
    /// # Errors
    /// Those of the devices. Blocks stay dirty then.
    pub fn upkeep(&self) -> Result<bool, DeviceError> {
        if self.mode != Mode::Back {
            return Ok(false);
        }
        let Some(_round) = self.begin_round(false) else { return Ok(false) };
        let (victims, is_fallow) = self.victims();
        if victims.is_empty() {
            let waits = self.lock().slots.pending() > PENDING_MAX;
            if waits {
                self.commit()?;
            }
            return Ok(false);
        }
        let cleaned = self.clean(&victims)?;
        if is_fallow {
            self.lock().counters.fallow_cleanings += cleaned;
        }
        self.commit()?;
        Ok(cleaned > 0)
    }

    /// Writes all dirty blocks to the disk. Number of blocks that stay dirty: those that can't be read, and those that are
    /// written meanwhile.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn clean_all(&self) -> Result<u64, DeviceError> {
        self.clean_until(|_| false)
    }

    /// Writes all dirty blocks to the disk, unless [`stop_sync`](Self::stop_sync) is called meanwhile. Number of blocks that stay dirty.
    ///
    /// # Errors
    /// Those of the devices; [`CacheError::NotCleaned`].
    pub(crate) fn sync(&self) -> Result<u64, CacheError> {
        let stops = self.lock().sync_stops;
        let left = self.clean_until(|state| state.sync_stops != stops)?;
        let dirty_blocks = self.lock().slots.unreadable();
        if dirty_blocks == 0 {
            return Ok(left);
        }
        let (flash, disk) = (self.flash.name().to_owned(), self.disk.name().to_owned());
        Err(CacheError::NotCleaned { flash, disk, dirty_blocks })
    }

    /// Ends each [`sync`](Self::sync) that is under way, after the round that it is in.
    pub(crate) fn stop_sync(&self) {
        self.lock().sync_stops += 1;
    }

    fn clean_until(&self, is_stopped: impl Fn(&State) -> bool) -> Result<u64, DeviceError> {
        let _round = self.begin_round(true);
        self.lock().slots.retry_unreadable();
        let mut next = 0;
        loop {
            let (victims, stop) = {
                let state = self.lock();
                if is_stopped(&state) {
                    break;
                }
                let most = self.round_blocks(state.settings.max_clean_ios_total.max(16));
                state.slots.dirty_from(next, most)
            };
            if victims.is_empty() {
                break;
            }
            self.clean(&victims)?;
            next = stop;
        }
        self.commit()?;
        Ok(self.lock().slots.dirty())
    }

    fn begin_round(&self, waits: bool) -> Option<Round<'_>> {
        let mut state = self.lock();
        while state.is_cleaning {
            if !waits {
                return None;
            }
            state = self.wait(state);
        }
        state.is_cleaning = true;
        Some(Round(self))
    }

    /// Blocks of a round of as many runs.
    fn round_blocks(&self, runs: u64) -> usize {
        usize::try_from(runs * self.run_blocks() as u64).expect("a few thousand blocks")
    }

    /// Blocks of the longest run.
    fn run_blocks(&self) -> usize {
        usize::try_from((RUN_BYTES / self.geometry.block_bytes).max(1)).expect("a few thousand blocks")
    }

    /// Blocks to be cleaned now, sorted; and true if they are fallow.
    fn victims(&self) -> (Vec<(u64, u32)>, bool) {
        let mut locked = self.lock();
        let state = &mut *locked;
        let most = self.round_blocks(state.settings.max_clean_ios_total);
        let most_of_set = self.round_blocks(state.settings.max_clean_ios_set);
        let mut excess = state.slots.excess(state.settings.dirty_thresh_pct, most_of_set, most);
        if excess.is_empty() {
            excess = state.slots.excess_of_all(state.settings.dirty_thresh_total_pct, most_of_set, most);
        }
        let (hand, began) = state.fallow_hand;
        let now = self.clock.now();
        let is_rested = now >= state.fallow_rests_until;
        let is_due = |delay| is_rested && (hand > 0 || now.saturating_sub(began) >= delay);
        if !excess.is_empty() || !state.settings.fallow().is_some_and(is_due) {
            return (excess, false);
        }
        let speed = state.settings.fallow_clean_speed.saturating_mul(self.geometry.sets);
        let most = if speed == 0 { most } else { most.min(usize::try_from(speed).unwrap_or(usize::MAX)) };
        let (fallow, next) = state.slots.fallow_from(hand, most);
        let micros = (fallow.len() as u64).saturating_mul(1_000_000).checked_div(speed);
        state.fallow_rests_until = now + Duration::from_micros(micros.unwrap_or_default());
        state.fallow_hand = match (next, hand) {
            (next, _) if next == state.slots.slots() => (0, now),
            (next, 0) => (next, now),
            (next, _) => (next, began),
        };
        (fallow, true)
    }

    /// Cleans blocks, which are sorted. Number of blocks that are clean.
    fn clean(&self, victims: &[(u64, u32)]) -> Result<u64, DeviceError> {
        let blocks: Vec<u64> = victims.iter().map(|(block, _)| *block).collect();
        let mut written = Vec::new();
        let mut failure = None;
        for (first, length) in cleaning::runs(&blocks, self.run_blocks()) {
            match self.clean_run(&victims[first..first + length]) {
                Ok(slots) => written.extend(slots),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let flushed = if written.is_empty() { Ok(()) } else { self.flush_disk() };
        let mut state = self.lock();
        let is_on_disk = flushed.is_ok();
        let cleaned =
            written.iter().filter(|slot| state.slots.end_cleaning(**slot, is_on_disk)).count() as u64;
        state.counters.cleanings += cleaned;
        flushed?;
        failure.map_or(Ok(cleaned), Err)
    }

    /// Writes one run of adjacent blocks to the disk. Slots that were written.
    fn clean_run(&self, run: &[(u64, u32)]) -> Result<Vec<u32>, DeviceError> {
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let (_entered, begun) = {
            let (entered, mut state) = self.enter_blocks(first, last, false);
            let is_begun = |(block, slot): &&(u64, u32)| state.slots.begin_cleaning(*block, *slot);
            let begun: Vec<_> = run.iter().filter(is_begun).copied().collect();
            let with_checksum = |(block, slot)| (block, slot, state.slots.checksum(slot));
            (entered, begun.into_iter().map(with_checksum).collect::<Vec<(u64, u32, u32)>>())
        };
        let length = self.block_length();
        let submit = |(_, slot, _): &(u64, u32, u32)| {
            let reader = self.flash.reader_of(*slot);
            (reader, self.flash.submit_read(reader, self.geometry.slot_place(*slot), length))
        };
        let pending: Vec<_> = begun.iter().map(submit).collect();
        let mut whole = Vec::new();
        for ((block, slot, checksum), (reader, pending)) in begun.into_iter().zip(pending) {
            match self.flash.noted(reader, pending.wait()) {
                Ok(bytes) if block_checksum(block, &bytes) == checksum => {
                    whole.push((block, slot, bytes.to_vec()));
                }
                answer => match self.rescue(reader, slot, block, checksum) {
                    Some(bytes) => whole.push((block, slot, bytes)),
                    None => self.note_unreadable(block, slot, answer.err()),
                },
            }
        }
        let blocks: Vec<u64> = whole.iter().map(|(block, ..)| *block).collect();
        let mut written = Vec::new();
        for (first, length) in cleaning::runs(&blocks, blocks.len()) {
            let part = &whole[first..first + length];
            let pieces: Vec<&[u8]> = part.iter().map(|(.., bytes)| &bytes[..]).collect();
            let place = part[0].0 * self.geometry.block_bytes;
            let done = self.on_disk(self.disk.write_pieces_at(place, &pieces));
            let mut state = self.lock();
            state.counters.disk_writes += 1;
            state.counters.back_merge += length as u64 - 1;
            if let Err(error) = done {
                whole.iter().for_each(|(_, slot, _)| _ = state.slots.end_cleaning(*slot, false));
                return Err(error);
            }
            written.extend(part.iter().map(|(_, slot, _)| *slot));
        }
        Ok(written)
    }

    fn note_unreadable(&self, block: u64, slot: u32, error: Option<DeviceError>) {
        let mut state = self.lock();
        state.counters.checksum_errors += u64::from(error.is_none());
        state.slots.note_unreadable(slot);
        let error = error.unwrap_or_else(|| DeviceError::Read {
            device: self.flash.name().to_owned(),
            offset: self.geometry.slot_place(slot),
            length: self.block_length(),
            source: io::Error::other("wrong checksum"),
        });
        tracing::error!("{}: the dirty block {block} cannot be cleaned: {error}", self.name);
    }
}
