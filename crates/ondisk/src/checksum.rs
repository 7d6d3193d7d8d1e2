//! The four checksum algorithms (`csum_type`).

use std::fmt;

/// A checksum algorithm of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ChecksumType {
    /// CRC-32C, four bytes.
    Crc32c = 0,
    /// xxHash64, eight bytes.
    Xxhash64 = 1,
    /// SHA-256, 32 bytes.
    Sha256 = 2,
    /// BLAKE2b with 256 bits of output, 32 bytes.
    Blake2b = 3,
}

/// A checksum, left-aligned in the 32 bytes that a node header keeps for it; the rest is zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    bytes: [u8; 32],
    length: u8,
}

impl ChecksumType {
    /// Every algorithm, in the order of their numbers on disk.
    pub const ALL: [Self; 4] = [Self::Crc32c, Self::Xxhash64, Self::Sha256, Self::Blake2b];

    /// The algorithm of a number on disk.
    pub fn from_disk(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The number on disk.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The length of a checksum in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            Self::Sha256 | Self::Blake2b => 32,
        }
    }

    /// The name that mkfs.btrfs and the kernel use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxhash64 => "xxhash64",
            Self::Sha256 => "sha256",
            Self::Blake2b => "blake2b",
        }
    }

    /// The checksum of some bytes.
    pub fn compute(self, data: &[u8]) -> Checksum {
        use sha2::Digest;
        match self {
            Self::Crc32c => Checksum::from_slice(&crc32c::crc32c(data).to_le_bytes()),
            Self::Xxhash64 => Checksum::from_slice(&twox_hash::XxHash64::oneshot(0, data).to_le_bytes()),
            Self::Sha256 => Checksum::from_slice(&sha2::Sha256::digest(data)),
            Self::Blake2b => {
                let hash = blake2b_simd::Params::new().hash_length(32).hash(data);
                Checksum::from_slice(hash.as_bytes())
            }
        }
    }

    /// Returns true if `stored`, at least `size` bytes long, is the checksum of `data`.
    pub fn matches(self, data: &[u8], stored: &[u8]) -> bool {
        stored.get(..self.size()).is_some_and(|stored| self.compute(data).as_bytes() == stored)
    }
}

impl fmt::Display for ChecksumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Checksum {
    /// Takes up to 32 bytes as a checksum; more are cut off.
    pub fn from_slice(slice: &[u8]) -> Self {
        let mut bytes = [0; 32];
        let mut length = 0;
        for (target, source) in bytes.iter_mut().zip(slice) {
            *target = *source;
            length += 1;
        }
        Self { bytes, length }
    }

    /// The bytes of the checksum.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let of = |kind: ChecksumType| kind.compute(b"123456789").to_string();
        assert_eq!(of(ChecksumType::Crc32c), "0x839206e3");
        assert_eq!(of(ChecksumType::Xxhash64), "0x83aee640db41b88c"); // XXH64 0x8cb841db40e6ae83
        assert!(of(ChecksumType::Sha256).starts_with("0x15e2b0d3c33891ebb0f1ef609ec41942"));
        assert_eq!(of(ChecksumType::Blake2b).len(), 2 + 64);
    }

    #[test]
    fn a_short_stored_checksum_never_matches() {
        assert!(!ChecksumType::Sha256.matches(b"", &[0; 31]));
    }
}
