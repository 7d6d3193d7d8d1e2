//! Default memory of a mount for tree blocks.
//!
//! Every change of one file here and one there costs a few blocks, read and written. They cost it once for many
//! changes as long as they stay in memory, so a mount takes a part of what the machine has; as much again may wait to
//! be written.

/// A mount takes this share of the machine's memory.
const SHARE: u64 = 32;
const LEAST_BYTES: u64 = brindle_ondisk::to_u64(brindle_tree::DEFAULT_CACHE_BYTES);
const MOST_BYTES: u64 = 512 << 20;

/// For this machine, in bytes.
pub(super) fn budget_bytes() -> usize {
    brindle_ondisk::to_usize(share_of(machine_bytes()))
}

/// The machine's memory in bytes; 0 if it can't be told.
pub(crate) fn machine_bytes() -> u64 {
    let said = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total_bytes(&said).unwrap_or(0)
}

fn share_of(total_bytes: u64) -> u64 {
    (total_bytes / SHARE).clamp(LEAST_BYTES, MOST_BYTES)
}

/// The machine's memory, as `/proc/meminfo` says it.
fn total_bytes(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_has_limits() {
        assert_eq!(share_of(0), 64 << 20);
        assert_eq!(share_of(8 << 30), 256 << 20);
        assert_eq!(share_of(1 << 40), 512 << 20);
    }

    #[test]
    fn memory_is_told_in_kib() {
        assert_eq!(total_bytes("MemFree: 7 kB\nMemTotal:    2048 kB\n"), Some(2 << 20));
        assert_eq!(total_bytes("MemTotal: much"), None);
        assert_eq!(total_bytes(""), None);
    }
}
