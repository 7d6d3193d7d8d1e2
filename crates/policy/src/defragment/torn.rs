//! Files that a mount lays together by itself after small writes at random places (`autodefrag`): the writes that count, the
//! time at which a file is due, and the pools in which nothing is done.
//!
//! A file that is still being written would be torn again at once, so that it is due after a pause of its writer. One that is
//! written without a pause is due now and then.

use std::ops::Range;
use std::time::Duration;

/// Length in bytes from which on a write does not count as small.
pub const SMALL_WRITE_BYTES: u64 = 64 << 10;
/// Length in bytes from which on a run of extents is left alone. It bounds the bytes that are written anew for a small write.
pub const RUN_BYTES: u64 = 256 << 10;
/// Time since the last small write after which a file is due.
pub const PAUSE: Duration = Duration::from_secs(15);
/// Time since the first small write after which a file is due without a pause.
pub const OVERDUE: Duration = Duration::from_secs(300);
/// Least room for data, in bytes, and as a part of all that data could take.
const ROOM_BYTES_MIN: u64 = 64 << 20;
const ROOM_DIVISOR: u64 = 20;

/// Returns true for a write that tears a file: short, and not all of the file. `size`: that of the file, in bytes.
pub fn tears(written: &Range<u64>, size: u64) -> bool {
    let bytes = written.end.saturating_sub(written.start);
    bytes < SMALL_WRITE_BYTES && (written.start > 0 || written.end < size)
}

/// Facts about a torn file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornFile {
    /// Time since the first small write.
    pub since_first: Duration,
    /// Time since the last one.
    pub since_last: Duration,
    /// True if contents of the file wait in memory.
    pub is_dirty: bool,
}

/// Returns true if a file is due.
pub fn is_due(file: &TornFile) -> bool {
    file.since_first >= OVERDUE || file.since_last >= PAUSE && !file.is_dirty
}

/// Facts about a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// Room for data, in bytes.
    pub room_bytes: u64,
    /// Bytes that data takes.
    pub data_bytes: u64,
    /// True if a device is missing.
    pub is_degraded: bool,
}

/// Returns true if files may be laid together now. Places of big extents of which a part stays in use are not free before the
/// rest is written anew, too, so that a pool that is nearly full is left alone.
pub fn may_lay(pool: &PoolState) -> bool {
    let needed = (pool.room_bytes.saturating_add(pool.data_bytes) / ROOM_DIVISOR).max(ROOM_BYTES_MIN);
    pool.room_bytes >= needed && !pool.is_degraded
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolState = PoolState { room_bytes: 1 << 30, data_bytes: 1 << 30, is_degraded: false };

    #[test]
    fn short_writes_inside_a_file_tear_it() {
        assert!(tears(&(4096..8192), 1 << 20) && tears(&(0..4096), 1 << 20));
        assert!(
            tears(&((1 << 20)..(1 << 20) + 4096), (1 << 20) + 10),
            "a short piece at the end is one more extent"
        );
        assert!(!tears(&(0..8192), 5000), "all of the file");
        assert!(!tears(&(4096..4096 + SMALL_WRITE_BYTES), 1 << 20));
    }

    #[test]
    fn a_file_is_due_after_a_pause_and_now_and_then_without_one() {
        let file = |since_first, since_last, is_dirty| TornFile { since_first, since_last, is_dirty };
        let second = Duration::from_secs(1);
        assert!(is_due(&file(PAUSE, PAUSE, false)));
        assert!(!is_due(&file(PAUSE * 2, PAUSE - second, false)));
        assert!(!is_due(&file(PAUSE * 2, PAUSE, true)), "it is being written");
        assert!(is_due(&file(OVERDUE, Duration::ZERO, true)));
    }

    #[test]
    fn a_pool_that_is_nearly_full_or_degraded_is_left_alone() {
        assert!(may_lay(&POOL));
        assert!(!may_lay(&PoolState { room_bytes: 40 << 20, data_bytes: 0, ..POOL }));
        assert!(!may_lay(&PoolState { data_bytes: 40 << 30, ..POOL }));
        assert!(!may_lay(&PoolState { is_degraded: true, ..POOL }));
    }
}
