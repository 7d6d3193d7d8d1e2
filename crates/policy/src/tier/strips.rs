//! Devices as strips: the device extents of each in physical order, with their content and fill.

use super::{Content, TierChunk, TierPool};
use brindle_ondisk::{DevId, Logical, Profile};

/// A device and its device extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// The device.
    pub devid: DevId,
    /// Its size as the pool has it, in bytes.
    pub total_bytes: u64,
    /// Its device extents, by their places.
    pub pieces: Vec<Piece>,
}

/// A device extent, and the block group that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Start on the device, in bytes.
    pub start: u64,
    /// Its length, in bytes.
    pub length_bytes: u64,
    /// Kind of its contents.
    pub kind: PieceKind,
    /// Profile of the block group.
    pub profile: Profile,
    /// Start address of the block group.
    pub logical: Logical,
    /// Logical length of the block group, in bytes.
    pub group_bytes: u64,
    /// Used of that, in bytes.
    pub used_bytes: u64,
    /// True if the block group lies on devices of the wrong class.
    pub is_misplaced: bool,
}

/// Kind of the contents of a device extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PieceKind {
    /// The trees.
    Metadata,
    /// The chunk tree.
    System,
    /// Contents of files.
    Data,
    /// Contents of small and marked files, on fast devices.
    FastData,
    /// Contents of files that wait for being destaged.
    WriteBack,
    /// Data and metadata in one.
    Mixed,
}

impl PieceKind {
    /// All kinds, in the order of a legend.
    pub const ALL: [Self; 6] =
        [Self::Metadata, Self::System, Self::FastData, Self::WriteBack, Self::Data, Self::Mixed];

    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::System => "system",
            Self::Data => "data",
            Self::FastData => "fast_data",
            Self::WriteBack => "write_back",
            Self::Mixed => "mixed",
        }
    }
}

/// The devices of a pool as strips, in the order of the pool, missing ones included. `has_tiers` tells whether data on fast devices alone is
/// a tier.
pub fn strips(pool: &TierPool, has_tiers: bool) -> Vec<Strip> {
    let devices = if pool.members.is_empty() { &pool.devices } else { &pool.members };
    let mut strips: Vec<Strip> = devices
        .iter()
        .map(|device| Strip { devid: device.devid, total_bytes: device.total_bytes, pieces: Vec::new() })
        .collect();
    for chunk in &pool.chunks {
        let (kind, is_misplaced) = (kind_of(pool, chunk, has_tiers), pool.is_misplaced(chunk));
        for stripe in &chunk.stripes {
            let piece = Piece {
                start: stripe.physical.get(),
                length_bytes: chunk.stripe_bytes(),
                kind,
                profile: chunk.profile(),
                logical: chunk.logical,
                group_bytes: chunk.length_bytes,
                used_bytes: chunk.used_bytes,
                is_misplaced,
            };
            if let Some(strip) = strips.iter_mut().find(|strip| strip.devid == stripe.devid) {
                strip.pieces.push(piece);
            }
        }
    }
    strips.iter_mut().for_each(|strip| strip.pieces.sort_by_key(|piece| piece.start));
    strips
}

fn kind_of(pool: &TierPool, chunk: &TierChunk, has_tiers: bool) -> PieceKind {
    match chunk.content() {
        Content::Metadata => PieceKind::Metadata,
        Content::System => PieceKind::System,
        Content::Mixed => PieceKind::Mixed,
        Content::Data if chunk.is_write_back => PieceKind::WriteBack,
        Content::Data if has_tiers && pool.is_of_fast_tier(chunk) => PieceKind::FastData,
        Content::Data => PieceKind::Data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::PlacementClass;
    use crate::tier::{TierDevice, TierStripe};
    use brindle_ondisk::{BlockGroupType, Physical};

    fn chunk(logical: u64, kind: BlockGroupType, places: &[(u64, u64)]) -> TierChunk {
        let stripe =
            |(devid, at): &(u64, u64)| TierStripe { devid: DevId::new(*devid), physical: Physical::new(*at) };
        TierChunk {
            logical: Logical::new(logical),
            length_bytes: 100,
            used_bytes: 30,
            kind,
            stripes: places.iter().map(stripe).collect(),
            is_write_back: false,
        }
    }

    #[test]
    fn pieces_are_in_physical_order_with_their_kinds() {
        let device =
            |devid, class| TierDevice { devid: DevId::new(devid), class, rank: 0, total_bytes: 1000 };
        let (data, metadata) = (BlockGroupType::DATA, BlockGroupType::METADATA);
        let chunks = vec![
            chunk(1, data, &[(1, 500)]),
            chunk(2, metadata | BlockGroupType::RAID1, &[(1, 200), (2, 300)]),
            TierChunk { is_write_back: true, ..chunk(3, data, &[(1, 700)]) },
            chunk(4, metadata, &[(2, 100)]),
            chunk(5, data, &[(2, 600)]),
        ];
        let devices = vec![device(1, PlacementClass::Fast), device(2, PlacementClass::Bulk)];
        let pool = TierPool { devices, chunks, is_ours: true, ..TierPool::default() };
        let found = strips(&pool, true);
        let shown = |strip: &Strip| -> Vec<(u64, PieceKind, bool)> {
            strip.pieces.iter().map(|piece| (piece.start, piece.kind, piece.is_misplaced)).collect()
        };
        use PieceKind::{Data, FastData, Metadata, WriteBack};
        assert_eq!(
            shown(&found[0]),
            [(200, Metadata, false), (500, FastData, false), (700, WriteBack, false)]
        );
        assert_eq!(shown(&found[1]), [(100, Metadata, true), (300, Metadata, false), (600, Data, false)]);
        assert_eq!(strips(&pool, false)[0].pieces[1].kind, Data);
        assert!(found.iter().flat_map(|strip| &strip.pieces).all(|piece| piece.length_bytes == 100));
    }
}
