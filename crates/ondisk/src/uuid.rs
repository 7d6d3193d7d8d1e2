//! UUIDs as 16 bytes in the order they are written.

use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A UUID of a pool, a device, a chunk tree or a subvolume.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The UUID that stands for "none".
    pub const NIL: Self = Self([0; 16]);

    /// Returns true if this stands for "none".
    pub fn is_nil(&self) -> bool {
        *self == Self::NIL
    }

    /// Reads the usual form of five groups of hex digits; hyphens may be left out.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(Uuid::parse(text).map(|uuid| uuid.to_string()).as_deref(), Some(text));
        assert_eq!(Uuid::parse("0123"), None);
        assert_eq!(Uuid::parse("zz234567-89ab-cdef-0123-456789abcdef"), None);
    }
}
