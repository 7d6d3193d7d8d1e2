//! The proof of a chunk, from its block group, its device extents, and evidence for the order of its stripes.

use super::blocks::Blocks;
use super::candidates::OwnedChunk;
use super::evidence::Evidence;
use super::gather::{BlockGroup, DeviceExtent};
use super::order::{Order, Votes};
use super::proved::{Proof, ProvedChunk};
use brindle_ondisk::item::{ChunkHeader, Stripe};
use brindle_ondisk::{BlockGroupType, Logical, Physical, Profile, RootId, Uuid};
use brindle_volume::device_extent_length;
use std::collections::BTreeMap;

/// Bytes on one stripe before the next one's turn (`BTRFS_STRIPE_LEN`).
const STRIP_BYTES: u32 = 64 << 10;

impl Evidence<'_> {
    /// Proves the chunk at an address.
    ///
    /// # Errors
    /// The reason for which it does not count.
    pub(crate) fn prove(
        &self,
        start: Logical,
        proved: &BTreeMap<Logical, ProvedChunk>,
    ) -> Result<ProvedChunk, String> {
        let (group, extents) = self.agreed(start)?;
        let chunk = self.assemble(group, extents);
        self.check_geometry(start, group, &chunk, extents)?;
        self.check_blocks(start, &chunk)?;
        let known = self.scan.candidates.chunks_at(start);
        let agreeing = known.into_iter().filter(|(_, item)| is_same(item, &chunk));
        let mut agreeing: Vec<_> =
            agreeing.map(|(generation, item)| (generation, self.with_uuids(item))).collect();
        if has_free_order(&chunk) {
            let chunk = agreeing.into_iter().next().map_or(chunk, |(_, item)| item);
            return Ok(ProvedChunk { chunk, proof: Proof::Profile });
        }
        let order = Order { evidence: self, start, chunk: &chunk };
        let blocks = Blocks::new(self.members, self.scan, self.context, proved);
        let votes = order.votes_of_blocks(&blocks);
        agreeing.retain(|(_, item)| !votes.contradict(&chunk, item));
        if let Some((generation, newest)) = agreeing.first() {
            let is_disputed =
                agreeing.iter().any(|(of, item)| of == generation && !is_same_order(item, newest));
            if !is_disputed {
                return Ok(ProvedChunk { chunk: newest.clone(), proof: Proof::Item(*generation) });
            }
        }
        if group.used == 0 {
            return Ok(ProvedChunk { chunk, proof: Proof::Empty });
        }
        if group.kind & BlockGroupType::CONTENT == BlockGroupType::SYSTEM && votes.are_none() {
            return Ok(ProvedChunk { chunk, proof: Proof::Anew });
        }
        self.by_contents(&order, votes, &blocks)
    }

    /// Sees whether tree blocks lie where the chunk has them. Blocks of the chunk's range that lie elsewhere are old ones, unless there are
    /// no others.
    fn check_blocks(&self, start: Logical, chunk: &OwnedChunk) -> Result<(), String> {
        if !chunk.kind().contains(BlockGroupType::METADATA) {
            return Ok(());
        }
        let sightings = self.scan.within(start, chunk.header.length.get());
        let is_on = |stripe: &Stripe, device, physical: u64| {
            let length = device_extent_length(&chunk.as_item()).unwrap_or(0);
            self.members.number_of(stripe.devid) == Some(device)
                && physical.checked_sub(stripe.offset.get()).is_some_and(|distance| distance < length)
        };
        let lies = |device, physical| chunk.stripes.iter().any(|stripe| is_on(stripe, device, physical));
        let is_right = sightings.iter().any(|sighting| lies(sighting.device, sighting.physical));
        let is_there = chunk.stripes.iter().any(|stripe| self.members.number_of(stripe.devid).is_some());
        match sightings.is_empty() || is_right || !is_there {
            true => Ok(()),
            false => Err("none of its tree blocks lies on its device extents".to_owned()),
        }
    }

    fn by_contents(
        &self,
        order: &Order<'_>,
        mut votes: Votes,
        blocks: &Blocks<'_>,
    ) -> Result<ProvedChunk, String> {
        if order.chunk.kind().contains(BlockGroupType::DATA) {
            order.add_votes_of_data(blocks, &mut votes);
        }
        order.add_votes_of_parity(&mut votes);
        let stripes = order.settle(blocks, &votes)?;
        let stripes = stripes.into_iter().map(|number| order.chunk.stripes[number]).collect();
        let chunk = OwnedChunk { header: order.chunk.header, stripes };
        Ok(ProvedChunk { chunk, proof: Proof::Contents })
    }

    /// The block group and the device extents of a chunk.
    fn agreed(&self, start: Logical) -> Result<(&BlockGroup, &[DeviceExtent]), String> {
        let group = self.facts.groups.get(&start).ok_or("it has no block group")?;
        let extents = self.facts.extents.get(&start).ok_or("it has no device extents")?;
        let end = start.checked_add(group.length).ok_or("it passes the end of the address space")?;
        let before = self.facts.groups.range(..start).next_back();
        if before.is_some_and(|(at, before)| at.get().saturating_add(before.length) > start.get())
            || self.facts.groups.range(start..end).nth(1).is_some()
        {
            return Err("its block group overlaps another".to_owned());
        }
        for extent in extents {
            let overlaps = |other: &DeviceExtent| {
                let (end, other_end) =
                    (extent.offset.saturating_add(extent.length), other.offset.saturating_add(other.length));
                other.devid == extent.devid && other.offset < end && extent.offset < other_end
            };
            let count = self.facts.extents.values().flatten().filter(|other| overlaps(other)).count();
            if count > 1 {
                let DeviceExtent { devid, offset, .. } = extent;
                return Err(format!("its device extent at {offset} of devid {devid} overlaps another"));
            }
        }
        Ok((group, extents))
    }

    /// A chunk of which the order of stripes is not settled.
    fn assemble(&self, group: &BlockGroup, extents: &[DeviceExtent]) -> OwnedChunk {
        let attributes = group.kind.profile().unwrap_or(Profile::Single).attributes();
        let header = ChunkHeader {
            length: group.length.into(),
            owner: RootId::EXTENT_TREE,
            stripe_len: u64::from(STRIP_BYTES).into(),
            chunk_type: group.kind.bits().into(),
            io_align: STRIP_BYTES.into(),
            io_width: STRIP_BYTES.into(),
            sector_size: self.context.sectorsize.into(),
            num_stripes: u16::try_from(extents.len()).unwrap_or(u16::MAX).into(),
            sub_stripes: attributes.sub_stripes.into(),
        };
        let stripe = |extent: &DeviceExtent| Stripe {
            devid: extent.devid,
            offset: Physical::new(extent.offset),
            dev_uuid: Uuid::NIL,
        };
        self.with_uuids(OwnedChunk { header, stripes: extents.iter().map(stripe).collect() })
    }

    /// The chunk with the UUIDs that devices have now.
    fn with_uuids(&self, mut chunk: OwnedChunk) -> OwnedChunk {
        for stripe in &mut chunk.stripes {
            let present = self.members.items().find(|(_, item)| item.devid == stripe.devid);
            let uuid =
                present.map(|(_, item)| item.uuid).or_else(|| self.scan.candidates.uuid_of(stripe.devid));
            stripe.dev_uuid = uuid.unwrap_or(stripe.dev_uuid);
        }
        chunk
    }

    /// Sees whether the profile of the block group asks for these device extents.
    fn check_geometry(
        &self,
        start: Logical,
        group: &BlockGroup,
        chunk: &OwnedChunk,
        extents: &[DeviceExtent],
    ) -> Result<(), String> {
        if group.kind.profile().is_none() || usize::from(chunk.header.num_stripes.get()) != extents.len() {
            return Err("its block group has no profile for its device extents".to_owned());
        }
        let expected = device_extent_length(&chunk.as_item()).map_err(|defect| defect.to_string())?;
        if let Some(other) = extents.iter().find(|extent| extent.length != expected) {
            let (found, devid) = (other.length, other.devid);
            return Err(format!(
                "its block group asks for device extents of {expected} bytes, that of devid {devid} has {found}"
            ));
        }
        for extent in extents {
            let Some(number) = self.members.number_of(extent.devid) else { continue };
            let size = self.members.devices[number].size_bytes();
            if extent.offset.checked_add(extent.length).is_none_or(|end| end > size) {
                return Err(format!("it ends behind the end of devid {}", extent.devid));
            }
        }
        let is_aligned = start.is_aligned(self.context.sectorsize.into());
        is_aligned.then_some(()).ok_or_else(|| "its address is not aligned".to_owned())
    }
}

/// Returns true if each order of the stripes gives the same bytes: mirrors, or one strip of data in a row.
fn has_free_order(chunk: &OwnedChunk) -> bool {
    let stripes = chunk.header.num_stripes.get();
    match chunk.kind().profile() {
        Some(Profile::Raid0) => stripes == 1,
        Some(Profile::Raid10) => stripes == 2,
        Some(profile @ (Profile::Raid5 | Profile::Raid6)) => stripes == profile.attributes().nparity + 1,
        _ => true,
    }
}

/// Returns true if a chunk item is one of the same range, profile and device extents.
fn is_same(item: &OwnedChunk, chunk: &OwnedChunk) -> bool {
    item.header.length == chunk.header.length
        && item.header.chunk_type == chunk.header.chunk_type
        && item.header.stripe_len == chunk.header.stripe_len
        && item.header.sub_stripes == chunk.header.sub_stripes
        && item.places() == chunk.places()
}

fn is_same_order(item: &OwnedChunk, other: &OwnedChunk) -> bool {
    let places = |chunk: &OwnedChunk| -> Vec<_> {
        chunk.stripes.iter().map(|stripe| (stripe.devid, stripe.offset)).collect()
    };
    places(item) == places(other)
}
