//! A golden image whose tree blocks can be changed: each change keeps the checksum right, in all copies, so
//! that it is what the block says that is wrong.

use brindle_check::{CheckOptions, NoProgress, Report, check};
use brindle_device::Device;
use brindle_ondisk::{
    Item, ItemHeader, Key, KeyPtr, KeyType, Logical, Node, NodeExpectation, NodeHeader, Profile, RootId,
    SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64, to_usize,
};
use brindle_testing::golden::{Golden, SparseImage};
use brindle_volume::{ChunkStatus, OpenOptions, Volume, VolumeError};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Offset of the checksummed part of a tree block.
const CHECKSUM_BYTES: usize = 32;

/// A golden image that can be changed.
pub(crate) struct Pool {
    pub(crate) devices: Vec<SparseImage>,
    volume: Volume,
}

/// Location of an item.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) leaf: Logical,
    pub(crate) slot: usize,
    pub(crate) key: Key,
    pub(crate) data: Vec<u8>,
}

impl Pool {
    pub(crate) fn load(name: &str) -> Self {
        let devices = Golden::load(name).devices;
        let volume = Volume::open(shared(&devices), &OpenOptions::default()).expect("the pool opens");
        let pool = Self { devices, volume };
        for place in pool.items(RootId::CHUNK_TREE) {
            match Item::parse(&place.key, &place.data) {
                Ok(Item::Chunk(chunk)) => {
                    let start = Logical::new(place.key.offset());
                    pool.volume.add_chunk(start, &chunk).expect("a chunk of the kernel's");
                }
                Ok(Item::Device(device)) => pool.volume.add_device(device).expect("a device of the kernel's"),
                _ => {}
            }
        }
        pool
    }

    /// Examines what has become of it.
    pub(crate) fn check(&self, options: &CheckOptions) -> Report {
        check(shared(&self.devices), options, &NoProgress).expect("the pool opens")
    }

    /// Examines what has become of it, if it can be opened at all.
    pub(crate) fn try_check(&self, options: &CheckOptions) -> Result<Report, VolumeError> {
        check(shared(&self.devices), options, &NoProgress)
    }

    pub(crate) fn superblock(&self) -> Arc<Superblock> {
        self.volume.superblock()
    }

    /// The root block of a tree.
    pub(crate) fn root(&self, tree: RootId) -> Logical {
        self.find_root(tree).expect("the tree is there")
    }

    /// The root block of a tree, if there is one.
    pub(crate) fn find_root(&self, tree: RootId) -> Option<Logical> {
        match tree {
            RootId::ROOT_TREE => return Some(self.superblock().root),
            RootId::CHUNK_TREE => return Some(self.superblock().chunk_root),
            // That of all logs.
            RootId::TREE_LOG => return Some(self.superblock().log_root),
            _ => {}
        }
        let is_it = |place: &Place| {
            place.key.objectid == tree.object_id() && place.key.item_type == KeyType::ROOT_ITEM
        };
        let place = self.items(RootId::ROOT_TREE).into_iter().find(is_it)?;
        match Item::parse(&place.key, &place.data) {
            Ok(Item::Root(root)) => Some(root.bytenr),
            other => panic!("{other:?}"),
        }
    }

    /// Every item of a tree.
    pub(crate) fn items(&self, tree: RootId) -> Vec<Place> {
        let mut places = Vec::new();
        self.each_block(self.root(tree), &mut |leaf| {
            for slot in 0..leaf.items().len() {
                let (key, data) = leaf.item(slot).expect("the slot is there");
                places.push(Place { leaf: leaf.header().bytenr, slot, key, data: data.to_vec() });
            }
        });
        places
    }

    /// The first item that is not the first of its leaf, of a type, of which something holds.
    pub(crate) fn find(&self, tree: RootId, kind: KeyType, holds: impl Fn(&Place) -> bool) -> Place {
        let is_it = |place: &Place| place.slot > 0 && place.key.item_type == kind && holds(place);
        self.items(tree).into_iter().find(is_it).expect("the image has such an item")
    }

    /// Every block of a tree, parents first.
    pub(crate) fn each_block(&self, at: Logical, visit: &mut dyn FnMut(&Node)) {
        let node = self.read(at);
        visit(&node);
        for pointer in node.key_ptrs() {
            self.each_block(pointer.blockptr, visit);
        }
    }

    pub(crate) fn read(&self, at: Logical) -> Node {
        let context = self.volume.tree_context();
        let any = NodeExpectation { bytenr: at, generation: None, level: None, first_key: None };
        let mut bytes = vec![0; to_usize(context.nodesize.into())].into_boxed_slice();
        // Not through the volume, which has the image as it was.
        let (device, offset) = self.physical(at)[0];
        self.devices[device].read_at(offset, &mut bytes).expect("within the device");
        Node::check(bytes, context, &any).expect("a block that is read again is good")
    }

    /// The chunk that holds an address.
    pub(crate) fn chunk(&self, at: Logical) -> ChunkStatus {
        let holds =
            |chunk: &ChunkStatus| at.distance_from(chunk.start).is_some_and(|offset| offset < chunk.length);
        self.volume.chunks().into_iter().find(holds).expect("a chunk holds the address")
    }

    /// Every place where a logical range lies; of raid5, raid6 and profiles without stripes.
    pub(crate) fn physical(&self, at: Logical) -> Vec<(usize, u64)> {
        let chunk = self.chunk(at);
        if chunk.kind.profile().is_some_and(Profile::has_parity) {
            return vec![super::parity::data_place(self, at)];
        }
        let device = |devid| self.devices.iter().position(|device| device.devid() == devid);
        let stripes = chunk.stripes.iter();
        let place = |stripe: &brindle_volume::StripeStatus| {
            (
                device(stripe.devid.get()).expect("the device is there"),
                stripe.physical.get() + (at - chunk.start),
            )
        };
        stripes.map(place).collect()
    }

    /// Changes bytes at a logical address, in the first `copies` copies, and nothing else.
    pub(crate) fn edit_raw(&mut self, at: Logical, length: usize, copies: usize, edit: impl Fn(&mut [u8])) {
        for (device, offset) in self.physical(at).into_iter().take(copies) {
            let mut bytes = vec![0; length];
            self.devices[device].read_at(offset, &mut bytes).expect("within the device");
            edit(&mut bytes);
            self.devices[device].write_at(offset, &bytes).expect("within the device");
        }
    }

    /// Changes a tree block and makes its checksum right.
    pub(crate) fn edit_block(&mut self, at: Logical, edit: impl Fn(&mut [u8])) {
        let context = self.volume.tree_context().clone();
        self.edit_raw(at, to_usize(context.nodesize.into()), usize::MAX, |bytes| {
            edit(bytes);
            let checksum = context.checksum_type.compute(&bytes[CHECKSUM_BYTES..]);
            bytes[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
        });
    }

    /// Changes the data of an item.
    pub(crate) fn edit_item(&mut self, place: &Place, edit: impl Fn(&mut [u8])) {
        let slot = slot_offset::<ItemHeader>(place.slot);
        let length = place.data.len();
        self.edit_block(place.leaf, |block| {
            let header = ItemHeader::read_from_prefix(&block[slot..]).expect("the slot is there").0;
            let start = size_of::<NodeHeader>() + to_usize(header.offset.get().into());
            edit(&mut block[start..start + length]);
        });
    }

    /// Changes the key of an item.
    pub(crate) fn edit_key(&mut self, place: &Place, key: Key) {
        let slot = slot_offset::<ItemHeader>(place.slot);
        self.edit_block(place.leaf, |block| {
            block[slot..slot + size_of::<Key>()].copy_from_slice(key.as_bytes());
        });
    }

    /// Changes a pointer of a node.
    pub(crate) fn edit_pointer(&mut self, node: Logical, slot: usize, edit: impl Fn(&mut KeyPtr)) {
        let slot = slot_offset::<KeyPtr>(slot);
        self.edit_block(node, |block| {
            let mut pointer = KeyPtr::read_from_prefix(&block[slot..]).expect("the slot is there").0;
            edit(&mut pointer);
            block[slot..slot + size_of::<KeyPtr>()].copy_from_slice(pointer.as_bytes());
        });
    }

    /// Makes the items of a leaf others.
    pub(crate) fn edit_items(&mut self, leaf: Logical, edit: impl Fn(&mut Vec<(Key, Vec<u8>)>)) {
        let node = self.read(leaf);
        let item = |slot| node.item(slot).map(|(key, data)| (key, data.to_vec()));
        let mut items: Vec<(Key, Vec<u8>)> = (0..node.items().len()).filter_map(item).collect();
        edit(&mut items);
        items.sort_by_key(|(key, _)| *key);
        self.edit_block(leaf, |block| write_items(block, &items));
    }

    pub(crate) fn delete(&mut self, place: &Place) {
        assert!(place.slot > 0, "the parent knows the first key");
        self.edit_items(place.leaf, |items| items.retain(|(key, _)| *key != place.key));
    }

    pub(crate) fn insert(&mut self, leaf: Logical, key: Key, data: &[u8]) {
        self.edit_items(leaf, |items| items.push((key, data.to_vec())));
    }

    /// Changes copies of the superblock on all devices, and makes their checksums right.
    pub(crate) fn edit_superblock(&mut self, copies: std::ops::Range<usize>, edit: impl Fn(&mut Superblock)) {
        for device in 0..self.devices.len() {
            self.edit_superblock_of(device, copies.clone(), &edit);
        }
    }

    /// Changes copies of the superblock on one device, counted from 0, and makes their checksums right.
    pub(crate) fn edit_superblock_of(
        &mut self,
        device: usize,
        copies: std::ops::Range<usize>,
        edit: impl Fn(&mut Superblock),
    ) {
        let device = &mut self.devices[device];
        for offset in &SUPERBLOCK_OFFSETS[copies] {
            if offset + to_u64(SUPERBLOCK_SIZE) > device.size_bytes() {
                continue;
            }
            let mut superblock = Superblock::new_zeroed();
            device.read_at(*offset, superblock.as_mut_bytes()).expect("within the device");
            edit(&mut superblock);
            let checksum = superblock.compute_checksum(superblock.checksum_type());
            superblock.csum[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
            device.write_at(*offset, superblock.as_bytes()).expect("within the device");
        }
    }
}

/// Adds to a little-endian number of some bytes, wrapping.
pub(crate) fn add(data: &mut [u8], offset: usize, bytes: usize, more: u64) {
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(&data[offset..offset + bytes]);
    let sum = u64::from_le_bytes(number).wrapping_add(more).to_le_bytes();
    data[offset..offset + bytes].copy_from_slice(&sum[..bytes]);
}

fn shared(devices: &[SparseImage]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect()
}

fn slot_offset<T>(slot: usize) -> usize {
    size_of::<NodeHeader>() + slot * size_of::<T>()
}

fn write_items(block: &mut [u8], items: &[(Key, Vec<u8>)]) {
    let (header, body) = block.split_at_mut(size_of::<NodeHeader>());
    body.fill(0);
    let mut end = body.len();
    for (slot, (key, data)) in items.iter().enumerate() {
        let start = end - data.len();
        body[start..end].copy_from_slice(data);
        let number = |value: usize| u32::try_from(value).expect("within a block").into();
        let item = ItemHeader { key: *key, offset: number(start), size: number(data.len()) };
        let at = slot * size_of::<ItemHeader>();
        body[at..at + size_of::<ItemHeader>()].copy_from_slice(item.as_bytes());
        end = start;
    }
    let count = u32::try_from(items.len()).expect("within a block").to_le_bytes();
    let at = offset_of!(NodeHeader, nritems);
    header[at..at + count.len()].copy_from_slice(&count);
}
