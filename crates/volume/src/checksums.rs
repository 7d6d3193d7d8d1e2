//! The checksums that data should have.

use brindle_ondisk::ChecksumType;

/// Checksums of consecutive sectors, one after the other as checksum items hold them; a sector may have
/// none.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataChecksums<'a> {
    bytes: &'a [u8],
    presence: Presence<'a>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Presence<'a> {
    #[default]
    Nowhere,
    Everywhere,
    Bitmap(&'a [u8]),
}

impl<'a> DataChecksums<'a> {
    /// No sector has a checksum: nothing is verified.
    pub const fn none() -> Self {
        Self { bytes: &[], presence: Presence::Nowhere }
    }

    /// Every sector has one: `bytes` holds one after the other.
    pub const fn all(bytes: &'a [u8]) -> Self {
        Self { bytes, presence: Presence::Everywhere }
    }

    /// Sector `n` has one if bit `n % 8` (from the least) of `bitmap[n / 8]` is set. `bytes` has room for
    /// every sector; what stands there for a sector without checksum doesn't matter.
    pub const fn partly(bytes: &'a [u8], bitmap: &'a [u8]) -> Self {
        Self { bytes, presence: Presence::Bitmap(bitmap) }
    }

    /// Returns true if there is an answer for each of `sectors` sectors.
    pub(crate) fn cover(&self, sectors: usize, algorithm: ChecksumType) -> bool {
        let enough = sectors.checked_mul(algorithm.size()).is_some_and(|size| self.bytes.len() >= size);
        match self.presence {
            Presence::Nowhere => true,
            Presence::Everywhere => enough,
            Presence::Bitmap(bitmap) => enough && bitmap.len() >= sectors.div_ceil(8),
        }
    }

    /// Returns true if no sector has one.
    pub(crate) fn are_none(&self) -> bool {
        matches!(self.presence, Presence::Nowhere)
    }

    /// The checksum of a sector.
    pub(crate) fn get(&self, sector: usize, algorithm: ChecksumType) -> Option<&'a [u8]> {
        let present = match self.presence {
            Presence::Nowhere => false,
            Presence::Everywhere => true,
            Presence::Bitmap(bitmap) => {
                bitmap.get(sector / 8).is_some_and(|byte| byte >> (sector % 8) & 1 != 0)
            }
        };
        let start = sector.checked_mul(algorithm.size())?;
        if present { self.bytes.get(start..)?.get(..algorithm.size()) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRC: ChecksumType = ChecksumType::Crc32c;

    #[test]
    fn a_bitmap_says_which_sectors_have_one() {
        let bytes: Vec<u8> = (0..40).collect();
        let some = DataChecksums::partly(&bytes, &[0b0000_0101, 0b10]);
        let present: Vec<usize> = (0..10).filter(|sector| some.get(*sector, CRC).is_some()).collect();
        assert_eq!(present, [0, 2, 9]);
        assert_eq!(some.get(9, CRC), Some(&bytes[36..40]));
        assert!(some.cover(10, CRC) && !some.cover(11, CRC));
    }

    #[test]
    fn too_few_are_noticed() {
        assert!(DataChecksums::all(&[0; 8]).cover(2, CRC));
        assert!(!DataChecksums::all(&[0; 7]).cover(2, CRC));
        assert!(DataChecksums::none().cover(usize::MAX, CRC));
        assert!(!DataChecksums::all(&[]).cover(usize::MAX, CRC));
    }
}
