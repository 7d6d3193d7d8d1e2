//! Chunks: the checks without which no address could be trusted.

use super::ItemPlace;
use crate::item::Chunk;
use crate::{BlockGroupType, Defect, Item, Key, KeyType, ObjectId, Profile};

/// The one stripe length of the format, in bytes (`BTRFS_STRIPE_LEN`).
const STRIPE_LEN: u64 = 64 << 10;

/// A chunk of the chunk tree, or (with `system`) of the superblock.
pub(crate) fn check_chunk(key: &Key, chunk: &Chunk<'_>, sectorsize: u32, system: bool) -> Result<(), Defect> {
    if key.objectid != ObjectId::FIRST_CHUNK_TREE {
        return Err(Defect::new("objectid of chunk", key.objectid.get()));
    }
    let (start, length) = (key.offset(), chunk.header.length.get());
    let sectorsize = u64::from(sectorsize);
    if chunk.stripes.is_empty() {
        return Err(Defect::new("chunk has no stripes", 0));
    }
    if start % sectorsize != 0 {
        return Err(Defect::new("chunk begins between sectors", start));
    }
    if length == 0 || length % sectorsize != 0 {
        return Err(Defect::new("length of chunk", length));
    }
    if start.checked_add(length).is_none() {
        return Err(Defect::new("chunk passes the end of the logical space, its length", length));
    }
    if u64::from(chunk.header.sector_size.get()) != sectorsize {
        let found = chunk.header.sector_size.get().into();
        return Err(Defect::expected("sector_size of chunk", sectorsize, found));
    }
    if chunk.header.stripe_len.get() != STRIPE_LEN {
        return Err(Defect::expected("stripe_len of chunk", STRIPE_LEN, chunk.header.stripe_len.get()));
    }
    let kind = chunk.block_group_type();
    check_content(kind)?;
    if system && !kind.contains(BlockGroupType::SYSTEM) {
        return Err(Defect::new("chunk of the superblock is not a system chunk", kind.bits()));
    }
    check_geometry(chunk)
}

/// A chunk of the chunk tree.
pub(super) fn check_chunk_item(place: ItemPlace<'_>, key: &Key, chunk: &Chunk<'_>) -> Result<(), Defect> {
    check_chunk(key, chunk, place.context.sectorsize, false)?;
    let Some((previous, data)) = place.previous_of_type(KeyType::CHUNK_ITEM) else { return Ok(()) };
    let Item::Chunk(before) = Item::parse(&previous, data)? else { return Ok(()) };
    let end = previous.offset().saturating_add(before.header.length.get());
    if end > key.offset() {
        return Err(Defect::expected("chunk lies over the one before", end, key.offset()));
    }
    Ok(())
}

/// Checks the content bits of a chunk or block group.
pub(super) fn check_content(kind: BlockGroupType) -> Result<(), Defect> {
    let bits = kind.bits();
    if !kind.difference(BlockGroupType::all()).is_empty() {
        return Err(Defect::new("unknown bits in block group type", bits));
    }
    if !kind.intersects(BlockGroupType::CONTENT) {
        return Err(Defect::new("block group type says nothing of what it holds", bits));
    }
    let is_system = kind.contains(BlockGroupType::SYSTEM);
    if is_system && kind.intersects(BlockGroupType::DATA | BlockGroupType::METADATA) {
        return Err(Defect::new("system block group also holds something else", bits));
    }
    Ok(())
}

/// The one profile of a chunk or block group.
pub(super) fn check_profile(kind: BlockGroupType) -> Result<Profile, Defect> {
    kind.profile().ok_or_else(|| Defect::new("more than one profile in block group type", kind.bits()))
}

fn check_geometry(chunk: &Chunk<'_>) -> Result<(), Defect> {
    let profile = check_profile(chunk.block_group_type())?;
    let stripes = chunk.header.num_stripes.get();
    let sub_stripes = chunk.header.sub_stripes.get();
    let attributes = profile.attributes();
    let fixed = match profile {
        Profile::Single => Some(1),
        Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => Some(attributes.ncopies),
        Profile::Raid0 | Profile::Raid10 | Profile::Raid5 | Profile::Raid6 => None,
    };
    if let Some(expected) = fixed.filter(|expected| *expected != stripes) {
        return Err(Defect::expected("number of stripes of chunk", expected.into(), stripes.into()));
    }
    if stripes < attributes.devs_min {
        let least = attributes.devs_min.into();
        return Err(Defect::expected("too few stripes for the chunk's profile", least, stripes.into()));
    }
    if profile == Profile::Raid10 && (sub_stripes != 2 || stripes % 2 != 0) {
        return Err(Defect::new("stripes of raid10 chunk are not in pairs", stripes.into()));
    }
    // With its least number of stripes it has one for data.
    let data_stripes = u64::from((stripes / attributes.ncopies).saturating_sub(attributes.nparity));
    let length = chunk.header.length.get();
    if data_stripes == 0 || length % data_stripes != 0 {
        return Err(Defect::new("length of chunk is no multiple of its stripes", length));
    }
    check_stripes(chunk, length / data_stripes)
}

/// Checks the locations of a chunk's stripes on their devices.
fn check_stripes(chunk: &Chunk<'_>, length: u64) -> Result<(), Defect> {
    let sectorsize = chunk.header.sector_size.get().into();
    for stripe in chunk.stripes {
        if !stripe.offset.is_aligned(sectorsize) {
            return Err(Defect::new("stripe of chunk begins between sectors", stripe.offset.get()));
        }
        if stripe.offset.checked_add(length).is_none() {
            let found = stripe.offset.get();
            return Err(Defect::new("stripe of chunk passes the end of any device, its offset", found));
        }
    }
    Ok(())
}
