//! Changing a block in memory.
//!
//! A leaf is filled from both ends, as the kernel fills it: the slots grow from the header, the data from the end
//! of the block, item by item and without gaps, so that the data of the last item lies lowest. What lies between
//! is free, and zero once the block is sealed. Offsets of data count from the end of the header.
//!
//! The caller keeps keys in order and checks the free space before; an impossible edit is a bug there, and panics.

use super::{ItemHeader, KeyPtr, Node, NodeHeader};
use crate::{Generation, Key, Logical, RootId, TreeContext, to_usize};
use std::ops::Range;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const HEADER: usize = size_of::<NodeHeader>();
const ITEM: usize = size_of::<ItemHeader>();
const POINTER: usize = size_of::<KeyPtr>();

impl Node {
    /// A block with nothing in it: identity, owner, generation, address and level are those of `header`.
    pub fn empty(nodesize: u32, header: &NodeHeader) -> Self {
        let mut node = Self { bytes: vec![0; to_usize(nodesize.into())].into() };
        *node.header_mut() = NodeHeader {
            csum: [0; 32],
            flags: NodeHeader::MIXED_BACKREF.into(),
            nritems: 0.into(),
            ..*header
        };
        node
    }

    /// A copy that another transaction may change: of a tree, at an address, not written yet.
    pub fn copy(&self, at: Logical, owner: RootId, generation: Generation) -> Self {
        let mut node = self.clone();
        let header = node.header_mut();
        header.csum = [0; 32];
        header.flags = NodeHeader::MIXED_BACKREF.into();
        (header.bytenr, header.owner, header.generation) = (at, owner, generation);
        node
    }

    /// A copy at another place that takes the block's own in every tree that has it. It is marked as such, for its
    /// generation says no more that snapshots may share it.
    pub fn relocated(&self, at: Logical, generation: Generation) -> Self {
        let mut node = self.copy(at, self.header().owner, generation);
        node.header_mut().flags = (NodeHeader::MIXED_BACKREF | NodeHeader::FLAG_RELOC).into();
        node
    }

    /// Tells the block where it lies.
    pub fn set_address(&mut self, at: Logical) {
        self.header_mut().bytenr = at;
    }

    /// Bytes for slots and data, also the upper bound of one item.
    pub fn capacity(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER)
    }

    /// Bytes that an item takes of a leaf, its slot included.
    pub const fn item_space(data_length: usize) -> usize {
        ITEM + data_length
    }

    /// Bytes that a child takes of a node.
    pub const POINTER_SPACE: usize = POINTER;

    /// Bytes that the slots of a range take, data included.
    pub fn used_space(&self, slots: Range<usize>) -> usize {
        match self.is_leaf() {
            true => slots.len() * ITEM + (self.data_end(slots.start) - self.data_end(slots.end)),
            false => slots.len() * POINTER,
        }
    }

    /// Free bytes.
    pub fn free_space(&self) -> usize {
        self.capacity() - self.used_space(0..self.len())
    }

    /// Adds an item before a slot.
    pub fn insert_item(&mut self, slot: usize, key: &Key, data: &[u8]) {
        self.insert_items(slot, &[(*key, data)]);
    }

    /// Adds items before a slot.
    pub fn insert_items(&mut self, slot: usize, items: &[(Key, &[u8])]) {
        let bytes = items.iter().map(|(_, data)| data.len()).sum();
        let mut end = self.open_items(slot, items.len(), bytes);
        for (slot, (key, data)) in (slot..).zip(items) {
            let start = end - data.len();
            self.body_at(start..end).copy_from_slice(data);
            *self.slot_mut(slot) = ItemHeader { key: *key, offset: small(start), size: small(data.len()) };
            end = start;
        }
    }

    /// The data of an item, to be changed.
    pub fn item_data_mut(&mut self, slot: usize) -> &mut [u8] {
        let range = self.data_end(slot + 1)..self.data_end(slot);
        self.body_at(range)
    }

    /// Makes the data of an item shorter, or longer by zeros; what stays keeps its place from the beginning.
    pub fn resize_item(&mut self, slot: usize, size: usize) {
        assert!(slot < self.items().len(), "{self:?} has no item {slot}");
        let (lowest, start, end) = (self.data_end(self.len()), self.data_end(slot + 1), self.data_end(slot));
        let old = end - start;
        if size <= old {
            self.body_mut().copy_within(lowest..start + size, lowest + (old - size));
            self.shift_offsets(slot, |offset| offset + (old - size));
        } else {
            let more = size - old;
            assert!(more <= self.free_space(), "{self:?} has no room for {more} bytes more in item {slot}");
            self.body_mut().copy_within(lowest..end, lowest - more);
            self.body_at(end - more..end).fill(0);
            self.shift_offsets(slot, |offset| offset - more);
        }
        self.slot_mut::<ItemHeader>(slot).size = small(size);
    }

    /// Adds children before a slot.
    pub fn insert_pointers(&mut self, slot: usize, pointers: &[KeyPtr]) {
        self.open_pointers(slot, pointers.len());
        self.body_at(slot * POINTER..(slot + pointers.len()) * POINTER).copy_from_slice(pointers.as_bytes());
    }

    /// A child, to be changed.
    pub fn pointer_mut(&mut self, slot: usize) -> &mut KeyPtr {
        assert!(slot < self.key_ptrs().len(), "{self:?} has no child {slot}");
        self.slot_mut(slot)
    }

    /// Gives an item or child another key.
    pub fn set_key(&mut self, slot: usize, key: &Key) {
        assert!(slot < self.len(), "{self:?} has no slot {slot}");
        match self.is_leaf() {
            true => self.slot_mut::<ItemHeader>(slot).key = *key,
            false => self.slot_mut::<KeyPtr>(slot).key = *key,
        }
    }

    /// Removes items or children.
    pub fn remove(&mut self, slots: Range<usize>) {
        let len = self.len();
        assert!(slots.start <= slots.end && slots.end <= len, "{self:?} has no slots {slots:?}");
        let size = if self.is_leaf() {
            let (lowest, start, end) =
                (self.data_end(len), self.data_end(slots.end), self.data_end(slots.start));
            self.body_mut().copy_within(lowest..start, lowest + (end - start));
            self.shift_offsets(slots.end, |offset| offset + (end - start));
            ITEM
        } else {
            POINTER
        };
        self.body_mut().copy_within(slots.end * size..len * size, slots.start * size);
        self.set_len(len - slots.len());
    }

    /// Moves items or children out of another block of the same level, before a slot of this one.
    pub fn take(&mut self, slot: usize, from: &mut Self, slots: Range<usize>) {
        assert_eq!(self.level(), from.level(), "{self:?} takes from its like, not from {from:?}");
        assert!(slots.start <= slots.end && slots.end <= from.len(), "{from:?} has no slots {slots:?}");
        let count = slots.len();
        if self.is_leaf() {
            let (start, end) = (from.data_end(slots.end), from.data_end(slots.start));
            let target = self.open_items(slot, count, end - start);
            self.body_at(target - (end - start)..target).copy_from_slice(from.body_at(start..end));
            let headers = from.body_at(slots.start * ITEM..slots.end * ITEM);
            self.body_at(slot * ITEM..(slot + count) * ITEM).copy_from_slice(headers);
            for item in self.slots_mut::<ItemHeader>().iter_mut().skip(slot).take(count) {
                item.offset = small(to_usize(item.offset.get().into()) + target - end);
            }
        } else {
            self.open_pointers(slot, count);
            let pointers = from.body_at(slots.start * POINTER..slots.end * POINTER);
            self.body_at(slot * POINTER..(slot + count) * POINTER).copy_from_slice(pointers);
        }
        from.remove(slots);
    }

    /// Makes the block ready to be written: marked so, free space cleared, checksum right.
    pub fn seal(&mut self, context: &TreeContext) {
        let header = self.header_mut();
        header.flags.set(header.flags.get() | NodeHeader::FLAG_WRITTEN);
        let len = self.len();
        let free = match self.is_leaf() {
            true => len * ITEM..self.data_end(len),
            false => len * POINTER..self.capacity(),
        };
        self.body_at(free).fill(0);
        let checksum = context.checksum_type.compute(self.bytes.get(32..).unwrap_or_default());
        let header = self.header_mut();
        header.csum = [0; 32];
        for (target, source) in header.csum.iter_mut().zip(checksum.as_bytes()) {
            *target = *source;
        }
    }

    /// Makes room for items before a slot; where the room for their data ends.
    fn open_items(&mut self, slot: usize, count: usize, bytes: usize) -> usize {
        let len = self.len();
        assert!(self.is_leaf() && slot <= len, "{self:?} takes no items at slot {slot}");
        let needed = count * ITEM + bytes;
        assert!(needed <= self.free_space(), "{self:?} has no room for {count} items of {bytes} bytes");
        let (lowest, end) = (self.data_end(len), self.data_end(slot));
        self.body_mut().copy_within(lowest..end, lowest - bytes);
        self.shift_offsets(slot, |offset| offset - bytes);
        self.body_mut().copy_within(slot * ITEM..len * ITEM, (slot + count) * ITEM);
        self.set_len(len + count);
        end
    }

    /// Makes room for children before a slot.
    fn open_pointers(&mut self, slot: usize, count: usize) {
        let len = self.len();
        assert!(!self.is_leaf() && slot <= len, "{self:?} takes no children at slot {slot}");
        assert!(count * POINTER <= self.free_space(), "{self:?} has no room for {count} children");
        self.body_mut().copy_within(slot * POINTER..len * POINTER, (slot + count) * POINTER);
        self.set_len(len + count);
    }

    /// End of the data of a slot, from the end of the header: the start of the data of the slot before, or the capacity.
    /// Of the slot after the last one: the start of all data.
    fn data_end(&self, slot: usize) -> usize {
        match slot.checked_sub(1) {
            None => self.capacity(),
            Some(before) => match self.items().get(before) {
                Some(item) => to_usize(item.offset.get().into()),
                None => panic!("{self:?} has no item {before}"),
            },
        }
    }

    fn shift_offsets(&mut self, from: usize, shifted: impl Fn(usize) -> usize) {
        for item in self.slots_mut::<ItemHeader>().iter_mut().skip(from) {
            item.offset = small(shifted(to_usize(item.offset.get().into())));
        }
    }

    fn header_mut(&mut self) -> &mut NodeHeader {
        match NodeHeader::mut_from_prefix(&mut self.bytes) {
            Ok((header, _)) => header,
            Err(_) => unreachable!("a node is longer than its header"),
        }
    }

    fn set_len(&mut self, len: usize) {
        self.header_mut().nritems = small(len);
    }

    fn body_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(HEADER..).unwrap_or_default()
    }

    fn body_at(&mut self, range: Range<usize>) -> &mut [u8] {
        self.body_mut().get_mut(range).expect("what the slots say lies within the block")
    }

    fn slots_mut<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> &mut [T] {
        let count = self.len();
        let slots = <[T]>::mut_from_prefix_with_elems(self.body_mut(), count);
        slots.map(|(slots, _)| slots).unwrap_or_default()
    }

    fn slot_mut<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned>(
        &mut self,
        slot: usize,
    ) -> &mut T {
        self.slots_mut().get_mut(slot).expect("the caller has looked whether the slot is there")
    }
}

fn small(value: usize) -> U32 {
    U32::new(u32::try_from(value).expect("a block is smaller than 4 GiB"))
}

#[cfg(test)]
mod tests;
