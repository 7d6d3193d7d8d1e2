//! Consent to write the disk again after its connection was lost. The cache gives it if its mark is still on the disk, and then asks
//! its user, which is shown the disk as before: dirty blocks from the flash, all others from the disk.
//!
//! Called by a thread of the disk while requests wait for it, so it takes no lock but that of the state, and enters no blocks.

use crate::engine::Cache;
use crate::format::block_checksum;
use brindle_device::{Device, DeviceClass, DeviceError, ReconnectError, ReconnectGuard};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Attempts to read a block that is written meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// Guard of the disk of a cache.
#[derive(Debug)]
struct DiskGuard(Weak<Cache>);

/// Has the disk of a cache ask for its mark, and the guard of its user, when it is reached again.
pub fn guard_disk(cache: &Arc<Cache>) {
    cache.disk.guard_reconnects(Arc::new(DiskGuard(Arc::downgrade(cache))));
}

impl ReconnectGuard for DiskGuard {
    fn admit(&self, device: &dyn Device) -> Result<Duration, ReconnectError> {
        let Some(cache) = self.0.upgrade() else {
            return Err(ReconnectError::Refused { why: "its cache is closed".to_owned() });
        };
        if let Some(block) = cache.unmarked_block(device)? {
            let (name, place) = (&cache.name, block * cache.geometry.block_bytes);
            let why = format!(
                "at {place} it lacks the mark of the cache {name}: others wrote it, or it is another one"
            );
            return Err(ReconnectError::Refused { why });
        }
        let guard = cache.lock().guard.clone();
        guard.map_or(Ok(Duration::MAX), |guard| guard.admit(&DiskView { cache: &cache, disk: device }))
    }
}

/// The contents of the cache, with the disk on a new connection.
#[derive(Debug)]
struct DiskView<'v> {
    cache: &'v Cache,
    disk: &'v dyn Device,
}

impl DiskView<'_> {
    /// Contents of a block that is dirty.
    fn dirty_block(&self, block: u64) -> Result<Option<Vec<u8>>, DeviceError> {
        let place = block * self.cache.geometry.block_bytes;
        let mut bytes = vec![0; self.cache.block_length()];
        for _ in 0..ATTEMPTS_MAX {
            let found = {
                let slots = &self.cache.lock().slots;
                let slot = slots.find(block).filter(|slot| slots.is_dirty(*slot));
                slot.map(|slot| (slot, slots.checksum(slot)))
            };
            let Some((slot, checksum)) = found else { return Ok(None) };
            let (flash, place) = (&self.cache.flash, self.cache.geometry.slot_place(slot));
            let reader = flash.reader_of(slot);
            let mut read = |index| {
                flash.read_at(index, place, &mut bytes).map(|()| block_checksum(block, &bytes) == checksum)
            };
            let is_whole = match (read(reader), flash.other(reader)) {
                (Ok(false) | Err(_), Some(other)) => read(other)?,
                (read, _) => read?,
            };
            if is_whole {
                return Ok(Some(bytes));
            }
        }
        let source = io::Error::other("a dirty block is damaged, or written all the time");
        let (device, length) = (self.name().to_owned(), bytes.len());
        Err(DeviceError::Read { device, offset: place, length, source })
    }
}

impl Device for DiskView<'_> {
    fn name(&self) -> &str {
        &self.cache.name
    }

    fn size_bytes(&self) -> u64 {
        self.cache.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.disk.read_at(offset, buffer)?;
        for piece in self.cache.pieces(offset, buffer.len()) {
            if let Some(bytes) = self.dirty_block(piece.block)? {
                buffer[piece.range()].copy_from_slice(&bytes[piece.within..][..piece.length]);
            }
        }
        Ok(())
    }

    fn class(&self) -> DeviceClass {
        self.cache.class()
    }
}
