//! The order of stripes, by what lies on them.
//!
//! A *group* is a set of numbers that stripes may exchange: one number, or the two of a mirror of RAID10. Each block or sector that is
//! found on one device extent alone, where only one group can have it, is a vote. Votes for two groups prove nothing.

use super::blocks::Blocks;
use super::candidates::OwnedChunk;
use super::evidence::Evidence;
use super::scan::Sighting;
use brindle_ondisk::item::Stripe;
use brindle_ondisk::{
    BlockGroupType, Generation, Item, Key, KeyType, Logical, ObjectId, Profile, to_u64, to_usize,
};
use brindle_volume::{parity_stripes, stripe_places, syndromes};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Votes of data after which a stripe is known.
const VOTES_ENOUGH: u32 = 4;
/// Sectors that are compared for a chunk.
const SECTORS_MAX: usize = 1 << 14;
/// Bytes that the data of one item of checksums has at the most.
const CHECKSUM_ITEM_BYTES: u64 = 64 << 20;
/// Bytes on one stripe before the next one's turn.
const STRIP_BYTES: u64 = 64 << 10;

/// Votes on the group of each device extent.
#[derive(Clone, Debug)]
pub(crate) struct Votes {
    /// By number of the device extent and by group.
    counts: Vec<Vec<u32>>,
    /// Offsets in the chunk of what gave votes.
    offsets: Vec<u64>,
}

impl Votes {
    fn add(&mut self, extent: usize, group: usize) {
        if let Some(count) = self.counts.get_mut(extent).and_then(|groups| groups.get_mut(group)) {
            *count += 1;
        }
    }

    /// The group of a device extent, if there are votes for one alone; an error if there are for several.
    fn of(&self, extent: usize) -> Result<Option<usize>, ()> {
        let mut groups = self.counts[extent].iter().enumerate().filter(|(_, count)| **count > 0);
        match (groups.next(), groups.next()) {
            (None, _) => Ok(None),
            (Some((group, _)), None) => Ok(Some(group)),
            (Some(_), Some(_)) => Err(()),
        }
    }

    /// The only device extent of a group.
    fn extent_of(&self, group: usize) -> Option<usize> {
        let mut extents = (0..self.counts.len()).filter(|extent| self.of(*extent) == Ok(Some(group)));
        extents.next().filter(|_| extents.next().is_none())
    }

    /// Returns true if there are votes for each device extent.
    fn are_for_all(&self) -> bool {
        self.counts.iter().all(|groups| groups.iter().any(|count| *count > 0))
    }

    pub(crate) fn are_none(&self) -> bool {
        self.counts.iter().flatten().all(|count| *count == 0)
    }

    fn are_enough(&self) -> bool {
        self.counts.iter().all(|groups| groups.iter().any(|count| *count >= VOTES_ENOUGH))
    }

    /// Returns true if an item has a stripe in another group than contents say. Stripes of `chunk` are in the order of the votes.
    pub(crate) fn contradict(&self, chunk: &OwnedChunk, item: &OwnedChunk) -> bool {
        let width = group_width(chunk);
        (0..self.counts.len()).any(|extent| {
            let stripe = &chunk.stripes[extent];
            let is_it = |other: &Stripe| (other.devid, other.offset) == (stripe.devid, stripe.offset);
            let group = item.stripes.iter().position(is_it).map(|position| position / width);
            match self.of(extent) {
                Ok(None) => false,
                Ok(voted) => voted != group,
                Err(()) => true,
            }
        })
    }
}

/// Stripes that mirror each other.
fn group_width(chunk: &OwnedChunk) -> usize {
    match chunk.kind().profile() {
        Some(Profile::Raid10) => 2,
        _ => 1,
    }
}

/// The question for the order of one chunk's stripes.
pub(crate) struct Order<'a> {
    pub(crate) evidence: &'a Evidence<'a>,
    pub(crate) start: Logical,
    /// The chunk, with its stripes in any order.
    pub(crate) chunk: &'a OwnedChunk,
}

impl Order<'_> {
    fn groups(&self) -> usize {
        self.chunk.stripes.len() / group_width(self.chunk)
    }

    /// Group and offset in the stripe of an offset.
    fn place_of(&self, offset: u64) -> Option<(usize, u64)> {
        let places = stripe_places(&self.chunk.as_item(), offset).ok()?;
        Some((places.stripes.first()? / group_width(self.chunk), places.stripe_offset))
    }

    /// Votes of the last commit's tree blocks that the scan has seen. An old one might be what is left of parity.
    pub(crate) fn votes_of_blocks(&self, blocks: &Blocks<'_>) -> Votes {
        let counts = vec![vec![0; self.groups()]; self.chunk.stripes.len()];
        let mut votes = Votes { counts, offsets: Vec::new() };
        if !self.chunk.kind().intersects(BlockGroupType::METADATA | BlockGroupType::SYSTEM) {
            return votes;
        }
        let live = self.live_blocks(blocks);
        let sightings = self.evidence.scan.within(self.start, self.chunk.header.length.get());
        let is_live = |sighting: &&Sighting| live.contains(&(sighting.bytenr, sighting.generation));
        let mut seen = BTreeSet::new();
        for sighting in sightings.iter().filter(is_live) {
            let offset = sighting.bytenr.get() - self.start.get();
            let Some((group, stripe_offset)) = self.place_of(offset) else { continue };
            let lies_there = self.chunk.stripes.iter().any(|stripe| {
                self.evidence.members.number_of(stripe.devid) == Some(sighting.device)
                    && sighting.physical.checked_sub(stripe.offset.get()) == Some(stripe_offset)
            });
            if lies_there && seen.insert(sighting.bytenr) {
                let found = self.with_contents_of(sighting, stripe_offset);
                self.count(found, group, (offset, stripe_offset), &mut votes);
            }
            if votes.are_enough() {
                break;
            }
        }
        votes
    }

    /// Device extents that have what was seen, at the same offset.
    fn with_contents_of(&self, sighting: &Sighting, stripe_offset: u64) -> Vec<usize> {
        let mut expected = vec![0; to_usize(self.evidence.context.sectorsize.into())];
        if self.evidence.members.devices[sighting.device].read_at(sighting.physical, &mut expected).is_err() {
            return Vec::new();
        }
        self.with_sector(&expected, stripe_offset)
    }

    /// Device extents that have a sector at an offset.
    fn with_sector(&self, expected: &[u8], stripe_offset: u64) -> Vec<usize> {
        let has_it =
            |stripe: &Stripe| self.sector_at(stripe, stripe_offset).is_some_and(|bytes| bytes == expected);
        let stripes = self.chunk.stripes.iter().enumerate();
        stripes.filter(|(_, stripe)| has_it(stripe)).map(|(number, _)| number).collect()
    }

    /// Addresses and generations of the tree blocks that the chunk has, by the extent tree.
    fn live_blocks(&self, blocks: &Blocks<'_>) -> BTreeSet<(Logical, Generation)> {
        let mut live = BTreeSet::new();
        let mut take = |key: &Key, data: &[u8]| {
            if let Ok(Item::Extent(item)) = Item::parse(key, data) {
                live.insert((Logical::new(key.objectid.get()), item.header.generation));
            }
            true
        };
        let root = &self.evidence.facts.extent_tree;
        blocks.visit(root, &self.extent_keys(), &mut Vec::new(), &mut take);
        live
    }

    /// Keys of the extents that lie in the chunk.
    fn extent_keys(&self) -> RangeInclusive<Key> {
        let (start, length) = (self.start.get(), self.chunk.header.length.get());
        Key::new(ObjectId::new(start), KeyType(0), 0)
            ..=Key::last_of(ObjectId::new(start + (length - 1)), KeyType::METADATA_ITEM)
    }

    /// Counts votes of contents that were found on device extents.
    ///
    /// The same contents on more of them than mirror each other, such as zeros, say nothing. Parity of a row with one strip of data is a
    /// copy of that: both are found, unless a device is missing. Then the row must have more than one strip of data, or what was found
    /// might be the parity: more strips that are not zero than parity and one of data.
    fn count(&self, found: Vec<usize>, group: usize, (offset, stripe_offset): (u64, u64), votes: &mut Votes) {
        let parities = self.chunk.kind().profile().map_or(0, |profile| profile.attributes().nparity);
        if found.is_empty() || found.len() > group_width(self.chunk) {
            return;
        }
        if parities > 0 && !self.is_complete() {
            let is_zero = |stripe: &Stripe| {
                self.sector_at(stripe, stripe_offset).is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))
            };
            let filled = self.chunk.stripes.iter().filter(|stripe| !is_zero(stripe)).count();
            if filled <= usize::from(parities) {
                return;
            }
        }
        found.into_iter().for_each(|number| votes.add(number, group));
        votes.offsets.push(offset);
    }

    /// Returns true if every device is there.
    fn is_complete(&self) -> bool {
        let members = self.evidence.members;
        self.chunk.stripes.iter().all(|stripe| members.number_of(stripe.devid).is_some())
    }

    /// A sector of a stripe.
    fn sector_at(&self, stripe: &Stripe, stripe_offset: u64) -> Option<Vec<u8>> {
        let (members, context) = (self.evidence.members, self.evidence.context);
        let mut bytes = vec![0; to_usize(context.sectorsize.into())];
        let device = &members.devices[members.number_of(stripe.devid)?];
        device.read_at(stripe.offset.get().checked_add(stripe_offset)?, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Adds votes of data, by its checksums.
    pub(crate) fn add_votes_of_data(&self, blocks: &Blocks<'_>, votes: &mut Votes) {
        let Some(root) = &self.evidence.facts.checksum_tree else { return };
        let (sector, length) = (u64::from(self.evidence.context.sectorsize), self.chunk.header.length.get());
        let size = self.evidence.context.checksum_type.size();
        let key = |offset| Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, offset);
        let start = self.start.get();
        let range = key(start.saturating_sub(CHECKSUM_ITEM_BYTES))..=key(start + (length - 1));
        let mut compared = 0;
        blocks.visit(root, &range, &mut Vec::new(), &mut |key, data| {
            let Ok(Item::Csums(sums)) = Item::parse(key, data) else { return true };
            let mut strip = None;
            for (number, sum) in sums.chunks_exact(size).enumerate() {
                let Some(offset) = (key.offset() + to_u64(number) * sector).checked_sub(start) else {
                    continue;
                };
                // One sector of each strip.
                if offset >= length || strip == Some(offset / STRIP_BYTES) {
                    continue;
                }
                strip = Some(offset / STRIP_BYTES);
                self.compare(offset, sum, votes);
                compared += 1;
            }
            compared < SECTORS_MAX && !votes.are_enough()
        });
    }

    /// Looks for the device extents that have a sector.
    fn compare(&self, offset: u64, sum: &[u8], votes: &mut Votes) {
        let Some((group, stripe_offset)) = self.place_of(offset) else { return };
        let algorithm = self.evidence.context.checksum_type;
        let has_it = |stripe: &Stripe| {
            self.sector_at(stripe, stripe_offset).is_some_and(|bytes| algorithm.matches(&bytes, sum))
        };
        let stripes = self.chunk.stripes.iter().enumerate();
        let found = stripes.filter(|(_, stripe)| has_it(stripe)).map(|(number, _)| number).collect();
        self.count(found, group, (offset, stripe_offset), votes);
    }

    /// Adds votes of P and Q of RAID6. P alone does not tell data from parity.
    pub(crate) fn add_votes_of_parity(&self, votes: &mut Votes) {
        if self.chunk.kind().profile() != Some(Profile::Raid6) || !self.is_complete() {
            return;
        }
        for offset in std::mem::take(&mut votes.offsets) {
            if votes.are_for_all() {
                break;
            }
            self.compare_parity(offset, votes);
        }
    }

    /// Looks for P and Q of a sector that gave a vote: they were written with it. All data of the row must be known, and each of both must
    /// be found once.
    fn compare_parity(&self, offset: u64, votes: &mut Votes) {
        let Ok(Some(row)) = parity_stripes(&self.chunk.as_item(), offset) else { return };
        let Some((_, stripe_offset)) = self.place_of(offset) else { return };
        let column = |group: &usize| {
            let extent = votes.extent_of(*group)?;
            self.sector_at(&self.chunk.stripes[extent], stripe_offset)
        };
        let Some(columns) = row.data.iter().map(column).collect::<Option<Vec<_>>>() else { return };
        let columns: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
        let (p, q) = syndromes(&columns);
        let found = [self.with_sector(&p, stripe_offset), self.with_sector(&q, stripe_offset)];
        if p != q && found.iter().all(|extents| extents.len() == 1) {
            for (extent, group) in found.into_iter().flatten().zip(row.parity) {
                votes.add(extent, group);
            }
        }
    }

    /// The number of the device extent of each stripe.
    pub(crate) fn settle(&self, blocks: &Blocks<'_>, votes: &Votes) -> Result<Vec<usize>, String> {
        let width = group_width(self.chunk);
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.groups()];
        let mut left = Vec::new();
        for extent in 0..self.chunk.stripes.len() {
            match votes.of(extent) {
                Ok(Some(group)) => groups[group].push(extent),
                Ok(None) => left.push(extent),
                Err(()) => {
                    let devid = self.chunk.stripes[extent].devid;
                    return Err(format!("contents of devid {devid} belong to several of its stripes"));
                }
            }
        }
        if groups.iter().any(|group| group.len() > width) {
            return Err("contents of several devices belong to one of its stripes".to_owned());
        }
        let open: Vec<usize> = (0..groups.len()).filter(|group| groups[*group].len() < width).collect();
        if open.len() > 1 {
            let used = self.used_groups(blocks);
            if let Some(group) = open.iter().find(|group| used.contains(group)) {
                let devids: Vec<String> =
                    left.iter().map(|extent| self.chunk.stripes[*extent].devid.to_string()).collect();
                return Err(format!(
                    "nothing tells which of devid {} has stripe {}, on which extents lie",
                    devids.join(", "),
                    group * width
                ));
            }
        }
        for group in open {
            let lacks = width - groups[group].len();
            groups[group].extend(left.drain(..lacks.min(left.len())));
        }
        Ok(groups.into_iter().flatten().collect())
    }

    /// Groups on which extents lie.
    fn used_groups(&self, blocks: &Blocks<'_>) -> BTreeSet<usize> {
        let all = || (0..self.groups()).collect();
        if self.chunk.kind().profile().is_some_and(Profile::has_parity) {
            return all();
        }
        let (start, length) = (self.start.get(), self.chunk.header.length.get());
        let (mut used, mut lost) = (BTreeSet::new(), Vec::new());
        let nodesize = u64::from(self.evidence.context.nodesize);
        blocks.visit(&self.evidence.facts.extent_tree, &self.extent_keys(), &mut lost, &mut |key, _| {
            let bytes = match key.item_type {
                KeyType::EXTENT_ITEM => key.offset(),
                KeyType::METADATA_ITEM => nodesize,
                _ => return true,
            };
            let first = key.objectid.get() - start;
            let end = first.saturating_add(bytes).min(length);
            let mut at = first;
            while at < end && used.len() < self.groups() {
                used.extend(self.place_of(at).map(|(group, _)| group));
                at = (at / STRIP_BYTES + 1) * STRIP_BYTES;
            }
            used.len() < self.groups()
        });
        if lost.is_empty() { used } else { all() }
    }
}
