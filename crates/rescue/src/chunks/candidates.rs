//! Chunk and device items of blocks of the chunk tree, current and old.

use brindle_ondisk::item::{Chunk, ChunkHeader, DevItem, Stripe};
use brindle_ondisk::{
    BlockGroupType, DevId, Generation, Item, Logical, Node, NodeExpectation, NodeHeader, TreeContext, Uuid,
};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

/// A chunk item that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct OwnedChunk {
    pub(crate) header: ChunkHeader,
    pub(crate) stripes: Vec<Stripe>,
}

impl OwnedChunk {
    pub(crate) fn as_item(&self) -> Chunk<'_> {
        Chunk { header: &self.header, stripes: &self.stripes }
    }

    pub(crate) fn kind(&self) -> BlockGroupType {
        BlockGroupType::from_bits_retain(self.header.chunk_type.get())
    }

    /// The item's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.as_bytes().to_vec();
        bytes.extend_from_slice(self.stripes.as_bytes());
        bytes
    }

    /// Devices and offsets of the stripes, without regard to their order.
    pub(crate) fn places(&self) -> Vec<(DevId, u64)> {
        let mut places: Vec<_> =
            self.stripes.iter().map(|stripe| (stripe.devid, stripe.offset.get())).collect();
        places.sort_unstable();
        places
    }
}

/// Items, each with the highest generation of a block that has it.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// By address and contents.
    chunks: BTreeMap<(Logical, Vec<u8>), Generation>,
    /// By id and UUID.
    devices: BTreeMap<(DevId, Uuid), (Generation, DevItem)>,
    /// UUID of the chunk tree.
    pub(crate) chunk_tree_uuid: Option<Uuid>,
}

impl Candidates {
    /// Adds the items of a block of the chunk tree whose checksum is right.
    pub(crate) fn take(&mut self, block: &[u8], context: &TreeContext) {
        let Ok((header, _)) = NodeHeader::ref_from_prefix(block) else { return };
        let expected = NodeExpectation {
            bytenr: header.bytenr,
            generation: Some(header.generation),
            level: Some(header.level),
            first_key: None,
        };
        let Ok(node) = Node::check_unsummed(block.into(), context, &expected) else { return };
        self.chunk_tree_uuid.get_or_insert(header.chunk_tree_uuid);
        for (key, data) in (0..node.len()).filter_map(|slot| node.item(slot)) {
            match Item::parse(&key, data) {
                Ok(Item::Chunk(_)) => {
                    self.add_chunk(Logical::new(key.offset()), data.to_vec(), node.generation());
                }
                Ok(Item::Device(item)) => self.add_device(*item, node.generation()),
                _ => {}
            }
        }
    }

    /// Adds a chunk item.
    pub(crate) fn add_chunk(&mut self, start: Logical, bytes: Vec<u8>, generation: Generation) {
        let newest = self.chunks.entry((start, bytes)).or_insert(generation);
        *newest = generation.max(*newest);
    }

    fn add_device(&mut self, item: DevItem, generation: Generation) {
        let newest = self.devices.entry((item.devid, item.uuid)).or_insert((generation, item));
        if generation >= newest.0 {
            *newest = (generation, item);
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for ((start, bytes), generation) in other.chunks {
            self.add_chunk(start, bytes, generation);
        }
        for (generation, item) in other.devices.into_values() {
            self.add_device(item, generation);
        }
        self.chunk_tree_uuid = self.chunk_tree_uuid.or(other.chunk_tree_uuid);
    }

    /// Chunk items of an address, the newest first.
    pub(crate) fn chunks_at(&self, start: Logical) -> Vec<(Generation, OwnedChunk)> {
        let all = self.chunks.range((start, Vec::new())..);
        let here = all.take_while(|((at, _), _)| *at == start);
        let owned = |((_, bytes), generation): (&(Logical, Vec<u8>), &Generation)| {
            let (header, rest) = ChunkHeader::read_from_prefix(bytes).ok()?;
            let stripes = <[Stripe]>::ref_from_bytes(rest).ok()?.to_vec();
            Some((*generation, OwnedChunk { header, stripes }))
        };
        let mut found: Vec<_> = here.filter_map(owned).collect();
        found.sort_by_key(|(generation, _)| std::cmp::Reverse(*generation));
        found
    }

    /// The newest item of a device.
    pub(crate) fn device(&self, devid: DevId) -> Option<&DevItem> {
        let all = self.devices.iter().filter(|((id, _), _)| *id == devid);
        all.max_by_key(|(_, (generation, _))| *generation).map(|(_, (_, item))| item)
    }

    /// UUID that the newest chunk item gives a device.
    pub(crate) fn uuid_of(&self, devid: DevId) -> Option<Uuid> {
        if let Some(item) = self.device(devid) {
            return Some(item.uuid);
        }
        let named = self.chunks.iter().filter_map(|((_, bytes), generation)| {
            let stripes = bytes.get(size_of::<ChunkHeader>()..)?;
            let stripes = <[Stripe]>::ref_from_bytes(stripes).ok()?;
            let stripe = stripes.iter().find(|stripe| stripe.devid == devid)?;
            Some((*generation, stripe.dev_uuid))
        });
        named.max_by_key(|(generation, _)| *generation).map(|(_, uuid)| uuid)
    }
}
