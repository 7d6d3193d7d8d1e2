//! A device of which the pool uses more, or less.

use super::vacate::vacate;
use super::{DeviceCareError, check_no_balance, member, when_vacant};
use crate::job::{Control, Ended, Observer, Progress};
use brindle_ondisk::DevId;
use brindle_tree::Pool;
use std::fmt;

/// Devices are not shrunk to less, as the kernel has it, in bytes.
const MINIMUM_BYTES: u64 = 256 << 20;

/// Part of a device that the pool is to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// All of the device.
    Max,
    /// This number of bytes.
    To(u64),
    /// This number of bytes more.
    Grow(u64),
    /// This number of bytes less.
    Shrink(u64),
}

impl fmt::Display for NewSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::To(bytes) => write!(f, "{bytes}"),
            Self::Grow(bytes) => write!(f, "+{bytes}"),
            Self::Shrink(bytes) => write!(f, "-{bytes}"),
        }
    }
}

/// Error of parsing a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseSizeError;

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is [+|-]BYTES, with K, M, G, T, P or E behind them or without, or max")
    }
}

impl std::error::Error for ParseSizeError {}

impl std::str::FromStr for NewSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        match text.as_bytes().first() {
            Some(b'+') => Ok(Self::Grow(bytes_of(&text[1..])?)),
            Some(b'-') => Ok(Self::Shrink(bytes_of(&text[1..])?)),
            _ if text == "max" => Ok(Self::Max),
            _ => Ok(Self::To(bytes_of(text)?)),
        }
    }
}

/// A number of bytes with a suffix of powers of 1024.
fn bytes_of(text: &str) -> Result<u64, ParseSizeError> {
    const SUFFIXES: &str = "kmgtpe";
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let mut suffix = text[digits.len()..].chars();
    let shift = match (suffix.next().map(|letter| letter.to_ascii_lowercase()), suffix.next()) {
        (None, _) => 0,
        (Some(letter), None) => {
            10 * (1 + SUFFIXES.chars().position(|known| known == letter).ok_or(ParseSizeError)?)
        }
        _ => return Err(ParseSizeError),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number).ok_or(ParseSizeError)?;
    number.checked_mul(1 << shift).ok_or(ParseSizeError)
}

impl NewSize {
    /// New size in bytes, of a device of `size_bytes` of which the pool uses `now`.
    fn bytes(self, now: u64, size_bytes: u64) -> u64 {
        match self {
            Self::Max => size_bytes,
            Self::To(bytes) => bytes,
            Self::Grow(bytes) => now.saturating_add(bytes),
            Self::Shrink(bytes) => now.saturating_sub(bytes),
        }
    }
}

/// Grows the part of a device that the pool uses, or shrinks it once everything after the new end has moved.
pub fn resize(
    pool: &Pool,
    devid: DevId,
    size: NewSize,
    observer: Observer<'_>,
) -> Result<Ended, DeviceCareError> {
    let alone = pool.begin_exclusive("filesystem resize")?;
    check_no_balance(pool)?;
    let known = member(pool, devid)?;
    let size_bytes = pool.volume().refresh_size(devid)?.ok_or(DeviceCareError::Missing { devid })?;
    let sectorsize = u64::from(pool.volume().tree_context().sectorsize);
    let wanted_bytes = size.bytes(known.total_bytes, size_bytes);
    let wanted_bytes = wanted_bytes - wanted_bytes % sectorsize;
    if let NewSize::Shrink(less_bytes) = size {
        if less_bytes > known.total_bytes {
            let (device, total_bytes) = (known.name, known.total_bytes);
            return Err(DeviceCareError::ShrunkToNothing { device, total_bytes, less_bytes });
        }
    }
    if wanted_bytes > size_bytes {
        return Err(DeviceCareError::BeyondEnd { device: known.name, size_bytes, wanted_bytes });
    }
    if wanted_bytes < MINIMUM_BYTES.min(known.total_bytes) {
        return Err(DeviceCareError::SizeTooSmall { wanted_bytes, minimum_bytes: MINIMUM_BYTES });
    }
    let mut ended = Ended { progress: Progress::default(), control: Control::Continue };
    let _withheld = pool.withhold(devid, wanted_bytes)?;
    if wanted_bytes < known.total_bytes {
        ended = vacate(pool, &alone, devid, wanted_bytes, observer)?;
    }
    if ended.control == Control::Continue && wanted_bytes != known.total_bytes {
        when_vacant(pool, || Ok(pool.set_device_size(devid, wanted_bytes)?.then_some(())))?;
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_as_btrfs_progs_has_them() {
        let parse = |text: &str| text.parse::<NewSize>();
        assert_eq!(parse("max"), Ok(NewSize::Max));
        assert_eq!(parse("300M"), Ok(NewSize::To(300 << 20)));
        assert_eq!(parse("+1g"), Ok(NewSize::Grow(1 << 30)));
        assert_eq!(parse("-4096"), Ok(NewSize::Shrink(4096)));
        assert_eq!(
            ["max", "7", "+7", "-7"].map(|text| parse(text).expect("a size").to_string()),
            ["max", "7", "+7", "-7"]
        );
        for nonsense in ["", "+", "M", "1MB", "1 M", "+-1", "maximum", "99999999999E", "-max"] {
            assert_eq!(parse(nonsense), Err(ParseSizeError), "{nonsense}");
        }
    }

    #[test]
    fn sizes_are_relative_to_what_is_used_now() {
        let of = |size: NewSize| size.bytes(1000, 5000);
        assert_eq!(of(NewSize::Max), 5000);
        assert_eq!(of(NewSize::To(7)), 7);
        assert_eq!(
            (of(NewSize::Grow(10)), of(NewSize::Shrink(10)), of(NewSize::Shrink(2000))),
            (1010, 990, 0)
        );
        assert_eq!(of(NewSize::Grow(u64::MAX)), u64::MAX);
    }
}
