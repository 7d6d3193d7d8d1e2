//! One write, kept so that it can be made again, whole or in part, on any number of images.

use crate::Random;
use crate::image::{Image, PAGE_BYTES, Page, spans};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Effect of one write or discard on an image.
#[derive(Debug)]
pub struct Change {
    offset: u64,
    length: u64,
    /// Hash of the place and the bytes.
    digest: u64,
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    /// Bytes, in the order of their addresses.
    Bytes(Vec<PageChange>),
    Zeros,
}

#[derive(Debug)]
struct PageChange {
    page: u64,
    within: usize,
    bytes: ChangedBytes,
}

#[derive(Debug)]
enum ChangedBytes {
    /// Shared by all images that the change was made on.
    Whole(Arc<Page>),
    Part(Box<[u8]>),
}

/// Sectors of a torn write that reached the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tear {
    /// The first sectors, of this number.
    First(u64),
    /// All but the first sectors, of this number.
    AllBut(u64),
    /// Each sector by its own toss of a coin.
    Scattered {
        /// Seed of the coins.
        seed: u64,
    },
}

impl Change {
    /// A write.
    #[must_use]
    pub fn write(offset: u64, bytes: &[u8]) -> Self {
        let mut rest = bytes;
        let pieces = spans(offset, bytes.len()).map(|span| {
            let (source, after) = rest.split_at(span.length);
            rest = after;
            let bytes = match Page::try_from(source) {
                Ok(page) => ChangedBytes::Whole(Arc::new(page)),
                Err(_) => ChangedBytes::Part(source.into()),
            };
            PageChange { page: span.page, within: span.within, bytes }
        });
        let payload = Payload::Bytes(pieces.collect());
        let mut hasher = DefaultHasher::new();
        (offset, bytes).hash(&mut hasher);
        Self { offset, length: bytes.len() as u64, digest: hasher.finish(), payload }
    }

    /// A discard: a range that reads as zeros.
    #[must_use]
    pub fn zeros(offset: u64, length: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        (offset, length).hash(&mut hasher);
        Self { offset, length, digest: hasher.finish(), payload: Payload::Zeros }
    }

    /// Start, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Hash of its place and bytes.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns true for a discard.
    #[must_use]
    pub fn is_discard(&self) -> bool {
        matches!(self.payload, Payload::Zeros)
    }

    /// Number of sectors that it touches.
    #[must_use]
    pub fn sectors(&self, sector_bytes: u64) -> u64 {
        (self.offset + self.length).div_ceil(sector_bytes) - self.offset / sector_bytes
    }

    /// Makes it.
    pub fn apply(&self, image: &mut Image) {
        match &self.payload {
            Payload::Bytes(pieces) => pieces.iter().for_each(|piece| piece.apply(image)),
            Payload::Zeros => image.zero(self.offset, self.length),
        }
    }

    /// Makes a part of it.
    pub fn apply_torn(&self, image: &mut Image, sector_bytes: u64, tear: Tear) {
        let first = self.offset / sector_bytes;
        match &self.payload {
            Payload::Bytes(pieces) => {
                let kept = tear.kept(self.sectors(sector_bytes));
                let is_kept = |at: u64| {
                    let sector = usize::try_from(at / sector_bytes - first).expect("a write fits memory");
                    kept[sector]
                };
                pieces.iter().for_each(|piece| piece.apply_sectors(image, sector_bytes, &is_kept));
            }
            // A discard may be as long as the device, so its sectors are not looked at one by one.
            Payload::Zeros => {
                let end = self.offset + self.length;
                let bound = |sectors: u64| {
                    let at = (first + sectors).saturating_mul(sector_bytes);
                    at.clamp(self.offset, end)
                };
                let (from, to) = match tear {
                    Tear::First(sectors) => (self.offset, bound(sectors)),
                    Tear::AllBut(sectors) => (bound(sectors), end),
                    Tear::Scattered { seed } => {
                        let sectors = self.sectors(sector_bytes);
                        (self.offset, bound(Random::new(seed).below(sectors)))
                    }
                };
                image.zero(from, to - from);
            }
        }
    }
}

impl PageChange {
    fn at(&self) -> u64 {
        self.page * PAGE_BYTES as u64 + self.within as u64
    }

    fn apply(&self, image: &mut Image) {
        match &self.bytes {
            ChangedBytes::Whole(page) => image.set_page(self.page, page),
            ChangedBytes::Part(bytes) => image.write(self.at(), bytes),
        }
    }

    fn apply_sectors(&self, image: &mut Image, sector_bytes: u64, is_kept: &impl Fn(u64) -> bool) {
        let mut rest: &[u8] = match &self.bytes {
            ChangedBytes::Whole(page) => &page[..],
            ChangedBytes::Part(bytes) => bytes,
        };
        let mut at = self.at();
        while !rest.is_empty() {
            let left = usize::try_from(sector_bytes - at % sector_bytes).expect("a sector fits memory");
            let (sector, after) = rest.split_at(left.min(rest.len()));
            if is_kept(at) {
                image.write(at, sector);
            }
            at += sector.len() as u64;
            rest = after;
        }
    }
}

impl Tear {
    /// Random tear of a write of `sectors`; `None` if it is too short to tear.
    pub(crate) fn any(sectors: u64, random: &mut Random) -> Option<Self> {
        if sectors < 2 {
            return None;
        }
        let some = 1 + random.below(sectors - 1);
        Some(match random.below(3) {
            0 => Self::First(some),
            1 => Self::AllBut(some),
            _ => Self::Scattered { seed: random.number() },
        })
    }

    /// Returns true for each of a number of sectors that reached the medium.
    #[must_use]
    pub fn kept(self, sectors: u64) -> Vec<bool> {
        let mut coins = match self {
            Self::Scattered { seed } => Random::new(seed),
            Self::First(_) | Self::AllBut(_) => Random::new(0),
        };
        (0..sectors).map(|sector| self.keeps(sector, &mut coins)).collect()
    }

    fn keeps(self, sector: u64, coins: &mut Random) -> bool {
        match self {
            Self::First(kept) => sector < kept,
            Self::AllBut(lost) => sector >= lost,
            Self::Scattered { .. } => coins.chance(1, 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torn(change: &Change, tear: Tear) -> Vec<u8> {
        let mut image = Image::new(16384);
        image.write(0, &[9; 16384]);
        change.apply_torn(&mut image, 512, tear);
        image.to_vec()
    }

    #[test]
    fn a_change_made_again_is_the_write() {
        for (offset, length) in [(0, 16384), (100, 50), (4000, 5000), (4096, 4096), (8191, 2)] {
            let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).expect("small")).collect();
            let (mut image, mut expected) = (Image::new(16384), Image::new(16384));
            Change::write(offset, &bytes).apply(&mut image);
            expected.write(offset, &bytes);
            assert_eq!(image.first_difference(&expected), None);
        }
    }

    #[test]
    fn a_torn_write_keeps_whole_sectors() {
        // From the middle of the second sector to the middle of the eleventh.
        let change = Change::write(700, &[1; 4700]);
        assert_eq!(change.sectors(512), 10);
        let first = torn(&change, Tear::First(3));
        assert!(first[..700].iter().chain(&first[2048..]).all(|byte| *byte == 9));
        assert!(first[700..2048].iter().all(|byte| *byte == 1));
        let rest = torn(&change, Tear::AllBut(3));
        assert!(rest[..2048].iter().chain(&rest[5400..]).all(|byte| *byte == 9));
        assert!(rest[2048..5400].iter().all(|byte| *byte == 1));
        let scattered = torn(&change, Tear::Scattered { seed: 3 });
        let sectors: Vec<&[u8]> = scattered[1024..5120].chunks(512).collect();
        assert!(sectors.iter().all(|sector| sector.iter().all(|byte| byte == &sector[0])));
        assert!(sectors.iter().any(|sector| sector[0] == 1) && sectors.iter().any(|sector| sector[0] == 9));
    }

    #[test]
    fn a_torn_discard_zeros_one_run_of_sectors() {
        let change = Change::zeros(700, 4700);
        let first = torn(&change, Tear::First(2));
        assert!(first[700..1536].iter().all(|byte| *byte == 0) && first[1536] == 9 && first[699] == 9);
        let rest = torn(&change, Tear::AllBut(2));
        assert!(rest[1536..5400].iter().all(|byte| *byte == 0) && rest[1535] == 9 && rest[5400] == 9);
    }

    #[test]
    fn a_single_sector_is_not_torn() {
        let mut random = Random::new(1);
        assert_eq!(Tear::any(1, &mut random), None);
        assert!((0..50).all(|_| Tear::any(2, &mut random).is_some()));
    }
}
