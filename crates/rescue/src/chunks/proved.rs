//! A chunk that is proved.

use super::candidates::OwnedChunk;
use super::members::Members;
use brindle_ondisk::item::Stripe;
use brindle_ondisk::{BlockGroupType, Generation};
use brindle_volume::stripe_places;

/// Fact that settles the order of stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Any order is right.
    Profile,
    /// A chunk item of the same device extents, in a block of this generation.
    Item(Generation),
    /// Tree blocks or data, at the places where they belong.
    Contents,
    /// No extent lies in it.
    Empty,
    /// The chunk tree alone lies in it, of which no block is left: it is written anew in any order.
    Anew,
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Profile => f.write_str("any order of its stripes is right"),
            Self::Item(generation) => write!(f, "a chunk item of generation {generation}"),
            Self::Contents => f.write_str("its contents"),
            Self::Empty => f.write_str("nothing lies in it"),
            Self::Anew => f.write_str("the chunk tree alone lies in it, and is lost"),
        }
    }
}

/// A chunk that counts.
#[derive(Clone, Debug)]
pub struct ProvedChunk {
    pub(crate) chunk: OwnedChunk,
    /// Fact that settles the order of its stripes.
    pub proof: Proof,
}

impl ProvedChunk {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.chunk.header.length.get()
    }

    /// Content and profile.
    pub fn kind(&self) -> BlockGroupType {
        self.chunk.kind()
    }

    /// Its stripes, in order.
    pub fn stripes(&self) -> &[Stripe] {
        &self.chunk.stripes
    }

    /// Places of the byte at an offset, on devices that are there.
    pub(crate) fn places(&self, members: &Members, offset: u64) -> Vec<(usize, u64)> {
        let Ok(places) = stripe_places(&self.chunk.as_item(), offset) else { return Vec::new() };
        let place = |number: &usize| {
            let stripe = self.chunk.stripes.get(*number)?;
            let device = members.number_of(stripe.devid)?;
            Some((device, stripe.offset.get().checked_add(places.stripe_offset)?))
        };
        places.stripes.iter().filter_map(place).collect()
    }
}
