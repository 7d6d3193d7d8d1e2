//! Damage told by bytes, so that a fuzzer or a random test can think it up: any bytes are a script. What the
//! script does is aimed at what lies behind the checksums: they, and on wish what a parent says of its child,
//! are right again after each step.

use super::block::{self, LeafItem, header, pointers_mut, slots_mut};
use super::{TreeBlock, Victim};
use brindle_ondisk::item::RootItem;
use brindle_ondisk::{ItemHeader, Key, KeyType, Logical, NodeHeader, ObjectId, RootId, to_u64, to_usize};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Longer scripts end here.
const STEPS_MAX: usize = 24;

/// Rest of a script.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number<const BYTES: usize>(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<BYTES>()?;
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..BYTES].copy_from_slice(head);
        Some(u64::from_le_bytes(bytes))
    }

    /// A number below `count`.
    fn below(&mut self, count: usize) -> Option<usize> {
        let number = self.number::<2>()?;
        to_usize(number).checked_rem(count)
    }

    /// Overwrites 1 to 8 bytes somewhere.
    fn overwrite(&mut self, bytes: &mut [u8]) -> Option<()> {
        let at = self.below(bytes.len())?;
        let width = usize::from(self.byte()? % 8) + 1;
        let value = self.number::<8>()?.to_le_bytes();
        bytes[at..].iter_mut().zip(&value[..width]).for_each(|(target, source)| *target = *source);
        Some(())
    }
}

impl Victim {
    /// Does what a script says.
    pub fn run_script(&mut self, script: &[u8]) {
        let mut script = Script(script);
        for _ in 0..STEPS_MAX {
            if self.step(&mut script).is_none() {
                return;
            }
        }
    }

    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        match script.byte()? % 12 {
            0 => self.script_superblock(script),
            1 => self.script_bytes(script),
            2 => self.script_pointer(script),
            3 => self.script_key(script),
            4 => self.script_slot(script),
            5 => self.script_items(script),
            6 => self.script_data(script),
            7 => self.script_root(script),
            8 => self.script_header(script),
            // What lies in items is most of the format.
            _ => self.script_item(script),
        }
    }

    fn script_superblock(&mut self, script: &mut Script<'_>) -> Option<()> {
        let rest = script.0;
        self.edit_superblocks(|superblock| {
            // The same on every copy, but not where it lies and what it is.
            let bytenr = superblock.bytenr;
            let _ = Script(rest).overwrite(superblock.as_mut_bytes());
            superblock.bytenr = bytenr;
        });
        script.overwrite(&mut [0])
    }

    fn script_bytes(&mut self, script: &mut Script<'_>) -> Option<()> {
        let at = self.any_block(script, |_| true)?.at;
        self.try_edit(at, |bytes| script.overwrite(&mut bytes[size_of::<NodeHeader>()..]))
    }

    fn script_header(&mut self, script: &mut Script<'_>) -> Option<()> {
        let at = self.any_block(script, |_| true)?.at;
        self.try_edit(at, |bytes| script.overwrite(&mut bytes[32..size_of::<NodeHeader>()]))
    }

    /// Lets a pointer point to another block; on wish with all that it should say of that block.
    fn script_pointer(&mut self, script: &mut Script<'_>) -> Option<()> {
        let node = self.any_block(script, |block| block.level > 0)?.at;
        let target = self.any_block(script, |_| true)?.at;
        let (slot, what) = (script.number::<2>()?, script.byte()?);
        let child = self.block(target);
        let generation = header(&child).generation;
        let first_key = first_key(&child);
        self.try_edit(node, |bytes| {
            let pointers = pointers_mut(bytes);
            let slot = to_usize(slot).checked_rem(pointers.len())?;
            let pointer = pointers.get_mut(slot)?;
            pointer.blockptr = target;
            if what & 1 != 0 {
                pointer.generation = generation;
            }
            if what & 2 != 0 {
                pointer.key = first_key.unwrap_or(pointer.key);
            }
            Some(())
        })
    }

    /// Changes a key; the first of a block on wish in its parent too.
    fn script_key(&mut self, script: &mut Script<'_>) -> Option<()> {
        let block = self.any_block(script, |_| true)?;
        let (slot, tell) = (script.number::<2>()?, script.byte()?);
        let before = first_key(&self.block(block.at));
        self.try_edit(block.at, |bytes| {
            let mut edit = |key: &mut Key| script.overwrite(key.as_mut_bytes());
            if header(bytes).level == 0 {
                let slots = slots_mut(bytes);
                let slot = to_usize(slot).checked_rem(slots.len())?;
                edit(&mut slots.get_mut(slot)?.key)
            } else {
                let pointers = pointers_mut(bytes);
                let slot = to_usize(slot).checked_rem(pointers.len())?;
                edit(&mut pointers.get_mut(slot)?.key)
            }
        })?;
        let after = first_key(&self.block(block.at));
        if let (Some(parent), Some(before), Some(after), true) = (block.parent, before, after, tell & 1 != 0)
        {
            self.try_edit(parent, |bytes| {
                let pointers = pointers_mut(bytes).iter_mut();
                pointers.filter(|pointer| pointer.key == before).for_each(|pointer| pointer.key = after);
                Some(())
            })?;
        }
        Some(())
    }

    fn script_slot(&mut self, script: &mut Script<'_>) -> Option<()> {
        let at = self.any_block(script, |block| block.level == 0)?.at;
        self.try_edit(at, |bytes| {
            let slots = slots_mut(bytes);
            let slot = script.below(slots.len())?;
            script.overwrite(&mut slots.get_mut(slot)?.as_mut_bytes()[size_of::<Key>()..])
        })
    }

    /// Takes an item out, doubles one, brings one from elsewhere, or gives one another length.
    fn script_items(&mut self, script: &mut Script<'_>) -> Option<()> {
        let at = self.any_block(script, |block| block.level == 0)?.at;
        let other = self.any_block(script, |block| block.level == 0)?.at;
        let (what, from, to) = (script.byte()?, script.number::<2>()?, script.number::<2>()?);
        let mut items = self.leaf_items(at);
        let others = self.leaf_items(other);
        let to = to_usize(to).checked_rem(items.len())?;
        match what % 4 {
            0 => drop(items.remove(to)),
            1 => {
                let mut item = items.get(to)?.clone();
                item.key = item.key.successor()?;
                items.insert(to + 1, item);
            }
            2 => {
                let from = to_usize(from).checked_rem(others.len())?;
                items.push(others.get(from)?.clone());
                items.sort_by_key(|item| item.key);
            }
            _ => items.get_mut(to)?.data.resize(to_usize(from) % 4096, 0xff),
        }
        self.try_edit(at, |bytes| {
            trim(&mut items, bytes.len());
            block::set_items(bytes, &items);
            Some(())
        })
    }

    /// Changes data, and its checksum with it.
    fn script_data(&mut self, script: &mut Script<'_>) -> Option<()> {
        let leaf = self.any_block(script, |block| block.tree == RootId::CSUM_TREE && block.level == 0)?.at;
        let (slot, index) = (script.number::<2>()?, script.number::<2>()?);
        let items = self.leaf_items(leaf);
        let slot = to_usize(slot).checked_rem(items.len())?;
        let LeafItem { key, data } = items.get(slot)?;
        let (algorithm, sectorsize) =
            (self.superblock.checksum_type(), u64::from(self.superblock.sectorsize.get()));
        let index = to_usize(index).checked_rem(data.len() / algorithm.size())?;
        let sector = Logical::new(key.offset()).checked_add(to_u64(index) * sectorsize)?;
        let is_data = (key.objectid, key.item_type) == (ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM);
        if !is_data || !self.holds(sector, sectorsize) {
            return Some(());
        }
        let mut bytes = self.read(sector, to_usize(sectorsize));
        script.overwrite(&mut bytes)?;
        self.write(sector, &bytes);
        let sum = algorithm.compute(&bytes);
        self.try_edit(leaf, |bytes| {
            let slot = slots_mut(bytes).get(slot)?;
            let start =
                size_of::<NodeHeader>() + to_usize(slot.offset.get().into()) + index * algorithm.size();
            bytes.get_mut(start..start + algorithm.size())?.copy_from_slice(sum.as_bytes());
            Some(())
        })
    }

    /// Lets a root item name another block as the root, with all that it should say of that block.
    fn script_root(&mut self, script: &mut Script<'_>) -> Option<()> {
        let leaf = self.any_block(script, |block| block.tree == RootId::ROOT_TREE && block.level == 0)?.at;
        let target = self.any_block(script, |_| true)?.at;
        let which = script.number::<2>()?;
        let child = self.block(target);
        let mut items = self.leaf_items(leaf);
        let is_root = |item: &&mut LeafItem| {
            item.key.item_type == KeyType::ROOT_ITEM && item.data.len() == size_of::<RootItem>()
        };
        let count = items.iter_mut().filter(is_root).count();
        let item = items.iter_mut().filter(is_root).nth(to_usize(which).checked_rem(count)?)?;
        let mut root = RootItem::new_zeroed();
        root.as_mut_bytes().copy_from_slice(&item.data);
        root.bytenr = target;
        root.level = header(&child).level;
        root.generation = header(&child).generation;
        root.generation_v2 = root.generation;
        item.data.copy_from_slice(root.as_bytes());
        self.try_edit(leaf, |bytes| {
            trim(&mut items, bytes.len());
            block::set_items(bytes, &items);
            Some(())
        })
    }

    fn script_item(&mut self, script: &mut Script<'_>) -> Option<()> {
        let at = self.any_block(script, |block| block.level == 0)?.at;
        self.try_edit(at, |bytes| {
            let slots = slots_mut(bytes);
            let slot = script.below(slots.len())?;
            let ItemHeader { offset, size, .. } = *slots.get(slot)?;
            let start = size_of::<NodeHeader>() + to_usize(offset.get().into());
            let data = bytes.get_mut(start..start + to_usize(size.get().into()))?;
            script.overwrite(data)
        })
    }

    /// Edits a block, gives it its right checksum, and counts the step as done whatever came of it.
    fn try_edit(&mut self, at: Logical, edit: impl FnOnce(&mut [u8]) -> Option<()>) -> Option<()> {
        self.edit_block(at, |bytes| {
            let _ = edit(bytes);
        });
        Some(())
    }

    /// A block of the healthy pool that can be damaged on every copy.
    fn any_block(
        &self,
        script: &mut Script<'_>,
        is_wanted: impl Fn(&TreeBlock) -> bool,
    ) -> Option<TreeBlock> {
        let is_usable = |block: &&TreeBlock| is_wanted(block) && !self.chunk(block.at).has_parity();
        let count = self.blocks.iter().filter(is_usable).count();
        let number = script.below(count)?;
        self.blocks.iter().filter(is_usable).nth(number).copied()
    }

    fn holds(&self, logical: Logical, length: u64) -> bool {
        let ends = [Some(logical), logical.checked_add(length - 1)];
        ends.into_iter().all(|end| end.is_some_and(|end| self.chunks.iter().any(|chunk| chunk.holds(end))))
    }
}

fn first_key(block: &[u8]) -> Option<Key> {
    Key::read_from_prefix(block.get(size_of::<NodeHeader>()..)?).ok().map(|(key, _)| key)
}

/// Leaves out what does not fit a leaf.
fn trim(items: &mut Vec<LeafItem>, nodesize: usize) {
    let mut room = nodesize - size_of::<NodeHeader>();
    items.retain(|item| {
        let left = room.checked_sub(item.data.len() + size_of::<ItemHeader>());
        room = left.unwrap_or(room);
        left.is_some()
    });
}
