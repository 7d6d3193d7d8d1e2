//! Time and UUIDs of a pool that can be made again.

use brindle_fs::{Host, Timestamp};
use brindle_ondisk::{ChecksumType, Uuid};
use std::sync::atomic::{AtomicU64, Ordering};

/// A host where it is always the same time, and UUIDs follow from a seed.
#[derive(Debug)]
pub(super) struct SeededHost {
    seed: [u8; 16],
    now: Timestamp,
    next: AtomicU64,
}

impl SeededHost {
    pub(super) fn new(seed: [u8; 16], time_sec: i64) -> Self {
        Self { seed, now: Timestamp { seconds: time_sec, nanoseconds: 0 }, next: AtomicU64::new(0) }
    }
}

impl Host for SeededHost {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn new_uuid(&self) -> Uuid {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let hash =
            ChecksumType::Blake2b.compute(&[&self.seed[..], b"subvolume", &number.to_le_bytes()].concat());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }
}
