//! Sums of the bytes on devices of each class.

use super::{Content, TierPool};
use crate::placement::{Fit, PlacementClass};
use brindle_ondisk::{DevId, Profile};
use std::collections::BTreeMap;

/// Location of all chunks of one content and profile. All bytes are of devices, copies and parity included, except
/// [`used_bytes`](Self::used_bytes) and [`logical_bytes`](Self::logical_bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Content.
    pub content: Content,
    /// Profile.
    pub profile: Profile,
    /// Its chunks.
    pub chunks: u64,
    /// The length of their logical ranges, in bytes.
    pub logical_bytes: u64,
    /// Used of them, in bytes.
    pub used_bytes: u64,
    /// On fast devices, in bytes.
    pub fast_bytes: u64,
    /// On bulk devices, in bytes.
    pub bulk_bytes: u64,
    /// Misplaced chunks.
    pub misplaced_chunks: u64,
    /// Bytes on other devices than they should be.
    pub misplaced_bytes: u64,
    /// Used bytes in misplaced chunks, which would have to be moved.
    pub movable_bytes: u64,
    /// The part of each chunk that belongs on devices of its class.
    pub fit: Fit,
    /// On each device, in bytes.
    pub by_device: BTreeMap<DevId, u64>,
}

/// Locations of each content and profile in the pool.
pub fn distributions(pool: &TierPool) -> Vec<Distribution> {
    let mut all: BTreeMap<(Content, Profile), Distribution> = BTreeMap::new();
    for chunk in &pool.chunks {
        let key = (chunk.content(), chunk.profile());
        let distribution = all.entry(key).or_insert_with(|| Distribution::new(key, pool.fit(key.0, key.1)));
        distribution.chunks += 1;
        distribution.logical_bytes += chunk.length_bytes;
        distribution.used_bytes += chunk.used_bytes;
        if pool.is_misplaced(chunk) {
            distribution.misplaced_chunks += 1;
            distribution.misplaced_bytes += pool.misplaced_bytes(chunk);
            distribution.movable_bytes += chunk.used_bytes;
        }
        for stripe in &chunk.stripes {
            let bytes = chunk.stripe_bytes();
            *match pool.known_class(stripe.devid).0 {
                PlacementClass::Fast => &mut distribution.fast_bytes,
                PlacementClass::Bulk => &mut distribution.bulk_bytes,
            } += bytes;
            *distribution.by_device.entry(stripe.devid).or_default() += bytes;
        }
    }
    all.into_values().collect()
}

impl Distribution {
    fn new((content, profile): (Content, Profile), fit: Fit) -> Self {
        Self {
            content,
            profile,
            chunks: 0,
            logical_bytes: 0,
            used_bytes: 0,
            fast_bytes: 0,
            bulk_bytes: 0,
            misplaced_chunks: 0,
            misplaced_bytes: 0,
            movable_bytes: 0,
            fit,
            by_device: BTreeMap::new(),
        }
    }
}
