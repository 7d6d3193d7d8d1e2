//! Requests that a device failed, counted where its answers come in.

use crate::CacheCounters;
use brindle_device::DeviceError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of requests of one device that failed, by kind.
#[derive(Debug, Default)]
pub(crate) struct DeviceErrors {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

impl DeviceErrors {
    /// Counts a request that failed.
    pub(crate) fn note(&self, error: &DeviceError) {
        let counter = match error {
            DeviceError::Read { .. } => &self.reads,
            DeviceError::Flush { .. } => &self.flushes,
            _ => &self.writes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins anew.
    pub(crate) fn zero(&self) {
        for counter in [&self.reads, &self.writes, &self.flushes] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> [u64; 3] {
        [&self.reads, &self.writes, &self.flushes].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl CacheCounters {
    /// Takes the counts of the disk, of the first SSD and of its mirror.
    pub(crate) fn take_errors(&mut self, disk: &DeviceErrors, [ssd, mirror]: [&DeviceErrors; 2]) {
        [self.disk_read_errors, self.disk_write_errors, self.disk_flush_errors] = disk.counts();
        [self.ssd_read_errors, self.ssd_write_errors, self.ssd_flush_errors] = ssd.counts();
        [self.mirror_read_errors, self.mirror_write_errors, self.mirror_flush_errors] = mirror.counts();
    }
}
