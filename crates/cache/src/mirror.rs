//! Two SSDs that mirror each other. They have the same superblock, table and slots, so each of them is a cache for itself: a
//! slot is read from either, and one with a wrong checksum is written over from the other. A commit is that of both.
//!
//! An SSD that was left behind must never be taken for the newest one. Three things tell:
//!
//! | told by | for |
//! |---|---|
//! | the role and the epoch in the superblocks | both SSDs are there |
//! | the number of the veil, in the superblock and in the marks on the disk | one of them is there |
//! | the number of the last transaction | both are there after a crash, and neither was left behind |
//!
//! Left behind ([`Cache::record_loss`]), before the first commit without the other is acknowledged: the superblock of the SSD that
//! goes on says that it is alone, in the next epoch, with another number of the veil; then the marks on the disk get the
//! number. A crash before the marks are durable leaves two SSDs that both have everything that was acknowledged. An SSD that is
//! loaded without the other is alone from then on too.
//!
//! Brought up to date ([`Cache::catch_up`]), before it is used: an SSD that is behind says so itself, so that a half copy is of no
//! use; gets the slots of dirty blocks, durably, but keeps those that it has right and the other one wrong; then the table. Then the superblock of the other one says in
//! the next epoch that both are in sync, and then its own. After a crash SSDs that are in sync differ by the last
//! transaction at most. The one that has it whole is the pattern; only what differs is copied, and each step leaves the other one
//! with a whole transaction: the slots that it gets are named by none of its own.

use crate::CacheError;
use crate::engine::Cache;
use crate::flash::Member;
use crate::format::{
    ENTRIES, Entry, FoundBlock, PAGE_BYTES, Role, Superblock, TABLE_OFFSET, TableBlock, block_checksum,
};
use crate::superblock::{read_superblock, text, write_superblock};
use brindle_device::{DeviceError, WritableDevice};
use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are copied at once.
const RUN_BYTES: usize = 1 << 20;

/// Failure of one of two SSDs while the second one is brought up to date.
enum CopyError {
    /// The first one can't be read.
    First(DeviceError),
    /// The second one failed.
    Second(DeviceError),
}

impl From<DeviceError> for CopyError {
    fn from(error: DeviceError) -> Self {
        Self::Second(error)
    }
}

/// Relation of two SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Both have everything that was acknowledged.
    InSync,
    /// The one with this index lacks some of it.
    Behind(usize),
}

/// Reason for which two SSDs are no mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPair {
    /// They belong to different caches, or one was replaced by a third one.
    Strangers,
    /// Each was used without the other.
    Diverged,
}

/// Judges the superblocks of two SSDs.
pub(crate) fn pair(first: &Superblock, second: &Superblock) -> Result<Pairing, NoPair> {
    let knows = |own: &Superblock, other: &Superblock| {
        own.is_mirrored() && own.mirror == other.flash && own.member != other.member
    };
    if first.cache != second.cache || !knows(first, second) || !knows(second, first) {
        return Err(NoPair::Strangers);
    }
    let epochs = first.epoch.get().cmp(&second.epoch.get());
    match (first.role(), second.role(), epochs) {
        (Some(Role::InSync), Some(Role::InSync), Ordering::Equal) => Ok(Pairing::InSync),
        (Some(Role::InSync | Role::Alone), Some(Role::Behind), _)
        | (Some(Role::InSync | Role::Alone), Some(Role::InSync), Ordering::Greater) => Ok(Pairing::Behind(1)),
        (Some(Role::Behind), Some(Role::InSync | Role::Alone), _)
        | (Some(Role::InSync), Some(Role::InSync | Role::Alone), Ordering::Less) => Ok(Pairing::Behind(0)),
        _ => Err(NoPair::Diverged),
    }
}

/// The SSD that is to mirror the one that a cache was loaded from.
pub(crate) struct Follower {
    pub(crate) member: Member,
    /// Its table; none if it is behind.
    pub(crate) table: Option<Vec<Vec<Entry>>>,
    /// True if both were closed in the same state.
    pub(crate) is_same: bool,
}

/// Makes another SSD the mirror of one that has a cache, in the place of the mirror that it has or had. Neither may be in use. The new
/// one is brought up to date when both are loaded.
///
/// # Errors
/// [`CacheError::Refused`] unless the cache is a write-back cache, [`CacheError::Exists`] unless forced,
/// [`CacheError::Behind`], [`CacheError::Size`], those of the devices.
pub fn add_mirror(
    flash: &dyn WritableDevice,
    mirror: &dyn WritableDevice,
    uuid: [u8; 16],
    is_forced: bool,
) -> Result<(), CacheError> {
    let mut superblock = read_superblock(flash.as_device())?;
    if superblock.role() == Some(Role::Behind) {
        return Err(CacheError::Behind { flash: flash.name().to_owned() });
    }
    if superblock.mode != crate::Mode::Back.number() {
        let (what, why) = ("a cache on two SSDs", "must be a write-back cache");
        return Err(CacheError::Refused { what, found: superblock.mode.into(), why });
    }
    let (found, expected) = (mirror.size_bytes(), superblock.flash_bytes.get());
    if found < expected {
        return Err(CacheError::Size { device: mirror.name().to_owned(), found, expected });
    }
    match read_superblock(mirror.as_device()) {
        Err(CacheError::NoCache { .. }) => {}
        _ if is_forced => {}
        // What a call before this one left, which ended between the two SSDs.
        Ok(other) if other.role() == Some(Role::Behind) && other.mirror == superblock.flash => {}
        Ok(other) => {
            let (flash, cache) = (mirror.name().to_owned(), text(&other.name));
            return Err(CacheError::Exists { flash, cache });
        }
        Err(error) => return Err(error),
    }
    superblock.mirror = uuid;
    superblock.set_role(Role::Behind);
    let mut behind = superblock.of_member(1 - superblock.member, uuid, Some(superblock.flash));
    behind.epoch = 0.into();
    write_superblock(mirror, &behind)?;
    superblock.set_role(Role::Alone);
    superblock.next_epoch();
    superblock.sequence = (superblock.sequence.get() + 1).into();
    Ok(write_superblock(flash, &superblock)?)
}

impl Cache {
    /// Takes note on the SSD that goes on, and on the disk, that the other one was given up.
    pub(crate) fn record_loss(&self) -> Result<(), DeviceError> {
        if self.flash.given_up().is_none() {
            return Ok(());
        }
        let leave_behind = |superblock: &mut Superblock| {
            let is_news = superblock.role() == Some(Role::InSync);
            superblock.set_role(Role::Alone);
            superblock.next_epoch();
            superblock.member = self.flash.survivor().number;
            if superblock.is_veiled != 0 {
                superblock.renumber_veil();
            }
            is_news
        };
        self.change_superblock(leave_behind, |superblock| {
            self.lock().counters.mirror_losses += 1;
            if superblock.is_veiled != 0 { self.mark_disk(superblock) } else { Ok(()) }
        })
    }

    /// Changes the superblock, unless `change` returns false, one change at a time; and the disk along with it, before the next.
    pub(crate) fn change_superblock(
        &self,
        change: impl FnOnce(&mut Superblock) -> bool,
        on_disk: impl FnOnce(&Superblock) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut state = self.lock();
        while state.is_telling {
            state = self.wait(state);
        }
        let mut superblock = state.superblock.clone();
        if !change(&mut superblock) {
            return Ok(());
        }
        state.is_telling = true;
        superblock.sequence = (superblock.sequence.get() + 1).into();
        // After a failure one of the copies may be there: the next one has a later number all the same.
        state.superblock.sequence = superblock.sequence;
        drop(state);
        let written = self.flash.write_superblock(&superblock);
        if written.is_ok() {
            self.lock().superblock = superblock.clone();
        }
        let done = written.is_ok().then(|| on_disk(&superblock));
        let mut state = self.lock();
        state.is_telling = false;
        if let Some(Err(error)) = &done {
            state.stopped = Some(format!("the mark of the disk could not be written: {error}"));
        }
        drop(state);
        self.changed.notify_all();
        written.and(done.unwrap_or(Ok(())))
    }

    /// The contents of a slot on the other SSD than the one that has them wrong, if they are right there; the first one is written
    /// over. The caller has entered the block.
    pub(crate) fn rescue(&self, wrong: usize, slot: u32, block: u64, checksum: u32) -> Option<Vec<u8>> {
        let other = self.flash.other(wrong)?;
        let place = self.geometry.slot_place(slot);
        let mut contents = vec![0; self.block_length()];
        self.flash.read_at(other, place, &mut contents).ok()?;
        if block_checksum(block, &contents) != checksum {
            return None;
        }
        let is_written = {
            let mut state = self.lock();
            state.counters.mirror_repairs += u64::from(state.stopped.is_none());
            state.stopped.is_none()
        };
        if is_written {
            self.flash.mend(wrong, place, &contents);
        }
        Some(contents)
    }

    /// Has a second SSD mirror the first one, after it was brought up to date. One that fails is left out.
    ///
    /// # Errors
    /// Those of the first one, whose table can't be read any more.
    pub(crate) fn catch_up(&mut self, follower: Follower, is_damaged: bool) -> Result<(), DeviceError> {
        let name = follower.member.device.name().to_owned();
        match self.copy_to(&follower, is_damaged) {
            Ok(0) => {}
            Ok(blocks) => tracing::info!("{name}: {blocks} dirty blocks are copied from its mirror"),
            Err(CopyError::First(error)) => return Err(error),
            Err(CopyError::Second(error)) => {
                self.flash.note_error(&follower.member, &error);
                tracing::error!("{name} can't be brought up to date, and is left out: {error}");
                return Ok(());
            }
        }
        self.flash.join(follower.member);
        Ok(())
    }

    /// Copies to the second SSD; number of dirty blocks.
    fn copy_to(&self, follower: &Follower, is_damaged: bool) -> Result<u64, CopyError> {
        if follower.is_same {
            return Ok(0);
        }
        let Member { device, uuid, number } = &follower.member;
        if follower.table.is_none() {
            let mut behind = self.lock().superblock.of_member(*number, *uuid, Some(self.flash.first().uuid));
            behind.set_role(Role::Behind);
            write_superblock(&**device, &behind)?;
        }
        let runs = self.missing_on(follower);
        for run in &runs {
            let mut bytes = vec![0; run.len() * self.block_length()];
            let place = self.geometry.slot_place(run.start);
            self.read_first(place, &mut bytes);
            self.correct(run, &mut bytes, &**device);
            device.write_at(place, &bytes)?;
        }
        device.flush()?;
        let end = TABLE_OFFSET + 2 * self.geometry.table_blocks() * PAGE_BYTES as u64;
        for at in (TABLE_OFFSET..end).step_by(RUN_BYTES) {
            let length = usize::try_from(end - at).map_or(RUN_BYTES, |left| left.min(RUN_BYTES));
            let (mut bytes, mut there) = (vec![0; length], vec![0; length]);
            if is_damaged {
                self.read_first(at, &mut bytes);
            } else {
                self.read_table(at, &mut bytes).map_err(CopyError::First)?;
            }
            let is_readable = device.read_at(at, &mut there).is_ok();
            for (place, (page, there)) in
                (at..).step_by(PAGE_BYTES).zip(bytes.chunks(PAGE_BYTES).zip(there.chunks(PAGE_BYTES)))
            {
                if !is_readable || page != there {
                    device.write_at(place, page)?;
                }
            }
        }
        device.flush()?;
        Ok(runs.iter().map(|run| run.len() as u64).sum())
    }

    /// Puts right the slots of a run that the first SSD has wrong and the second one right, on the first one too.
    fn correct(&self, run: &Range<u32>, bytes: &mut [u8], second: &dyn WritableDevice) {
        for (slot, contents) in run.clone().zip(bytes.chunks_mut(self.block_length())) {
            let entry = self.lock().slots.entry(slot);
            let is_right =
                |contents: &[u8]| block_checksum(entry.block.get(), contents) == entry.checksum.get();
            if is_right(contents) {
                continue;
            }
            let (mut found, place) = (vec![0; contents.len()], self.geometry.slot_place(slot));
            if second.read_at(place, &mut found).is_err() || !is_right(&found) {
                continue;
            }
            contents.copy_from_slice(&found);
            self.lock().counters.mirror_repairs += 1;
            if let Err(error) = self.flash.first().device.write_at(place, &found) {
                tracing::warn!("{error}");
            }
        }
    }

    /// Reads a part of the table from the first SSD. It was whole a moment ago; anything else would spoil that of the second one.
    fn read_table(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let device = &self.flash.first().device;
        device.read_at(offset, bytes)?;
        let (state, blocks) = (self.lock(), self.geometry.table_blocks());
        for (at, page) in (offset..).step_by(PAGE_BYTES).zip(bytes.chunks(PAGE_BYTES)) {
            let number = (at - TABLE_OFFSET) / PAGE_BYTES as u64;
            let index = u32::try_from(number % blocks).expect("fewer than slots");
            let counts = u64::from(state.commits.copies[index as usize]) == number / blocks;
            let is_right = match TableBlock::parse(page, &state.superblock.cache, index) {
                FoundBlock::Whole(_) => true,
                FoundBlock::Torn { .. } => !counts,
                FoundBlock::Damaged => false,
            };
            if !is_right {
                let (device, source) = (device.name().to_owned(), io::Error::other("wrong checksum"));
                return Err(DeviceError::Read { device, offset: at, length: PAGE_BYTES, source });
            }
        }
        Ok(())
    }

    /// Reads from the first SSD. Pieces that it can't read stay zeros, which no checksum fits.
    fn read_first(&self, offset: u64, bytes: &mut [u8]) {
        let device = &self.flash.first().device;
        if device.read_at(offset, bytes).is_ok() {
            return;
        }
        let piece_bytes = self.block_length().min(PAGE_BYTES);
        for (at, piece) in (offset..).step_by(piece_bytes).zip(bytes.chunks_mut(piece_bytes)) {
            if let Err(error) = device.read_at(at, piece) {
                tracing::warn!("{error}");
                piece.fill(0);
            }
        }
    }

    /// Runs of slots with dirty blocks that the second SSD may lack.
    fn missing_on(&self, follower: &Follower) -> Vec<Range<u32>> {
        let longest = (RUN_BYTES / self.block_length()).max(1);
        let state = self.lock();
        let known = |slot: u32| {
            let entries = follower.table.as_ref()?.get(slot as usize / ENTRIES)?;
            entries.get(slot as usize % ENTRIES)
        };
        let mut runs: Vec<Range<u32>> = Vec::new();
        for slot in (0..state.slots.slots()).filter(|slot| state.slots.is_dirty(*slot)) {
            if known(slot) == Some(&state.slots.entry(slot)) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == slot && run.len() < longest => run.end += 1,
                _ => runs.push(slot..slot + 1),
            }
        }
        runs
    }
}

/// An SSD of a cache, as its superblock tells.
pub(crate) fn member(device: Arc<dyn WritableDevice>, superblock: &Superblock) -> Member {
    Member { device, uuid: superblock.flash, number: superblock.member }
}
