//! Sizes and rates in command lines.

use anyhow::{Context, Result, anyhow, bail};

/// A number of bytes, with an optional unit of base 1024, as btrfs-progs takes it.
pub(crate) fn parse_size(word: &str) -> Result<u64> {
    const UNITS: &[u8] = b"bkmgtpe";
    let wrong = || anyhow!("a size is a number of bytes, or one followed by K, M, G, T, P or E");
    let unit = word.bytes().last().map(|last| last.to_ascii_lowercase());
    let power = unit.and_then(|unit| UNITS.iter().position(|known| *known == unit));
    let digits = if power.is_some() { &word[..word.len() - 1] } else { word };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let factor = 1u64 << (10 * power.unwrap_or(0));
    number.checked_mul(factor).context("the size is too large")
}

/// Bytes in a second. None at all would never end.
pub(crate) fn parse_rate(word: &str) -> Result<u64> {
    match parse_size(word)? {
        0 => bail!("a rate of 0 would never end; leave it out for no limit"),
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_rate;

    #[test]
    fn a_rate_is_no_standstill() {
        assert_eq!(parse_rate("20M").expect("a rate"), 20 << 20);
        assert!(parse_rate("0").is_err() && parse_rate("0M").is_err() && parse_rate("x").is_err());
    }
}
