//! When the fence around the bulk devices is to stand, so that the next metadata chunk lands on fast ones.
//!
//! The kernel makes a new metadata chunk when it finds no place in those that there are, and nothing makes it do so
//! earlier (seen on 6.18: 88 % taken, and a transaction makes none). Shortly before, the fence goes up; when there is
//! room in a new chunk, it comes down. While it stands, data that needs a new chunk would get it on the wrong devices,
//! so it does not stand while data is short of room.

/// Use of the chunks of one kind, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    /// Length of the chunks' logical ranges.
    pub total_bytes: u64,
    /// Bytes that cannot be allocated.
    pub taken_bytes: u64,
}

/// Thresholds for the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The fence goes up when metadata chunks have less than this to spare, in bytes.
    pub metadata_bytes: u64,
    /// Bytes that data chunks must have to spare for the fence to stand; half of it if it stands already.
    pub data_bytes: u64,
}

/// Returns true if the fence is to stand.
pub fn is_fence_due(metadata: Fullness, data: Fullness, marks: Marks, stands: bool) -> bool {
    let spare = |chunks: Fullness| chunks.total_bytes.saturating_sub(chunks.taken_bytes);
    let needed = if stands { marks.data_bytes / 2 } else { marks.data_bytes };
    spare(metadata) < marks.metadata_bytes && spare(data) >= needed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MARKS: Marks = Marks { metadata_bytes: 64 * MIB, data_bytes: 1024 * MIB };

    fn full(total: u64, taken: u64) -> Fullness {
        Fullness { total_bytes: total * MIB, taken_bytes: taken * MIB }
    }

    #[test]
    fn the_fence_stands_from_shortly_before_a_new_chunk_until_it_is_there() {
        let data = full(10_000, 5000);
        assert!(!is_fence_due(full(1000, 930), data, MARKS, false));
        assert!(is_fence_due(full(1000, 940), data, MARKS, false));
        assert!(is_fence_due(full(1000, 1000), data, MARKS, true));
        assert!(!is_fence_due(full(2000, 1001), data, MARKS, true));
    }

    #[test]
    fn data_that_is_short_of_room_comes_first() {
        let metadata = full(1000, 990);
        assert!(!is_fence_due(metadata, full(10_000, 9000), MARKS, false));
        assert!(is_fence_due(metadata, full(10_000, 9000), MARKS, true));
        assert!(!is_fence_due(metadata, full(10_000, 9500), MARKS, true));
    }
}
