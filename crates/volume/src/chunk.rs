//! The chunk map: which chunk holds a logical address.

use crate::layout::Layout;
use brindle_ondisk::{BlockGroupType, DevId, Logical, Physical, Uuid};
use std::sync::Arc;

/// A chunk whose stripes are resolved to devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) start: Logical,
    pub(crate) length: u64,
    pub(crate) kind: BlockGroupType,
    pub(crate) layout: Layout,
    pub(crate) stripes: Box<[ChunkStripe]>,
}

/// A chunk's piece of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkStripe {
    pub(crate) devid: DevId,
    pub(crate) uuid: Uuid,
    pub(crate) physical: Physical,
    /// Index of the device in the pool's table.
    pub(crate) device: usize,
}

impl Chunk {
    /// Offset of an address from the start, if the chunk holds it.
    pub(crate) fn offset_of(&self, logical: Logical) -> Option<u64> {
        logical.distance_from(self.start).filter(|offset| *offset < self.length)
    }

    /// Returns true if its bytes can be read as they are from several devices, which gives a reader a choice. Copies
    /// on one device are as good as each other.
    pub(crate) fn has_mirrors(&self) -> bool {
        let first = self.stripes.first().map(|stripe| stripe.device);
        self.layout.is_mirrored() && self.stripes.iter().any(|stripe| Some(stripe.device) != first)
    }

    pub(crate) fn stripe_length(&self) -> u64 {
        self.layout.stripe_length(self.length)
    }

    /// The last address; that after it may not exist.
    fn last(&self) -> u64 {
        self.start.get() + (self.length - 1)
    }
}

/// Chunks by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkMap {
    sorted: Vec<Arc<Chunk>>,
}

impl ChunkMap {
    /// The chunk that holds an address.
    pub(crate) fn find(&self, logical: Logical) -> Option<&Arc<Chunk>> {
        let after = self.sorted.partition_point(|chunk| chunk.start <= logical);
        let chunk = self.sorted.get(after.checked_sub(1)?)?;
        chunk.offset_of(logical).map(|_| chunk)
    }

    /// Adds a chunk, not empty and within the address space, or answers with the one that is in its way.
    pub(crate) fn insert(&mut self, chunk: Chunk) -> Result<(), Arc<Chunk>> {
        let place = self.sorted.partition_point(|other| other.start < chunk.start);
        let before = place.checked_sub(1).and_then(|index| self.sorted.get(index));
        if let Some(before) = before.filter(|before| before.last() >= chunk.start.get()) {
            return Err(Arc::clone(before));
        }
        if let Some(after) = self.sorted.get(place).filter(|after| after.start.get() <= chunk.last()) {
            return Err(Arc::clone(after));
        }
        self.sorted.insert(place, Arc::new(chunk));
        Ok(())
    }

    /// Takes away the chunk that begins there, if there is one.
    pub(crate) fn remove(&mut self, start: Logical) -> bool {
        let found = self.sorted.binary_search_by_key(&start, |chunk| chunk.start);
        found.map(|index| self.sorted.remove(index)).is_ok()
    }

    /// A device, by its index in the pool's table, has another id.
    pub(crate) fn renumber(&mut self, device: usize, devid: DevId) {
        for chunk in &mut self.sorted {
            if chunk.stripes.iter().any(|stripe| stripe.device == device) {
                let stripes = Arc::make_mut(chunk).stripes.iter_mut();
                stripes.filter(|stripe| stripe.device == device).for_each(|stripe| stripe.devid = devid);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.sorted.iter().map(Arc::as_ref)
    }
}
