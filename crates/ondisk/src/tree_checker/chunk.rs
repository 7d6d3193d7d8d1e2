//! Chunks: the checks without which no address could be trusted.

use crate::item::Chunk;
use crate::{BlockGroupType, Defect, Key, Profile};

/// The one stripe length of the format, in bytes (`BTRFS_STRIPE_LEN`).
const STRIPE_LEN: u64 = 64 << 10;

/// A chunk of the chunk tree, or (with `system`) of the superblock.
pub(crate) fn check_chunk(key: &Key, chunk: &Chunk<'_>, sectorsize: u32, system: bool) -> Result<(), Defect> {
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
    check_type(chunk, system)?;
    check_geometry(chunk)
}

fn check_type(chunk: &Chunk<'_>, system: bool) -> Result<(), Defect> {
    let kind = chunk.block_group_type();
    let bits = kind.bits();
    if !kind.difference(BlockGroupType::all()).is_empty() {
        return Err(Defect::new("unknown bits in chunk type", bits));
    }
    if !kind.intersects(BlockGroupType::CONTENT) {
        return Err(Defect::new("chunk type says nothing of what it holds", bits));
    }
    let is_system = kind.contains(BlockGroupType::SYSTEM);
    if is_system && kind.intersects(BlockGroupType::DATA | BlockGroupType::METADATA) {
        return Err(Defect::new("system chunk also holds something else", bits));
    }
    if system && !is_system {
        return Err(Defect::new("chunk of the superblock is not a system chunk", bits));
    }
    Ok(())
}

fn check_geometry(chunk: &Chunk<'_>) -> Result<(), Defect> {
    let kind = chunk.block_group_type();
    let Some(profile) = kind.profile() else {
        return Err(Defect::new("more than one profile in chunk type", kind.bits()));
    };
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
    let data_stripes =
        u64::from(stripes / attributes.ncopies.max(1)).saturating_sub(attributes.nparity.into());
    let data_stripes = if fixed.is_some() { 1 } else { data_stripes };
    if data_stripes == 0 || chunk.header.length.get() % data_stripes != 0 {
        return Err(Defect::new("length of chunk is no multiple of its stripes", chunk.header.length.get()));
    }
    Ok(())
}
