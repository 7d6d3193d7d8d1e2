//! Dirty blocks of the table: those to be cleaned next, and those that are.

use super::{
    CLEANING, DIRTY_BLOCK, DISK_ASSOCIATIVITY, FALLOW, NAMED, PINNED, SlotTable, UNREADABLE, number,
    table_block,
};
use brindle_policy::cache::cleaning;
use std::collections::BTreeSet;

impl SlotTable {
    /// Dirty blocks that should be cleaned so that no set has more than `percent` of them, the oldest ones first, with
    /// their dirty neighbours; `most_of_set` of a set, about `most` of all.
    pub(crate) fn excess(&self, percent: u64, most_of_set: usize, most: usize) -> Vec<(u64, u32)> {
        let mut found = BTreeSet::new();
        for (set, dirty) in self.dirty_of_set.iter().enumerate() {
            let ways = u64::from(self.geometry.associativity);
            let excess = cleaning::excess((*dirty).into(), ways, percent);
            let Ok(excess) = usize::try_from(excess) else { continue };
            let first = self.first_of(set as u64);
            let slots = self.orders[set].oldest_first().map(|way| number(first + usize::from(way)));
            let oldest: Vec<u32> =
                slots.filter(|slot| self.can_be_cleaned(*slot)).take(excess.min(most_of_set)).collect();
            for slot in oldest {
                self.add_with_neighbours(slot, &mut found);
            }
            if found.len() >= most {
                break;
            }
        }
        found.into_iter().collect()
    }

    /// Dirty blocks that should be cleaned so that no more than `percent` of all slots are dirty, of the sets that have more
    /// than their share.
    pub(crate) fn excess_of_all(&self, percent: u64, most_of_set: usize, most: usize) -> Vec<(u64, u32)> {
        let excess = cleaning::excess(self.dirty, self.slots().into(), percent);
        match usize::try_from(excess) {
            Ok(0) => Vec::new(),
            excess => self.excess(percent, most_of_set, most.min(excess.unwrap_or(usize::MAX))),
        }
    }

    /// Some dirty blocks, about `most`, of the slots from one on; and the slot from which the search is to go on.
    pub(crate) fn dirty_from(&self, first: u32, most: usize) -> (Vec<(u64, u32)>, u32) {
        let mut found = Vec::new();
        for slot in first..self.slots() {
            if self.can_be_cleaned(slot) {
                found.push((self.blocks[slot as usize], slot));
            }
            if found.len() >= most {
                found.sort_unstable();
                return (found, slot + 1);
            }
        }
        found.sort_unstable();
        (found, self.slots())
    }

    /// Dirty blocks that were dirty already when this was last asked, and were not written since; about `most`, of the
    /// slots from one on, and the slot from which the search is to go on.
    pub(crate) fn fallow_from(&mut self, first: u32, most: usize) -> (Vec<(u64, u32)>, u32) {
        let mut found = Vec::new();
        for slot in first..self.slots() {
            if !self.can_be_cleaned(slot) {
                continue;
            }
            if self.has(slot, FALLOW) {
                found.push((self.blocks[slot as usize], slot));
            }
            self.flags[slot as usize] |= FALLOW;
            if found.len() >= most {
                found.sort_unstable();
                return (found, slot + 1);
            }
        }
        found.sort_unstable();
        (found, self.slots())
    }

    /// Takes note that a cleaner reads a slot, if that holds this block, dirty.
    pub(crate) fn begin_cleaning(&mut self, block: u64, slot: u32) -> bool {
        let is_still = self.can_be_cleaned(slot) && self.blocks[slot as usize] == block;
        if is_still {
            self.flags[slot as usize] |= CLEANING;
        }
        is_still
    }

    /// Takes note that the disk has, durably, what a cleaner read; unless the block was written since. True if it is clean.
    pub(crate) fn end_cleaning(&mut self, slot: u32, is_on_disk: bool) -> bool {
        let was_kept = self.has(slot, CLEANING);
        self.flags[slot as usize] &= !CLEANING;
        if !was_kept || !is_on_disk {
            return false;
        }
        let (set, _) = self.place(slot);
        self.dirty_of_set[set] -= 1;
        self.dirty -= 1;
        self.flags[slot as usize] &= !(DIRTY_BLOCK | FALLOW);
        self.differs[table_block(slot)] = true;
        if self.has(slot, NAMED) {
            self.pending.insert(number(table_block(slot)));
        }
        true
    }

    /// Takes note that a dirty block can't be read: it is not cleaned, but may be overwritten.
    pub(crate) fn note_unreadable(&mut self, slot: u32) {
        self.flags[slot as usize] |= UNREADABLE;
        self.flags[slot as usize] &= !CLEANING;
    }

    /// Number of dirty blocks that could not be read.
    pub(crate) fn unreadable(&self) -> u64 {
        let is_unreadable = |flags: &&u8| **flags & (DIRTY_BLOCK | UNREADABLE) == DIRTY_BLOCK | UNREADABLE;
        self.flags.iter().filter(is_unreadable).count() as u64
    }

    /// Has dirty blocks that could not be read be cleaned like others: the flash may work again.
    pub(crate) fn retry_unreadable(&mut self) {
        self.flags.iter_mut().for_each(|flags| *flags &= !UNREADABLE);
    }

    fn add_with_neighbours(&self, slot: u32, found: &mut BTreeSet<(u64, u32)>) {
        let block = self.blocks[slot as usize];
        let is_dirty =
            |block: u64| self.find(block).filter(|slot| self.can_be_cleaned(*slot)).map(|slot| (block, slot));
        let first = block / DISK_ASSOCIATIVITY * DISK_ASSOCIATIVITY;
        found.insert((block, slot));
        found.extend((block + 1..first + DISK_ASSOCIATIVITY).map_while(is_dirty));
        found.extend((first..block).rev().map_while(is_dirty));
    }

    fn can_be_cleaned(&self, slot: u32) -> bool {
        self.flags[slot as usize] & (DIRTY_BLOCK | CLEANING | UNREADABLE | PINNED) == DIRTY_BLOCK
    }
}
