//! The table of slots in memory: 14 bytes a slot, and ten for the order of its set; a bit more after a start whose clean blocks are doubted.
//!
//! A slot's contents never change while it holds a block: each write of a block takes another slot. So the table on flash may
//! be written at any time, beside any writer. A slot that the table on flash *names*, as one of a dirty block, gets
//! no other contents before the table on flash says otherwise, durably.

mod cleaning;

use crate::format::{DIRTY, ENTRIES, Entry, FREE, Geometry};
use brindle_policy::cache::replacement::{ReclaimPolicy, SetOrder};
use std::collections::BTreeSet;

/// Flag of a slot that is being written, and holds no block yet.
const RESERVED: u8 = 1;
/// Flag of a slot that holds a block.
const VALID: u8 = 2;
/// The disk has older contents of the block.
const DIRTY_BLOCK: u8 = 4;
/// The table on flash has it as dirty, or may have.
const NAMED: u8 = 8;
/// A cleaner writes it to the disk.
const CLEANING: u8 = 16;
/// Flag of a slot that was dirty when the clock came by, and was not written since.
const FALLOW: u8 = 32;
/// Its contents could not be read.
const UNREADABLE: u8 = 64;
/// Its block is veiled on the disk, and stays dirty.
const PINNED: u8 = 128;

/// Adjacent blocks of the disk that lie in one set, and are cleaned together.
pub const DISK_ASSOCIATIVITY: u64 = 64;

/// Slots that are compared at once when a block is looked for.
const COMPARED_TOGETHER: usize = 64;

/// Room for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A slot, which is reserved.
    Slot(u32),
    /// There will be some after a commit.
    AfterCommit,
    /// All of the set is dirty or in use.
    None,
}

/// Slots, and the blocks that they hold.
#[derive(Debug)]
pub(crate) struct SlotTable {
    geometry: Geometry,
    blocks: Vec<u64>,
    /// A byte of each block's number, mixed.
    tags: Vec<u8>,
    checksums: Vec<u32>,
    flags: Vec<u8>,
    orders: Vec<SetOrder>,
    /// Dirty blocks of each set.
    dirty_of_set: Vec<u16>,
    /// Ways from which the search for a free slot of each set goes on.
    next_free: Vec<u16>,
    dirty: u64,
    valid: u64,
    /// Blocks of the table on flash that have to be written, so that dirty blocks are known.
    pending: BTreeSet<u32>,
    /// Blocks of the table on flash that differ from this one.
    differs: Vec<bool>,
    /// Blocks that are not cleaned; a few, sorted.
    pinned: Vec<u64>,
    /// Slots whose blocks count only once the disk has shown the same contents, a bit each; empty where there are none.
    doubted: Vec<u64>,
}

/// Change of the table on flash.
#[derive(Debug, Default)]
pub(crate) struct TableChange {
    /// Numbers of blocks of the table, and their entries.
    pub(crate) blocks: Vec<(u32, Vec<Entry>)>,
    /// Number of slots that the table on flash names anew as dirty.
    pub(crate) dirtied: u64,
    /// Slots that the table on flash no longer names once the change is durable.
    released: Vec<u32>,
}

impl TableChange {
    /// Number of slots that the table on flash no longer has as dirty.
    pub(crate) fn cleaned(&self) -> u64 {
        self.released.len() as u64
    }
}

impl SlotTable {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let slots = usize::try_from(geometry.slots()).expect("32 bits");
        let sets = usize::try_from(geometry.sets).expect("fewer than slots");
        let associativity = u16::try_from(geometry.associativity).expect("checked in the superblock");
        let table_blocks = usize::try_from(geometry.table_blocks()).expect("fewer than slots");
        Self {
            geometry,
            blocks: vec![0; slots],
            tags: vec![0; slots],
            checksums: vec![0; slots],
            flags: vec![0; slots],
            orders: vec![SetOrder::new(associativity); sets],
            dirty_of_set: vec![0; sets],
            next_free: vec![0; sets],
            dirty: 0,
            valid: 0,
            pending: BTreeSet::new(),
            differs: vec![false; table_blocks],
            pinned: Vec::new(),
            doubted: Vec::new(),
        }
    }

    /// Doubts all clean blocks: the disk may have been written by others.
    pub(crate) fn doubt_clean(&mut self) {
        self.doubted = vec![0; self.flags.len().div_ceil(64)];
        for (slot, flags) in self.flags.iter().enumerate() {
            let is_clean = flags & (VALID | DIRTY_BLOCK) == VALID;
            self.doubted[slot / 64] |= u64::from(is_clean) << (slot % 64);
        }
    }

    /// Returns true if a slot's block does not count yet.
    pub(crate) fn is_doubted(&self, slot: u32) -> bool {
        let slot = slot as usize;
        self.doubted.get(slot / 64).is_some_and(|bits| bits >> (slot % 64) & 1 != 0)
    }

    /// Takes note that the disk has what a slot has.
    pub(crate) fn trust(&mut self, slot: u32) {
        let slot = slot as usize;
        if let Some(bits) = self.doubted.get_mut(slot / 64) {
            *bits &= !(1 << (slot % 64));
        }
    }

    /// Takes note that the disk was not written by others.
    pub(crate) fn trust_all(&mut self) {
        self.doubted = Vec::new();
    }

    /// Drops the blocks that are doubted still.
    pub(crate) fn forget_doubted(&mut self) {
        if self.doubted.is_empty() {
            return;
        }
        for slot in 0..self.slots() {
            if self.is_doubted(slot) {
                self.forget(self.blocks[slot as usize]);
            }
        }
    }

    /// Has these blocks, which are sorted, never be cleaned while they are dirty; all others may be.
    pub(crate) fn pin(&mut self, blocks: Vec<u64>) {
        for block in std::mem::replace(&mut self.pinned, blocks) {
            if let Some(slot) = self.find(block) {
                self.flags[slot as usize] &= !PINNED;
            }
        }
        for block in self.pinned.clone() {
            if let Some(slot) = self.find(block).filter(|slot| self.is_dirty(*slot)) {
                self.flags[slot as usize] |= PINNED;
            }
        }
    }

    /// Returns true for a block that is never cleaned.
    pub(crate) fn is_pinned(&self, block: u64) -> bool {
        self.pinned.binary_search(&block).is_ok()
    }

    /// Blocks that are never cleaned.
    pub(crate) fn pinned(&self) -> &[u64] {
        &self.pinned
    }

    /// Number of dirty blocks that are never cleaned.
    pub(crate) fn pinned_dirty(&self) -> u64 {
        let is_dirty = |block: &&u64| self.find(**block).is_some_and(|slot| self.is_dirty(slot));
        self.pinned.iter().filter(is_dirty).count() as u64
    }

    /// Number of dirty blocks.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Number of blocks that are cached.
    pub(crate) fn valid(&self) -> u64 {
        self.valid
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.geometry.slots()
    }

    /// The set of a block: neighbours lie together, and regions are scattered.
    pub(crate) fn set_of(&self, block: u64) -> u64 {
        mixed(block / DISK_ASSOCIATIVITY) % self.geometry.sets
    }

    /// The slot that holds a block.
    pub(crate) fn find(&self, block: u64) -> Option<u32> {
        let first = self.first_of(self.set_of(block));
        let end = first + self.geometry.associativity as usize;
        let tag = tag(block);
        let is_it = |slot: &usize| self.blocks[*slot] == block && self.flags[*slot] & VALID != 0;
        for start in (first..end).step_by(COMPARED_TOGETHER) {
            let group = start..end.min(start + COMPARED_TOGETHER);
            // Without a branch for each, the processor compares many at once.
            let may_have_it = self.tags[group.clone()].iter().fold(false, |any, known| any | (*known == tag));
            if let Some(slot) = group.filter(|_| may_have_it).find(is_it) {
                return Some(number(slot));
            }
        }
        None
    }

    pub(crate) fn is_dirty(&self, slot: u32) -> bool {
        self.has(slot, DIRTY_BLOCK)
    }

    pub(crate) fn checksum(&self, slot: u32) -> u32 {
        self.checksums[slot as usize]
    }

    /// Entry of a slot that holds a block.
    pub(crate) fn entry(&self, slot: u32) -> Entry {
        Entry::new(self.blocks[slot as usize], self.checksum(slot), self.is_dirty(slot))
    }

    /// Takes note of a use.
    pub(crate) fn hit(&mut self, rule: ReclaimPolicy, slot: u32) {
        let (set, way) = self.place(slot);
        self.orders[set].hit(rule, way);
    }

    /// Reserves a slot for a block; `in_use` tells blocks that requests under way may look at. If there is no free slot,
    /// a clean block makes way; returns true beside the slot then.
    pub(crate) fn reserve(
        &mut self,
        rule: ReclaimPolicy,
        block: u64,
        in_use: impl Fn(u64) -> bool,
    ) -> (Room, bool) {
        let set = usize::try_from(self.set_of(block)).expect("fewer than slots");
        let (first, ways) = (self.first_of(set as u64), self.geometry.associativity as usize);
        let start = usize::from(self.next_free[set]);
        let free = (0..ways).map(|step| (start + step) % ways).find(|way| self.flags[first + way] == 0);
        if let Some(way) = free {
            self.next_free[set] = u16::try_from((way + 1) % ways).expect("at most SLOTS_MAX");
            self.flags[first + way] = RESERVED;
            return (Room::Slot(number(first + way)), false);
        }
        let (flags, blocks) = (&self.flags, &self.blocks);
        let can_go = |way: u16| {
            let slot = first + usize::from(way);
            flags[slot] & (VALID | DIRTY_BLOCK | NAMED) == VALID && !in_use(blocks[slot])
        };
        let print = |way: u16| fingerprint(blocks[first + usize::from(way)]);
        if let Some(way) = self.orders[set].victim(rule, can_go, print) {
            let slot = number(first + usize::from(way));
            self.empty(slot);
            self.flags[slot as usize] = RESERVED;
            return (Room::Slot(slot), true);
        }
        let waits = |flags: &u8| flags & NAMED != 0 && flags & DIRTY_BLOCK == 0;
        let is_near = self.flags[first..first + ways].iter().any(waits);
        (if is_near { Room::AfterCommit } else { Room::None }, false)
    }

    /// Gives a reserved slot back.
    pub(crate) fn release(&mut self, slot: u32) {
        debug_assert!(self.has(slot, RESERVED), "slot {slot} is not reserved");
        self.flags[slot as usize] = 0;
    }

    /// Has a reserved slot hold a block, in the place of the slot that held it before.
    pub(crate) fn publish(
        &mut self,
        rule: ReclaimPolicy,
        slot: u32,
        block: u64,
        checksum: u32,
        is_dirty: bool,
    ) {
        assert!(self.flags[slot as usize] == RESERVED, "slot {slot} was not reserved");
        let (set, way) = self.place(slot);
        if let Some(before) = self.find(block) {
            let (_, older) = self.place(before);
            self.orders[set].replace(rule, older, way);
            self.empty(before);
        } else {
            self.orders[set].insert(rule, way, fingerprint(block));
        }
        self.put(slot, block, checksum, is_dirty);
        self.differs[table_block(slot)] = true;
        if is_dirty {
            self.pending.insert(number(table_block(slot)));
        }
    }

    /// Drops a block from the cache, dirty or not.
    pub(crate) fn forget(&mut self, block: u64) {
        if let Some(slot) = self.find(block) {
            let (set, way) = self.place(slot);
            self.orders[set].remove(way);
            self.empty(slot);
        }
    }

    /// Drops the blocks from `first` on and before `end`.
    pub(crate) fn forget_range(&mut self, first: u64, end: u64) {
        if end.saturating_sub(first) <= u64::from(self.geometry.associativity) {
            return (first..end).for_each(|block| self.forget(block));
        }
        for slot in 0..self.flags.len() {
            if self.flags[slot] & VALID != 0 && (first..end).contains(&self.blocks[slot]) {
                self.forget(self.blocks[slot]);
            }
        }
    }

    /// Drops all blocks but a few.
    pub(crate) fn forget_all_but(&mut self, kept: &[u64]) {
        for slot in 0..self.flags.len() {
            if self.flags[slot] & VALID != 0 && !kept.contains(&self.blocks[slot]) {
                self.forget(self.blocks[slot]);
            }
        }
    }

    /// Puts an entry of the table on flash into its slot; false if it can't be right.
    pub(crate) fn load(&mut self, rule: ReclaimPolicy, slot: u32, entry: &Entry, disk_blocks: u64) -> bool {
        let block = entry.block.get();
        if entry.state == FREE {
            return true;
        }
        let set = u64::from(slot / self.geometry.associativity);
        if entry.state > DIRTY || block >= disk_blocks || self.set_of(block) != set {
            return false;
        }
        if self.flags[slot as usize] != 0 || self.find(block).is_some() {
            return false;
        }
        let is_dirty = entry.state == DIRTY;
        let (set, way) = self.place(slot);
        self.orders[set].insert(rule, way, fingerprint(block));
        self.put(slot, block, entry.checksum.get(), is_dirty);
        if is_dirty {
            self.flags[slot as usize] |= NAMED;
        }
        true
    }

    /// Takes note that a block of the table on flash is not as this one is.
    pub(crate) fn note_difference(&mut self, table_block: u32) {
        self.differs[table_block as usize] = true;
    }

    /// Has the next change hold all that differs, clean blocks too.
    pub(crate) fn write_all(&mut self) {
        let differing = self.differs.iter().enumerate().filter(|(_, differs)| **differs);
        self.pending.extend(differing.map(|(index, _)| number(index)));
    }

    /// Number of blocks of the table on flash that wait for a commit.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Everything that waits for a commit. From now on the table on flash may say so.
    pub(crate) fn take_change(&mut self) -> TableChange {
        let mut change = TableChange::default();
        for index in std::mem::take(&mut self.pending) {
            let mut entries = vec![Entry::EMPTY; ENTRIES];
            let first = index as usize * ENTRIES;
            for (slot, entry) in (first..self.flags.len()).zip(&mut entries) {
                let flags = &mut self.flags[slot];
                let is_dirty = *flags & DIRTY_BLOCK != 0;
                if *flags & VALID != 0 {
                    *entry = Entry::new(self.blocks[slot], self.checksums[slot], is_dirty);
                }
                if is_dirty {
                    change.dirtied += u64::from(*flags & NAMED == 0);
                    *flags |= NAMED;
                } else if *flags & NAMED != 0 {
                    change.released.push(number(slot));
                }
            }
            self.differs[index as usize] = false;
            change.blocks.push((index, entries));
        }
        change
    }

    /// Takes note that a change is durable.
    pub(crate) fn confirm(&mut self, change: &TableChange) {
        for slot in &change.released {
            debug_assert!(!self.is_dirty(*slot), "slot {slot} got a dirty block while it was named");
            self.flags[*slot as usize] &= !NAMED;
        }
    }

    /// A complaint, if sums and flags do not agree. Costly.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let count = |flag: u8| self.flags.iter().filter(|flags| **flags & flag != 0).count() as u64;
        if (count(VALID), count(DIRTY_BLOCK)) != (self.valid, self.dirty) {
            return Err(format!("{} valid, {} dirty by sums", self.valid, self.dirty));
        }
        for slot in 0..self.slots() {
            let flags = self.flags[slot as usize];
            if flags & DIRTY_BLOCK != 0 && flags & VALID == 0 || flags & RESERVED != 0 && flags != RESERVED {
                return Err(format!("slot {slot} has flags {flags:#x}"));
            }
            if self.is_doubted(slot) && flags & (VALID | DIRTY_BLOCK) != VALID {
                return Err(format!("slot {slot} is doubted, and has flags {flags:#x}"));
            }
            if flags & VALID != 0 && self.find(self.blocks[slot as usize]) != Some(slot) {
                return Err(format!("slot {slot} holds a block that lies elsewhere"));
            }
            let waits = flags & NAMED != 0 && flags & DIRTY_BLOCK == 0;
            let is_new = flags & DIRTY_BLOCK != 0 && flags & NAMED == 0;
            if (waits || is_new) && !self.pending.contains(&number(table_block(slot))) {
                return Err(format!("slot {slot} waits for a commit that does not come"));
            }
        }
        Ok(())
    }

    /// Has a slot, which is in the order of its set, hold a block.
    fn put(&mut self, slot: u32, block: u64, checksum: u32, is_dirty: bool) {
        let (set, _) = self.place(slot);
        self.blocks[slot as usize] = block;
        self.tags[slot as usize] = tag(block);
        self.checksums[slot as usize] = checksum;
        let is_pinned = is_dirty && self.is_pinned(block);
        let dirty = if is_dirty { DIRTY_BLOCK } else { 0 };
        self.flags[slot as usize] = VALID | dirty | if is_pinned { PINNED } else { 0 };
        self.valid += 1;
        if is_dirty {
            self.dirty += 1;
            self.dirty_of_set[set] += 1;
        }
    }

    /// Has a slot hold no block; it is not in the order of its set any more.
    fn empty(&mut self, slot: u32) {
        let (set, _) = self.place(slot);
        let flags = self.flags[slot as usize];
        self.trust(slot);
        self.valid -= 1;
        if flags & DIRTY_BLOCK != 0 {
            self.dirty -= 1;
            self.dirty_of_set[set] -= 1;
        }
        self.flags[slot as usize] = flags & NAMED;
        self.differs[table_block(slot)] = true;
        if flags & NAMED != 0 {
            self.pending.insert(number(table_block(slot)));
        }
    }

    fn has(&self, slot: u32, flag: u8) -> bool {
        self.flags[slot as usize] & flag != 0
    }

    /// Set and number within the set.
    fn place(&self, slot: u32) -> (usize, u16) {
        let ways = self.geometry.associativity;
        ((slot / ways) as usize, u16::try_from(slot % ways).expect("at most SLOTS_MAX"))
    }

    fn first_of(&self, set: u64) -> usize {
        usize::try_from(set * u64::from(self.geometry.associativity)).expect("fewer than slots")
    }
}

/// Block of the table that describes a slot.
fn table_block(slot: u32) -> usize {
    slot as usize / ENTRIES
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("slots are counted in 32 bits")
}

/// The finaliser of SplitMix64: neighbouring numbers have nothing in common. A part of the format.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Byte that tells a block from most others.
fn tag(block: u64) -> u8 {
    mixed(block).to_le_bytes()[7]
}

/// Number other than 0 that tells a block from most others.
fn fingerprint(block: u64) -> u32 {
    let [a, b, c, d, ..] = mixed(block).to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).max(1)
}
